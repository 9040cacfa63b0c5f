"""Genomes in plain form: each kind becomes its part, through recipes too, and what is wrong is named."""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian.ec.description import Description, genome_from
from lamarckian.ec.genome import Categorical, Genome, Integer, Network, Permutation, Real, Subset
from lamarckian.errors import MisuseError, RecipeError
from lamarckian.plugins import construct

PLAIN = {
    "rates": {"kind": "real", "low": 1e-5, "high": 0.1, "length": 3, "scale": "log"},
    "ranges": {"low": [0, -1.5], "high": [1, 2]},
    "counts": {"kind": "integer", "low": 1, "high": [9]},
    "modes": {"kind": "categorical", "categories": ["a", "b"], "length": 2},
    "mixed": {"kind": "categorical", "categories": [["tanh", "relu", 3], [True, False]]},
    "order": {"kind": "permutation", "items": 5},
    "team": {"kind": "subset", "items": 9, "size": 3},
    "brain": {"kind": "network", "layers": [["weight", [4, 2]], ["bias", [4]]], "deviation": 0.5},
}
PARTS = {
    "rates": Real(1e-5, 0.1, 3, "log"),
    "ranges": Real([0, -1.5], [1, 2]),
    "counts": Integer(1, [9]),
    "modes": Categorical(["a", "b"], 2),
    "mixed": Categorical([["tanh", "relu", 3], [True, False]]),
    "order": Permutation(5),
    "team": Subset(9, 3),
    "brain": Network([("weight", (4, 2)), ("bias", (4,))], 0.5),
}


class Plugin:
    def __init__(self, genome: Description, other: int = 1) -> None:
        self.genome = genome_from(genome)


def message(description, **settings) -> str:
    with pytest.raises(RecipeError) as error:
        genome_from(description, **settings)
    return str(error.value)


def test_every_kind_of_part_is_what_its_class_makes():
    genome = genome_from(PLAIN)
    assert genome.signature() == Genome(PARTS).signature()
    assert genome.parts["brain"].deviation == 0.5


def test_a_plug_in_takes_a_genome_as_a_setting():
    assert construct(Plugin, {"genome": PLAIN}, "problem").genome.signature() == Genome(PARTS).signature()
    with pytest.raises(RecipeError, match=r"problem\.genome\.team\.size: missing"):
        construct(Plugin, {"genome": {"team": {"kind": "subset", "items": 9}}}, "problem")


def test_a_part_without_a_kind_is_real():
    part = genome_from({"rate": {"low": 1e-5, "high": 1e-1, "scale": "log"}}).parts["rate"]
    assert isinstance(part, Real)
    assert (part.scale, part.length) == ("log", 1)
    np.testing.assert_allclose(part.express(np.array([part.low, part.high])).ravel(), [1e-5, 1e-1])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"high": 1}, "genome.x.low: missing"),
        ({"low": "0", "high": 1}, 'genome.x.low: given "0"; allowed: a valid number'),
        ({"low": True, "high": 1}, "genome.x.low: given true; allowed: a valid number"),
        ({"low": 0, "high": 1, "scale": "ln"}, "genome.x.scale: given \"ln\"; allowed: 'linear' or 'log'"),
        ({"kind": "integer", "low": 0, "high": 1.5}, "genome.x.high: given 1.5"),
        ({"kind": "network", "layers": [["w", [1, 2.5]]]}, "genome.x.layers.0.1.1: given 2.5"),
        ({"kind": "reel", "low": 0, "high": 1}, "genome.x: given"),
        ({"items": 3}, "a part whose `kind` is real, integer, categorical, permutation, subset or network"),
        (3, "genome.x: given 3; allowed: a section of its own"),
        ({"kind": "permutation", "items": 3, "itmes": 4}, "the keys kind, items; unknown: itmes (nearest: items)"),
        ({"low": 2, "high": 1}, "genome.x: a real part: gene 0 has low 2 above high 1"),
        ({"kind": "integer", "low": 0, "high": 10**30}, "genome.x: "),
        ({"kind": "subset", "items": 3, "size": 4}, "genome.x: a subset has between 1 and all of its 3 items"),
    ],
)
def test_what_is_wrong_is_named_with_part_and_key(part, expected):
    assert expected in message({"fine": {"low": 0, "high": 1}, "x": part})


def test_the_place_of_a_description_may_have_another_name():
    assert message({"x": {"low": 0}}, key="evolve.genes") == "evolve.genes.x.high: missing"
    assert message({}, key="evolve.genes").startswith("evolve.genes: given {}; allowed: at least one part")
    assert issubclass(RecipeError, MisuseError)


@pytest.mark.parametrize("description", [None, [], [{"low": 0, "high": 1}]])
def test_a_description_that_is_no_mapping_is_refused(description):
    assert message(description).startswith("genome: given")
