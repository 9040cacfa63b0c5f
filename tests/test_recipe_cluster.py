"""The section `cluster` of a recipe: what is left out, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from lamarckian.errors import RecipeError
from lamarckian.recipe import load
from lamarckian.transport.keys import Keys


def refusal(*overrides: str, recipe: str = "cartpole/ppo") -> str:
    with pytest.raises(RecipeError) as error:
        load(recipe, overrides)
    return str(error.value)


def test_one_machine_does_all_unless_the_recipe_says_otherwise():
    assert load("cartpole/ppo", []).cluster is None


def test_an_address_is_all_that_it_takes():
    section = load("cartpole/ppo", ["cluster.address=auto"]).cluster
    assert section is not None
    assert (section.address, section.broadcast, section.learners, section.pool.sampling) == ("auto", "pipeline", 1, "fifo")
    assert (section.pool.size, section.hold, section.keys) == ("auto", "auto", None)


@pytest.mark.parametrize("address", ["10.0.0.1:6379", "head.example.org:6379", "local", "auto"])
def test_addresses(address):
    assert load("cartpole/ppo", [f"cluster.address={address}"]).cluster.address == address


@pytest.mark.parametrize("address", ["10.0.0.1", "ray://head:10001", "everywhere"])
def test_what_is_no_address_is_refused(address):
    assert "cluster.address" in (said := refusal(f"cluster.address={address}")) and "HOST:PORT" in said


def test_a_number_of_machines_is_for_one_that_passes_for_several():
    assert load("cartpole/ppo", ["cluster.address=local", "cluster.machines=3"]).cluster.machines == 3
    assert "machines: given 3; with address: auto" in refusal("cluster.machines=3")


def test_serial_mode_has_no_cluster():
    assert "in serial mode one process does all" in refusal("cluster.address=auto", "mode=serial")


def test_recorded_matches_are_learned_from_on_one_machine():
    assert "imitation learns from recorded matches" in refusal("cluster.address=auto", recipe="pong/imitation")


def test_gradients_of_actors_have_one_learner():
    assert load("cartpole/a3c", ["cluster.address=auto"]).cluster is not None
    assert "cluster.learners: given 2; a3c learns alone" in refusal("cluster.learners=2", recipe="cartpole/a3c")
    assert "cluster.learners: given 2; pg learns from whole episodes" in refusal("cluster.learners=2", recipe="cartpole/pg")


def test_a_batch_is_shared_by_learners_in_whole_fragments():
    shape = ["actor.matches=8", "actor.fragment=16"]
    assert load("cartpole/ppo", [*shape, "learner.batch=256", "cluster.learners=2"]).cluster.learners == 2
    assert "allowed: multiples of 256" in refusal(*shape, "learner.batch=384", "cluster.learners=2")


def test_the_file_of_keys_must_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "lamarckian keys cluster.key" in refusal("cluster.keys=cluster.key")
    Keys.create(tmp_path / "cluster.key")
    assert load("cartpole/ppo", ["cluster.keys=cluster.key"]).cluster.keys == str(tmp_path / "cluster.key")


@pytest.mark.parametrize("setting", ["pool.size=12", "hold=much", "pool.sampling=best", "port=70000", "learners=0", "nodes=3"])
def test_what_is_out_of_range_is_named(setting):
    assert f"cluster.{setting.partition('=')[0]}" in refusal(f"cluster.{setting}")
