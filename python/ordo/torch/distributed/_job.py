"""A call on all ranks as passes over dense parts of sequences.

A document is what attends to itself: all sequences of a dense batch together, one sequence of a
padded or packed one. A part is what a chunk of rows (or columns) holds of a document. Each part
is a dense problem with a place in its document (ordo.Shard), which has the bits of the whole:
o, lse and dq of some rows against all columns, dk and dv of whole key tiles against all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import _front as f
from .. import _parts
from .._inputs import Lists, Rules
from .._parts import Saved
from ._exchange import Ranks
from ._shards import Chunk, Rows, gather_rows

_KEEP_ROWS = 16  # rows of a block of keep bits
KEY_TILE = 256  # a multiple of the rows and columns of every backward tile and block of keep bits
WHAT = "context_parallel_attention"


class Document(NamedTuple):
    """Sequences from `at` on of the batch, as tensors (batch, row, head, dim)."""

    at: int
    sequences: int
    first: int  # in the first axis of the tensors, which is 1 long where sequences are packed
    rows: tuple[int, int]  # first and end, in the whole
    columns: tuple[int, int]


class Job(NamedTuple):
    ranks: Ranks
    rows: Rows
    columns: Rows
    documents: tuple[Document, ...]
    rules: Rules  # with the caller's shard
    heads: int
    kv_heads: int
    lists: Lists  # rng, sequence_ids and slopes


class Heads(NamedTuple):
    """Some key heads of a job, with their query heads."""

    first: int
    number: int


def parts(job: Job, along: str) -> Iterator[tuple[Document, Chunk]]:
    """What this rank holds of documents that have rows and columns, along one of the two."""
    for document in job.documents:
        if document.rows[0] < document.rows[1] and document.columns[0] < document.columns[1]:
            for chunk in getattr(job, along).within(getattr(document, along)):
                if chunk.rank == job.ranks.rank:
                    yield document, chunk


# ---- tensors ----

Around = tuple[int, int]  # rows of zeros in front of a part and behind it
ROW_AXES, HEAD_AXES = (1, 1, -1, 1, -1), (2, 2, 1, 2, 1)  # axes in the tensors of Saved


def cut(
    x: Tensor, axis: int, document: Document, span: tuple[int, int], around: Around = (0, 0)
) -> Tensor:
    """Places span[0] ... span[1] - 1 of an axis, of a document's sequences, with zeros around them."""
    some = x[document.first : document.first + document.sequences]
    some = some.narrow(axis, span[0], span[1] - span[0])
    if not any(around):
        return some
    return pad(some, around if axis == -1 else (0, 0, 0, 0, *around))


def cut_rows(
    x: Saved, document: Document, span: tuple[int, int], around: Around = (0, 0)
) -> Saved:
    return Saved(*(cut(y, axis, document, span, around) for y, axis in zip(x, ROW_AXES)))


def part_call(
    job: Job, heads: Heads, document: Document, first: tuple[int, int]
) -> tuple[Lists, Rules]:
    """Lists and rules of a part whose first row and column in the document are `first`."""
    group = job.heads // job.kv_heads
    shard = job.rules.shard or (0,) * 7
    where = (
        shard[0] + document.at, shard[1] + heads.first * group, *first, shard[4] or job.heads,
        document.rows[1] - document.rows[0], document.columns[1] - document.columns[0],
    )  # fmt: skip
    ids, slopes = job.lists.sequence_ids, job.lists.slopes
    these = slice(document.at, document.at + document.sequences)
    if slopes is not None:
        slopes = slopes[these] if slopes.dim() == 2 else slopes
        slopes = slopes[..., heads.first * group : (heads.first + heads.number) * group].contiguous()
    lists = job.lists._replace(sequence_ids=None if ids is None else ids[these], slopes=slopes)
    return lists, job.rules._replace(max_q=0, max_kv=0, shard=where)


# ---- the call ----


