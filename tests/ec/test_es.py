import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec import noise
from lamarckian.ec.es import OpenAIES, centred_ranks
from lamarckian.ec.genome import Genome, Integer, Network, Real
from lamarckian.errors import MisuseError

from .judging import judged, minimise, same, sphere

MIXED = Genome(
    {
        "net": Network([("weight", (4, 3)), ("bias", (4,))]),
        "x": Real([-1.0, 0.0, 10.0], [1.0, 100.0, 10.0]),
        "rate": Real(1e-4, 1, 1, "log"),
    }
)


def begun(genome, seed=1, first=None, **settings):
    algorithm = OpenAIES(**settings)
    algorithm.begin(genome, 1, seed, first)
    return algorithm


def advance(algorithm, fitness=lambda genes: -sphere(genes["x"]), **judgement):
    proposals = algorithm.propose(algorithm.size)
    genes = algorithm.realise(proposals)
    algorithm.tell(judged(proposals, genes, fitness(genes), **judgement))


def test_ranks_are_centred_and_equals_share_theirs():
    zero = np.zeros(5)
    assert centred_ranks(np.array([3.0, 1.0, 2.0, 5.0, 4.0]), zero).tolist() == [0.0, -0.5, -0.25, 0.5, 0.25]
    assert centred_ranks(np.array([1.0, 7.0, 1.0, 7.0, 7.0]), zero).tolist() == [-0.375, 0.25, -0.375, 0.25, 0.25]
    assert centred_ranks(np.full(4, 3.3), np.zeros(4)).tolist() == [0.0] * 4


def test_ranks_put_the_infeasible_last_by_their_violation_alone():
    fitness, violation = np.array([0.0, 9.0, 8.0, 7.0, -1.0]), np.array([0.0, 2.0, 1.0, 2.0, 0.0])
    assert centred_ranks(fitness, violation).tolist() == [0.5, -0.375, 0.0, -0.375, 0.25]


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=20))
def test_ranks_sum_to_zero_and_are_those_of_counting(fitness):
    ranks = centred_ranks(np.array(fitness, np.float64), np.zeros(len(fitness)))
    counted = [sum(other < one for other in fitness) + (fitness.count(one) - 1) / 2 for one in fitness]
    assert ranks == pytest.approx(np.array(counted) / (len(fitness) - 1) - 0.5)
    assert abs(ranks.sum()) < 1e-12


def test_mirrored_pairs_lie_symmetrically_about_the_centre_and_apart_by_the_deviation():
    algorithm = begun(MIXED, population=40, deviation=0.01)
    genes = algorithm.realise(algorithm.propose(40))
    for name, rows in genes.items():
        assert rows.dtype == MIXED.parts[name].dtype
        assert np.allclose((rows[::2] + rows[1::2]) / 2, algorithm.centre[name], rtol=1e-6, atol=1e-7)
    half = (genes["net"][::2] - genes["net"][1::2]) / 2
    assert half.std() == pytest.approx(0.01, rel=4 / np.sqrt(2 * half.size))
    half = (genes["x"][::2] - genes["x"][1::2]) / 2 / [2.0, 100.0, 1.0]
    assert half[:, :2].std() == pytest.approx(0.01, rel=4 / np.sqrt(80))
    assert not half[:, 2].any()  # no range, no noise


def test_reals_stay_in_their_bounds():
    algorithm = begun(MIXED, population=40, deviation=2.0, learning_rate=3.0)
    for _ in range(5):
        proposals = algorithm.propose(40)
        genes = algorithm.realise(proposals)
        MIXED.check(genes, "offspring")
        algorithm.tell(judged(proposals, genes, genes["x"].sum(axis=1)))
        MIXED.check(algorithm.centre, "the centre")
    assert algorithm.centre["x"].tolist() == [[1.0, 100.0, 10.0]]


def test_the_step_is_the_weighted_sum_of_the_noise():
    """With plain gradient ascent the centre moves by learning rate / (N deviation) · Σ rank · sign · noise."""
    length = 50
    algorithm = begun(
        Genome(
            {"x": Network([("w", (length,))])},
        ),
        optimiser="sgd",
        momentum=0.0,
        learning_rate=0.3,
        deviation=0.1,
        population=20,
    )
    slope = np.random.default_rng(0).standard_normal(length)
    centre = algorithm.centre["x"][0].astype(np.float64)
    proposals = algorithm.propose(20)
    genes = algorithm.realise(proposals)
    fitness = genes["x"].astype(np.float64) @ slope
    algorithm.tell(judged(proposals, genes, fitness))
    numbers = noise.table(noise.table_size(length)).astype(np.float64)
    rows = np.stack([numbers[place : place + length] for place in proposals.arrays["place"]])
    ranks = np.argsort(np.argsort(fitness)) / 19 - 0.5
    step = 0.3 / (20 * 0.1) * (ranks * proposals.arrays["sign"]) @ rows
    assert np.allclose(algorithm.centre["x"][0] - centre, step, atol=1e-6)
    assert step @ slope > 0


