"""Gymnasium's spaces as ours: which inputs and heads they become, and the functions that convert values.

Names of nested spaces are joined with dots; a space that is not nested is called `observation` or `action`.

| Gymnasium | as an observation | as an action |
| --- | --- | --- |
| Box, uint8 0–255, two or three axes | `Image`; the shorter of the first and last axis is the channels | – |
| Box, any other | `Vector`, flattened | `Continuous`; float and bounded only |
| Discrete | `Vector`, one-hot | `Discrete` |
| MultiDiscrete | `Vector`, one-hots joined | a `Discrete` for each entry: `NAME.0`, `NAME.1`, … |
| MultiBinary | `Vector`, flattened | a `Discrete(2)` for each entry |
| Dict, Tuple | each of its spaces | each of its spaces |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from lamarckian.errors import GameError
from lamarckian.mdp.interface import Action
from lamarckian.mdp.spaces import Continuous, Discrete, Head, Image, Input, Vector

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple"

Convert: TypeAlias = Callable[[Any], np.ndarray]
Reach: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Seeing:
    """An observation space: its inputs, and what makes arrays of one observation, or of a batch `[B, …]`.

    Arrays are always fresh copies, since environments may write to what they handed out.
    """

    inputs: Mapping[str, Input]
    observe: Callable[[Any], dict[str, np.ndarray]]
    observe_batch: Callable[[Any], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Doing:
    """An action space: its heads, and what makes the environment's action of one of ours, or of a batch `[B, …]`.

    Continuous actions are clipped to their bounds.
    """

    heads: Mapping[str, Head]
    act: Callable[[Action], Any]
    act_batch: Callable[[Mapping[str, np.ndarray]], Any]


def seeing(space: spaces.Space, game: str) -> Seeing:
    """How a policy sees `space`. Raises GameError naming the game and the path of a space that has no counterpart."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        only, one, many = _input(space, "observation", game)
        return Seeing({"observation": only}, _alone(one), _alone(many))
    inputs: dict[str, Input] = {}
    single: list[tuple[str, Reach, Convert]] = []
    batch: list[tuple[str, Reach, Convert]] = []
    for name, leaf, reach in _leaves(space, "", lambda value: value):
        if name in inputs:
            raise GameError(f"{game}: two observation spaces would be called '{name}'; rename one of them")
        inputs[name], convert, convert_batch = _input(leaf, name, game)
        single.append((name, reach, convert))
        batch.append((name, reach, convert_batch))
    return Seeing(inputs, _collect(single), _collect(batch))


def doing(space: spaces.Space, game: str) -> Doing:
    """How a policy acts in `space`. Raises GameError as `seeing` does, and for actions without bounds."""
    heads, act, act_batch = _heads(space, "", game)
    return Doing(heads, act, act_batch)


def some_legal(mask: Any) -> np.ndarray:
    """An environment's mask as ours. At the end of a match nothing may be legal; then all is, since nothing will be chosen."""
    legal = np.array(mask, np.bool_)
    return legal if legal.any() else ~legal


