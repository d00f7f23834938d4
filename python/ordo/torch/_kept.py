"""Keep bits that outlive a pass: made ahead of it, or kept for the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from .._library import _raise, lib
from . import _memory
from ._bits import make_bits
from ._inputs import Lists
from ._plans import Ready


def new_bits(made: Ready, device: torch.device) -> Tensor | None:
    """Memory for the keep bits of a call; None if there is not enough."""
    try:
        storage = torch.UntypedStorage(made.bits_bytes, device=device)
    except RuntimeError:  # torch.OutOfMemoryError is one
        return None
    # Not torch.empty(), which strict determinism would make fill it first.
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def fill(made: Ready, lists: Lists, bits: Tensor, hidden: bool = False) -> None:
    """Make the bits of a call, on the current stream; `hidden`: those that its mask hides, too."""
    place, size = bits.data_ptr(), bits.numel()
    if not made.cuda:
        make_bits(False, made.problem, lists, place, size, 0, hidden)
        return
    stream = torch._C._cuda_getCurrentRawStream(made.device)
    if made.device == torch._C._cuda_getDevice():
        status = make_bits(True, made.problem, lists, place, size, stream, hidden)
    else:
        with torch.cuda.device(made.device):
            status = make_bits(True, made.problem, lists, place, size, stream, hidden)
    if status:
        _raise(status, lib.ordo_dropout_fill_device, ())


def room_to_keep(made: Ready, device: torch.device) -> bool:
    """Whether the bits of a call are to be kept for its backward pass.

    One mask of room is left for bits that are made again. Under hooks of saved tensors
    (checkpointing, offloading) bits are made again: what is saved must be the same each time.
    """
    return (
        made.keeps
        and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
        and _memory.fits(device, made.bits_bytes, 2)
    )


def kept_bits(made: Ready, lists: Lists, given: Tensor | None) -> tuple[Tensor | None, bool]:
    """(the bits of a forward pass, whether its backward pass reads them too); None if the pass
    sees to its bits itself. `given` have been made already."""
    if lists.rng is None or not made.bits_bytes or not room_to_keep(made, lists.rng.device):
        return given, False
    bits = given
    if bits is None:
        bits = new_bits(made, lists.rng.device)
        if bits is None:
            return None, False
        fill(made, lists, bits)
    _memory.hold(bits)
    return bits, True