def test_with_adam_the_first_step_is_the_learning_rate_of_each_range():
    algorithm = begun(Genome({"x": Real([-1.0, 0.0], [1.0, 100.0])}), learning_rate=0.01)
    advance(algorithm, lambda genes: genes["x"] @ [50.0, -1.0])
    assert algorithm.centre["x"][0] == pytest.approx([0.02, 49.0])


def test_weight_decay_draws_networks_to_zero_and_reals_to_the_middle():
    genome = Genome({"x": Real(0.0, 10.0, 1), "net": Network([("w", (1,))])})
    start = {"start": [7.0, 2.0], "learning_rate": 0.01, "optimiser": "sgd", "momentum": 0.0, "population": 8}
    plain, decayed = begun(genome, **start), begun(genome, weight_decay=5.0, **start)
    for algorithm in (plain, decayed):
        advance(algorithm, lambda genes: genes["x"][:, 0])
    assert decayed.centre["x"] - plain.centre["x"] == pytest.approx(np.array([[-0.05 * 2.0]]))
    assert decayed.centre["net"] - plain.centre["net"] == pytest.approx(np.array([[-0.05 * 2.0]]), rel=1e-5)


def test_it_starts_where_it_is_told_or_else_in_the_middle():
    assert begun(MIXED).centre["x"].tolist() == [[0.0, 50.0, 10.0]]
    assert begun(MIXED).centre["rate"] == pytest.approx(np.log([[0.01]]))
    assert begun(MIXED).centre["net"].any()
    first = MIXED.sample(3, np.random.default_rng(0))
    assert all(np.allclose(begun(MIXED, first=first).centre[name], rows[:1], rtol=1e-12) for name, rows in first.items())
    started = begun(MIXED, first=first, start=[0.5] * 16 + [0.25, 20.0, 10.0, 0.001])
    assert started.centre["net"].tolist() == [[0.5] * 16]
    assert started.centre["x"][0] == pytest.approx([0.25, 20.0, 10.0])
    assert MIXED.express(started.centre)["rate"][0] == pytest.approx(0.001)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_it_climbs_to_the_optimum_of_a_sphere(optimiser):
    genome = Genome({"x": Real(-5.0, 5.0, 10)})
    start = np.random.default_rng(0).uniform(-5, 5, 10).tolist()
    algorithm = begun(
        genome, population=50, optimiser=optimiser, learning_rate=0.02 if optimiser == "adam" else 0.002, momentum=0.5, start=start
    )
    assert sphere(algorithm.centre["x"])[0] > 50
    minimise(algorithm, sphere, 10_000)
    assert sphere(algorithm.centre["x"])[0] < 0.02


def test_networks_learn_beside_reals():
    algorithm = begun(MIXED, population=100, learning_rate=0.02)
    target = np.linspace(-1, 1, 16)
    for _ in range(300):
        advance(algorithm, lambda genes: -((genes["net"] - target) ** 2).sum(axis=1) - (genes["rate"][:, 0] - np.log(0.5)) ** 2)
    assert np.abs(algorithm.centre["net"] - target).max() < 0.1
    assert MIXED.express(algorithm.centre)["rate"][0] == pytest.approx(0.5, rel=0.15)


@pytest.mark.parametrize("judgement", [{"failed": range(8)}, {"failed": range(0, 8, 2)}, {}])
def test_nothing_is_learnt_where_all_failed_or_all_are_equal(judgement):
    algorithm = begun(MIXED, population=8, weight_decay=0.1)
    advance(algorithm)
    before = algorithm.save()
    proposals = algorithm.propose(8)
    algorithm.tell(judged(proposals, algorithm.realise(proposals), np.ones(8), **judgement))
    after = algorithm.save()
    assert all(same(before[key], after[key]) for key in ("version", "position", "optimiser"))
    advance(algorithm)
    assert not same(algorithm.save()["position"], before["position"])


def test_a_pair_with_a_failure_is_left_out():
    """The step is that of the other pairs alone."""
    genome = Genome({"x": Network([("w", (5,))])})
    all_of_six, four_of_six = (begun(genome, population=6, optimiser="sgd", momentum=0.0) for _ in range(2))
    proposals = all_of_six.propose(6)
    places = proposals.arrays["place"]
    genes = all_of_six.realise(proposals)
    four_of_six.propose(6)
    four_of_six.tell(judged(proposals, genes, [4.0, 1.0, 9.0, 9.0, 2.0, 3.0], failed=[3]))
    numbers = noise.table(noise.table_size(5))
    ranks = [0.5, -0.5, -1 / 6, 1 / 6]
    step = sum(
        rank * sign * numbers[place : place + 5] for rank, sign, place in zip(ranks, [1, -1, 1, -1], places[[0, 1, 4, 5]], strict=True)
    )
    assert np.allclose(four_of_six.centre["x"] - all_of_six.centre["x"], 0.01 * step / (4 * 0.02), atol=1e-6)


