"""xxh64-pieces against an implementation in Python of its definition in ordo/digest.h."""

from __future__ import annotations

import numpy as np
import pytest
from ordo import _digest, _pieces

PIECE = 65536


def by_definition(data):
    inner = [_digest.xxh64(data[at : at + PIECE]) for at in range(0, len(data), PIECE)]
    return _digest.xxh64(b"".join(value.to_bytes(8, "little") for value in inner))


def test_every_length():
    data = np.random.default_rng(0).bytes(3 * PIECE + 77)
    lengths = [*range(70), PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, len(data)]
    arrays = [np.frombuffer(data[:length], np.uint8) for length in lengths]
    assert _pieces.of_arrays(arrays).tolist() == [by_definition(data[:n]) for n in lengths]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads):
    data = np.random.default_rng(1).bytes(40 * PIECE + 5)
    array = np.frombuffer(data, np.uint8)
    spans = [(array.ctypes.data + at, len(data) - at) for at in (0, 1, 7, 39 * PIECE)]
    expected = _pieces.on_cpu(spans, 1)
    assert expected[3] == by_definition(data[39 * PIECE :])
    assert (_pieces.on_cpu(spans, threads) == expected).all()


def test_elements_in_c_order_little_endian():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    plain = by_definition(array.tobytes())
    other = [array, array.astype(">f4"), np.asfortranarray(array), array[::-1][::-1]]
    assert set(_pieces.of_arrays(other).tolist()) == {plain}
    assert _pieces.of_arrays([array.swapaxes(0, 1)])[0] != plain
    assert _pieces.of_arrays([]).tolist() == []
