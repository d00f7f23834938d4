"""Method relay: sums of dk and dv travel from rank to rank, one key head at a time.

The backward pass takes five products. A packet with the keys and values of one key head and its f32
sums passes the ranks in the order in which the plan visits rows: the stages of a chain. Each rank
adds what its rows give, and computes their dq on the way. Stages begin at multiples of the rows of a
backward tile; a tile whose rows two ranks hold is computed by the one that holds its first row.
While one rank has one packet, others have others: a timetable, the same on all ranks, says when each
stage is computed, and between two times one all-to-all moves all packets. No rank ever holds the keys
of more than a few key heads: the one that it works on, those that arrive and those that leave.

The forward pass, and a backward pass over one rank's rows, need all keys of a head at once, since a
sum over keys cannot be interrupted as one over rows can. So keys are gathered for one key head at a
time, and where there is only one, the memory is that of method gather.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._plan import Plan
from .. import _parts
from .. import _front as f
from .._call import widened
from .._inputs import call_of, plan_of
from .._parts import CARRY_IN, CARRY_OUT, Saved, Sums
from ._exchange import Form, Move, move
from ._job import (
    HEAD_AXES,
    ROW_AXES,
    WHAT,
    Document,
    Heads,
    Job,
    cut,
    cut_rows,
    part_call,
)
from ._shards import Chunk, Rows, joined


def gradients_by_relay(job: Job, here: Saved, k: Tensor, v: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
    """Write dk and dv, and return dq."""
    slopes = job.lists.slopes
    if slopes is not None:  # the plan is that of this rank's rows as a dense batch
        slopes = slopes[: len(k)] if slopes.dim() == 2 else slopes
    lists = job.lists._replace(sequence_ids=None, slopes=slopes)
    chains = chains_of(job, plan_of(*widened(here.q, k, v), call_of(lists, job.rules)))
    rows = _take_rows(job, chains, here)
    dq = {at: torch.empty_like(x.q) for at, x in rows.items()}
    _pass_packets(job, chains, rows, dq, (k, v), (dk, dv))
    return _return_rows(job, chains, dq, here.q)


# ---- which rank computes which rows of a document, in which order, and when ----


class Stage(NamedTuple):
    rank: int
    first: int  # row in the document
    last: int


class Chain(NamedTuple):
    document: Document
    stages: tuple[Stage, ...]  # in the order in which the plan visits rows
    pieces: tuple[tuple[int, Chunk], ...]  # stages, and who holds which of their rows
    keys: tuple[Chunk, ...]


def chain_of(document: Document, rows: Rows, columns: Rows, tile: int, descending: bool) -> Chain:
    total = document.rows[1] - document.rows[0]
    holders = rows.within(document.rows)
    stages: list[Stage] = []
    for x in holders:
        first, last = (min(-(-row // tile) * tile, total) for row in (x.start, x.end))
        if stages and stages[-1].rank == x.rank:
            stages[-1] = stages[-1]._replace(last=last)
        elif first < last:
            stages.append(Stage(x.rank, first, last))
    if descending:
        stages.reverse()
    begin = document.rows[0]
    pieces = tuple(
        (at, held) for at, x in enumerate(stages)
        for held in rows.within((begin + x.first, begin + x.last))
    )  # fmt: skip
    return Chain(document, tuple(stages), pieces, tuple(columns.within(document.columns)))


def chains_of(job: Job, plan: Plan) -> list[Chain]:
    """One chain for each sequence with rows and columns. `plan`: of any rows, since tiles and their
    order do not depend on how many there are."""
    tile, descending = plan.info.backward_tile.q, plan.info.order == "descending"
    return [
        chain_of(Document(d.at + b, 1, d.first + b, d.rows, d.columns), job.rows, job.columns, tile,
                 descending)
        for d in job.documents for b in range(d.sequences)
        if d.rows[0] < d.rows[1] and d.columns[0] < d.columns[1]
    ]  # fmt: skip


Item = tuple[int, int, int]  # chain, key head, stage; stage -1: keys come together at the first one


def timetable(chains: Sequence[Chain], kv_heads: int) -> list[list[Item]]:
    """The items of each time. At one time a rank computes as many stages as it has of a chain.

    Chains that never leave a rank come last: no rank waits for another then.
    """
    most = max((n for x in chains for n in Counter(s.rank for s in x.stages).values()), default=0)
    table: dict[int, list[Item]] = defaultdict(list)
    load: Counter[tuple[int, int]] = Counter()  # by rank and time
    for alone in (False, True):
        begin = len(table)
        free: dict[int, int] = defaultdict(lambda: begin)  # when a rank may begin a chain
        for c, chain in enumerate(chains):
            if (len({*(x.rank for x in chain.stages), *(x.rank for x in chain.keys)}) == 1) != alone:
                continue
            ranks = [stage.rank for stage in chain.stages]
            for h in range(kv_heads):
                time = free[ranks[0]]
                while any(load[rank, time + s] == most for s, rank in enumerate(ranks, 1)):
                    time += 1
                free[ranks[0]] = time + 1
                for s, rank in enumerate([-1, *ranks], -1):
                    table[time + 1 + s].append((c, h, s))
                    load[rank, time + 1 + s] += 1
    return [table[time] for time in range(max(table, default=-1) + 1)]


# ---- rows of tiles that two ranks hold ----

Place = tuple[int, int]  # chain, stage


def _take_rows(job: Job, chains: Sequence[Chain], here: Saved) -> dict[Place, Saved]:
    """The rows of each stage of this rank, from the ranks that hold them."""
    me, moves = job.ranks.rank, {}
    for c, chain in enumerate(chains):
        for at, held in chain.pieces:
            some: Any = ()
            if held.rank == me:
                some = cut_rows(here, chain.document, held.here)
            forms = [Form.of(x, {0: 1, axis: held.length}) for x, axis in zip(here, ROW_AXES)]
            moves[c, at, held] = Move(held.rank, chain.stages[at].rank, some, forms)
    taken: dict[Place, list[Any]] = defaultdict(list)
    for (c, at, _), tensors in move(job.ranks, f"{WHAT} (rows to stages)", moves, here.q.device):
        taken[c, at].append(tensors)
    return {
        place: Saved(*(joined(x, axis) for x, axis in zip(zip(*parts), ROW_AXES)))
        for place, parts in taken.items()
    }


def _return_rows(job: Job, chains: Sequence[Chain], dq: dict[Place, Tensor], q: Tensor) -> Tensor:
    """dq of this rank's rows, from the stages that computed them."""
    result, me, moves = torch.zeros_like(q), job.ranks.rank, {}
    for c, chain in enumerate(chains):
        for at, held in chain.pieces:
            some, stage = [], chain.stages[at]
            if stage.rank == me:
                some = [dq[c, at].narrow(1, held.start, held.length)]
            form = Form.of(q, {0: 1, 1: held.length})
            moves[c, held] = Move(stage.rank, held.rank, some, [form])
    for (c, held), (some,) in move(job.ranks, f"{WHAT} (dq to rows)", moves, q.device):
        cut(result, 1, chains[c].document, held.here).copy_(some)
    return result


