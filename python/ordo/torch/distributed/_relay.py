"""Method relay: sums of dk and dv travel from rank to rank, one key head at a time.

The backward pass takes five products. A packet with the keys and values of one key head and its f32
sums passes the ranks in the order in which the plan visits rows: the stages of a chain. Each rank
adds what its rows give, and computes their dq on the way. Stages begin at multiples of the rows of a
backward tile; a tile whose rows two ranks hold is computed by the one that holds its first row. A
document and a key head are an item. Stage s of item x runs at time x + s, so that all ranks are
busy once the pipe is full. No rank ever holds the keys of more than a few key heads: the one that it
works on, those that arrive and those that leave.

The forward pass, and a backward pass over one rank's rows, need all keys of a head at once, since a
sum over keys cannot be interrupted as one over rows can. So keys are gathered for one key head at a
time, and where there is only one, the memory is that of method gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..._plan import Plan
from ..._problem import Shard
from .. import _parts
from .._parts import CARRY_IN, CARRY_OUT, Saved, Sums, Wanted
from .._plans import machine_of
from ._exchange import Form, named, swap, unpack
from ._job import (
    ROW_AXES,
    WHAT,
    Document,
    Heads,
    Job,
    cut,
    cut_rows,
    forward,
    new_key_gradients,
    new_results,
    part_call,
    places,
)
from ._shards import Chunk, Rows, gather_rows

_IN_FLIGHT = 2  # for so many steps memory may be kept for what was sent


class Relay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, job: Job, plan: Plan) -> Any:
        o, lse = new_results(q, v)
        group = job.heads // job.kv_heads
        for h in range(job.kv_heads):
            some = [k[:, :, h : h + 1], v[:, :, h : h + 1]]
            what = f"{WHAT} (keys and values of head {h})"
            keys, values = gather_rows(job.ranks, what, job.columns, some, [1, 1])
            own = slice(h * group, (h + 1) * group)
            forward(job, Heads(h, 1), q[:, :, own], keys, values, o[:, :, own], lse[:, own])
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.job, ctx.plan = job, whole_plan(job, plan, q.device)
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse = ctx.saved_tensors
        job: Job = ctx.job
        chains = chains_of(job, ctx.plan)
        rows = _take_rows(job, chains, Saved(q, o, lse, dout, dlse))
        dq = {at: torch.empty_like(x.q) for at, x in rows.items()}
        dk, dv = new_key_gradients(job, k, v)
        _Walk(job, chains, rows, dq, (k, v), (dk, dv)).run()
        return _return_rows(job, chains, dq, q), dk, dv, None, None


def whole_plan(job: Job, local: Plan, device: Any) -> Plan:
    """A plan of the longest document, of which a rank's own rows are a part: its order and tiles
    are those of every document and every part of one."""
    rows, columns = (max((b - a for a, b in spans), default=1) for spans in (
        [d.rows for d in job.documents], [d.columns for d in job.documents]
    ))  # fmt: skip
    problem = local.problem.replace(q_len=max(rows, 1), kv_len=max(columns, 1), shard=Shard())
    if device.type == "cpu":
        return Plan(problem, backend="cpu")
    return Plan(problem, machine_of(device.index), backend="cuda")


# ---- which rank computes which rows of a document, in which order, and when ----


class Stage(NamedTuple):
    rank: int
    first: int  # row in the document
    last: int


class Piece(NamedTuple):
    """Rows of a stage, and who holds them."""

    stage: int
    held: Chunk


class Chain(NamedTuple):
    document: Document
    stages: tuple[Stage, ...]  # in the order in which the plan visits rows
    pieces: tuple[Piece, ...]
    keys: tuple[Chunk, ...]


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
    pieces = []
    for at, stage in enumerate(stages):
        for x in holders:
            first, last = max(stage.first, x.start), min(stage.last, x.end)
            if first < last:
                pieces.append(Piece(at, Chunk(x.rank, first, last, x.at + first - x.start)))
    return Chain(document, tuple(stages), tuple(pieces), tuple(columns.within(document.columns)))


def chains_of(job: Job, whole: Plan) -> list[Chain]:
    """One chain for each sequence with rows and columns."""
    tile, descending = whole.info.backward_tile.q, whole.info.order == "descending"
    return [
        chain_of(Document(d.at + b, 1, d.first + b, d.rows, d.columns), job.rows, job.columns, tile,
                 descending)
        for d in job.documents for b in range(d.sequences)
        if d.rows[0] < d.rows[1] and d.columns[0] < d.columns[1]
    ]  # fmt: skip


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


# ---- rows of tiles that two ranks hold ----

Place = tuple[int, int]  # chain, stage


def _trade(
    job: Job, chains: Sequence[Chain], what: str, back: bool, part: Any, like: Sequence[Tensor]
) -> dict[tuple[int, Piece], list[Tensor]]:
    """Rows that one rank holds and another computes: to that one, or `back`. part(chain, piece) are
    the tensors to send; `like`, of this rank's rows, says what they look like."""
    ranks, me = job.ranks, job.ranks.rank
    moving = [
        (p.held.rank, chain.stages[p.stage].rank, (c, p))
        for c, chain in enumerate(chains) for p in chain.pieces
        if p.held.rank != chain.stages[p.stage].rank
    ]  # fmt: skip
    if not moving:
        return {}
    if back:
        moving = [(owner, holder, place) for holder, owner, place in moving]
    leaving = [[at for a, b, at in moving if (a, b) == (me, r)] for r in range(ranks.size)]
    coming = [[at for a, b, at in moving if (a, b) == (r, me)] for r in range(ranks.size)]

    def forms(piece: Piece) -> list[Form]:
        return [Form.of(x, {0: 1, a: piece.held.length}) for x, a in zip(like, ROW_AXES)]

    found = swap(
        ranks, f"{WHAT} ({what})", [[x for at in each for x in part(*at)] for each in leaving],
        [[form for _, piece in each for form in forms(piece)] for each in coming], like[0].device,
    )  # fmt: skip
    n = len(like)
    return {
        at: tensors[n * i : n * (i + 1)]
        for each, tensors in zip(coming, found) for i, at in enumerate(each)
    }  # fmt: skip


