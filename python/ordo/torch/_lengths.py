"""Lengths of sequences: a switch that has them checked, and packed sequences with gaps.

A gap is what lies between the used rows of a sequence and its end: FlashAttention-3's seqused_q and
seqused_k say how many rows are used. The library has no gaps, but it takes rows behind the last
end: the used rows are moved to the front, in their order, and the results back to their places.
Nothing waits for the device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._library import Error
from .._problem import Problem
from ._inputs import Lists


class _Switch:
    on = False


def check_lengths(on: bool = True) -> None:
    """Have every forward pass check its lengths, and raise Error if they are wrong.

    For CUDA tensors: there cu_q, cu_kv, q_lens and kv_lens are read by the kernels alone, which
    clamp what is wrong, and rows left to no sequence are zeros. With this switch on, a forward pass
    copies them to the host first and checks that ends begin at 0, do not decrease and do not exceed
    the rows of the tensor, and that no sequence is longer than max_q or max_kv. It waits for the
    device, and cannot be captured in a CUDA graph. Lengths of CPU tensors are always checked.
    """
    _Switch.on = on


def checked() -> bool:
    return _Switch.on


def check(problem: Problem, lists: Lists) -> None:
    """Raise Error if a list of lengths is wrong. Waits for the device."""
    for name, ends, total, longest in (
        ("cu_q", lists.cu_q, problem.total_q, problem.q_len),
        ("cu_kv", lists.cu_kv, problem.total_kv, problem.kv_len),
    ):
        if ends is not None:
            _check_ends(name, ends.tolist(), total, longest)
    for name, lengths, longest in (
        ("q_lens", lists.q_lens, problem.q_len),
        ("kv_lens", lists.kv_lens, problem.kv_len),
    ):
        if lengths is not None:
            _check_each(name, lengths.tolist(), [longest] * len(lengths))


def _check_ends(name: str, ends: list[int], total: int, longest: int) -> None:
    if ends[0] != 0:
        raise Error("shape", f"{name}[0] {ends[0]}: expected 0")
    for b, (begin, end) in enumerate(zip(ends, ends[1:]), 1):
        most = min(begin + longest, total)
        if not begin <= end <= most:
            raise Error(
                "shape",
                f"{name}[{b}] {end}: expected {begin}..{most} (a sequence of 0..{longest}, "
                f"{total} rows in all)",
            )


def _check_each(name: str, lengths: list[int], rooms: list[int]) -> None:
    for b, (length, room) in enumerate(zip(lengths, rooms)):
        if not 0 <= length <= room:
            raise Error("shape", f"{name}[{b}] {length}: expected 0..{room}")


# ---- as the library takes them ----

_MOST = 2**31 - 1


def check_type(name: str, x: Tensor) -> None:
    """Raise Error unless lengths or ends are int32 or int64."""
    if x.dtype is not torch.int32 and x.dtype is not torch.int64:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected torch.int32 or torch.int64")


def as_int32(name: str, x: Tensor) -> Tensor:
    """Lengths or ends as int32, without a look at them. A number that int32 does not have becomes
    the nearest: no tensor has so many rows, so that it is as wrong as before."""
    if x.dtype is torch.int32:
        return x
    check_type(name, x)
    return x.clamp(-_MOST, _MOST).to(torch.int32)


# ---- what is left out of a call ----


def ends_of(
    cu_q: Tensor, cu_kv: Tensor | None, max_q: Any, max_kv: Any, same: bool
) -> tuple[Tensor, Tensor, int, int]:
    """Ends as int32; the longest sequences, which cost a synchronisation if not given."""
    if cu_kv is None and max_kv is None:
        max_kv = max_q
    cu_kv = ends_beside(cu_q, cu_kv, same)
    ends = as_int32("cu_q", cu_q)
    cu_q, cu_kv = ends, ends if cu_kv is cu_q else as_int32("cu_kv", cu_kv)
    if max_q is None:
        max_q = _longest(cu_q)
    if max_kv is None:
        max_kv = max_q if cu_kv is cu_q else _longest(cu_kv)
    return cu_q, cu_kv, max(int(max_q), 1), max(int(max_kv), 1)


def ends_beside(cu_q: Tensor, cu_kv: Tensor | None, same: bool) -> Tensor:
    """Ends of the keys: those of the queries if none are given."""
    if cu_kv is None and not same:
        raise Error("argument", "cu_kv None: expected a tensor beside cu_q: k has other rows")
    return cu_q if cu_kv is None else cu_kv


def _longest(ends: Tensor) -> Any:
    return ends.diff().max().item() if ends.shape[0] > 1 else 0


def full_lengths(name: str, x: Tensor, lens: Tensor | None) -> Tensor:
    """Lengths as int32; all rows of x if none are given."""
    if lens is not None:
        return as_int32(name, lens)
    return torch.full((x.shape[0],), x.shape[1], dtype=torch.int32, device=x.device)


# ---- packed sequences with gaps ----


class Moved(NamedTuple):
    """Rows of a packed tensor with the used ones in front."""

    rows: Tensor  # which row comes where
    back: Tensor  # where each row is
    ends: Tensor


def close_gaps(which: str, count: int, ends: Tensor, used: Tensor, look: bool) -> Moved | None:
    """How to move `count` rows so that each sequence is `used` long; None if nothing is to move.

    `which` is "q" or "kv". With `look` the values are checked; otherwise what is wrong is clamped.
    """
    name, batch = f"{which}_lens", ends.shape[0] - 1
    if used.shape != (batch,):
        raise Error("shape", f"{name}.shape {tuple(used.shape)}: expected ({batch},)")
    if used.device != ends.device:
        raise Error(
            "argument", f"{name}.device {used.device}: expected that of cu_{which}, {ends.device}"
        )
    if batch == 0:
        return None
    check_type(f"cu_{which}", ends)
    check_type(name, used)
    if look:
        _check_ends(f"cu_{which}", ends.tolist(), count, count)
        _check_each(name, used.tolist(), ends.diff().tolist())
    ends, used = as_int32(f"cu_{which}", ends), as_int32(name, used)
    room = ends.diff()
    if look and torch.equal(used, room):
        return None
    lengths = used.minimum(room).clamp(min=0)
    row = torch.arange(count, dtype=torch.int32, device=ends.device)
    at = torch.searchsorted(ends, row, right=True) - 1
    sequence = at.clamp(0, batch - 1)
    unused = (row - ends[sequence] >= lengths[sequence]) | (at != sequence)
    rows = torch.argsort(unused.to(torch.uint8), stable=True)
    moved = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return Moved(rows, torch.argsort(rows), moved)
