import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lamarckian.transport.codec import MAX_ARRAYS, PROTOCOL, Codec, RefusedError

PREFIX = b"LMK" + bytes([PROTOCOL])


class Pair(msgspec.Struct, tag=True):
    number: int
    left: np.ndarray
    right: np.ndarray


class Many(msgspec.Struct, tag=True):
    arrays: dict[str, np.ndarray]


CODEC = Codec((Pair, Many), 1 << 20)


def frames(message):
    parts, size_bytes = CODEC.encode(message)
    sent = [part if isinstance(part, bytes) else part.tobytes() for part in parts]
    assert size_bytes == sum(map(len, sent))
    return sent


def test_arrays_are_frames_behind_a_header():
    header, left, right = frames(Pair(7, np.array([1, 2], "<i2"), np.array([[0.5]], "<f4")))
    assert header.startswith(PREFIX) and (left, right) == (b"\x01\x00\x02\x00", b"\x00\x00\x00\x3f")
    body = msgspec.msgpack.decode(header[4:])
    assert body == {"type": "Pair", "number": 7, "left": ["<i2", [2]], "right": ["<f4", [1, 1]]}


@given(hnp.arrays(st.sampled_from(["?", "u1", "<i8", "<f2", "<f4"]), hnp.array_shapes(min_dims=0, min_side=0, max_dims=4)))
def test_any_array_of_numbers_comes_as_it_went(array):
    came = CODEC.decode(frames(Many({"a": array, "b": array.T})))
    for name, sent in (("a", array), ("b", array.T)):
        assert came.arrays[name].dtype == sent.dtype and came.arrays[name].shape == sent.shape
        np.testing.assert_array_equal(came.arrays[name], sent)
        assert not came.arrays[name].flags.writeable


@pytest.mark.parametrize(
    "spec",
    [
        ["<f4", [3]],
        ["<f4", [-2, -1]],
        ["<f4", [2**62, 2**62]],
        ["|O", [1]],
        ["<f4", [2, 1], 0],
        ["<f4"],
        [4, [2]],
        "x",
        ["<U2", [1]],
        ["<f4", [1.5]],
    ],
)
def test_shapes_that_lie_are_refused(spec):
    body = PREFIX + msgspec.msgpack.encode({"type": "Many", "arrays": {"a": spec}})
    with pytest.raises(RefusedError, match="malformed"):
        CODEC.decode([body, bytes(8)])


def test_too_few_too_many_and_too_large_are_refused():
    header, *arrays = frames(Pair(1, np.zeros(2, "<f4"), np.zeros(2, "<f4")))
    for other in ([header], [header, arrays[0]], [header, *arrays, b""]):
        with pytest.raises(RefusedError, match="malformed"):
            CODEC.decode(other)
    for other in ([header, *arrays, bytes(1 << 20)], [header, *[b""] * (MAX_ARRAYS + 1)]):
        with pytest.raises(RefusedError, match="larger than"):
            CODEC.decode(other)
    for other in ([], [b""], [b"LM"], [b"XYZ\x01"]):
        with pytest.raises(RefusedError, match="not one of ours"):
            CODEC.decode(other)
    with pytest.raises(RefusedError, match="version 1 of the protocol, the other side another"):
        CODEC.decode([b"LMK\x02" + header[4:], *arrays])


def test_what_is_not_plain_is_not_sent():
    with pytest.raises(ValueError, match="larger than a message may be"):
        CODEC.encode(Many({"a": np.zeros(1 << 20)}))
    with pytest.raises(ValueError, match="larger than a message may be"):
        CODEC.encode(Many({str(index): np.zeros(1) for index in range(MAX_ARRAYS + 1)}))
    for array in (np.array([None]), np.array(["x"]), np.zeros(2, ">f4"), np.zeros(1, complex)):
        with pytest.raises(ValueError, match="plain data and arrays of"):
            CODEC.encode(Many({"a": array}))
