"""context_parallel_attention: arguments, agreement of the ranks, choice of the method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ..._library import Error
from .._call import (
    Arguments, arguments, as_int32, check_each, check_ends, check_packed, prepare, rng_of, whole, widened
)  # fmt: skip
from .._inputs import Lists, Rules, ask, call_of
from . import _heads
from ._agree import Facts, agree
from ._exchange import Ranks
from ._job import WHAT, Divided, Document, Job, gradients_by_gather
from ._relay import gradients_by_relay
from ._shards import Layout, check_layout, rows_of

Method = Literal["auto", "heads", "gather", "relay"]
_PACKET = 8192  # columns of a packet that fill an H200


@torch.compiler.disable
def context_parallel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: Any = None,
    method: Method = "auto",
    layout: Layout = "contiguous",
    **keywords: Any,
) -> tuple[Tensor, Tensor]:
    """(o, lse) of this rank's rows: attention over sequences that are divided among ranks.

    The results and gradients have the bits of one call of ordo.torch.attention() on the whole
    sequences, whatever the number of ranks, the method and the layout.

        q, k, v  this rank's rows: (batch, row, head, dim), packed (row, head, dim). The numbers of
                 rows may differ between ranks and between q and k, and may be 0
        group    of torch.distributed; None = the world
        method   heads, gather, relay, or auto, by shape and device: changes no bit (docs/guide/ranks.md)
        layout   contiguous: rows in the order of the ranks
                 zigzag: rank r of n has chunks r and 2n - 1 - r of 2n (the halves of its rows)

    The other keywords are those of ordo.torch.attention() and describe the whole: cu_q, cu_kv,
    q_lens and kv_lens count rows of whole sequences, slopes are of all heads of q. All ranks pass
    equal ones; otherwise every rank raises the same Error. Without seed and rng_state, rank 0's
    draw counts. `shard` may place heads and batch (batch0, head0, heads_total).

    Every rank of the group must call, and all in the same order. Lengths on a GPU are read once per
    call, which waits for the device.
    """
    ranks = Ranks.of(group)
    a = arguments(keywords, "prepared", "sink", "block_mask", "seen", "bias")
    given, failure = None, None
    try:
        given = _given(q, k, v, a, method, layout)
    except Exception as error:  # raised by agree(), after the other ranks have heard of it
        failure = error
    found = agree(ranks, WHAT, given.facts if given else {}, failure, _FREE)
    assert given is not None
    return _attend(ranks, given, found)


class Given(NamedTuple):
    """A rank's arguments, checked by themselves."""

    q: Tensor  # (1, row, head, dim) of packed sequences, too
    k: Tensor
    v: Tensor
    a: Arguments  # with lists on the device, and as rng_state what is given or drawn
    rules: Rules
    facts: Facts


_FREE = ("rows", "columns", "drawn")  # each rank's own
_LENGTHS = ("cu_q", "cu_kv", "q_lens", "kv_lens")
_LISTS = (*_LENGTHS, "sequence_ids")


def _given(q: Tensor, k: Tensor, v: Tensor, a: Arguments, method: Any, layout: Any) -> Given:
    if method not in get_args(Method):
        raise Error("argument", f"method {method!r}: expected auto, heads, gather or relay")
    check_layout(layout)
    for name in ("row0", "col0", "q_total", "kv_total"):
        if a.shard is not None and getattr(a.shard, name):
            wrong = f"shard.{name} {getattr(a.shard, name)}"
            raise Error("argument", f"{wrong}: expected 0; the layout places rows")
    packed = a.cu_q is not None
    check_packed(a)
    if packed:
        q, k, v = q[None], k[None], v[None]
    # As a dense call on this rank's rows: which of them a sequence has is known of the whole alone.
    without: dict[str, Any] = dict.fromkeys(_LISTS)
    alone = a._replace(
        **without, max_q=None, max_kv=None, seed=0, rng_state=None, generator=None,
        slopes=a.slopes[:1] if packed and a.slopes is not None and a.slopes.dim() == 2 else a.slopes,
    )  # fmt: skip
    q, k, v, own, rules = prepare(q, k, v, alone)
    ask(*widened(q, k, v), call_of(own, rules))
    lists = {name: getattr(a, name) for name in _LISTS}
    for name in _LENGTHS:
        if lists[name] is not None:
            lists[name] = as_int32(name, lists[name]).to(q.device)
    a = a._replace(**lists, max_q=whole("max_q", a.max_q), max_kv=whole("max_kv", a.max_kv))
    slopes = None if a.slopes is None else a.slopes.to(q.device, torch.float32).contiguous()
    count = a.cu_q.shape[0] - 1 if a.cu_q is not None else q.shape[0]
    for name, x in {**lists, "slopes": slopes if slopes is not None and slopes.dim() == 2 else None}.items():
        expected = count + name.startswith("cu_")
        if x is not None and x.shape[:1] != (expected,):
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected ({expected},)")
    rng = rng_of(q, a.seed, a.rng_state, a.generator) if rules.dropout_p > 0 else None
    own_draw, pair = a.seed is None and a.rng_state is None, None if rng is None else rng.tolist()
    a = a._replace(seed=None, generator=None, rng_state=rng, slopes=slopes)
    facts = {
        "packed": packed, "method": method, "layout": layout, "dtype": str(q.dtype),
        "device": q.device.type, "batch": q.shape[0], "rows": q.shape[-3],
        "columns": k.shape[-3], "heads": q.shape[-2], "kv_heads": k.shape[-2],
        "head_dim": q.shape[-1], "v_head_dim": v.shape[-1],
        **rules._asdict(), "max_q": a.max_q, "max_kv": a.max_kv,
        "seed": "drawn" if own_draw else pair, "drawn": pair if own_draw else None,
    }  # fmt: skip
    for name, x in (("q", q), ("k", k), ("v", v)):
        facts[f"{name}.requires_grad"] = torch.is_grad_enabled() and x.requires_grad
    for name in (*_LISTS, "slopes"):
        x = getattr(a, name)
        facts[name] = None if x is None else x.tolist()
    return Given(q, k, v, a, rules, facts)


