"""Large arrays in a file: what safetensors reads too, and damage is named."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from lamarckian.errors import CheckpointError
from lamarckian.record.arrays import read_arrays, write_arrays

ARRAYS = {
    "bool": np.array([True, False, True]),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5),
    "frames": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "counts": np.array([-1, 1 << 40]),
    "action": np.array([[1], [2]], np.int32),
}


def test_everything_comes_back_as_it_was_and_safetensors_reads_it(tmp_path):
    written = write_arrays(tmp_path / "a.safetensors", ARRAYS)
    assert written["size_bytes"] == (tmp_path / "a.safetensors").stat().st_size
    for found in (read_arrays(tmp_path / "a.safetensors", **written), load_file(tmp_path / "a.safetensors")):
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            assert found[name].dtype == array.dtype and found[name].shape == array.shape and np.array_equal(found[name], array)


def test_damage_is_named(tmp_path):
    path = tmp_path / "a.safetensors"
    written = write_arrays(path, ARRAYS)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match="is cut off"):
        read_arrays(path, **written)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="checksum"):
        read_arrays(path, **written)
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot read"):
        read_arrays(path, **written)
