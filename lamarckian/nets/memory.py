"""Recurrent layers: what a policy remembers from step to step of a match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from lamarckian.mdp import ArraySpec
from lamarckian.nets.layers import Initialization, Parts, initialize


class MemorySettings(BaseModel):
    """A recurrent layer of a network.

    truncation: gradients flow back through so many steps at most, and never beyond the start of a fragment; None: only that counts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["lstm", "gru"] = "lstm"
    size: Annotated[int, Field(gt=0)] = 128
    truncation: Annotated[int, Field(gt=0)] | None = None


class Memories(Parts):
    """The memories of a network by name, perhaps none. The state of a controller has each part of each: `<name>.<part>`."""

    def __init__(self, names: Sequence[str], size: int, settings: MemorySettings | None, initialization: Initialization) -> None:
        super().__init__()
        self.size = size if settings is None else settings.size
        if settings is not None:
            for name in names:
                self[name] = Memory(size, settings, initialization)

    @property
    def state(self) -> dict[str, ArraySpec]:
        """The recurrent state of one controller, by name; none where there are no memories."""
        spec = ArraySpec((self.size,), np.dtype(np.float32))
        return {f"{name}.{part}": spec for name, memory in self.items() for part in memory.parts}  # type: ignore[union-attr]

    def recall(self, name: str, features: Tensor, state: Mapping[str, Tensor], first: Tensor | None, after: dict[str, Tensor]) -> Tensor:
        """Features `[T·B, …]`, float32 now, as this memory changes them, see `Memory.forward`; adds to the state `after` the last step."""
        features = features if features.dtype == torch.float32 else features.float()  # an exported graph would keep a cast to the same
        if name not in self:
            return features
        memory: Memory = self[name]  # type: ignore[assignment]
        features, now = memory(features, {part: state[f"{name}.{part}"] for part in memory.parts}, first)
        after |= {f"{name}.{part}": x for part, x in now.items()}
        return features


class Memory(nn.Module):
    """An LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000) or a GRU (Cho et al. 2014), float32.

    LSTM: i, f, g, o = W x + U h + b;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c'). The bias of f begins at 1 (Jozefowicz et al. 2015).
    GRU: r, z from W x + U h + b;  n = tanh(W_n x + b_n + σ(r) (U_n h + d_n));  h' = (1 − σ(z)) n + σ(z) h.

    parts: the names of what is remembered, each `[size]` a controller: h, and c of an LSTM. All of it is 0 when a match begins.
    """

    def __init__(self, size: int, settings: MemorySettings, initialization: Initialization) -> None:
        super().__init__()
        self.size, self.parts = settings.size, ("h", "c") if settings.kind == "lstm" else ("h",)
        self._truncation = settings.truncation
        gates = 4 if settings.kind == "lstm" else 3
        self.seen = nn.Linear(size, gates * self.size)
        self.kept = nn.Linear(self.size, gates * self.size, bias=settings.kind == "gru")
        initialize(self.seen, initialization, 1.0)
        initialize(self.kept, "orthogonal", 1.0)
        if settings.kind == "lstm":
            nn.init.constant_(self.seen.bias[self.size : 2 * self.size], 1.0)

    def forward(self, x: Tensor, state: Mapping[str, Tensor], first: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """x `[T·B, …]`, time-major; state: by part `[B, size]`, before the first step. Gives h `[T·B, size]`, and the state after the last.

        first: bool `[T, B]`, whether a match begins with that step, so that nothing is remembered from before; None: T is 1, and none does.
        """
        seen = self.seen(x)
        now = tuple(state[part] for part in self.parts)
        if first is None:
            now = self._step(seen, now)
            return now[0], dict(zip(self.parts, now, strict=True))
        hidden = []
        begins = first.any(1).tolist()
        for t, seen_t in enumerate(seen.unflatten(0, tuple(first.shape)).unbind()):
            if self._truncation and t and t % self._truncation == 0:
                now = tuple(part.detach() for part in now)
            if begins[t]:
                now = tuple(part.masked_fill(first[t].unsqueeze(-1), 0.0) for part in now)
            now = self._step(seen_t, now)
            hidden.append(now[0])
        return torch.cat(hidden), dict(zip(self.parts, now, strict=True))

    def _step(self, seen: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        kept = self.kept(state[0])
        if len(state) == 2:
            i, f, g, o = (seen + kept).chunk(4, -1)
            c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c
        (seen_r, seen_z, seen_n), (kept_r, kept_z, kept_n) = seen.chunk(3, -1), kept.chunk(3, -1)
        z = torch.sigmoid(seen_z + kept_z)
        n = torch.tanh(seen_n + torch.sigmoid(seen_r + kept_r) * kept_n)
        return (n + z * (state[0] - n),)
