"""Arrays in a file that may be as large as memory: safetensors, written and read without a second copy of them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lamarckian.errors import CheckpointError

TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "float32": "F32", "float64": "F64",
}  # fmt: skip
CHUNK_BYTES = 1 << 24


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Writes C-contiguous `arrays` to `path`, down to the disk; its `size_bytes` and `crc32`.

    The format: https://github.com/huggingface/safetensors#format. Raises OSError where that cannot be done.
    """
    header, end = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    crc32 = 0
    with path.open("wb", buffering=0) as file:
        for block in (np.frombuffer(len(text).to_bytes(8, "little") + text, np.uint8), *arrays.values()):
            rest = block.reshape(-1).view(np.uint8)
            while rest.size:
                done = file.write(rest[:CHUNK_BYTES].data)
                crc32 = zlib.crc32(rest[:done].data, crc32)
                rest = rest[done:]
        os.fsync(file.fileno())
    return {"size_bytes": 8 + len(text) + end, "crc32": crc32}


def read_arrays(path: Path, size_bytes: int, crc32: int) -> dict[str, np.ndarray]:
    """The arrays in `path`, which stay there until they are looked at. Raises CheckpointError where the file is not as it was written."""
    try:
        if path.stat().st_size != size_bytes:
            raise CheckpointError(f"{path} is cut off: it has {path.stat().st_size} bytes of {size_bytes}")
        found = 0
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                found = zlib.crc32(chunk, found)
            if found != crc32:
                raise CheckpointError(f"{path} is damaged: its checksum does not match")
            file.seek(0)
            start = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(start))
        content = np.memmap(path, np.uint8, "r")[8 + start :]
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    types = {short: name for name, short in TYPES.items()}
    return {
        name: content[slice(*entry["data_offsets"])].view(types[entry["dtype"]]).reshape(entry["shape"]) for name, entry in header.items()
    }