def test_candidates_are_the_same_in_portions_and_in_another_process():
    algorithm, elsewhere = begun(MIXED, population=20), begun(MIXED, population=20)
    advance(algorithm)  # the other one is not told
    proposals = algorithm.propose(20)
    whole = algorithm.realise(proposals)
    portions = [elsewhere.realise(pickle.loads(pickle.dumps(proposals.take(rows)))) for rows in ([0], [1, 2, 3], range(4, 19), [19])]
    for name in whole:
        assert np.array_equal(whole[name], np.concatenate([portion[name] for portion in portions]))


def test_candidates_travel_as_kilobytes():
    algorithm = begun(Genome({"x": Network([("w", (30_000,))])}))
    proposals = algorithm.propose(256)
    assert len(pickle.dumps((proposals.ids, proposals.parents, proposals.arrays))) < 10_000
    assert sum(array.nbytes for array in proposals.shared.values()) == 4 * 30_000
    assert proposals.ids.tolist() == list(range(256)) and (proposals.parents == -1).all()


def test_the_version_changes_when_the_shared_centre_does_and_only_then():
    algorithm = begun(MIXED, population=4)
    before = algorithm.propose(4)
    held = {name: array.copy() for name, array in before.shared.items()}
    algorithm.tell(judged(before, algorithm.realise(before), np.ones(4)))
    unchanged = algorithm.propose(4)
    assert unchanged.version == before.version and same(unchanged.shared, before.shared)
    algorithm.tell(judged(unchanged, algorithm.realise(unchanged), range(4)))
    assert algorithm.propose(4).version != before.version
    assert same(before.shared, held)


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_run_that_was_saved_goes_on_as_if_it_had_not_stopped(optimiser, between):
    settings = {"population": 12, "optimiser": optimiser, "weight_decay": 0.1}
    whole, rest = begun(MIXED, **settings), begun(MIXED, **settings)
    for _ in range(3):
        advance(whole)
    proposals = whole.propose(12) if between else None
    rest.load(pickle.loads(pickle.dumps(whole.save())))
    assert same(rest.population.rows(), whole.population.rows())
    if proposals is not None:
        for algorithm in (whole, rest):
            genes = algorithm.realise(proposals)
            algorithm.tell(judged(proposals, genes, -sphere(genes["x"])))
    for _ in range(3):
        advance(whole), advance(rest)
    assert same(rest.save(), whole.save())
    assert same(rest.population.rows(), whole.population.rows())


def test_a_run_can_be_saved_before_anything_was_told():
    whole, rest = begun(MIXED, population=4), begun(MIXED, population=4)
    assert len(whole.population) == 0
    rest.load(whole.save())
    advance(whole), advance(rest)
    assert same(rest.save(), whole.save())


def test_the_seed_decides_the_run():
    runs = [begun(MIXED, seed, population=6) for seed in (1, 1, 2)]
    for run in runs:
        advance(run)
    assert same(runs[0].save(), runs[1].save())
    assert not same(runs[0].save(), runs[2].save())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 7}, "population must be even"),
        ({"population": 0}, "population must be even"),
        ({"deviation": 0.0}, "deviation must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0"),
        ({"optimiser": "rprop"}, "'adam' or 'sgd', not 'rprop'"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"table_size": 0}, "table_size must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(MisuseError, match=message):
        OpenAIES(**settings)


@pytest.mark.parametrize(
    ("settings", "genome", "objectives", "message"),
    [
        ({}, MIXED, 2, "OpenAIES takes problems of 1 objective, and this one has 2"),
        ({}, Genome({"n": Integer(0, 3, 2)}), 1, "part 'n' is Integer"),
        ({"start": [1.0]}, MIXED, 1, "start must have 20 numbers"),
        ({"start": [0.0] * 20}, MIXED, 1, "start: part 'x'"),
        ({"table_size": 39}, MIXED, 1, "table_size must be at least 40"),
    ],
)
def test_what_it_cannot_work_on_is_refused(settings, genome, objectives, message):
    with pytest.raises(MisuseError, match=message):
        OpenAIES(**settings).begin(genome, objectives, 1)


def test_objectives_that_only_the_evaluation_tells_are_checked_then():
    algorithm = OpenAIES(population=2)
    algorithm.begin(MIXED, None, 1)
    proposals = algorithm.propose(2)
    offspring = judged(proposals, algorithm.realise(proposals), [1.0, 2.0])
    offspring.fitness = np.zeros((2, 3))
    with pytest.raises(MisuseError, match="has 3"):
        algorithm.tell(offspring)
