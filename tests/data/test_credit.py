import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.data.credit import IDLE_S, REMEMBERED, SILENT_S, Credit

UNIT = 100


def grants(credit: Credit) -> dict[str, int]:
    return {dispatch.name: dispatch.grant for dispatch in credit.living()}


def test_those_who_are_there_share_alike_in_whole_units():
    credit = Credit(UNIT)
    a = credit.hear("a", 1, 0.0)
    credit.share(1050, 0.0)
    assert a.room == (0, 1000)
    credit.hear("b", 1, 0.0)
    credit.share(1050, 0.0)
    assert grants(credit) == {"a": 1000, "b": 0}  # what a has leave to send is on its way, for all anybody knows
    for _ in range(6):
        credit.spend(a, UNIT, 1.0)
    credit.share(1050, 1.0)  # as if the learner had taken what came
    assert grants(credit) == {"a": 500, "b": 500}
    assert a.room == (6, 1100)


def test_where_there_is_not_a_unit_for_everyone_they_have_it_in_turn():
    credit = Credit(UNIT)
    order = []
    for name in "abcd":
        credit.hear(name, 1, 0.0)
    for now in range(1, 13):
        credit.share(UNIT + UNIT // 2, 0.1 * now)
        (lucky,) = [dispatch for dispatch in credit.living() if dispatch.grant]
        order.append(lucky.name)
        credit.spend(lucky, UNIT, 0.1 * now)
    assert order == list("abcd") * 3


def test_a_remainder_is_made_up_to_a_unit():
    credit = Credit(UNIT)
    a = credit.hear("a", 1, 0.0)
    credit.share(UNIT, 0.0)
    credit.spend(a, 60, 0.0)
    credit.share(UNIT - 60, 0.0)
    assert a.grant == 40  # there is no more
    credit.share(UNIT, 0.0)
    assert a.grant == UNIT


def test_who_is_silent_gives_its_grant_back_and_is_known_when_it_returns():
    credit = Credit(UNIT)
    a = credit.hear("a", 1, 0.0)
    b = credit.hear("b", 1, 0.0)
    credit.share(2 * UNIT, 0.0)
    credit.spend(a, UNIT, 0.0)
    credit.share(2 * UNIT, 0.0)
    credit.hear("b", 1, SILENT_S)
    credit.spend(b, UNIT, SILENT_S)
    credit.share(2 * UNIT, SILENT_S + 0.1)
    assert grants(credit) == {"b": 2 * UNIT}
    back = credit.hear("a", 1, SILENT_S + 9)
    assert (back.taken, back.bytes, back.grant) == (1, UNIT, 0)


def test_an_unused_grant_is_offered_to_the_next_in_turn_and_an_idle_dispatch_keeps_a_unit():
    credit = Credit(UNIT)
    idle = credit.hear("idle", 1, 0.0)
    credit.share(8 * UNIT, 0.0)
    busy = credit.hear("busy", 1, 0.1)
    credit.share(8 * UNIT, 0.1)
    assert grants(credit) == {"idle": 8 * UNIT, "busy": 0}
    credit.share(8 * UNIT, IDLE_S + 0.1)
    assert grants(credit) == {"idle": UNIT, "busy": 7 * UNIT}
    credit.spend(idle, UNIT, IDLE_S + 0.2)  # it wakes
    for _ in range(4):
        credit.spend(busy, UNIT, IDLE_S + 0.2)
    credit.share(8 * UNIT, IDLE_S + 0.3)
    assert grants(credit) == {"idle": 4 * UNIT, "busy": 4 * UNIT}


def test_who_waited_long_has_its_full_turn():
    credit = Credit(UNIT)
    first, second = credit.hear("first", 1, -0.1), credit.hear("second", 1, 0.0)
    turns = []
    for step in range(50):
        now = 0.25 * IDLE_S * (step + 1)
        for name in ("first", "second"):
            credit.hear(name, 1, now)
        credit.share(UNIT, now)
        turns.append((first.grant, second.grant))
    assert turns[:10] == [(UNIT, 0)] * 5 + [(0, UNIT)] * 5
    assert turns == turns[:10] * 5


@pytest.mark.parametrize("units", [2, 3, 8])
def test_many_who_do_not_send_take_half_of_what_is_scarce_at_most(units):
    credit = Credit(UNIT)
    names = [f"idle-{index}" for index in range(20)]
    sender, now, sent, tried = credit.hear("sender", 1, 0.0), 0.0, 0, set()
    while now < 60:
        now += 0.1
        for name in names:
            credit.hear(name, 1, now)
        credit.hear("sender", 1, now)
        credit.share(units * UNIT, now)
        tried |= {dispatch.name for dispatch in credit.living() if dispatch.grant}
        if now > 25:  # by now, they are known
            assert sum(dispatch.grant for dispatch in credit.living() if dispatch is not sender) <= units // 2 * UNIT
            sent += sender.grant > 0
        while sender.grant:
            credit.spend(sender, UNIT, now)
    assert sent >= 349  # every time
    assert tried >= set(names)


def test_who_is_far_away_gets_more_time_to_use_its_grant():
    credit = Credit(UNIT)
    far, now, got_through = credit.hear("far", 1, 0.0), 0.0, 0
    on_its_way: float | None = None
    while got_through < 3:
        now += 0.1
        assert now < 60
        credit.hear("far", 1, now)
        credit.hear("near", 1, now)
        credit.share(UNIT, now)
        if far.grant and on_its_way is None:
            on_its_way = now + 6 * IDLE_S
        if on_its_way is not None and now >= on_its_way:
            on_its_way = None
            if credit.covers(far, UNIT):
                credit.spend(far, UNIT, now)
                got_through += 1


def test_another_life_starts_at_nothing_and_a_straggler_of_the_last_does_not_mix_with_it():
    credit = Credit(UNIT)
    first = credit.hear("a", 1, 0.0)
    credit.share(3 * UNIT, 0.0)
    credit.spend(first, UNIT, 0.0)
    second = credit.hear("a", 2, 0.0)
    assert (second.taken, second.bytes, credit.granted, len(credit)) == (0, 0, 0, 1)
    credit.share(3 * UNIT, 0.0)
    credit.spend(second, UNIT, 0.0)
    assert credit.hear("a", 1, 0.0).taken == 1
    assert credit.hear("a", 2, 0.0).taken == 1


def test_not_everyone_who_ever_was_there_is_remembered():
    credit = Credit(UNIT)
    for life in range(3 * REMEMBERED):
        credit.hear("a", life, 0.0)
    assert len(credit) == 1 and len(credit._gone) == REMEMBERED


@settings(max_examples=50)
@given(
    capacity=st.integers(0, 2000),
    operations=st.lists(
        st.tuples(st.sampled_from(["hear", "spend", "spend", "release", "wait"]), st.integers(0, 4), st.integers(1, UNIT)), max_size=120
    ),
)
def test_no_more_is_granted_than_there_is_room_for(capacity, operations):
    credit, now, waiting = Credit(UNIT), 0.0, []
    for operation, who, size in operations:
        now += 0.05
        if operation == "hear":
            credit.hear(str(who), size % 2, now)
        elif operation == "spend" and str(who) in grants(credit):
            dispatch = next(dispatch for dispatch in credit.living() if dispatch.name == str(who))
            if dispatch.grant >= size:
                credit.spend(dispatch, size, now)
                waiting.append(size)
        elif operation == "release" and waiting:
            waiting.pop(who % len(waiting))
        elif operation == "wait":
            now += size / 20
        credit.share(capacity - sum(waiting), now)
        assert credit.granted == sum(grants(credit).values()) <= capacity - sum(waiting)
        assert all(grant >= 0 for grant in grants(credit).values())
        if capacity - sum(waiting) >= len(credit) * UNIT + credit.granted:
            assert all(grant >= UNIT for grant in grants(credit).values())  # nobody is kept waiting for nothing
