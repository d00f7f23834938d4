"""What the functions are given, made the tensors and numbers of an operator: a Call.

Rules that are known have their call in a table. All others go through prepare(): numbers that come as
tensors, lengths and ends as int32, the type of autocast, the lists of a block mask, and seed and
offset, drawn last, after everything that can be refused has been refused.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import torch
from torch import SymInt, Tensor
from torch.autograd import forward_ad

from .. import _words
from .._convert import integer, real
from .._library import Error
from .._machine import backend_limits
from .._problem import Shard
from . import _front as f
from ._blocks import lists_of_mask
from ._inputs import Call, Lists, Rules, ask, call_of, longest, sequences

_CUDA = backend_limits("cuda")
_autocasts = torch._C._is_any_autocast_enabled

# Types of numbers that are known as they are; rules_of() converts or refuses others, which may
# compare equal.
_SIDES = {int, bool, type(None)}  # types of a window's sides
_REALS = {int, float, bool, type(None)}
_TRUTHS = {int, bool, str, type(None)}


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
    page_table: Tensor | None = None
    kv_starts: Tensor | None = None
    seen: Tensor | None = None
    bias: Tensor | None = None


def arguments(given: dict[str, Any], *without: str) -> Arguments:
    """The keywords of a function that takes those of attention() but some."""
    for name in without:
        if name in given:
            raise TypeError(f"unexpected keyword argument {name!r}")
    return Arguments(**given)


Inputs = tuple[Tensor, Tensor, Tensor, Lists, Rules]  # what the operator gets


_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_traced = torch._C._get_tracing_state
_PLAIN = (Tensor, torch.nn.Parameter)


def plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether nobody watches the dispatcher: no trace, mode, subclass, vmap, tangents or other device."""
    return not (
        _compiling()
        or type(q) not in _PLAIN
        or type(k) not in _PLAIN
        or type(v) not in _PLAIN
        or _modes()
        or _transforms()
        or _traced()
        or forward_ad._current_level >= 0
        or not (q.is_cpu or q.is_cuda)
    )


# ---- calls without lists ----


def known_call(q: Tensor, k: Tensor, v: Tensor, rules: Any) -> tuple[Tensor, Tensor, Tensor, Call] | None:
    """q, k, v and the call of plain tensors without lists; None if prepare() has to see them."""
    if not plain(q, k, v):
        return None
    try:
        causal, (left, right), scale, softcap, dropout_p, *_ = rules
        if not (
            type(left) in _SIDES and type(right) in _SIDES and type(scale) in _REALS
            and type(softcap) in _REALS and type(dropout_p) in _REALS and type(causal) in _TRUTHS
        ):  # fmt: skip
            return None
        known = _known(rules, q.shape[-1], v.shape[-1], q.is_cuda)
    except (TypeError, ValueError, IndexError, RuntimeError):  # an array; no pair; no axes; nested; refused
        return None
    if known is None:
        return None
    return (*_cast(q, k, v), known) if _autocasts() else (q, k, v, known)


@functools.lru_cache(maxsize=4096)
def _known(rules: Any, dim: int, v_dim: int, cuda: bool) -> Call | None:
    """The call of these rules, for all that are like it; None if head sizes are to be filled."""
    plain_rules = rules_of(Arguments(*rules), dim)
    return None if cuda and fill_width(dim, v_dim) else call_of(Lists(), plain_rules)


# ---- every call ----


def prepare(q: Tensor, k: Tensor, v: Tensor, a: Arguments, now: bool = False) -> Inputs:
    """Convert the caller's arguments to those of the operator. `now`: draw seed and offset here, even
    if the operator could."""
    check_packed(a)
    spread = type(q).__name__ == "DTensor"
    for name in ("sink", "block_mask", "seen", "bias") if spread else ():
        if getattr(a, name) is not None:
            raise Error("unsupported", f"{name} given: expected plain tensors, not DTensor")
    q, k, v = _cast(q, k, v)
    dim = q.shape[-1]
    if isinstance(dim, Tensor):  # under torch.jit.trace, which would compute in float32
        dim = int(dim)
    lists, max_q, max_kv = lists_beside(q, k, a)
    rules = rules_of(a, dim, max_q, max_kv)
    real, drops = plain(q, k, v), rules.dropout_p > 0
    if not real:
        _refuse_derivatives(q, k, v, a.bias, a.sink)
    if spread and drops and type(a.rng_state).__name__ != "DTensor":
        raise Error(
            "unsupported",
            "dropout_p on a DTensor: ranks would draw keep bits of their own; call attention() on "
            "q.to_local() with shard=ordo.Shard(...) and a common seed",
        )
    given = a.seed is not None or a.rng_state is not None
    here = drops and (given or now or a.generator is not None or not real)  # else the operator draws
    if a.block_mask is not None:
        if a.seen is not None:
            raise Error("unsupported", "seen, block_mask: expected one of the two")
        made = lists_of_mask(a.block_mask, q, k, sequences(q, lists), rules)
        if isinstance(made, Tensor):
            seen = _shared("block_mask", made, q, k, lists, max_q, max_kv)
            lists = lists._replace(seen=f.run(f.seen, seen))
        else:
            names = (f"block_{name}" for name in made._fields)
            lists = lists._replace(**dict(zip(names, made)))
    if real and (checked() or (drops and q.is_cpu)) and any(x is not None for x in lists):
        check_values(q, k, lists, rules)
    if real and here and not given:  # a call that is refused has drawn nothing
        ask(*widened(q, k, v), call_of(lists, rules))
    if here:
        lists = lists._replace(rng=rng_of(q, a.seed, a.rng_state, a.generator))
    return q, k, v, lists, rules


