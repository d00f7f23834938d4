"""Attention on tensors in one call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .._library import Error
from .._problem import Shard
from .._words import Keying
from . import _sink
from ._blocks import _plan_of as _block_plans
from ._blocks import attend_blocks, block_mask_of
from ._compiled import IDS_GIVEN, PACKED, RNG_DRAWN, RNG_GIVEN, front
from ._inputs import NO_LISTS, Lists, Rules, refuse_negative
from ._layout import takes_strides
from ._lengths import checked, close_gaps, ends_beside, ends_of, full_lengths
from ._numbers import length_of, mask_of, real_of, window_of
from ._ops import attend, execute, plain
from ._passes import watchers
from ._plans import KEPT, Ready, keep, machine_of, ready
from ._plans import _plans as _made
from ._quick import Beside, quick, quick_plain
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
                        ordo.torch.block_mask() does: narrows the mask; on CUDA up to head size 128
    """
    if (
        slopes is None and sink is None and seed is None and rng_state is None and generator is None
        and cu_q is None and cu_kv is None and max_q is None and max_kv is None
        and q_lens is None and kv_lens is None and sequence_ids is None
        and prepared is None and block_mask is None
    ):  # fmt: skip
        rules = causal, window, scale, softcap, dropout_p, keying, shard
        done = at_once(q, k, v, rules)
        if done is not None:
            return done
    arguments = Arguments(
        causal, window, scale, softcap, dropout_p, keying, shard, seed, rng_state, generator,
        slopes, cu_q, cu_kv, max_q, max_kv, q_lens, kv_lens, sequence_ids, prepared, sink,
    )  # fmt: skip
    if block_mask is not None:
        return _in_blocks(q, k, v, arguments, block_mask)
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


_RULES = Arguments._fields.index("seed")
_DROPOUT_P = Arguments._fields.index("dropout_p")
_KEYING = Arguments._fields.index("keying")

Inputs = tuple[Tensor, Tensor, Tensor, Lists, Rules]  # what the operator gets

# Plans by the caller's arguments, for arguments of which prepare() makes the same each time.
_known: dict[Any, Ready] = {}

# Numbers of rules under which the compiled front finds plans by itself.
_quick: dict[Any, int] = {}

_autocasts = torch._C._is_any_autocast_enabled

# Types of numbers that are known as they are; numbers() converts or refuses others, which may
# compare equal.
_SIDES = {int, bool, type(None)}  # of a window
_REALS = {int, float, bool, type(None)}


def forget() -> None:
    """Make every plan anew, for those who change what is read when a plan is made."""
    _made.clear()
    _known.clear()
    _quick.clear()
    _block_plans.cache_clear()
    machine_of.cache_clear()


def at_once(
    q: Tensor, k: Tensor, v: Tensor, rules: Any, alone: bool = False
) -> tuple[Tensor, Tensor] | None:
    """(o, lse) of a call with rules alone, if the compiled front knows them and takes the call.
    `alone`: o alone needs a gradient."""
    if not front.on or watchers or not plain(q, k, v):
        return None
    number = _number(rules, rules)
    if not number:
        return None
    if _autocasts():
        q, k, v = _cast(q, k, v)
    return quick_plain(q, k, v, number, RNG_DRAWN if rules[_DROPOUT_P] > 0 else 0, alone)


def _number(key: Any, rules: Any) -> int:
    """The number of a call's rules; 0 if the compiled front does not know them."""
    try:
        number = _quick.get(key, 0)
    except TypeError:  # a list or an array, which numbers() makes plain
        return 0
    if not number:
        return 0
    _, (left, right), scale, softcap, dropout_p = rules[:_KEYING]
    if (
        type(left) in _SIDES and type(right) in _SIDES and type(scale) in _REALS
        and type(softcap) in _REALS and type(dropout_p) in _REALS
    ):  # fmt: skip
        return number
    return 0


def call(
    q: Tensor, k: Tensor, v: Tensor, a: Arguments, alone: bool = False
) -> tuple[Tensor, Tensor]:
    """(o, lse) by the shortest way. `alone`: o alone needs a gradient."""
    _check_packed(a)
    done, drawn = None, a.seed is None and a.rng_state is None and a.generator is None
    key, flags, lengths = _short(a)
    known = type(a.dropout_p) in (float, int)  # what is not is refused on the long way
    if key is not None and known and not lengths and (drawn or not a.dropout_p > 0):
        done = at_once(q, k, v, key, alone)
    elif key is not None and front.on and not watchers and plain(q, k, v):
        number = _number(key, a)
        if number:
            if _autocasts():
                q, k, v = _cast(q, k, v)
            if a.dropout_p > 0:
                a = _drawn_first(q, a)
                flags |= RNG_DRAWN if a.rng_state is None else RNG_GIVEN
            done = quick(q, k, v, Beside(number, flags, a.rng_state, *lengths))
    return _planned(q, k, v, a) if done is None else done


