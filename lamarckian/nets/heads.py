"""Heads: an output layer and the distribution it parametrises.

Each head is decoupled from the others: it has a log-probability and an entropy of its own (Ye et al. 2020, "Mastering
Complex Control in MOBA Games with Deep Reinforcement Learning", §4). What binds them is `given`: the earlier head's
action picks the row of this head's mask, and says whether this head is active.

Everything here is float32, also under autocast. Shapes: B samples, in front of a head's own shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lamarckian.errors import RecipeError
from lamarckian.mdp import Continuous, Discrete, Role
from lamarckian.nets.layers import Initialization, linear
from lamarckian.nets.units import FAR, NO_UNITS, Attention, EncodedUnits

EDGE = 1e-6
"""How near to its bounds a squashed action can come, as a fraction of half their distance."""

LOG_STD_RANGE = (-5.0, 2.0)
"""What a network may give as log standard deviation."""

_MASKED = -1e30
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(12)


class Categorical(NamedTuple):
    """`logits` `[B, n]`, not masked by what is legal; those of invalid units are far below all others."""

    logits: Tensor


class Gaussian(NamedTuple):
    """`mean` and `log_std`, each `[B, *shape]`; of a squashed head: before tanh."""

    mean: Tensor
    log_std: Tensor


class Quality(NamedTuple):
    """`q` `[B, n]`, each action's Q(s, a), not masked by what is legal; `epsilon` `[B, 1]`: how often an action is drawn at random."""

    q: Tensor
    epsilon: Tensor


Parameters: TypeAlias = Categorical | Gaussian | Quality


