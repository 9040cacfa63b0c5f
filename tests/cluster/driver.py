"""A process that joins a Ray cluster, for the tests to disturb: `driver.py ADDRESS`.

Prints "ready", the process ids of a child and of its keeper, and what SIGTERM does. On SIGINT it kills the keeper, waits until it is
told of that, and leaves.
"""

import os
import signal
import sys
import threading
import time

import psutil

from lamarckian.cluster.ray import RayCluster


def main() -> None:
    asked = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: asked.set())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with RayCluster(sys.argv[1]) as cluster:
        child = cluster.start("actor", "children:sleep", {})
        keeper = psutil.Process(child.pid).ppid()
        print("ready", child.pid, keeper, signal.getsignal(signal.SIGTERM).name, flush=True)
        while not asked.wait(0.1):
            pass
        time.sleep(0.5)
        print(cluster.poll(), psutil.pid_exists(child.pid), flush=True)
        os.kill(keeper, signal.SIGKILL)
        while not (exits := cluster.poll()):
            time.sleep(0.1)
        time.sleep(1.0)  # Ray says things late
        print(exits[0].describe(), flush=True)


if __name__ == "__main__":
    main()
