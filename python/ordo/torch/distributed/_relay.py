"""Method relay: sums of dk and dv travel from rank to rank, one key head at a time.

The backward pass takes five products. A packet with the keys and values of one key head and its f32
sums passes the ranks in the order in which the plan visits rows (_chain.py); each rank adds what its
rows give, and computes their dq on the way. Other key heads fill the pipe. No rank ever holds the
keys of more than a few key heads: the one that it works on, those that arrive and those that leave.

The forward pass, and a backward pass over one rank's rows, need all keys of a head at once, since a
sum over keys cannot be interrupted as one over rows can. So keys are gathered for one key head at a
time, and where there is only one, the memory is that of method gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..._plan import Plan
from ..._problem import Shard
from .. import _parts
from .._parts import CARRY_IN, CARRY_OUT, Saved, Sums, Wanted
from .._plans import machine_of
from ._chain import Chain, Held, Message, Piece, chain_of, timetable
from ._exchange import Form, Ranks, named, swap, unpack
from ._job import (
    WHAT,
    Document,
    Heads,
    Job,
    batch_of,
    forward,
    new_key_gradients,
    new_results,
    part_call,
)
from ._shards import gather_rows

_IN_FLIGHT = 2  # for so many steps memory may be kept for what was sent
_ROW_AXES = (1, 1, -1, 1, -1)  # of the tensors of Saved


class Relay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, job: Job, whole: Plan) -> Any:
        o, lse = new_results(q, v)
        group = job.heads // job.kv_heads
        for h in range(job.kv_heads):
            some = [k[:, :, h : h + 1], v[:, :, h : h + 1]]
            what = f"{WHAT} (keys and values of head {h})"
            keys, values = gather_rows(job.ranks, what, job.columns, some, [1, 1])
            own = slice(h * group, (h + 1) * group)
            forward(job, Heads(h, 1), q[:, :, own], keys, values, o[:, :, own], lse[:, own])
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.job, ctx.whole = job, whole
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse = ctx.saved_tensors
        job: Job = ctx.job
        chains = chains_of(job, ctx.whole)
        rows = _take_rows(job, chains, Saved(q, o, lse, dout, dlse))
        dq = {at: torch.empty_like(x.q) for at, x in rows.items()}
        dk, dv = new_key_gradients(job, k, v)
        _Walk(job, chains, rows, dq, (k, v), (dk, dv)).run()
        return _return_rows(job, chains, dq, q), dk, dv, None, None


def whole_plan(job: Job, local: Plan, device: Any) -> Plan:
    """A plan of the longest document, of which a rank's own rows are a part: its order and tiles
    are those of every document and every part of one."""
    rows = max((d.rows[1] - d.rows[0] for d in job.documents), default=1)
    columns = max((d.columns[1] - d.columns[0] for d in job.documents), default=1)
    problem = local.problem.replace(q_len=max(rows, 1), kv_len=max(columns, 1), shard=Shard())
    if device.type == "cpu":
        return Plan(problem, backend="cpu")
    return Plan(problem, machine_of(device.index), backend="cuda")


def chains_of(job: Job, whole: Plan) -> list[Chain]:
    """One chain for each sequence with rows and columns."""
    tile, descending = whole.info.backward_tile.q, whole.info.order == "descending"
    found = []
    for d in job.documents:
        if d.rows[0] == d.rows[1] or d.columns[0] == d.columns[1]:
            continue
        for b in range(d.sequences):
            one = Document(d.at + b, 1, d.first + b, d.rows, d.columns)
            found.append(chain_of(one, job.rows, job.columns, tile, descending))
    return found


# ---- rows of tiles that two ranks hold ----

Place = tuple[int, int]  # chain, stage


def _rows(x: Tensor, axis: int, document: Document, piece: Held) -> Tensor:
    return batch_of(x, document).narrow(axis, piece.at, piece.last - piece.first)


def _moving(ranks: Ranks, chains: Sequence[Chain], holder: int, owner: int) -> list[Any]:
    """(chain, piece) of the rows that `holder` holds and `owner`, another rank, computes."""
    return [
        (c, piece)
        for c, chain in enumerate(chains)
        for piece in chain.pieces
        if piece.held.rank == holder and chain.stages[piece.stage].rank == owner != holder
    ]


def _any_moves(chains: Sequence[Chain]) -> bool:
    return any(p.held.rank != c.stages[p.stage].rank for c in chains for p in c.pieces)


def _piece_form(x: Tensor, axis: int, piece: Piece) -> Form:
    shape = [1, *x.shape[1:]]
    shape[axis] = piece.held.last - piece.held.first
    return Form(tuple(shape), x.dtype)


def _take_rows(job: Job, chains: Sequence[Chain], here: Saved) -> dict[Place, Saved]:
    """The rows of each stage of this rank."""
    ranks, me = job.ranks, job.ranks.rank
    pairs = list(zip(here, _ROW_AXES))
    arrived: dict[tuple[int, Piece], list[Tensor]] = {}
    if _any_moves(chains):
        outgoing: list[list[Tensor]] = [
            [_rows(x, axis, chains[c].document, piece.held)
             for c, piece in _moving(ranks, chains, me, r) for x, axis in pairs]
            for r in range(ranks.size)
        ]  # fmt: skip
        coming = [_moving(ranks, chains, r, me) for r in range(ranks.size)]
        forms = [
            [_piece_form(x, axis, piece) for _, piece in each for x, axis in pairs]
            for each in coming
        ]
        found = swap(ranks, f"{WHAT} (rows to stages)", outgoing, forms, here.q.device)
        for each, tensors in zip(coming, found):
            for i, key in enumerate(each):
                arrived[key] = tensors[len(pairs) * i : len(pairs) * (i + 1)]
    taken = {}
    for c, chain in enumerate(chains):
        for s, stage in enumerate(chain.stages):
            if stage.rank != me:
                continue
            pieces = [piece for piece in chain.pieces if piece.stage == s]
            parts = [
                arrived[c, piece] if piece.held.rank != me
                else [_rows(x, axis, chain.document, piece.held) for x, axis in pairs]
                for piece in pieces
            ]  # fmt: skip
            taken[c, s] = Saved(
                *(_join([p[i] for p in parts], axis) for i, axis in enumerate(_ROW_AXES))
            )
    return taken


def _join(parts: list[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)


def _return_rows(job: Job, chains: Sequence[Chain], dq: dict[Place, Tensor], q: Tensor) -> Tensor:
    """dq of this rank's rows, from the stages that computed them."""
    ranks, me = job.ranks, job.ranks.rank
    result = torch.zeros_like(q)

    def part(c: int, piece: Piece) -> Tensor:
        first = chains[c].stages[piece.stage].first
        return dq[c, piece.stage].narrow(1, piece.held.first - first, _length(piece))

    for c, chain in enumerate(chains):
        for piece in chain.pieces:
            if piece.held.rank == me == chain.stages[piece.stage].rank:
                _rows(result, 1, chain.document, piece.held).copy_(part(c, piece))
    if _any_moves(chains):
        outgoing = [
            [part(c, piece) for c, piece in _moving(ranks, chains, r, me)]
            for r in range(ranks.size)
        ]
        coming = [_moving(ranks, chains, me, r) for r in range(ranks.size)]
        forms = [[_piece_form(q, 1, piece) for _, piece in each] for each in coming]
        found = swap(ranks, f"{WHAT} (dq to rows)", outgoing, forms, q.device)
        for each, tensors in zip(coming, found):
            for (c, piece), x in zip(each, tensors):
                _rows(result, 1, chains[c].document, piece.held).copy_(x)
    return result