def _take_rows(job: Job, chains: Sequence[Chain], here: Saved) -> dict[Place, Saved]:
    """The rows of each stage of this rank."""

    def part(c: int, piece: Piece) -> Sequence[Any]:
        return cut_rows(here, *places(chains[c].document, piece.held))

    arrived = _trade(job, chains, "rows to stages", False, part, here)  # type: ignore[arg-type]
    taken = {}
    for c, chain in enumerate(chains):
        for s, stage in enumerate(chain.stages):
            if stage.rank == job.ranks.rank:
                pieces = [arrived.get((c, p)) or part(c, p) for p in chain.pieces if p.stage == s]
                joined = (x[0] if len(x) == 1 else torch.cat(x, axis)
                          for x, axis in zip(zip(*pieces), ROW_AXES))  # fmt: skip
                taken[c, s] = Saved(*joined)
    return taken


def _return_rows(job: Job, chains: Sequence[Chain], dq: dict[Place, Tensor], q: Tensor) -> Tensor:
    """dq of this rank's rows, from the stages that computed them."""
    result, me = torch.zeros_like(q), job.ranks.rank

    def part(c: int, piece: Piece) -> list[Tensor]:
        first = piece.held.start - chains[c].stages[piece.stage].first
        return [dq[c, piece.stage].narrow(1, first, piece.held.length)]

    found = _trade(job, chains, "dq to rows", True, part, [q])
    for c, chain in enumerate(chains):
        for piece in chain.pieces:
            if piece.held.rank == me:
                (some,) = found.get((c, piece)) or part(c, piece)
                cut(result, 1, *places(chain.document, piece.held)).copy_(some)
    return result


# ---- the walk of the packets ----


def _buffer(columns: int, pair: Sequence[Tensor], sums: bool = False) -> tuple[Tensor, list[Tensor]]:
    """A buffer of bytes, and in it tensors of so many columns of one key head, as `pair` has them;
    with their sums in f32."""
    forms = [Form((1, columns, 1, x.shape[-1]), x.dtype) for x in pair]
    forms += [Form(form.shape, torch.float32) for form in forms] if sums else []
    room = sum(form.room() for form in forms)
    buffer = torch.empty(room, dtype=torch.uint8, device=pair[0].device)
    return buffer, unpack(buffer, forms)


