"""A call on all ranks as passes over dense parts of sequences.

A document is what attends to itself: all sequences of a dense batch together, one sequence of a
padded or packed one. A part is what a chunk of rows (or columns) holds of a document. Each part
is a dense problem with a place in its document (ordo.Shard), which has the bits of the whole:
o, lse and dq of some rows against all columns, dk and dv of whole key tiles against all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import _parts
from .._inputs import Lists, Rules
from .._parts import Saved, Wanted
from ._exchange import Ranks
from ._shards import Chunk, Rows

_KEEP_ROWS = 16  # of a block of keep bits
KEY_TILE = 256  # a multiple of the rows and columns of every backward tile and block of keep bits
WHAT = "context_parallel_attention"


class Document(NamedTuple):
    """Sequences from `at` on of the batch, as tensors (batch, row, head, dim)."""

    at: int
    sequences: int
    first: int  # in the first axis of the tensors, which is 1 long where sequences are packed
    rows: tuple[int, int]  # of the whole
    columns: tuple[int, int]


class Job(NamedTuple):
    ranks: Ranks
    rows: Rows
    columns: Rows
    documents: tuple[Document, ...]
    rules: Rules  # with the caller's shard
    heads: int
    kv_heads: int
    rng: Tensor | None
    ids: Tensor | None
    slopes: Tensor | None


class Heads(NamedTuple):
    """Some key heads of a job, with their query heads."""

    first: int
    number: int


class Part(NamedTuple):
    """What a chunk holds of a document."""

    document: Document
    first: int  # row or column in the document
    length: int
    at: int  # in the tensor of the rank that holds the chunk


def parts(documents: Sequence[Document], chunks: Sequence[Chunk], axis: str) -> Iterator[Part]:
    """The parts of documents that have rows and columns. `axis` says along which they are cut."""
    for part in _overlaps(documents, chunks, axis):
        (a, b), (c, d) = part.document.rows, part.document.columns
        if a < b and c < d:
            yield part


def _overlaps(
    documents: Sequence[Document], chunks: Sequence[Chunk], axis: str
) -> Iterator[Part]:
    for chunk in chunks:
        for document in documents:
            begin, end = document.rows if axis == "rows" else document.columns
            first, last = max(begin, chunk.start), min(end, chunk.end)
            if first < last:
                at = first - chunk.start + chunk.at
                yield Part(document, first - begin, last - first, at)


# ---- tensors ----


def batch_of(x: Tensor, document: Document) -> Tensor:
    return x[document.first : document.first + document.sequences]


def columns_of(x: Tensor, document: Document, first: int = 0, last: int | None = None) -> Tensor:
    """Columns first .. last of a document, of a tensor that holds all of them."""
    begin, end = document.columns
    stop = end if last is None else begin + last
    return batch_of(x, document)[:, begin + first : stop]


def rows_of(x: Tensor, document: Document) -> Tensor:
    return batch_of(x, document)[:, document.rows[0] : document.rows[1]]


def lse_rows_of(x: Tensor, document: Document) -> Tensor:
    return batch_of(x, document)[..., document.rows[0] : document.rows[1]]


def part_call(
    job: Job, heads: Heads, document: Document, first: tuple[int, int]
) -> tuple[Lists, Rules]:  # fmt: skip
    """Lists and rules of a part whose first row and column in the document are `first`."""
    group = job.heads // job.kv_heads
    shard = job.rules.shard or (0,) * 7
    where = (
        shard[0] + document.at, shard[1] + heads.first * group, *first, shard[4] or job.heads,
        document.rows[1] - document.rows[0], document.columns[1] - document.columns[0],
    )  # fmt: skip
    rules = job.rules._replace(max_q=0, max_kv=0, shard=where)
    slopes = job.slopes
    if slopes is not None:
        if slopes.dim() == 2:
            slopes = slopes[document.at : document.at + document.sequences]
        slopes = slopes[..., heads.first * group : (heads.first + heads.number) * group].contiguous()
    ids = job.ids
    if ids is not None:
        ids = ids[document.at : document.at + document.sequences]
    lists = Lists(rng=job.rng, sequence_ids=ids, slopes=slopes)
    return lists, rules


# ---- passes ----


class Around(NamedTuple):
    """Rows of zeros in front of a part and behind it."""

    lead: int
    tail: int


def _around(job: Job, part: Part, backward: bool) -> Around:
    """What makes a part begin where dropout's tiles do. With a negative scale, whole tiles: then
    dq of a row that sees no key is -0 if its tile sees one, else 0."""
    if backward and job.rules.scale < 0:
        rows = part.document.rows[1] - part.document.rows[0]
        end = part.first + part.length
        return Around(part.first % KEY_TILE, min(-end % KEY_TILE, rows - end))
    return Around(part.first % _KEEP_ROWS if job.rules.dropout_p > 0 else 0, 0)


def _rows(x: Tensor, part: Part, around: Around) -> Tensor:
    some = batch_of(x, part.document)[:, part.at : part.at + part.length]
    return pad(some, (0, 0, 0, 0, *around)) if any(around) else some


def _lse_rows(x: Tensor, part: Part, around: Around) -> Tensor:
    some = batch_of(x, part.document)[..., part.at : part.at + part.length]
    return pad(some, around) if any(around) else some


def forward(job: Job, heads: Heads, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
    """Write o and lse of this rank's rows, of some heads, with all keys. Others are left alone."""
    for part in parts(job.documents, job.rows.of(job.ranks.rank), "rows"):
        document, around = part.document, _around(job, part, False)
        rows, lead = _rows(q, part, around), around.lead
        keys, values = columns_of(k, document), columns_of(v, document)
        lists, rules = part_call(job, heads, document, (part.first - lead, 0))
        some, sums = _parts.forward(rows, keys, values, lists, rules)
        here = slice(part.at, part.at + part.length)
        batch_of(o, document)[:, here] = some[:, lead:]
        batch_of(lse, document)[..., here] = sums[..., lead:]


