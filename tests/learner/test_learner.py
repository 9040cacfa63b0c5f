"""The learner: what it publishes, counts and says of updates by gradients."""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian.data.fragment import gradient_layout, layout
from lamarckian.data.pool import LocalPool, Meta, PoolStatistics
from lamarckian.learner.batches import Arrivals, Batch
from lamarckian.learner.learner import Learner
from lamarckian.mdp import Discrete, Role, Vector
from lamarckian.nets import Policy, build
from lamarckian.rl import A3C

ROLE = Role({"x": Vector(2)}, {"a": Discrete(3)})


class Actors:
    """A fleet of one, whose gradients the test submits."""

    actors = 1

    def __init__(self, parameters: int) -> None:
        self.published: dict[int, np.ndarray] = {}
        shape = gradient_layout(layout(ROLE, 4, 3), parameters)
        self._pool = LocalPool(shape, 2)
        self._batches = Arrivals(self._pool)

    def submit(self, version: int, gradient: float) -> None:
        slot, views = self._pool.claim(0.0)
        values = {"gradient": gradient, "version": version, "samples": 12, "reward": 0.0}
        for name, value in values.items():
            views[name][...] = value
        self._pool.submit(slot, Meta(version, version, 12, [], {"inference_s": 1.0, "learning_s": 3.0}, {"loss.policy": gradient}))

    def get(self) -> Batch | None:
        return self._batches.get(0.0)

    def recycle(self, batch: Batch) -> None:
        self._batches.recycle(batch)

    def publish(self, version: int, publication: np.ndarray) -> None:
        self.published[version] = publication.copy()

    def statistics(self) -> PoolStatistics:
        return self._batches.statistics()


def test_gradients_become_versions_and_a_line_of_metrics():
    algorithm = A3C(build(Policy, ROLE, 0, hidden=(4,)), ROLE, A3C.Settings(entropy_weight=0.5, final_entropy_weight=0.1))
    size = len(algorithm.parameters.gradient)
    actors = Actors(size)
    learner = Learner(algorithm, actors, 5)
    assert learner.update(0.0) is None
    first = algorithm.parameters.array().copy()
    for version, gradient in ((5, 1.0), (2, 3.0), (7, 2.0)):  # of ages 0, 4 and 0
        actors.submit(version, gradient)
        assert learner.update(0.5) == (12, [])
    assert list(actors.published) == [6, 7, 8] and learner.version == 8
    for publication in actors.published.values():
        assert (publication[:size] < first).all()
        np.testing.assert_allclose(publication[size:], [0.3, 1.0])
    np.testing.assert_array_equal(actors.published[8][:size], algorithm.parameters.array())
    line = learner.meter.take()
    assert (line["staleness"], line["staleness/max"]) == (pytest.approx(4 / 3), 4.0)
    assert line["loss/policy"] == 2.0
    assert (line["actor/inference"], line["actor/learning"]) == (0.25, 0.75)
    assert (line["pool/used"], line["pool/waiting"]) == (3, 0)
