import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.data.fragment import Field, Layout
from lamarckian.data.ledger import Meta
from lamarckian.data.packing import LEAST_SAVING, TRY_EVERY, Packer, unpack
from lamarckian.data.parcels import Parcel

ROUGH = np.random.default_rng(0).integers(0, 256, 4096, np.uint8)
SMOOTH = np.zeros(4096, np.uint8)


def parcel(packing: str, body: np.ndarray, size_bytes: int) -> Parcel:
    return Parcel(1, 0, "a", Meta(0, 0, 1), 0.0, 1, 1, size_bytes, packing, body)


def unpacked(packing: str, body: np.ndarray, size_bytes: int) -> np.ndarray:
    into = np.full(size_bytes, 77, np.uint8)
    unpack(parcel(packing, body, size_bytes), into)
    return into


@given(
    setting=st.sampled_from(["auto", "none", "lz4"]),
    parts=st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 200)), max_size=8),
)
def test_what_is_packed_comes_out_as_it_was(setting, parts):
    block = np.frombuffer(b"".join(part * repeats for part, repeats in parts), np.uint8)
    packing, body = Packer(setting).pack(block)
    assert body.dtype == np.uint8 and body.size <= block.size
    assert (unpacked(packing, body, block.size) == block).all()


@pytest.mark.parametrize("setting", ["auto", "none", "lz4"])
def test_what_is_packed_is_a_copy(setting):
    for block in (ROUGH.copy(), SMOOTH.copy()):
        before = block.copy()
        packing, body = Packer(setting).pack(block)
        block[:] = 99
        assert (unpacked(packing, body, block.size) == before).all()


def test_packing_goes_on_while_it_saves():
    packer = Packer("auto")
    assert [packer.pack(SMOOTH)[0] for _ in range(10)] == ["lz4"] * 10
    assert packer.pack(ROUGH)[0] == "none"
    tried = [packer.pack(SMOOTH)[0] for _ in range(TRY_EVERY + 5)]
    assert tried == ["none"] * (TRY_EVERY - 1) + ["lz4"] * 6


def test_what_hardly_saves_travels_as_it_is():
    little = ROUGH.copy()
    little[: int(LEAST_SAVING * 0.5 * little.size)] = 0
    assert Packer("auto").pack(little)[0] == "none"
    packing, body = Packer("lz4").pack(little)
    assert packing == "lz4" and body.size > (1 - LEAST_SAVING) * little.size
    assert Packer("lz4").pack(ROUGH)[0] == "none"
    assert Packer("none").pack(SMOOTH)[0] == "none"


@pytest.mark.parametrize("size_bytes", [0, 1, 4095, 4097, 1 << 20])
@pytest.mark.parametrize("packing", ["none", "lz4"])
def test_a_body_of_another_size_is_refused(packing, size_bytes):
    _, body = Packer(packing).pack(SMOOTH)
    with pytest.raises(ValueError, match=r"body is not|is to have"):
        unpacked(packing, body, size_bytes)


@given(data=st.data(), start=st.integers(0, 39), garbage=st.binary(max_size=40))
def test_a_body_that_was_tampered_with_never_writes_elsewhere(data, start, garbage):
    body = bytearray(Packer("lz4").pack(np.tile(ROUGH[:64], 20))[1])
    cut = data.draw(st.integers(0, len(body)))
    tampered = bytearray(body[:cut])
    tampered[start : start + len(garbage)] = garbage
    ground = np.full(3 * 1280, 7, np.uint8)
    with contextlib.suppress(ValueError):
        unpack(parcel("lz4", np.frombuffer(bytes(tampered), np.uint8), 1280), ground[1280:2560])
    assert (ground[:1280] == 7).all() and (ground[2560:] == 7).all()


def test_a_truncated_body_is_refused():
    body = Packer("lz4").pack(np.tile(ROUGH[:64], 20))[1]
    for cut in range(body.size):
        with pytest.raises(ValueError):
            unpacked("lz4", body[:cut], 1280)


def test_a_body_that_would_swell_is_refused():
    _, bomb = Packer("lz4").pack(np.zeros(1 << 24, np.uint8))
    assert bomb.size < 1 << 17
    with pytest.raises(ValueError, match="not 1000 bytes"):
        unpacked("lz4", bomb, 1000)


def test_what_is_no_row_of_bytes_is_refused():
    with pytest.raises(ValueError, match="a parcel's body is bytes"):
        unpacked("none", np.zeros(10, np.float32), 40)
    with pytest.raises(ValueError, match="a parcel's body is bytes"):
        unpacked("none", np.zeros((2, 5), np.uint8), 10)
    with pytest.raises(ValueError, match="10 bytes are needed"):
        unpack(parcel("none", np.zeros(10, np.uint8), 10), np.zeros(11, np.uint8))


def test_a_layout_travels_as_plain_data():
    fields = {"value": Field(5, (3,), np.dtype(np.float32)), "lane": Field(0, (), np.dtype(np.int64)), "done": Field(4, (), np.dtype(bool))}
    layout = Layout(4, 2, fields)
    there = Layout.from_plain(msgspec.msgpack.decode(msgspec.msgpack.encode(layout.plain())))
    assert there == layout and there.offsets == layout.offsets and there.size_bytes == layout.size_bytes