def _refuse_derivatives(*tensors: Tensor | None) -> None:
    """Raise Error for what has no formula: transforms, and tangents."""
    if _compiling() or _traced():
        return
    if _transforms():
        raise Error(
            "unsupported",
            "torch.func (grad, vjp, jacrev, jvp, vmap): not supported for attention; expected "
            "torch.autograd.grad() or backward()",
        )
    refuse_tangents(*tensors)


def refuse_tangents(*tensors: Tensor | None) -> None:
    """Raise Error for tangents, which would be dropped."""
    if _compiling() or forward_ad._current_level < 0:
        return
    for x in tensors:
        if x is not None and forward_ad.unpack_dual(x).tangent is not None:
            raise Error("unsupported", "tangents (forward-mode derivatives): expected none; they have no formula")


def _cast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors in the type of autocast, where it is enabled."""
    device = "cuda" if q.is_cuda else "cpu"
    if not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    if q.dtype is k.dtype is v.dtype is dtype:
        return q, k, v
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _of_heads(name: str, x: Tensor, q: Tensor) -> Tensor:
    """Numbers of heads as float32 on the device of q. A cast would leave an imaginary part out."""
    if x.dtype.is_complex:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected real numbers")
    return x.to(device=q.device, dtype=torch.float32).contiguous()


def check_packed(a: Arguments) -> None:
    """Raise Error for what belongs to packed sequences where there are none."""
    if a.cu_q is None and (a.cu_kv is not None or a.max_q is not None or a.max_kv is not None):
        for name in ("cu_kv", "max_q", "max_kv"):
            if getattr(a, name) is not None:
                raise Error("argument", f"{name} given, cu_q None: expected cu_q beside {name}")


def lists_beside(q: Tensor, k: Tensor, a: Arguments) -> tuple[Lists, int, int]:
    """The lists of a call, but those of a block mask; and its longest sequences."""
    cu_q, cu_kv, q_lens, kv_lens = None, None, None, None
    slopes, max_q, max_kv, sink = None, 0, 0, None
    if a.sink is not None:
        sink = _of_heads("sink", a.sink, q)
    if a.cu_q is not None:
        cu_q, cu_kv, max_q, max_kv = ends_of(a.cu_q, a.cu_kv, a.max_q, a.max_kv, len(q) == len(k))
        if a.page_table is not None:
            cu_kv, kv_lens = None, a.kv_lens
    elif a.q_lens is not None or a.kv_lens is not None:
        q_lens = full_lengths("q_lens", q, a.q_lens)
        kv_lens = full_lengths("kv_lens", k, a.kv_lens)
    if a.slopes is not None:
        if a.slopes.requires_grad:
            raise Error("unsupported", "slopes.requires_grad True: slopes have no gradient")
        slopes = _of_heads("slopes", a.slopes, q)
    pages: Any = dict(page_table=a.page_table, kv_starts=a.kv_starts)
    made = Lists(None, cu_q, cu_kv, q_lens, kv_lens, a.sequence_ids, slopes, sink=sink, **pages)
    if a.bias is not None:
        bias = _shared("bias", a.bias, q, k, made, max_q, max_kv)
        made = made._replace(bias=bias if bias.stride(-1) == 1 else bias.contiguous())
    if a.seen is not None:
        seen = _shared("seen", a.seen, q, k, made, max_q, max_kv)
        made = made._replace(seen=torch.ops.ordo.seen(seen) if _compiling() else f.run(f.seen, seen))
    return made, max_q, max_kv


def _shared(name: str, x: Any, q: Tensor, k: Tensor, lists: Lists, max_q: Any, max_kv: Any) -> Tensor:
    """Matrices of sequences and heads; those that share one by expand() as one, so that it is read once.
    One with a gradient stays as it is: each element of it has its own."""
    if not isinstance(x, Tensor):
        raise Error("argument", f"{name} {x!r}: expected a tensor")
    own, sizes = tuple(x.shape), (sequences(q, lists), q.shape[-2], *longest(q, k, max_q, max_kv))
    shared = tuple(1 if axis < 2 and size == 1 else sizes[axis] for axis, size in enumerate(own[:4]))
    if own != shared or len(own) != 4:
        expected = f"({sizes[0]} or 1, {sizes[1]} or 1, {sizes[2]}, {sizes[3]})"
        raise Error("shape", f"{name}.shape {own}: expected {expected}")
    for axis in (0, 1):
        if own[axis] > 1 and x.stride(axis) == 0 and not x.requires_grad:
            x = x.narrow(axis, 0, 1)
    return x


def rules_of(a: Arguments, dim: int, max_q: Any = 0, max_kv: Any = 0) -> Rules:
    """The rules as plain numbers, also where tensors, NumPy scalars and lists are given."""
    scale = max(dim, 1) ** -0.5 if a.scale is None else float(real_of("scale", a.scale))
    if scale == 0:
        raise Error("argument", "scale 0: expected another number, or None for 1/sqrt(head_dim)")
    left, right = window_of(a.window)
    shard = () if a.shard is None else tuple(getattr(a.shard, x) for x in Shard.__dataclass_fields__)
    softcap, dropout_p = real_of("softcap", a.softcap), real_of("dropout_p", a.dropout_p)
    return Rules(
        max_q, max_kv, scale, mask_of(a.causal), left, right, softcap, dropout_p, a.keying, shard
    )


def with_prepared(a: Arguments) -> Arguments:
    """The arguments with the seed and offset that were drawn ahead."""
    if not hasattr(a.prepared, "rng_state"):
        raise Error("argument", f"prepared {a.prepared!r}: expected what prepare_dropout() returns")
    if a.seed is not None or a.rng_state is not None or a.generator is not None:
        raise Error("argument", "seed, rng_state, generator: expected none beside prepared")
    if not real_of("dropout_p", a.dropout_p) > 0:
        raise Error("argument", f"dropout_p {a.dropout_p}: expected more than 0 beside prepared")
    return a._replace(rng_state=a.prepared.rng_state)


# ---- numbers ----


def mask_of(causal: Any) -> str:
    """The library's word; also of a tensor or a number."""
    return _words.mask_of(causal if isinstance(causal, str) else bool(causal))


