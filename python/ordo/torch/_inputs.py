"""What a pass is given: its rules, the tensors beside q, k and v, and the plan."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from .._blocks import BLOCK
from .._library import Error
from .._plan import Plan
from .._words import Mask
from . import _front as f

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Rules(NamedTuple):
    """What decides the result beside the tensors: the plain arguments of the operators."""

    max_q: int  # longest sequence of a packed batch; else 0
    max_kv: int
    scale: float
    mask: str
    left: int  # left side of the window, inclusive; -1 = open
    right: int
    softcap: float
    dropout_p: float
    keying: str
    shard: tuple[int, ...]  # the fields of ordo.Shard, or none of them


class Lists(NamedTuple):
    """The tensors beside q, k and v; gradients flow to bias and sink alone."""

    rng: Tensor | None = None  # seed and offset, int64
    cu_q: Tensor | None = None
    cu_kv: Tensor | None = None
    q_lens: Tensor | None = None
    kv_lens: Tensor | None = None
    sequence_ids: Tensor | None = None
    slopes: Tensor | None = None
    bits: Tensor | None = None  # keep bits that were made ahead
    block_start: Tensor | None = None  # the lists of a block mask: _blocks.py
    block_key: Tensor | None = None
    block_first: Tensor | None = None
    block_last: Tensor | None = None
    seen: Tensor | None = None  # an element mask as ordo::seen packs it
    bias: Tensor | None = None
    page_table: Tensor | None = None  # k and v are in pages: _pages.py
    sink: Tensor | None = None
    kv_starts: Tensor | None = None


_FLAGS = *(1 << at for at in range(16)), f.STARTS  # of the fields of Lists
_MASKS = dict(zip(get_args(Mask), (0, f.CAUSAL, f.TOP_LEFT)))
_KEYINGS = {"ordo": 0, "fa2": f.FA2}


# What the operators take beside the tensors that have gradients: flags, scale, more, and softcap,
# dropout_p and sizes as far as they have not their defaults.
Call = tuple[Any, ...]


def call_of(lists: Lists, rules: Rules) -> Call:
    """The call of these lists and rules."""
    if rules.keying not in _KEYINGS:
        raise Error("argument", f"keying {rules.keying!r}: expected ordo or fa2")
    flags, more = _MASKS[rules.mask] | _KEYINGS[rules.keying], []
    if rules.dropout_p > 0 and lists.rng is None:
        flags |= f.DRAW
    for x, flag in zip(lists, _FLAGS):
        if x is not None:
            flags |= flag
            more.append(x)
    if rules.left != -1 or rules.right != -1 or lists.cu_q is not None or rules.shard:
        sizes = rules.left, rules.right, rules.max_q, rules.max_kv, *(rules.shard or (0,) * 7)
        return flags, rules.scale, more, rules.softcap, rules.dropout_p, sizes
    if rules.softcap or rules.dropout_p:
        return flags, rules.scale, more, rules.softcap, rules.dropout_p
    return flags, rules.scale, more


def lists_of(flags: int, more: Any) -> Lists:
    """The lists among the tensors of a call."""
    given = iter(more)
    return Lists(*[next(given, None) if flags & flag else None for flag in _FLAGS])


def rows_first(flags: int, *tensors: Tensor) -> list[Tensor]:
    """q and its like as attention() takes them."""
    if not flags & f.HEADS_FIRST:
        return list(tensors)
    transposed = [x.transpose(1, 2) for x in tensors]
    return [x.flatten(0, 1) for x in transposed] if flags & f.CU_Q else transposed


def fake_rows(flags: int, more: Any, q: Tensor, k: Tensor, v: Tensor, **saved: Any) -> Any:
    """q, k and v with rows first, for a fake kernel. What does not fit together is refused when a graph
    runs; but tensors with data beside one on the meta device come here alone."""
    for name, x in {"q": q, "k": k, "v": v, **saved, **lists_of(flags, more)._asdict()}.items():
        if x is not None and x.device != q.device:
            raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")
    return rows_first(flags, q, k, v)


def learned(flags: int, more: Any) -> tuple[Tensor | None, Tensor | None]:
    """The tensors of a call that gradients flow to: bias and sink."""
    lists = lists_of(flags, more)
    return lists.bias, lists.sink


def seen_bytes(rows: Any, columns: Any) -> Any:
    """Bytes of a packed element mask: bits of blocks of 16 x 128, starts, and a key of each block."""
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    return -(-rows // 16) * across * 256 + 4 * (down * (across + 1) + 1)


def sequences(q: Tensor, lists: Lists) -> Any:
    return q.shape[0] if lists.cu_q is None else lists.cu_q.shape[0] - 1


def longest(q: Tensor, k: Tensor, max_q: Any, max_kv: Any) -> tuple[Any, Any]:
    """Rows and columns of the longest sequence, whose lengths packed ones have."""
    return (max_q, max_kv) if q.dim() == 3 else (q.shape[1], k.shape[1])


def empty(q: Tensor, k: Tensor, lists: Lists) -> bool:
    """Whether there is no sequence, no query or no key: o is 0, lse -inf, gradients are 0."""
    return 0 in (sequences(q, lists), q.shape[-3], k.shape[-3])


# ---- the plan of a call ----


def ask(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
    """The line of a call's plan as bytes; raises Error for what an operator would refuse. Nothing is drawn."""
    flags, *rest = call
    line: Tensor = f.run(f.keep_bits, q, k, v, flags & ~f.DRAW | f.ASK, *rest)
    return line


def plan_of(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Plan:
    """The plan that C made for a call."""
    return _parsed(ask(q, k, v, call).numpy().tobytes()[:-1].decode())


_parsed = functools.lru_cache(maxsize=512)(Plan.parse)