# ---- what all ranks know alike ----


def _attend(ranks: Ranks, given: Given, found: Sequence[Facts]) -> tuple[Tensor, Tensor]:
    q, k, v, a, rules, facts = given
    method, layout = facts["method"], facts["layout"]
    rows, columns = (rows_of([each[name] for each in found], layout) for name in ("rows", "columns"))
    documents = _documents(facts, rows.total, columns.total)
    if facts["drawn"] is not None:
        a = a._replace(rng_state=rng_of(q, found[0]["drawn"]))
    lists = Lists(a.rng_state, sequence_ids=a.sequence_ids, slopes=a.slopes)
    job = Job(ranks, rows, columns, documents, rules, q.shape[-2], k.shape[-2], lists)
    if method == "auto":
        method = choose(job, facts["device"])
    packed = facts["packed"]
    if method == "heads":
        q, k, v = (x[0] for x in (q, k, v)) if packed else (q, k, v)
        return _heads.attend(ranks, rows, columns, q, k, v, a)
    gathers = method == "gather"
    way: Any = (job.kv_heads, gradients_by_gather) if gathers else (1, gradients_by_relay)
    if not packed:
        return Divided.apply(q, k, v, job, *way)  # type: ignore[no-any-return]
    cu_kv = a.cu_q if a.cu_kv is None else a.cu_kv
    q, k, v = _selected(q, a.cu_q, a.q_lens), *(_selected(x, cu_kv, a.kv_lens) for x in (k, v))
    o, lse = Divided.apply(q, k, v, job, *way)
    return o[0], lse[0]


def choose(job: Job, device: str) -> str:
    """The method that `auto` is: heads, where no rank computes or holds anything twice; a relay if
    its packets fill the pipe, and each of them a GPU."""
    if job.kv_heads % job.ranks.size == 0:
        return "heads"
    sequences = sum(d.sequences for d in job.documents)
    columns = sum(d.sequences * (d.columns[1] - d.columns[0]) for d in job.documents)
    full = device == "cpu" or columns >= _PACKET * sequences
    return "relay" if full and sequences * job.kv_heads > job.ranks.size else "gather"


def _selected(x: Tensor, ends: Any, lengths: Tensor | None) -> Tensor:
    """A tensor whose gradient is added to 0 where a single call does so: where it leaves out rows
    of packed sequences. A gradient of -0 becomes 0 by that."""
    if lengths is None or torch.equal(ends.diff(), lengths):
        return x
    return x.index_select(1, torch.arange(x.shape[1], device=x.device))


def _documents(facts: Facts, rows: int, columns: int) -> tuple[Document, ...]:
    """The documents of a call. Raises Error for lengths that do not fit; the same on every rank."""
    batch, max_q, max_kv = facts["batch"], facts["max_q"], facts["max_kv"]
    cu_q, cu_kv, q_lens, kv_lens = (facts[name] for name in _LENGTHS)
    if cu_q is None:
        if q_lens is None and kv_lens is None:
            return (Document(0, batch, 0, (0, rows), (0, columns)),)
        q_lens = _lengths("q_lens", q_lens, [rows] * batch)
        kv_lens = _lengths("kv_lens", kv_lens, [columns] * batch)
        pairs = enumerate(zip(q_lens, kv_lens))
        return tuple(Document(b, 1, b, (0, m), (0, n)) for b, (m, n) in pairs)
    if cu_kv is None:
        if rows != columns:
            raise Error("argument", "cu_kv None: expected a tensor beside cu_q: k has other rows")
        cu_kv, max_kv = cu_q, max_q if max_kv is None else max_kv
    check_ends("cu_q", cu_q, rows, rows if max_q is None else max_q)
    check_ends("cu_kv", cu_kv, columns, columns if max_kv is None else max_kv)
    q_lens = _lengths("q_lens", q_lens, [b - a for a, b in zip(cu_q, cu_q[1:])])
    kv_lens = _lengths("kv_lens", kv_lens, [b - a for a, b in zip(cu_kv, cu_kv[1:])])
    return tuple(
        Document(d, 1, 0, (cu_q[d], cu_q[d] + m), (cu_kv[d], cu_kv[d] + n))
        for d, (m, n) in enumerate(zip(q_lens, kv_lens))
    )


def _lengths(name: str, lengths: Any, rooms: list[int]) -> Any:
    """The lengths given, or all of the room."""
    if lengths is None:
        return rooms
    check_each(name, lengths, rooms)
    return lengths
