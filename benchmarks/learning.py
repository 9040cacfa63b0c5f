"""Trains a recipe with several seeds, evaluates each, and prints every seed's score and minutes of training."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import figure

COMMAND = [sys.executable, "-c", "from lamarckian.cli import main; main()"]


def learn(recipe: str, overrides: list[str], seed: int, matches: int, folder: str) -> tuple[float, float, int]:
    """Mean score of the best checkpoint over `matches`, minutes of training, and steps."""
    run = f"{folder}/{seed}"
    train = [*COMMAND, "train", recipe, *overrides, "--run", run, "--seed", str(seed), "--quiet", "--no-video"]
    subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
    evaluate = [*COMMAND, "evaluate", run, "--matches", str(matches), "--seed", "1", "--json"]
    report = json.loads(subprocess.run(evaluate, check=True, stdout=subprocess.PIPE).stdout)
    last = json.loads(Path(run, "metrics.jsonl").read_text().splitlines()[-1])
    return report["score_mean"], last["minutes"], last["steps"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--matches", type=int, default=100)
    arguments = parser.parse_args()
    scores, minutes = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seeds):
            score, spent, steps = learn(arguments.recipe, arguments.overrides, seed, arguments.matches, folder)
            print(
                json.dumps({"recipe": arguments.recipe, "seed": seed, "score": score, "minutes": round(spent, 2), "steps": steps}),
                flush=True,
            )
            scores.append(score)
            minutes.append(spent)
    figure(f"{arguments.recipe}.score", scores, "mean of matches", digits=4)
    figure(f"{arguments.recipe}.minutes", minutes, "minutes", digits=2)


if __name__ == "__main__":
    main()
