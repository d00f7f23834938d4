"""Passes under block masks on a CUDA device: the call as a struct, its lists on the device, where
no pass can check them: checked here."""

from __future__ import annotations

from ctypes import byref, pointer
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _structs as s
from .._blocks import BLOCK, WHOLE, BlockMask
from .._library import Error, lib
from .._plan import Plan
from .._problem import Problem
from ._inputs import Lists
from ._layout import CUDA

ARRAYS = "start", "key", "first", "last"


class DeviceMask:
    """A block mask whose lists are on a device."""

    def __init__(self, mask: BlockMask, device: torch.device) -> None:
        self.struct = mask.to_c()
        self._held = {}
        for name in ARRAYS:
            array = getattr(mask, name)
            if array is not None:
                self._held[name] = torch.from_numpy(array).to(device)
                setattr(self.struct, name, self._held[name].data_ptr())


def check_mask(mask: BlockMask, problem: Problem) -> None:
    """What the library checks of a mask in host memory."""
    sequences, heads, _ = mask.start.shape
    for name, value, expected in (
        ("q_len", mask.q_len, problem.q_len),
        ("kv_len", mask.kv_len, problem.kv_len),
        ("sequences", sequences, problem.batch if sequences > 1 else 1),
        ("heads", heads, problem.heads if heads > 1 else 1),
    ):
        if value != expected:
            raise Error("shape", f"block_mask.{name} {value}: expected {expected}")
    if (mask.first is None) != (mask.last is None):
        raise Error("argument", "block_mask.first, last: expected both arrays, or neither")
    _check_lists(mask)


def _check_lists(mask: BlockMask) -> None:
    entries, columns = len(mask.key), -(-mask.kv_len // BLOCK)
    start = mask.start.reshape(-1, mask.start.shape[-1])
    wrong = (start < 0) | (start > entries)
    wrong[:, 1:] |= start[:, 1:] < start[:, :-1]
    if wrong.any():
        at = int(wrong.argmax())
        raise Error(
            "shape", f"block_mask.start[{at}] {start.flat[at]}: expected rows that do not "
            f"decrease, within 0..{entries}",
        )  # fmt: skip
    keys = mask.key & (WHOLE - 1)
    begin, end = start[:, :-1].reshape(-1), start[:, 1:].reshape(-1)
    outside = np.flatnonzero((mask.key < 0) | (keys >= columns))
    falls = np.flatnonzero(keys[1:] <= keys[:-1]) + 1  # not above the entry before
    bad = np.append(_first_of(outside, begin, end), _first_of(falls, begin + 1, end))
    if len(bad):
        at = int(bad.min())
        raise Error(
            "shape", f"block_mask.key[{at}] {mask.key[at]}: expected 0..{columns - 1}, ascending "
            "in a row, beside WHOLE",
        )  # fmt: skip
    for name, low, high in (("first", 0, mask.kv_len), ("last", -1, mask.kv_len - 1)):
        array = getattr(mask, name)
        if array is not None and ((array < low) | (array > high)).any():
            raise Error("shape", f"block_mask.{name}: expected {low}..{high}")


def _first_of(places: Any, begin: Any, end: Any) -> Any:
    """The first of ascending `places` in each range begin .. end - 1 that has one."""
    at = np.searchsorted(places, begin)
    inside = np.append(places, np.iinfo(np.int64).max)[at] < end
    return places[at[inside]]


def readable(x: Tensor) -> Tensor:
    """The same values as the library takes them."""
    x = x.detach().contiguous()
    return x.clone() if x.data_ptr() % CUDA.tensor_align else x


def run(
    direction: str, plan: Plan, lists: Lists, mask: DeviceMask, given: dict[str, Tensor | None]
) -> None:
    """Run a pass on tensors of `given`, by the names of the fields of an ordo_call."""
    call = s.sized(s.ordo_call)
    some: Any = next(x for x in given.values() if x is not None)
    for name, x in given.items():
        if x is not None and name in ("lse", "dlse", "sink", "dsink"):
            setattr(call, name, x.data_ptr())
        elif x is not None:
            getattr(call, name).data = x.data_ptr()
    for name, x in lists._asdict().items():
        if x is not None and name != "rng":
            setattr(call, name, x.data_ptr())
    if lists.slopes is not None and lists.slopes.dim() == 2:
        call.slopes_batch_stride = lists.slopes.shape[-1]
    if lists.rng is not None:
        call.seed_ptr, call.offset_ptr = lists.rng.data_ptr(), lists.rng.data_ptr() + 8
    call.block_mask = pointer(mask.struct)
    forward = direction == "forward"
    size = plan.info.forward_workspace_bytes if forward else plan.info.backward_workspace_bytes
    with torch.cuda.device(some.device):
        work = torch.empty(size, dtype=torch.uint8, device=some.device)
        call.workspace, call.workspace_bytes = work.data_ptr() if size else None, size
        call.stream = torch.cuda.current_stream().cuda_stream
        function = lib.ordo_attention_forward if forward else lib.ordo_attention_backward
        function(plan._handle, byref(call))
