"""Starts a process on each machine of a Ray cluster, also on those that join: `follower.py ADDRESS`. Says what happens, a line each.

The lines: `started MACHINE, PID` and `ended MACHINE: why`.
"""

import sys
import time

from lamarckian.cluster.ray import RayCluster


def main() -> None:
    known: set[str] = set()
    with RayCluster(sys.argv[1]) as cluster:
        while True:
            for exit in cluster.poll():
                print(f"ended {exit.name}: {exit.describe()}", flush=True)
                known.discard(exit.name)
            machines = {machine.name for machine in cluster.machines()}
            for name in sorted(machines - known):
                if name not in known:
                    print(f"started {name}, {cluster.start(name, 'children:sleep', {}, machine=name).pid}", flush=True)
            known |= machines
            time.sleep(0.2)


if __name__ == "__main__":
    main()
