import sys
from pathlib import Path

import pytest
import yaml

from lamarckian import plugins
from lamarckian.errors import GameError, RecipeError
from lamarckian.plugins import Section, build, plugin, settings_model
from lamarckian.recipe import Recipe, build_bot, built_in, load, load_any, resolve, resolve_any, schema

TOYS = Path(__file__).parent


@pytest.fixture(autouse=True)
def beside_the_toys(monkeypatch):
    """Recipes name the toys as a user would: by a module in the current directory."""
    monkeypatch.chdir(TOYS)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry or ".").resolve() != TOYS])
    yield
    sys.modules.pop("toys", None)


def document(**changes):
    plain = {
        "game": {"name": "toys:Duel", "field": 16},
        "roles": {"left": {"agent": "learner"}, "right": {"agent": "careful", "skill": 0.5}},
        "network": {"name": "toys:Net"},
        "algorithm": {"name": "toys:Learning"},
    }
    for path, value in changes.items():
        *sections, key = path.split("__")
        inner = plain
        for section in sections:
            inner = inner.setdefault(section, {})
        if value is None:
            inner.pop(key, None)
        else:
            inner[key] = value
    return plain


def refusal(**changes):
    with pytest.raises(RecipeError) as error:
        resolve(document(**changes))
    return str(error.value)


def test_what_a_recipe_leaves_out_is_filled_in():
    recipe = resolve(document())
    assert recipe.game.settings == {
        "field": 16,
        "sides": "alike",
        "wind": {"speed": 1.0, "gusts": False},
        "weights": [1.0],
        "limit": "none",
    }
    assert recipe.network.settings == {"hidden": [64, 64]}
    assert recipe.algorithm.settings == {"learning_rate": 3e-4, "epochs": 2}
    assert recipe.roles["right"].settings == {"skill": 0.5}
    assert recipe.learners == ("left",)
    assert recipe.fragment_samples == 64 * 64


def test_a_resolved_recipe_reads_back_the_same():
    recipe = resolve(document(stop__score=0.9, actor__count=3, seed=5))
    assert resolve(yaml.safe_load(recipe.dump())) == recipe


def test_what_a_recipe_describes_is_built_with_its_types():
    recipe = resolve(document(game__weights=[1, 0.5], game__wind={"speed": 3}))
    game = build("game", recipe.game)
    assert game.settings["weights"] == (1.0, 0.5)
    assert game.settings["wind"].speed == 3.0
    network = build("network", recipe.network, game.roles["left"])
    assert network.role is game.roles["left"] and network.hidden == [64, 64]
    learning = build("algorithm", recipe.algorithm, network, game.roles["left"], device="cpu")
    assert type(learning.settings) is type(learning).Settings and learning.device == "cpu"
    assert build_bot(game, "right", recipe.roles["right"]).skill == 0.5


def test_a_game_for_one_needs_no_roles():
    recipe = resolve(document(game={"name": "toys:Solo"}, roles=None))
    assert recipe.learners == ("player",)


def test_several_roles_may_learn_together():
    recipe = resolve(document(roles__right={"agent": "learner"}, actor__matches=32))
    assert recipe.learners == ("left", "right")
    assert recipe.fragment_samples == 64 * 64


def test_an_agent_may_be_a_class_of_the_users_own():
    recipe = resolve(document(roles__right={"agent": "toys:Careful", "skill": 0.25}))
    assert build_bot(build("game", recipe.game), "right", recipe.roles["right"]).skill == 0.25


def test_network_and_algorithm_have_built_in_defaults():
    assert Recipe(game=Section(name="pong")).network.name == "policy"
    assert Recipe(game=Section(name="pong")).algorithm.name == "ppo"


def test_an_algorithm_gets_the_kind_of_network_that_it_learns():
    solo = {"game": {"name": "toys:Solo"}}
    assert resolve(solo).network.name == "policy"
    recipe = resolve({**solo, "algorithm": {"name": "dqn"}, "network": {"hidden": [8]}})
    assert (recipe.network.name, recipe.network.settings["hidden"], recipe.network.settings["dueling"]) == ("q", [8], True)


