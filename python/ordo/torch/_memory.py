"""How much memory keep bits may take, and what those take that wait for a backward pass."""

from __future__ import annotations

import math
import os
import weakref
from operator import index
from typing import Any

import torch
from torch import Tensor

from .._library import Error

_SHARE = 1 / 8  # of the free memory, unless set_mask_memory() says otherwise
_limit: int | float = _SHARE
_limits: dict[torch.device, int] = {}  # in bytes, once they have been computed
_kept: dict[torch.device, int] = {}  # bytes of bits that a backward pass will read


def set_mask_memory(limit: int | float | None) -> None:
    """Limit the memory of keep bits on each device: bytes (an int) or a share of the free memory
    (a float, more than 0 and at most 1). None is the default, an eighth of the free memory.

    The free memory is what is free when bits are first made on a device after this call. Bits that
    no longer fit are not kept for the backward pass but made again; if one mask does not fit,
    passes run in segments of rows, with the bits of two segments in memory, or, if these do not fit
    either, make their own bits while they use them, which needs no memory and takes longer. No bit
    of a result depends on the limit. To make no masks at all, set ORDO_DROPOUT_MODE=fused.
    """
    global _limit
    _limit = _SHARE if limit is None else _checked(limit)
    _limits.clear()


def _checked(limit: Any) -> int | float:
    expected = "expected bytes (an int), a share of the free memory (a float in (0, 1]) or None"
    if isinstance(limit, float):
        if not (math.isfinite(limit) and 0 < limit <= 1):
            raise Error("argument", f"mask memory {limit!r}: {expected}")
        return limit
    try:
        size = None if isinstance(limit, bool) else index(limit)
    except TypeError:
        size = None
    if size is None or size < 1:
        more = "; ORDO_DROPOUT_MODE=fused makes no masks" if size == 0 else ""
        raise Error("argument", f"mask memory {limit!r}: {expected}{more}")
    return size


def fits(device: torch.device, size: int, masks: int) -> bool:
    """Whether so many masks of `size` bytes fit beside the bits that are kept already."""
    return masks * size <= room(device)


def room(device: torch.device) -> int:
    """Bytes for bits beside those that are kept already."""
    return max(0, _limit_of(device) - _kept.get(device, 0))


def hold(bits: Tensor) -> None:
    """Count bits as kept until they are released."""
    device, size = bits.device, bits.numel()
    _kept[device] = _kept.get(device, 0) + size
    weakref.finalize(bits, _release, device, size).atexit = False


def _release(device: torch.device, size: int) -> None:
    _kept[device] -= size


def _limit_of(device: torch.device) -> int:
    found = _limits.get(device)
    if found is not None:
        return found
    if isinstance(_limit, int):
        _limits[device] = _limit
        return _limit
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # A capture is no time to ask the driver: of all memory, and asked again later.
        return int(_limit * torch.cuda.get_device_properties(device).total_memory)
    _limits[device] = int(_limit * _free(device))
    return _limits[device]


def _free(device: torch.device) -> int:
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + unused)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
