from __future__ import annotations

import re

import pytest
import yaml

from lamarckian.errors import MisuseError, RecipeError
from lamarckian.plugins import names
from lamarckian.recipe import EvolutionRecipe, Recipe, built_in, load, load_any, resolve_any, schema
from lamarckian.recipe.evolution import resolve

ZDT1 = {"problem": {"name": "zdt1"}, "algorithm": {"name": "nsga2"}}
SPHERE = {"problem": {"name": "sphere"}, "algorithm": {"name": "cmaes"}}


def refusal(document, **changes):
    with pytest.raises(MisuseError) as error:
        resolve({**document, **changes})
    return str(error.value)


def test_what_a_recipe_leaves_out_is_filled_in():
    recipe = resolve(ZDT1)
    assert recipe.problem.settings == {"variables": 30}
    assert recipe.algorithm.settings == {
        "population": 100,
        "offspring": None,
        "mating": "tournament",
        "tournament": 2,
        "operators": None,
        "truncation": "default",
    }
    assert (recipe.mode, recipe.workers.count, recipe.seed) == ("synchronous", 0, 0)
    assert (recipe.failures.timeout_s, recipe.failures.retries, recipe.failures.then) == (None, 0, "skip")
    assert resolve(yaml.safe_load(recipe.dump())) == recipe


@pytest.mark.parametrize("name", sorted(names("evolution")))
def test_every_algorithm_completes_and_reads_back(name):
    recipe = resolve({"problem": {"name": "sphere"}, "algorithm": {"name": name}})
    assert resolve(yaml.safe_load(recipe.dump())) == recipe


@pytest.mark.parametrize("name", sorted(set(names("problem")) - {"command", "folder"}))
def test_every_problem_completes_and_reads_back(name):
    recipe = resolve({"problem": {"name": name}, "algorithm": {"name": "nsga2"}})
    assert resolve(yaml.safe_load(recipe.dump())) == recipe


OPERATORS = {"x": {"crossover": {"name": "sbx", "eta": 30}, "mutation": {"name": "gaussian"}}}


def test_operators_are_given_by_part_and_completed():
    recipe = resolve({**ZDT1, "algorithm": {"name": "nsga2", "operators": OPERATORS}})
    part = recipe.algorithm.settings["operators"]["x"]
    assert part["crossover"]["name"] == "sbx" and part["crossover"]["eta"] == 30
    assert part["mutation"]["name"] == "gaussian" and len(part["mutation"]) > 1
    assert resolve(yaml.safe_load(recipe.dump())) == recipe
    only = resolve({**ZDT1, "algorithm": {"name": "nsga2", "operators": {"x": {"mutation": None}}}})
    assert only.algorithm.settings["operators"]["x"] == {"crossover": "default", "mutation": None}


@pytest.mark.parametrize(
    ("operators", "says"),
    [
        ({"x": {"crossover": {"name": "sbx", "eta": "much"}}}, 'algorithm.operators.x.crossover.eta: given "much"'),
        ({"x": {"crossover": {"name": "sbxx"}}}, "algorithm.operators.x.crossover"),
        ({"x": {"crossover": {"name": "sbx", "etta": 3}}}, "algorithm.operators.x.crossover.etta"),
        ({"x": {"mutation": {"name": "sbx"}}}, "algorithm.operators.x.mutation"),
        ({"x": {"crossing": {"name": "sbx"}}}, "algorithm.operators.x.crossing"),
        ({"x": 3}, "algorithm.operators.x: given 3"),
        ({"x": {"crossover": {"name": "sbx", "eta": -1}}}, "eta"),
    ],
)
def test_wrong_operators_are_refused_with_their_key_path(operators, says):
    assert says in refusal(ZDT1, algorithm={"name": "nsga2", "operators": operators})


def test_names_and_keys_that_are_unknown_are_refused_and_the_nearest_is_named():
    assert "algorithm.name: given 'nsga3'; nearest: nsga2" in refusal(ZDT1, algorithm={"name": "nsga3"})
    assert "problem.name: given 'zdt7'; nearest: zdt" in refusal(ZDT1, problem={"name": "zdt7"})
    assert "problem.variable: unknown key, given 3; nearest: problem.variables" in refusal(ZDT1, problem={"name": "zdt1", "variable": 3})
    assert "worker: unknown key" in refusal(ZDT1, worker={"count": 2})
    assert "nearest: stop.evaluations" in refusal(ZDT1, stop={"evaluation": 3})
    assert "failures.then: given \"ignore\"; allowed: 'skip', 'penalise' or 'stop'" in refusal(ZDT1, failures={"then": "ignore"})
    assert "algorithm: missing" in refusal({"problem": {"name": "zdt1"}})


