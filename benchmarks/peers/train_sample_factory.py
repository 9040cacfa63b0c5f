"""Sample Factory (APPO): how many environment steps a second it trains on."""

import logging
import math
import shutil
import sys
import tempfile

import gymnasium as gym
import meter
import numpy as np
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.encoder import ConvEncoderImpl, Encoder, MultiInputEncoder
from sample_factory.model.model_utils import nonlinearity
from sample_factory.train import make_runner
from sample_factory.utils.utils import log

# What was fastest on two cores; `--set KEY=JSON` tries another.
OWN = {
    "appo": {
        "pendulum": {"serial_mode": False, "async_rl": True, "batched_sampling": True, "num_workers": 1, "worker_num_splits": 2},
        "atari-pong": {"serial_mode": True, "async_rl": False, "batched_sampling": True, "num_workers": 1, "worker_num_splits": 1},
    }
}


class ToArray(gym.ObservationWrapper):
    """Gymnasium before 1.0 stacks frames lazily."""

    def observation(self, observation):
        return np.asarray(observation)


class VectorOfEnvs(gym.Env):
    """Gymnasium's vector of environments, as the many agents of one environment: what Sample Factory's batched sampling wants."""

    def __init__(self, task: str, envs: int):
        self.vector = gym.vector.SyncVectorEnv([lambda: meter.make_env(task)] * envs, copy=True)
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space
        self.num_agents = envs
        self.is_multiagent = True
        self.nothing = [{}] * envs

    def reset(self, *, seed=None, options=None):
        observations, _ = self.vector.reset(seed=seed, options=options)
        return observations, self.nothing

    def step(self, actions):
        observations, rewards, terminated, truncated, _ = self.vector.step(actions)
        return observations, rewards.astype(np.float32), terminated, truncated, self.nothing


def make_env(name, cfg=None, env_config=None, render_mode=None):
    if cfg.batched_sampling:
        return VectorOfEnvs(name, meter.SETTINGS[name]["envs"] // (cfg.num_workers * cfg.worker_num_splits))
    env = meter.make_env(name)
    return ToArray(env) if name == "atari-pong" else env


class Convolutions(Encoder):
    def __init__(self, cfg, space):
        super().__init__(cfg)
        settings = meter.SETTINGS["atari-pong"]
        filters, channels = [], space.shape[0]
        for out, kernel, stride in settings["convolutions"]:
            filters.append([channels, out, kernel, stride])
            channels = out
        self.layers = ConvEncoderImpl(space.shape, filters, settings["hidden"], nonlinearity(cfg))
        self.size = settings["hidden"][-1]

    def forward(self, observations):
        return self.layers(observations["obs"])

    def get_out_size(self) -> int:
        return self.size


def make_encoder(cfg, space):
    return Convolutions(cfg, space["obs"]) if cfg.env == "atari-pong" else MultiInputEncoder(cfg, space)


class Measure(AlgoObserver):
    def __init__(self, measured: meter.Meter, batch: int):
        self.measured = measured
        self.batch = batch

    def on_training_step(self, runner, training_iteration_since_resume: int) -> None:
        if self.measured.tick(training_iteration_since_resume * self.batch):
            runner.total_train_seconds = math.inf  # the runner checks it next, and never counts it itself


def configuration(args, folder: str):
    settings, own = args.settings, args.own
    chosen = {
        "algo": "APPO",
        "env": args.task,
        "experiment": "peer",
        "train_dir": folder,
        "device": "cpu",
        "log_to_file": False,
        "save_every_sec": 10**6,
        "save_best_every_sec": 10**6,
        "use_rnn": False,
        "rollout": settings["batch"] // settings["envs"],
        "batch_size": settings["batch"] // settings["minibatches"],
        "num_batches_per_epoch": settings["minibatches"],
        "num_epochs": settings["epochs"],
        "learning_rate": settings["learning_rate"],
        "gamma": settings["gamma"],
        "gae_lambda": settings["gae_lambda"],
        "nonlinearity": settings["activation"],
        "normalize_input": False,  # the other peers do neither
        "normalize_returns": False,
        "num_envs_per_worker": own["worker_num_splits"] if own["batched_sampling"] else settings["envs"] // own["num_workers"],
    }
    if args.task == "atari-pong":
        chosen["obs_scale"] = 255.0
    argv = [f"--{key}={value}" for key, value in (chosen | own).items()]
    if args.task == "pendulum":
        argv += ["--encoder_mlp_layers", *map(str, settings["hidden"])]
    parser, _ = parse_sf_args(argv)
    return parse_full_cfg(parser, argv)


def main() -> None:
    args = meter.arguments(OWN)
    meter.keep_to(args.cores)
    log.setLevel(logging.ERROR)
    register_env(args.task, make_env)
    global_model_factory().register_encoder_factory(make_encoder)
    folder = tempfile.mkdtemp(prefix="sample-factory-")
    try:
        measured = meter.Meter(args)
        _, runner = make_runner(configuration(args, folder))
        runner.register_observer(Measure(measured, args.settings["batch"]))
        if runner.init() != ExperimentStatus.SUCCESS or runner.run() != ExperimentStatus.SUCCESS:
            sys.exit("Sample Factory failed")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    measured.print()


if __name__ == "__main__":
    main()