@pytest.mark.parametrize(("algorithm", "network", "wanted"), [("dqn", "policy", "q"), ("ppo", "q", "policy"), ("impala", "q", "policy")])
def test_a_network_of_another_kind_than_the_algorithm_learns_is_refused(algorithm, network, wanted):
    with pytest.raises(RecipeError, match=f"network.name: given '{network}'; the algorithm {algorithm} learns .* kind '{wanted}'; allowed"):
        resolve({"game": {"name": "toys:Solo"}, "algorithm": {"name": algorithm}, "network": {"name": network}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"learner__bach": 64},
            "learner.bach: unknown key, given 64; nearest: learner.batch; known here: batch, threads, slots, dtype, device",
        ),
        ({"batch": 64}, "batch: unknown key, given 64; nearest: learner.batch; known here: game, roles, "),
        ({"xyzzy": 64}, "xyzzy: unknown key, given 64; known here: game, roles, "),
        ({"game__feild": 8}, "game.feild: unknown key, given 8; nearest: game.field; known here: field, sides, wind, weights, limit"),
        ({"game__wind": {"sped": 2}}, "game.wind.sped: unknown key, given 2; nearest: game.wind.speed; known here: speed, gusts"),
        ({"algorithm__epoch": 8}, "algorithm.epoch: unknown key, given 8; nearest: algorithm.epochs; known here: learning_rate, epochs"),
        ({"network__role": "x"}, 'network.role: unknown key, given "x"; known here: hidden'),
        ({"roles__right__skil": 1}, "roles.right.skil: unknown key, given 1; nearest: roles.right.skill; known here: skill"),
        ({"roles__left__skill": 1}, "roles.left.skill: unknown key, given 1; known here: none"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(changes, message):
    assert message in refusal(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actor__matches": "many"}, 'actor.matches: given "many"; allowed: a valid integer'),
        ({"actor__matches": "64"}, 'actor.matches: given "64"; allowed: a valid integer'),
        ({"actor__matches": True}, "actor.matches: given true; allowed: a valid integer"),
        ({"actor__matches": 1.5}, "actor.matches: given 1.5; allowed: a valid integer"),
        ({"actor__count": 0}, "actor.count: given 0; allowed: greater than or equal to 1, or 'auto'"),
        ({"actor__count": "all"}, "actor.count: given \"all\"; allowed: a valid integer, or 'auto'"),
        ({"actor": 3}, "actor: given 3; allowed: a section of its own (key: value)"),
        ({"learner__dtype": "float16"}, "learner.dtype: given \"float16\"; allowed: 'auto', 'float32' or 'bfloat16'"),
        ({"stop__minutes": 0}, "stop.minutes: given 0; allowed: greater than 0"),
        ({"stop__minutes": float("inf")}, "stop.minutes: given Infinity; allowed: a finite number"),
        ({"seed": -1}, "seed: given -1; allowed: greater than or equal to 0"),
        ({"mode": "both"}, "mode: given \"both\"; allowed: 'parallel' or 'serial'"),
        ({"game": "pong"}, 'game: given "pong"; allowed: a section of its own (key: value)'),
        ({"game": None}, "game: missing"),
        ({"game": {"field": 8}}, "game.name: missing"),
        ({"game__field": None}, "game.field: missing"),
        ({"game__field": 65}, "game.field: given 65; allowed: less than or equal to 64"),
        ({"game__sides": "both"}, "game.sides: given \"both\"; allowed: 'alike' or 'unlike'"),
        ({"game__limit": 0}, "game.limit: given 0; allowed: greater than or equal to 1, or 'none'"),
        ({"game__weights": [1, "x"]}, 'game.weights.1: given "x"; allowed: a valid number'),
        ({"game__wind": {"speed": 0}}, "game.wind.speed: given 0; allowed: greater than 0"),
        ({"game__field": 13}, "game: Duel refuses its settings: 13 is bad luck"),
        ({"network__hidden": []}, "network.hidden: given []; allowed: List should have at least 1 item"),
        ({"algorithm__learning_rate": 0}, "algorithm.learning_rate: given 0; allowed: greater than 0"),
        ({"roles__right__skill": 2}, "roles.right.skill: given 2; allowed: less than or equal to 1"),
        ({"roles__right": {}}, "roles.right.agent: missing"),
        ({"roles__right": {"agent": "run"}}, "roles.right.path: missing"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(changes, message):
    assert message in refusal(**changes)


def test_all_faults_are_told_at_once():
    assert len(refusal(actor__matches=0, learner__bach=3, seed="x").splitlines()) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"game__name": "pnog"},
            "game.name: given 'pnog'; nearest: pong; known games: pong, gymnasium, atari, pettingzoo, or module:Class",
        ),
        (
            {"algorithm__name": "pp0"},
            "algorithm.name: given 'pp0'; nearest: ppo; known algorithms: ppo, impala, a3c, dqn, pg, imitation, or module:Class",
        ),
        ({"network__name": "mlp"}, "network.name: given 'mlp'; known networks: policy, q, or module:Class"),
        ({"game__name": "tyos:Duel"}, "game.name: there is no module 'tyos' to import 'tyos:Duel' from"),
        ({"game__name": "toys:Dual"}, "game.name: given 'Dual'; nearest: Duel; known classes in toys: "),
        ({"game__name": "./toys.py:Duel"}, "game.name: given './toys.py:Duel'; allowed: module:Class, such as mygame.rules:MyGame"),
        (
            {"game": {"name": "toys:Unreadable"}},
            "the settings of toys:Unreadable cannot be read from its constructor: name 'SomethingElsewhere'",
        ),
        (
            {"roles__right__agent": "carefull"},
            "given 'carefull'; nearest: careful; known agents: learner, self, league, run, careful, careless, or module:Class",
        ),
        ({"roles__rigth": {"agent": "self"}}, "roles.rigth: given 'rigth'; nearest: right; known roles: left, right"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(changes, message):
    assert message in refusal(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"roles": None},
            "roles: nobody plays left, right; give each role of the game an agent: learner, self, league, run, careful, careless",
        ),
        ({"roles__right": None}, "roles: nobody plays right;"),
        ({"roles__left": {"agent": "careless"}}, "roles: nobody learns; give one of left, right the agent 'learner'"),
        (
            {"game__sides": "unlike", "roles__right": {"agent": "self"}},
            "roles.right.agent: 'self' cannot play here: 'right' has other spaces than 'left'",
        ),
        ({"roles__right": {"agent": "run", "path": "nowhere"}}, "roles.right.path: there is no run at nowhere"),
        ({"learner__batch": 5000}, "= 4096 samples, and a batch is whole fragments; allowed: multiples of 4096, such as 4096 or 8192"),
        ({"learner__batch": 64}, "allowed: multiples of 4096, such as 4096"),
        ({"algorithm": {"name": "a3c"}}, "learner.batch: given 8192; a3c updates by the gradient of one fragment, which has"),
        ({"mode": "serial", "actor__count": 2}, "actor.count: given 2; in serial mode there is one actor: allowed: auto, 1"),
        (
            {"actor__way": "batched"},
            "actor.way: 'batched' cannot be used: the game does not step many matches in one call; allowed here: auto, coroutines",
        ),
        ({"game__name": "toys:FastDuel", "actor__way": "batched", "actor__frame_skip": 4}, "cannot be used: actor.frame_skip is above 1;"),
        (
            {"game__name": "toys:FastDuel", "actor__way": "batched", "roles__right": {"agent": "toys:Careful"}},
            "cannot be used: roles.right.agent is not a bot of the game;",
        ),
    ],
)
def test_an_impossible_combination_is_refused(changes, message):
    assert message in refusal(**changes)


