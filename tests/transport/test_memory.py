import os
import subprocess
import sys

import numpy as np
import pytest

from lamarckian.errors import MisuseError
from lamarckian.transport import memory
from lamarckian.transport.memory import Block, anonymous_file

CHILD = """
import sys
from lamarckian.transport.memory import Block
block = Block.attach(int(sys.argv[1]), 4096)
assert bytes(block.buffer[:5]) == b"hello"
block.buffer[:5] = b"world"
"""

KEEPER = """
import resource, sys
from lamarckian.transport.memory import keep_pages
if sys.argv[1] == "keep":
    keep_pages()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(40 << 20)
before = faults()
for _ in range(10):
    bytearray(40 << 20)
print(faults() - before)
"""


def share(block: Block) -> None:
    subprocess.run([sys.executable, "-c", CHILD, str(block.fd)], pass_fds=[block.fd], check=True, timeout=20)


def test_a_child_sees_and_changes_the_block():
    block = Block.create(4096)
    block.buffer[:5] = b"hello"
    share(block)
    assert bytes(block.buffer[:5]) == b"world"


def test_without_memfd_a_nameless_file_serves(monkeypatch, tmp_path):
    monkeypatch.delattr(memory.os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    block = Block.create(4096)
    block.buffer[:5] = b"hello"
    share(block)
    assert bytes(block.buffer[:5]) == b"world"
    assert not list(tmp_path.iterdir())


def test_arrays_outlive_the_block():
    block = Block.create(1 << 20)
    array = np.ndarray(1 << 17, np.int64, block.buffer)
    fd = block.fd
    block.close()
    block.close()
    array[:] = 7
    assert array.sum() == 7 << 17
    with pytest.raises(OSError):
        os.fstat(fd)


def test_more_than_there_is_is_refused():
    with pytest.raises(MisuseError, match=r"MiB of shared memory are wanted, .* MiB are available"):
        Block.create(1 << 50)
    with pytest.raises(MisuseError, match="at least 1 byte"):
        Block.create(0)


def test_a_container_limits_what_there_is(monkeypatch, tmp_path):
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 3000\nactive_file 1000\n")
    (tmp_path / "memory.current").write_text("9000\n")
    monkeypatch.setattr(memory, "_CGROUPS", ((tmp_path, "memory.max", "memory.current"),))
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() > 1 << 20
    (tmp_path / "memory.max").write_text("12000\n")
    assert memory.available_bytes() == 12000 - (9000 - 3000 - 1000)
    with pytest.raises(MisuseError, match="are available"):
        Block.create(8000)


def test_a_smaller_block_is_not_attached():
    fd = anonymous_file()
    os.ftruncate(fd, 100)
    with pytest.raises(MisuseError, match=r"101 bytes .* 100 bytes"):
        Block.attach(fd, 101)
    os.close(fd)


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", {}), reason="glibc alone is told")
def test_memory_that_is_freed_is_kept():
    faults = {
        told: int(subprocess.run([sys.executable, "-c", KEEPER, told], capture_output=True, check=True, timeout=20).stdout)
        for told in ("keep", "give back")
    }
    assert faults["keep"] < 1000  # of 10 blocks of 10,240 pages each
    assert faults["give back"] > 10_000
