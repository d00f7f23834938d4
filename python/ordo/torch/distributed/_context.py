"""context_parallel_attention: arguments, agreement of the ranks, choice of the method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..._library import Error
from ..._plan import Plan
from ..._problem import Shard
from ..._words import Keying
from .. import _call
from .._call import Arguments, check_kinds, mask_of, numbers, rng_of, window_of
from .._inputs import Lists, Rules, check
from .._plans import plan_of
from . import _agree, _heads
from ._auto import Link, choose
from ._exchange import Ranks
from ._gather import Gather
from ._job import WHAT, Document, Job
from ._relay import Relay, whole_plan
from ._shards import Layout, Rows, check_layout, rows_of

Method = Literal["auto", "heads", "gather", "relay"]
METHODS = ("auto", "heads", "gather", "relay")


@torch.compiler.disable
def context_parallel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: Any = None,
    method: Method = "auto",
    layout: Layout = "contiguous",
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
    keying: Keying = "ordo",
    cu_q: Tensor | None = None,
    cu_kv: Tensor | None = None,
    max_q: int | None = None,
    max_kv: int | None = None,
    q_lens: Tensor | None = None,
    kv_lens: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    shard: Shard | None = None,
) -> tuple[Tensor, Tensor]:
    """(o, lse) of this rank's rows: attention over sequences that are divided among ranks.

    The results and gradients have the bits of one call of ordo.torch.attention() on the whole
    sequences, whatever the number of ranks, the method and the layout.

        q, k, v  this rank's rows: (batch, row, head, dim), packed (row, head, dim). The numbers of
                 rows may differ between ranks and between q and k, and may be 0
        group    of torch.distributed; None = the world
        method   heads: all-to-all; the number of ranks divides that of key heads
                 gather: keys are gathered; any number of ranks
                 relay: sums of dk and dv travel from rank to rank, one key head at a time
                 auto: by shape and machine; changes no bit
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
    a = Arguments(
        causal, window, scale, softcap, dropout_p, keying, shard, seed, rng_state, generator,
        slopes, cu_q, cu_kv, max_q, max_kv, q_lens, kv_lens, sequence_ids,
    )  # fmt: skip
    given, failure = None, None
    try:
        given = _given(q, k, v, a, method, layout)
    except Exception as error:  # raised by agree(), after the other ranks have heard of it
        failure = error
    facts = given.facts if given else {}
    device = q.device if isinstance(q, Tensor) else torch.device("cpu")
    found = _agree.agree(ranks, facts, NAMES, failure, device)
    assert given is not None
    return _attend(ranks, given, found)


class Given(NamedTuple):
    """A rank's arguments, checked by themselves."""

    q: Tensor
    k: Tensor
    v: Tensor
    a: Arguments  # numbers; lists as given
    rules: Rules
    rng: Tensor | None
    method: str
    layout: str
    plan: Plan  # of this rank's rows by themselves
    facts: dict[str, int]


_SHARD = tuple(Shard.__dataclass_fields__)
NAMES = (
    "packed", "method", "layout", "dtype", "device", "batch", "rows", "columns", "heads",
    "kv_heads", "head_dim", "v_head_dim", "causal", "window[0]", "window[1]", "scale", "softcap",
    "dropout_p", "keying", "seed given", "seed", "offset", "drawn seed", "drawn offset", "cu_q",
    "cu_kv", "q_lens", "kv_lens", "sequence_ids", "slopes", "max_q", "max_kv", "q.requires_grad",
    "k.requires_grad", "v.requires_grad", "link", "rate", "workers",
    *(f"shard.{name}" for name in _SHARD),
)  # fmt: skip


def _given(q: Tensor, k: Tensor, v: Tensor, a: Arguments, method: Any, layout: Any) -> Given:
    if method not in METHODS:
        raise Error("argument", f"method {method!r}: expected auto, heads, gather or relay")
    check_layout(layout)
    check_kinds(q, k, v, a)
    a = numbers(a)
    device = "cuda" if q.is_cuda else "cpu"
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    left, right = window_of(a.window)
    scale = q.shape[-1] ** -0.5 if a.scale is None else a.scale
    if scale == 0:
        raise Error("argument", "scale 0: expected another number, or None for 1/sqrt(head_dim)")
    rules = Rules(
        0, 0, scale, mask_of(a.causal), left, right, a.softcap, a.dropout_p, a.keying, _place(a)
    )
    rng = rng_of(q, a.seed, a.rng_state, a.generator) if a.dropout_p > 0 else None
    plan = _check(q, k, v, a, rules, rng)
    facts = _facts(q, k, v, a, rules, rng, method, layout)
    return Given(q, k, v, a, rules, rng, method, layout, plan, facts)


