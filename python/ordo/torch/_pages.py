"""Keys in pages: read where they lie; in graphs, and where the library does not take them so, gathered
end to end for the kernels of packed sequences.

Tiles of keys begin at multiples of the same columns as those of the whole sequence, so that every row
has the bits of the training pass: where a window's cache dropped old keys, rows up to the multiple
before the first stored one are filled in a gather. No number is read from a device, unless
check_lengths() asks for it: both ways are part of a CUDA graph. There a row that sees a key of a page
that k does not have, or one that is not stored, is NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._library import Error
from ._call import Arguments, as_int32, checked, mask_of, plain, window_of
from ._inputs import DTYPES

ALIGN = 256  # a multiple of the columns of every tile of keys


class Pages:
    """Where the rows of packed keys are in pages; lengths are whole, counted from column 0."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor, lens: Tensor, starts: Any
    ) -> None:
        batch = table.shape[0] if isinstance(table, Tensor) and table.dim() == 2 else -1
        for name, x, shape in (
            ("page_table", table, "(batch, pages)"),
            ("kv_lens", lens, f"({batch},)"),
            ("kv_starts", starts, f"({batch},)"),
        ):
            if x is None and name == "kv_starts":
                continue
            if not isinstance(x, Tensor):
                raise Error("argument", f"{name} {x!r}: expected a tensor beside page_table")
            if batch < 0 or (name != "page_table" and x.shape != (batch,)):
                raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {shape}")
            if x.device != q.device:
                raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")
        for name, x in (("k", k), ("v", v)):
            if x.dim() != 4 or x.shape[:3] != k.shape[:3]:
                expected = "(page, row, head, dim), the same three for k and v"
                raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {expected}")
            if not x.is_floating_point():
                raise Error("argument", f"{name}.dtype {x.dtype}: expected that of q, {q.dtype}")
        if k.shape[0] == 0 or k.shape[1] == 0:
            raise Error("shape", f"k.shape {tuple(k.shape)}: expected a page and a row at least")
        self.table = as_int32("page_table", table).contiguous()
        self.page_rows, self.pages = k.shape[1], k.shape[0]
        self.longest = table.shape[1] * self.page_rows
        self.lens = lens = as_int32("kv_lens", lens).contiguous()
        self.starts = torch.zeros_like(lens) if starts is None else as_int32("kv_starts", starts).contiguous()
        self.plain = plain(q, k, v)
        self.look = self.plain and (q.is_cpu or checked())
        if self.look:
            self._check()

    def _check(self) -> None:
        """The numbers themselves."""
        for b, (start, length) in enumerate(zip(self.starts.tolist(), self.lens.tolist())):
            if not 0 <= length <= self.longest:
                raise Error(
                    "shape",
                    f"kv_lens[{b}] {length}: expected 0..{self.longest}, the table's columns",
                )
            if not 0 <= start <= length:
                raise Error(
                    "shape", f"kv_starts[{b}] {start}: expected 0..{length}, that of kv_lens"
                )
            stored = self.table[b, start // self.page_rows : -(-length // self.page_rows)].tolist()
            for x, page in enumerate(stored, start // self.page_rows):
                if not 0 <= page < self.pages:
                    raise Error(
                        "shape", f"page_table[{b}][{x}] {page}: expected 0..{self.pages - 1}"
                    )

    def place(self, sequence: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """(page, row) of columns of sequences; the page is the number of the table, whatever it is."""
        entry = (column // self.page_rows).clamp(0, self.table.shape[1] - 1)
        return self.table[sequence, entry].long(), (column % self.page_rows).long()

    def gather(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The stored keys and values end to end, (row, head, dim), and rows that nobody reads; and their
        ends.

        A key that is not stored, or in no page of k, is NaN, so that a row that sees it is NaN; its
        value is 0.
        """
        batch = self.table.shape[0]
        first = self.starts // ALIGN * ALIGN  # the column of the first row of each sequence
        lengths = (self.lens.clamp(0, self.longest) - first).clamp(min=0)
        ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        row = torch.arange(batch * self.longest, device=k.device)
        sequence = (
            torch.searchsorted(ends, row, right=True, out_int32=True)
            .sub(1)
            .clamp(0, max(batch - 1, 0))
        )
        column = row - ends[sequence] + first[sequence]
        page, at = self.place(sequence, column)
        there = page.clamp(0, self.pages - 1)
        hidden = ((column < self.starts[sequence]) | (page != there))[:, None, None]
        page = there
        return k[page, at].masked_fill(hidden, torch.nan), v[page, at].masked_fill(hidden, 0), ends


def aligned(k: Tensor, v: Tensor, ends: Tensor, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Stored keys and values end to end, (row, head, dim), with the rows before the first stored one
    that its tile has, and their ends. The filled keys are NaN, their values 0."""
    batch = starts.shape[0]
    fill = starts % ALIGN
    made = ends + torch.nn.functional.pad(fill.cumsum(0, dtype=torch.int32), (1, 0))
    row = torch.arange(k.shape[0] + batch * (ALIGN - 1), device=k.device)
    sequence = torch.searchsorted(made, row, right=True).sub(1).clamp(0, max(batch - 1, 0))
    column = row - made[sequence] - fill[sequence]
    source = (ends[sequence] + column).clamp(0, max(k.shape[0] - 1, 0))
    hidden = (column < 0)[:, None, None]
    return k[source].masked_fill(hidden, torch.nan), v[source].masked_fill(hidden, 0), made


# ---- read where they lie ----

_GROUP_MAX, _DIM_MAX = 64, 256  # of heads that share keys, and of head sizes, on CUDA
# Rows times heads that share keys: over pages that are no multiples of 16 rows, kernels of packed
# sequences are faster beyond.
_LINES_MAX = 1024


def in_place(q: Tensor, k: Tensor, v: Tensor, batch: int) -> bool:
    """Whether the library reads keys where they lie, of plain packed queries."""
    dims = q.shape[-1], v.shape[-1]
    if q.dim() != 3 or 0 in (batch, *q.shape, *k.shape, *dims):
        return False
    group, rest = divmod(q.shape[-2], k.shape[-2])
    if rest or (k.shape[1] % 16 != 0 and q.shape[0] * group > batch * _LINES_MAX):
        return False
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES or q.shape[-1] != k.shape[-1]:
        return False
    if torch.is_autocast_enabled(q.device.type) and torch.get_autocast_dtype(q.device.type) != q.dtype:
        return False
    if any(x.stride(-1) != 1 or 0 in x.stride() or x.device != q.device for x in (k, v)):
        return False
    return q.is_cpu or (
        q.dtype != torch.float32
        and max(dims) <= _DIM_MAX
        and group <= _GROUP_MAX
        and not any(dim % 8 for dim in dims)
        and all(_aligned(x) for x in (k, v))
    )


def _aligned(x: Tensor) -> bool:
    """Whether CUDA kernels copy its rows."""
    return x.data_ptr() % 16 == 0 and not any(stride % 8 for stride in x.stride()[:-1])


def _sees_dropped(pages: Pages, a: Arguments, count: int) -> Tensor:
    """Which rows of sequences see a key that is not stored."""
    ends: Any = a.cu_q
    row = torch.arange(count, dtype=ends.dtype, device=ends.device)
    b = torch.searchsorted(ends, row, right=True).sub(1).clamp(0, len(pages.lens) - 1)
    left, _ = window_of(a.window)
    first = pages.lens[b] - ends[b + 1] + row - left if left >= 0 else torch.zeros_like(row)
    return (pages.starts[b] > first.clamp(min=0)) & (row < ends[-1])


# ---- every call ----


def packed(
    q: Tensor, k: Tensor, v: Tensor, a: Arguments
) -> tuple[Tensor, Tensor, Tensor, Arguments, Tensor | None]:
    """The call of packed sequences that a call with page_table is: with it where keys are read where
    they lie, else without; q may be (batch, row, head, dim). Then which rows are NaN whatever the call
    gives, because they see a key that is not stored; None where there are none."""
    for name in ("cu_kv", "q_lens", "sequence_ids", "shard", "block_mask", "prepared", "seen", "bias"):
        if getattr(a, name) is not None:
            raise Error("unsupported", f"{name} given: expected None with page_table")
    if a.kv_starts is not None and mask_of(a.causal) == "causal-top-left":
        raise Error(
            "unsupported", f"kv_starts given: expected None with causal {a.causal!r}, which sees column 0"
        )
    if a.dropout_p != 0:
        raise Error("unsupported", f"dropout_p {a.dropout_p}: expected 0 with page_table")
    if torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (q, k, v, a.sink)
    ):
        raise Error("unsupported", "page_table given: no gradients; call it under torch.no_grad()")
    pages = Pages(q, k, v, a.page_table, a.kv_lens, a.kv_starts)
    batch = pages.table.shape[0]
    cu_q, max_q = a.cu_q, a.max_q
    if cu_q is None:
        if q.dim() != 4 or q.shape[0] != batch:
            raise Error(
                "shape", f"q.shape {tuple(q.shape)}: expected ({batch}, row, head, dim), or cu_q"
            )
        max_q = q.shape[1]
        cu_q = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * max_q
        q = q.flatten(0, 1)
    elif cu_q.shape != (batch + 1,):
        raise Error("shape", f"cu_q.shape {tuple(cu_q.shape)}: expected ({batch + 1},)")
    a = a._replace(cu_q=cu_q)
    broken = None
    if pages.look:
        _check_starts(pages, a)
    elif a.kv_starts is not None and batch:
        broken = _sees_dropped(pages, a, q.shape[0])
    if not pages.plain or not in_place(q, k, v, batch):
        keys, values, ends = pages.gather(k, v)
        max_kv = pages.longest if a.max_kv is None else a.max_kv
        unpaged = a._replace(kv_lens=None, kv_starts=None, page_table=None)
        unpaged = unpaged._replace(cu_kv=ends, max_q=max_q, max_kv=max_kv)
        return q, keys, values, unpaged, broken
    a = a._replace(
        cu_kv=cu_q,
        max_q=q.shape[0] if max_q is None else max_q,
        max_kv=pages.longest,
        kv_lens=pages.lens,
        kv_starts=None if a.kv_starts is None else pages.starts,
        page_table=pages.table,
    )
    return q, k, v, a, broken


def _check_starts(pages: Pages, a: Arguments) -> None:
    """Keys that are not stored must be outside the window of every row."""
    if a.kv_starts is None:
        return
    left, _ = window_of(a.window)
    ends: Any = a.cu_q
    rows = ends.diff()
    for b, (start, length, count) in enumerate(
        zip(pages.starts.tolist(), pages.lens.tolist(), rows.tolist())
    ):
        if count and start > 0 and (left < 0 or start > length - count - left):
            raise Error(
                "argument",
                f"kv_starts[{b}] {start}: expected no more than the {length - count} keys before the "
                f"first row less the window, {left}",
            )
