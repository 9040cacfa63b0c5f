"""Root and relays in one process, in turn: what comes when is the test's own affair."""

import time

import numpy as np
import pytest

from lamarckian.errors import MisuseError
from lamarckian.transport import broadcast
from lamarckian.transport.bfloat16 import rounded, widened
from lamarckian.transport.broadcast import BEAT_S, SMALL_WINDOW_BYTES, Assign, Beat, Children, Chunk, Parcel, Took, terms
from lamarckian.transport.channel import LOCAL, Inbox, Outbox, Terms
from lamarckian.transport.keys import Keys
from lamarckian.transport.relay import Relay
from lamarckian.transport.root import Root, usual_rate
from lamarckian.transport.versions import VersionBoard
from tests.commands import wait_for

N = 300_000  # 1.2 MB, more than a window


class House:
    """A root, its relays, and their boards."""

    def __init__(self, relays: int, **options) -> None:
        self.base = options.get("base", LOCAL)
        self.board = VersionBoard.create(N)
        self.root = Root(self.board, **options)
        self.relays = [self.relay(index) for index in range(relays)]

    def relay(self, index: int) -> Relay:
        return Relay(VersionBoard.create(N), self.root.address, f"relay-{index}", base=self.base)

    def publish(self, version: int) -> None:
        self.board.publish(version, content(version))

    def advance(self, without: Relay | None = None) -> None:
        self.root.advance(0.0)
        for relay in self.relays:
            if relay is not without:
                relay.advance(0.002)

    def until(self, condition, what: str, without: Relay | None = None) -> None:
        def step() -> bool:
            self.advance(without)
            return condition()

        deadline = time.monotonic() + 30
        while not step():
            assert time.monotonic() < deadline, what

    def spread(self, version: int, without: Relay | None = None) -> None:
        """Publishes a version, and waits until all have it."""
        self.publish(version)
        others = [relay for relay in self.relays if relay is not without]
        self.until(lambda: all(shown(relay) == version for relay in others), f"version {version}", without)

    def parents(self) -> dict[str, str | None]:
        return {name: state.parent for name, state in self.root.statistics().relays.items()}

    def close(self) -> None:
        for node in (self.root, *self.relays):
            node.close()


def content(version: int) -> np.ndarray:
    return np.random.default_rng(version).standard_normal(N, np.float32)


def shown(relay: Relay) -> int:
    return relay.statistics().version


def taken(relay: Relay) -> np.ndarray:
    into = np.empty(N, np.float32)
    assert relay._board.take(into, -1) is not None
    return into


@pytest.fixture
def house(request):
    house = House(**getattr(request, "param", {"relays": 4}))
    yield house
    house.close()


@pytest.mark.parametrize(
    ("house", "below"),
    [
        ({"relays": 5, "layout": "flat"}, [None] * 5),
        ({"relays": 5, "layout": "tree"}, [None, None, 0, 1, 0]),
        ({"relays": 5, "layout": "pipeline"}, [None, 0, 1, 2, 3]),
        ({"relays": 5, "layout": "pipeline", "chunk_bytes": 1 << 20}, [None, None, 0, 0, 1]),
    ],
    indirect=["house"],
)
def test_every_relay_shows_every_version_in_every_layout(house, below):
    house.until(lambda: len(house.parents()) == 5, "five relays")
    for version in range(3):
        house.spread(version)
        for relay in house.relays:
            np.testing.assert_array_equal(taken(relay), content(version))
    order = house.root._good
    assert [house.parents()[name] for name in order] == [None if place is None else order[place] for place in below]
    counts = [house.root.statistics().control, house.root.statistics().children]
    counts += [channel for relay in house.relays for channel in (relay.statistics().parent, relay.statistics().children)]
    assert sum(count.refused for count in counts) == 0


@pytest.mark.parametrize("house", [{"relays": 2, "wire": "bfloat16"}], indirect=True)
def test_bfloat16_on_the_wire_is_the_nearest_bfloat16(house):
    house.spread(0)
    for relay in house.relays:
        np.testing.assert_array_equal(taken(relay), widened(rounded(content(0))))
    assert house.relays[0].statistics().parent.received_bytes < 2.2 * N