def _place(a: Arguments) -> tuple[int, ...]:
    if a.shard is None:
        return ()
    for name in ("row0", "col0", "q_total", "kv_total"):
        if getattr(a.shard, name):
            raise Error(
                "argument",
                f"shard.{name} {getattr(a.shard, name)}: expected 0; the layout places rows",
            )
    return tuple(getattr(a.shard, name) for name in _SHARD)


def _check(
    q: Tensor, k: Tensor, v: Tensor, a: Arguments, rules: Rules, rng: Tensor | None
) -> Plan:
    """Raise Error for what one rank can see to be wrong; else a plan of its rows by themselves."""
    here, packed = q.device, a.cu_q is not None
    if a.cu_kv is not None and not packed:
        raise Error("argument", "cu_q None: expected a tensor beside cu_kv")
    if a.slopes is not None and a.slopes.requires_grad:
        raise Error("unsupported", "slopes.requires_grad True: slopes have no gradient")
    cu_q, cu_kv, q_lens, kv_lens = (
        None if x is None else x.to(here, torch.int32)
        for x in (a.cu_q, a.cu_kv, a.q_lens, a.kv_lens)
    )
    slopes = None if a.slopes is None else a.slopes.to(here, torch.float32).contiguous()
    lists = Lists(rng, cu_q, cu_kv, q_lens, kv_lens, a.sequence_ids, slopes)
    check(q, k, v, lists, rules.dropout_p)
    if packed:
        q, k, v = q[None], k[None], v[None]
    return plan_of(q, k, v, Lists(rng=rng, slopes=_flat(slopes, q)), rules)


def _flat(slopes: Tensor | None, q: Tensor) -> Tensor | None:
    """Slopes of one sequence, for plans, which do not look at the values."""
    return None if slopes is None else slopes.new_zeros(q.shape[-2])


def _facts(
    q: Tensor, k: Tensor, v: Tensor, a: Arguments, rules: Rules, rng: Tensor | None, method: str,
    layout: str,
) -> dict[str, int]:  # fmt: skip
    packed = a.cu_q is not None
    given = a.seed is not None or a.rng_state is not None
    pair = [0, 0] if rng is None else rng.tolist()
    grad = torch.is_grad_enabled()
    facts = {
        "packed": int(packed),
        "method": _agree.word("method", method),
        "layout": _agree.word("layout", layout),
        "dtype": _agree.word("dtype", q.dtype),
        "device": _agree.word("device", q.device.type),
        "batch": 1 if packed else q.shape[0],
        "rows": q.shape[-3],
        "columns": k.shape[-3],
        "heads": q.shape[-2],
        "kv_heads": k.shape[-2],
        "head_dim": q.shape[-1],
        "v_head_dim": v.shape[-1],
        "causal": _agree.word("causal", rules.mask),
        "window[0]": rules.left,
        "window[1]": rules.right,
        "scale": _agree.real(rules.scale),
        "softcap": _agree.real(rules.softcap),
        "dropout_p": _agree.real(rules.dropout_p),
        "keying": _agree.word("keying", rules.keying),
        "seed given": int(given),
        "max_q": -1 if a.max_q is None else a.max_q,
        "max_kv": -1 if a.max_kv is None else a.max_kv,
        "q.requires_grad": int(grad and q.requires_grad),
        "k.requires_grad": int(grad and k.requires_grad),
        "v.requires_grad": int(grad and v.requires_grad),
    }
    facts.update(zip(("seed", "offset") if given else ("drawn seed", "drawn offset"), pair))
    for name in ("cu_q", "cu_kv", "q_lens", "kv_lens", "sequence_ids", "slopes"):
        facts[name] = _agree.list_digest(getattr(a, name))
    facts.update(zip(("link", "rate", "workers"), map(_agree.real, Link.of(q.device))))
    facts.update(zip((f"shard.{name}" for name in _SHARD), rules.shard))
    return facts


# ---- what all ranks know alike ----


