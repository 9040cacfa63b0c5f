"""DTLZ against values worked out by hand, the formulas as they are printed, and exact hypervolumes."""

from __future__ import annotations

from math import comb, cos, pi, prod, sin, sqrt

import numpy as np
import pytest

from lamarckian.ec.problems import DTLZ1, DTLZ2, DTLZ3, DTLZ4, DTLZ5, DTLZ6, DTLZ7
from lamarckian.ec.problems.dtlz import DTLZ7_PIECES
from lamarckian.errors import MisuseError

from .fronts import area, dominated, volume

ALL = (DTLZ1, DTLZ2, DTLZ3, DTLZ4, DTLZ5, DTLZ6, DTLZ7)
CURVES = (DTLZ5, DTLZ6)
FRONTS = [(problem, objectives) for problem in ALL for objectives in (2, 3, 5) if objectives <= 3 or problem not in CURVES]


def value(problem, first: float, second: float, others: float) -> list[float]:
    """Three objectives where x₁, x₂ are given and all other variables are `others`."""
    x = np.full((1, len(problem.bounds[0])), others)
    x[0, :2] = first, second
    return problem.evaluate(x)[0].tolist()


@pytest.mark.parametrize(
    ("problem", "x", "expected"),
    [
        (DTLZ1, (0.5, 0.5, 0.5), (0.125, 0.125, 0.25)),
        (DTLZ1, (0, 0, 0), (0, 0, 63)),  # g = 100 (5 + 5 (¼ − 1)) = 125
        (DTLZ1, (1, 1, 1), (63, 0, 0)),
        (DTLZ1, (1, 0.25, 0.55), (0.125 * 1002.25 + 0, 0.375 * 1002.25, 0)),  # g = 100 (5 + 5 (1/400 + 1)) = 1001.25
        (DTLZ2, (0.5, 0.5, 0.5), (0.5, 0.5, sqrt(0.5))),
        (DTLZ2, (0, 0, 0), (3.5, 0, 0)),
        (DTLZ2, (0, 1, 0.5), (0, 1, 0)),
        (DTLZ2, (1, 1, 1), (0, 0, 3.5)),
        (DTLZ3, (0.5, 0.5, 0.5), (0.5, 0.5, sqrt(0.5))),
        (DTLZ3, (0, 0, 0), (251, 0, 0)),
        (DTLZ4, (0.5, 0.5, 0.5), (1, 0, 0)),  # 0.5¹⁰⁰ is next to nothing
        (DTLZ4, (0.5**0.01, 0.5**0.01, 0.5), (0.5, 0.5, sqrt(0.5))),
        (DTLZ4, (1, 1, 1), (0, 0, 3.5)),
        (DTLZ5, (0.5, 0.9, 0.5), (0.5, 0.5, sqrt(0.5))),
        (DTLZ5, (0, 0, 0), (3.5 * cos(pi / 14), 3.5 * sin(pi / 14), 0)),
        (DTLZ5, (1, 1, 1), (0, 0, 3.5)),
        (DTLZ6, (0, 0, 0), (sqrt(0.5), sqrt(0.5), 0)),
        (DTLZ6, (0, 1, 1), (11 * cos(21 * pi / 44), 11 * sin(21 * pi / 44), 0)),
        (DTLZ6, (1, 1, 1), (0, 0, 11)),
        (DTLZ7, (0, 0, 0), (0, 0, 6)),
        (DTLZ7, (0.5, 0.5, 0.5), (0.5, 0.5, 19.5)),  # g = 5.5, sin 1.5π = −1
        (DTLZ7, (1, 1, 1), (1, 1, 31)),
    ],
)
def test_values_by_hand(problem, x, expected):
    assert value(problem(), *x) == pytest.approx(expected, rel=1e-13, abs=1e-13)


def printed(name: str, x: list[float], objectives: int) -> list[float]:
    """The objectives by the paper's formulas, term by term."""
    first, rest = x[: objectives - 1], x[objectives - 1 :]
    bowl = sum((v - 0.5) ** 2 for v in rest)
    rugged = 100 * (len(rest) + sum((v - 0.5) ** 2 - cos(20 * pi * (v - 0.5)) for v in rest))
    if name == "DTLZ7":
        g = 1 + 9 / len(rest) * sum(rest)
        h = objectives - sum(f / (1 + g) * (1 + sin(3 * pi * f)) for f in first)
        return [*first, (1 + g) * h]
    if name == "DTLZ1":
        factors = [prod(first[: objectives - 1 - m]) * (1 - first[objectives - 1 - m] if m else 1) for m in range(objectives)]
        return [0.5 * (1 + rugged) * factor for factor in factors]
    g = {"DTLZ3": rugged, "DTLZ6": sum(v**0.1 for v in rest)}.get(name, bowl)
    angles = [(v**100 if name == "DTLZ4" else v) * pi / 2 for v in first]
    if name in ("DTLZ5", "DTLZ6"):
        angles[1:] = [pi / (4 * (1 + g)) * (1 + 2 * g * v) for v in first[1:]]
    cosines = [cos(angle) for angle in angles]
    factors = [prod(cosines[: objectives - 1 - m]) * (sin(angles[objectives - 1 - m]) if m else 1) for m in range(objectives)]
    return [(1 + g) * factor for factor in factors]


