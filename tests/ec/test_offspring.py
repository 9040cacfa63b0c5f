"""From proposals and evaluations to offspring."""

import numpy as np
import pytest

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.offspring import gather, join_proposals
from lamarckian.ec.population import EVALUATED, FAILED, Evaluation, Fault
from lamarckian.ec.workers import one_row


def proposals(*ids, **arrays):
    column = np.array(ids)
    return Proposals(column, np.stack([column + 100, column + 200], axis=1), arrays or {"seed": column * 2})


def arrival(ids, raw, violation=None, faults=()):
    raw = np.array(raw, np.float64)
    broken = np.zeros(len(ids)) if violation is None else np.array(violation, np.float64)
    genes = {"x": np.array(ids, np.float64)[:, None]}
    return proposals(*ids), genes, Evaluation(raw, broken, {row: Fault("raised", "") for row in faults})


@pytest.mark.parametrize("minimise", [True, False])
def test_offspring_by_hand(minimise):
    arrived = [arrival([3, 1], [[1.0, 2.0], [3.0, 4.0]], [0.0, 0.5]), arrival([2], [[5.0, 6.0]], [7.0], faults=[0])]
    offspring = gather(arrived, 2, minimise)
    assert offspring.ids.tolist() == [3, 1, 2] and offspring.parents.tolist() == [[103, 203], [101, 201], [102, 202]]
    assert offspring.genes["x"].ravel().tolist() == [3, 1, 2] and offspring.age.tolist() == [0, 0, 0]
    assert offspring.state.tolist() == [EVALUATED, EVALUATED, FAILED]
    assert offspring.raw[:2].tolist() == [[1, 2], [3, 4]]
    assert np.array_equal(offspring.fitness[:2], -offspring.raw[:2] if minimise else offspring.raw[:2])
    assert np.isnan(offspring.raw[2]).all() and np.isnan(offspring.fitness[2]).all() and offspring.violation.tolist() == [0, 0.5, 0]


def test_whoever_failed_before_the_number_of_objectives_was_known_is_as_wide_as_the_others():
    arrived = [arrival([0], np.empty((1, 0)), faults=[0]), arrival([1], [[1.0, 2.0, 3.0]])]
    offspring = gather(arrived, 3, True)
    assert offspring.fitness.shape == (2, 3) and np.isnan(offspring.fitness[0]).all() and offspring.state.tolist() == [FAILED, EVALUATED]
    assert gather(arrived[:1], 0, True).fitness.shape == (1, 0)


def test_proposals_join_by_kind_and_come_apart_again():
    fresh, children = [proposals(0), proposals(4)], [proposals(2, a=np.array([1.0])), proposals(3, a=np.array([2.0]))]
    joined = join_proposals([fresh[0], *children, fresh[1]])
    assert [group.ids.tolist() for group in joined] == [[0, 4], [2, 3]] and joined[1].arrays["a"].tolist() == [1.0, 2.0]
    apart = [row for group in joined for row in one_row(group)]
    assert [(row.ids.tolist(), row.parents.tolist(), list(row.arrays)) for row in apart] == [
        ([id], [[id + 100, id + 200]], ["seed" if id in (0, 4) else "a"]) for id in (0, 4, 2, 3)
    ]
    assert join_proposals([]) == []


def test_proposals_of_other_versions_keep_what_they_share():
    old, new = proposals(1), proposals(2)
    old.shared, new.shared, new.version = {"centre": np.zeros(2)}, {"centre": np.ones(2)}, 1
    joined = join_proposals([old, new])
    assert [(group.version, group.shared["centre"][0]) for group in joined] == [(0, 0.0), (1, 1.0)]
    assert one_row(joined[1])[0].shared is new.shared