class _Walk:
    """The backward pass of one rank: packets arrive, its rows are computed, packets leave."""

    def __init__(
        self, job: Job, chains: Sequence[Chain], rows: dict[Place, Saved],
        dq: dict[Place, Tensor], keys: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor],
    ) -> None:  # fmt: skip
        self.job, self.rows, self.dq, self.keys, self.grads = job, rows, dq, keys, grads
        self.me = job.ranks.rank
        self.items = [chain for chain in chains for _ in range(job.kv_heads)]
        self.most = 1 + max((2 * len(c.keys) + len(c.stages) for c in chains), default=0)
        # By item and stage: a packet's buffer and its keys, values and sums, here or arriving.
        self.packets: dict[Place, tuple[Tensor, list[Tensor]]] = {}
        self.written: dict[int, Sequence[Tensor]] = {}  # dk and dv of an item whose last stage is here
        self.leaving: list[tuple[int, Any, Any]] = []  # time, send, and the memory that it reads
        # What is to be waited for before a stage of an item, at last before stage -1: the receive,
        # whose columns they are, and the tensors.
        self.arriving: dict[Place, list[tuple[Any, Any, list[Tensor]]]] = {}

    def run(self) -> None:
        with named(self.job.ranks, f"{WHAT} (relay of dk and dv)"):
            for _, item, at, message in timetable(self.items, self.me):
                if message is None:
                    self._compute(item, at)
                elif message.source == self.me:
                    self._send(message)
                else:
                    self._receive(message)
            for _, work, _ in self.leaving:
                work.wait()
            for item in range(len(self.items)):
                for held, some in self._arrived(item, -1):
                    for grad, x in zip(self.grads, some):
                        self._own(grad, item, held).copy_(x)

    def _own(self, x: Tensor, item: int, held: Chunk) -> Tensor:
        """This rank's columns of a document and key head."""
        h = item % self.job.kv_heads
        return cut(x, 1, *places(self.items[item].document, held))[:, :, h : h + 1]

    # -- messages --

    def _how(self, m: Message, peer: int) -> dict[str, Any]:
        group, keys = self.job.ranks.group, len(self.items[m.item].keys)
        tag = m.item * self.most + (0, 2 * keys, keys)[m.kind] + m.at
        return {"group": group, "tag": tag, "group_src" if peer == m.source else "group_dst": peer}

    def _send(self, m: Message) -> None:
        if m.kind == 1:
            buffer, _ = self.packets.pop((m.item, m.at))
        else:
            keys = self.items[m.item].keys
            held = keys[m.at]
            buffer, parts = _buffer(held.length, self.keys)
            for at, part in enumerate(parts):
                part.copy_(
                    self._own(self.keys[at], m.item, held) if m.kind == 0
                    else self.written[m.item][at][:, held.start : held.end]
                )  # fmt: skip
            if m.kind == 2 and all(x.rank == self.me for x in keys[m.at + 1 :]):
                del self.written[m.item]
        self.leaving.append((m.time, dist.isend(buffer, **self._how(m, m.target)), buffer))
        # No deadlock: what was sent at a time is received by who has come to that time.
        while self.leaving[0][0] <= m.time - _IN_FLIGHT:
            self.leaving.pop(0)[1].wait()

    def _receive(self, m: Message) -> None:
        chain = self.items[m.item]
        held, stage = (None if m.kind == 1 else chain.keys[m.at]), (0, m.at + 1, -1)[m.kind]
        if held is None:
            buffer, parts = self.packets[m.item, stage] = self._packet(chain)
        else:
            buffer, parts = _buffer(held.length, self.keys)
        work = dist.irecv(buffer, **self._how(m, m.source))
        self.arriving.setdefault((m.item, stage), []).append((work, held, parts))

    def _arrived(self, item: int, stage: int) -> Iterator[tuple[Any, list[Tensor]]]:
        for work, held, parts in self.arriving.pop((item, stage), []):
            work.wait()
            yield held, parts

    # -- work --

    def _packet(self, chain: Chain) -> tuple[Tensor, list[Tensor]]:
        return _buffer(chain.document.columns[1] - chain.document.columns[0], self.keys, True)

    def _begin(self, item: int, chain: Chain) -> None:
        """The packet of the first stage, with the keys and values of all ranks."""
        self.packets[item, 0] = self._packet(chain)
        own = ((x, [self._own(y, item, x) for y in self.keys])
               for x in chain.keys if x.rank == self.me)  # fmt: skip
        for held, parts in (*own, *self._arrived(item, 0)):
            for whole, some in zip(self.packets[item, 0][1], parts):
                whole[:, held.start : held.end] = some

    def _compute(self, item: int, s: int) -> None:
        job, chain = self.job, self.items[item]
        last, place = len(chain.stages) - 1, (item // job.kv_heads, s)
        if s == 0:
            self._begin(item, chain)
        for _ in self._arrived(item, s):
            pass
        k, v, *sums = self.packets[item, s][1]
        h, group = item % job.kv_heads, job.heads // job.kv_heads
        own = slice(h * group, (h + 1) * group)
        q, o, lse, dout, dlse = self.rows[place]
        some_dlse = None if dlse is None else dlse[:, own]
        rows = Saved(q[:, :, own], o[:, :, own], lse[:, own], dout[:, :, own], some_dlse)
        lists, rules = part_call(job, Heads(h, 1), chain.document, (chain.stages[s].first, 0))
        carry = (CARRY_IN if s > 0 else 0) | (CARRY_OUT if s < last else 0)
        carried = Sums(sums[0], sums[1], carry) if carry else None
        want = Wanted(dq=True, keys=s == last)
        dq, *written = _parts.backward(rows, k, v, lists, rules, want, carried)
        self.dq[place][:, :, own] = dq
        if s < last:
            return
        del self.packets[item, s]
        for held in chain.keys:  # kept, or until they are sent
            for grad, x in zip(self.grads, written):
                assert x is not None
                if held.rank == self.me:
                    self._own(grad, item, held).copy_(x[:, held.start : held.end])
                else:
                    self.written[item] = written  # type: ignore[assignment]
