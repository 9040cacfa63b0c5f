"""What the three training scripts share: their command line, the task's settings and the measurement."""

import argparse
import json
import os
import sys
import time

import psutil

SETTINGS = {
    "pendulum": {
        "env": "Pendulum-v1",
        "envs": 64,
        "batch": 8192,
        "hidden": [256, 128],
        "activation": "tanh",
    },
    "atari-pong": {
        "env": "ALE/Pong-v5, 84x84 grey, frame skip 4, stack 4",
        "envs": 8,
        "batch": 1024,
        "convolutions": [[32, 4, 2], [32, 4, 2], [64, 4, 2], [64, 4, 2]],  # channels, kernel, stride; no padding
        "hidden": [256],
        "activation": "relu",
        "replay_samples": 20_000,
    },
    "pong": {
        "env": "Lamarckian's vector Pong against the tracker",
        "envs": 128,
        "batch": 8192,
        "hidden": [256, 128],
        "activation": "relu",
        "replay_samples": 100_000,
    },
}
COMMON = {"learning_rate": 3e-4, "gamma": 0.99}
ON_POLICY = {"epochs": 1, "minibatches": 1, "gae_lambda": 0.95}
REPLAY = {"minibatch": 256, "replay_ratio": 8, "learning_starts": 500, "target_every": 500, "epsilon": 0.05}
ALGORITHMS = {
    "ppo": ON_POLICY,
    "appo": ON_POLICY,
    "impala": {"minibatches": 1},
    "dqn": REPLAY | {"double": True, "dueling": True, "n_step": 3, "prioritised": True},
    "dqn-plain": REPLAY | {"double": False, "dueling": False, "n_step": 1, "prioritised": False},
}


def arguments(own: dict) -> argparse.Namespace:
    """The script's command line; `settings` are what all peers share, `own` the script's own of the algorithm and task.

    own: settings by algorithm and task.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=SETTINGS, required=True)
    parser.add_argument("--algorithm", choices=own, required=True)
    parser.add_argument("--seconds", type=float, default=30, help="length of the measured window")
    parser.add_argument("--warmup", type=float, default=5, help="seconds of training before the window")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=JSON", help="try another value of a peer's own setting")
    args = parser.parse_args()
    if args.task not in own[args.algorithm]:
        parser.error(f"{args.algorithm} has no settings for {args.task}; there are some for {', '.join(own[args.algorithm])}")
    args.settings = SETTINGS[args.task] | COMMON | ALGORITHMS[args.algorithm]
    args.own = own[args.algorithm][args.task] | {key: json.loads(value) for key, value in (item.split("=", 1) for item in args.set)}
    return args


def make_env(task: str):
    """One environment of `task`, with Gymnasium's own wrappers; for vector Pong see `vector_pong`."""
    import gymnasium as gym

    if task == "pendulum":
        return gym.make("Pendulum-v1")

    import ale_py.registration
    import cv2

    cv2.setNumThreads(1)
    if "ALE/Pong-v5" not in gym.registry:  # ale-py registers itself with Gymnasium 1 only
        ale_py.registration.register_v5_envs()
    env = gym.make("ALE/Pong-v5", frameskip=1)
    env = gym.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84, grayscale_obs=True)
    if hasattr(gym.wrappers, "FrameStackObservation"):
        return gym.wrappers.FrameStackObservation(env, 4)
    return gym.wrappers.FrameStack(env, 4)


def tree_cpu_seconds() -> float:
    """CPU seconds of this process and all below it, until now."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def machine_cpu_seconds() -> float:
    """CPU seconds of the whole machine, until now, with those that its host took away."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq + times.steal


class Meter:
    """Measures from one update's end to another's, `warmup` seconds after the first."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.settings = args.settings | args.own
        self.first = None
        self.start = None
        self.result = None

    def tick(self, steps: int) -> bool:
        """To be called at each update's end with the steps trained on so far; True once the window is over.

        Where samples go to a replay, `steps` are those sampled so far.
        """
        now = time.perf_counter()
        if self.first is None:
            if steps > self.settings.get("learning_starts", 0):
                self.first = now
        elif self.start is None:
            if now - self.first >= self.args.warmup:
                self.start = (now, steps, tree_cpu_seconds(), machine_cpu_seconds())
        elif self.result is None and now - self.start[0] >= self.args.seconds:
            seconds = now - self.start[0]
            cpu = tree_cpu_seconds() - self.start[2]
            others = machine_cpu_seconds() - self.start[3] - cpu
            self.result = {
                "steps": steps - self.start[1],
                "seconds": round(seconds, 3),
                "steps_per_second": round((steps - self.start[1]) / seconds, 1),
                "cpu_utilisation": round(cpu / (seconds * self.args.cores), 3),
                "others_utilisation": round(max(0.0, others) / (seconds * os.cpu_count()), 3),
                "settings": self.settings,
            }
        return self.result is not None

    def print(self) -> None:
        if self.result is None:
            sys.exit("training ended before the measured window did")
        sys.stdout.write(json.dumps(self.result) + "\n")
        sys.stdout.flush()


def keep_to(cores: int) -> None:
    """This process and those it starts keep to the first `cores` of the cores it may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
