"""Keep bits: how much memory they may take, and bits that are made ahead of a call."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor

from .._library import Error
from . import _front as f
from ._inputs import Lists, Rules, call_of, sequences

_SHARE = 1 / 8  # of the free memory, unless set_keep_bits_memory() says otherwise
_limit: int | float = _SHARE


def set_keep_bits_memory(limit: int | float | None) -> None:
    """Limit the memory of keep bits on each device: bytes (an int) or a share of the free memory
    (a float, more than 0 and at most 1). None is the default, an eighth of the free memory.

    The free memory is what is free when bits are first made on a device after this call. Bits that
    no longer fit are not kept for the backward pass but made again; if those of a call do not fit,
    passes run in segments of rows, with the bits of two segments in memory, or, if these do not fit
    either, make their own bits while they use them, which needs no memory and takes longer. No bit
    of a result depends on the limit. To make none ahead, set ORDO_DROPOUT_MODE=fused.
    """
    global _limit
    _limit = _SHARE if limit is None else _checked(limit)
    f.ask_memory(_provide)


def set_mask_memory(limit: int | float | None) -> None:
    """The name of set_keep_bits_memory() in version 0.1.0; the next version removes it."""
    message = "ordo: set_mask_memory is set_keep_bits_memory now"
    warnings.warn(message, FutureWarning, stacklevel=2)
    set_keep_bits_memory(limit)


def _checked(limit: Any) -> int | float:
    expected = "expected bytes (an int), a share of the free memory (a float in (0, 1]) or None"
    if isinstance(limit, float):
        if not (math.isfinite(limit) and 0 < limit <= 1):
            raise Error("argument", f"memory of keep bits {limit!r}: {expected}")
        return limit
    try:
        size = None if isinstance(limit, bool) else index(limit)
    except TypeError:
        size = None
    if size is None or size < 1:
        more = "; ORDO_DROPOUT_MODE=fused makes none ahead" if size == 0 else ""
        raise Error("argument", f"memory of keep bits {limit!r}: {expected}{more}")
    return size


@f.ASK_MEMORY
def _provide(number: int) -> None:
    """Tell the operators how much memory keep bits may take on a device, and which stream makes them."""
    device = torch.device("cpu") if number < 0 else torch.device("cuda", number)
    capturing = number >= 0 and torch.cuda.is_current_stream_capturing()
    side = _side(device).cuda_stream if number >= 0 else None
    # A capture is no time to ask the driver: asked again later.
    f.set_memory(number, _limit_of(device, capturing), side, not capturing)


f.ask_memory(_provide)


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


_MODES = ("auto", "fused", "sequential", "overlapped", "pipelined")


def dropout_mode() -> str:
    """Where keep bits are made; changes no bit. choose_bits() in python/front/plans.h says more."""
    mode = os.environ.get("ORDO_DROPOUT_MODE", "auto")
    if mode not in _MODES:
        raise Error("argument", f"ORDO_DROPOUT_MODE {mode!r}: expected {', '.join(_MODES)}")
    return mode


# ---- seed and offset of dropout ----

_LIMIT = 2**32


def draw(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Seed and offset, on the device of `like`.

    Both below 2^32: an offset has to be, and a pair of 64 bits suffices.
    """
    if generator is not None:
        return torch.randint(_LIMIT, (2,), device=like.device, generator=generator)
    drawn: Tensor = torch.ops.ordo.draw(like) if torch.compiler.is_compiling() else f.draw(like)
    return drawn


