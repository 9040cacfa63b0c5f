"""An executable contract for people who bring a game."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lamarckian.errors import ContractError
from lamarckian.mdp.conform import check_observation, check_result, check_step, check_steps, draw
from lamarckian.mdp.interface import MDP, Action, Controller, Match, Observation, Result, Step
from lamarckian.mdp.loop import Loop, Task, tick
from lamarckian.mdp.spaces import Role
from lamarckian.seeding import generator, match_seed

LATE_TICKS = 50
LANES = 3
FROM_SEED = (
    "Draw from a generator made of the seed that `start` is given, not from a global one, the clock, or the order of a set; and let "
    "nothing be left over from the match before."
)
OF_ITS_OWN = "Keep what changes in the match, not in the class, the module or the MDP."


def check_mdp(mdp: MDP, seed: int = 0, steps: int = 100) -> None:
    """Plays `mdp` with random legal actions, at most `steps` of them a role and match, and holds it to its contract.

    Checks that it has roles; that matches keep to the spaces, pay and end as they should, depend on the seed alone, leave
    arrays alone that they handed out, can be closed at any time, and do not disturb each other; that the game can be
    pickled; that a role that is late delays nobody or, in a match with `waits = True`, that one that leaves does not; and
    that the batched way, where there is one and the game does not say `exact = False`, plays the same matches.

    Raises ContractError at the first fault, with a message that names the likely mistake. What the game itself raises
    goes through.
    """
    if not isinstance(mdp.roles, Mapping) or not mdp.roles or not all(isinstance(role, Role) for role in mdp.roles.values()):
        raise ContractError(f"`roles` must map the name of each role to a Role, and have at least one; it is {mdp.roles!r}")
    (first,) = _play(mdp, [seed], steps)
    first.check_unchanged()
    _same(first, _play(mdp, [seed], steps)[0], f"two matches with seed {seed} and the same actions differ", FROM_SEED)
    _same(first, _play(mdp, [seed, seed + 1], steps)[0], "a match goes otherwise when another runs beside it", OF_ITS_OWN)
    _play(mdp, [seed], max(1, steps // 4))
    _same(first, _play(mdp, [seed], steps)[0], "a match goes otherwise after another was closed half-way", OF_ITS_OWN)
    _same(first, _play(_pickled(mdp), [seed], steps)[0], "the pickled game plays otherwise", "Is all that it needs pickled with it?")
    for absent in mdp.roles if len(mdp.roles) > 1 else ():
        _check_absent(mdp, seed, steps, absent)
    if hasattr(mdp, "start_many") and getattr(mdp, "batchable", True):
        _check_batched(mdp, seed, steps)


class Turn(NamedTuple):
    """What a role saw, and what came of the action it took there; `step` is None where it took none."""

    observation: Observation
    step: Step | None = None


class Witness:
    """Sits at the seats of a match with random legal actions, checks what it is given, and writes it down."""

    def __init__(self, roles: Mapping[str, Role], steps: int, random: Mapping[str, np.random.Generator]) -> None:
        self.turns: dict[str, list[Turn]] = {name: [] for name in roles}
        self.results: dict[str, Result] = {}
        self._roles = roles
        self._steps = steps
        self._random = random
        self._handed: list[tuple[str, np.ndarray, np.ndarray]] = []

    async def sit(self, name: str, controller: Controller) -> None:
        """Plays a role until the match is over for it or its steps are taken."""
        observation = self._seen(name, await controller.reset())
        for _ in range(self._steps):
            action = self.decide(name, observation)
            step = await controller.step(action)
            check_step(self._roles[name], step, f"role '{name}'")
            step = step._replace(observation=self._seen(name, step.observation, bool(step.terminated or step.truncated)))
            self.turns[name].append(Turn(observation, step))
            if step.terminated or step.truncated:
                await self._check_end(name, controller, action)
                return
            observation = step.observation
        self.turns[name].append(Turn(observation))
        controller.leave()

    def decide(self, name: str, observation: Observation) -> Action:
        """A random legal action."""
        return draw(self._roles[name], observation.legal, self._random[name])

    def check_unchanged(self) -> None:
        """Whether arrays are still what they were when they were handed out."""
        for what, array, copy in self._handed:
            if not np.array_equal(array, copy):
                raise ContractError(f"{what} changed after it was handed out: did you return the same buffer each time? Return a copy.")

    def _seen(self, name: str, observation: Observation, last: bool = False) -> Observation:
        """A copy of an observation, once it is found to be in order."""
        check_observation(self._roles[name], observation, f"role '{name}'", last)
        copies = []
        for kind, arrays in (("input", observation.inputs), ("mask", observation.legal)):
            copies.append({key: array.copy() for key, array in arrays.items()})
            self._handed += [(f"{kind} '{key}' of role '{name}'", arrays[key], copy) for key, copy in copies[-1].items()]
        return Observation(copies[0], copies[1], observation.learn)

    async def _check_end(self, name: str, controller: Controller, action: Action) -> None:
        self.results[name] = controller.result()
        check_result(self.results[name], f"role '{name}'")
        try:
            again = await controller.step(action)
        except Exception:
            return  # to refuse is fine
        if not (again.terminated or again.truncated):
            raise ContractError(f"role '{name}' was told that its match is over, and yet its next step went on")
        if any(again.reward):
            raise ContractError(f"role '{name}' got a reward of {again.reward} after its match was over: is the last one paid twice?")
        if controller.result() != self.results[name]:
            raise ContractError(f"the result of role '{name}' changed after its match was over")


def _play(mdp: MDP, seeds: Sequence[int], steps: int) -> list[Witness]:
    """Plays a match of each seed, all of them at once."""
    witnesses = [Witness(mdp.roles, steps, {name: generator(seed, "check", name) for name in mdp.roles}) for seed in seeds]
    _run([(_start(mdp, seed), witness) for seed, witness in zip(seeds, witnesses, strict=True)], steps)
    return witnesses


def _start(mdp: MDP, seed: int) -> Match:
    match = mdp.start(seed)
    for name, role in mdp.roles.items():
        if name not in match.controllers or match.controllers[name].role != role:
            raise ContractError(f"a match must have a controller with the `role` of '{name}'; it has controllers {list(match.controllers)}")
    return match


def _run(tables: Iterable[tuple[Match, Witness]], steps: int) -> None:
    tables = list(tables)
    loop = Loop()
    try:
        clocks = [loop.spawn(match.run()) for match, _ in tables]
        seats = [{name: loop.spawn(witness.sit(name, match.controllers[name])) for name in witness.turns} for match, witness in tables]
        _drive(loop, [task for tasks in seats for task in tasks.values()], steps)
        for clock, tasks, (_, witness) in zip(clocks, seats, tables, strict=True):
            _check_told(clock, tasks)
            if len(witness.results) == len(tasks):
                _drive(loop, [clock], steps)
                if not clock.done:
                    raise ContractError("every role was told that the match is over, but its `run` does not return")
    finally:
        loop.close()
    for match, _ in tables:
        _close(match)


def _drive(loop: Loop, tasks: Sequence[Task], steps: int) -> None:
    for _ in range(1000 + 100 * steps):
        if all(task.done for task in tasks) or not loop.turn():
            return


def _check_told(clock: Task, seats: Mapping[str, Task]) -> None:
    for name, task in seats.items():
        if not task.done:
            raise ContractError(
                f"`run` has returned, but role '{name}' still waits: every role must be told that its match is over"
                if clock.done
                else f"role '{name}' waits for ever: it is neither asked for an action nor told that its match is over"
            )


def _close(match: Match) -> None:
    for call in ("", " a second time"):
        try:
            match.close()
        except Exception as error:
            raise ContractError(f"`close` failed when called{call}: {error!r}. It may be called at any time, and again") from error


def _pickled(mdp: MDP) -> MDP:
    try:
        return pickle.loads(pickle.dumps(mdp))
    except Exception as error:
        raise ContractError(
            f"the game cannot be pickled, which actors in other processes need: {error!r}. Keep lambdas, open files and running "
            "environments out of the MDP; make them in `start`"
        ) from error


def _check_absent(mdp: MDP, seed: int, steps: int, absent: str) -> None:
    """Plays a match in which one role does not answer for a while, or leaves."""
    match = _start(mdp, seed)
    waits = getattr(match, "waits", False)
    witness = Witness(mdp.roles, steps, {name: generator(seed, "check", name) for name in mdp.roles})
    others = [name for name in mdp.roles if name != absent]

    async def dawdle(controller: Controller) -> None:
        observation = await controller.reset()
        if waits:
            return controller.leave()
        before = {name: len(witness.turns[name]) for name in others}
        for _ in range(LATE_TICKS):
            await tick()
        for name in others:
            if name not in witness.results and len(witness.turns[name]) == before[name]:
                raise ContractError(
                    f"role '{absent}' did not answer for {LATE_TICKS} ticks, and role '{name}' got no step meanwhile. Give the late role "
                    "the default action, as AsynchronousMatch does; or, if the match is meant to wait for every role, say `waits = True`"
                )
        step = await controller.step(witness.decide(absent, observation))
        if step.missed == 0:
            raise ContractError(f"role '{absent}' did not answer for {LATE_TICKS} ticks, but its step says `missed` 0: count those ticks")

    loop = Loop()
    try:
        loop.spawn(match.run())
        late = loop.spawn(dawdle(match.controllers[absent]))
        seats = {name: loop.spawn(witness.sit(name, match.controllers[name])) for name in others}
        _drive(loop, [late, *seats.values()], steps)
        for name, task in seats.items():
            if not task.done:
                raise ContractError(f"role '{absent}' left, and role '{name}' waits for ever: a match must go on without roles that leave")
    finally:
        loop.close()
    _close(match)


def _check_batched(mdp: Any, seed: int, steps: int) -> None:
    """Plays matches in step and, where the game is exact, each of them again by coroutines."""
    random = {name: [generator(seed, "check", b, name) for b in range(LANES)] for name in mdp.roles}
    lanes = [_lane(mdp, seed, b, steps) for b in range(LANES)] if getattr(mdp, "exact", True) else []
    games = mdp.start_many(LANES, seed)
    now = games.reset()
    for name, role in mdp.roles.items():
        check_observation(role, now[name], f"batched role '{name}'", lead=(LANES,))
    for t in range(steps):
        actions = {}
        for name, role in mdp.roles.items():
            drawn = [draw(role, {head: mask[b] for head, mask in now[name].legal.items()}, random[name][b]) for b in range(LANES)]
            actions[name] = {head: np.array([action[head] for action in drawn]) for head in role.heads}
        before = {name: _rows(now[name]) for name in mdp.roles}
        outcome = games.step(actions)
        for name, role in mdp.roles.items():
            check_steps(role, outcome[name], LANES, f"batched role '{name}'")
            after = _outcomes(outcome[name])
            for b, lane in enumerate(lanes):
                batched = [Turn(before[name][b], after[b][0])]
                place = f"the batched way differs from the coroutines in match {b}"
                _same_turns(
                    name, lane[name][0][t : t + 1], batched, place, "Does match b's k-th game start from match_seed(seed, b, k)?", t
                )
                if lane[name][1][t] != after[b][1]:
                    raise ContractError(f"{place}, role '{name}', step {t}: results {lane[name][1][t]} and {after[b][1]}")
        now = {name: outcome[name].observations for name in mdp.roles}
    _close(games)


def _lane(mdp: MDP, seed: int, b: int, steps: int) -> dict[str, tuple[list[Turn], list[Result | None]]]:
    """What the batched way must show of match b: each role's turns, game after game, and its results where one ended."""
    random = {name: generator(seed, "check", b, name) for name in mdp.roles}
    lane: dict[str, tuple[list[Turn], list[Result | None]]] = {name: ([], []) for name in mdp.roles}
    k = 0
    while any(len(turns) < steps for turns, _ in lane.values()):
        witness = Witness(mdp.roles, steps - min(len(turns) for turns, _ in lane.values()), random)
        _run([(_start(mdp, match_seed(seed, b, k)), witness)], steps)
        for name, (turns, results) in lane.items():
            played = [turn for turn in witness.turns[name] if turn.step is not None]
            turns += played
            results += [None] * (len(played) - 1) + [witness.results.get(name)]
        k += 1
    return lane


