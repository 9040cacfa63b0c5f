"""Evolution in one call."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lamarckian.ec import CMAES, GA, NSGA2, Categorical, Genome, Integer, Network, Permutation, Real, Subset, Variation, evolve
from lamarckian.ec.operators import (
    SBX,
    Best,
    ChannelCrossover,
    Creep,
    Gaussian,
    Insertion,
    LayerCrossover,
    NetworkGaussian,
    OrderCrossover,
    Points,
    Polynomial,
    Replace,
    Reset,
    SubsetCrossover,
    Swap,
    UniformCrossover,
)
from lamarckian.ec.problems import ZDT1, ZDT5, Knapsack, Sphere
from lamarckian.errors import MisuseError


def square(x):
    return float((x**2).sum())


def test_a_plain_function_is_minimised_unless_told_otherwise():
    least = evolve(square, GA(20), 2_000, genome=Real(-1.0, 2.0, 3))
    most = evolve(square, GA(20), 2_000, genome=Real(-1.0, 2.0, 3), minimise=False)
    assert least.best[1] < 1e-3 and least.best[0].shape == (3,)
    assert most.best[1] > 11.9 and most.best[0] == pytest.approx([2.0] * 3, abs=0.1)


def test_it_ends_with_the_generation_that_reaches_the_number():
    assert [evolve(Sphere(2), GA(10), number).evaluations for number in (1, 10, 11, 30)] == [10, 10, 20, 30]
    assert evolve(Sphere(2), GA(10, offspring=1), 13).generations == 4


@pytest.mark.parametrize("mode", ["asynchronous", "steady"])
def test_whatever_was_evaluated_is_selected_from_before_it_ends(mode):
    values = []

    def note(x):
        values.append(square(x))
        return values[-1]

    result = evolve(note, GA(10), 25, genome=Real(-1.0, 1.0, 3), mode=mode)
    assert result.evaluations == len(values) == (30 if mode == "asynchronous" else 25)
    assert np.sort(result.population.raw[:, 0]).tolist() == sorted(values)[:10]


def test_a_target_ends_it():
    seen = []
    result = evolve(Sphere(3), GA(10), 10_000, target=0.5, each_generation=lambda evolution: seen.append(float(evolution.best.raw[0, 0])))
    assert result.best[1] <= 0.5 and result.generations == len(seen) and all(value > 0.5 for value in seen[:-1])
    most = evolve(square, GA(10), 10_000, genome=Real(-1.0, 2.0, 3), minimise=False, target=10.0)
    assert most.best[1] >= 10.0 and most.evaluations < 10_000
    assert evolve(Sphere(3), CMAES(), 10_000, target=1e-9).evaluations < 2_000


def test_a_target_that_only_infeasible_ones_reach_is_not_reached():
    class Half:
        bounds = [-1.0], [1.0]
        objectives = 1

        def evaluate(self, x):
            return x[:, 0], -x[:, 0]

    result = evolve(Half(), GA(10), 200, target=-0.5)
    assert result.evaluations == 200 and 0 <= result.best[1] < 0.05


def test_a_callback_may_end_the_run():
    assert evolve(ZDT1(5), NSGA2(10), 500, each_generation=lambda evolution: evolution.generation == 3).evaluations == 30


def test_a_target_is_refused_as_soon_as_there_are_several_objectives():
    with pytest.raises(MisuseError, match="problems of 1 objective, and this one has 2"):
        evolve(lambda x: (x[0], 1 - x[0]), NSGA2(4), 100, genome=Real(0, 1), target=0.5)


def test_each_generation_is_shown_once():
    seen = []
    evolve(ZDT1(5), NSGA2(10), 50, each_generation=lambda evolution: seen.append((evolution.generation, evolution.evaluations)))
    assert seen == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluations": 0}, "evaluations must be a whole number of at least 1, not 0"),
        ({"mode": "fast"}, "mode must be synchronous, asynchronous or steady, not 'fast'"),
        ({"mode": "asynchronous", "algorithm": CMAES()}, "CMAES learns from whole generations"),
        ({"problem": Sphere}, r"write Sphere\(\)"),
        ({"algorithm": GA}, r"algorithm must be an object such as GA\(\)"),
        ({"problem": square}, "a plain function needs a genome"),
        ({"problem": ZDT1()}, "GA takes problems of 1 objective, and this one has 2: use NSGA2"),
        ({"problem": lambda x: [1.0, 2.0], "genome": Real(0, 1)}, "GA takes problems of 1 objective, and this one has 2: use NSGA2"),
        ({"genome": Real(0, 1)}, "a problem has its own genome"),
        ({"problem": ZDT1(), "algorithm": NSGA2(), "target": 0.5}, "a target is for problems of 1 objective, and this one has 2"),
    ],
)
def test_what_cannot_be_done_is_refused(settings, message):
    with pytest.raises(MisuseError, match=message):
        evolve(**{"problem": Sphere(), "algorithm": GA(6), "evaluations": 10, **settings})


MIXED = Genome(
    {
        "x": Real([0.0, -2.0], [1.0, 2.0]),
        "rate": Real(1e-4, 1.0, 2, "log"),
        "n": Integer(-3, 9, 3),
        "kind": Categorical([["relu", "tanh"], [1, 2.5, None]]),
        "order": Permutation(6),
        "team": Subset(8, 3),
        "net": Network([("w", (3, 2)), ("b", (3,))]),
    }
)
CHOICES = {
    "x": ([SBX(), None], [Polynomial(), Gaussian(), None]),
    "rate": ([SBX(eta=2.5, probability=1.0)], [Polynomial(gene_probability=0.9), Gaussian(deviation=3.0)]),
    "n": ([UniformCrossover(), Points()], [Reset(), Creep()]),
    "kind": ([UniformCrossover(), Points()], [Reset()]),
    "order": ([OrderCrossover()], [Swap(), Insertion()]),
    "team": ([SubsetCrossover()], [Replace()]),
    "net": ([Best(), LayerCrossover(), ChannelCrossover()], [NetworkGaussian()]),
}


@pytest.mark.parametrize("choice", range(3))
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_a_genome_of_all_kinds_evolves_and_stays_valid(choice, mode):
    def pick(options):
        return options[choice % len(options)]

    def judge(values):
        assert values["rate"].min() >= 1e-4 and values["rate"].max() <= 1.0 + 1e-12
        tour = float(np.abs(np.diff(values["order"])).sum())
        return [
            values["x"].sum() + values["n"].sum() + tour + np.square(values["net"] - 0.5).sum(),
            values["team"].sum() + (values["kind"][0] == "relu") + (values["kind"][1] is None) - np.log10(values["rate"]).sum(),
        ]

    operators = {name: Variation(pick(crossovers), pick(mutations)) for name, (crossovers, mutations) in CHOICES.items()}
    start = evolve(judge, NSGA2(20, operators=operators), 20, 1, genome=MIXED)
    result = evolve(judge, NSGA2(20, operators=operators), 1_500, 1, genome=MIXED, mode=mode)
    assert result.failed == 0
    genes = MIXED.check(result.population.genes, "the population")
    assert {name: array.dtype for name, array in genes.items()} == {name: part.dtype for name, part in MIXED.parts.items()}
    assert result.front.min(axis=0)[0] < start.front.min(axis=0)[0] - 3 and result.front.min(axis=0)[1] < start.front.min(axis=0)[1] - 1
    assert set(result.genomes) == set(MIXED.parts) and result.genomes["kind"].shape == (len(result.front), 2)


def test_problems_of_other_kinds_of_genome_are_solved():
    assert evolve(ZDT5(), NSGA2(50), 5_000, 1).front[:, 0].min() == 1
    result = evolve(Knapsack(20, 2), NSGA2(50), 5_000, 1)
    items, problem = result.genomes["items"], Knapsack(20, 2)
    assert np.array_equal(items @ problem.profits.T, result.front) and (items @ problem.weights.T <= problem.capacities).all()
    assert not result.minimise and result.hypervolume([0.0, 0.0]) > 0


def test_a_seed_may_be_any_integer():
    fronts = [evolve(ZDT1(5), NSGA2(6), 30, seed).front for seed in (0, 1, np.int64(1), 2**40)]
    assert np.array_equal(fronts[1], fronts[2]) and not np.array_equal(fronts[0], fronts[1]) and not np.array_equal(fronts[0], fronts[3])


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("line", ["ZDT1(5), NSGA2(8), 48", "DTLZ2(3, 6), NSGA2(8), 48", "Sphere(4), CMAES(6), 60", "Sphere(4), PSO(6), 60"])
def test_without_numba_the_same_comes_out(line):
    program = f"from lamarckian.ec import *\nfrom lamarckian.ec.problems import *\nfront = evolve({line}, seed=3).front.tolist()"
    without = f"import sys\nsys.modules['numba'] = None\n{program}\nprint(front)"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    here: dict = {}
    exec(program, here)
    assert np.allclose(json.loads(done.stdout), here["front"], rtol=1e-6)
