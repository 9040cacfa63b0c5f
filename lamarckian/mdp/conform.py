"""Whether what a game hands out is as its roles say, one match at a time or batched; and legal actions at random."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from lamarckian.errors import ContractError
from lamarckian.mdp.batched import Observations, Steps
from lamarckian.mdp.interface import Action, Observation, Result, Step
from lamarckian.mdp.spaces import ArraySpec, Discrete, Image, Role


def check_observation(role: Role, observation: Any, who: str, last: bool = False, lead: tuple[int, ...] = ()) -> None:
    """Raises ContractError unless inputs and masks are as `role` says, behind the axes `lead`.

    Inputs that the role does not name are let through: bots may see them. last: at the end of a match, where masks matter
    no more.
    """
    kind = Observations if lead else Observation
    if not isinstance(observation, kind):
        raise ContractError(f"{who} must be given an {kind.__name__}, not {type(observation).__name__}: {observation!r:.80}")
    _check_arrays(role.arrays(), observation.inputs, lead, f"{who}, input", role)
    _check_arrays(role.masks(), observation.legal, lead, f"{who}, mask", role)
    unknown = set(observation.legal) - set(role.masks())
    if unknown:
        raise ContractError(f"{who} gets a mask for {sorted(unknown)}, which no head with `masked=True` is called")
    for name, mask in observation.legal.items():
        if not last and not mask.any(axis=-1).all():
            where = "" if mask.ndim == 1 else f" in row {np.argwhere(~mask.any(axis=-1))[0].tolist()}"
            raise ContractError(f"{who}, mask '{name}': nothing is legal{where}; leave at least one action, such as one that does nothing")


def _check_arrays(specs: Mapping[str, ArraySpec], arrays: Mapping[str, Any], lead: tuple[int, ...], what: str, role: Role) -> None:
    for name, spec in specs.items():
        if name not in arrays:
            raise ContractError(f"{what} '{name}' is missing; there are {sorted(arrays)}")
        array = arrays[name]
        if not isinstance(array, np.ndarray):
            raise ContractError(f"{what} '{name}' must be a numpy array, not {type(array).__name__}")
        if array.dtype != spec.dtype:
            hint = ""
            if isinstance(role.inputs.get(name), Image):
                hint = ": give pixels 0 to 255, networks divide them"
            elif array.dtype == np.float64:
                hint = ": numpy makes float64 unless you say dtype=np.float32"
            raise ContractError(f"{what} '{name}' must be {spec.dtype}, not {array.dtype}{hint}")
        if array.shape != lead + spec.shape:
            raise ContractError(f"{what} '{name}' must have the shape {lead + spec.shape}, not {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ContractError(f"{what} '{name}' is not finite: {array!r:.200}")


def check_step(role: Role, step: Any, who: str) -> None:
    """Raises ContractError unless all but the observation of a step is in order."""
    if not isinstance(step, Step):
        raise ContractError(f"{who}: `step` must return a Step, not {type(step).__name__}: {step!r:.80}")
    if len(step.reward) != len(role.rewards):
        raise ContractError(f"{who} got {len(step.reward)} rewards; its reward names are {list(role.rewards)}")
    if not all(isinstance(value, Real) and math.isfinite(value) for value in step.reward):
        raise ContractError(f"{who} got a reward that is no finite number: {step.reward}")
    if not all(isinstance(flag, bool | np.bool_) for flag in (step.terminated, step.truncated)):
        raise ContractError(f"{who}: terminated and truncated must be bool, not {step.terminated!r} and {step.truncated!r}")
    if not isinstance(step.missed, Integral) or step.missed < 0:
        raise ContractError(f"{who}: `missed` must count ticks, an int from 0, not {step.missed!r}")


def check_result(result: Any, who: str) -> None:
    """Raises ContractError unless a result is one, and finite."""
    if not isinstance(result, Result):
        raise ContractError(f"{who}: `result` must return a Result, not {result!r:.80}")
    if result.outcome not in (None, "win", "draw", "loss"):
        raise ContractError(f"{who}: the outcome must be win, draw, loss or None, not {result.outcome!r}")
    for name, value in {"score": result.score, **result.objectives}.items():
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ContractError(f"{who}: '{name}' of its result must be a finite number, not {value!r}")


def check_steps(role: Role, steps: Any, count: int, who: str) -> None:
    """Raises ContractError unless a batch of steps is in order."""
    if not isinstance(steps, Steps):
        raise ContractError(f"{who}: `step` must return Steps, not {type(steps).__name__}")
    check_observation(role, steps.observations, who, lead=(count,))
    expected = {
        "reward": ArraySpec((count, len(role.rewards)), np.dtype(np.float32)),
        "terminated": ArraySpec((count,), np.dtype(np.bool_)),
        "truncated": ArraySpec((count,), np.dtype(np.bool_)),
    }
    _check_arrays(expected, {name: getattr(steps, name) for name in expected}, (), f"{who},", role)
    if steps.waiting is not None:
        _check_arrays({"waiting": ArraySpec((count,), np.dtype(np.bool_))}, {"waiting": steps.waiting}, (), f"{who},", role)
    ended = {int(b) for b in np.nonzero(steps.terminated | steps.truncated)[0]}
    given = [b for b, _ in steps.results]
    if sorted(given) != sorted(ended):
        raise ContractError(f"{who}: results must be given of the matches that ended, {sorted(ended)}, not of {given}")
    for b, result in steps.results:
        check_result(result, f"{who}, match {b}")
    truncated = int(steps.truncated.sum())
    if truncated and steps.final is None:
        raise ContractError(f"{who}: `final` must hold the last observations of the {truncated} matches that were truncated")
    if truncated:
        check_observation(role, steps.final, f"{who}, final", last=True, lead=(truncated,))


def draw(role: Role, legal: Mapping[str, np.ndarray], random: np.random.Generator) -> Action:
    """A legal action at random."""
    action: dict[str, Any] = {}
    for name, head in role.heads.items():
        if isinstance(head, Discrete):
            mask = legal.get(name)
            if mask is not None and head.given is not None:
                mask = mask[action[head.given]]
            action[name] = int(random.integers(head.n) if mask is None else random.choice(np.nonzero(mask)[0]))
        else:
            low, high = head.bounds()
            action[name] = random.uniform(low, high).astype(np.float32)
    return action
