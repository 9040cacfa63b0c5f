"""Shared memory without a name: nothing is left behind, however the processes that share it die."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
from pathlib import Path

from lamarckian.errors import MisuseError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of malloc.h
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class Block:
    """A block of memory that processes share by passing on its file descriptor (`subprocess`'s `pass_fds`).

    fd: the descriptor; -1 once closed.
    size_bytes: how much memory.
    buffer: the memory, writable. Arrays made over it stay valid after `close`; the memory goes when the last one goes.
    """

    def __init__(self, fd: int, size_bytes: int, owned: bool) -> None:
        self.fd = fd
        self.size_bytes = size_bytes
        self.buffer = memoryview(mmap.mmap(fd, size_bytes))
        self._owned = owned

    @classmethod
    def create(cls, size_bytes: int) -> Block:
        """Reserves `size_bytes` of zeros. Raises MisuseError when this machine has not that much to give."""
        if size_bytes < 1:
            raise MisuseError(f"a block of memory has at least 1 byte, not {size_bytes}")
        room = available_bytes()
        if size_bytes > room:
            raise MisuseError(f"{_mebibytes(size_bytes)} of shared memory are wanted, {_mebibytes(room)} are available")
        fd = anonymous_file()
        try:
            os.ftruncate(fd, size_bytes)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size_bytes)  # now or never: later, a page that is not there kills whoever touches it
            return cls(fd, size_bytes, owned=True)
        except OSError as error:
            os.close(fd)
            raise MisuseError(f"{_mebibytes(size_bytes)} of shared memory cannot be had: {error.strerror}") from error

    @classmethod
    def attach(cls, fd: int, size_bytes: int) -> Block:
        """The block that another process made; `fd` stays the caller's to close. Raises MisuseError when it is smaller."""
        there = os.fstat(fd).st_size
        if there < size_bytes:
            raise MisuseError(f"a block of {size_bytes} bytes is expected at descriptor {fd}, {there} bytes are there")
        return cls(fd, size_bytes, owned=False)

    def close(self) -> None:
        """Lets go of the memory; harmless when repeated."""
        if self._owned and self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.buffer = memoryview(b"")


def anonymous_file() -> int:
    """A descriptor of an empty file that has no name, in memory where the system can (Linux)."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("lamarckian")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def keep_pages() -> None:
    """Tells glibc to keep what is freed: a process calls this once, before it works in blocks of the same sizes again and again.

    Otherwise large blocks are given back to the kernel, and fresh pages, zeroed, are taken for the next: up to a third of the time of an
    update, and much of that which a fragment's way takes. Other C libraries are left alone.
    """
    if hasattr(os, "confstr") and "CS_GNU_LIBC_VERSION" in os.confstr_names:
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, 1 << 30)
        mallopt(_MMAP_THRESHOLD, 1 << 30)


def available_bytes() -> int:
    """How much memory can still be had, by the machine and by the container this process lives in."""
    import psutil  # only whoever creates a block needs it

    room = psutil.virtual_memory().available
    for folder, limit, usage in _CGROUPS:
        with contextlib.suppress(OSError, ValueError, KeyError):  # no such container, or one without a limit ("max")
            counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            reclaimable = int(counts["inactive_file"]) + int(counts["active_file"])
            used = int((folder / usage).read_text()) - reclaimable
            room = min(room, int((folder / limit).read_text()) - used)
    return max(room, 0)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"
