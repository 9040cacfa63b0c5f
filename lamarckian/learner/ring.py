"""Learners in processes of their own add up what they have computed, by torch.distributed: a ring all-reduce.

Each learner passes on a part of the sum to its neighbour, so that each sends and receives about twice the tensor, however many there
are. Nothing is encrypted or proven: rank 0 listens at its address and nowhere else, but whoever reaches that may join.
"""

from __future__ import annotations

import importlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from lamarckian.errors import RingError

MEET_S = 120.0
"""How long learners wait for each other at first: each starts when its machine has got so far."""

GRACE_S = 2.0
"""How long a learner that finds the ring broken waits for the others to find it, too: who does not is lost, or hangs."""

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


class Ring:
    """The `Peers` of a learner, as a context manager; one in a process at a time. All make the same calls in turn, and each waits for all.

    rank: which of the `size` learners this is; 0 listens at `host` and `port`, an address of its machine, and the others come there. All
        use the network interface by which they reach it, unless `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME` name one.
    timeout_s: how long a call waits for the others: longer than a learner ever works between two, such as for a checkpoint.
    device: what is on a GPU is added by NCCL, if this is one; all else by gloo.

    Once a learner is lost or silent, every call of the others raises RingError, and their ring is of no more use. So does a ring that does
    not come together within `MEET_S`.
    """

    def __init__(self, rank: int, size: int, host: str, port: int, timeout_s: float, device: str = "cpu") -> None:
        self.rank, self.size = rank, size
        self._where = f"learner {rank} of {size}, ring at {host}:{port}"
        self._timeout_s = timeout_s
        self._spent_s = 0.0
        on_gpu = torch.device(device).type == "cuda"
        importlib.import_module("torch._dynamo")  # the first optimiser does; while the group is there, it would keep that for good
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # The store would listen at all addresses of the machine; it takes a socket that does not, but not with libuv.
            listener = None if rank else socket.create_server(address[:2], family=family).detach()
            meet = timedelta(seconds=MEET_S)
            self._store = dist.TCPStore(host, port, size, not rank, meet, master_listen_fd=listener, use_libuv=False)
            with _network(family, address):
                backend, silence = "cpu:gloo,cuda:nccl" if on_gpu else "gloo", timedelta(seconds=timeout_s)
                dist.init_process_group(backend, store=self._store, rank=rank, world_size=size, timeout=silence)
                dist.all_reduce(torch.zeros(1, device=device))  # NCCL connects with the first call
        except (OSError, RuntimeError) as error:
            raise RingError(
                f"{self._where}: the learners did not come together: {_brief(error)}. All must be started within {MEET_S:g} s and reach "
                "each other; the address must be one of learner 0's machine, with a port that is free"
            ) from None

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, numbers: Tensor) -> None:
        """As `Peers.add`."""
        self._call(lambda: dist.all_reduce(numbers))

    def gather(self, data: bytes) -> list[bytes]:
        """What each learner gives, by rank."""
        lengths = self._gather(torch.tensor([len(data)]))
        padded = bytearray(max(1, *map(int, lengths)))
        padded[: len(data)] = data
        blocks = self._gather(torch.frombuffer(padded, dtype=torch.uint8))
        return [block.numpy().tobytes()[: int(length)] for block, length in zip(blocks, lengths, strict=True)]

    def spread(self, numbers: Tensor) -> None:
        """Replaces `numbers`, of the same shape and dtype at all, by those of rank 0."""
        self._call(lambda: dist.broadcast(numbers, src=0))

    def take_seconds(self) -> float:
        """Seconds spent in calls since this was last asked: on the way, and waiting for the others."""
        spent, self._spent_s = self._spent_s, 0.0
        return spent

    def close(self) -> None:
        """Leaves the ring, and ends torch's threads that hold tensors: a process that ends while these run may abort."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _gather(self, numbers: Tensor) -> list[Tensor]:
        gathered = [torch.empty_like(numbers) for _ in range(self.size)]
        self._call(lambda: dist.all_gather(gathered, numbers))
        return gathered

    def _call(self, collective: Callable[[], object]) -> None:
        started = time.perf_counter()
        try:
            collective()
        except RuntimeError as error:
            self.close()  # so that those notice who wait for this learner, and not for the one that is lost
            raise RingError(
                f"{self._where}: {self._missing()}, or was silent for {self._timeout_s:g} s: {_brief(error)}. Without it nothing can be "
                "learned, and this learner ends, too; resume the run to go on from its last checkpoint"
            ) from None
        finally:
            self._spent_s += time.perf_counter() - started

    def _missing(self) -> str:
        """Who is lost: those who do not say, in the store that rank 0 keeps, that they have found the ring broken."""
        missing = {rank for rank in range(self.size) if rank != self.rank}
        asked = threading.Event()

        def ask() -> None:
            with suppress(RuntimeError):
                self._store.set(f"broken/{self.rank}", "")
                until = time.monotonic() + GRACE_S
                while missing and time.monotonic() < until:
                    missing.difference_update([rank for rank in missing if self._store.check([f"broken/{rank}"])])
                    time.sleep(0.05)
                asked.set()

        # In a thread: where rank 0 hangs, the store never answers.
        threading.Thread(target=ask, name="missing", daemon=True).start()
        asked.wait(2 * GRACE_S)
        if not asked.is_set() and 0 in missing:
            return "learner 0 is lost"
        if not missing:
            return "the connection to another learner is lost"
        return f"learner {' or '.join(map(str, sorted(missing)))} is lost"


@contextmanager
def _network(family: int, address: tuple[object, ...]) -> Iterator[None]:
    """Lets torch use the network interface that leads to `address`, where the environment does not name one, and wait for NCCL in calls."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own = probe.getsockname()[0]
    names = [name for name, addresses in psutil.net_if_addrs().items() if any(entry.address == own for entry in addresses)]
    settings = {**{variable: name for variable in INTERFACES for name in names}, "TORCH_NCCL_BLOCKING_WAIT": "1"}
    ours = {variable: value for variable, value in settings.items() if variable not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for variable in ours:
            del os.environ[variable]


def _brief(error: Exception) -> str:
    """What torch says, without where in its sources and what it advises."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    text = text.rpartition(".cc:")[2].partition("] ")[2] or text
    return text.partition(". This")[0]