def _length(piece: Piece) -> int:
    return piece.held.last - piece.held.first


# ---- the walk of the packets ----


class Packet(NamedTuple):
    """Keys, values and sums of one key head of one document."""

    buffer: Tensor
    k: Tensor
    v: Tensor
    dk_sums: Tensor
    dv_sums: Tensor


def _new_packet(document: Document, k: Tensor, v: Tensor) -> Packet:
    columns = document.columns[1] - document.columns[0]
    shapes = [(1, columns, 1, x.shape[-1]) for x in (k, v)]
    forms = [Form(shape, k.dtype) for shape in shapes]
    forms += [Form(shape, torch.float32) for shape in shapes]
    buffer = torch.empty(sum(form.room() for form in forms), dtype=torch.uint8, device=k.device)
    keys, values, dk_sums, dv_sums = unpack(buffer, forms)
    return Packet(buffer, keys, values, dk_sums, dv_sums)


class _Walk:
    """A rank's part in the relay of all items: documents times key heads."""

    def __init__(
        self, job: Job, chains: Sequence[Chain], rows: dict[Place, Saved],
        dq: dict[Place, Tensor], keys: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor],
    ) -> None:  # fmt: skip
        self.job, self.chains, self.rows, self.dq = job, chains, rows, dq
        self.keys, self.grads = keys, grads
        self.items = [chain for chain in chains for _ in range(job.kv_heads)]
        self.most = 1 + max((2 * len(c.keys) + len(c.stages) for c in chains), default=0)
        self.packets: dict[Place, Packet] = {}  # by item and stage: here, or arriving
        self.arriving: dict[Place, list[Any]] = {}  # what is to be waited for
        self.written: dict[int, list[Tensor]] = {}  # dk and dv of an item whose last stage is here
        self.leaving: list[tuple[int, Any, Any]] = []  # time, send, and the memory that it reads
        self.collected: list[tuple[Any, Tensor, Tensor, Held, int]] = []

    def run(self) -> None:
        with named(self.job.ranks, f"{WHAT} (relay of dk and dv)"):
            for _, item, at, message in timetable(self.items, self.job.ranks.rank):
                if message is None:
                    self._compute(item, at)
                else:
                    self._exchange(message)
            for _, work, _ in self.leaving:
                work.wait()
            for work, dk, dv, held, item in self.collected:
                work.wait()
                self._keep(item, held, dk, dv)

    def _head(self, item: int) -> int:
        return item % self.job.kv_heads

    # -- messages --

    def _exchange(self, m: Message) -> None:
        send = m.source == self.job.ranks.rank
        if m.kind == 0:
            self._send_keys(m) if send else self._receive_keys(m)
        elif m.kind == 1:
            self._pass_on(m) if send else self._receive_packet(m)
        else:
            self._send_gradients(m) if send else self._receive_gradients(m)

    def _peer(self, rank: int) -> int:
        return int(dist.get_global_rank(self.job.ranks.group, rank))

    def _tag(self, m: Message) -> int:
        chain = self.items[m.item]
        base = (0, 2 * len(chain.keys), len(chain.keys))[m.kind]
        return m.item * self.most + base + m.at

    def _send(self, m: Message, buffer: Tensor) -> None:
        group = self.job.ranks.group
        work = dist.isend(buffer, self._peer(m.target), group=group, tag=self._tag(m))
        self.leaving.append((m.time, work, buffer))
        # No deadlock: what was sent at a time is received by who has come to that time.
        while self.leaving[0][0] <= m.time - _IN_FLIGHT:
            self.leaving.pop(0)[1].wait()

    def _receive(self, m: Message, buffer: Tensor) -> Any:
        group = self.job.ranks.group
        return dist.irecv(buffer, self._peer(m.source), group=group, tag=self._tag(m))

    def _pair(self, chain: Chain, at: int) -> tuple[Tensor, Tensor, Tensor]:
        """A buffer of bytes for keys and values (or their gradients) that one rank holds."""
        held = chain.keys[at]
        count = held.last - held.first
        forms = [Form((1, count, 1, x.shape[-1]), x.dtype) for x in self.keys]
        room = sum(form.room() for form in forms)
        buffer = torch.empty(room, dtype=torch.uint8, device=self.keys[0].device)
        first, second = unpack(buffer, forms)
        return buffer, first, second

    def _own(self, x: Tensor, item: int, held: Held) -> Tensor:
        """This rank's columns of a document and key head."""
        h = self._head(item)
        return _rows(x, 1, self.items[item].document, held)[:, :, h : h + 1]

    def _send_keys(self, m: Message) -> None:
        chain = self.items[m.item]
        buffer, *parts = self._pair(chain, m.at)
        for part, x in zip(parts, self.keys):
            part.copy_(self._own(x, m.item, chain.keys[m.at]))
        self._send(m, buffer)

    def _receive_keys(self, m: Message) -> None:
        buffer, keys, values = self._pair(self.items[m.item], m.at)
        work = self._receive(m, buffer)
        self.arriving.setdefault((m.item, 0), []).append((work, m.at, keys, values))

    def _pass_on(self, m: Message) -> None:
        self._send(m, self.packets.pop((m.item, m.at)).buffer)

    def _receive_packet(self, m: Message) -> None:
        packet = _new_packet(self.items[m.item].document, *self.keys)
        self.packets[m.item, m.at + 1] = packet
        self.arriving[m.item, m.at + 1] = [(self._receive(m, packet.buffer), -1, None, None)]

    def _send_gradients(self, m: Message) -> None:
        chain = self.items[m.item]
        held = chain.keys[m.at]
        buffer, *parts = self._pair(chain, m.at)
        for part, x in zip(parts, self.written[m.item]):
            part.copy_(x[:, held.first : held.last])
        self._send(m, buffer)
        if all(x.rank == m.source for x in chain.keys[m.at + 1 :]):
            del self.written[m.item]

    def _receive_gradients(self, m: Message) -> None:
        held = self.items[m.item].keys[m.at]
        buffer, dk, dv = self._pair(self.items[m.item], m.at)
        self.collected.append((self._receive(m, buffer), dk, dv, held, m.item))

    def _keep(self, item: int, held: Held, dk: Tensor, dv: Tensor) -> None:
        for grad, some in zip(self.grads, (dk, dv)):
            self._own(grad, item, held).copy_(some)

    # -- work --

    def _compute(self, item: int, s: int) -> None:
        job, chain = self.job, self.items[item]
        document, last = chain.document, len(chain.stages) - 1
        if s == 0:
            self.packets[item, 0] = _new_packet(document, *self.keys)
            self._collect(item, chain)
        for work, *_ in self.arriving.pop((item, s), []):
            work.wait()
        packet = self.packets[item, s]
        place = (item // job.kv_heads, s)
        h, group = self._head(item), job.heads // job.kv_heads
        own = slice(h * group, (h + 1) * group)
        q, o, lse, dout, dlse = self.rows[place]
        heads_dlse = None if dlse is None else dlse[:, own]
        rows = Saved(q[:, :, own], o[:, :, own], lse[:, own], dout[:, :, own], heads_dlse)
        first = (chain.stages[s].first, 0)
        lists, rules = part_call(job, Heads(h, 1), document, first)
        carry = (CARRY_IN if s > 0 else 0) | (CARRY_OUT if s < last else 0)
        sums = Sums(packet.dk_sums, packet.dv_sums, carry) if carry else None
        want = Wanted(dq=True, keys=s == last)
        dq, dk, dv = _parts.backward(rows, packet.k, packet.v, lists, rules, want, sums)
        self.dq[place][:, :, own] = dq
        if s == last:
            assert dk is not None and dv is not None
            del self.packets[item, s]
            self._distribute(item, chain, dk, dv)

    def _collect(self, item: int, chain: Chain) -> None:
        """Put the keys and values of all ranks into the packet of the first stage."""
        packet = self.packets[item, 0]
        for held in chain.keys:
            if held.rank == self.job.ranks.rank:
                packet.k[:, held.first : held.last] = self._own(self.keys[0], item, held)
                packet.v[:, held.first : held.last] = self._own(self.keys[1], item, held)
        for work, at, keys, values in self.arriving.pop((item, 0), []):
            work.wait()
            held = chain.keys[at]
            packet.k[:, held.first : held.last] = keys
            packet.v[:, held.first : held.last] = values

    def _distribute(self, item: int, chain: Chain, dk: Tensor, dv: Tensor) -> None:
        """Keep the gradients of this rank's keys, and the others until they are sent."""
        me = self.job.ranks.rank
        for held in chain.keys:
            if held.rank == me:
                self._keep(item, held, dk[:, held.first : held.last], dv[:, held.first : held.last])
        if any(held.rank != me for held in chain.keys):
            self.written[item] = [dk, dv]
