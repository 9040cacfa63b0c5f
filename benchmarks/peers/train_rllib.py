"""RLlib's PPO, APPO, IMPALA and DQN (new API stack): how many environment steps a second they train on."""

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import meter
import ray
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.dqn_catalog import DQNCatalog
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT, Encoder
from ray.rllib.core.models.configs import ModelConfig
from ray.rllib.core.models.torch.base import TorchModel
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env
from torch import nn
from vector_pong import VectorPong

# What was fastest on two cores; `--set KEY=JSON` tries another. fragment: steps of each environment that a runner sends
# at a time; wait_s: how long the driver waits for them before it looks at the learner. envs_per_runner: where the runners do not share the
# task's environments.
IN_TURN = {"env_runners": 2, "learner_threads": 2}
ASYNCHRONOUS = {
    "pendulum": {"env_runners": 2, "learner_threads": 1, "fragment": 128, "wait_s": 0.05},
    "atari-pong": {"env_runners": 2, "learner_threads": 1, "fragment": 128, "wait_s": 0.05},
    "pong": {"env_runners": 2, "learner_threads": 1, "fragment": 64, "wait_s": 0.05},
}
REPLAYED = {
    "atari-pong": {"env_runners": 0, "learner_threads": 2, "fragment": 4},
    "pong": {"env_runners": 0, "learner_threads": 2, "fragment": 4},
}
OWN = {
    "ppo": {"pendulum": IN_TURN, "atari-pong": IN_TURN, "pong": IN_TURN},
    "appo": ASYNCHRONOUS,
    "impala": ASYNCHRONOUS,
    "dqn": REPLAYED,
    "dqn-plain": REPLAYED,
}
CONFIGS = {"ppo": PPOConfig, "appo": APPOConfig, "impala": IMPALAConfig, "dqn": DQNConfig, "dqn-plain": DQNConfig}


@dataclass
class ConvolutionsConfig(ModelConfig):
    """The Atari network's layers. RLlib's own take no bytes: they would need frames as floats, four times the size."""

    convolutions: tuple = ()
    hidden: tuple = ()

    @property
    def output_dims(self) -> tuple[int]:
        return (self.hidden[-1],)

    def build(self, framework: str) -> "Convolutions":
        return Convolutions(self)


class Convolutions(TorchModel, Encoder):
    def __init__(self, config: ConvolutionsConfig):
        TorchModel.__init__(self, config)
        Encoder.__init__(self, config)
        channels, height, width = config.input_dims
        layers = []
        for out, kernel, stride in config.convolutions:
            layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
            channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        size = channels * height * width
        layers.append(nn.Flatten())
        for out in config.hidden:
            layers += [nn.Linear(size, out), nn.ReLU()]
            size = out
        self.layers = nn.Sequential(*layers)

    def _forward(self, inputs, **kwargs):
        return {ENCODER_OUT: self.layers(inputs[Columns.OBS].float() / 255)}


def with_bytes(catalog: type) -> type:
    """A catalog whose encoder of frames takes bytes."""

    class Catalog(catalog):
        @classmethod
        def _get_encoder_config(cls, observation_space, model_config_dict, action_space=None):
            return ConvolutionsConfig(observation_space.shape, False, model_config_dict["conv_filters"], model_config_dict["fcnet_hiddens"])

    return Catalog


def network(args) -> dict:
    settings = args.settings
    model = DefaultModelConfig(
        conv_filters=settings.get("convolutions"),
        fcnet_hiddens=settings["hidden"],
        fcnet_activation=settings["activation"],
        head_fcnet_hiddens=[],
        vf_share_layers=True,
    )
    if "convolutions" not in settings:
        return {"model_config": model}
    catalog = with_bytes(DQNCatalog if args.algorithm.startswith("dqn") else PPOCatalog)
    return {"rl_module_spec": RLModuleSpec(catalog_class=catalog, model_config=asdict(model))}


def learning(args) -> dict:
    """The algorithm's own settings."""
    settings, runners = args.settings, args.own["env_runners"]
    if args.algorithm.startswith("dqn"):
        return {
            "train_batch_size_per_learner": settings["minibatch"],
            # RLlib counts one runner more than those that sample.
            "training_intensity": settings["replay_ratio"] * max(1, runners) / (runners + 1),
            "num_steps_sampled_before_learning_starts": settings["learning_starts"],
            "target_network_update_freq": settings["target_every"] * settings["minibatch"] // settings["replay_ratio"],
            "epsilon": settings["epsilon"],
            "double_q": settings["double"],
            "dueling": settings["dueling"],
            "n_step": settings["n_step"],
            "replay_buffer_config": {
                "type": "PrioritizedEpisodeReplayBuffer" if settings["prioritised"] else "EpisodeReplayBuffer",
                "capacity": settings["replay_samples"],
            }
            | ({"alpha": 0.6, "beta": 0.4} if settings["prioritised"] else {}),
        }
    batch = {"train_batch_size_per_learner": settings["batch"]}
    if args.algorithm == "ppo":
        minibatch = settings["batch"] // settings["minibatches"]
        return batch | {"minibatch_size": minibatch, "num_epochs": settings["epochs"], "lambda_": settings["gae_lambda"]}
    # Without a minibatch's size each batch is used whole and once: with the observations that only V-trace wants it is larger than
    # `batch`, and the rest would make another minibatch. APPO's circular buffer would use each batch twice.
    batch |= {"timeout_s_sampler_manager": args.own["wait_s"]}
    return batch | ({"use_circular_buffer": False} if args.algorithm == "appo" else {})


def make_env(task: str, context: dict):
    return VectorPong(context["num_envs"]) if task == "pong" else meter.make_env(task)


def configuration(args) -> AlgorithmConfig:
    settings = args.settings
    runners = args.own["env_runners"]
    task = args.task
    register_env(task, lambda context: make_env(task, context))
    return (
        CONFIGS[args.algorithm]()
        .environment(task)
        .framework("torch")
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=args.own.get("envs_per_runner", settings["envs"] // max(1, runners)),
            rollout_fragment_length=args.own.get("fragment", "auto"),
            gym_env_vectorize_mode="vector_entry_point" if task == "pong" else "sync",
        )
        .learners(num_learners=0)
        .training(lr=settings["learning_rate"], gamma=settings["gamma"], **learning(args))
        .reporting(min_time_s_per_iteration=0.5, min_sample_timesteps_per_iteration=0)
        .rl_module(**network(args))
    )


def main() -> None:
    args = meter.arguments(OWN)
    meter.keep_to(args.cores)
    torch.set_num_threads(args.own["learner_threads"])
    alone = {"num_cpus": args.own["env_runners"] + 1, "include_dashboard": False, "object_store_memory": 1 << 30}
    ray.init(
        **({} if "RAY_ADDRESS" in os.environ else alone),
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).resolve().parent)}},  # for what lies beside this script
    )
    algorithm = configuration(args).build_algo()
    measured = meter.Meter(args)
    steps = 0
    while not measured.tick(steps):
        # What IMPALA and APPO have sampled they train on: their queues block, and leave nothing out.
        steps = int(algorithm.train()["env_runners"].get("num_env_steps_sampled_lifetime", 0))
    algorithm.stop()
    ray.shutdown()
    measured.print()


if __name__ == "__main__":
    main()
