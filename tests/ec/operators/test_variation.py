"""Which operators vary which part."""

import numpy as np
import pytest

from lamarckian.ec import GA, Categorical, Genome, Integer, Network, Permutation, Real, Subset, Variation
from lamarckian.ec.operators import SBX, Creep, Gaussian, OrderCrossover, Points, Polynomial, Reset, Swap, UniformCrossover
from lamarckian.ec.operators.variation import DEFAULTS, Breeder
from lamarckian.errors import MisuseError

GENOME = Genome(
    {
        "x": Real(0.0, 1.0, 6),
        "n": Integer(0, 99, 5),
        "kind": Categorical(["a", "b", "c"], 4),
        "order": Permutation(5),
        "team": Subset(9, 3),
        "net": Network([("w", (3, 3))]),
    }
)
IDS = np.arange(20, 40)


def parents(seed=0):
    generator = np.random.default_rng(seed)
    return GENOME.sample(len(IDS), generator), GENOME.sample(len(IDS), generator)


def test_each_kind_has_defaults_that_work_on_it():
    assert set(DEFAULTS) == {type(part) for part in GENOME.parts.values()}
    for kind, usual in DEFAULTS.items():
        assert kind in usual.crossover.parts and kind in usual.mutation.parts


def test_children_are_valid_new_and_do_not_touch_their_parents():
    mothers, fathers = parents()
    before = {name: rows.copy() for name, rows in mothers.items()}
    children = Breeder(GENOME, {}, 1).children(mothers, fathers, IDS)
    GENOME.check(children, "children")
    assert list(children) == list(GENOME.parts)
    for name, rows in children.items():
        assert np.array_equal(mothers[name], before[name]) and not np.shares_memory(rows, mothers[name])
        assert rows.dtype == GENOME.parts[name].dtype and not np.array_equal(rows, mothers[name])


def test_without_operators_a_child_is_a_copy_of_the_fitter_parent():
    mothers, fathers = parents()
    children = Breeder(GENOME, dict.fromkeys(GENOME.parts, Variation(None, None)), 1).children(mothers, fathers, IDS)
    assert all(np.array_equal(rows, mothers[name]) and not np.shares_memory(rows, mothers[name]) for name, rows in children.items())


def test_crossover_alone_takes_genes_from_both_and_mutation_alone_from_one():
    mothers, fathers = parents()
    crossed = Breeder(GENOME, {"n": Variation(UniformCrossover(), None)}, 1).children(mothers, fathers, IDS)["n"]
    assert ((crossed == mothers["n"]) | (crossed == fathers["n"])).all()
    assert (crossed != mothers["n"]).any() and (crossed != fathers["n"]).any()
    mutated = Breeder(GENOME, {"n": Variation(None, Reset(gene_probability=0.5))}, 1).children(mothers, fathers, IDS)["n"]
    assert 0.3 < (mutated == mothers["n"]).mean() < 0.7


def test_a_default_may_stand_beside_a_choice():
    mothers, fathers = parents()
    chosen = Breeder(GENOME, {"x": Variation(mutation=None)}, 1).children(mothers, fathers, IDS)
    usual = Breeder(GENOME, {"x": Variation(SBX(), None)}, 1).children(mothers, fathers, IDS)
    assert np.array_equal(chosen["x"], usual["x"])
    assert np.array_equal(chosen["n"], Breeder(GENOME, {}, 1).children(mothers, fathers, IDS)["n"])


def test_parts_of_one_kind_vary_independently_of_each_other():
    twins = Genome({"a": Real(0.0, 1.0, 6), "b": Real(0.0, 1.0, 6)})
    rows = twins.sample(20, np.random.default_rng(0))["a"]
    others = twins.sample(20, np.random.default_rng(1))["a"]
    children = Breeder(twins, {}, 1).children({"a": rows, "b": rows}, {"a": others, "b": others}, IDS)
    assert not np.array_equal(children["a"], children["b"])


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ({"y": Variation()}, "operators.y: given 'y'; .*known parts: x, n, kind, order, team, net"),
        ({"orders": Variation()}, "nearest: order"),
        ({"kind": Variation(mutation=Creep())}, "operators.kind.mutation: 'creep' works on Integer; the part is Categorical"),
        ({"x": Variation(crossover=OrderCrossover())}, "operators.x.crossover: 'order' works on Permutation; the part is Real"),
        ({"order": Variation(mutation=Gaussian())}, "operators.order.mutation: 'gaussian' works on Real; the part is Permutation"),
        ({"n": Variation(crossover=SBX())}, "operators.n.crossover: 'sbx' works on Real; the part is Integer"),
        ({"x": Variation(crossover=Polynomial())}, "operators.x.crossover must be an object with `cross`, or None, not Polynomial"),
        ({"order": Variation(mutation=OrderCrossover())}, "operators.order.mutation must be an object with `mutate`"),
        ({"x": Variation(SBX)}, "operators.x.crossover must be an object with `cross`, or None, not <class"),
        ({"x": Variation("sbx")}, "operators.x.crossover must be an object with `cross`, or None, not 'sbx'"),
        ({"x": SBX()}, r"operators.x must be Variation\(crossover=…, mutation=…\), not SBX"),
        ({"x": None}, r"operators.x must be Variation\(crossover=…, mutation=…\), not None"),
    ],
)
def test_operators_that_do_not_fit_are_refused(operators, message):
    with pytest.raises(MisuseError, match=message):
        GA(operators=operators).begin(GENOME, 1, 1)


def test_a_part_of_an_unknown_kind_is_refused():
    class Angle(Real):
        pass

    with pytest.raises(MisuseError, match="part 'angle' is of a kind without operators, Angle"):
        GA().begin(Genome({"angle": Angle(0.0, 6.28, 2)}), 1, 1)


def test_all_operators_that_work_on_a_part_are_accepted():
    for crossover, mutation in ((Points(), Creep()), (UniformCrossover(), Reset()), (None, None)):
        Breeder(GENOME, {"n": Variation(crossover, mutation)}, 1)
    Breeder(GENOME, {"order": Variation(OrderCrossover(), Swap())}, 1)