def window_of(window: Any) -> tuple[int, int]:
    """(left, right) of a pair of any kind; None, or a side that is None or negative, is open."""
    if window is None:
        return -1, -1
    try:
        left, right = window.tolist() if isinstance(window, Tensor) else window
    except (TypeError, ValueError):
        raise Error("argument", f"window {window!r}: expected (left, right)") from None
    return _side(left), _side(right)


def _side(x: Any) -> Any:
    return -1 if x is None else max(whole("window", x), -1)


def whole(name: str, x: Any) -> Any:
    """An int, or None if x is."""
    return x if x is None or isinstance(x, (int, SymInt)) else integer(name, x)


def real_of(name: str, x: Any) -> float:
    """A float. No gradient flows to it, so a tensor that asks for one is refused."""
    if isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled():
        raise Error("unsupported", f"{name}.requires_grad True: {name} has no gradient")
    return x if isinstance(x, (int, float)) else real(name, x)


# ---- lengths ----


_switch = [False]


def check_lengths(on: bool = True) -> None:
    """Have every forward pass check its lengths, and raise Error if they are wrong.

    For CUDA tensors: there cu_q, cu_kv, q_lens and kv_lens are read by the kernels alone, which
    clamp what is wrong, and rows left to no sequence are zeros. With this switch on, a forward pass
    copies them to the host first and checks that ends begin at 0, do not decrease and do not exceed
    the rows of the tensor, and that no sequence is longer than max_q or max_kv. It waits for the
    device, and cannot be captured in a CUDA graph. Lengths of CPU tensors are always checked.
    """
    _switch[0] = on


def checked() -> bool:
    return _switch[0]