def test_with_keys_who_has_none_gets_nothing(tmp_path):
    house = House(2, base=Terms(keys=Keys.create(tmp_path / "key")))
    stranger = Relay(VersionBoard.create(N), house.root.address, "stranger")
    house.spread(0)
    for _ in range(20):
        stranger.advance(0.02)
        house.advance()
    assert shown(stranger) == -1 and set(house.parents()) == {"relay-0", "relay-1"}
    wait_for(lambda: house.root.statistics().control.refused, 10.0, "refusal")
    stranger.close()
    house.close()


def test_who_comes_late_gets_the_newest_version_only(house):
    house.spread(0)
    house.spread(1)
    late = house.relay(9)
    house.relays.append(late)
    house.until(lambda: shown(late) >= 0, "version for who came late")
    assert shown(late) == 1 and np.array_equal(taken(late), content(1))


@pytest.mark.parametrize("house", [{"relays": 3, "layout": "flat"}, {"relays": 3, "layout": "pipeline"}], indirect=True)
def test_one_that_hangs_delays_nobody_and_skips_what_it_missed(house):
    house.spread(0)
    hung = next(relay for relay in house.relays if relay._name == house.root._good[0])  # the others' parent, in a pipeline
    for version in range(1, 5):
        house.spread(version, without=hung)
    house.until(lambda: hung._name not in house.parents(), "death", without=hung)
    versions = []
    house.until(lambda: (versions.append(shown(hung)), shown(hung) == 4)[1], "return")
    assert set(versions) <= {0, 1, 4}  # what was under way when it hung, and the newest
    house.spread(5)
    assert hung._name in house.parents()


def test_children_of_the_dead_get_another_parent_and_versions_go_on(house):
    house.spread(0)
    dead = house.relays.pop(next(i for i, relay in enumerate(house.relays) if relay._name == house.root._good[1]))
    dead.close()
    house.publish(1)
    for _ in range(20):
        house.advance()
    house.until(lambda: all(shown(relay) == 1 for relay in house.relays), "version past the dead")
    assert dead._name not in [*house.parents(), *house.parents().values()]
    house.spread(2)


@pytest.mark.parametrize("house", [{"relays": 1}], indirect=True)
def test_who_is_silent_is_dead_but_not_for_what_the_root_itself_missed(house):
    house.until(house.parents, "relay")
    root = house.root
    heard_s = root._judged_s = root._relays["relay-0"].heard_s
    root._judge(heard_s + BEAT_S)
    root._judge(heard_s + 60.0)
    assert house.parents(), "nobody listened for a minute"
    root._judge(root._judged_s + BEAT_S)
    assert not house.parents()


def test_relays_outlive_the_root_and_go_back_with_the_next_one_only(house):
    for version in (7, 8):
        house.spread(version)
    port = int(house.root.address.rpartition(":")[2])
    house.root.close()
    for relay in house.relays:
        relay.advance(0.05)
    house.board = VersionBoard.create(N)
    house.root = Root(house.board, port=port)
    house.publish(5)  # the checkpoint
    house.until(lambda: len(house.parents()) == 4, "relays at the new root")
    for version in (6, 8):
        house.publish(version)
        house.until(lambda version=version: all(relay._whole == version for relay in house.relays), f"version {version}")
        assert [shown(relay) for relay in house.relays] == [version] * 4
        np.testing.assert_array_equal(taken(house.relays[0]), content(version))
    house.spread(9)
    late = house.relay(9)
    house.relays.append(late)
    house.until(lambda: shown(late) == 9, "version for who came late")


def test_what_is_usual_is_what_links_carry_not_what_the_roots_own_machine_does():
    rates = {"own": 1e9, "a": 6e6, "b": 1e5, "c": 5e6}
    assert usual_rate(rates, {"own"}) == 6e6
    assert usual_rate(rates | dict.fromkeys("defgh", 1e5), {"own"}) == 5e6  # a quarter of eight reach it
    assert usual_rate({"own": 1e9, "twin": 1e8}, {"own", "twin"}) == 1e9
    assert usual_rate({}, {"own"}) == 0.0


