"""One match at a time and many in one call: the same game; and saved matches go on as if nothing had been."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lamarckian.errors import CheckpointError
from lamarckian.games.pong import Pong
from lamarckian.mdp import BatchedMDP, BotAgent, Loop, Saves, spar
from lamarckian.seeding import agent_seed, match_seed

ROLES = ("left", "right")
SEED, SIZE, TICKS = 7, 5, 400


async def follow(controller, moves, log):
    """Plays a list of moves and writes down what came of them."""
    log.append(await controller.reset())
    for move in moves:
        step = await controller.step({"move": move})
        log.append(step)
        if step.terminated:
            return controller.result()


def run_match(match, coroutines):
    results = {}
    loop = Loop()
    for role, coroutine in coroutines.items():
        loop.spawn(coroutine, lambda result, role=role: results.update({role: result}))
    loop.spawn(match.run())
    loop.run()
    loop.close()
    return results


@pytest.mark.parametrize("settings", [{}, {"observation": "image", "image_size": 32, "image_frames": 3}])
def test_both_ways_play_the_same_matches(settings):
    game = Pong(rounds=3, rally_ticks=60, **settings)
    moves = np.random.default_rng(1).integers(0, 3, (TICKS, 2, SIZE))
    lanes = game.start_many(SIZE, SEED)
    starts = [0] * SIZE
    number = [0] * SIZE
    first = {role: copied(seen) for role, seen in lanes.reset().items()}
    logs = {(role, b): [first[role]] for role in ROLES for b in range(SIZE)}
    checked = 0
    for t in range(TICKS):
        steps = lanes.step({role: {"move": moves[t, seat]} for seat, role in enumerate(ROLES)})
        observed = {role: copied(steps[role].observations) for role in ROLES}
        for role in ROLES:
            for b in range(SIZE):
                logs[role, b].append((observed[role], steps[role].reward[b].tolist(), bool(steps[role].terminated[b])))
        assert not steps["left"].truncated.any()
        results = {role: dict(steps[role].results) for role in ROLES}
        assert list(results["left"]) == list(results["right"]) == steps["left"].terminated.nonzero()[0].tolist()
        for b in results["left"]:
            match = game.start(match_seed(SEED, b, number[b]))
            single = {role: [] for role in ROLES}
            ended = run_match(
                match,
                {
                    role: follow(match.controllers[role], moves[starts[b] : t + 1, seat, b].tolist(), single[role])
                    for seat, role in enumerate(ROLES)
                },
            )
            for role in ROLES:
                same_log(single[role], logs[role, b], b)
                assert ended[role] == results[role][b]
                logs[role, b] = [observed[role]]
            checked += 1
            number[b] += 1
            starts[b] = t + 1
    assert checked >= 3 * SIZE


def copied(observations):
    return {name: array.copy() for name, array in observations.inputs.items()}


def same_log(single, lane, b):
    assert len(single) == len(lane)
    for name, array in single[0].inputs.items():
        assert_array_equal(array, lane[0][name][b])
    for step, (observed, reward, ended) in zip(single[1:], lane[1:], strict=True):
        assert (list(step.reward), step.terminated, step.missed) == (reward, ended, 0)
        if not ended:  # then the lane already shows its next match
            for name, array in step.observation.inputs.items():
                assert_array_equal(array, observed[name][b])


@pytest.mark.parametrize(
    "make", [lambda: Pong.bots["tracker"](reaction_ticks=3, error_px=9.0), *(Pong.bots[n] for n in ("interceptor", "random"))]
)
def test_bots_act_the_same_both_ways(make):
    """Bots of lanes start anew at different times; each match is the one that a bot of its own plays."""
    game = Pong(rounds=2)
    lanes = game.start_many(SIZE, SEED)
    bots = {"left": make(), "right": Pong.bots["tracker"](error_px=4.0)}
    games = np.zeros(SIZE, int)
    for role, bot in bots.items():
        bot.start(np.arange(SIZE), [agent_seed(match_seed(SEED, b, 0), role) for b in range(SIZE)])
    seen, finished = lanes.reset(), {}
    while len(finished) < 3 * SIZE:
        steps = lanes.step({role: bots[role].act(seen[role]) for role in ROLES})
        for b, result in steps["left"].results:
            finished[b, int(games[b])] = result
            games[b] += 1
            for role, bot in bots.items():
                bot.start(np.array([b]), [agent_seed(match_seed(SEED, b, int(games[b])), role)])
        seen = {role: steps[role].observations for role in ROLES}

    agents = {"left": BotAgent(make()), "right": BotAgent(Pong.bots["tracker"](error_px=4.0))}
    for (b, k), result in finished.items():
        seed = match_seed(SEED, b, k)
        match = game.start(seed)
        for role, agent in agents.items():
            agent.start(agent_seed(seed, role))
        assert run_match(match, {role: spar(match.controllers[role], agents[role]) for role in ROLES})["left"] == result


@pytest.mark.parametrize("settings", [{}, {"observation": "image", "image_size": 32}])
def test_saved_matches_and_bots_go_on_exactly(settings):
    game = Pong(rounds=2, **settings)

    def make():
        return {"left": Pong.bots["random"](), "right": Pong.bots["tracker"](reaction_ticks=2, error_px=9.0)}

    def play(lanes, bots, seen, ticks):
        trace = []
        for _ in range(ticks):
            steps = lanes.step({role: bots[role].act(seen[role]) for role in ROLES})
            for role in ROLES:
                for b, _ in steps[role].results:
                    bots[role].start(np.array([b]), [b])
            trace.append({role: (copied(steps[role].observations), steps[role].reward.copy(), steps[role].results) for role in ROLES})
            seen = {role: steps[role].observations for role in ROLES}
        return trace

    lanes, bots = game.start_many(SIZE, SEED), make()
    for bot in bots.values():
        bot.start(np.arange(SIZE), list(range(SIZE)))
    play(lanes, bots, lanes.reset(), 150)
    state, memory = lanes.save(), {role: bot.save() for role, bot in bots.items()}
    expected = play(lanes, bots, lanes.load(state), 300)

    resumed, fresh = game.start_many(SIZE, SEED), make()
    assert isinstance(resumed, Saves)
    for role, bot in fresh.items():
        bot.load(memory[role])
    came = play(resumed, fresh, resumed.load(state), 300)
    assert any(step["left"][2] for step in expected)
    for one, other in zip(expected, came, strict=True):
        for role in ROLES:
            for name, array in one[role][0].items():
                assert_array_equal(array, other[role][0][name])
            assert_array_equal(one[role][1], other[role][1])
            assert one[role][2] == other[role][2]


def test_what_does_not_fit_is_not_loaded():
    lanes = Pong().start_many(3, SEED)
    lanes.reset()
    with pytest.raises(CheckpointError, match="'game' must have the shape"):
        Pong().start_many(4, SEED).load(lanes.save())
    with pytest.raises(CheckpointError, match="'vector' must have the shape"):
        lanes.load({name: array for name, array in lanes.save().items() if name != "vector"})
    with pytest.raises(CheckpointError, match="'image' must have the shape"):
        Pong(observation="image").start_many(3, SEED).load(lanes.save())
    bot = Pong.bots["tracker"]()
    bot.start(np.arange(2), [1, 2])
    with pytest.raises(CheckpointError, match="'seen' must have the shape"):
        Pong.bots["tracker"](reaction_ticks=4).load(bot.save())
    with pytest.raises(CheckpointError, match="'random' must have the shape"):
        Pong.bots["random"]().load({})


def test_reset_starts_over_and_seeds_differ():
    lanes, other = Pong().start_many(4, SEED), Pong().start_many(4, SEED + 1)
    lanes.reset(), other.reset()
    serves = lanes.save()["vy"]
    assert len(set(serves)) == 4 and not set(serves) & set(other.save()["vy"])
    for _ in range(30):
        lanes.step({role: {"move": np.zeros(4, np.int32)} for role in ROLES})
    lanes.reset()
    assert_array_equal(lanes.save()["vy"], serves)


def test_batchable():
    assert isinstance(Pong(), BatchedMDP)
    assert Pong().batchable and Pong(period={"left": 1}, latency=0).batchable
    assert not Pong(period=2).batchable and not Pong(latency={"right": 1}).batchable


def test_period_and_latency_are_per_role():
    match = Pong(rounds=1, rally_ticks=12, period={"left": 4}, latency={"right": 2}).start(3)
    logs = {role: [] for role in ROLES}
    run_match(match, {role: follow(match.controllers[role], [1] * 12, logs[role]) for role in ROLES})
    assert len(logs["left"]) == 1 + 3 and [step.missed for step in logs["left"][1:]] == [0, 0, 0]
    assert len(logs["right"]) == 1 + 12 and [step.missed for step in logs["right"][1:]] == [1, 1] + [0] * 10