class Divided(torch.autograd.Function):
    """(o, lse) of this rank's rows.

    The forward pass gathers keys and values, those of `step` key heads at a time. `run(job, rows, k,
    v, dk, dv)`, the backward pass, returns dq and writes what is not known of dk and dv.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, job: Job, step: int, run: Callable[..., Tensor]
    ) -> Any:
        o, lse = new_results(q, v)
        group = job.heads // job.kv_heads
        for h in range(0, job.kv_heads, step):
            keys, values = all_keys(job, Heads(h, step), k, v)
            own = slice(h * group, (h + step) * group)
            forward(job, Heads(h, step), q[:, :, own], keys, values, o[:, :, own], lse[:, own])
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.job, ctx.run = job, run
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse = ctx.saved_tensors
        dk, dv = new_key_gradients(ctx.job, k, v)
        dq = ctx.run(ctx.job, Saved(q, o, lse, dout, dlse), k, v, dk, dv)
        return dq, dk, dv, None, None, None


def all_keys(job: Job, heads: Heads, k: Tensor, v: Tensor) -> list[Tensor]:
    """The keys and values of some heads, with all columns."""
    some = [x[:, :, heads.first : heads.first + heads.number] for x in (k, v)]
    what = f"{WHAT} (keys and values of heads from {heads.first})"
    return gather_rows(job.ranks, what, job.columns, some, [1, 1])


# ---- passes ----


def _around(job: Job, document: Document, chunk: Chunk, backward: bool) -> Around:
    """What makes a part begin where dropout's tiles do. With a negative scale, whole tiles: then
    dq of a row that sees no key is -0 if its tile sees one, else 0."""
    if backward and job.rules.scale < 0:
        rows = document.rows[1] - document.rows[0]
        return chunk.start % KEY_TILE, min(-chunk.end % KEY_TILE, rows - chunk.end)
    return chunk.start % _KEEP_ROWS if job.rules.dropout_p > 0 else 0, 0


def forward(job: Job, heads: Heads, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
    """Write o and lse of this rank's rows, of some heads, with all keys. Others are left alone."""
    for document, chunk in parts(job, "rows"):
        around = _around(job, document, chunk, False)
        keys, values = (cut(x, 1, document, document.columns) for x in (k, v))
        lists, rules = part_call(job, heads, document, (chunk.start - around[0], 0))
        queries = cut(q, 1, document, chunk.here, around)
        some, sums = _parts.forward(queries, keys, values, lists, rules)
        cut(o, 1, document, chunk.here).copy_(some[:, around[0] :])
        cut(lse, -1, document, chunk.here).copy_(sums[..., around[0] :])


def backward_rows(job: Job, heads: Heads, here: Saved, k: Tensor, v: Tensor, dq: Tensor) -> None:
    """Write dq of this rank's rows, with all keys."""
    for document, chunk in parts(job, "rows"):
        lead, tail = _around(job, document, chunk, True)
        rows = cut_rows(here, document, chunk.here, (lead, tail))
        keys, values = (cut(x, 1, document, document.columns) for x in (k, v))
        lists, rules = part_call(job, heads, document, (chunk.start - lead, 0))
        found = _parts.backward(rows, keys, values, lists, rules, f.NO_DKV)[0]
        assert found is not None
        cut(dq, 1, document, chunk.here).copy_(found[:, lead : lead + chunk.length])


def backward_columns(
    job: Job, heads: Heads, all_rows: Saved, k: Tensor, v: Tensor, dk: Tensor, dv: Tensor
) -> None:
    """Write dk and dv of this rank's columns, with all rows. k and v hold all columns.

    A key tile that two ranks hold parts of is computed by both: gradients of a column do not depend
    on the other columns, and to send them would take longer.
    """
    for document, chunk in parts(job, "columns"):
        (begin, end), lead = document.columns, chunk.start % KEY_TILE
        tiles = begin + chunk.start - lead, min(begin + chunk.end + -chunk.end % KEY_TILE, end)
        keys, values = (cut(x, 1, document, tiles) for x in (k, v))
        rows = cut_rows(all_rows, document, document.rows)
        lists, rules = part_call(job, heads, document, (0, chunk.start - lead))
        found = _parts.backward(rows, keys, values, lists, rules, f.NO_DQ)
        for grad, some in zip((dk, dv), found[1:]):
            assert some is not None
            cut(grad, 1, document, chunk.here).copy_(some[:, lead : lead + chunk.length])


def new_results(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """o and lse as rows of no sequence have them."""
    batch, rows, heads, _ = q.shape
    o = q.new_zeros(batch, rows, heads, v.shape[-1])
    return o, q.new_full((batch, heads, rows), -math.inf, dtype=torch.float32)


def new_key_gradients(job: Job, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """dk and dv of columns that no row sees: 0, and where only their own document has no rows,
    scale times 0 for dk, whose sign is that of the scale."""
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    if job.rules.scale < 0 and job.rows.total > 0:
        for document in job.documents:
            for chunk in job.columns.within(document.columns):
                if document.rows[0] == document.rows[1] and chunk.rank == job.ranks.rank:
                    cut(dk, 1, document, chunk.here).fill_(-0.0)
    return dk, dv


# ---- method gather ----


def gradients_by_gather(job: Job, here: Saved, k: Tensor, v: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
    """Keys come to the queries, and for dk and dv queries come to the keys.

    Each gradient is computed where it is kept, by seven products instead of five, and no sum crosses
    ranks. Any number of ranks, heads and rows will do. A rank holds all keys and values during a
    pass, and in the backward pass all q, o and dout too.
    """
    heads, dq = Heads(0, job.kv_heads), torch.zeros_like(here.q)
    keys, values = all_keys(job, heads, k, v)
    backward_rows(job, heads, here, keys, values, dq)
    what = f"{WHAT} (queries and gradients)"
    rows = Saved(*gather_rows(job.ranks, what, job.rows, here, ROW_AXES))
    backward_columns(job, heads, rows, keys, values, dk, dv)
    return dq