def _planned(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Tensor, Tensor]:
    """(o, lse) with the plan found here."""
    if a.prepared is not None:
        a = _with_prepared(a)
    if a.cu_q is not None and (a.q_lens is not None or a.kv_lens is not None):
        return _without_gaps(q, k, v, a)
    if a.sink is not None or not plain(q, k, v):
        return run(q, k, v, a)[:2]
    if _autocasts():
        q, k, v = _cast(q, k, v)
    a = numbers(a)
    key, listed = _key(q, k, v, a)
    found = _known.get(key)
    if found is None:
        inputs = prepare(q, k, v, a)
        _keep(key, listed, inputs, q, k, v, a)
        return attend(*inputs, a.prepared)
    rng = None
    if a.dropout_p > 0:
        rng = rng_of(q, a.seed, a.rng_state, a.generator)
    lists = NO_LISTS if rng is None else Lists(rng)
    if listed:
        lists = _given(rng, a)
    bits = None if a.prepared is None else a.prepared.take(found, lists)
    return execute(found, q, k, v, lists, bits)


def _key(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Any, bool]:
    """(What the plan of a call is found by, whether there are lists beside seed and offset)."""
    listed = (
        a.cu_q is not None or a.slopes is not None or a.q_lens is not None
        or a.kv_lens is not None or a.sequence_ids is not None
    )  # fmt: skip
    if listed or not (q.layout is k.layout is v.layout is torch.strided):
        _check_kinds(q, k, v, a)
    key = (
        q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype,
        q.device, k.device, v.device, a[:_RULES], _look(a) if listed else None,
    )  # fmt: skip
    return key, listed


def _keep(
    key: Any, listed: bool, inputs: Inputs, q: Tensor, k: Tensor, v: Tensor, a: Arguments
) -> None:
    """Keep the plan of a call that prepare() made the inputs of."""
    if not listed or _unchanged(inputs[3], a):
        keep(_known, key, _learned(ready(*inputs), q, k, v, a))


