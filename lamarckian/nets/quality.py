"""Networks that say how good each action is, Q(s, a), and how often the one that looks best is not taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from lamarckian.errors import RecipeError
from lamarckian.mdp import ArraySpec, Discrete, Role
from lamarckian.nets.convolution import Convolutions
from lamarckian.nets.encoder import Encoder
from lamarckian.nets.heads import CategoricalHead, Parameters, Quality
from lamarckian.nets.layers import Activation, Initialization, Mlp, Parts, linear
from lamarckian.nets.memory import Memories, MemorySettings
from lamarckian.nets.policy import NO_STATE, Outputs, Sizes
from lamarckian.nets.units import FAR, Attention, Embedding, Names, Pooling, attending

_MASKED = -1e30


class QHead(CategoricalHead):
    """A choice among n actions by their quality: ε-greedy. With probability ε, any legal action; else the best of them."""

    def mode(self, parameters: Any, legal: Tensor | None = None) -> Tensor:
        return _legal(parameters.q, legal).argmax(-1)

    @staticmethod
    def _log_p(parameters: Any, legal: Tensor | None) -> Tensor:
        q = _legal(parameters.q, legal)
        best, greedy = q.max(-1, keepdim=True)
        possible = q > best - FAR
        p = possible * (parameters.epsilon / possible.sum(-1, keepdim=True))
        p = p.scatter_add(-1, greedy, 1 - parameters.epsilon)
        return torch.where(p > 0, p.clamp(min=torch.finfo(p.dtype).tiny).log(), _MASKED)


class QNetwork(nn.Module):
    """Q(s, a) of each discrete head of `role`: its inputs encoded and joined, a trunk, and streams of value and advantages.

    hidden, vectors, convolutions, units, pooling, embeddings, attention, key_size, memory, activation, initialization: as in `Policy`.
    dueling: Q(s, a) = V(s) + A(s, a) − mean_a A(s, a), with one V for all heads (Wang et al. 2016, https://arxiv.org/abs/1511.06581, eq. 9;
        Tavakoli et al. 2018, https://arxiv.org/abs/1711.08946, eq. 1). Without, there is one stream, and it gives Q itself.
    streams: layers that value and advantages each have for themselves, behind the trunk.
    head_gain: how large the weights of the outputs are at first: small, so that no action looks better than it is.

    Beside its weights it has the parameter `epsilon`, which no gradient changes: so that those who act get it with each version.
    Raises RecipeError where a head is continuous.
    """

    kind: ClassVar[str] = "q"
    """Which algorithms learn it: those that say so, see `Algorithm`."""

    def __init__(
        self,
        role: Role,
        *,
        hidden: Sizes = (256, 128),
        vectors: Sizes = (),
        convolutions: Convolutions = "nature",
        units: Sizes = (64, 64),
        pooling: Pooling = "max",
        embeddings: Mapping[str, Embedding] = {},
        attention: Mapping[str, Names] = {},
        key_size: Annotated[int, Field(gt=0)] = 32,
        memory: MemorySettings | None = None,
        activation: Activation = "relu",
        dueling: bool = True,
        streams: Sizes = (),
        initialization: Initialization = "orthogonal",
        head_gain: Annotated[float, Field(gt=0)] = 0.01,
    ) -> None:
        super().__init__()
        self.role = role
        self.encoder = Encoder(
            role.inputs,
            hidden=hidden,
            vectors=vectors,
            convolutions=convolutions,
            units=units,
            pooling=pooling,
            embeddings=embeddings,
            activation=activation,
            initialization=initialization,
        )
        self.memories = Memories(("trunk",), self.encoder.size, memory, initialization)
        size = self.memories.size
        self.advantages = Mlp(size, streams, activation, initialization)
        self.value = None
        if dueling:
            stream = Mlp(size, streams, activation, initialization)
            self.value = nn.Sequential(stream, linear(stream.size, 1, initialization, head_gain))
        heads = Parts()
        chosen = attending(role, attention)
        for name, space in role.heads.items():
            if not isinstance(space, Discrete):
                raise RecipeError(
                    f"network.name: given 'q', which values each action of a head; head '{name}' of this game is continuous; allowed here: "
                    "policy, with an algorithm that learns it, such as ppo or impala"
                )
            attends = None
            if name in chosen:
                among = self.encoder.units(chosen[name])
                attends = Attention(self.advantages.size, among, key_size, initialization, head_gain)
            heads[name] = QHead(space, self.advantages.size, initialization, head_gain, attends)
        self.heads: Mapping[str, QHead] = heads  # type: ignore[assignment]
        self.epsilon = nn.Parameter(torch.ones(1), requires_grad=False)

    @property
    def state(self) -> dict[str, ArraySpec]:
        """As of `Policy`."""
        return self.memories.state

    def forward(self, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor] = NO_STATE, first: Tensor | None = None) -> Outputs:
        """As of `Policy`. `value`: of the best action, whether or not it is legal, a mean over heads; the same for every reward."""
        features, units = self.encoder(inputs)
        after: dict[str, Tensor] = {}
        if len(self.memories):
            with torch.autocast(features.device.type, enabled=False):
                features = self.memories.recall("trunk", features, state, first, after)
        streams = self.advantages(features).float()
        value = None if self.value is None else self.value[0](features).float()
        with torch.autocast(features.device.type, enabled=False):
            base = None if self.value is None else self.value[1](value)
            heads: dict[str, Parameters] = {}
            bests = []
            for name, head in self.heads.items():
                q = head(streams, units).logits
                q = q if base is None else base + q - _mean(q, head.attention is not None)
                heads[name] = Quality(q, self.epsilon.expand_as(q[:, :1]))
                bests.append(q.amax(-1, keepdim=True))
            return Outputs(heads, torch.stack(bests).mean(0).expand(-1, len(self.role.rewards)), after)


def _legal(q: Tensor, legal: Tensor | None) -> Tensor:
    return q if legal is None else torch.where(legal, q, _MASKED)


def _mean(advantages: Tensor, units: bool) -> Tensor:
    """Over the actions `[B, n]` → `[B, 1]`; without units that are not valid, where there are `units` among them."""
    if not units:
        return advantages.mean(-1, keepdim=True)
    valid = advantages > -FAR
    return torch.where(valid, advantages, 0.0).sum(-1, keepdim=True) / valid.sum(-1, keepdim=True).clamp(min=1)
