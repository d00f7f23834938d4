"""Attention on tensors in one call."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .._library import Error
from .._problem import Shard
from .._words import Keying
from . import _front as f
from ._blocks import lists_of_mask
from ._dropout import provide
from ._inputs import NO_LISTS, Call, Lists, Rules, call_of, check, empty, refuse_negative, sequences
from ._layout import filled, width_of
from ._lengths import check as check_lists
from ._lengths import checked, close_gaps, ends_beside, ends_of, full_lengths
from ._node import plain, run
from ._numbers import length_of, mask_of, real_of, window_of
from ._plans import forget_plans, plan_of, problem_of
from ._seed import rng_of


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    sink: Tensor | None = None,
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
    prepared: Any = None,
    block_mask: Any = None,
) -> tuple[Tensor, Tensor]:
    """(o, lse): attention with gradients, the same bits every time.

    q, k and v are (batch, row, head, dim), packed (row, head, dim), of one type: float32,
    bfloat16 or float16. Any strides will do as long as the last axis is contiguous. o is
    contiguous; lse is float32, (batch, head, row), packed (head, row), and has a gradient.

        causal          bottom-right: the last row sees every key; "top-left" aligns to the first
        window          (left, right), inclusive; negative = open
        scale           None = 1 / sqrt(dim)
        slopes          of ALiBi: (heads,) or (batch, heads)
        sink            (heads,), any floating type: a learned logit of each head in the softmax of
                        every row, with a gradient; lse includes it
        dropout_p       applies whenever it is not 0: ordo.Attention knows about training; to a
                        multiple of 1/256, closer than that to 0 or 1 of 1/65536
        seed            of dropout: a number, or (seed, offset); never the same pair twice
        rng_state       the same as an int64 tensor of two, on the device of q
        generator       where they are drawn from if neither is given; None = the default one
        keying          which element gets which random bit; "fa2" is FlashAttention-2's mask
        cu_q, cu_kv     packed: batch + 1 ends, int32, from 0; max_q, max_kv the longest of them
        q_lens, kv_lens padded: valid rows and columns of each sequence, int32; packed: how many
                        rows of each sequence are used, its first ones; o is 0 in the others
        sequence_ids    int64, of dropout; None = batch0, batch0 + 1, ...
        shard           where this problem sits in a larger one (ordo.Shard): ranks that hold
                        some of the heads draw their part of one mask
        prepared        what prepare_dropout() returned for this call: seed and offset, and the
                        keep bits, which were made while other work ran
        block_mask      an ordo.BlockMask, or FlexAttention's, which each call converts as
                        ordo.torch.block_mask() does: narrows the mask; on CUDA up to head size 128;
                        a graph needs an ordo.BlockMask, and a CUDA graph one that is there already
    """
    if (
        slopes is None and sink is None and seed is None and rng_state is None and generator is None
        and cu_q is None and cu_kv is None and max_q is None and max_kv is None
        and q_lens is None and kv_lens is None and sequence_ids is None
        and prepared is None and block_mask is None
    ):  # fmt: skip
        done = known_call(q, k, v, (causal, window, scale, softcap, dropout_p, keying, shard))
        if done is not None:
            return done
    arguments = Arguments(
        causal, window, scale, softcap, dropout_p, keying, shard, seed, rng_state, generator,
        slopes, cu_q, cu_kv, max_q, max_kv, q_lens, kv_lens, sequence_ids, prepared, sink, block_mask,
    )  # fmt: skip
    return call(q, k, v, arguments)


class Arguments(NamedTuple):
    """The keywords of attention(): rules, the source of random numbers, lists."""

    causal: Any = False
    window: tuple[int, int] = (-1, -1)
    scale: float | None = None
    softcap: float = 0.0
    dropout_p: float = 0.0
    keying: str = "ordo"
    shard: Shard | None = None

    seed: int | Sequence[int] | None = None
    rng_state: Tensor | None = None
    generator: torch.Generator | None = None

    slopes: Tensor | None = None
    cu_q: Tensor | None = None
    cu_kv: Tensor | None = None
    max_q: int | None = None
    max_kv: int | None = None
    q_lens: Tensor | None = None
    kv_lens: Tensor | None = None
    sequence_ids: Tensor | None = None
    prepared: Any = None  # a PreparedDropout
    sink: Tensor | None = None
    block_mask: Any = None


_RULES = Arguments._fields.index("seed")

Inputs = tuple[Tensor, Tensor, Tensor, Lists, Rules]  # what the operator gets

_autocasts = torch._C._is_any_autocast_enabled

# Types of numbers that are known as they are; numbers() converts or refuses others, which may
# compare equal.
_SIDES = {int, bool, type(None)}  # of a window
_REALS = {int, float, bool, type(None)}

KEPT = 4096
_rules: dict[Any, Any] = {}  # Known, by the arguments of calls without lists
_shapes: set[Any] = set()  # of calls with dropout that have been checked


def forget() -> None:
    """Make every plan anew, for those who change what is read when a plan is made."""
    f.forget_plans()
    forget_plans()
    _rules.clear()
    _shapes.clear()


# ---- calls without lists whose rules are known ----


def known_call(
    q: Tensor, k: Tensor, v: Tensor, rules: Any, flags: int = 0
) -> tuple[Tensor, Tensor] | None:
    """(o, lse) of a call on plain tensors whose rules are known; None if they are not."""
    if not plain(q, k, v):
        return None
    try:
        known = _rules.get(rules)
    except TypeError:  # a list or an array, which numbers() makes plain
        return None
    if known is None:
        return None
    _, (left, right), scale, softcap, dropout_p, *_ = rules
    if not (
        type(left) in _SIDES and type(right) in _SIDES and type(scale) in _REALS
        and type(softcap) in _REALS and type(dropout_p) in _REALS
    ):  # fmt: skip
        return None
    if _autocasts():
        q, k, v = _cast(q, k, v)
    if q.is_cuda and width_of(q, v):
        return None
    more: Any = ()
    if known.dropout_p > 0:
        if _seen(q, k, v, rules) not in _shapes:
            return None
        provide(q.device)
        more = (rng_of(q),)
    own, default, _, softcap, dropout_p, sizes = known.call
    scale = default or max(q.shape[-1], 1) ** -0.5
    return run(q, k, v, None, Call(own | flags, scale, more, softcap, dropout_p, sizes))


class Known(NamedTuple):
    """Rules whose call is known; its scale is 0 where it is the default."""

    call: Call
    dropout_p: float


def _seen(q: Tensor, k: Tensor, v: Tensor, rules: Any) -> Any:
    """What says that a call with dropout is not refused: so that nothing is drawn for one that is."""
    return (
        q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, rules,
        q.layout, k.layout, v.layout,
    )  # fmt: skip


def _learn(q: Tensor, k: Tensor, v: Tensor, a: Arguments, rules: Rules) -> None:
    """Keep the rules of a call without lists that was not refused."""
    key = a[:_RULES]
    if len(_rules) >= KEPT or len(_shapes) >= KEPT:
        _rules.clear()
        _shapes.clear()
    whole = call_of(NO_LISTS, rules if a.scale is not None else rules._replace(scale=0.0))
    drops = rules.dropout_p > 0
    _rules[key] = Known(whole._replace(flags=whole.flags | (f.RNG if drops else 0)), rules.dropout_p)
    if drops:
        _shapes.add(_seen(*_cast(q, k, v), key))


# ---- every call ----


def call(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Tensor, Tensor]:
    """(o, lse)."""
    _check_packed(a)
    if a.prepared is not None:
        a = _with_prepared(a)
    if a.cu_q is not None and (a.q_lens is not None or a.kv_lens is not None):
        return _without_gaps(q, k, v, a)
    return run_inputs(q, k, v, a)[:2]


def run_inputs(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Tensor, Tensor, Inputs]:
    """(o, lse, inputs)."""
    inputs = prepare(q, k, v, a)
    o, lse = attend(*inputs, a.sink, a.prepared)
    alone = all(x is None for x in inputs[3][1:]) and a.sink is None and a.prepared is None
    if alone and plain(q, k, v) and a.seed is None and a.rng_state is None and a.generator is None:
        _learn(q, k, v, numbers(a), inputs[4])
    return o, lse, inputs


def attend(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, sink: Any = None,
    prepared: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(o, lse), with gradients for q, k, v and sink. `prepared` is a PreparedDropout."""
    if sink is not None:
        if "DTensor" in (type(q).__name__, type(sink).__name__):
            raise Error("unsupported", "sink given: expected plain tensors, not DTensor")
        sink = sink.to(device=q.device, dtype=torch.float32).contiguous()
    if type(q).__name__ == "DTensor":  # its sharding rules are registered when they are needed
        rules_of = importlib.import_module("ordo.torch.distributed._dtensor")
        lists = rules_of.replicated(q, lists)
    bits = None
    if prepared is not None and plain(q, k, v):
        bits = prepared.take(q, k, lists, rules)
    if checked() and lists is not NO_LISTS and plain(q, k, v):
        check_lists(problem_of(q, k, v, lists, rules), lists)
    if lists.rng is not None and not torch.compiler.is_compiling():
        provide(lists.rng.device)
    if sink is not None and _no_keys(q, k, lists):
        o, lse = attend(q, k, v, lists, rules)
        seen = lse == -torch.inf  # rows see the sink alone; both have gradients for all inputs
        return torch.where(o == 0, o, sink[:, None].to(o)), torch.where(seen, sink[:, None], lse)
    width, dim = width_of(q, v), v.shape[-1]
    if width:  # zeros change no score
        q, k, v = filled(width, q, k, v)
    o, lse = run(q, k, v, sink, call_of(lists, rules, bits))
    return o[..., :dim].contiguous() if width else o, lse


