"""New versions take the place of old ones, in a session and in memory."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from lamarckian.actor.inference import Inference
from lamarckian.errors import CheckpointError
from lamarckian.mdp import Discrete, Role, Vector
from tests.actor.policies import linear

ROLE = Role({"x": Vector(500)}, {"a": Discrete(999)})


def test_a_new_version_answers_as_its_own_model_would():
    model, _ = linear(ROLE, seed=0)
    other, parameters = linear(ROLE, seed=1)
    inputs = {"x": np.random.default_rng(0).normal(size=(7, 500)).astype(np.float32)}
    inference = Inference(model)
    inference.load(parameters)
    for name, array in Inference(other)(inputs).items():
        np.testing.assert_array_equal(inference(inputs)[name], array)


def test_old_versions_do_not_stay_in_memory():
    model, parameters = linear(ROLE)
    inference = Inference(model)
    process = psutil.Process()
    for _ in range(20):
        inference.load(parameters)
    before = process.memory_info().rss
    for _ in range(200):
        inference.load(parameters)
    grown = process.memory_info().rss - before
    assert grown < 20 * parameters.nbytes, f"{grown / 200:.0f} bytes a version of {parameters.nbytes}"


def test_a_graph_without_a_parameter_is_refused():
    model, _ = linear(ROLE)
    model.offsets["elsewhere"] = 0
    with pytest.raises(CheckpointError, match="elsewhere"):
        Inference(model)
