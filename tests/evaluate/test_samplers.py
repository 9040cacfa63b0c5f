"""Samplers against the formulas of their papers, computed by hand; and the rules by which versions are taken in."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lamarckian.errors import RecipeError
from lamarckian.evaluate.additions import Score, Since, Steps, Updates
from lamarckian.evaluate.samplers import PFSP, Cycle, Latest, Pool, Quality, Sampler, Uniform
from lamarckian.plugins import Section, build


def pool(versions=(0, 10, 20, 30), scores=None, now=40) -> Pool:
    return Pool(np.array(versions), np.full(len(versions), 0.5) if scores is None else np.array(scores), now)


@pytest.mark.parametrize(
    "sampler", [Latest(), Uniform(), Quality(), PFSP(), PFSP("even"), PFSP("linear"), Cycle()], ids=lambda sampler: type(sampler).__name__
)
@pytest.mark.parametrize("scores", [[0.5] * 4, [1.0] * 4, [0.0, 0.2, 1.0, 0.7]], ids=str)
def test_shares_add_up_to_1(sampler, scores):
    newest, past = sampler.shares(pool(scores=scores))
    assert past.shape == (4,)
    assert newest >= 0 and (past >= 0).all()
    assert newest + past.sum() == pytest.approx(1)


def test_latest_is_the_newest_version_only():
    newest, past = Latest().shares(pool())
    assert (newest, past.tolist()) == (1.0, [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("delta", "newest", "past"),
    [(0.0, 1 / 5, [1 / 5] * 4), (0.5, 1 / 3, [0, 0, 1 / 3, 1 / 3]), (0.6, 1 / 2, [0, 0, 0, 1 / 2]), (0.9, 1, [0, 0, 0, 0])],
)
def test_uniform_takes_versions_from_delta_now_to_now(delta, newest, past):
    found = Uniform(delta).shares(pool())
    assert found[0] == pytest.approx(newest)
    assert found[1] == pytest.approx(past)


def test_quality_falls_where_the_newest_version_wins_and_there_only():
    sampler, members = Quality(latest=0.8, rate=0.1), pool((0, 10))
    newest, past = sampler.shares(members)
    assert newest == 0.8
    assert past == pytest.approx([0.1, 0.1])
    sampler.count(0, 0.0, members)
    sampler.count(10, 0.5, members)
    assert sampler.shares(members)[1] == pytest.approx([0.1, 0.1])
    sampler.count(0, 1.0, members)  # q₀ ← 0 − 0.1 / (2 · 0.5)
    first = np.exp(-0.1) / (np.exp(-0.1) + 1)
    assert sampler.shares(members)[1] == pytest.approx([0.2 * first, 0.2 * (1 - first)])
    sampler.count(0, 1.0, members)  # and by its probability then
    assert sampler.save()["qualities"] == pytest.approx([-0.1 - 0.1 / (2 * first), 0.0])


def test_a_version_that_is_always_beaten_becomes_rare_and_no_more():
    sampler, members = Quality(latest=0.0), pool(range(50))
    for _ in range(5000):
        sampler.count(7, 1.0, members)
    beaten = sampler.shares(members)[1][7]
    assert 1e-2 / 50 / np.e**1.1 < beaten < 1e-2 / 50
    for _ in range(700):  # and where the others are beaten long enough, it is met as often as they
        for version in members.versions[members.versions != 7].tolist():
            sampler.count(version, 1.0, members)
    assert sampler.shares(members)[1][7] > 1 / 50


def test_a_version_begins_with_the_greatest_quality_and_takes_it_along():
    sampler, members = Quality(rate=0.1), pool((0, 10))
    for version in (0, 10, 0):
        sampler.shares(members)
        sampler.count(version, 1.0, members)
    greatest = max(sampler.save()["qualities"])
    sampler.shares(pool((0, 10, 20)))
    assert sampler.save()["qualities"][2] == greatest
    sampler.shares(pool((0, 20)))
    assert sampler.save()["versions"] == [0, 20]


@pytest.mark.parametrize(
    ("weighting", "weights"),
    [("hard", [1.0, 0.64, 0.25, 0.01]), ("linear", [1.0, 0.8, 0.5, 0.1]), ("even", [0.0, 0.16, 0.25, 0.09])],
)
def test_pfsp_weighs_by_the_score(weighting, weights):
    newest, past = PFSP(weighting, latest=0.2).shares(pool(scores=[0.0, 0.2, 0.5, 0.9]))
    assert newest == 0.2
    assert past == pytest.approx(0.8 * np.array(weights) / sum(weights))


def test_pfsp_may_be_harder_still_and_meets_all_alike_where_it_beats_all():
    assert PFSP("hard", power=1.0, latest=0.0).shares(pool((0, 1), [0.5, 0.75]))[1] == pytest.approx([2 / 3, 1 / 3])
    assert PFSP(latest=0.0).shares(pool(scores=[1.0] * 4))[1] == pytest.approx([1 / 4] * 4)
    assert PFSP("even", latest=0.0).shares(pool(scores=[0.0, 1.0, 0.0, 1.0]))[1] == pytest.approx([1 / 4] * 4)


def test_cycle_goes_through_all_and_begins_again():
    sampler = Cycle(updates=2)
    met = []
    for now in range(40, 52):
        newest, past = sampler.shares(pool((0, 10, 20), now=now))
        assert newest == 0
        met.append(int(past.argmax()))
    assert met == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
    assert sampler.shares(pool((0, 20, 30), now=52))[1].tolist() == [0, 0, 1]
    assert sampler.shares(pool((5, 20), now=53))[1].tolist() == [1, 0]  # 30 has left, and was the youngest: from the oldest again, at once
    assert sampler.shares(pool((5, 20), now=54))[1].tolist() == [1, 0]
    assert sampler.shares(pool((5, 20), now=55))[1].tolist() == [0, 1]


@pytest.mark.parametrize("make", [Latest, Uniform, Quality, PFSP, Cycle])
def test_samplers_go_on_where_they_were_saved(make):
    def run(sampler: Sampler, updates: range) -> list[float]:
        shares: list[float] = []
        for now in updates:
            random = np.random.default_rng(now)
            members = pool(scores=random.random(4), now=now)
            newest, past = sampler.shares(members)
            shares += [newest, *past]
            sampler.count(int(random.choice(members.versions)), 1.0, members)
        return shares

    sampler, resumed = make(), make()
    run(sampler, range(40, 57))
    resumed.load(json.loads(json.dumps(sampler.save())))
    assert run(sampler, range(57, 90)) == run(resumed, range(57, 90))


def test_samplers_are_plug_ins_whose_settings_are_checked():
    sampler = build("opponents", Section(name="pfsp", weighting="even"))
    assert isinstance(sampler, PFSP)
    with pytest.raises(RecipeError, match=r"league.opponents.weighting: given \"easy\"; allowed: 'hard', 'even' or 'linear'"):
        build("opponents", Section(name="pfsp", weighting="easy"))
    with pytest.raises(RecipeError, match=r"league.opponents.name: given 'pfps'; nearest: pfsp"):
        build("opponents", Section(name="pfps"))
    with pytest.raises(RecipeError, match=r"league\.opponents\.delta"):
        build("opponents", Section(name="uniform", delta=1.0))
    with pytest.raises(RecipeError, match=r"league\.add\.every"):
        build("addition", Section(name="steps", every=0))


def since(steps=0, updates=0, points=0.0, matches=0) -> Since:
    return Since(steps, updates, points, matches)


def test_versions_are_taken_in_by_steps_updates_or_score():
    assert [Steps(1000).due(since(steps=steps)) for steps in (999, 1000)] == [False, True]
    assert [Updates(20).due(since(updates=updates)) for updates in (19, 20)] == [False, True]
    score = Score(above=0.7, matches=100, at_most=50)
    assert not score.due(since(points=70, matches=100))
    assert score.due(since(points=71, matches=100))
    assert not score.due(since(points=80, matches=99))
    assert score.due(since(updates=50))
    assert not Score(at_most=None).due(since(updates=10**6))
