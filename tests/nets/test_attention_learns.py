"""A game that needs attention: which of the units has the largest feature? Played through the exported graph, learnt by PPO."""

import numpy as np
import torch

from lamarckian.actor.inference import Inference
from lamarckian.actor.sampling import Sampler
from lamarckian.data.fragment import layout
from lamarckian.evaluate.plan import export
from lamarckian.mdp import Discrete, Role, Units
from lamarckian.nets import Policy, build, flatten
from lamarckian.rl import PPO

T, B, U = 8, 64, 6
ROLE = Role({"units": Units(U, 2)}, {"target": Discrete(U)})


def best(inputs: dict[str, np.ndarray]) -> np.ndarray:
    return np.where(inputs["units.valid"], inputs["units"][..., 0], -np.inf).argmax(-1)


def draw(generator: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    valid = generator.random((size, U)) < 0.8
    valid[:, 0] |= ~valid.any(-1)
    return {"units": generator.uniform(-1, 1, (size, U, 2)).astype(np.float32), "units.valid": valid}


def learnt(updates: int, **settings) -> float:
    """How often the greedy policy chooses rightly after `updates` of one-step matches."""
    policy = build(Policy, ROLE, 0, hidden=(32,), units=(32,), pooling="mean", **settings)
    ppo = PPO(policy, ROLE, PPO.Settings(learning_rate=3e-3, entropy_weight=0.001, minibatches=2), dtype="float32")
    infer, sampler, generator = Inference(export(policy)), Sampler(ROLE), np.random.default_rng(0)
    batch = layout(ROLE, T, B).empty()
    for name in ("truncated", "bootstrap", "missed"):
        batch[name][:] = 0
    batch["terminated"][:] = batch["learn"][:] = True
    for version in range(updates):
        infer.load(flatten(policy))
        inputs = draw(generator, (T + 1) * B)
        outputs = infer(inputs)
        actions, log_probs = sampler(outputs, {}, generator)
        for name, x in inputs.items():
            batch[f"inputs.{name}"][:] = x.reshape(T + 1, B, *x.shape[1:])
        batch["value"][:] = outputs["value"].reshape(T + 1, B, 1)
        batch["action.target"][:] = actions["target"].reshape(T + 1, B)[:T]
        batch["log_prob.target"][:] = log_probs["target"].reshape(T + 1, B)[:T]
        batch["reward"][:] = (actions["target"] == best(inputs)).reshape(T + 1, B, 1)[:T]
        batch["version"][:] = version
        ppo.update({name: torch.from_numpy(x) for name, x in batch.items()}, version, version / updates)
    infer.load(flatten(policy))
    inputs = draw(generator, 1000)
    chosen, _ = Sampler(ROLE, greedy=True)(infer(inputs), {}, generator)
    return float((chosen["target"] == best(inputs)).mean())


def test_the_largest_is_found_with_attention_and_not_without():
    assert learnt(20, attention={"target": "units"}) > 0.9
    # The pool does not know which unit is which, so chance is all there is: 1 of 6, or little more where few are valid.
    assert learnt(20) < 0.35
