"""Stable-Baselines3 PPO: how many environment steps a second it trains on."""

import meter
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from torch import nn

# What was fastest on two cores; `--set KEY=JSON` tries another.
OWN = {
    "pendulum": {"vec_env": "dummy", "rollout_threads": 1, "learning_threads": 2},
    "atari-pong": {"vec_env": "dummy", "rollout_threads": 1, "learning_threads": 2},
}


class Network(BaseFeaturesExtractor):
    """The task's network, shared by policy and value."""

    def __init__(self, space, settings: dict):
        super().__init__(space, settings["hidden"][-1])
        activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[settings["activation"]]
        layers = []
        channels = space.shape[0]
        for out, kernel, stride in settings.get("convolutions", ()):
            layers += [nn.Conv2d(channels, out, kernel, stride), activation()]
            channels = out
        layers.append(nn.Flatten())
        width = nn.Sequential(*layers)(torch.zeros(1, *space.shape)).shape[1]
        for out in settings["hidden"]:
            layers += [nn.Linear(width, out), activation()]
            width = out
        self.layers = nn.Sequential(*layers)

    def forward(self, observations):
        return self.layers(observations)


class Measure(BaseCallback):
    """Ticks the meter where an update has ended and the next rollout starts; sets how many threads each uses."""

    def __init__(self, measured: meter.Meter, own: dict):
        super().__init__()
        self.measured = measured
        self.own = own
        self.over = False

    def _on_rollout_start(self) -> None:
        self.over = self.measured.tick(self.num_timesteps)
        torch.set_num_threads(self.own["rollout_threads"])

    def _on_rollout_end(self) -> None:
        torch.set_num_threads(self.own["learning_threads"])

    def _on_step(self) -> bool:
        return not self.over


def main() -> None:
    args = meter.arguments()
    meter.keep_to(args.cores)
    settings = args.settings
    own = OWN[args.task] | args.own
    kind = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[own["vec_env"]]
    env = kind([lambda: meter.make_env(args.task)] * settings["envs"])
    model = PPO(
        "CnnPolicy" if "convolutions" in settings else "MlpPolicy",
        env,
        n_steps=settings["batch"] // settings["envs"],
        batch_size=settings["batch"] // settings["minibatches"],
        n_epochs=settings["epochs"],
        learning_rate=settings["learning_rate"],
        gamma=settings["gamma"],
        gae_lambda=settings["gae_lambda"],
        policy_kwargs={"features_extractor_class": Network, "features_extractor_kwargs": {"settings": settings}, "net_arch": []},
        device="cpu",
    )
    measured = meter.Meter(args, own)
    model.learn(total_timesteps=10**9, callback=Measure(measured, own))
    env.close()
    measured.print()


if __name__ == "__main__":
    main()
