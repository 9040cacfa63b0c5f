"""Evaluators: what problems and functions may return, and what is said when they return something else."""

import sys

import numpy as np
import pytest

from lamarckian.ec import GA, NSGA2, Evolution, Genome, Integer, Real, evolve
from lamarckian.ec.evaluator import OneByOne, Vectorised, as_evaluator, check_evaluation, describe_error
from lamarckian.ec.population import Evaluation, Fault
from lamarckian.ec.problems import ZDT1, Knapsack, Sphere
from lamarckian.errors import EvaluationError, MisuseError

IDS = np.array([4, 5, 6])
X = {"x": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}


def problem(returns, **attributes):
    """A problem of two reals that returns what a function makes of them."""
    methods = {"bounds": ([0.0, 0.0], [9.0, 9.0]), "evaluate": lambda self, x: returns(x), **attributes}
    return type("Problem", (), methods)()


@pytest.mark.parametrize(
    ("returns", "raw"),
    [
        (lambda x: x.sum(axis=1), [[3], [7], [11]]),
        (lambda x: x.sum(axis=1, keepdims=True), [[3], [7], [11]]),
        (lambda x: [3, 7, 11], [[3], [7], [11]]),
        (lambda x: x > 2, [[0, 0], [1, 1], [1, 1]]),
        (lambda x: np.float32(x), [[1, 2], [3, 4], [5, 6]]),
        (lambda x: [(a, b, a + b) for a, b in x], [[1, 2, 3], [3, 4, 7], [5, 6, 11]]),
    ],
)
def test_objectives_may_be_given_in_several_forms(returns, raw):
    evaluator = Vectorised(problem(returns))
    evaluation = evaluator.evaluate(IDS, X)
    assert evaluation.raw.tolist() == raw and evaluation.raw.dtype == np.float64 and not evaluation.faults
    assert evaluation.violation.tolist() == [0, 0, 0] and evaluator.objectives == len(raw[0])


@pytest.mark.parametrize(
    ("violation", "expected"),
    [
        (lambda x: x[:, 0] - 3, [0, 0, 2]),
        (lambda x: np.stack([x[:, 0] - 3, x[:, 1] - 5], axis=1), [0, 0, 3]),
        (lambda x: x[:, :1] - 2, [0, 1, 3]),
    ],
)
def test_only_broken_constraints_count(violation, expected):
    assert Vectorised(problem(lambda x: (x, violation(x)))).evaluate(IDS, X).violation.tolist() == expected


@pytest.mark.parametrize(
    ("returns", "attributes", "message"),
    [
        (lambda x: None, {}, "objectives, not None"),
        (lambda x: "three", {}, "objectives, not 'three'"),
        (lambda x: x * 1j, {}, "objectives, not"),
        (lambda x: [None] * 3, {}, r"objectives, not \[None"),
        (lambda x: [[1, 2], [3]], {}, "objectives, not"),
        (lambda x: 1.0, {}, r"not an array of shape \[\]"),
        (lambda x: x[:2], {}, r"not an array of shape \[2, 2\]"),
        (lambda x: x[:, :0], {}, r"not an array of shape \[3, 0\]"),
        (lambda x: x[None], {}, r"not an array of shape \[1, 3, 2\]"),
        (lambda x: x.T, {}, r"not an array of shape \[2, 3\]"),
        (lambda x: x, {"objectives": 3}, "2 objectives a candidate; expected are 3"),
        (lambda x: x[:, 0], {"objectives": 2}, r"objectives \[3, 2\], not an array of shape \[3\]"),
        (lambda x: (x, x[:2, 0]), {}, r"a violation of each candidate \[3\], not of shape \[2\]"),
        (lambda x: (x, "none"), {}, "a violation of each candidate, not 'none'"),
        (lambda x: (x, 0.0), {}, r"a violation of each candidate \[3\], not of shape \[\]"),
    ],
)
def test_anything_else_is_an_error_that_names_the_candidates(returns, attributes, message):
    with pytest.raises(EvaluationError, match=f"candidates 4 to 6: evaluate .*{message}"):
        Vectorised(problem(returns, **attributes)).evaluate(IDS, X)


