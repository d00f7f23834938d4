"""What is to be computed: shapes, mask, scores, dropout; no arrays (ordo/problem.h)."""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass, field, replace
from enum import IntFlag
from types import SimpleNamespace
from typing import Any

from . import _structs as s
from ._convert import fill, integer, read, real
from ._library import Error, lib
from ._words import DType, Keying, Layout, Mask


NO_KEYS = -1  # as kv_len or total_kv: none at all, where 0 would mean as many as queries


class Extra(IntFlag):
    """Known requests that ordo refuses by name rather than ignores."""

    BIAS = 1 << 0
    SINKS = 1 << 1
    BLOCK_MASK = 1 << 2
    PAGED_KV = 1 << 3
    FP8 = 1 << 4
    PROBABILITIES = 1 << 5


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Dropout of probabilities. docs/design/dropout-bits.md defines which element gets which bit."""

    p: float = 0.0  # probability of dropping; 0 = no dropout
    rounds: int = 0  # rounds of Philox: 0 = 7, or 10
    bits: int = 0  # random bits an element: 0 = 8, or 1..16
    keying: Keying = "ordo"


def dropout_of(p: float, keying: Keying = "ordo") -> Dropout:
    """Dropout with enough bits for p, where no number of bits is given.

    8 bits, the default, are multiples of 1/256; a p closer to 0 or 1 than that takes 16. Keying
    fa2 has 8 bits, whatever p is.
    """
    p = real("dropout.p", p)
    few = 0 < p < 1 / 256 or 255 / 256 < p < 1
    return Dropout(p=p, bits=16 if few and keying == "ordo" else 0, keying=keying)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Where a problem sits in a larger one. All zero: it is the whole."""

    batch0: int = 0  # first sequence held here
    head0: int = 0  # first query head
    row0: int = 0
    col0: int = 0
    heads_total: int = 0  # 0 = heads
    q_total: int = 0  # whole sequence lengths; 0 = q_len, kv_len
    kv_total: int = 0


@dataclass(frozen=True, kw_only=True)
class BlockLimits:
    """Sizes of the block masks that calls give; entries 0: none."""

    entries: int = 0  # most entries of all masks of a call together
    per_sequence: bool = False  # whether each sequence, and each query head, has its own
    per_head: bool = False


@dataclass(frozen=True, kw_only=True)
class Paging:
    """Sizes of the pages that keys are in; page_rows 0: none."""

    page_rows: int = 0  # keys per page
    pages: int = 0
    table_columns: int = 0  # pages per sequence, at most


@dataclass(frozen=True, kw_only=True)
class SeenLimits:
    """Whether calls give an element mask."""

    on: bool = False
    per_sequence: bool = False  # whether each sequence, and each query head, has its own
    per_head: bool = False


@dataclass(frozen=True, kw_only=True)
class Bias:
    """A bias that calls add to the logits, (batch or 1, heads or 1, q_len, kv_len)."""

    on: bool = False
    per_sequence: bool = False  # whether each sequence, and each query head, has its own
    per_head: bool = False
    dtype: DType = "f32"  # or the problem's


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Shape, types, mask, scale and dropout of one attention; hashable.

    A field left at 0 (or None) means its default, as in C. `window` is (left, right), inclusive,
    -1 = open. A probability given as `dropout` becomes a Dropout with enough bits for it: 8, or 16
    if it is closer than 1/256 to 0 or 1.
    """

    q_len: int  # rows; the longest sequence's if packed or padded
    head_dim: int
    kv_len: int = 0  # 0 = q_len; NO_KEYS = none
    batch: int = 1
    heads: int = 1
    kv_heads: int = 0  # 0 = heads; must divide heads
    v_head_dim: int = 0  # 0 = head_dim
    dtype: DType = "f32"
    layout: Layout = "dense"
    total_q: int = 0  # packed only: rows and columns of all sequences
    total_kv: int = 0
    scale: float = 0.0  # 0 = 1/sqrt(head_dim)
    mask: Mask = "full"
    window: tuple[int, int] | None = None
    softcap: float = 0.0  # 0 = off
    alibi: bool = False
    dropout: Dropout | float = field(default_factory=Dropout)
    shard: Shard = field(default_factory=Shard)
    extras: Extra = Extra(0)
    blocks: BlockLimits = field(default_factory=BlockLimits)
    paging: Paging = field(default_factory=Paging)
    seen: SeenLimits = field(default_factory=SeenLimits)
    bias: Bias = field(default_factory=Bias)

    def __post_init__(self) -> None:
        if not isinstance(self.dropout, Dropout):
            object.__setattr__(self, "dropout", dropout_of(self.dropout))
        if self.window is not None:
            object.__setattr__(self, "window", _pair(self.window))
        for name in ("scale", "softcap"):  # arrays of no axis are numbers, and cannot be hashed
            object.__setattr__(self, name, real(name, getattr(self, name)))

    def check(self) -> None:
        """Raise Error, naming the field, if the problem has no meaning on any backend."""
        lib.ordo_problem_check(byref(to_c(self)))

    def replace(self, **changes: Any) -> Problem:
        """A copy with some fields changed."""
        return replace(self, **changes)


def _pair(window: Any) -> tuple[int, int]:
    try:
        left, right = window
    except (TypeError, ValueError):
        raise Error(
            "argument", f"window {window!r}: expected a pair (left, right), or None for no window"
        ) from None
    return integer("window.left", left), integer("window.right", right)


def to_c(problem: Problem) -> s.ordo_problem:
    made = s.sized(s.ordo_problem)
    window = SimpleNamespace(on=False, left=0, right=0)
    if problem.window is not None:
        window = SimpleNamespace(on=True, left=problem.window[0], right=problem.window[1])
    fill(made, SimpleNamespace(**{**vars(problem), "window": window}))
    return made  # type: ignore[no-any-return]


def from_c(struct: s.ordo_problem) -> Problem:
    window = struct.window
    problem: Problem = read(
        Problem,
        struct,
        window=(window.left, window.right) if window.on else None,
        dropout=read(Dropout, struct.dropout),
        shard=read(Shard, struct.shard),
        extras=Extra(integer("extras", struct.extras)),
        blocks=read(BlockLimits, struct.blocks),
        paging=read(Paging, struct.paging),
        seen=read(SeenLimits, struct.seen),
        bias=read(Bias, struct.bias),
    )
    return problem
