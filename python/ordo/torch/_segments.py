"""Passes in segments of rows: for keep bits whose mask does not fit the memory for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .._library import Error
from .._plan import Plan
from . import _memory
from ._inputs import Lists
from ._plans import Ready, machine_of


class Segmented(NamedTuple):
    """The plan of a call in segments; its passes make their bits."""

    plan: Plan
    handle: Any
    forward_bytes: int  # of workspace
    backward_bytes: int


def whole_or_segmented(made: Ready, lists: Lists) -> tuple[bool, Segmented | None]:
    """How a pass that is given no bits gets them: (the whole mask is made before it, or a plan
    whose segments fit the memory for bits); (False, None): it makes them inside."""
    if not made.bits_bytes:
        return False, None
    room = _memory.room(lists[0].device)  # type: ignore[union-attr]
    if made.bits_bytes <= room and not made.pipelined:
        return True, None
    parts = _segmented(made, min(room, made.bits_bytes // 4 if made.pipelined else room))
    return made.bits_needed and parts is None, parts


def _segmented(made: Ready, room: int) -> Segmented | None:
    """The plan whose bits take at most `room` bytes: a power of two of it is a part of the mask,
    so that few plans serve a room that varies."""
    share = made.bits_bytes
    while share > room:
        share //= 2
    if share not in made.segments:
        made.segments[share] = _plan(made, share)
    found: Segmented | None = made.segments[share]
    return found


def _plan(made: Ready, memory: int) -> Segmented | None:
    if memory == 0:
        return None
    backend = made.plan.info.backend
    machine = machine_of(made.device) if backend == "cuda" else None
    try:
        plan = Plan(made.plan.problem, machine, backend=backend, mask_memory=memory)
    except Error:  # packed or padded sequences, or no room for the bits of two tiles
        return None
    info = plan.info
    return Segmented(
        plan, plan._handle, info.forward_workspace_bytes, info.backward_workspace_bytes
    )


_sides: dict[torch.device, Any] = {}


def side(device: torch.device) -> Any:
    """The stream on which bits are made: of low priority, so that it takes idle places only."""
    if device not in _sides:
        _sides[device] = torch.cuda.Stream(device, priority=0)
    return _sides[device]
