"""What a policy sees and does, as a checkpoint remembers it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lamarckian.errors import CheckpointError
from lamarckian.mdp import Role


def signature(role: Role) -> dict[str, Any]:
    """The inputs, heads and rewards of a role in plain JSON."""
    plain = {
        "inputs": {name: {"kind": type(space).__name__, **asdict(space)} for name, space in role.inputs.items()},
        "heads": {name: {"kind": type(head).__name__, **asdict(head)} for name, head in role.heads.items()},
        "rewards": list(role.rewards),
    }
    return json.loads(json.dumps(plain, default=float))


def check_signature(saved: Mapping[str, Any], role: Role, where: str, what: str = "checkpoint") -> None:
    """Raises CheckpointError where a policy with the `saved` signature cannot play `role`; says what differs.

    where, what: name the checkpoint in the message, or whatever else has a signature.
    """
    current = signature(role)
    faults = []
    for group, word in (("inputs", "input"), ("heads", "head")):
        then, now = saved[group], current[group]
        faults += [f"{word} '{name}': the {what} has it, the game does not" for name in then if name not in now]
        faults += [f"{word} '{name}': the game has it, the {what} does not" for name in now if name not in then]
        faults += [
            f"{word} '{name}': {_differences(then[name], now[name], what)}" for name in then if name in now and then[name] != now[name]
        ]
        if not faults and list(then) != list(now):
            faults.append(f"{group}: the {what} has them in the order {', '.join(then)}, the game in the order {', '.join(now)}")
    if saved["rewards"] != current["rewards"]:
        faults.append(f"rewards: the {what} has {', '.join(saved['rewards'])}, the game has {', '.join(current['rewards'])}")
    if faults:
        raise CheckpointError(f"{where} does not fit the game: " + "; ".join(faults))


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], what: str) -> str:
    if then["kind"] != now["kind"]:
        return f"the {what} has {then['kind']}, the game has {now['kind']}"
    return differences(then, now, f"in the {what}", "in the game")


def differences(then: Mapping[str, Any], now: Mapping[str, Any], there: str, here: str) -> str:
    """Which entries differ, in words; empty where none does. there, here: where `then` and `now` are, say "in the checkpoint"."""
    keys = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    return ", ".join(f"{key} is {then.get(key)} {there}, {now.get(key)} {here}" for key in keys)
