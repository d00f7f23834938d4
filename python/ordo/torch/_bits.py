"""Keep bits made before a pass that reads them."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

import torch

from .. import _structs as s
from .._library import lib, path
from ._inputs import Lists
from ._layout import CUDA, round_up

_FILL = struct.Struct("@6Q8x2Q?7xq")  # an ordo_dropout_call without threads
assert _FILL.size == ctypes.sizeof(s.ordo_dropout_call)
assert s.ordo_dropout_call.seed_ptr.offset == 56 and s.ordo_dropout_call.on_device.offset == 72
assert s.ordo_dropout_call.visible_only.offset == 80

_fill_device = ctypes.CDLL(path).ordo_dropout_fill_device  # beside lib's, which takes structs
_fill_device.argtypes = [c_char_p, c_char_p, c_void_p, c_size_t, c_void_p]
_fill_device.restype = c_int


def _fill_call(lists: Lists, hidden: bool = False) -> bytes:
    """The bytes of an ordo_dropout_call whose seed, offset, ends and ids are on the device.
    `hidden`: with the blocks that the mask hides, which no pass reads."""
    places = [0 if x is None else x.data_ptr() for x in lists]
    rng, cu_q, cu_kv, ids = places[0], places[1], places[2], places[5]
    return _FILL.pack(_FILL.size, 0, 0, cu_q, cu_kv, ids, rng, rng + 8, True, not hidden)


def bits_bytes(problem: bytes, lists: Lists) -> int:
    """Bytes of the keep bits of a problem, given as the bytes of an ordo_problem; packed: at most.
    """
    info = s.ordo_dropout_info()
    asked = s.ordo_problem.from_buffer_copy(problem)
    call = s.ordo_dropout_call.from_buffer_copy(_fill_call(lists))
    lib.ordo_dropout_query(byref(asked), byref(call), byref(info))
    return round_up(info.bytes, CUDA.tensor_align)


def make_bits(
    cuda: bool,
    problem: bytes,
    lists: Lists,
    bits: int,
    size: int,
    stream: int,
    hidden: bool = False,
) -> int:
    """Make keep bits at address `bits`, on the stream or on the host; returns the status."""
    if cuda:
        status: int = _fill_device(problem, _fill_call(lists, hidden), bits, size, stream)
        return status
    asked = s.ordo_problem.from_buffer_copy(problem)
    call = s.ordo_dropout_call.from_buffer_copy(_fill_call(lists, hidden))
    call.on_device, call.threads = False, torch.get_num_threads()
    info = s.ordo_dropout_info()
    lib.ordo_dropout_query(byref(asked), byref(call), byref(info))
    lib.ordo_dropout_fill(byref(asked), byref(call), 0, info.blocks, bits, size)
    return 0