def _attend(
    ranks: Ranks, given: Given, found: Sequence[dict[str, int]]
) -> tuple[Tensor, Tensor]:
    q, k, v, a = given.q, given.k, given.v, given.a
    rows = rows_of([each["rows"] for each in found], given.layout)
    columns = rows_of([each["columns"] for each in found], given.layout)
    documents = _documents(given, rows, columns)
    rng = given.rng
    if rng is not None and a.seed is None and a.rng_state is None:
        drawn = [found[0]["drawn seed"], found[0]["drawn offset"]]
        rng = torch.tensor(drawn, dtype=torch.int64, device=q.device)
    slopes = a.slopes
    if slopes is not None:
        slopes = slopes.to(q.device, torch.float32).contiguous()
    job = Job(
        ranks, rows, columns, documents, given.rules, q.shape[-2], k.shape[-2], rng,
        a.sequence_ids, slopes,
    )  # fmt: skip
    method = given.method
    if method == "auto":
        link = Link(*(_agree.real_of(found[0][name]) for name in ("link", "rate", "workers")))
        method = choose(job, given.plan, q.element_size(), given.layout, link)
    if method == "heads":
        return _heads.attend(ranks, rows, columns, q, k, v, _whole(given, rng))
    packed = a.cu_q is not None
    if packed:
        q, k, v = _selected(q, k, v, a)
        q, k, v = q[None], k[None], v[None]
    if method == "gather":
        o, lse = Gather.apply(q, k, v, job)
    else:
        o, lse = Relay.apply(q, k, v, job, whole_plan(job, given.plan, q.device))
    return (o[0], lse[0]) if packed else (o, lse)


def _selected(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Tensor, ...]:
    """Tensors whose gradients are added to 0 where a single call does so: where it leaves out rows
    of packed sequences. A gradient of -0 becomes 0 by that."""

    def select(x: Tensor, ends: Tensor | None, lengths: Tensor | None) -> Tensor:
        if lengths is None or ends is None or torch.equal(ends.diff().cpu(), lengths.cpu()):
            return x
        return x.index_select(0, torch.arange(len(x), device=x.device))

    cu_kv = a.cu_q if a.cu_kv is None else a.cu_kv
    return select(q, a.cu_q, a.q_lens), select(k, cu_kv, a.kv_lens), select(v, cu_kv, a.kv_lens)


def _whole(given: Given, rng: Tensor | None) -> Arguments:
    """The arguments of a call on whole sequences."""
    a, device = given.a, given.q.device

    def here(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(device)

    return a._replace(
        seed=None, rng_state=rng, generator=None, cu_q=here(a.cu_q), cu_kv=here(a.cu_kv),
        q_lens=here(a.q_lens), kv_lens=here(a.kv_lens),
    )  # fmt: skip


def _documents(given: Given, rows: Rows, columns: Rows) -> tuple[Document, ...]:
    """The documents of a call. Raises Error for lengths that do not fit; the same on every rank."""
    a = given.a
    if a.cu_q is not None:
        return _packed(a, rows.total, columns.total)
    batch = given.q.shape[0]
    if a.q_lens is None and a.kv_lens is None:
        return (Document(0, batch, 0, (0, rows.total), (0, columns.total)),)
    q_lens = _lengths_of("q_lens", a.q_lens, [rows.total] * batch)
    kv_lens = _lengths_of("kv_lens", a.kv_lens, [columns.total] * batch)
    return tuple(
        Document(b, 1, b, (0, m), (0, n)) for b, (m, n) in enumerate(zip(q_lens, kv_lens))
    )


def _packed(a: Arguments, rows: int, columns: int) -> tuple[Document, ...]:
    assert a.cu_q is not None
    cu_kv, max_kv = a.cu_kv, a.max_kv
    if cu_kv is None:
        if rows != columns:
            raise Error("argument", "cu_kv None: expected a tensor beside cu_q: k has other rows")
        cu_kv, max_kv = a.cu_q, a.max_q if max_kv is None else max_kv
    q_ends = _ends("cu_q", a.cu_q, rows, a.max_q)
    kv_ends = _ends("cu_kv", cu_kv, columns, max_kv)
    q_lens = _lengths_of("q_lens", a.q_lens, _differences(q_ends))
    kv_lens = _lengths_of("kv_lens", a.kv_lens, _differences(kv_ends))
    return tuple(
        Document(d, 1, 0, (q_ends[d], q_ends[d] + m), (kv_ends[d], kv_ends[d] + n))
        for d, (m, n) in enumerate(zip(q_lens, kv_lens))
    )


def _differences(ends: list[int]) -> list[int]:
    return [b - a for a, b in zip(ends, ends[1:])]


def _ends(name: str, ends: Tensor, total: int, longest: int | None) -> list[int]:
    _call.check_type(name, ends)
    found: list[int] = ends.tolist()
    _call.check_ends(name, found, total, total if longest is None else longest)
    return found


def _lengths_of(name: str, lengths: Tensor | None, rooms: list[int]) -> list[int]:
    """The lengths given, or all of the room."""
    if lengths is None:
        return rooms
    _call.check_type(name, lengths)
    found: list[int] = lengths.tolist()
    _call.check_each(name, found, rooms)
    return found
