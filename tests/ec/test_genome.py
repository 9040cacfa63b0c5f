"""Genomes: what their parts sample, refuse, express and encode."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.genome import Categorical, Genome, Integer, Network, Permutation, Real, Subset
from lamarckian.errors import MisuseError
from tests.ec.operators.properties import evenly

PARTS = {
    "x": Real([-1.0, 0.0], [1.0, 5.0]),
    "rate": Real(1e-5, 1e-1, length=2, scale="log"),
    "depth": Integer(-2, 3, length=2),
    "kind": Categorical([["relu", "tanh"], [1, "two", None]]),
    "order": Permutation(4),
    "team": Subset(6, 3),
    "net": Network([("weight", (2, 3)), ("bias", (2,)), ("scale", ())]),
}
GENOME = Genome(PARTS)


def sample(count: int, seed: int = 0):
    return GENOME.sample(count, np.random.default_rng(seed))


@pytest.mark.parametrize("name", PARTS)
@given(seed=st.integers(0, 99), count=st.integers(0, 9))
def test_samples_fit_their_part_and_come_back_from_their_values(name, seed, count):
    part = PARTS[name]
    genes = part.sample(count, np.random.default_rng(seed))
    assert genes.shape == (count, part.length) and genes.dtype == part.dtype
    assert part.fault(genes) is None
    back = part.encode(part.express(genes))
    assert back.dtype == part.dtype
    np.testing.assert_allclose(back, genes, rtol=1e-12)


def test_samples_spread_evenly():
    genes = sample(6000)
    assert evenly(np.histogram(genes["x"][:, 1], 10, (0.0, 5.0))[0])
    assert evenly(np.histogram(np.log10(GENOME.express(genes)["rate"]), 8, (-5.0, -1.0))[0])
    assert evenly(np.bincount(genes["depth"].ravel() + 2, minlength=6))
    assert evenly(np.bincount(genes["kind"][:, 1], minlength=3))
    assert evenly(np.unique(genes["order"], axis=0, return_counts=True)[1])
    assert evenly(np.unique(genes["team"], axis=0, return_counts=True)[1])
    assert genes["net"].std() == pytest.approx(0.1, rel=0.02)


def test_values_are_what_genes_stand_for():
    assert Real(1.0, 100.0, scale="log").express(np.array([[0.0], [np.log(10.0)]])) == pytest.approx(np.array([[1.0], [10.0]]))
    assert PARTS["kind"].express(np.array([[0, 1], [1, 2]])).tolist() == [["relu", "two"], ["tanh", None]]
    assert Categorical([8, 16, 32], length=2).express(np.array([[2, 0]])).tolist() == [[32, 8]]
    assert PARTS["depth"].express(np.array([[3, -2]])).tolist() == [[3, -2]]


def test_categories_may_be_of_any_kind():
    part = Categorical([[(64, 64), (32,)], [True, "yes"]])
    values = part.express(np.array([[1, 1], [0, 0]]))
    assert values.tolist() == [[(32,), "yes"], [(64, 64), True]]
    assert part.encode([[(32,), "yes"], [(64, 64), True]]).tolist() == [[1, 1], [0, 0]]


def test_subsets_are_encoded_in_rising_order():
    assert Subset(9, 3).encode([[7, 1, 4]]).tolist() == [[1, 4, 7]]


def test_bounds_of_a_logarithmic_part_are_themselves_allowed():
    for low, high in [(1e-5, 1e-1), (0.3, 0.7), (3.0, 1e17)]:
        part = Real(low, high, scale="log")
        assert part.fault(part.encode([[low], [high]])) is None
    part = Real(1.0, 10.0, scale="log")
    assert part.fault(part.encode([[11.0]])) == "gene 0 is 11, outside [1, 10]"
    assert part.express(part.high[None]).tolist() == [[10.0]] and part.express(part.low[None]).tolist() == [[1.0]]


def test_bounds_are_copies_that_nobody_changes():
    low = np.zeros(3)
    part = Real(low, 1.0 + low)
    low += 5.0
    assert part.low.tolist() == [0.0, 0.0, 0.0]
    for bounds in (part.low, Real(1.0, 2.0, scale="log").high, Integer(0, 1).low):
        with pytest.raises(ValueError, match="read-only"):
            bounds[0] = 3


@pytest.mark.parametrize(
    "name, genes, fault",
    [
        ("x", [[0.0, 5.5]], "gene 1 is 5.5, outside [0, 5]"),
        ("x", [[np.nan, 0.0]], "gene 0 is nan, outside [-1, 1]"),
        ("depth", [[0, 0], [-3, 0]], "gene 0 is -3, outside [-2, 3]"),
        ("kind", [[0, 3]], "gene 1 is 3, outside [0, 2]"),
        ("order", [[0, 1, 2, 3], [0, 1, 1, 3]], "[0, 1, 1, 3] is no permutation of 0 to 3"),
        ("team", [[0, 2, 1]], "[0, 2, 1] is not 3 different items of 0 to 5 in rising order"),
        ("team", [[0, 2, 2]], "[0, 2, 2] is not 3 different items of 0 to 5 in rising order"),
        ("team", [[0, 2, 6]], "[0, 2, 6] is not 3 different items of 0 to 5 in rising order"),
        ("net", [[0.0] * 8 + [np.inf]], "parameter 8 is not finite"),
    ],
)
def test_faults_say_what_is_wrong_and_where(name, genes, fault):
    part = PARTS[name]
    genes = np.array(genes, part.dtype)
    assert part.fault(genes) == fault
    with pytest.raises(MisuseError) as error:
        GENOME.check({**sample(len(genes)), name: genes}, "first")
    assert str(error.value) == f"first: part '{name}': {fault}"


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Real(1.0, 0.0), "gene 0 has low 1 above high 0; swap them"),
        (lambda: Real([0.0, 0.0], [1.0]), "low has 2 genes, high has 1"),
        (lambda: Real([0.0, 0.0], 1.0, length=3), "2 bounds are given for 3 genes"),
        (lambda: Real(0.0, np.inf), "bounds must be finite"),
        (lambda: Real(-1e308, 1e308), r"bounds may be 1e\+300 apart at most"),
        (lambda: Real("low", 1.0), "low must be numbers, not 'low'"),
        (lambda: Real(0.0, 1.0, scale="log"), "bounds above 0, not low 0"),
        (lambda: Real(0.0, 1.0, scale="exp"), "'linear' or 'log', not 'exp'"),
        (lambda: Real(0.0, 1.0, length=0), "at least one gene, not 0"),
        (lambda: Real([], []), "at least one number"),
        (lambda: Integer(0.5, 3), "must be whole numbers, not 0.5"),
        (lambda: Integer(0, np.inf), "must be whole numbers, not inf"),
        (lambda: Integer(-(2**62), 2**62), r"may be 4.5036e\+15 apart at most"),
        (lambda: Categorical([]), "at least one category"),
        (lambda: Categorical(["a", "a"]), "gene 0 needs at least one category, each once"),
        (lambda: Categorical([["a"], []]), "gene 1 needs at least one category"),
        (lambda: Categorical([["a"], ["b"]], length=3), "lists the categories of 2 genes, but its length is 3"),
        (lambda: Permutation(1), "at least 2 items, not 1"),
        (lambda: Subset(3, 4), "between 1 and all of its 3 items, not 4"),
        (lambda: Subset(3, 0), "between 1 and all of its 3 items, not 0"),
        (lambda: Network([]), "at least one layer"),
        (lambda: Network([("a", (2, 0))]), "no empty one"),
        (lambda: Genome({}), "at least one part"),
        (lambda: Genome({"x": [0, 1]}), r"genome part 'x' must be Real, .* not \[0, 1\]"),
        (lambda: PARTS["kind"].encode([["relu", "three"]]), r"\[\['relu', 'three'\]\] are not rows of its categories"),
    ],
)
def test_wrong_parts_are_refused_with_a_reason(build, message):
    with pytest.raises(MisuseError, match=message):
        build()


def test_check_brings_genes_into_the_order_and_types_of_the_parts():
    genes = {name: array.tolist() for name, array in reversed(sample(2).items())}
    checked = GENOME.check(genes, "first")
    assert list(checked) == list(PARTS)
    for name, part in PARTS.items():
        assert checked[name].dtype == part.dtype
        np.testing.assert_allclose(checked[name], genes[name])


def test_check_refuses_genes_that_do_not_fit():
    genome = Genome({"x": Real(0, 1, length=2), "n": Integer(0, 9, length=1)})
    for genes, message in [
        ({"x": [[0, 1]]}, "first: expected genes of the parts x, n, not x"),
        ({}, "first: expected genes of the parts x, n, not none"),
        ({"x": [[0]], "n": [[1]]}, r"first: part 'x' must be of shape \[N, 2\], not \[1, 1\]"),
        ({"x": [[0, 1]], "n": [[1], [2]]}, r"first: part 'n' must be of shape \[1, 1\], not \[2, 1\]"),
        ({"x": [["a", "b"]], "n": [[1]]}, "first: part 'x' must be numbers"),
        ({"x": [[0, 1]], "n": [[1.5]]}, "first: part 'n' must be whole numbers"),
    ]:
        with pytest.raises(MisuseError, match=message):
            genome.check(genes, "first")


def test_length_counts_the_genes_of_all_parts():
    assert GENOME.length == 2 + 2 + 2 + 2 + 4 + 3 + 9


def test_box_gives_bounds_of_reals_and_none_of_networks():
    low, high = Genome({"x": Real([0, -1], [1, 2]), "net": Network([("a", (2,))]), "y": Real(1, np.e, scale="log")}).box("CMA-ES")
    assert low.tolist() == [0, -1, -np.inf, -np.inf, 0] and high.tolist() == [1, 2, np.inf, np.inf, 1]
    with pytest.raises(MisuseError, match="CMA-ES moves in real numbers only; part 'n' is Integer: use GA or NSGA2"):
        Genome({"x": Real(0, 1), "n": Integer(0, 1)}).box("CMA-ES")


@pytest.mark.parametrize("names", [["x"], ["net"], ["x", "rate", "net"]])
def test_split_undoes_join(names):
    genome = Genome({name: PARTS[name] for name in names})
    genes = genome.sample(5, np.random.default_rng(0))
    flat = genome.join(genes)
    assert flat.dtype == np.float64 and flat.shape == (5, genome.length)
    for name, array in genome.split(flat).items():
        assert array.dtype == PARTS[name].dtype and np.array_equal(array, genes[name])


def test_encode_undoes_express_for_a_whole_genome():
    genes = sample(5)
    for name, array in GENOME.encode(GENOME.express(genes)).items():
        np.testing.assert_allclose(array, genes[name], rtol=1e-12)


def test_a_signature_is_plain_json_and_tells_genomes_apart():
    signature = GENOME.signature()
    assert json.loads(json.dumps(signature)) == signature
    assert signature["depth"] == {"kind": "Integer", "low": [-2, -2], "high": [3, 3], "length": 2}
    assert signature["net"]["layers"] == [["weight", [2, 3]], ["bias", [2]], ["scale", []]]
    for name, other in [
        ("x", Real([-1, 0], [1, 6])),
        ("kind", Categorical(["a", "b"], 2)),
        ("team", Subset(7, 3)),
        ("order", Subset(4, 4)),
    ]:
        assert Genome({**PARTS, name: other}).signature() != signature
    assert Genome(PARTS).signature() == signature


def test_layers_lie_one_behind_the_other():
    assert PARTS["net"].offsets.tolist() == [0, 6, 8, 9] and PARTS["net"].length == 9