def check_values(q: Tensor, k: Tensor, lists: Lists, rules: Rules) -> None:
    """Raise Error if a list of lengths is wrong, or one of sequence_ids. Waits for the device. What has
    not the axes, or another device, the operator refuses."""
    if not q.dim() == k.dim() == (4 if lists.cu_q is None else 3):
        return
    rows, columns = q.shape[-3], k.shape[-3]
    ids = 2**32 // (rules.shard and rules.shard[4] or q.shape[-2]) - 1
    longest = {"cu_q": (rows, rules.max_q), "cu_kv": (columns, rules.max_kv)}
    most = {"q_lens": rows, "kv_lens": columns, "sequence_ids": ids}
    for name, x in lists._asdict().items():
        if x is None or x.dim() != 1 or x.device != q.device:
            continue
        if name in longest and len(x):
            check_ends(name, x.tolist(), *longest[name])
        elif name in most:
            check_each(name, x.tolist(), [most[name]] * len(x))


def check_ends(name: str, ends: list[int], total: int, longest: int) -> None:
    if ends[0] != 0:
        raise Error("shape", f"{name}[0] {ends[0]}: expected 0")
    for b, (begin, end) in enumerate(zip(ends, ends[1:]), 1):
        most = min(begin + longest, total)
        if not begin <= end <= most:
            raise Error(
                "shape",
                f"{name}[{b}] {end}: expected {begin}..{most} (a sequence of 0..{longest}, "
                f"{total} rows in all)",
            )


def check_each(name: str, lengths: list[int], rooms: list[int]) -> None:
    for b, (length, room) in enumerate(zip(lengths, rooms)):
        if not 0 <= length <= room:
            status = "argument" if name == "sequence_ids" else "shape"
            raise Error(status, f"{name}[{b}] {length}: expected 0..{room}")


# ---- as the library takes them ----

_MOST = 2**31 - 1


def as_int32(name: str, x: Tensor) -> Tensor:
    """Lengths or ends as int32, without a look at them. A number that int32 does not have becomes
    the nearest: no tensor has so many rows, so that it is as wrong as before."""
    if x.dtype is torch.int32:
        return x
    if x.dtype is not torch.int64:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected torch.int32 or torch.int64")
    return x.clamp(-_MOST, _MOST).to(torch.int32)


# ---- what is left out of a call ----


def ends_of(
    cu_q: Tensor, cu_kv: Tensor | None, max_q: Any, max_kv: Any, same: bool
) -> tuple[Tensor, Tensor, int, int]:
    """Ends as int32; the longest sequences, which cost a synchronisation if not given."""
    max_q, max_kv = whole("max_q", max_q), whole("max_kv", max_kv)
    cu_kv = ends_beside(cu_q, cu_kv, same)
    ends = as_int32("cu_q", cu_q)
    cu_q, cu_kv = ends, ends if cu_kv is cu_q else as_int32("cu_kv", cu_kv)
    if max_q is None:
        max_q = _longest_of(cu_q)
    if max_kv is None:
        max_kv = max_q if cu_kv is cu_q else _longest_of(cu_kv)
    return cu_q, cu_kv, max(int(max_q), 1), max(int(max_kv), 1)


def ends_beside(cu_q: Tensor, cu_kv: Tensor | None, same: bool) -> Tensor:
    """Ends of the keys: those of the queries if none are given."""
    if cu_kv is None and not same:
        raise Error("argument", "cu_kv None: expected a tensor beside cu_q: k has other rows")
    return cu_q if cu_kv is None else cu_kv


def _longest_of(ends: Tensor) -> Any:
    return ends.diff().max().item() if ends.shape[0] > 1 else 0


def full_lengths(name: str, x: Tensor, lens: Tensor | None) -> Tensor:
    """Lengths as int32; all rows of x if none are given."""
    if lens is not None:
        return as_int32(name, lens)
    return torch.full((x.shape[0],), x.shape[1], dtype=torch.int32, device=x.device)


# ---- packed sequences with gaps ----


def without_gaps(
    q: Tensor, k: Tensor, v: Tensor, a: Arguments
) -> tuple[Tensor, Tensor, Tensor, Arguments, Tensor | None]:
    """Packed sequences that use some of their rows, as those rows alone; and where each row of the
    result is, unless q is as it was."""
    cu_q: Any = a.cu_q
    cu_kv = ends_beside(cu_q, a.cu_kv, q.shape[0] == k.shape[0])
    look, back = checked() or (q.is_cpu and plain(q, k, v)), None
    queries = close_gaps("q", q.shape[0], cu_q, a.q_lens, look)
    keys = close_gaps("kv", k.shape[0], cu_kv, a.kv_lens, look)
    max_kv = a.max_q if a.max_kv is None and a.cu_kv is None else a.max_kv
    # Each row once: however gradients are scattered back, nothing is added to anything.
    if queries is not None:
        cu_q, back = queries.ends, queries.back
        q = q.index_select(0, queries.rows)
    if keys is not None:
        cu_kv = keys.ends
        k, v = k.index_select(0, keys.rows), v.index_select(0, keys.rows)
    return q, k, v, a._replace(cu_q=cu_q, cu_kv=cu_kv, max_kv=max_kv, q_lens=None, kv_lens=None), back


