import numpy as np
import torch

from lamarckian.transport.bfloat16 import rounded, widened


def test_rounding_by_hand():
    flat = np.array([1.0, 1.00390625, 1.01171875, -1.005, 3.4e38, 0.0, -0.0, np.inf], np.float32)
    halves = widened(rounded(flat))
    np.testing.assert_array_equal(halves, np.array([1.0, 1.0, 1.015625, -1.0078125, np.inf, 0.0, -0.0, np.inf], np.float32))
    assert np.signbit(halves[6])


def test_rounding_is_that_of_torch_for_all_bit_patterns_sampled():
    bits = np.concatenate([np.arange(0, 2**32, 9973, dtype=np.uint64).astype(np.uint32), np.array([0x7F800001, 0xFFFFFFFF], np.uint32)])
    flat = bits.view(np.float32)
    ours, theirs = widened(rounded(flat)), torch.from_numpy(flat).bfloat16().float().numpy()
    finite = ~np.isnan(flat)
    np.testing.assert_array_equal(ours[finite].view(np.uint32), theirs[finite].view(np.uint32))
    assert np.isnan(ours[~finite]).all()
