"""Digests that equal those of the `ordo` command.

XXH64 with seed 0 over logical elements in (sequence, head, row, column) order, little endian.
In Python, about 30 MB/s; the xxhash package, if installed, does it at memory speed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._arrays import Array, numbers
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
    of axes. `cu` makes them packed: (row, head, dim) and (head, row); `lens` are the valid rows
    of padded ones; `sequence` picks one sequence of the batch. Other arrays: as they lie.
    Tensors of PyTorch will do, of any device.
    """
    pieces = list(_sequences(_numpy(array), cu, lens))
    if sequence is not None:
        if not 0 <= sequence < len(pieces):
            raise Error("argument", f"sequence {sequence}: expected 0..{len(pieces) - 1}")
        pieces = [pieces[sequence]]
    data = b"".join(_bytes(piece) for piece in pieces)
    return f"{xxhash.xxh64_intdigest(data) if xxhash else xxh64(data):016x}"


def _numpy(array: Any) -> Array:
    if not hasattr(array, "detach"):
        return np.asarray(array)
    tensor = array.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has no such type: its bits
        tensor = tensor.view(sys.modules["torch"].int16)
    made: Array = tensor.numpy()
    return made


def _sequences(array: Array, cu: Any, lens: Any) -> Iterator[Array]:
    """Each sequence in the order head, row, column."""
    if cu is not None:
        if array.ndim not in (2, 3):
            raise Error("shape", f"shape {array.shape}: expected a packed tensor or lse with cu")
        ends = numbers("cu", cu, len(cu), np.int32)
        heads_first = array if array.ndim == 2 else array.swapaxes(0, 1)
        for first, end in zip(ends[:-1], ends[1:]):
            yield heads_first[:, first:end]
        return
    if array.ndim not in (3, 4):
        if lens is not None:
            raise Error("shape", f"shape {array.shape}: expected a tensor or lse with lens")
        yield array
        return
    heads_first = array if array.ndim == 3 else array.swapaxes(1, 2)
    if lens is None:
        lens = [heads_first.shape[2]] * len(array)
    for one, rows in zip(heads_first, numbers("lens", lens, len(array), np.int32)):
        yield one[:, :rows]


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