def _rows(observations: Any) -> list[Observation]:
    """One observation for each match of a batch, copied."""
    count = len(next(iter(observations.inputs.values())))
    learn = np.ones(count, np.bool_) if observations.learn is None else observations.learn
    pick = lambda arrays, b: {key: array[b].copy() for key, array in arrays.items()}  # noqa: E731
    return [Observation(pick(observations.inputs, b), pick(observations.legal, b), bool(learn[b])) for b in range(count)]


def _outcomes(steps: Any) -> list[tuple[Step, Result | None]]:
    """What came of each match's action; the observation of a step that ended is the final one, where it is given."""
    observations = _rows(steps.observations)
    if steps.truncated.any():
        for b, final in zip(steps.truncated.nonzero()[0], _rows(steps.final), strict=True):
            observations[b] = final
    missed = np.zeros(len(observations), int) if steps.missed is None else steps.missed
    results = dict(steps.results)
    return [
        (Step(seen, steps.reward[b], bool(steps.terminated[b]), bool(steps.truncated[b]), int(missed[b])), results.get(b))
        for b, seen in enumerate(observations)
    ]


def _same(one: Witness, other: Witness, what: str, hint: str) -> None:
    for name in one.turns:
        _same_turns(name, one.turns[name], other.turns[name], what, hint)
    if one.results != other.results:
        raise ContractError(f"{what}: results {one.results} and {other.results}. {hint}")


