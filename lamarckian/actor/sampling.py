"""Draws actions from a policy's raw outputs, and their log-probabilities, without PyTorch.

The distributions are those of `lamarckian.nets.heads`; a test holds both to the same log-probabilities.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numba import njit

from lamarckian.errors import ContractError, NumericsError
from lamarckian.mdp.spaces import Continuous, Discrete, Head, Role

_LOG_2PI = float(np.log(2.0 * np.pi))
_EDGE = np.float32(1e-6)
_FAR = np.float32(1e14)  # units that are not valid lie so far below the others
_EMPTY_MASK, _NOT_FINITE = -1, -2


class EmptyMask(ContractError):
    """A mask leaves no legal action; where, knows who knows what a row of the batch is."""


def empty_row(legal: Mapping[str, np.ndarray]) -> int:
    """The first row of a batch in which some mask leaves nothing, if there is one."""
    possible = np.stack([mask.any(axis=-1).reshape(len(mask), -1).all(axis=1) for mask in legal.values()])
    return int(np.argmin(possible.all(axis=0)))


class Sampler:
    """Samples every head of `role` for a batch of B controllers.

    squashed: the heads that are tanh-squashed Gaussians, scaled to their bounds.
    greedy: takes each head's mode instead.
    """

    def __init__(self, role: Role, squashed: Collection[str] = (), greedy: bool = False) -> None:
        self._heads = dict(role.heads)
        self._squashed = frozenset(squashed)
        self._greedy = greedy
        self._bounds = {name: head.bounds() for name, head in role.heads.items() if isinstance(head, Continuous)}
        self._tables = {name: np.array(head.active) for name, head in role.heads.items() if head.active is not None}

    def __call__(
        self, outputs: Mapping[str, np.ndarray], legal: Mapping[str, np.ndarray], generator: np.random.Generator
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Actions and float32 log-probabilities, `[B, …]` per head; a head that is inactive has log-probability 0."""
        actions: dict[str, np.ndarray] = {}
        log_probs: dict[str, np.ndarray] = {}
        active: dict[str, np.ndarray] = {}
        for name, head in self._heads.items():
            if isinstance(head, Discrete):
                mask = _mask(head, legal.get(name), actions)
                if f"head.{name}.q" in outputs:
                    q, epsilon = outputs[f"head.{name}.q"], outputs[f"head.{name}.epsilon"]
                    action, log_prob = self._epsilon_greedy(name, q, epsilon, mask, generator)
                else:
                    action, log_prob = self._categorical(name, outputs[f"head.{name}.logits"], mask, generator)
            else:
                action, log_prob = self._gaussian(name, outputs[f"head.{name}.mean"], outputs[f"head.{name}.log_std"], generator)
            if name in self._tables:
                given: str = head.given  # type: ignore[assignment]
                active[name] = self._tables[name][actions[given]] & active.get(given, True)
                log_prob *= active[name]
            actions[name], log_probs[name] = action, log_prob
        return actions, log_probs

    def _categorical(
        self, name: str, logits: np.ndarray, mask: np.ndarray | None, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        uniform = self._uniform(len(logits), generator)
        action, log_prob = np.empty(len(logits), np.int32), np.empty(len(logits), np.float32)
        if mask is None:
            fault, row = _sample(logits, uniform, action, log_prob)
        else:
            fault, row = _sample_masked(logits, mask, uniform, action, log_prob)
        _refuse(fault, row, name, logits, "logits")
        return action, log_prob

    def _epsilon_greedy(
        self, name: str, q: np.ndarray, epsilon: np.ndarray, mask: np.ndarray | None, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        uniform = self._uniform(len(q), generator)
        action, log_prob = np.empty(len(q), np.int32), np.empty(len(q), np.float32)
        legal = np.ones(q.shape, np.bool_) if mask is None else mask
        fault, row = _explore(q, epsilon, legal, uniform, action, log_prob)
        _refuse(fault, row, name, q, "values")
        return action, log_prob

    def _uniform(self, size: int, generator: np.random.Generator) -> np.ndarray:
        """In [0, 1), or -1 for the mode."""
        return np.full(size, -1.0, np.float32) if self._greedy else generator.random(size, np.float32)

    def _gaussian(self, name: str, mean: np.ndarray, log_std: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        axes = tuple(range(1, mean.ndim))
        if self._greedy:
            noise = np.zeros_like(mean)
        else:
            noise = generator.standard_normal(mean.shape, np.float32)
        action = mean + np.exp(log_std) * noise
        slope: np.ndarray | float = 0.0
        if name in self._squashed:
            low, high = self._bounds[name]
            center, reach = (high + low) / 2, (high - low) / 2
            action = center + reach * np.clip(np.tanh(action), _EDGE - 1, 1 - _EDGE)
            # From the action as it is recorded, as the learner does: near the bounds rounding tells them apart.
            u = np.arctanh(np.clip((action - center) / reach, _EDGE - 1, 1 - _EDGE))
            noise = (u - mean) * np.exp(-log_std)
            # log(1 - tanh²(u)) = 2 (log 2 - u - softplus(-2u)), which does not cancel for large |u|.
            slope = 2.0 * (np.float32(np.log(2.0)) - u - np.logaddexp(np.float32(0.0), -2.0 * u)) + np.log(reach)
        log_prob = (-0.5 * noise * noise - log_std - np.float32(0.5 * _LOG_2PI) - slope).sum(axis=axes)
        if not np.isfinite(log_prob).all():
            raise NumericsError(f"the policy's mean or deviation of head '{name}' is not finite; the parameters have diverged")
        return action, log_prob.astype(np.float32)


def _mask(head: Head, mask: np.ndarray | None, actions: Mapping[str, np.ndarray]) -> np.ndarray | None:
    if mask is None or head.given is None:
        return mask
    return mask[np.arange(len(mask)), actions[head.given]]


def _refuse(fault: int, row: int, name: str, outputs: np.ndarray, what: str) -> None:
    if fault == _EMPTY_MASK:
        raise EmptyMask(f"the mask of head '{name}' leaves no legal action; a game must leave at least one")
    if fault == _NOT_FINITE:
        raise NumericsError(f"the policy's {what} of head '{name}' are not finite: {outputs[row]}; the parameters have diverged")


@njit(cache=True, nogil=True)
def _sample(logits, uniform, action, log_prob):  # type: ignore[no-untyped-def]
    """Inverse-CDF sampling, the mode where `uniform` is negative; (0, 0) or the fault and its row."""
    for row in range(logits.shape[0]):
        top = logits[row, 0]
        best = 0
        for index in range(1, logits.shape[1]):
            if logits[row, index] > top:
                top = logits[row, index]
                best = index
        total = np.float32(0.0)
        for index in range(logits.shape[1]):
            total += np.exp(logits[row, index] - top)
        if not np.isfinite(total):
            return _NOT_FINITE, row
        chosen = best
        if uniform[row] >= 0.0:
            rest = uniform[row] * total
            for index in range(logits.shape[1]):
                weight = np.exp(logits[row, index] - top)
                if weight > 0.0:
                    chosen = index
                    rest -= weight
                    if rest < 0.0:
                        break
        action[row] = chosen
        log_prob[row] = logits[row, chosen] - top - np.log(total)
    return 0, 0


@njit(cache=True, nogil=True)
def _sample_masked(logits, mask, uniform, action, log_prob):  # type: ignore[no-untyped-def]
    width = logits.shape[1]
    legal = np.empty((1, width), logits.dtype)
    for row in range(logits.shape[0]):
        found = False
        for index in range(width):
            if mask[row, index]:
                found = True
                legal[0, index] = logits[row, index]
            else:
                legal[0, index] = -np.inf
        if not found:
            return _EMPTY_MASK, row
        fault, _ = _sample(legal, uniform[row : row + 1], action[row : row + 1], log_prob[row : row + 1])
        if fault != 0:
            return fault, row
    return 0, 0


@njit(cache=True, nogil=True)
def _explore(q, epsilon, legal, uniform, action, log_prob):  # type: ignore[no-untyped-def]
    """The best legal action, or any where `uniform` is in [0, ε); (0, 0) or the fault and its row."""
    for row in range(q.shape[0]):
        best = -1
        for index in range(q.shape[1]):
            if not np.isfinite(q[row, index]):
                return _NOT_FINITE, row
            if legal[row, index] and (best < 0 or q[row, index] > q[row, best]):
                best = index
        if best < 0:
            return _EMPTY_MASK, row
        count = 0
        for index in range(q.shape[1]):
            count += legal[row, index] and q[row, index] > q[row, best] - _FAR
        share, chosen = epsilon[row, 0], best
        if 0.0 <= uniform[row] < share:
            rest = int(uniform[row] / share * count)
            for index in range(q.shape[1]):
                if legal[row, index] and q[row, index] > q[row, best] - _FAR:
                    chosen = index
                    rest -= 1
                    if rest < 0:
                        break
        action[row] = chosen
        log_prob[row] = np.log(share / count + (1.0 - share if chosen == best else 0.0))
    return 0, 0