def test_the_number_of_objectives_may_not_change():
    calls = []

    def returns(x):
        calls.append(x)
        return x[:, : len(calls)]

    with pytest.raises(EvaluationError, match="candidates 6 to 11: evaluate returned 2 objectives a candidate; expected are 1"):
        evolve(problem(returns), NSGA2(6), 100)
    calls.clear()
    with pytest.raises(EvaluationError, match="candidate 8 has 2 objectives; those before it had 3"):
        evolve(lambda x: calls.append(x) or [1.0] * (3 if len(calls) < 9 else 2), NSGA2(6), 100, genome=Real(0, 1, 2))


class Own:
    """An evaluator of one's own, which returns whatever it is told to."""

    minimise = True
    objectives = 2

    def __init__(self, returns):
        self._returns = returns

    def describe(self):
        return Genome({"x": Real(0, 1, 2)})

    def initialize(self, count, generator):
        return None

    def evaluate(self, ids, values):
        return self._returns(len(ids))


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (lambda n: np.zeros((n, 2)), "must return an Evaluation, not array"),
        (lambda n: None, "must return an Evaluation, not None"),
        (lambda n: Evaluation(np.zeros(n), np.zeros(n)), r"Evaluation.raw must be of shape \[6, M\], not \[6\]"),
        (lambda n: Evaluation(np.zeros((2, 2)), np.zeros(n)), r"Evaluation.raw must be of shape \[6, M\], not \[2, 2\]"),
        (lambda n: Evaluation(np.zeros((n, 0)), np.zeros(n)), r"Evaluation.raw must be of shape \[6, M\], not \[6, 0\]"),
        (lambda n: Evaluation(None, np.zeros(n)), "Evaluation.raw must be numbers, not None"),
        (lambda n: Evaluation(np.zeros((n, 2)), None), "Evaluation.violation must be numbers, not None"),
        (lambda n: Evaluation(np.zeros((n, 2)), np.zeros((n, 1))), r"Evaluation.violation must be of shape \[6\], not \[6, 1\]"),
        (lambda n: Evaluation(np.zeros((n, 2)), np.zeros(n), {6: Fault("raised", "")}), r"by row, from 0 to 5, not of \[6\]"),
        (lambda n: Evaluation(np.zeros((n, 3)), np.zeros(n)), "3 objectives; expected are 2"),
    ],
)
def test_an_evaluator_that_breaks_its_contract_is_told_so(returns, message):
    with pytest.raises(EvaluationError, match=f"candidates 0 to 5: .*{message}"):
        Evolution(Own(returns), NSGA2(6)).advance()


def test_numbers_that_are_not_finite_make_a_candidate_fail_whoever_returns_them():
    raw, violation = np.array([[1.0, np.nan], [1.0, 2.0], [3.0, 4.0]]), np.array([0.0, np.inf, -1.0])
    evaluation = check_evaluation(Evaluation(raw, violation), IDS)
    assert {row: fault.kind for row, fault in evaluation.faults.items()} == {0: "numbers", 1: "numbers"}
    assert evaluation.faults[1].message == "not finite: objectives [1.0, 2.0], violation inf" and evaluation.violation[2] == 0
    known = {0: Fault("timeout", "slow")}
    assert check_evaluation(Evaluation(raw, violation, known), IDS).faults[0].kind == "timeout" and list(known) == [0]


def test_one_row_that_raises_fails_alone():
    def returns(x):
        if (x[:, 0] == 3).any():
            raise ValueError("a three")
        return x

    evaluation = Vectorised(problem(returns)).evaluate(IDS, X)
    assert list(evaluation.faults) == [1] and evaluation.raw[[0, 2]].tolist() == [[1, 2], [5, 6]]
    assert evaluation.faults[1].kind == "raised" and evaluation.faults[1].message.startswith("ValueError: a three (")
    assert __file__ in evaluation.faults[1].message


