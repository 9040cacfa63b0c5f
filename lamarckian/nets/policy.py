"""The policy: a network with its heads and its critic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from lamarckian.mdp import ArraySpec, Discrete, Role
from lamarckian.nets.convolution import Convolutions
from lamarckian.nets.encoder import Encoder
from lamarckian.nets.heads import CategoricalHead, Distribution, GaussianHead, Parameters
from lamarckian.nets.layers import Activation, Initialization, Parts, linear
from lamarckian.nets.memory import Memories, MemorySettings
from lamarckian.nets.units import Attention, Embedding, Names, Pooling, attending

Sizes = tuple[Annotated[int, Field(gt=0)], ...]

NO_STATE: Mapping[str, Tensor] = MappingProxyType({})


class Outputs(NamedTuple):
    """heads: each head's parameters. value: `[B, R]`. state: recurrent state `[B, …]` after the last step. All float32."""

    heads: dict[str, Parameters]
    value: Tensor
    state: dict[str, Tensor]


class Policy(nn.Module):
    """A policy of `role`: its inputs encoded and joined, a trunk, perhaps a memory, a head for each of its heads, a critic.

    hidden: layers of the trunk.
    vectors: layers that each `Vector` passes before it is joined with the others; none: it goes straight in.
    convolutions: what each `Image` passes: a preset, or the layers one by one; each followed by ReLU.
    units, pooling: what each of the `Units` passes, and how they are then pooled.
    embeddings: `Units` of which a column is the unit's type; see `Embedding`.
    attention, key_size: discrete heads that choose among units: head → the `Units`, or several, of which it does, and the
        size of queries and keys; see `Attention`. The head's first actions are the units, in order; those beyond, such as
        "none", are like those of any other head.
    memory: a recurrent layer behind the trunk; None: the policy is feed-forward.
    activation: follows every layer but the convolutions and the outputs.
    critic: whether it shares all but its output layer with the actor, or nothing at all.
    initialization, policy_gain: how weights are drawn, and how large those of the heads are: small, so that the first
        policy is close to uniform whatever it sees.
    log_std, initial_log_std, squashed: of continuous heads, see `GaussianHead`.

    The weights come from torch's global generator; `build` seeds it.
    """

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
        activation: Activation = "tanh",
        critic: Literal["shared", "separate"] = "shared",
        initialization: Initialization = "orthogonal",
        policy_gain: Annotated[float, Field(gt=0)] = 0.01,
        log_std: Literal["parameter", "network"] = "parameter",
        initial_log_std: float = 0.0,
        squashed: bool = False,
    ) -> None:
        super().__init__()
        self.role = role

        def encoder() -> Encoder:
            return Encoder(
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

        self.encoder = encoder()
        self.critic_encoder = encoder() if critic == "separate" else None
        names = ("actor",) if critic == "shared" else ("actor", "critic")
        self.memories = Memories(names, self.encoder.size, memory, initialization)
        size = self.memories.size
        heads = Parts()
        chosen = attending(role, attention)
        for name, space in role.heads.items():
            if isinstance(space, Discrete):
                attends = None
                if name in chosen:
                    among = self.encoder.units(chosen[name])
                    attends = Attention(size, among, key_size, initialization, policy_gain)
                heads[name] = CategoricalHead(space, size, initialization, policy_gain, attends)
            else:
                heads[name] = GaussianHead(
                    name,
                    space,
                    size,
                    initialization,
                    policy_gain,
                    log_std=log_std,
                    initial_log_std=initial_log_std,
                    squashed=squashed,
                )
        self.heads: Mapping[str, Distribution] = heads  # type: ignore[assignment]
        self.critic = linear(size, len(role.rewards), initialization, 1.0)

    @property
    def state(self) -> dict[str, ArraySpec]:
        """The recurrent state of one controller, by name; none where the policy is feed-forward."""
        return self.memories.state

    def forward(self, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor] = NO_STATE, first: Tensor | None = None) -> Outputs:
        """inputs: the arrays of `Role.arrays()`, each `[B, …]`; state: as `self.state` says, each `[B, …]`.

        first: bool `[T, B]`, true where a match begins: then inputs are `[T·B, …]`, T consecutive steps of each controller, time-major, and
            so are heads and value; `state` is from before the first of these steps.
        The encoders compute in autocast's type where that is on; the outputs are float32 always.
        """
        features, units = self.encoder(inputs)
        criticised = None if self.critic_encoder is None else self.critic_encoder(inputs).features
        with torch.autocast(features.device.type, enabled=False):
            after: dict[str, Tensor] = {}
            features = self.memories.recall("actor", features, state, first, after)
            criticised = features if criticised is None else self.memories.recall("critic", criticised, state, first, after)
            return Outputs({name: head(features, units) for name, head in self.heads.items()}, self.critic(criticised), after)


def build(network: Callable[..., Policy], role: Role, seed: int, **settings: object) -> Policy:
    """`network(role, **settings)` with weights drawn from `seed`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(role, **settings)


def example(role: Role, size: int) -> dict[str, Tensor]:
    """Inputs of `role` as a batch of `size`, all zero."""
    return {name: torch.zeros(size, *spec.shape, dtype=getattr(torch, spec.dtype.name)) for name, spec in role.arrays().items()}


def parameter_count(policy: nn.Module) -> int:
    return sum(parameter.numel() for parameter in policy.parameters())


def summary(policy: nn.Module) -> str:
    """A table of the parameters: name, shape, count; and their sum."""
    rows = [(name, "×".join(map(str, p.shape)) or "scalar", f"{p.numel():,}") for name, p in policy.named_parameters()]
    rows.append(("all", "", f"{parameter_count(policy):,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {count:>{widths[2]}}" for name, shape, count in rows)
