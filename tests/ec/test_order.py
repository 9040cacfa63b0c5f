"""The order of one objective."""

import numpy as np
import pytest

from lamarckian.ec.genome import Genome, Real
from lamarckian.ec.order import best_first, check_single
from lamarckian.ec.population import EVALUATED, FAILED, NOBODY, PENDING, Population, no_population
from lamarckian.errors import MisuseError


def population(fitness, violation=None, state=None, ids=None):
    count = len(fitness)
    column = np.array(fitness, np.float64).reshape(count, -1)
    return Population(
        genes={"x": np.zeros((count, 1))},
        ids=np.arange(count) if ids is None else np.array(ids),
        parents=np.full((count, 2), NOBODY),
        age=np.zeros(count, np.int64),
        state=np.full(count, EVALUATED, np.uint8) if state is None else np.array(state, np.uint8),
        fitness=column,
        raw=-column,
        violation=np.zeros(count) if violation is None else np.array(violation, np.float64),
    )


def test_the_fittest_is_first():
    assert best_first(population([1.0, 3.0, 2.0])).tolist() == [1, 2, 0]


def test_feasible_ones_come_first_then_the_smaller_violation_whatever_their_fitness():
    assert best_first(population([1.0, 9.0, 0.0, 9.0], [0.0, 0.2, 0.0, 0.1])).tolist() == [0, 2, 3, 1]


def test_the_older_id_is_first_among_equals():
    assert best_first(population([1.0, 1.0, 1.0], ids=[7, 3, 5])).tolist() == [1, 2, 0]
    assert best_first(population([1.0, 2.0], [0.5, 0.5])).tolist() == [0, 1]


def test_zeros_of_either_sign_are_equal():
    assert best_first(population([-0.0, 0.0, -0.0])).tolist() == [0, 1, 2]


def test_failed_and_pending_ones_are_left_out():
    rows = best_first(population([np.nan, 1.0, np.nan, 2.0], state=[FAILED, EVALUATED, PENDING, EVALUATED]))
    assert rows.tolist() == [3, 1] and rows.dtype == np.int64


def test_nobody_has_no_order():
    for objectives in (None, 1):
        assert best_first(no_population(Genome({"x": Real(0, 1)}), objectives)).tolist() == []
    assert best_first(population([np.nan], state=[FAILED])).tolist() == []


def test_several_objectives_are_refused():
    with pytest.raises(MisuseError, match="of 1 objective, and this one has 2"):
        best_first(population([[1.0, 2.0]]))
    with pytest.raises(MisuseError, match="GA takes problems of 1 objective, and this one has 3: use NSGA2"):
        check_single("GA", 3)
    check_single("GA", 1), check_single("GA", None)
