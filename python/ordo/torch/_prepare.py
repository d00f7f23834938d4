"""Keep bits made ahead of attention, on another stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .._library import Error
from .._problem import Problem, Shard
from .._words import Keying
from . import _memory
from ._attention import Arguments, prepare
from ._inputs import Lists
from ._kept import fill, new_bits
from ._ops import plain
from ._plans import Ready, ready
from ._segments import side as _side


def prepare_dropout(
    q_shape: Sequence[int],
    k_shape: Sequence[int] | None = None,
    *,
    dropout_p: float,
    device: torch.device | str | int,
    dtype: torch.dtype | None = None,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
    keying: Keying = "ordo",
    cu_q: Tensor | None = None,
    cu_kv: Tensor | None = None,
    max_q: int | None = None,
    max_kv: int | None = None,
    sequence_ids: Tensor | None = None,
    shard: Shard | None = None,
    stream: torch.cuda.Stream | None = None,
) -> PreparedDropout:
    """Draw seed and offset now, and make the keep bits of a call while other work runs.

        made = prepare_dropout(q_shape, dropout_p=0.1, device=x.device, causal=True)
        q, k, v = project(x)
        o, lse = attention(q, k, v, causal=True, dropout_p=0.1, prepared=made)

    q_shape and k_shape (None: the same) are those of q and k in attention(), and so are the other
    arguments. dtype is that of q, by default bfloat16 on CUDA and float32 on the CPU. The bits are
    made on `stream`, by default one of ordo's own, and attention() waits for them there; on the CPU
    they are made at once. They are made only if the mode says so (ORDO_DROPOUT_MODE, or what the
    plan recommends) and set_mask_memory() leaves room. Results are the same in any case.
    """
    place = _device(device)
    _check_stream(stream, place)
    if not isinstance(dropout_p, (int, float)) or not dropout_p > 0:
        raise Error("argument", f"dropout_p {dropout_p!r}: expected more than 0")
    if dtype is None:
        dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
    with torch.no_grad(), torch.autocast(place.type, enabled=False):
        one = torch.empty(1, dtype=dtype, device=place)  # of which all rows are views
        q = one.expand(_sizes("q_shape", q_shape))
        k = q if k_shape is None else one.expand(_sizes("k_shape", k_shape))
        a = Arguments(
            causal=causal, dropout_p=dropout_p, keying=keying, shard=shard, seed=seed,
            rng_state=rng_state, generator=generator, cu_q=cu_q, cu_kv=cu_kv, max_q=max_q,
            max_kv=max_kv, sequence_ids=sequence_ids,
        )  # fmt: skip
        q, k, v, lists, rules = prepare(q, k, k, a)
    if not plain(q, k, v):  # a graph makes its bits where it uses them
        return PreparedDropout(lists, None)
    return make_ahead(ready(q, k, v, lists, rules), lists, stream, hidden=True)


class PreparedDropout:
    """Seed and offset of one call of attention, and its keep bits if they are being made.

    The bits are read by the first call that this is passed to; a later call with the same seed and
    offset, such as a recomputation, makes them again.
    """

    def __init__(self, lists: Lists, made: Ready | None, hidden: bool = True) -> None:
        assert lists.rng is not None
        self._hidden = hidden  # bits that the mask of `made` hides have been made, too
        self.rng_state: Tensor = lists.rng
        self._lists = lists
        self._made = made
        self._bits: Tensor | None = None
        self._event: Any = None

    def take(self, made: Ready, lists: Lists) -> Tensor | None:
        """The bits for a call with this plan, once its stream may read them; None: it has none.

        Raises Error if they are those of another call.
        """
        if self._made is not None and not self.serves(made, lists):
            raise Error(
                "argument",
                f"prepared for {_said(self._made)}: expected {_said(made)}, with the same lists",
            )
        bits, self._bits = self._bits, None
        if bits is not None and self._event is not None:
            stream = torch.cuda.current_stream(bits.device)
            stream.wait_event(self._event)
            bits.record_stream(stream)
        return bits

    def serves(self, made: Ready, lists: Lists) -> bool:
        """Whether the bits are those of a call with this plan and these lists."""
        known = self._made
        return (
            known is not None
            and _key(known.plan.problem) == _key(made.plan.problem)
            and (self._hidden or _mask(known.plan.problem) == _mask(made.plan.problem))
            and all(x is y for x, y in zip(self._lists[:3], lists[:3]))
            and self._lists.sequence_ids is lists.sequence_ids
        )


def make_ahead(
    made: Ready, lists: Lists, stream: torch.cuda.Stream | None = None, hidden: bool = False
) -> PreparedDropout:
    """Begin to make the bits of a call, if they are to be made before it and fit. `hidden`: also
    those that its mask hides, for the call may have another mask or lengths of its own."""
    ahead = PreparedDropout(lists, made, hidden)
    device = ahead.rng_state.device
    if not made.bits_bytes or made.pipelined or not _memory.fits(device, made.bits_bytes, 1):
        return ahead
    bits = new_bits(made, device)
    if bits is None:
        return ahead
    if not made.cuda:
        fill(made, lists, bits, hidden)
    else:
        with torch.cuda.device(device):
            side = _side(device) if stream is None else stream
            side.wait_stream(torch.cuda.current_stream(device))  # for seed, offset and lists
            with torch.cuda.stream(side):
                fill(made, lists, bits, hidden)
                ahead._event = side.record_event()
        for x in (bits, *lists):
            if x is not None:
                x.record_stream(side)
    ahead._bits = bits
    return ahead


def _key(p: Problem) -> tuple[Any, ...]:
    """What keep bits depend on beside seed, offset and lists."""
    return (
        p.layout == "packed", p.batch, p.heads, p.q_len, p.kv_len, p.total_q, p.total_kv,
        p.dropout, p.shard,
    )  # fmt: skip


def _mask(p: Problem) -> tuple[Any, ...]:
    """What decides which keep bits a call reads."""
    return p.layout, p.mask, p.window


def _said(made: Ready) -> str:
    p = made.plan.problem
    rows = f"{p.total_q} x {p.total_kv} packed rows" if p.layout == "packed" else ""
    return (
        f"batch {p.batch}, {p.heads} heads, {rows or f'{p.q_len} x {p.kv_len} rows'}, "
        f"dropout_p {made.rules.dropout_p:g}, keying {made.rules.keying}"
    )


# ---- arguments ----


def _device(device: Any) -> torch.device:
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        raise Error("argument", f"device {device!r}: expected a device") from None
    if place.type not in ("cpu", "cuda"):
        raise Error("unsupported", f"device {device}: expected cpu or cuda")
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _check_stream(stream: Any, device: torch.device) -> None:
    if stream is None:
        return
    if not isinstance(stream, torch.cuda.Stream):
        raise Error("argument", f"stream {stream!r}: expected a torch.cuda.Stream or None")
    if stream.device != device:
        raise Error("argument", f"stream.device {stream.device}: expected {device}, that of q")


def _sizes(name: str, shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(int(x) for x in shape)
    except (TypeError, ValueError):
        sizes = ()
    if len(sizes) not in (3, 4) or min(sizes) < 0:
        expected = "(batch, row, head, dim), or packed (row, head, dim)"
        raise Error("shape", f"{name} {shape!r}: expected {expected}")
    return sizes
