"""The section `rewards` of a recipe of a training."""

from __future__ import annotations

import pytest
import yaml

from lamarckian.errors import RecipeError
from lamarckian.recipe import load, resolve

CHOSEN = {"game": {"name": "tests.evaluate.games:Chosen"}}


def refusal(**sections):
    with pytest.raises(RecipeError) as error:
        resolve(CHOSEN | sections)
    return str(error.value)


def test_weights_are_completed_in_the_order_of_the_rewards_and_read_back():
    recipe = resolve(CHOSEN | {"rewards": {"weights": {"careful": 2}}})
    assert list(recipe.rewards.weights.items()) == [("brave", 1.0), ("careful", 2.0)]
    assert recipe.rewards.zero_sum is False
    assert resolve(yaml.safe_load(recipe.dump())) == recipe
    assert load("cartpole/ppo", ["rewards.weights.score=0.5"]).rewards.weights == {"score": 0.5}


def test_an_unknown_reward_is_refused_with_the_nearest():
    says = "rewards.weights.brav: given 'brav'; nearest: brave; known rewards: brave, careful"
    assert says in refusal(rewards={"weights": {"brav": 1.0}})


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 1e10, "2", True, None])
def test_a_weight_is_a_finite_number(weight):
    assert "rewards.weights.brave: given" in refusal(rewards={"weights": {"brave": weight}})


def test_there_is_one_place_for_weights():
    assert "rewards.weights" in refusal(algorithm={"reward_weights": {"brave": 2.0}})
    recipe = resolve(CHOSEN | {"algorithm": {"reward_weights": {}}})  # as recipes of runs had it
    assert "reward_weights" not in recipe.algorithm.settings


def test_zero_sum_takes_two_roles():
    assert "rewards.zero_sum: given true; the game has one role, p0" in refusal(rewards={"zero_sum": True})
    roles = {"p0": {"agent": "learner"}, "p1": {"agent": "self"}}
    game = {"name": "tests.evaluate.games:Chosen", "players": 2}
    assert resolve({"game": game, "roles": roles, "rewards": {"zero_sum": True}}).rewards.zero_sum


def test_an_algorithm_that_cannot_weigh_takes_no_weights_but_1():
    algorithm = {"name": "tests.toys:Learning"}
    assert "no method `set_reward_weights`" in refusal(algorithm=algorithm, rewards={"weights": {"brave": 2.0}})
    assert resolve(CHOSEN | {"algorithm": algorithm, "rewards": {"weights": {"brave": 1.0}}}).rewards.weights["brave"] == 1.0
