"""Keep bits: how much memory they may take, and bits that are made ahead of a call."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._library import Error
from . import _front as f
from ._call import arguments, fill_width, prepare
from ._inputs import Lists, Rules, call_of, sequences

_SHARE = 1 / 8  # share of the free memory, unless set_keep_bits_memory() says otherwise
_limit: int | float = _SHARE


def set_keep_bits_memory(limit: int | float | None) -> None:
    """Limit the memory of keep bits on each device: bytes (an int) or a share of the memory that is
    free when bits are first made after this call (a float, more than 0 and at most 1). None is the
    default, an eighth. No bit of a result depends on the limit: docs/guide/torch.md says what is done
    with bits that do not fit. To make none ahead, set ORDO_DROPOUT_MODE=fused.
    """
    global _limit
    share = isinstance(limit, float) and 0 < limit <= 1
    if not (limit is None or share or (type(limit) is int and limit > 0)):
        expected = "expected bytes (an int), a share of the free memory (a float in (0, 1]) or None"
        more = "; ORDO_DROPOUT_MODE=fused makes none ahead"
        raise Error("argument", f"memory of keep bits {limit!r}: {expected}{more}")
    _limit = _SHARE if limit is None else limit
    for on in f.front.memory:  # asked again
        on.known = False


def set_mask_memory(limit: int | float | None) -> None:
    """The name of set_keep_bits_memory() in version 0.1.0; the next version removes it."""
    message = "ordo: set_mask_memory is set_keep_bits_memory now"
    warnings.warn(message, FutureWarning, stacklevel=2)
    set_keep_bits_memory(limit)


@f.ASK_MEMORY
def _provide(number: int) -> None:
    """Tell the operators how much memory keep bits may take on a device, and which stream makes them."""
    device = torch.device("cpu") if number < 0 else torch.device("cuda", number)
    capturing = number >= 0 and torch.cuda.is_current_stream_capturing()
    on = f.front.memory[number]
    on.side = _side(device).cuda_stream if number >= 0 else None
    on.limit = _limit_of(device, capturing)
    on.known = not capturing  # which is no time to ask the driver: asked again later


f.front.ask = _provide


_sides: dict[torch.device, Any] = {}


def _side(device: torch.device) -> Any:
    """The stream on which bits are made: of low priority, so that it takes idle places only."""
    if device not in _sides:
        _sides[device] = torch.cuda.Stream(device, priority=0)
    return _sides[device]


def _limit_of(device: torch.device, capturing: bool = False) -> int:
    """In bytes. Of all memory while a graph is captured."""
    if isinstance(_limit, int):
        return _limit
    if device.type != "cuda":
        return int(_limit * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if capturing:
        return int(_limit * torch.cuda.get_device_properties(device).total_memory)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(_limit * (torch.cuda.mem_get_info(device)[0] + unused))


# ---- bits that are made ahead ----


class PreparedDropout:
    """Seed and offset of one call of attention, and its keep bits if they are being made.

    The bits are read by the first call that this is passed to; a later call with the same seed and
    offset, such as a recomputation, makes them again.
    """

    def __init__(self, rng: Tensor, key: Any = None) -> None:
        self.rng_state = rng
        self._key = key  # _look() of the call; None: seed and offset serve any
        self._bits: Tensor | None = None
        self._event: Any = None

    def take(self, q: Tensor, k: Tensor, lists: Lists, rules: Rules) -> Tensor | None:
        """The bits for a call, once its stream may read them; None: it has none.

        Raises Error if they are those of another call.
        """
        if self._key is None:
            return None
        (said, own), (other, given) = self._key, _look(q, k, lists, rules)
        if said != other or any(x is not y for x, y in zip(own, given)):
            raise Error("argument", f"prepared for {said}: expected {other}, with the same lists")
        bits, self._bits = self._bits, None
        if bits is not None and self._event is not None:
            stream = torch.cuda.current_stream(bits.device)
            stream.wait_event(self._event)
            bits.record_stream(stream)
        return bits


def _look(q: Tensor, k: Tensor, lists: Lists, rules: Rules) -> Any:
    """What keep bits depend on beside seed and offset: in words, and lists."""
    rows = "rows" if lists.cu_q is None else f"packed rows, the longest {rules.max_q} x {rules.max_kv}"
    said = (
        f"batch {sequences(q, lists)}, {q.shape[-2]} heads, {q.shape[-3]} x {k.shape[-3]} {rows}, "
        f"dropout_p {rules.dropout_p}, keying {rules.keying}, shard {rules.shard if any(rules.shard) else None}"
    )
    return said, (lists.cu_q, lists.cu_kv, lists.sequence_ids)


def prepare_dropout(
    q_shape: Sequence[int],
    k_shape: Sequence[int] | None = None,
    *,
    dropout_p: float,
    device: torch.device | str | int,
    dtype: torch.dtype | None = None,
    stream: torch.cuda.Stream | None = None,
    **keywords: Any,
) -> PreparedDropout:
    """Draw seed and offset now, and make the keep bits of a call, which is given the result as `prepared`,
    while other work runs.

    q_shape and k_shape (None: the same) are those of q and k in attention(), and so are the other
    keywords: those of dropout, of packed sequences, causal, shard. dtype is that of q, by default bfloat16 on CUDA and float32 on the CPU. The bits are
    made on `stream`, by default one of ordo's own, and attention() waits for them there; on the CPU
    they are made at once. They are made only if the mode says so (ORDO_DROPOUT_MODE, or what the
    plan recommends) and set_keep_bits_memory() leaves room. Results are the same in any case.
    """
    with torch.no_grad(), torch.autocast(torch.device(device).type, enabled=False):
        cuda = torch.device(device).type == "cuda"
        shapes = q_shape, q_shape if k_shape is None else k_shape
        width = fill_width(q_shape[-1], q_shape[-1]) if cuda else 0
        kind = dtype or (torch.bfloat16 if cuda else torch.float32)
        one = torch.empty(width or max(x[-1] for x in shapes), dtype=kind, device=device)
        if stream is not None and stream.device != one.device:
            raise Error("argument", f"stream.device {stream.device}: expected {one.device}, that of q")
        if not dropout_p > 0:
            raise Error("argument", f"dropout_p {dropout_p!r}: expected more than 0")
        q, k = (one[: width or x[-1]].expand(*x[:-1], -1) for x in shapes)  # rows are one row
        a = arguments(keywords, "q_lens", "kv_lens", "slopes", "prepared", "sink", "block_mask", "seen", "bias")
        q, k, _, lists, rules = prepare(q, k, k, a._replace(dropout_p=dropout_p), now=True)
    flags, *rest = call_of(lists, rules)
    call = flags | f.KEEP, *rest  # with the bits that the mask hides: the call may have another one
    assert lists.rng is not None
    if torch.compiler.is_compiling() or type(q) is not Tensor or torch._C._len_torch_dispatch_stack():
        return PreparedDropout(lists.rng)  # a graph makes its bits where it uses them
    ahead = PreparedDropout(lists.rng, _look(q, k, lists, rules))
    if not one.is_cuda:
        ahead._bits = f.run(f.keep_bits, q, k, k, *call)
        return ahead
    with torch.cuda.device(one.device):
        side = _side(one.device) if stream is None else stream
        side.wait_stream(torch.cuda.current_stream(one.device))  # for seed, offset and lists
        with torch.cuda.stream(side):
            ahead._bits = f.run(f.keep_bits, q, k, k, *call)
            ahead._event = side.record_event()
    if ahead._bits is not None:
        for x in (ahead._bits, *lists):
            if x is not None:
                x.record_stream(side)
    return ahead