def test_the_batched_way_may_be_asked_for_where_it_is_possible():
    assert resolve(document(game__name="toys:FastDuel", actor__way="batched")).actor.way == "batched"


def write(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


MINE = yaml.safe_dump(document())


def test_overrides_are_yaml_and_change_one_key_each(tmp_path):
    overrides = [
        "game.wind.speed=2.5",
        "network.hidden=[8, 8]",
        "algorithm.learning_rate=1e-4",
        "stop.steps=1e6",
        "stop.score=0.9",
        "roles.right={agent: careless}",
        "game.name=toys:FastDuel",
        "seed=9",
    ]
    recipe = load(write(tmp_path, MINE), overrides)
    assert recipe.game.name == "toys:FastDuel"
    assert recipe.game.settings["wind"] == {"speed": 2.5, "gusts": False}
    assert recipe.network.settings["hidden"] == [8, 8]
    assert recipe.algorithm.settings["learning_rate"] == 1e-4
    assert (recipe.stop.steps, recipe.stop.score, recipe.seed) == (1_000_000, 0.9, 9)
    assert recipe.roles["right"].agent == "careless"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learner.bach=3", "learner.bach: unknown key, given 3; nearest: learner.batch"),
        ("lerner.batch=3", 'lerner: unknown key, given {"batch": 3}; nearest: learner'),
        ("learner.batch", "cannot use 'learner.batch'; an override reads key.path=value"),
        ("=3", "cannot use '=3'"),
        ("learner..batch=3", "cannot use 'learner..batch=3'"),
        ("seed.of.all=3", None),
        ("network.name.first=3", "network.name.first: network.name has no keys in it, it is 'toys:Net'"),
        ("network.hidden=[8", "not YAML: while parsing a flow sequence"),
    ],
)
def test_an_override_that_does_not_fit_is_refused(tmp_path, override, message):
    with pytest.raises(RecipeError) as error:
        load(write(tmp_path, MINE), [override])
    assert str(error.value).startswith(f"recipe {tmp_path / 'mine.yaml'}: ")
    assert message is None or message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("game: [", "not YAML: while parsing"),
        ("", "a recipe has keys at its top: game, roles, "),
        ("- game", "a recipe has keys at its top: game, roles, "),
        ("seed: 1\nseed: 2", "line 1: key 'seed' comes twice"),
        ("game: {name: pong}\n1: 2", "line 1: a key must be a text, not 1; put it in quotes"),
        ("game: {? [a, b] : 1}", "a key must be a text"),
        ("game: !!python/object:os.system {}", "not YAML: could not determine a constructor"),
        ("\x00", "not YAML"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path, text, message):
    with pytest.raises(RecipeError) as error:
        load(write(tmp_path, text))
    assert message in str(error.value)