# ---- the way of the packets ----


def _pass_packets(
    job: Job, chains: Sequence[Chain], rows: dict[Place, Saved], dq: dict[Place, Tensor],
    keys: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """The backward pass of one rank: packets arrive, its rows are computed, packets leave."""
    me = job.ranks.rank
    # By chain and head: keys, values and their sums; behind the last stage dk and dv.
    packets: dict[tuple[int, int], list[Tensor]] = {}

    def forms(columns: int) -> list[Form]:
        return [Form((1, columns, 1, x.shape[-1]), x.dtype) for x in keys]

    def own(x: Tensor, c: int, h: int, held: Chunk) -> Tensor:
        return cut(x, 1, chains[c].document, held.here)[:, :, h : h + 1]

    for items in timetable(chains, job.kv_heads):
        for c, h, s in items:
            if s >= 0 and chains[c].stages[s].rank == me:
                packets[c, h] = _compute(job, chains[c], h, s, rows[c, s], packets[c, h], dq[c, s])
        moves: dict[Any, Move] = {}  # by the item, and the columns; None: a packet
        for c, h, s in items:
            document, stages, _, chunks = chains[c]
            here = packets.pop((c, h), [])
            if 0 <= s < len(stages) - 1:
                whole = forms(document.columns[1] - document.columns[0])
                whole += [Form(x.shape, torch.float32) for x in whole]
                moves[c, h, s, None] = Move(stages[s].rank, stages[s + 1].rank, here, whole)
                continue
            for held in chunks:
                ends, some = (stages[s].rank, held.rank), [x[:, held.start : held.end] for x in here]
                if s < 0:
                    ends = held.rank, stages[0].rank
                    some = [own(x, c, h, held) for x in keys] if held.rank == me else []
                moves[c, h, s, held] = Move(*ends, some, forms(held.length))
        coming: dict[tuple[int, int], list[list[Tensor]]] = defaultdict(list)
        arrived = move(job.ranks, f"{WHAT} (relay of dk and dv)", moves, keys[0].device)
        for (c, h, s, held), tensors in arrived:
            if held is None:
                packets[c, h] = tensors
            elif s < 0:
                coming[c, h].append(tensors)
            else:
                for grad, x in zip(grads, tensors):
                    own(grad, c, h, held).copy_(x)
        for at, parts in coming.items():
            pair = [joined(x, 1) for x in zip(*parts)]
            packets[at] = pair + [x.new_empty(x.shape, dtype=torch.float32) for x in pair]


def _compute(
    job: Job, chain: Chain, h: int, s: int, rows: Saved, packet: Sequence[Tensor], dq: Tensor
) -> list[Tensor]:
    """Compute a stage of a key head: write dq, and return the packet, after the last stage dk and dv."""
    k, v, *sums = packet
    group, last = job.heads // job.kv_heads, len(chain.stages) - 1
    some = Saved(*(x.narrow(axis, h * group, group) for x, axis in zip(rows, HEAD_AXES)))
    lists, rules = part_call(job, Heads(h, 1), chain.document, (chain.stages[s].first, 0))
    carry = (CARRY_IN if s > 0 else 0) | (CARRY_OUT if s < last else 0)
    carried = Sums(sums[0], sums[1], carry) if carry else None
    dq[:, :, h * group : (h + 1) * group], *written = _parts.backward(
        some, k, v, lists, rules, 0 if s == last else f.NO_DKV, carried
    )
    return written if s == last else list(packet)
