"""Method relay as data: which rank computes which rows of a document, in which order, and when.

The sums of dk and dv of one key head pass the ranks in the order in which the plan visits rows:
the stages of a chain. Stages begin at multiples of the rows of a backward tile; a tile whose rows
two ranks hold is computed by the one that holds its first row. A document and a key head are an
item. Stage s of item x runs at time x + s, so that all ranks are busy once the pipe is full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ._job import Document
from ._shards import Rows


class Held(NamedTuple):
    """Adjacent rows or columns of a document that a rank holds."""

    rank: int
    first: int  # in the document
    last: int
    at: int  # of the first one in the rank's tensor


class Stage(NamedTuple):
    rank: int
    first: int  # row in the document
    last: int


class Piece(NamedTuple):
    """Rows of a stage, and who holds them."""

    stage: int
    held: Held


class Chain(NamedTuple):
    document: Document
    stages: tuple[Stage, ...]  # in the order in which the plan visits rows
    pieces: tuple[Piece, ...]
    keys: tuple[Held, ...]


class Message(NamedTuple):
    """What one rank sends to another at a time. kind: 0 keys and values to the first stage,
    1 a packet to the next stage, 2 gradients to who holds the keys. `at` is the place in keys,
    or the stage that sends."""

    time: int
    kind: int
    item: int
    at: int
    source: int
    target: int


def held(span: tuple[int, int], rows: Rows) -> list[Held]:
    """Who holds the rows (or columns) of a document, in their order."""
    found = []
    for s in rows.chunks:
        first, last = max(span[0], s.start), min(span[1], s.end)
        if first < last:
            found.append(Held(s.rank, first - span[0], last - span[0], first - s.start + s.at))
    return found


def chain_of(document: Document, rows: Rows, columns: Rows, tile: int, descending: bool) -> Chain:
    total = document.rows[1] - document.rows[0]
    holders = held(document.rows, rows)
    stages: list[Stage] = []
    for x in holders:
        first, last = (min(-(-row // tile) * tile, total) for row in (x.first, x.last))
        if stages and stages[-1].rank == x.rank:
            stages[-1] = stages[-1]._replace(last=last)
        elif first < last:
            stages.append(Stage(x.rank, first, last))
    if descending:
        stages.reverse()
    pieces = []
    for at, stage in enumerate(stages):
        for x in holders:
            first, last = max(stage.first, x.first), min(stage.last, x.last)
            if first < last:
                pieces.append(Piece(at, Held(x.rank, first, last, x.at + first - x.first)))
    return Chain(document, tuple(stages), tuple(pieces), tuple(held(document.columns, columns)))


def messages(item: int, chain: Chain) -> Iterator[Message]:
    """All messages of an item, in the order that sender and receiver both keep."""
    stages = chain.stages
    last = len(stages) - 1
    for at, x in enumerate(chain.keys):
        if x.rank != stages[0].rank:
            yield Message(item - 1, 0, item, at, x.rank, stages[0].rank)
    for at in range(last):
        yield Message(item + at, 1, item, at, stages[at].rank, stages[at + 1].rank)
    for at, x in enumerate(chain.keys):
        if x.rank != stages[last].rank:
            yield Message(item + last, 2, item, at, stages[last].rank, x.rank)


def timetable(items: Sequence[Chain], rank: int) -> list[tuple[int, int, int, Message | None]]:
    """What a rank does, in order: (time, item, stage) to compute, or a message to send or receive.

    At each time it computes first. All messages come in one order that is the same on both sides.
    """
    table: list[tuple[tuple[int, ...], tuple[int, int, int, Message | None]]] = []
    for item, chain in enumerate(items):
        for s, stage in enumerate(chain.stages):
            if stage.rank == rank:
                table.append(((item + s, -1, item, s), (item + s, item, s, None)))
        for m in messages(item, chain):
            if rank in (m.source, m.target):
                table.append(((m.time, m.kind, m.item, m.at), (m.time, item, m.at, m)))
    return [entry for _, entry in sorted(table, key=lambda x: x[0])]