def backward_rows(job: Job, heads: Heads, here: Saved, k: Tensor, v: Tensor, dq: Tensor) -> None:
    """Write dq of this rank's rows, with all keys."""
    for part in parts(job.documents, job.rows.of(job.ranks.rank), "rows"):
        document, around = part.document, _around(job, part, True)
        lead = around.lead
        q, o, dout = (_rows(x, part, around) for x in (here.q, here.o, here.dout))
        lse, dlse = (_lse_rows(x, part, around) for x in (here.lse, here.dlse))
        keys, values = columns_of(k, document), columns_of(v, document)
        lists, rules = part_call(job, heads, document, (part.first - lead, 0))
        rows = Saved(q, o, lse, dout, dlse)
        found = _parts.backward(rows, keys, values, lists, rules, Wanted(dq=True, keys=False))[0]
        assert found is not None
        some = found[:, lead : lead + part.length]
        batch_of(dq, document)[:, part.at : part.at + part.length] = some


def backward_columns(
    job: Job, heads: Heads, all_rows: Saved, k: Tensor, v: Tensor, dk: Tensor, dv: Tensor
) -> None:
    """Write dk and dv of this rank's columns, with all rows. k and v hold all columns.

    A key tile that two ranks hold parts of is computed by both: gradients of a column do not depend
    on the other columns, and to send them would take longer.
    """
    for part in parts(job.documents, job.columns.of(job.ranks.rank), "columns"):
        document = part.document
        lead = part.first % KEY_TILE
        last = math.ceil((part.first + part.length) / KEY_TILE) * KEY_TILE
        last = min(last, document.columns[1] - document.columns[0])
        keys, values = (columns_of(x, document, part.first - lead, last) for x in (k, v))
        q, o, dout = (rows_of(x, document) for x in (all_rows.q, all_rows.o, all_rows.dout))
        lse, dlse = (lse_rows_of(x, document) for x in (all_rows.lse, all_rows.dlse))
        lists, rules = part_call(job, heads, document, (0, part.first - lead))
        rows = Saved(q, o, lse, dout, dlse)
        found = _parts.backward(rows, keys, values, lists, rules, Wanted(dq=False, keys=True))
        for grad, some in zip((dk, dv), found[1:]):
            assert some is not None
            here = slice(part.at, part.at + part.length)
            batch_of(grad, document)[:, here] = some[:, lead : lead + part.length]


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
        for part in _overlaps(job.documents, job.columns.of(job.ranks.rank), "columns"):
            if part.document.rows[0] == part.document.rows[1]:
                batch_of(dk, part.document)[:, part.at : part.at + part.length] = -0.0
    return dk, dv
