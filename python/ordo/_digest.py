"""Digests that equal those of the `ordo` command.

XXH64 with seed 0 over logical elements in (sequence, head, row, column) order, little endian.
In Python, about 30 MB/s; the xxhash package, if installed, does it at memory speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._arrays import Array, numbers
from ._convert import integer
from ._elements import array_of, array_of_tensor, is_tensor
from ._library import Error

try:
    import xxhash
except ImportError:
    xxhash = None  # type: ignore[assignment, unused-ignore]

_MASK = 2**64 - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_PIECE = 1 << 20  # bytes that become Python numbers at a time; a multiple of 32


def digest(
    array: Any,
    *,
    cu: Sequence[int] | Array | None = None,
    lens: Sequence[int] | Array | None = None,
    sequence: int | None = None,
) -> str:
    """Digest of an array as 16 hexadecimal digits, as `ordo run` prints it.

    A tensor (batch, row, head, dim) and an lse (batch, head, row) are told apart by their number
    of axes. `cu` makes them packed: (row, head, dim) and (head, row), with batch + 1 ends from 0;
    `lens` are the valid rows of padded ones; `sequence` picks one sequence of the batch. Other
    arrays: as they lie. Tensors of PyTorch will do, of any device. Raises Error for what has no
    numbers in memory: None, objects, masked arrays, sparse and quantized tensors.
    """
    pieces = list(_sequences(_numpy("array", array), cu, lens))
    if sequence is not None:
        sequence = integer("sequence", sequence)
        if not 0 <= sequence < len(pieces):
            raise Error("argument", f"sequence {sequence}: expected 0..{len(pieces) - 1}")
        pieces = [pieces[sequence]]
    data = b"".join(_bytes(piece) for piece in pieces)
    return f"{xxhash.xxh64_intdigest(data) if xxhash else xxh64(data):016x}"


def _numpy(name: str, given: Any) -> Array:
    return array_of_tensor(name, given) if is_tensor(given) else array_of(name, given)


def _sequences(array: Array, cu: Any, lens: Any) -> Iterator[Array]:
    """Each sequence in the order head, row, column."""
    if cu is not None:
        if lens is not None:
            raise Error("unsupported", "lens with cu: expected one of the two layouts")
        if array.ndim not in (2, 3):
            raise Error("shape", f"shape {array.shape}: expected a packed tensor or lse with cu")
        heads_first = array if array.ndim == 2 else array.swapaxes(0, 1)
        ends = _ends(cu, heads_first.shape[1])
        for first, end in zip(ends[:-1], ends[1:]):
            yield heads_first[:, first:end]
        return
    if array.ndim not in (3, 4):
        if lens is not None:
            raise Error("shape", f"shape {array.shape}: expected a tensor or lse with lens")
        yield array
        return
    heads_first = array if array.ndim == 3 else array.swapaxes(1, 2)
    most = heads_first.shape[2]
    valid = [most] * len(array) if lens is None else _lengths(lens, len(array), most)
    for one, rows in zip(heads_first, valid):
        yield one[:, :rows]


def _ends(given: Any, rows: int) -> list[int]:
    """The ends of packed sequences, as ordo_call.cu_q promises them."""
    array = _numpy("cu", given)
    ends: list[int] = numbers("cu", array, max(array.size, 1), np.int32).tolist()
    if ends[0] != 0:
        raise Error("shape", f"cu[0] {ends[0]}: expected 0")
    for at, (first, end) in enumerate(zip(ends[:-1], ends[1:]), 1):
        if not first <= end <= rows:
            raise Error("shape", f"cu[{at}] {end}: expected {first}..{rows}")
    return ends


def _lengths(given: Any, batch: int, rows: int) -> list[int]:
    lens: list[int] = numbers("lens", _numpy("lens", given), batch, np.int32).tolist()
    for at, valid in enumerate(lens):
        if not 0 <= valid <= rows:
            raise Error("shape", f"lens[{at}] {valid}: expected 0..{rows}")
    return lens


def _bytes(array: Array) -> bytes:
    if array.dtype.byteorder == ">" or (array.dtype.isnative and not np.little_endian):
        array = array.byteswap()
    return array.tobytes()


# ---- XXH64, after the specification of xxHash ----


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & _MASK


def _stir(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _lanes(data: bytes, size: int) -> list[int]:
    lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
    for start in range(0, size, _PIECE):
        words = np.frombuffer(data, "<u8", min(_PIECE, size - start) // 8, start)
        times = words * np.uint64(_P2)  # modulo 2^64
        for number in range(4):
            lane = lanes[number]
            for word in times[number::4].tolist():
                lane = (lane + word) & _MASK
                lane = ((lane << 31 | lane >> 33) & _MASK) * _P1 & _MASK
            lanes[number] = lane
    return lanes


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0."""
    blocks, size = len(data) // 32 * 32, len(data)
    if blocks:
        lanes = _lanes(data, blocks)
        value = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18)))
        for lane in lanes:
            value = ((value ^ _stir(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = _P5
    value = (value + size) & _MASK
    at = blocks
    while at + 8 <= size:
        value ^= _stir(0, int.from_bytes(data[at : at + 8], "little"))
        value = (_rotate(value, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        value ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        value = (_rotate(value, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotate(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32