def test_the_first_rows_may_be_those_that_raise():
    def returns(x):
        if (x[:, 0] < 5).any():
            raise ZeroDivisionError
        return x

    evaluation = Vectorised(problem(returns)).evaluate(IDS, X)
    assert list(evaluation.faults) == [0, 1] and evaluation.raw[2].tolist() == [5, 6] and np.isnan(evaluation.raw[:2]).all()


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_call_of_exit_is_a_failure_and_an_interrupt_is_none(vectorised):
    def leave(x):
        sys.exit(3)

    def interrupt(x):
        raise KeyboardInterrupt

    def evaluator(function):
        return Vectorised(problem(function)) if vectorised else OneByOne(function, Real(0, 9, 2))

    evaluation = evaluator(leave).evaluate(IDS, X)
    assert len(evaluation.faults) == 3 and evaluation.faults[2].message.startswith("SystemExit: 3") and evaluation.raw.shape == (3, 0)
    with pytest.raises(KeyboardInterrupt):
        evaluator(interrupt).evaluate(IDS, X)


def test_a_plain_function_gets_one_candidate_after_another():
    seen = []
    one = OneByOne(lambda x: seen.append(x) or [x[0], x[1]], Real(0, 9, 2))
    assert one.evaluate(IDS, X).raw.tolist() == X["x"].tolist() and [row.shape for row in seen] == [(2,)] * 3
    parts = OneByOne(lambda values: values["n"][0] * values["x"][1], Genome({"x": Real(0, 9, 2), "n": Integer(0, 3)}))
    assert parts.evaluate(IDS, {**X, "n": np.array([[1], [2], [3]])}).raw.tolist() == [[2], [8], [18]]


@pytest.mark.parametrize("result", [None, "1", [None, 1.0], [[1.0]], [], 1j, object(), {}])
def test_a_plain_function_must_return_numbers(result):
    with pytest.raises(EvaluationError, match="candidate 4: the function must return a number, or a list of numbers"):
        OneByOne(lambda x: result, Real(0, 9, 2)).evaluate(IDS, X)


def test_a_plain_function_that_raises_fails_that_candidate_only():
    evaluation = OneByOne(lambda x: 1 / (float(x[0]) - 3), Real(0, 9, 2)).evaluate(IDS, X)
    assert list(evaluation.faults) == [1] and evaluation.raw[[0, 2], 0].tolist() == [-0.5, 0.5]


def test_whoever_works_in_place_does_not_change_genes():
    def in_place(x):
        x -= 1.0
        return float((x**2).sum())

    result = evolve(in_place, GA(6), 60, genome=Real(0.5, 9.0, 2))
    result.population.genes["x"].sort()
    assert result.failed == 0 and result.population.genes["x"].min() >= 0.5
    genome, value = result.best
    assert value == ((genome - 1) ** 2).sum()
    blocked = evolve(problem(lambda x: in_place(x) and x), GA(6), 6)
    assert blocked.failed == 6 and "read-only" in blocked.faults[0][1].message


def test_what_the_problem_keeps_and_changes_later_does_no_harm():
    kept = np.zeros((6, 1))

    def returns(x):
        kept[:, 0] = x.sum(axis=1)[: len(kept)]
        return kept

    result = evolve(problem(returns), GA(6), 60)
    assert np.array_equal(result.population.raw[:, 0], result.population.genes["x"].sum(axis=1))


def test_a_problem_may_make_its_first_individuals():
    made = problem(lambda x: x, initialize=lambda self, count, generator: np.full((count, 2), 0.5))
    assert Vectorised(made).initialize(3, np.random.default_rng(0))["x"].tolist() == [[0.5, 0.5]] * 3
    assert Vectorised(problem(lambda x: x, initialize=lambda self, count, generator: None)).initialize(3, None) is None


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (np.full((3, 2), 99.0), "the first individuals: part 'x': gene 0 is 99, outside"),
        (np.full((3, 5), 1.0), r"part 'x' must be of shape \[N, 2\], not \[3, 5\]"),
        (np.full((3, 2), np.nan), "gene 0 is nan, outside"),
    ],
)
def test_first_individuals_that_do_not_fit_are_refused(made, message):
    with pytest.raises(MisuseError, match=message):
        evolve(problem(lambda x: x, initialize=lambda self, count, generator: made), NSGA2(6), 6)