def _no_keys(q: Tensor, k: Tensor, lists: Lists) -> bool:
    """Whether there are rows that see the sink alone."""
    if k.shape[-3] != 0 or 0 in (sequences(q, lists), q.shape[-3]):
        return False
    if lists.cu_q is not None or lists.q_lens is not None:
        raise Error(
            "unsupported", "sink given, no keys: expected a dense batch; it is packed or padded"
        )
    return True


def _with_prepared(a: Arguments) -> Arguments:
    """The arguments with the seed and offset that were drawn ahead."""
    if not hasattr(a.prepared, "rng_state"):
        raise Error("argument", f"prepared {a.prepared!r}: expected what prepare_dropout() returns")
    if a.seed is not None or a.rng_state is not None or a.generator is not None:
        raise Error("argument", "seed, rng_state, generator: expected none beside prepared")
    if not real_of("dropout_p", a.dropout_p) > 0:
        raise Error("argument", f"dropout_p {a.dropout_p}: expected more than 0 beside prepared")
    return a._replace(rng_state=a.prepared.rng_state)


def _without_gaps(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Tensor, Tensor]:
    """(o, lse) of packed sequences that use some of their rows only."""
    _check_kinds(q, k, v, a)
    cu_q: Any = a.cu_q
    cu_kv = ends_beside(cu_q, a.cu_kv, q.shape[0] == k.shape[0])
    look = checked() or (q.is_cpu and plain(q, k, v))
    queries = keys = None
    if a.q_lens is not None:
        queries = close_gaps("q", q.shape[0], cu_q, a.q_lens, look)
    if a.kv_lens is not None:
        keys = close_gaps("kv", k.shape[0], cu_kv, a.kv_lens, look)
    a = a._replace(
        cu_q=cu_q if queries is None else queries.ends,
        cu_kv=cu_kv if keys is None else keys.ends,
        max_kv=a.max_q if a.max_kv is None and a.cu_kv is None else a.max_kv,
        q_lens=None,
        kv_lens=None,
    )
    # Each row once: however gradients are scattered back, nothing is added to anything.
    if keys is not None:
        k, v = k.index_select(0, keys.rows), v.index_select(0, keys.rows)
    if queries is None:
        return call(q, k, v, a)
    o, lse = call(q.index_select(0, queries.rows), k, v, a)
    return o.index_select(0, queries.back), lse.index_select(1, queries.back)