def test_beats_that_come_together_get_one_answer_that_can_be_followed():
    house = House(0)
    eager = Outbox((Assign,), house.root.address, "eager", terms(LOCAL))
    for _ in range(3):
        eager.send(Beat("tcp://127.0.0.1:1", 0, -1, -1, {}))
    wait_for(lambda: house.root._control.statistics().received == 3 or house.root.advance(0.05), 10.0, "beats")
    assign = eager.receive(10.0)
    assert assign.parent == house.root._inbox.address and assign.generation == 1
    eager.close()
    house.close()


def test_who_beats_but_does_not_listen_gets_no_children(monkeypatch):
    monkeypatch.setattr("lamarckian.transport.root.BEAT_S", 0.05)
    house = House(0)
    deaf = Outbox((Assign,), house.root.address, "deaf", terms(LOCAL))

    def beat() -> None:
        deaf.send(Beat("tcp://127.0.0.1:1", 1, 2, 3, {"relay-0": 0.0, "deaf": float("nan")}))
        house.advance()

    wait_for(lambda: beat() or house.parents() == {"deaf": None}, 10.0, "the deaf one")
    house.relays.append(house.relay(0))
    wait_for(lambda: beat() or house.parents() == {"deaf": None, "relay-0": "deaf"}, 10.0, "a child of the deaf one")
    house.publish(0)
    wait_for(lambda: beat() or shown(house.relays[0]) == 0, 20.0, "version 0, from another parent")
    assert house.root.statistics().relays["deaf"].slow and house.parents()["relay-0"] is None
    deaf.close()
    house.close()


def test_how_long_a_version_takes_is_a_matter_of_relays_not_of_how_many_versions_each_of_them_gets():
    board = VersionBoard.create(N)
    root = Root(board)
    quick, late = (Outbox((Assign,), root.address, name, terms(LOCAL)) for name in ("quick", "late"))

    def say(relay: Outbox, version: int) -> None:
        heard = root.statistics().control.received
        relay.send(Beat("tcp://127.0.0.1:1", 0, -1, version, {}))
        wait_for(lambda: root.advance(0.0) or root.statistics().control.received > heard, 10.0, "beat")

    for relay in (quick, late):
        say(relay, -1)
    assert (root.statistics().median_s, root.statistics().slowest_s) == (0.0, 0.0)
    for version in range(5):
        board.publish(version, content(version))
        root.advance(0.0)
        say(quick, version)
    time.sleep(0.4)
    say(late, 0)
    found = root.statistics()
    assert found.slowest_s >= 0.4 and found.slowest_s / 2 <= found.median_s < found.slowest_s
    for channel in (quick, late, root):
        channel.close()


def test_what_cannot_be_is_refused():
    board = VersionBoard.create(4)
    with pytest.raises(MisuseError, match="a chunk has 1 to"):
        Root(board, chunk_bytes=0)
    with pytest.raises(MisuseError, match="stays on this machine"):
        Root(board, host="10.77.0.1")
    first = Root(board)
    with pytest.raises(MisuseError, match="cannot listen at"):
        Root(board, port=int(first.address.rpartition(":")[2]))
    first.close()


class Stage:
    """A relay whose root and parent is the test."""

    def __init__(self) -> None:
        self.control = Inbox((Beat,), "tcp://127.0.0.1:*", terms(LOCAL))
        self.data = Inbox((Took,), "tcp://127.0.0.1:*", terms(LOCAL))
        self.relay = Relay(VersionBoard.create(4), self.control.address, "relay")
        self.hear(self.control)
        self.control.send("relay", Assign(1, 1, self.data.address, 8, True))
        assert self.hear(self.data) == Took(1, -1, -1, 0, True)

    def hear(self, inbox: Inbox):
        deadline = time.monotonic() + 10
        while (received := inbox.receive(0.0)) is None:
            assert time.monotonic() < deadline
            self.relay.advance(0.005)
        return received[1]

    def say(self, *chunks: Chunk) -> int:
        """Sends chunks; the version shown once they are taken."""
        before = self.relay._parent.statistics().received
        for chunk in chunks:
            assert self.data.send("relay", chunk)
        wait_for(
            lambda: self.relay.advance(0.0) is not None and self.relay._parent.statistics().received >= before + len(chunks), 10.0, "chunks"
        )
        return self.relay.statistics().version

    def asked(self) -> Took:
        """What the relay asks for again."""
        while not (took := self.hear(self.data)).again:
            pass
        return took

    def close(self) -> None:
        for closing in (self.control, self.data, self.relay):
            closing.close()


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.close()