@pytest.mark.parametrize("made", [{"y": [[1]]}, {}, [[1, 2]]])
def test_first_individuals_of_other_parts_are_refused(made):
    class Items(Knapsack):
        def initialize(self, count, generator):
            return made

    with pytest.raises(MisuseError, match="the first individuals must be values of the parts items"):
        evolve(Items(5), NSGA2(6), 6)


class Two:
    objectives = 2

    def evaluate(self, x):
        return x


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (Sphere, {}, r"problem must be an object, not the class itself: write Sphere\(\)"),
        (Own, {}, r"write Own\(\)"),
        (lambda x: x, {}, "a plain function needs a genome"),
        (lambda x: x, {"genome": {"x": Real(0, 1)}}, "a plain function needs a genome"),
        (None, {}, "must be an object with `evaluate` and `bounds` or `genome`, or a function, not None"),
        (Sphere(), {"genome": Real(0, 1)}, "a problem has its own genome and `minimise`"),
        (Sphere(), {"minimise": True}, "a problem has its own genome and `minimise`"),
        (Own(None), {"genome": Real(0, 1), "minimise": False}, "an evaluator has its own genome and `minimise`"),
        (Two(), {}, "Two needs `bounds`"),
        (problem(None, bounds=[1, 2, 3]), {}, "Problem needs `bounds`"),
        (problem(None, bounds=None), {}, "Problem needs `bounds`"),
        (problem(None, bounds=([0, 1], [1, 0])), {}, "gene 1 has low 1 above high 0; swap them"),
        (problem(None, bounds=([0, 1], [1])), {}, "low has 2 genes, high has 1"),
        (problem(None, bounds=([0.0], [np.inf])), {}, "bounds must be finite"),
        (problem(None, bounds=([0.0], [np.nan])), {}, "bounds must be finite"),
        (problem(None, bounds=([], [])), {}, "low must be a list of at least one number"),
        (problem(None, bounds=(["a"], ["b"])), {}, "low must be numbers"),
        (problem(None, genome=3), {}, "Problem.genome must be a Genome, not 3"),
        (problem(None, genome={"x": Real}), {}, "genome part 'x' must be Real"),
        (problem(None, genome={}), {}, "at least one part"),
        (problem(None, objectives=0), {}, "Problem.objectives is how many there are, at least 1, not 0"),
        (problem(None, objectives=["a", "b"]), {}, "Problem.objectives is how many there are"),
    ],
)
def test_what_is_no_problem_is_refused(given, settings, message):
    with pytest.raises(MisuseError, match=message):
        as_evaluator(given, **settings)


def test_a_direction_is_the_problem_s_or_the_function_s():
    assert as_evaluator(ZDT1()).minimise and not as_evaluator(Knapsack()).minimise
    assert as_evaluator(lambda x: 0, Real(0, 1)).minimise and not as_evaluator(lambda x: 0, Real(0, 1), False).minimise


def test_an_error_is_described_with_its_place():
    try:
        {}["key"]
    except KeyError as error:
        assert describe_error(error).startswith(f"KeyError: 'key' ({__file__}, line ")
    assert describe_error(ValueError("never raised")) == "ValueError: never raised"


def test_two_lists_are_not_guessed_at():
    both = problem(lambda x: (x[:, 0], 1 - x[:, 1]))
    with pytest.raises(EvaluationError, match="objective and the violation of the constraints, or else two objectives"):
        evolve(both, GA(6), 6)
    both.objectives = 1
    assert evolve(both, GA(6), 6).evaluations == 6