_TRUTHS = {int, bool, str, type(None)}


def numbers(a: Arguments) -> Arguments:
    """The arguments with plain numbers in place of tensors, NumPy scalars and lists."""
    causal, window, scale, softcap, dropout_p, *_ = a
    if (
        type(window) is tuple and _SIDES.issuperset(map(type, (*window, a.max_q, a.max_kv)))
        and type(causal) in _TRUTHS and type(scale) in _REALS and type(softcap) in (float, int)
        and type(dropout_p) in (float, int)
    ):  # fmt: skip
        return a
    return a._replace(
        causal=causal if isinstance(causal, str) else bool(causal),
        window=window_of(window),
        scale=None if scale is None else real_of("scale", scale),
        softcap=real_of("softcap", softcap),
        dropout_p=real_of("dropout_p", dropout_p),
        max_q=length_of("max_q", a.max_q),
        max_kv=length_of("max_kv", a.max_kv),
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> Inputs:
    """Convert the caller's arguments to those of the operator."""
    _check_kinds(q, k, v, a)
    _check_packed(a)
    if a.sink is not None:
        _check_sink(q, a.sink)
    a = numbers(a)
    q, k, v = _cast(q, k, v)
    if a.scale is None:
        dim = q.shape[-1]
        if isinstance(dim, Tensor):  # under torch.jit.trace, which would compute in float32
            dim = int(dim)
        scale = max(dim, 1) ** -0.5
    else:
        scale = float(real_of("scale", a.scale))
    if scale == 0:
        raise Error("argument", "scale 0: expected another number, or None for 1/sqrt(head_dim)")
    lists, max_q, max_kv = _lists(q, k, a)
    if a.block_mask is not None:
        lists = _with_mask(q, k, lists, max_q, max_kv, a.block_mask)
    left, right = window_of(a.window)
    rules = Rules(
        max_q, max_kv, scale, mask_of(a.causal), left, right, a.softcap, a.dropout_p, a.keying,
        () if a.shard is None else _numbers(a.shard),
    )  # fmt: skip
    if a.dropout_p > 0:  # last: a call that is refused has drawn nothing
        if type(q).__name__ == "DTensor" and type(a.rng_state).__name__ != "DTensor":
            raise Error(
                "unsupported",
                "dropout_p on a DTensor: ranks would draw masks of their own; call attention() on "
                "q.to_local() with shard=ordo.Shard(...) and a common seed",
            )
        if a.seed is None and a.rng_state is None:
            _check_once(q, k, v, lists, rules)
        lists = lists._replace(rng=rng_of(q, a.seed, a.rng_state, a.generator))
    return q, k, v, NO_LISTS if all(x is None for x in lists) else lists, rules


def _check_once(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> None:
    """Raise Error if a call is refused, which the operators would do after a seed was drawn."""
    if not plain(q, k, v):
        check(q, k, v, lists)
        return
    looks = [None if x is None else (x.shape, x.dtype, x.device, x.is_contiguous()) for x in lists]
    key = _seen(q, k, v, rules), tuple(looks)
    if key in _shapes:
        return
    call_of(lists, rules)
    check(q, k, v, lists)
    plan_of(q, k, v, lists, rules)
    if len(_shapes) >= KEPT:
        _shapes.clear()
    _shapes.add(key)


def _cast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors in the type of autocast, where it is enabled."""
    device = "cuda" if q.is_cuda else "cpu"
    if not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    if q.dtype is k.dtype is v.dtype is dtype:
        return q, k, v
    return q.to(dtype), k.to(dtype), v.to(dtype)


_TENSORS = ("q", "k", "v", "slopes", "cu_q", "cu_kv", "q_lens", "kv_lens", "sequence_ids")


def _check_kinds(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> None:
    """Raise Error for an argument that is no tensor, or a nested or sparse one."""
    given = q, k, v, a.slopes, a.cu_q, a.cu_kv, a.q_lens, a.kv_lens, a.sequence_ids
    for name, x in zip(_TENSORS, given):
        if x is None and name not in ("q", "k", "v"):
            continue
        if not isinstance(x, Tensor):
            shown = repr(x) if len(repr(x)) <= 60 else f"of type {type(x).__name__}"
            raise Error("argument", f"{name} {shown}: expected a tensor")
        if x.is_nested:
            raise Error(
                "unsupported",
                f"{name}.is_nested True: expected a plain tensor; sequences of their own lengths "
                "are given by cu_q and cu_kv",
            )
        if x.layout is not torch.strided:
            raise Error(
                "unsupported",
                f"{name}.layout {x.layout}: expected torch.strided; {name}.to_dense() has that",
            )
        if name not in ("q", "k", "v"):
            refuse_negative(name, x)


def _check_sink(q: Tensor, sink: Any) -> None:
    if not isinstance(sink, Tensor):
        raise Error("argument", f"sink {sink!r}: expected a tensor")
    if sink.shape != (q.shape[-2],):
        raise Error("shape", f"sink.shape {tuple(sink.shape)}: expected ({q.shape[-2]},)")
    _refuse_complex("sink", sink)


def _refuse_complex(name: str, x: Tensor) -> None:
    """A cast would leave the imaginary part out."""
    if x.dtype.is_complex:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected real numbers")


def _check_packed(a: Arguments) -> None:
    """Raise Error for what belongs to packed sequences where there are none."""
    if a.cu_q is None and (a.cu_kv is not None or a.max_q is not None or a.max_kv is not None):
        for name in ("cu_kv", "max_q", "max_kv"):
            if getattr(a, name) is not None:
                raise Error("argument", f"{name} given, cu_q None: expected cu_q beside {name}")


def _lists(q: Tensor, k: Tensor, a: Arguments) -> tuple[Lists, int, int]:
    cu_q, cu_kv, q_lens, kv_lens = None, None, None, None
    slopes, max_q, max_kv = None, 0, 0
    if a.cu_q is not None:
        cu_q, cu_kv, max_q, max_kv = ends_of(a.cu_q, a.cu_kv, a.max_q, a.max_kv, len(q) == len(k))
    elif a.q_lens is not None or a.kv_lens is not None:
        q_lens = full_lengths("q_lens", q, a.q_lens)
        kv_lens = full_lengths("kv_lens", k, a.kv_lens)
    if a.slopes is not None:
        if a.slopes.requires_grad:
            raise Error("unsupported", "slopes.requires_grad True: slopes have no gradient")
        _refuse_complex("slopes", a.slopes)
        slopes = a.slopes.to(device=q.device, dtype=torch.float32).contiguous()
    return Lists(None, cu_q, cu_kv, q_lens, kv_lens, a.sequence_ids, slopes), max_q, max_kv


def _with_mask(q: Tensor, k: Tensor, lists: Lists, max_q: int, max_kv: int, mask: Any) -> Lists:
    """The lists with those of a block mask."""
    if type(q).__name__ == "DTensor":
        raise Error("unsupported", "block_mask given: expected plain tensors, not DTensor")
    packed = lists.cu_q is not None
    if q.dim() != 4 - packed or k.dim() != 4 - packed:
        check(q, k, k, lists)
    if not packed:
        max_q, max_kv = q.shape[1], k.shape[1]
    made = lists_of_mask(mask, q, max_q, max_kv, sequences(q, lists), packed)
    return Lists(*lists[:7], *made)


def _numbers(shard: Shard) -> tuple[int, ...]:
    return tuple(getattr(shard, name) for name in Shard.__dataclass_fields__)
