"""A program that judges candidates, to copy and change: it reads genes from a JSON file, and writes what they are worth to another.

It could be a game server in test mode, in any language. `python examples/knapsack_command.py` evolves what to pack, and starts this file
anew for each candidate; by hand it is `python examples/knapsack_command.py INPUT OUTPUT`.
"""

import json
import sys
from pathlib import Path

PROFITS = [24, 13, 23, 15, 16, 11, 28, 19, 31, 9]
WEIGHTS = [12, 7, 11, 8, 9, 6, 14, 10, 17, 4]
CAPACITY = 45


def judge(input_file: str, output_file: str) -> None:
    packed = json.loads(Path(input_file).read_text())["genome"]["packed"]  # a 1 for each item that is packed
    profit = sum(profit for profit, there in zip(PROFITS, packed, strict=True) if there)
    weight = sum(weight for weight, there in zip(WEIGHTS, packed, strict=True) if there)
    Path(output_file).write_text(json.dumps({"objectives": {"profit": profit}, "violation": max(0, weight - CAPACITY)}))


def evolve_packing() -> None:
    from lamarckian.ec.evolve import evolve
    from lamarckian.ec.ga import GA
    from lamarckian.evaluate.evaluator import Command

    problem = Command(
        [sys.executable, __file__, "{input}", "{output}"],
        genome={"packed": {"kind": "integer", "low": 0, "high": 1, "length": len(PROFITS)}},
        objectives=["profit"],
        minimise=False,
        timeout_s=10,
    )
    packed, profit = evolve(problem, GA(population=16), evaluations=100).best
    print(f"profit {profit:g} by packing items {[item for item, there in enumerate(packed['packed']) if there]}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        judge(*sys.argv[1:])
    else:
        evolve_packing()
