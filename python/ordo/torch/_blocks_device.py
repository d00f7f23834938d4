"""Passes under block masks on a CUDA device: the call as a struct, its lists on the device."""

from __future__ import annotations

from ctypes import byref, pointer
from typing import Any

import torch
from torch import Tensor

from .. import _structs as s
from .._blocks import BlockMask
from .._library import Error, lib
from .._plan import Plan
from ._inputs import DTYPES, Lists, check_lists, check_one
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


def readable(x: Tensor) -> Tensor:
    """The same values as the library takes them."""
    x = x.detach().resolve_neg().contiguous()
    return x.clone() if x.data_ptr() % CUDA.tensor_align else x


def check(plan: Plan, lists: Lists, given: dict[str, Tensor | None]) -> None:
    """Raise Error unless the tensors of a pass are as the plan has them, and contiguous: hooks of
    saved tensors may have replaced what the forward pass saved."""
    shapes = dict(plan._shapes, sink=(plan.problem.heads,), dsink=(plan.problem.heads,))
    first: Any = given["q"]
    dtype = next(x for x, word in DTYPES.items() if word == plan.problem.dtype)
    for name, x in given.items():
        if x is None:
            continue
        sums = name in ("lse", "dlse", "sink", "dsink")
        check_one(name, x, shapes[name], torch.float32 if sums else dtype, first.device)
        if not x.is_contiguous():
            raise Error("align", f"{name}.stride {x.stride()}: expected a contiguous tensor")
    check_lists(first, lists)


def run(
    direction: str, plan: Plan, lists: Lists, mask: DeviceMask, given: dict[str, Tensor | None]
) -> None:
    """Run a pass on tensors of `given`, by the names of the fields of an ordo_call."""
    check(plan, lists, given)
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