def learn(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> None:
    """Make the plan of a call on plain tensors, unless it is known; nothing is drawn or run."""
    a = numbers(a)
    key, listed = _key(q, k, v, a)
    if key not in _known:
        unread = torch.zeros(2, dtype=torch.int64, device=q.device) if a.dropout_p > 0 else None
        _keep(key, listed, prepare(q, k, v, a._replace(rng_state=unread)), q, k, v, a)


def _in_blocks(
    q: Tensor, k: Tensor, v: Tensor, a: Arguments, given: Any
) -> tuple[Tensor, Tensor]:
    """(o, lse) under a block mask. What is refused is refused before a seed is drawn, lengths on
    the CPU excepted, which the pass checks."""
    _check_kinds(q, k, v, a)
    if a.cu_q is not None and (a.q_lens is not None or a.kv_lens is not None):
        raise Error("unsupported", "block_mask, cu_q with q_lens or kv_lens: expected one of them")
    if a.prepared is not None:
        raise Error("unsupported", "block_mask, prepared: expected one of them")
    mask = block_mask_of(given, q)
    if not plain(q, k, v):
        raise Error("unsupported", "block_mask: expected plain tensors, outside torch.compile")
    a, draw = numbers(a), None
    if a.dropout_p > 0 and a.seed is None and a.rng_state is None:
        draw = functools.partial(rng_of, q, generator=a.generator)
        until = torch.empty(2, dtype=torch.int64, device=q.device)
        a = a._replace(rng_state=until, generator=None)
    q, k, v, lists, rules = prepare(q, k, v, a)
    q, k, v = (x if takes_strides(x) else x.contiguous() for x in (q, k, v))
    return attend_blocks(q, k, v, lists, rules, mask, a.sink, draw)


def _short(a: Arguments) -> tuple[Any, int, Any]:
    """(what the number of a call's rules is found by, flags, the lists of Beside) for the compiled
    front; the first is None if it does not know such calls."""
    if a.slopes is not None or a.sink is not None or a.prepared is not None:
        return None, 0, ()
    q_lens, kv_lens, ids = a.q_lens, a.kv_lens, a.sequence_ids
    max_q: Any = 0
    max_kv: Any = 0
    if a.cu_q is not None and q_lens is None and kv_lens is None:
        flags, max_q, max_kv = PACKED, a.max_q, a.max_kv
        q_lens = kv_lens = a.cu_q
        if a.cu_kv is not None:
            kv_lens = a.cu_kv
        elif max_kv is None:
            max_kv = max_q
    elif a.cu_q is None and q_lens is not None:
        flags = 0
    elif a.cu_q is None and kv_lens is None and ids is None:
        return a[:_RULES], 0, ()
    else:
        return None, 0, ()
    if ids is None:
        ids = q_lens
    else:
        flags |= IDS_GIVEN
    if (
        type(q_lens) is not Tensor or type(kv_lens) is not Tensor or type(ids) is not Tensor
        or type(max_q) is not int or type(max_kv) is not int or checked()
    ):  # fmt: skip
        return None, 0, ()
    return (flags, a.cu_kv is None, *a[:_RULES]), flags, (q_lens, kv_lens, ids, max_q, max_kv)


def _learned(made: Ready, q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> Ready:
    """The plan, known to the compiled front too: by the rules, if there are no bits to be made
    first, or else by its number alone."""
    number = front.new_rules()
    short, _, lengths = _short(a)
    if front.on and short is not None and not made.bits_bytes:
        if short in _quick or len(_quick) < KEPT:
            number = _quick.setdefault(short, number)
    if not lengths:
        front.learn(made, number, q, k, v)
    else:
        front.learn(made, number, q, k, v, (lengths[0].shape[0], *lengths[3:]))
    return made


def _drawn_first(q: Tensor, a: Arguments) -> Arguments:
    """The arguments with seed and offset as a tensor, if they are not to be drawn by default."""
    if a.seed is None and a.rng_state is None and a.generator is None:
        return a
    rng = rng_of(q, a.seed, a.rng_state, a.generator)
    return a._replace(seed=None, rng_state=rng, generator=None)


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


_NUMBERS = {int, float, bool, str, type(None)}


def numbers(a: Arguments) -> Arguments:
    """The arguments with plain numbers in place of tensors, NumPy scalars and lists."""
    causal, window, scale, softcap, dropout_p, *_ = a
    if (
        type(window) is tuple and _SIDES.issuperset(map(type, (*window, a.max_q, a.max_kv)))
        and _NUMBERS.issuperset(map(type, (causal, scale, softcap)))
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


def _given(rng: Tensor | None, a: Arguments) -> Lists:
    cu_kv = a.cu_q if a.cu_kv is None else a.cu_kv
    return Lists(rng, a.cu_q, cu_kv, a.q_lens, a.kv_lens, a.sequence_ids, a.slopes)


def _look(a: Arguments) -> tuple[Any, ...]:
    return a.max_q, a.max_kv, *[
        None if x is None else (x.shape, x.stride(), x.dtype, x.device, x.requires_grad)
        for x in (a.cu_q, a.cu_kv, a.q_lens, a.kv_lens, a.sequence_ids, a.slopes)
    ]  # fmt: skip


def _unchanged(lists: Lists, a: Arguments) -> bool:
    """Whether prepare() took the lists as they are, and their content does not matter to it."""
    if a.cu_q is not None:
        longest = a.max_q if a.max_kv is None and a.cu_kv is None else a.max_kv
        if type(a.max_q) is not int or type(longest) is not int:
            return False
    return all(x is y for x, y in zip(lists[1:], _given(None, a)[1:]))


def run(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Tensor, Tensor, Inputs]:
    """(o, lse, inputs)."""
    inputs = prepare(q, k, v, a)
    if a.sink is None:
        o, lse = attend(*inputs, a.prepared)
    else:
        o, lse = _sink.attend(*inputs[:3], a.sink, *inputs[3:], a.prepared)
    return o, lse, inputs


def prepare(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> Inputs:
    """Convert the caller's arguments to those of the operator."""
    _check_kinds(q, k, v, a)
    _check_packed(a)
    if isinstance(a.sink, Tensor):
        _refuse_complex("sink", a.sink)
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
    left, right = window_of(a.window)
    rules = Rules(
        max_q, max_kv, scale, mask_of(a.causal), left, right, a.softcap, a.dropout_p, a.keying,
        () if a.shard is None else _numbers(a.shard),
    )  # fmt: skip
    return q, k, v, lists, rules


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
    rng, slopes, max_q, max_kv = None, None, 0, 0
    if a.cu_q is not None:
        cu_q, cu_kv, max_q, max_kv = ends_of(a.cu_q, a.cu_kv, a.max_q, a.max_kv, len(q) == len(k))
    elif a.q_lens is not None or a.kv_lens is not None:
        q_lens = full_lengths("q_lens", q, a.q_lens)
        kv_lens = full_lengths("kv_lens", k, a.kv_lens)
    if a.dropout_p > 0:
        rng = rng_of(q, a.seed, a.rng_state, a.generator)
    if a.slopes is not None:
        if a.slopes.requires_grad:
            raise Error("unsupported", "slopes.requires_grad True: slopes have no gradient")
        _refuse_complex("slopes", a.slopes)
        slopes = a.slopes.to(device=q.device, dtype=torch.float32).contiguous()
    lists = Lists(rng, cu_q, cu_kv, q_lens, kv_lens, a.sequence_ids, slopes)
    return NO_LISTS if all(x is None for x in lists) else lists, max_q, max_kv


def _numbers(shard: Shard) -> tuple[int, ...]:
    return tuple(getattr(shard, name) for name in Shard.__dataclass_fields__)