@pytest.mark.parametrize("objectives", [2, 3, 5])
@pytest.mark.parametrize("problem", ALL)
def test_values_by_the_printed_formulas(problem, objectives):
    x = np.random.default_rng(0).random((50, len(problem(objectives).bounds[0])))
    expected = [printed(problem.__name__, row, objectives) for row in x.tolist()]
    found = problem(objectives).evaluate(x)
    assert found.shape == (50, objectives)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def optimal(problem, front: np.ndarray) -> np.ndarray:
    """Variables whose objectives are the points of the front: the first by undoing the formulas, the others where g is least."""
    objectives = front.shape[1]
    x = np.full((len(front), len(problem.bounds[0])), 0.0 if isinstance(problem, DTLZ6 | DTLZ7) else 0.5)
    if isinstance(problem, DTLZ7):
        x[:, : objectives - 1] = front[:, :-1]
        return x
    for i in range(objectives - 1):
        if isinstance(problem, CURVES) and i == 1:
            break  # makes no difference where g = 0
        up_to = front[:, : objectives - i]
        if isinstance(problem, DTLZ1):
            rest = up_to.sum(axis=1)
            x[:, i] = 1 - np.divide(up_to[:, -1], rest, out=np.zeros(len(front)), where=rest > 0)
        else:
            x[:, i] = np.arctan2(up_to[:, -1], np.linalg.norm(up_to[:, :-1], axis=1)) * 2 / pi
    if isinstance(problem, DTLZ4):
        x[:, : objectives - 1] **= 0.01
    return x


@pytest.mark.parametrize(("problem", "objectives"), FRONTS)
def test_every_point_of_the_front_is_attained(problem, objectives):
    front = problem(objectives).front(200)
    assert front.shape[0] >= 200
    assert front.shape[1] == objectives
    np.testing.assert_allclose(problem(objectives).evaluate(optimal(problem(objectives), front)), front, atol=1e-12)


@pytest.mark.parametrize(("problem", "objectives"), FRONTS)
def test_no_point_of_the_front_dominates_another(problem, objectives):
    assert not dominated(problem(objectives).front(300)).any()


@pytest.mark.parametrize("objectives", [2, 3])
@pytest.mark.parametrize("problem", ALL)
def test_no_random_solution_dominates_the_front(problem, objectives):
    made = problem(objectives)
    random = np.random.default_rng(0)
    x = optimal(made, made.front(2))[:1].repeat(400, axis=0)
    x[:, : objectives - 1] = random.random((400, objectives - 1))
    x[200:, objectives - 1] += random.random(200) * 0.2
    front = made.front(300)
    assert not dominated(np.concatenate([front - 1e-9, made.evaluate(x)]))[: len(front)].any()


@pytest.mark.parametrize("objectives", [2, 3, 5])
def test_solutions_lie_on_a_simplex_or_a_sphere(objectives):
    x = np.random.default_rng(0).random((100, objectives + 4))
    x[:, objectives - 1 :] = 0.5
    np.testing.assert_allclose(DTLZ1(objectives, len(x[0])).evaluate(x).sum(axis=1), 0.5)
    for problem in (DTLZ2, DTLZ3, DTLZ4, DTLZ5):
        np.testing.assert_allclose((problem(objectives, len(x[0])).evaluate(x) ** 2).sum(axis=1), 1)


@pytest.mark.parametrize("problem", [DTLZ2, DTLZ3, DTLZ4, DTLZ5, DTLZ6])
def test_hypervolume_of_a_front_of_two_objectives(problem):
    found, missing = area(problem(2).front(2000))
    assert 1.21 - pi / 4 - missing <= found <= 1.21 - pi / 4
    assert missing < 1e-3


def test_hypervolume_of_the_simplex():
    # Every point of the front has one of the lattice that is at most a lattice step worse in each objective.
    true = 0.55**3 - 1 / 48
    for divisions in (20, 40):
        front = DTLZ1().front(comb(divisions + 2, 2))
        assert len(front) == comb(divisions + 2, 2)
        assert (0.55 - 0.5 / divisions) ** 3 - 1 / 48 <= volume(front, np.full(3, 0.55)) <= true
    assert true == pytest.approx(0.145542, abs=5e-7)