def test_settings_out_of_range_are_refused():
    assert "population must be at least 2" in refusal(ZDT1, algorithm={"name": "nsga2", "population": 1})
    assert "variables must be a whole number of at least 2" in refusal(ZDT1, problem={"name": "zdt1", "variables": 1})
    assert "workers.count: given -1" in refusal(ZDT1, workers={"count": -1})
    assert "stop.evaluations: given 0" in refusal(ZDT1, stop={"evaluations": 0})
    assert "failures.timeout_s: given 0" in refusal(ZDT1, failures={"timeout_s": 0}, workers={"count": 1})
    assert "failures.retries: given -1" in refusal(ZDT1, failures={"retries": -1})


def test_settings_that_do_not_go_together_are_refused():
    assert "record.reference: given 3 numbers; the problem has 2 objectives" in refusal(ZDT1, record={"reference": [1, 1, 1]})
    assert "stop.hypervolume: needs record.reference" in refusal(ZDT1, stop={"hypervolume": 0.8})
    assert "stop.hypervolume: is for several objectives" in refusal(SPHERE, stop={"hypervolume": 0.8}, record={"reference": 1})
    assert "stop.target: is for one objective; the problem has 2" in refusal(ZDT1, stop={"target": 0.1})
    assert "failures.timeout_s: needs workers" in refusal(ZDT1, failures={"timeout_s": 1.0})
    for mode in ("asynchronous", "steady"):
        assert f"mode: given '{mode}'; cmaes learns from whole generations; allowed: synchronous" in refusal(SPHERE, mode=mode)
    resolve({**ZDT1, "record": {"reference": [1, 1.5]}, "stop": {"hypervolume": 1}, "mode": "steady"})
    resolve({**ZDT1, "workers": {"count": "auto"}, "failures": {"timeout_s": 1}})


def test_a_document_is_of_the_kind_that_its_keys_say(tmp_path):
    assert isinstance(resolve_any(ZDT1), EvolutionRecipe)
    assert isinstance(resolve_any({"game": {"name": "pong"}, "roles": {"left": {"agent": "learner"}, "right": {"agent": "self"}}}), Recipe)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(ZDT1))
    assert load(path, ["problem.variables=5", "seed=3"], EvolutionRecipe).problem.settings == {"variables": 5}
    with pytest.raises(RecipeError, match=r"mine\.yaml evolves a problem: use `lamarckian evolve`"):
        load(path)
    with pytest.raises(RecipeError, match="recipe pong/ppo trains a game: use `lamarckian train`"):
        load("pong/ppo", [], EvolutionRecipe)
    path.write_text(yaml.safe_dump({**ZDT1, "game": {"name": "pong"}}))
    with pytest.raises(RecipeError, match="problem: unknown key"):
        load_any(path)


def test_the_schema_holds_of_every_dumped_recipe_and_no_other():
    whole = schema()
    recipes = [load_any(name) for name in built_in()]
    recipes += [resolve({**ZDT1, "algorithm": {"name": "nsga2", "operators": OPERATORS}}), resolve(SPHERE)]
    for recipe in recipes:
        assert fault(yaml.safe_load(recipe.dump()), whole, whole) is None
    document = yaml.safe_load(resolve(ZDT1).dump())
    for wrong in (
        document | {"mode": "sometimes"},
        document | {"sead": 3},
        document | {"problem": {"name": "zdt1", "variables": "many"}},
        document | {"problem": {"name": "zdt1", "variable": 3}},
        document | {"algorithm": {"name": "nsga2", "operators": {"x": {"crossover": {"name": "polynomial"}}}}},
    ):
        assert fault(wrong, whole, whole) is not None


TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None), "array": list, "object": dict}


def fault(value, form, whole):
    """What in `value` does not agree with a JSON schema, as far as recipes' schemas go."""
    if "$ref" in form:
        return fault(value, whole["$defs"][form["$ref"].removeprefix("#/$defs/")], whole)
    if "oneOf" in form or "anyOf" in form:
        faults = [fault(value, choice, whole) for choice in form.get("oneOf") or form["anyOf"]]
        fits = faults.count(None)
        return None if fits == 1 or (fits and "anyOf" in form) else f"{value!r} fits {fits} forms: {faults}"
    if "const" in form and value != form["const"]:
        return f"{value!r} is not {form['const']!r}"
    if isinstance(value, str) and not re.search(form.get("pattern", ""), value):
        return f"{value!r} does not match {form['pattern']}"
    if "enum" in form and value not in form["enum"]:
        return f"{value!r} is none of {form['enum']}"
    if "type" in form and not (isinstance(value, TYPES[form["type"]]) and (form["type"] == "boolean" or not isinstance(value, bool))):
        return f"{value!r} is no {form['type']}"
    if isinstance(value, list) and "items" in form:
        return next((found for entry in value if (found := fault(entry, form["items"], whole))), None)
    if not isinstance(value, dict):
        return None
    missing = set(form.get("required", ())) - set(value)
    if missing:
        return f"{missing} missing in {value!r}"
    properties, rest = form.get("properties", {}), form.get("additionalProperties", True)
    for key, inner in value.items():
        if key not in properties and rest is False:
            return f"{key} is unknown"
        found = fault(inner, properties.get(key, rest if isinstance(rest, dict) else {}), whole)
        if found:
            return f"{key}: {found}"
    return None