class Moved(NamedTuple):
    """Rows of a packed tensor with the used ones in front."""

    rows: Tensor  # which row comes where
    back: Tensor  # where each row is
    ends: Tensor


def close_gaps(which: str, count: int, ends: Tensor, used: Tensor | None, look: bool) -> Moved | None:
    """How to move `count` rows so that each sequence is `used` long; None if nothing is to move.

    `which` is "q" or "kv". With `look` the values are checked; otherwise what is wrong is clamped.
    """
    name, batch = f"{which}_lens", ends.shape[0] - 1
    if used is None:
        return None
    if used.shape != (batch,):
        raise Error("shape", f"{name}.shape {tuple(used.shape)}: expected ({batch},)")
    if used.device != ends.device:
        raise Error(
            "argument", f"{name}.device {used.device}: expected that of cu_{which}, {ends.device}"
        )
    if batch == 0:
        return None
    given = ends, used
    ends, used = as_int32(f"cu_{which}", ends), as_int32(name, used)
    room = ends.diff()
    if look:
        check_ends(f"cu_{which}", given[0].tolist(), count, count)
        check_each(name, given[1].tolist(), room.tolist())
        if torch.equal(used, room):
            return None
    lengths = used.minimum(room).clamp(min=0)
    row = torch.arange(count, dtype=torch.int32, device=ends.device)
    at = torch.searchsorted(ends, row, right=True) - 1
    sequence = at.clamp(0, batch - 1)
    unused = (row - ends[sequence] >= lengths[sequence]) | (at != sequence)
    rows = torch.argsort(unused.to(torch.uint8), stable=True)
    moved = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return Moved(rows, torch.argsort(rows), moved)


# ---- seed and offset of dropout ----


def rng_of(
    q: Tensor,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(seed, offset) on the device of q: the one given, or drawn, without a synchronisation. Both that are
    drawn are below 2^32: an offset has to be, and a pair of 64 bits suffices."""
    if seed is None and rng_state is None:
        if generator is not None:
            return torch.randint(2**32, (2,), device=q.device, generator=generator)
        drawn: Tensor = torch.ops.ordo.draw(q) if _compiling() else f.draw(q)
        return drawn
    if generator is not None or (seed is not None and rng_state is not None):
        raise Error("argument", "seed, rng_state, generator: expected one of them at most")
    if rng_state is not None:
        if not isinstance(rng_state, Tensor):
            raise Error("argument", f"rng_state {rng_state!r}: expected a tensor")
        return rng_state
    numbers: Any = seed  # or an array of them
    given = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    try:
        pair = tuple(map(index, (given, 0) if isinstance(given, int) else given))
    except TypeError:
        pair = ()
    if len(pair) != 2 or not all(0 <= x < 2**64 for x in pair):
        raise Error("argument", f"seed {seed}: expected a number or (seed, offset) below 2^64")
    signed = [x - 2**64 if x >= 2**63 else x for x in pair]
    made = torch.full((2,), signed[1], dtype=torch.int64, device=q.device)  # not a copy: no wait
    made[:1].fill_(signed[0])
    return made


# ---- head sizes ----


def fill_width(dim: int, v_dim: int) -> int:
    """Head size to fill CUDA tensors up to with zeros, which change no score; 0: none needed."""
    step = _CUDA.head_dim_multiple
    if dim % step == 0 and v_dim % step == 0 and (dim == v_dim or _CUDA.unequal_head_dims):
        return 0
    return -(-max(dim, v_dim) // step) * step


def width_of(q: Tensor, v: Tensor) -> int:
    """Head size to fill the tensors of a call up to; 0: none needed."""
    return fill_width(q.shape[-1], v.shape[-1]) if q.is_cuda else 0


def filled(width: int, *tensors: Tensor) -> list[Tensor]:
    """The tensors with columns of zeros; as they are if width is 0."""
    return [torch.nn.functional.pad(x, (0, width - x.shape[-1])) if width else x for x in tensors]


def widened(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v with the head size that the operators take."""
    q, k, v = filled(width_of(q, v), q, k, v)
    return q, k, v
