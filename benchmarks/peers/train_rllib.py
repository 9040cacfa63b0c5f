"""RLlib PPO (new API stack): how many environment steps a second it trains on."""

import logging
from pathlib import Path

import meter
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env
from torch import nn

# What was fastest on two cores; `--set KEY=JSON` tries another.
OWN = {
    "pendulum": {"env_runners": 2, "learner_threads": 2},
    "atari-pong": {"env_runners": 2, "learner_threads": 2},
}


class Convolutions(TorchRLModule, ValueFunctionAPI):
    """The Atari network, shared by policy and value. RLlib's own takes no bytes: it would need frames as floats, four times the size."""

    def setup(self) -> None:
        settings = self.model_config
        channels, height, width = self.observation_space.shape
        layers = []
        for out, kernel, stride in settings["convolutions"]:
            layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
            channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        size = channels * height * width
        layers.append(nn.Flatten())
        for out in settings["hidden"]:
            layers += [nn.Linear(size, out), nn.ReLU()]
            size = out
        self.trunk = nn.Sequential(*layers)
        self.policy = nn.Linear(size, int(self.action_space.n))
        self.value = nn.Linear(size, 1)

    def _forward(self, batch, **kwargs):
        embeddings = self.trunk(batch[Columns.OBS].float() / 255)
        return {Columns.ACTION_DIST_INPUTS: self.policy(embeddings), Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch, embeddings=None):
        if embeddings is None:
            embeddings = self.trunk(batch[Columns.OBS].float() / 255)
        return self.value(embeddings).squeeze(-1)


def network(settings: dict) -> dict:
    if "convolutions" in settings:
        model = {"convolutions": settings["convolutions"], "hidden": settings["hidden"]}
        return {"rl_module_spec": RLModuleSpec(module_class=Convolutions, model_config=model)}
    return {
        "model_config": DefaultModelConfig(
            fcnet_hiddens=settings["hidden"],
            fcnet_activation=settings["activation"],
            head_fcnet_hiddens=[],
            vf_share_layers=True,
        )
    }


def configuration(args, own: dict) -> PPOConfig:
    settings = args.settings
    runners = own["env_runners"]
    task = args.task
    register_env(task, lambda config: meter.make_env(task))
    return (
        PPOConfig()
        .environment(task)
        .framework("torch")
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=settings["envs"] // max(1, runners))
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=settings["batch"],
            minibatch_size=settings["batch"] // settings["minibatches"],
            num_epochs=settings["epochs"],
            lr=settings["learning_rate"],
            gamma=settings["gamma"],
            lambda_=settings["gae_lambda"],
        )
        .rl_module(**network(settings))
    )


def main() -> None:
    args = meter.arguments()
    meter.keep_to(args.cores)
    own = OWN[args.task] | args.own
    torch.set_num_threads(own["learner_threads"])
    ray.init(
        num_cpus=own["env_runners"] + 1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=1 << 30,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).resolve().parent)}},  # for `meter`
    )
    algorithm = configuration(args, own).build_algo()
    measured = meter.Meter(args, own)
    steps = 0
    while not measured.tick(steps):
        steps = int(algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"])
    algorithm.stop()
    ray.shutdown()
    measured.print()


if __name__ == "__main__":
    main()
