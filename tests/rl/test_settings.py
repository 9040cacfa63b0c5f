"""Settings of all algorithms: what none of them takes."""

import math

import pytest
from pydantic import ValidationError

from lamarckian.rl import A3C, DQN, IMPALA, PG, PPO, Imitation


@pytest.mark.parametrize("algorithm", [A3C, DQN, IMPALA, PG, PPO, Imitation], ids=lambda algorithm: algorithm.__name__)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_are_finite(algorithm, value):
    numbers = [name for name, field in algorithm.Settings.model_fields.items() if "float" in str(field.annotation)]
    assert len(numbers) > 8
    for name in numbers:
        given = {"reward_weights": {"score": value}, "adam_betas": (0.9, value), "gamma": value}.get(name, value)
        with pytest.raises(ValidationError, match=rf"(?s){name}.*finite number"):
            algorithm.Settings(**{"data": "recordings"} if algorithm is Imitation else {}, **{name: given})