def _same_turns(name: str, one: Sequence[Turn], other: Sequence[Turn], what: str, hint: str, first: int = 0) -> None:
    for number, (a, b) in enumerate(zip(one, other, strict=False), first):
        difference = _difference(a, b)
        if difference:
            raise ContractError(f"{what}: role '{name}', step {number}: {difference}. {hint}")
    if len(one) != len(other):
        raise ContractError(f"{what}: role '{name}' takes {len(one)} and {len(other)} steps. {hint}")


def _difference(a: Turn, b: Turn) -> str | None:
    for kind, left, right in (("input", a.observation.inputs, b.observation.inputs), ("mask", a.observation.legal, b.observation.legal)):
        for key in left:
            if not np.array_equal(left[key], right[key]):
                return f"{kind} '{key}'"
    if a.observation.learn != b.observation.learn:
        return f"learn is {a.observation.learn} and {b.observation.learn}"
    if a.step is None or b.step is None:
        return None if a.step is b.step else "only one of them goes on"
    if any(not math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-6) for x, y in zip(a.step.reward, b.step.reward, strict=True)):
        return f"rewards {a.step.reward} and {b.step.reward}"
    for key in ("terminated", "truncated", "missed"):
        if getattr(a.step, key) != getattr(b.step, key):
            return f"{key} is {getattr(a.step, key)} and {getattr(b.step, key)}"
    if a.step.truncated:
        return _difference(Turn(a.step.observation), Turn(b.step.observation))
    return None
