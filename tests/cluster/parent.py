"""A run in small, for the tests to kill: a pool, a board, children. Prints the children's process ids when all are at work."""

import os
import sys
import threading
import time

import numpy as np

from lamarckian.cluster.local import LocalCluster
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.pool import MemoryPool
from lamarckian.transport.versions import VersionBoard

if __name__ == "__main__":
    pool = MemoryPool.create(Layout(1, 1, {"value": Field(1, (), np.dtype(np.float32))}), 4)
    board = VersionBoard.create(1000)
    cluster = LocalCluster()
    read, write = os.pipe()
    pids = []
    for name in ("a", "b"):
        config = {"fd": pool.fd, "address": pool.address, "name": name, "ready": write}

        def start(name: str = name, config: dict = config) -> None:
            pids.append(cluster.start(name, "children:attend", config, [pool.fd, board.fd, write]).pid)

        thread = threading.Thread(target=start)  # so that the system does not tie it to this process; the lifeline must
        thread.start()
        thread.join()
    if sys.platform == "linux":
        pids.append(cluster.start("c", "children:hog", {"ready": write}, [write]).pid)
    while pool.statistics().lent < 4:
        pool.get(0.1)
    for _ in pids:
        os.read(read, 1)
    print(*pids, flush=True)
    time.sleep(60)