def test_a_recipe_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"there is no recipe 'pong/pppo'; nearest: pong/ppo; built in: .*cartpole/ppo"):
        load("pong/pppo")
    with pytest.raises(RecipeError, match=r"cannot read recipe .*nothing\.yaml: .*No such file"):
        load(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="cannot read recipe"):
        load(tmp_path / "binary.yaml")


@pytest.mark.parametrize(("module", "extra"), [("ale_py", "atari"), ("pettingzoo", "pettingzoo")])
@pytest.mark.parametrize("late", [False, True])
def test_a_missing_extra_is_named_with_how_to_install_it(tmp_path, monkeypatch, module, extra, late):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    where = "    def __init__(self):\n        import" if late else "    import"
    (tmp_path / "needy.py").write_text(f"class Game:\n{where} {module}\n")
    try:
        with pytest.raises(GameError, match=rf"needs {module}, which is not installed: pip install 'lamarckian\[{extra}\]'"):
            build("game", Section(name="needy:Game"))
    finally:
        sys.modules.pop("needy", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import not_there_at_all", "broken:Game cannot be imported: No module named 'not_there_at_all'"),
        ("1 / 0", r"broken:Game fails when it is imported: ZeroDivisionError: division by zero \(.*broken\.py, line 1\)"),
        ("class Game(:", "broken:Game fails when it is imported: SyntaxError"),
        ("Game = 3", "given 'Game'; known classes in broken: none"),
    ],
)
def test_a_plug_in_that_cannot_be_imported_is_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(text)
    try:
        with pytest.raises(RecipeError, match=message):
            plugin("game", "broken:Game")
    finally:
        sys.modules.pop("broken", None)


def test_an_installed_package_may_bring_a_game(monkeypatch):
    class Point:
        name, value = "duel", "toys:Duel"

    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: [Point] if group == "lamarckian.games" else [])
    assert resolve(document(game__name="duel")).game.name == "duel"
    with pytest.raises(RecipeError, match="nearest: duel"):
        plugin("game", "dual")


def test_settings_may_be_a_model_of_the_class_and_still_forbid_unknown_keys():
    learning = plugin("algorithm", "toys:Learning")
    assert settings_model(learning).model_config["extra"] == "forbid"
    assert issubclass(settings_model(learning), learning.Settings)


def test_every_built_in_recipe_has_a_header():
    assert {"cartpole/ppo", "pendulum/ppo", "pong/ppo", "pong/ppo-image", "atari-pong/ppo", "gymnasium/ppo"} <= set(built_in())
    assert all(built_in().values())


@pytest.mark.parametrize("name", sorted(built_in()))
def test_every_built_in_recipe_resolves(name):
    recipe = load_any(name)
    assert resolve_any(yaml.safe_load(recipe.dump())) == recipe


def test_the_schema_covers_plug_ins_by_name():
    training, _ = schema()["oneOf"]
    game = training["properties"]["game"]["oneOf"]
    [pong] = [choice for choice in game if choice["title"] == "pong"]
    assert pong["properties"]["name"] == {"const": "pong"}
    assert pong["properties"]["rounds"]["minimum"] == 1
    assert pong["additionalProperties"] is False
    assert game[-1]["title"] == "module:Class"
    assert schema()["$defs"]["Learner"]["properties"]["batch"]["description"].startswith("Samples per update")
