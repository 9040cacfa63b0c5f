"""The payoff matrix of a league: rows that grow, members that go, and ratings by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lamarckian.errors import MisuseError
from lamarckian.evaluate.payoffs import Payoffs
from lamarckian.evaluate.rating import Legacy, elo, log_odds, pass_on, tally


def play(payoffs: Payoffs, **results: tuple[int, int]) -> None:
    """(wins, losses) of the present version against members."""
    for name, (wins, losses) in results.items():
        for points in [1.0] * wins + [0.0] * losses:
            assert payoffs.count(name, points)


def test_the_present_versions_row_becomes_the_members():
    payoffs = Payoffs(["bot"], decay=1.0)
    payoffs.settle("v0")
    play(payoffs, v0=(6, 2), bot=(1, 3))
    payoffs.count("v0", 0.5)
    assert payoffs.row.tolist() == [[1, 6.5], [4, 9]]
    payoffs.settle("v5")
    assert payoffs.row.tolist() == [[0, 0, 0], [0, 0, 0]]
    play(payoffs, v5=(1, 0))
    saved = payoffs.save()
    assert saved["names"] == ["bot", "v0", "v5"]
    assert saved["points"] == [[0, 0, 3], [0, 0, 2.5], [1, 6.5, 0]]
    assert saved["counts"] == [[0, 0, 4], [0, 0, 9], [4, 9, 0]]
    assert payoffs.table()["payoff"] == [
        [None, None, 0.75, None],
        [None, None, pytest.approx(2.5 / 9), None],
        [0.25, pytest.approx(6.5 / 9), None, 0.0],
        [None, None, 1.0, None],
    ]


def test_who_is_no_member_is_not_counted():
    payoffs = Payoffs([], decay=1.0)
    payoffs.settle("v0")
    assert not payoffs.count("v1", 1.0)
    assert payoffs.row.tolist() == [[0], [0]]


def test_scores_of_late_forget():
    payoffs = Payoffs([], decay=0.5)
    payoffs.settle("v0")
    assert payoffs.recent.tolist() == [[0.5], [0.0]]
    play(payoffs, v0=(0, 1))
    play(payoffs, v0=(2, 0))  # points 0, 1, 1.5 of 1, 1.5, 1.75 matches
    assert payoffs.recent[:, 0] == pytest.approx([(1.5 + 0.5) / (1.75 + 1), 1.75])
    assert payoffs.scores() == {"v0": pytest.approx(1.5 / 1.75)}
    payoffs.settle("v1")
    assert payoffs.recent[:, 0] == pytest.approx([2 / 2.75, 1.75])


def test_matches_of_members_that_go_are_shown_no_more():
    payoffs = Payoffs(["bot"], decay=1.0)
    for name in ("v0", "v1", "v2"):
        payoffs.settle(name)
        play(payoffs, **{name: (3, 1)})
    play(payoffs, v0=(2, 0))
    payoffs.seat(["bot", "v0", "v2"])
    saved = payoffs.save()
    assert saved["row"] == [[0, 2, 3], [0, 2, 4]]
    assert np.array(saved["counts"]).sum() == 0  # v1 met v0 and v2 met v1
    assert [member["name"] for member in payoffs.table()["members"]] == ["v0", "v2"]  # the bot has met nobody, so it has no rating


def ratings(payoffs: Payoffs) -> dict[str, tuple[float, float]]:
    """Rating and interval of each, by name."""
    table = payoffs.table()
    return {line["name"]: (line["elo"], line["elo_interval"]) for line in [*table["members"], {"name": "present", **table["present"]}]}


def grown(versions: int, kept: int | None = None, seed: int = 0) -> Payoffs:
    """Each version is 60 Elo better than the one before, and meets the four before it and a bot; v0 is met by the first only."""
    payoffs, random = Payoffs(["bot"], decay=1.0), np.random.default_rng(seed)
    strength = {"bot": 300.0}
    for version in range(versions):
        payoffs.settle(f"v{version}")
        strength[f"v{version}"] = 60.0 * version
        if kept is not None and version >= kept:
            before = ratings(payoffs)
            payoffs.seat(["bot", "v0", *(f"v{later}" for later in range(version - kept + 2, version + 1))])
            after = ratings(payoffs)
            assert len(after) == kept + 2 and after.keys() < before.keys()
            for name, rating in after.items():
                assert rating == pytest.approx(before[name], abs=1e-4), name
        for opponent in ["bot", *(f"v{earlier}" for earlier in range(max(version - 3, 0), version + 1))]:
            wins = random.binomial(40, 1 / (1 + 10 ** ((strength[opponent] - 60.0 * (version + 1)) / 400)))
            play(payoffs, **{opponent: (int(wins), 40 - int(wins))})
    return payoffs


def test_ratings_do_not_jump_when_versions_leave_and_the_scale_lasts():
    """Neither at once nor in the long run: who has long lost everybody that met v0 is still measured from it."""
    all_of_them, few = ratings(grown(40)), ratings(grown(40, kept=5))
    assert all_of_them["present"][0] == pytest.approx(1500 + 60 * 40, abs=300)
    for name, (rating, interval) in few.items():
        assert rating == pytest.approx(all_of_them[name][0], abs=0.1 * interval + 1), name
        assert interval == pytest.approx(all_of_them[name][1], rel=0.1), name


def test_bots_that_leave_take_no_rating_along_either():
    payoffs = Payoffs(["bot", "other"], decay=1.0)
    payoffs.settle("v0")
    play(payoffs, bot=(3, 1))
    payoffs.settle("v1")
    play(payoffs, bot=(9, 2), other=(2, 2))
    before = ratings(payoffs)
    payoffs.seat(["v0", "v1"])
    after = Payoffs([], decay=1.0)
    after.load(json.loads(json.dumps(payoffs.save())))
    assert ratings(after) == {name: pytest.approx(before[name], abs=1e-4) for name in ("v0", "v1", "present")}
    assert payoffs.table()["payoff"][1][0] is None


def test_who_leaves_a_chain_passes_on_half_of_what_both_halves_told():
    """Of two springs in a row remains one of their harmonic sum: exact where all are even, for the curvature is that of each."""
    points = np.array([[0, 5, 0], [5, 0, 5], [0, 5, 0]], float)
    payoff, none = tally(points, points + points.T), Legacy(np.zeros(3), np.zeros((3, 3)))
    slope, curvature = pass_on(payoff, np.zeros((3, 3)), none, np.full(3, 1500.0), np.array([False, True, False]))
    assert slope == pytest.approx([0, 0])
    assert curvature == pytest.approx(np.array([[1.25, -1.25], [-1.25, 1.25]]))  # each 10 matches · 1/4


def test_ratings_by_hand_and_the_first_version_is_the_measure():
    payoffs = Payoffs([], decay=1.0)
    payoffs.settle("v0")
    assert payoffs.present() == pytest.approx((1500, 1.96 * 2 * 400 / np.log(10)), rel=1e-3)  # a draw: information 1/4
    play(payoffs, v0=(15, 5))
    payoffs.settle("v1")
    play(payoffs, v1=(30, 10))
    first = 400 * np.log10(15.5 / 5.5)  # with the draw more; who meets in a chain is rated pair by pair
    table = payoffs.table()
    assert [member["elo"] for member in table["members"]] == pytest.approx([1500, 1500 + first])
    assert payoffs.present()[0] == pytest.approx(1500 + first + 400 * np.log10(30.5 / 10.5))
    assert table["members"][0]["elo_interval"] == pytest.approx(0, abs=1e-3)
    information = 21 * (15.5 / 21) * (5.5 / 21)
    assert table["members"][1]["elo_interval"] == pytest.approx(1.959964 * 400 / np.log(10) / np.sqrt(information))
    assert [table["present"]["nash_weight"], *(member["nash_weight"] for member in table["members"])] == [1, 0, 0]


def test_payoffs_go_on_where_they_were_saved_with_other_bots_too():
    payoffs = Payoffs(["bot", "other"], decay=0.9)
    payoffs.settle("v0")
    play(payoffs, v0=(3, 1), bot=(1, 1), other=(0, 2))
    state = json.loads(json.dumps(payoffs.save()))
    resumed = Payoffs(["bot", "other"], decay=0.9)
    resumed.load(state)
    for one in (payoffs, resumed):
        one.settle("v3")
        play(one, v3=(2, 2), bot=(3, 0))
    assert resumed.save() == payoffs.save()
    assert resumed.table() == payoffs.table()
    changed = Payoffs(["new", "other"], decay=0.9)
    changed.load(state)
    changed.seat(["new", "other", "v0"])
    assert changed.row.tolist() == [[0, 0, 3], [0, 2, 4]]
    assert [member["name"] for member in changed.table()["members"]] == ["other", "v0"]


def test_elo_of_pairs_that_have_not_met_takes_a_prior_that_links_all():
    points = np.array([[0, 8, 0], [2, 0, 6], [0, 4, 0]], float)
    payoff = tally(points, points + points.T)
    with pytest.raises(MisuseError, match="must have met"):
        elo(payoff)
    ratings, intervals = elo(payoff, np.zeros((3, 3)), anchor=1)
    assert ratings == pytest.approx([1500 + 400 * np.log10(4), 1500, 1500 - 400 * np.log10(1.5)])
    assert intervals == pytest.approx(1.959964 * 400 / np.log(10) / np.sqrt([10 * 0.8 * 0.2, np.inf, 10 * 0.6 * 0.4]), abs=1e-4)
    assert log_odds(payoff, np.zeros((3, 3)))[0] == pytest.approx([0, 400 * np.log10(4), 0])
    points[0, 1] = points[1, 0] = 0
    with pytest.raises(MisuseError, match="linked by matches"):
        elo(tally(points, points + points.T), np.zeros((3, 3)))
