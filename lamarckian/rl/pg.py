"""Policy gradient over an episode buffer, as it placed StarCraft's buildings: unseen steps first, importance weights cut at 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from lamarckian import ops
from lamarckian.data.episodes import KEPT, EpisodeBuffer
from lamarckian.errors import RecipeError
from lamarckian.mdp import Role
from lamarckian.nets import Policy, evaluate
from lamarckian.nets.heads import valid_counts
from lamarckian.rl.actor_critic import ActorCritic, ActorCriticSettings, Loss, Step, behaviour_log_prob, largest, means, under

BUFFER = "buffer."


class PGSettings(ActorCriticSettings):
    """The settings of policy gradient, beside those of `ActorCriticSettings`.

    baseline: subtracts the critic's value from the return; without it nothing trains the critic, and a truncated episode counts as ended.
    entropy_weight, eta: λ = entropy_weight / (η + ln(n − 1)), for the n valid actions that a head had to choose among.
    replay: steps drawn in an update, in multiples of those that the batch has. max_uses: how often one is drawn.
    buffer_steps, open_bytes: see `EpisodeBuffer`.
    """

    baseline: bool = True
    entropy_weight: float = Field(default=1.0, ge=0)
    eta: float = Field(default=2.0, gt=0)
    replay: float = Field(default=1.0, gt=0)
    max_uses: int = Field(default=4, ge=1)
    buffer_steps: int = Field(default=65_536, ge=1)
    open_bytes: int = Field(default=1 << 30, ge=1)


class PG(ActorCritic[PGSettings]):
    """Fragments → versions, see `Algorithm`. The same seed and the same batches give the same versions, bit for bit.

    Nothing is learned from an episode before it is over. Each head has its own ratio and adds its own loss.

    | metric | mean over the update's steps, unless said otherwise |
    | --- | --- |
    | `loss.policy` | −min(π/μ, 1) A log π, summed over heads |
    | `loss.value`, `loss.value.<reward>` | summed over rewards; each, where there are several; with a baseline only |
    | `entropy.<head>` | nats, over the samples where the head is active |
    | `kl` | k3 estimate of KL(policy that acted ‖ policy now), summed over heads |
    | `weight.mean`, `ratio_max` | mean of min(π/μ, 1); the largest ratio of all |
    | `gradient_norm`, `learning_rate` | before clipping; of this update |
    | `return.mean` | of the samples' returns; each reward's; once |
    | `staleness.mean`, `staleness.max` | versions, over all samples drawn; once |
    | `samples`, `samples.stale`, `samples.unseen` | used; left out as stale; share of those drawn for the first time |
    | `buffer.steps`, `buffer.unseen`, `buffer.waiting` | that can be drawn; that never were; of episodes that are not over |
    | `buffer.dropped` | steps that made way before they were drawn, since the run was begun or resumed |
    | `time.forward_s`, `time.backward_s`, `time.step_s` | sums |
    """

    Settings = PGSettings
    axis = 0
    consecutive = True

    def __init__(self, policy: Policy, role: Role, settings: PGSettings, *, seed: int = 0, **options: Any) -> None:
        if policy.state:
            raise RecipeError("pg draws single steps, so it cannot train a recurrent network; ppo and impala can")
        super().__init__(policy, role, settings, seed=seed, **options)
        self._buffer = EpisodeBuffer(
            self._gamma.cpu().numpy(),
            bootstrap=settings.baseline,
            max_uses=settings.max_uses,
            steps=settings.buffer_steps,
            open_bytes=settings.open_bytes,
            seed=seed,
        )

    @property
    def discounts(self) -> dict[str, float]:
        """As of `ActorCritic`; none without a baseline."""
        return super().discounts if self.settings.baseline else {}

    def update(self, batch: Mapping[str, Tensor], version: int, progress: float) -> dict[str, float]:
        self._buffer.add({name: x.cpu().numpy() for name, x in batch.items()})
        steps = self._buffer.draw(round(self.settings.replay * batch["learn"].numel()))
        buffered = {
            "buffer.steps": len(self._buffer),
            "buffer.unseen": self._buffer.unseen,
            "buffer.waiting": self._buffer.waiting,
            "buffer.dropped": self._buffer.dropped,
        }
        drawn = _no_steps(batch) | {name: torch.from_numpy(x) for name, x in steps.items()}
        count = torch.tensor([len(drawn["uses"])])
        self.peers.add(count)
        if not count:
            return {"samples": 0, **buffered}
        drawn["learn"] = torch.ones(len(drawn["uses"]), dtype=torch.bool)
        return super().update(drawn, version, progress) | buffered

    def state_dict(self) -> dict[str, Tensor]:
        return super().state_dict() | {BUFFER + name: torch.from_numpy(x) for name, x in self._buffer.save().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict({name: x for name, x in state.items() if not name.startswith(BUFFER)})
        self._buffer.load({name: x.cpu().numpy() for name, x in under(state, BUFFER).items()})

    def _samples(self, batch: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Tensor | None, dict[str, float]]:
        """The steps that were drawn, `[K, …]`."""
        mask, metrics = self._mask(batch, version)
        if len(mask):
            metrics["samples.unseen"] = float((batch["uses"] == 0).float().mean())
            metrics |= self._by_reward("return.mean", batch["return"].mean(0).tolist())
        samples = {
            name: x for name, x in batch.items() if name == "return" or name.startswith(("inputs.", "legal.", "action.", "log_prob."))
        }
        return samples, None if bool(mask.all()) else mask.nonzero().squeeze(1), metrics

    def _loss(self, chunk: Mapping[str, Tensor], size: int, entropy_weight: float) -> Loss:
        settings, actions, legal = self.settings, under(chunk, "action."), under(chunk, "legal.")
        with self.precision.autocast(self.device):
            outputs = self.policy(self.precision.arrange(under(chunk, "inputs.")))
        evaluations = evaluate(self.role, self.policy.heads, outputs.heads, actions, legal)
        valid = valid_counts(self.role, outputs.heads, actions, legal)
        returns = chunk["return"]
        advantage = (returns - outputs.value.detach() if settings.baseline else returns) @ self._reward_weights
        loss = advantage.new_zeros(())
        terms: dict[str, Tensor] = {}
        ratios = []
        for name, evaluation in evaluations.items():
            active = torch.ones_like(advantage, dtype=torch.bool) if evaluation.active is None else evaluation.active
            ratio = ops.ratio(evaluation.log_prob, behaviour_log_prob(chunk[f"log_prob.{name}"], evaluation))
            policy_loss = -ops.policy_gradient(ratio, advantage, evaluation.log_prob).sum() / size
            choice = ops.choice_weight(valid[name], settings.eta) if name in valid else 1 / settings.eta
            loss = loss + policy_loss - entropy_weight * (choice * evaluation.entropy).sum() / size
            with torch.no_grad():
                terms[f"loss.policy.{name}"] = policy_loss.detach()
                terms[f"entropy.{name}"] = evaluation.entropy.sum() / size
                terms[f"kl.{name}"] = ops.kl_divergence(ratio).sum() / size
                terms[f"weight.{name}"] = (ratio.clamp(max=1) * active).sum() / size
                terms[f"active.{name}"] = active.sum() / size
                ratios.append(largest(ratio))
        if settings.baseline:
            value_loss = self.value_error()(outputs.value, returns).sum(0) / size
            loss = loss + settings.value_weight * value_loss.sum()
            terms |= self.term_by_reward("loss.value", value_loss)
        return Loss(loss, terms, torch.stack(ratios).max())

    def _summary(self, steps: list[Step]) -> dict[str, float]:
        weight, active = sum(means(steps, "weight.").values()), sum(means(steps, "active.").values())
        return super()._summary(steps) | {"weight.mean": weight / max(active, 1e-9)}


def _no_steps(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a draw of no steps at all has, of a buffer that has had none yet."""
    names = [name for name in batch if name == "version" or name.startswith(KEPT)]
    return {name: batch[name].flatten(0, 1)[:0].cpu() for name in names} | {"return": batch["reward"].flatten(0, 1)[:0].cpu()}