class Distribution(Protocol):
    """What every head is: features `[B, size]`, and the units that they come from, to parameters, and what can be asked of
    these; `legal` is its mask, if any."""

    def __call__(self, features: Tensor, units: Mapping[str, EncodedUnits]) -> Parameters: ...

    def evaluate(self, parameters: Any, action: Tensor, legal: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The log-probability or log-density of `action`, and the entropy in nats, each `[B]`."""
        ...

    def sample(self, parameters: Any, legal: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor: ...

    def mode(self, parameters: Any, legal: Tensor | None = None) -> Tensor: ...


class CategoricalHead(nn.Module):
    """A choice among n actions. `legal`: bool `[B, n]`, or None; an illegal action has probability and gradient exactly 0.

    attention: the first `attention.count` actions are units, and it gives their logits; a linear layer those of the others.
    """

    def __init__(self, space: Discrete, size: int, initialization: Initialization, gain: float, attention: Attention | None = None) -> None:
        super().__init__()
        self.attention = attention
        others = space.n if attention is None else space.n - attention.count
        self.output = linear(size, others, initialization, gain) if others else None

    def forward(self, features: Tensor, units: Mapping[str, EncodedUnits] = NO_UNITS) -> Categorical:
        logits = [] if self.attention is None else [self.attention(features, units)]
        if self.output is not None:
            logits.append(self.output(features))
        return Categorical(logits[0] if len(logits) == 1 else torch.cat(logits, -1))

    def evaluate(self, parameters: Categorical, action: Tensor, legal: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The log-probability of `action`, int `[B]`, and the entropy in nats, each `[B]`."""
        log_p = self._log_p(parameters, legal)
        chosen = log_p.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
        # An illegal action's log_p is finite (-1e30), so that 0 · log_p is 0 and not NaN.
        return chosen, -(log_p.exp() * log_p).sum(-1)

    def rank(self, parameters: Categorical, action: Tensor, legal: Tensor | None = None) -> Tensor:
        """How many actions are likelier than `action`, int64 `[B]`."""
        log_p = self._log_p(parameters, legal)
        return (log_p > log_p.gather(-1, action.long().unsqueeze(-1))).sum(-1)

    def sample(self, parameters: Categorical, legal: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        return torch.multinomial(self._log_p(parameters, legal).exp(), 1, generator=generator).squeeze(-1)

    def mode(self, parameters: Categorical, legal: Tensor | None = None) -> Tensor:
        return self._log_p(parameters, legal).argmax(-1)

    @staticmethod
    def _log_p(parameters: Categorical, legal: Tensor | None) -> Tensor:
        return torch.log_softmax(_masked(parameters, legal), -1)


class GaussianHead(nn.Module):
    """A normal distribution with diagonal covariance.

    Not squashed: actions are unbounded samples, whose log-probability is taken before the game clips them to its bounds.
    Squashed: action = center + reach · tanh(u), u normal; log-probabilities are of the action, so they include
    log |du/da| (Haarnoja et al. 2018, "Soft Actor-Critic", eq. 21). They are computed from the action as it is recorded:
    clamped to `EDGE` from its bounds, then turned back into u. Whoever acts must do the same, or ratios go wrong there.

    log_std: "parameter" learns one for all observations, "network" computes it from the features.
    """

    def __init__(
        self,
        name: str,
        space: Continuous,
        size: int,
        initialization: Initialization,
        gain: float,
        *,
        log_std: str,
        initial_log_std: float,
        squashed: bool,
    ) -> None:
        super().__init__()
        self.shape, self.squashed = space.shape, squashed
        self._axes = tuple(range(-len(space.shape), 0))
        count = math.prod(space.shape)
        self.output = linear(size, count, initialization, gain)
        if log_std == "network":
            self.spread: nn.Linear | None = linear(size, count, initialization, gain)
            nn.init.constant_(self.spread.bias, initial_log_std)
        else:
            self.spread = None
            self.log_std = nn.Parameter(torch.full(space.shape, float(initial_log_std)))
        low, high = (torch.from_numpy(side) for side in space.bounds())
        if squashed and not bool(torch.isfinite(high - low).all()):
            raise RecipeError(f"head '{name}' has no finite bounds to squash its actions into; set `squashed: false`")
        self.center: Tensor
        self.reach: Tensor
        self.register_buffer("center", (high + low) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)

    def forward(self, features: Tensor, units: Mapping[str, EncodedUnits] = NO_UNITS) -> Gaussian:
        mean = self._shaped(self.output(features))
        if self.spread is None:
            return Gaussian(mean, self.log_std.expand_as(mean))
        return Gaussian(mean, self._shaped(self.spread(features).clamp(*LOG_STD_RANGE)))

    def evaluate(self, parameters: Gaussian, action: Tensor, legal: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The log-density of `action` `[B, *shape]`, and the differential entropy in nats, each `[B]`."""
        mean, log_std = parameters
        u = self._unsquash(action) if self.squashed else action
        log_p = -0.5 * ((u - mean) * torch.exp(-log_std)).square() - log_std - 0.5 * math.log(2 * math.pi)
        entropy = log_std + 0.5 * math.log(2 * math.pi * math.e)
        if self.squashed:
            log_p = log_p - self._log_slope(u)
            entropy = entropy + self._expected_log_slope(mean, log_std)
        return self._sum(log_p), self._sum(entropy)

    def sample(self, parameters: Gaussian, legal: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
        mean, log_std = parameters
        noise = torch.empty_like(mean).normal_(generator=generator)
        return self._squash(mean + torch.exp(log_std) * noise)

    def mode(self, parameters: Gaussian, legal: Tensor | None = None) -> Tensor:
        """The mean; squashed: what the mean is squashed to, the median of the actions."""
        return self._squash(parameters.mean)

    def _squash(self, u: Tensor) -> Tensor:
        return self.center + self.reach * torch.tanh(u).clamp(EDGE - 1, 1 - EDGE) if self.squashed else u

    def _unsquash(self, action: Tensor) -> Tensor:
        return torch.atanh(((action - self.center) / self.reach).clamp(EDGE - 1, 1 - EDGE))

    def _log_slope(self, u: Tensor) -> Tensor:
        """log da/du = log reach + log (1 − tanh² u), in a form that neither over- nor underflows."""
        return torch.log(self.reach) + 2 * (math.log(2) - u - F.softplus(-2 * u))

    def _expected_log_slope(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """E[log da/du], by Gauss-Hermite quadrature: there is no closed form."""
        nodes = mean.new_tensor(_NODES).reshape(-1, *[1] * mean.ndim)
        weights = mean.new_tensor(_WEIGHTS / math.sqrt(2 * math.pi))
        return torch.tensordot(weights, self._log_slope(mean + torch.exp(log_std) * nodes), 1)

    def _shaped(self, x: Tensor) -> Tensor:
        return x if len(self.shape) == 1 else x.reshape(-1, *self.shape)

    def _sum(self, x: Tensor) -> Tensor:
        return x.sum(self._axes) if self._axes else x


class Evaluation(NamedTuple):
    """`log_prob` and `entropy`, each `[B]`, 0 where the head is inactive; `active`, bool `[B]`, or None: always."""

    log_prob: Tensor
    entropy: Tensor
    active: Tensor | None


def evaluate(
    role: Role,
    heads: Mapping[str, Distribution],
    parameters: Mapping[str, Parameters],
    actions: Mapping[str, Tensor],
    legal: Mapping[str, Tensor],
) -> dict[str, Evaluation]:
    """Each head's log-probability and entropy of the actions that were taken."""
    evaluations: dict[str, Evaluation] = {}
    active: dict[str, Tensor | None] = {}
    for name, head in heads.items():
        log_prob, entropy = head.evaluate(parameters[name], actions[name], _mask(role, name, actions, legal))
        active[name] = _active(role, name, actions, active)
        matters = active[name]
        if matters is not None:
            log_prob, entropy = torch.where(matters, log_prob, 0.0), torch.where(matters, entropy, 0.0)
        evaluations[name] = Evaluation(log_prob, entropy, matters)
    return evaluations


def valid_counts(
    role: Role, parameters: Mapping[str, Parameters], actions: Mapping[str, Tensor], legal: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """How many actions each discrete head had to choose among, int64 `[B]`: those that are legal, less units that are not there."""
    counts = {}
    for name, given in parameters.items():
        if isinstance(given, Categorical):
            logits = _masked(given, _mask(role, name, actions, legal))
            counts[name] = (logits > logits.amax(-1, keepdim=True) - FAR).sum(-1)
    return counts


def ranks(
    role: Role,
    heads: Mapping[str, Distribution],
    parameters: Mapping[str, Parameters],
    actions: Mapping[str, Tensor],
    legal: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """How many legal actions each discrete head thinks likelier than the one that was taken, int64 `[B]`."""
    found = {}
    for name, head in heads.items():
        if isinstance(head, CategoricalHead):
            found[name] = head.rank(parameters[name], actions[name], _mask(role, name, actions, legal))  # type: ignore[arg-type]
    return found


def sample(
    role: Role,
    heads: Mapping[str, Distribution],
    parameters: Mapping[str, Parameters],
    legal: Mapping[str, Tensor],
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Draws an action for each head, in the role's order. An inactive head draws too; nobody looks at what it drew."""
    actions: dict[str, Tensor] = {}
    for name, head in heads.items():
        actions[name] = head.sample(parameters[name], _mask(role, name, actions, legal), generator)
    return actions


def mode(
    role: Role, heads: Mapping[str, Distribution], parameters: Mapping[str, Parameters], legal: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The likeliest action of each head, in the role's order."""
    actions: dict[str, Tensor] = {}
    for name, head in heads.items():
        actions[name] = head.mode(parameters[name], _mask(role, name, actions, legal))
    return actions


def activity(role: Role, actions: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Which heads matter, bool `[B]`, given these actions; None: always."""
    active: dict[str, Tensor | None] = {}
    for name in role.heads:
        active[name] = _active(role, name, actions, active)
    return active


def mean_over_heads(values: Mapping[str, Tensor], active: Mapping[str, Tensor | None]) -> Tensor:
    """The mean of `values` over the heads that matter, `[B]`; the first one always does."""
    if len(values) == 1:
        return next(iter(values.values()))
    weights = {name: torch.ones_like(x) if (here := active[name]) is None else here.to(x.dtype) for name, x in values.items()}
    return sum(x * weights[name] for name, x in values.items()) / sum(weights.values())  # type: ignore[return-value]


def _masked(parameters: Categorical, legal: Tensor | None) -> Tensor:
    return parameters.logits if legal is None else torch.where(legal, parameters.logits, _MASKED)


def _mask(role: Role, name: str, actions: Mapping[str, Tensor], legal: Mapping[str, Tensor]) -> Tensor | None:
    mask, given = legal.get(name), role.heads[name].given
    if mask is None or given is None:
        return mask
    row = actions[given].long().reshape(-1, 1, 1).expand(-1, 1, mask.shape[-1])
    return mask.gather(1, row).squeeze(1)


def _active(role: Role, name: str, actions: Mapping[str, Tensor], active: Mapping[str, Tensor | None]) -> Tensor | None:
    """A head with a table matters where the table says so, and the head that it depends on matters itself."""
    head = role.heads[name]
    if head.active is None or head.given is None:
        return None
    here = torch.tensor(head.active, device=actions[head.given].device)[actions[head.given].long()]
    above = active[head.given]
    return here if above is None else here & above