def pieces(version: int, run: int = 1, checksum: int | None = None) -> list[Chunk]:
    parcel = Parcel.of(run, version, np.full(4, version, np.float32), "float32")
    parcel.checksum = parcel.checksum if checksum is None else checksum
    return [parcel.chunk(start, start + 4) for start in range(0, 16, 4)]


def test_nothing_torn_is_ever_shown(stage):
    first, second, third, last = pieces(3)
    assert stage.say(first, third) == -1
    assert stage.asked() == Took(1, -1, 3, 4, True)
    assert stage.say(first, second, second, third, last) == 3
    assert stage.say(*pieces(4)[:3], *pieces(5)[:2], *pieces(4)[3:]) == 3  # of two versions mingled, the newer goes on
    assert stage.say(*pieces(5)[2:]) == 5
    assert stage.say(*pieces(2), *pieces(9, run=2)) == 5
    assert (taken_of(stage) == 5).all()


def test_what_comes_spoilt_is_thrown_away_and_asked_for_again(stage, caplog):
    assert stage.say(*pieces(1)) == 1
    assert stage.say(*pieces(2, checksum=1)) == 1
    assert stage.asked() == Took(1, 1, -1, 0, True)
    larger = Parcel.of(1, 3, np.zeros(5, np.float32), "float32")
    assert stage.say(larger.chunk(0, 20)) == 1
    beyond = pieces(4)[0]
    assert stage.say(Chunk(1, 4, 0, 16, "float32", beyond.checksum, np.zeros(17, np.uint8))) == 1
    assert stage.relay.statistics().spoilt == 3 and len(caplog.records) == 1
    assert stage.say(*pieces(4)) == 4


def taken_of(stage: Stage) -> np.ndarray:
    into = np.empty(4, np.float32)
    stage.relay._board.take(into, -1)
    return into


def test_a_child_gets_no_more_than_a_window_ahead_and_skips_whole_versions(monkeypatch):
    monkeypatch.setattr(broadcast, "WINDOW_BYTES", SMALL_WINDOW_BYTES)
    inbox = Inbox((Took,), "tcp://127.0.0.1:*", terms(LOCAL))
    child = Outbox((Chunk,), inbox.address, "child", terms(LOCAL))
    children = Children(inbox)
    children.chunk_bytes = SMALL_WINDOW_BYTES // 4
    size = 3 * SMALL_WINDOW_BYTES
    versions = [Parcel.of(1, version, np.full(size // 4, version, np.float32), "float32") for version in range(4)]
    children.offer(versions[0])

    def say(*took) -> list[tuple[int, int]]:
        sent = children._inbox.statistics().received
        child.send(Took(1, *took))
        wait_for(lambda: (children.receive(1, 0.0), inbox.statistics().received > sent)[1], 10.0, "word")
        came = []
        while (chunk := child.receive(0.2)) is not None:
            came.append((chunk.version, chunk.offset))
        return came

    quarter = SMALL_WINDOW_BYTES // 4
    assert say(-1, -1, 0, True) == [(0, place * quarter) for place in range(4)]
    for version in versions[1:]:
        children.offer(version)
        children.send(0.0)
    assert say(-1, 0, 2 * quarter, False) == [(0, 4 * quarter), (0, 5 * quarter)]  # it is not torn away from what it has begun
    assert say(-1, 0, 5 * quarter, True) == [(0, place * quarter) for place in (5, 6, 7, 8)]  # from where it says
    assert say(0, -1, 0, False) == [(3, place * quarter) for place in range(4)]
    assert say(3, -1, 0, False) == []
    children.prune(100.0)
    assert children.rates(100.0) == {}
    child.close()
    inbox.close()