def rng_of(
    q: Tensor,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(seed, offset) on the device of q: the one given, or drawn, without a synchronisation."""
    if seed is None and rng_state is None:
        return draw(q, generator)
    if generator is not None or (seed is not None and rng_state is not None):
        raise Error("argument", "seed, rng_state, generator: expected one of them at most")
    if rng_state is not None:
        if not isinstance(rng_state, Tensor):
            raise Error("argument", f"rng_state {rng_state!r}: expected a tensor")
        return rng_state
    pair = (seed, 0) if isinstance(seed, int) else _pair(seed)
    if len(pair) != 2 or not all(0 <= x < 2**64 for x in pair):
        raise Error("argument", f"seed {seed}: expected a number or (seed, offset) below 2^64")
    signed = [x - 2**64 if x >= 2**63 else x for x in pair]
    if q.is_cpu:
        return torch.tensor(signed, dtype=torch.int64, device=q.device)
    made = torch.full((2,), signed[1], dtype=torch.int64, device=q.device)  # not a copy: no wait
    made[:1].fill_(signed[0])
    return made


def _pair(seed: Any) -> tuple[int, ...]:
    """(seed, offset) of a NumPy number, a tensor or a sequence; empty if it is none of them."""
    given = seed.tolist() if hasattr(seed, "tolist") else seed
    try:
        return tuple(map(index, (given, 0) if isinstance(given, int) else given))
    except TypeError:
        return ()


# ---- bits that are made ahead ----


class PreparedDropout:
    """Seed and offset of one call of attention, and its keep bits if they are being made.

    The bits are read by the first call that this is passed to; a later call with the same seed and
    offset, such as a recomputation, makes them again.
    """

    def __init__(self, lists: Lists, key: Any, hidden: bool = True) -> None:
        assert lists.rng is not None
        self._hidden = hidden  # bits that the mask of the call hides have been made, too
        self.rng_state: Tensor = lists.rng
        self._lists = lists
        self._key = key  # _look() of the call; None: seed and offset serve any
        self._bits: Tensor | None = None
        self._event: Any = None

    def take(self, q: Tensor, k: Tensor, lists: Lists, rules: Rules) -> Tensor | None:
        """The bits for a call, once its stream may read them; None: it has none.

        Raises Error if they are those of another call.
        """
        if self._key is not None and not self.serves(q, k, lists, rules):
            (problem, _), (other, _) = self._key, _look(q, k, lists, rules)
            raise Error(
                "argument", f"prepared for {_said(*problem)}: expected {_said(*other)}, with the "
                "same lists",
            )  # fmt: skip
        bits, self._bits = self._bits, None
        if bits is not None and self._event is not None:
            stream = torch.cuda.current_stream(bits.device)
            stream.wait_event(self._event)
            bits.record_stream(stream)
        return bits

    def serves(self, q: Tensor, k: Tensor, lists: Lists, rules: Rules) -> bool:
        """Whether the bits are those of a call with these tensors, lists and rules."""
        if self._key is None:
            return False
        (problem, mask), (other, other_mask) = self._key, _look(q, k, lists, rules)
        return (
            problem == other
            and (self._hidden or mask == other_mask)
            and all(x is y for x, y in zip(self._lists[:3], lists[:3]))
            and self._lists.sequence_ids is lists.sequence_ids
        )


def make_ahead(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: Lists,
    rules: Rules,
    stream: torch.cuda.Stream | None = None,
    hidden: bool = False,
) -> PreparedDropout:
    """Begin to make the bits of a call, if they are to be made before it and fit. `hidden`: also
    those that its mask hides, for the call may have another mask or lengths of its own."""
    ahead = PreparedDropout(lists, _look(q, k, lists, rules), hidden)
    if torch.compiler.is_compiling() or type(q) is not Tensor or torch._C._len_torch_dispatch_stack():
        return PreparedDropout(lists, None)  # a graph makes its bits where it uses them
    device = ahead.rng_state.device
    flags, *rest = call_of(lists, rules)
    flags |= f.KEEP if hidden else 0
    if device.type != "cuda":
        ahead._bits = _make(q, k, v, flags, rest)
        return ahead
    with torch.cuda.device(device):
        side = _side(device) if stream is None else stream
        side.wait_stream(torch.cuda.current_stream(device))  # for seed, offset and lists
        with torch.cuda.stream(side):
            bits = _make(q, k, v, flags, rest)
            ahead._event = side.record_event()
    if bits is not None:
        for x in (bits, *lists):
            if x is not None:
                x.record_stream(side)
    ahead._bits = bits
    return ahead


def _make(q: Tensor, k: Tensor, v: Tensor, flags: int, rest: Any) -> Tensor | None:
    try:
        bits: Tensor | None = f.keep_bits(q, k, v, flags, *rest)
    except RuntimeError as error:
        raise f.error_of(error) from None
    return bits


def _look(q: Tensor, k: Tensor, lists: Lists, rules: Rules) -> Any:
    """(what keep bits depend on beside seed, offset and lists; what decides which are read)."""
    packed = lists.cu_q is not None
    longest = (rules.max_q, rules.max_kv) if packed else (0, 0)
    problem = (
        packed, sequences(q, lists), q.shape[-2], q.shape[-3], k.shape[-3], longest,
        rules.dropout_p, rules.keying, rules.shard or (0,) * 7,
    )  # fmt: skip
    return problem, (lists.q_lens is not None, rules.mask, rules.left, rules.right)


def _said(*problem: Any) -> str:
    packed, batch, heads, rows, columns, _, p, keying, _ = problem
    kind = "packed rows" if packed else "rows"
    return f"batch {batch}, {heads} heads, {rows} x {columns} {kind}, dropout_p {p:g}, keying {keying}"