@pytest.mark.parametrize(
    ("problem", "points", "reference", "expected", "tolerance"),
    [
        (DTLZ1, (comb(22, 2), comb(42, 2)), (0.55, 0.55, 0.55), 0.55**3 - 1 / 48, 1e-4),
        (DTLZ2, (comb(22, 2), comb(42, 2)), (1.1, 1.1, 1.1), 1.1**3 - pi / 6, 1e-3),
        (DTLZ4, (comb(22, 2), comb(42, 2)), (1.1, 1.1, 1.1), 1.1**3 - pi / 6, 1e-3),
        (DTLZ5, (501, 1001), (1.1, 1.1, 1.1), 0.44254, 1e-4),
    ],
)
def test_hypervolume_of_a_front_of_three_objectives(problem, points, reference, expected, tolerance):
    # What a front lacks halves with the distance of its points: the limit is as far above the finer one as that is above the coarser.
    coarse, fine = (volume(problem().front(number), np.array(reference)) for number in points)
    assert coarse < fine < expected + tolerance / 10
    assert 2 * fine - coarse == pytest.approx(expected, abs=tolerance)


def test_hypervolume_of_the_disconnected_front():
    # Above (f₁, f₂) the front is at 6 − H(f₁) − H(f₂), where H is the highest f (1 + sin 3πf) so far. A grid lacks at most
    # the rectangles between its neighbours under H, once for each of the two.
    f = np.linspace(0, 1, 100001)
    highest = DTLZ7_PIECES[-1][1] * (1 + sin(3 * pi * DTLZ7_PIECES[-1][1]))
    under = np.trapezoid(np.maximum.accumulate(f * (1 + np.sin(3 * pi * f))), f) + 0.1 * highest
    true = 1.1**2 * (6.6 - 6) + 2 * 1.1 * under
    assert true == pytest.approx(2.7019, abs=5e-5)
    for points in (10, 40):
        front = DTLZ7().front(points**2)
        axis = np.unique(front[:, 0])
        missing = 2 * 1.1 * np.diff(axis) @ np.diff(axis * (1 + np.sin(3 * pi * axis)))
        assert true - missing - 1e-8 <= volume(front, np.array([1.1, 1.1, 6.6])) <= true + 1e-8
    assert missing < 0.1


def test_dtlz7_pieces_end_at_peaks_and_begin_at_their_height():
    def height(x: float) -> float:
        return x * (1 + sin(3 * pi * x))

    (_, first_end), (second_begin, second_end) = DTLZ7_PIECES
    assert height(second_begin) == pytest.approx(height(first_end), abs=1e-14)
    for end in (first_end, second_end):
        assert 1 + sin(3 * pi * end) + 3 * pi * end * cos(3 * pi * end) == pytest.approx(0, abs=1e-12)


def test_dtlz7_front_is_all_that_a_fine_grid_leaves():
    grid = np.linspace(0, 1, 41)
    x = np.zeros((41**2, 22))
    x[:, :2] = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    best = x[~dominated(DTLZ7().evaluate(x))][:, :2]
    (begin, first_end), (second_begin, second_end) = DTLZ7_PIECES
    step = grid[1]
    near = ((best >= begin) & (best <= first_end + step)) | ((best >= second_begin - step) & (best <= second_end + step))
    assert near.all()
    assert len(np.unique(best > 0.5, axis=0)) == 4


@pytest.mark.parametrize("problem", CURVES)
def test_the_unknown_front_of_many_objectives_is_refused(problem):
    with pytest.raises(MisuseError, match=f"the true front of {problem.__name__} is known for 2 and 3 objectives, not for 4"):
        problem(objectives=4).front()


def test_a_curve_is_no_front_of_four_objectives():
    # Why the front is refused: a solution of g > 0 that no point of the curve dominates.
    angle = np.linspace(0, pi / 2, 1001)
    curve = np.stack([np.cos(angle) / 2, np.cos(angle) / 2, np.cos(angle) * sqrt(0.5), np.sin(angle)], axis=1)
    x = np.zeros((1, 13))
    x[0, 1] = 1.0
    found = DTLZ5(objectives=4).evaluate(x)
    assert not dominated(np.concatenate([curve, found]))[-1]


@pytest.mark.parametrize("problem", ALL)
def test_settings_out_of_range_are_refused(problem):
    with pytest.raises(MisuseError, match=f"{problem.__name__}: objectives must be a whole number of at least 2, not 1"):
        problem(objectives=1)
    with pytest.raises(MisuseError, match=f"{problem.__name__}: variables must be a whole number of at least 4, not 3"):
        problem(objectives=4, variables=3)
    with pytest.raises(MisuseError, match="points must be a whole number of at least 2, not 0"):
        problem().front(0)


def test_customary_sizes():
    assert [len(problem().bounds[0]) for problem in ALL] == [7, 12, 12, 12, 12, 12, 22]
    assert [len(problem(objectives=5).bounds[0]) for problem in ALL] == [9, 14, 14, 14, 14, 14, 24]
    assert [problem(objectives=5).objectives for problem in ALL] == [5] * 7
    assert all(set(problem().bounds[0]) == {0.0} and set(problem().bounds[1]) == {1.0} for problem in ALL)