def _leaves(space: spaces.Space, path: str, reach: Reach) -> Iterator[tuple[str, spaces.Space, Reach]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, inner in _members(space):
            yield from _leaves(inner, _join(path, key), _within(reach, key))
    else:
        yield path, space, reach


def _within(reach: Reach, key: Any) -> Reach:
    return lambda value: reach(value)[key]


def _members(space: spaces.Dict | spaces.Tuple) -> Iterator[tuple[Any, spaces.Space]]:
    return iter(space.items()) if isinstance(space, spaces.Dict) else iter(enumerate(space))


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _alone(convert: Convert) -> Callable[[Any], dict[str, np.ndarray]]:
    return lambda value: {"observation": convert(value)}


def _collect(parts: list[tuple[str, Reach, Convert]]) -> Callable[[Any], dict[str, np.ndarray]]:
    return lambda value: {name: convert(reach(value)) for name, reach, convert in parts}


def _refuse(game: str, what: str, space: spaces.Space, why: str = "") -> GameError:
    return GameError(f"{game}: {what} is {type(space).__name__}{why}; supported: {SUPPORTED}")


def _input(space: spaces.Space, name: str, game: str) -> tuple[Input, Convert, Convert]:
    if isinstance(space, spaces.Box) and _is_image(space):
        image, axes = _image(space.shape)
        shape = (image.channels, image.height, image.width)
        return image, partial(_pixels, axes=axes, shape=shape), partial(_pixels, axes=(0, *(a + 1 for a in axes)), shape=(-1, *shape))
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        size = int(np.prod(space.shape))
        if len(space.shape) == 1:
            return Vector(size), _vector, _vector
        return Vector(size), lambda value: _vector(value).reshape(size), lambda value: _vector(value).reshape(-1, size)
    if isinstance(space, spaces.Discrete):
        eye = np.eye(int(space.n), dtype=np.float32)
        one_hot = lambda value: eye[value - space.start].copy()  # noqa: E731 - a view where the index is a scalar
        return Vector(int(space.n)), one_hot, one_hot
    if isinstance(space, spaces.MultiDiscrete):
        eyes = [np.eye(int(n), dtype=np.float32) for n in space.nvec.ravel()]
        start = space.start.ravel()

        def one_hots(value: Any) -> np.ndarray:
            index = np.asarray(value).reshape(*np.shape(value)[: np.ndim(value) - len(space.shape)], len(eyes)) - start
            return np.concatenate([eye[index[..., i]] for i, eye in enumerate(eyes)], axis=-1)

        return Vector(sum(len(eye) for eye in eyes)), one_hots, one_hots
    raise _refuse(game, f"observation space '{name}'", space)


_vector = partial(np.array, dtype=np.float32)


def _is_image(space: spaces.Box) -> bool:
    return space.dtype == np.uint8 and len(space.shape) in (2, 3) and bool((space.low == 0).all() and (space.high == 255).all())


def _image(shape: tuple[int, ...]) -> tuple[Image, tuple[int, ...]]:
    """The image that pixels of `shape` are, and the order of axes that puts the channels first."""
    if len(shape) == 2:
        return Image(1, *shape), (0, 1)
    if shape[2] <= shape[0]:
        return Image(shape[2], shape[0], shape[1]), (2, 0, 1)
    return Image(*shape), (0, 1, 2)


def _pixels(value: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    return np.array(np.transpose(value, axes), np.uint8, order="C").reshape(shape)


def _heads(space: spaces.Space, path: str, game: str) -> tuple[dict[str, Head], Callable, Callable]:
    """Heads of `space`, and the functions that pick its action out of ours, single and batched."""
    name = path or "action"
    if isinstance(space, spaces.Discrete):
        start, dtype = int(space.start), space.dtype
        single = (lambda action: action[name]) if start == 0 else (lambda action: action[name] + start)
        return {name: Discrete(int(space.n))}, single, lambda action: action[name].astype(dtype) + start
    if isinstance(space, spaces.Box):
        return {name: _continuous(space, name, game)}, *_clippers(space, name)
    if isinstance(space, spaces.MultiDiscrete):
        return _choices(name, space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return _choices(name, np.full(space.shape, 2), np.zeros(space.shape, space.dtype))
    if isinstance(space, spaces.Dict | spaces.Tuple):
        heads: dict[str, Head] = {}
        singles, batches = {}, {}
        for key, inner in _members(space):
            more, singles[key], batches[key] = _heads(inner, _join(path, key), game)
            if heads.keys() & more.keys():
                raise GameError(f"{game}: two action spaces would be called '{min(heads.keys() & more.keys())}'; rename one of them")
            heads |= more
        if isinstance(space, spaces.Dict):
            return heads, partial(_each, singles), partial(_each, batches)
        return heads, lambda action: tuple(_each(singles, action).values()), lambda action: tuple(_each(batches, action).values())
    raise _refuse(game, f"action space '{name}'", space)


def _choices(name: str, counts: np.ndarray, start: np.ndarray) -> tuple[dict[str, Head], Callable, Callable]:
    """A head for each entry of an array of choices among `counts`, which begin at `start`."""
    heads: dict[str, Head] = {_join(name, i): Discrete(int(count)) for i, count in enumerate(counts.ravel())}

    def choose(action: Any) -> np.ndarray:
        chosen = np.stack([action[head] for head in heads], axis=-1).astype(start.dtype)
        return chosen.reshape(*chosen.shape[:-1], *start.shape) + start

    return heads, choose, choose


def _each(functions: Mapping[Any, Callable], action: Any) -> dict[Any, Any]:
    return {key: function(action) for key, function in functions.items()}


def _continuous(space: spaces.Box, name: str, game: str) -> Continuous:
    what = f"action space '{name}'"
    if space.dtype.kind != "f":
        raise _refuse(game, what, space, f" of {space.dtype}, and of Box actions only floats are supported")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise _refuse(game, what, space, " without bounds, which a policy needs; wrap the game in gymnasium.wrappers.RescaleAction")
    return Continuous(_bound(space.low), _bound(space.high), tuple(space.shape))


def _bound(bound: np.ndarray) -> float | tuple:
    if bound.size and (bound == bound.flat[0]).all():
        return float(bound.flat[0])
    return _tuples(bound.tolist())


def _tuples(nested: Any) -> Any:
    return tuple(map(_tuples, nested)) if isinstance(nested, list) else nested


def _clippers(space: spaces.Box, name: str) -> tuple[Callable, Callable]:
    """Clipping in the space's own dtype; by far the quickest way for the one number that small games take."""
    dtype, low, high = space.dtype, space.low, space.high

    def clip(action: Any) -> np.ndarray:
        return np.minimum(np.maximum(np.asarray(action[name], dtype), low), high)

    if space.shape != (1,) or dtype != np.float32:
        return clip, clip
    least, most = low.item(), high.item()

    def check(action: Any) -> np.ndarray:
        value = action[name]
        return value if least <= value.item() <= most else clip(action)

    return check, clip
