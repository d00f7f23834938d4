"""Block masks that come again: copies of their arrays on the host and on devices, made once."""

from __future__ import annotations

import copy
import weakref
from ctypes import byref
from typing import Any

import numpy as np
import torch

from .._blocks import BlockMask
from .._library import lib
from .._plan import Plan
from ._blocks_device import ARRAYS, DeviceMask


class Kept:
    """A block mask as it was when it was first used. Its arrays are the caller's, who may write to
    them at any time: same() compares them with the copies, which is all that each call costs."""

    def __init__(self, mask: BlockMask) -> None:
        self.own = copy.deepcopy(mask)  # the backward pass has it too, whatever becomes of the mask
        self._plan: Plan | None = None  # the last one for which the lists were checked
        self._there: tuple[Any, DeviceMask] | None = None

    def same(self, mask: BlockMask) -> bool:
        if (mask.q_len, mask.kv_len) != (self.own.q_len, self.own.kv_len):
            return False
        pairs = ((getattr(mask, name), getattr(self.own, name)) for name in ARRAYS)
        return all(_equal(x, y) for x, y in pairs)

    def check(self, plan: Plan) -> None:
        """Raise Error if the lists are not those of a mask for this plan."""
        if plan is not self._plan:
            lib.ordo_block_mask_check_lists(plan._handle, byref(self.own.to_c()))
            self._plan = plan

    def on(self, device: torch.device) -> DeviceMask:
        """The lists on a device, for a call on its current stream. Those of another stream are not
        taken: their memory is reused in the order of the stream that they were made on. Nor are any
        while a graph is captured, which would not keep them: there a copy is an error."""
        with torch.cuda.device(device):
            stream = torch.cuda.current_stream().cuda_stream
            if torch.cuda.is_current_stream_capturing():
                return DeviceMask(self.own, device)
        there = self._there  # once: another thread may replace it
        if there is None or there[0] != (device, stream):
            there = self._there = (device, stream), DeviceMask(self.own, device)
        return there[1]


_kept: weakref.WeakKeyDictionary[BlockMask, Kept] = weakref.WeakKeyDictionary()


def kept_mask(mask: BlockMask) -> Kept:
    """The copies of a mask that to_c() takes; made anew if its arrays have been written to."""
    known = _kept.get(mask)
    if known is None or not known.same(mask):
        known = _kept[mask] = Kept(mask)
    return known


def _equal(x: Any, y: Any) -> bool:
    if x is None or y is None:
        return x is y
    return x.dtype == y.dtype and np.array_equal(x, y)
