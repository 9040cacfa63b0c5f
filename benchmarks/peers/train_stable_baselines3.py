"""Stable-Baselines3's PPO and DQN: how many environment steps a second they train on."""

import meter
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from torch import nn
from vector_pong import VectorPong

# What was fastest on two cores; `--set KEY=JSON` tries another. rollout: steps of each environment between two updates of DQN.
OWN = {
    "ppo": {
        "pendulum": {"vec_env": "dummy", "rollout_threads": 1, "learning_threads": 2},
        "atari-pong": {"vec_env": "dummy", "rollout_threads": 1, "learning_threads": 2},
        "pong": {"vec_env": "vector", "rollout_threads": 1, "learning_threads": 2},
    },
    "dqn-plain": {
        "atari-pong": {"vec_env": "dummy", "rollout_threads": 1, "learning_threads": 2, "rollout": 4},
        "pong": {"vec_env": "vector", "rollout_threads": 1, "learning_threads": 2, "rollout": 1},
    },
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


class Vector(VecEnv):
    """A vector of Gymnasium's whose matches end and begin in the same step."""

    def __init__(self, vector):
        self.vector = vector
        self.nothing = [{}] * vector.num_envs
        super().__init__(vector.num_envs, vector.single_observation_space, vector.single_action_space)

    def reset(self):
        return self.vector.reset()[0]

    def step_async(self, actions) -> None:
        self.actions = actions

    def step_wait(self):
        observations, rewards, terminated, truncated, _ = self.vector.step(self.actions)
        return observations, rewards, terminated | truncated, self.nothing

    def close(self) -> None:
        self.vector.close()

    def get_attr(self, attr_name, indices=None):
        return [getattr(self.vector, attr_name)] * self.num_envs

    def set_attr(self, attr_name, value, indices=None) -> None:
        raise NotImplementedError

    def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


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


def make_env(args):
    envs = args.settings["envs"]
    if args.own["vec_env"] == "vector":
        return Vector(VectorPong(envs))
    kind = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[args.own["vec_env"]]
    return kind([lambda: meter.make_env(args.task)] * envs)


def learning(args) -> dict:
    """The algorithm's own settings."""
    settings = args.settings
    if args.algorithm == "ppo":
        return {
            "n_steps": settings["batch"] // settings["envs"],
            "batch_size": settings["batch"] // settings["minibatches"],
            "n_epochs": settings["epochs"],
            "gae_lambda": settings["gae_lambda"],
        }
    drawn = args.own["rollout"] * settings["envs"] * settings["replay_ratio"]
    return {
        "train_freq": args.own["rollout"],
        "gradient_steps": drawn // settings["minibatch"],
        "batch_size": settings["minibatch"],
        "buffer_size": settings["replay_samples"],
        "learning_starts": settings["learning_starts"],
        "target_update_interval": settings["target_every"] * settings["minibatch"] // settings["replay_ratio"],
        "exploration_initial_eps": settings["epsilon"],
        "exploration_final_eps": settings["epsilon"],
    }


def main() -> None:
    args = meter.arguments(OWN)
    meter.keep_to(args.cores)
    settings = args.settings
    env = make_env(args)
    model = {"ppo": PPO, "dqn-plain": DQN}[args.algorithm](
        "CnnPolicy" if "convolutions" in settings else "MlpPolicy",
        env,
        learning_rate=settings["learning_rate"],
        gamma=settings["gamma"],
        policy_kwargs={"features_extractor_class": Network, "features_extractor_kwargs": {"settings": settings}, "net_arch": []},
        device="cpu",
        **learning(args),
    )
    measured = meter.Meter(args)
    model.learn(total_timesteps=10**9, callback=Measure(measured, args.own))
    env.close()
    measured.print()


if __name__ == "__main__":
    main()
