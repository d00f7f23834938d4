"""What a pass is given: its rules, the tensors beside q, k and v, and whether they fit together."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .._library import Error
from .._words import Mask
from . import _front as f

DTYPES: dict[Any, Literal["f32", "bf16", "f16"]] = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
}


class Rules(NamedTuple):
    """What decides the result beside the tensors: the plain arguments of the operators."""

    max_q: int  # longest sequence of a packed batch; else 0
    max_kv: int
    scale: float
    mask: str
    left: int  # of the window, inclusive; -1 = open
    right: int
    softcap: float
    dropout_p: float
    keying: str
    shard: tuple[int, ...]  # the fields of ordo.Shard, or none of them


class Lists(NamedTuple):
    """The tensors that no gradient flows to."""

    rng: Tensor | None = None  # seed and offset, int64
    cu_q: Tensor | None = None
    cu_kv: Tensor | None = None
    q_lens: Tensor | None = None
    kv_lens: Tensor | None = None
    sequence_ids: Tensor | None = None
    slopes: Tensor | None = None
    block_start: Tensor | None = None  # of a block mask; _blocks.py
    block_key: Tensor | None = None
    block_first: Tensor | None = None
    block_last: Tensor | None = None


NO_LISTS = Lists()
_FLAGS = (  # of Lists
    f.RNG, f.CU_Q, f.CU_KV, f.Q_LENS, f.KV_LENS, f.IDS, f.SLOPES,
    f.BLOCK_START, f.BLOCK_KEY, f.BLOCK_FIRST, f.BLOCK_LAST,
)  # fmt: skip
_MASKS = dict(zip(get_args(Mask), (0, f.CAUSAL, f.TOP_LEFT)))
_KEYINGS = {"ordo": 0, "fa2": f.FA2}


# What the operators take beside the tensors that have gradients: flags, scale, more, and softcap,
# dropout_p and sizes as far as they have not their defaults.
Call = tuple[Any, ...]


def call_of(lists: Lists, rules: Rules, bits: Tensor | None = None, sink: Tensor | None = None) -> Call:
    """The call of these lists and rules."""
    if rules.keying not in _KEYINGS:
        raise Error("argument", f"keying {rules.keying!r}: expected ordo or fa2")
    flags, more = _MASKS[rules.mask] | _KEYINGS[rules.keying], []
    if rules.dropout_p > 0 and lists.rng is None:
        flags |= f.DRAW
    for x, flag in zip(lists, _FLAGS):
        if flag == f.BLOCK_START and bits is not None:
            flags |= f.BITS
            more.append(bits)
        if x is not None:
            flags |= flag
            more.append(x)
    if sink is not None:
        flags |= f.SINK
        more.append(sink)
    if rules.left != -1 or rules.right != -1 or lists.cu_q is not None or rules.shard:
        sizes = rules.left, rules.right, rules.max_q, rules.max_kv, *(rules.shard or (0,) * 7)
        return flags, rules.scale, more, rules.softcap, rules.dropout_p, sizes
    if rules.softcap or rules.dropout_p:
        return flags, rules.scale, more, rules.softcap, rules.dropout_p
    return flags, rules.scale, more


def lists_of(flags: int, more: Any) -> Lists:
    """The lists among the tensors of a call."""
    given = dict(zip((1 << x for x in range(f.SINK.bit_length()) if flags >> x & 1), more))
    return Lists(*[given.get(flag) for flag in _FLAGS])


def rules_of(flags: int, scale: float, softcap: float, dropout_p: float, sizes: Any) -> Rules:
    """The rules of a call."""
    left, right, max_q, max_kv, *shard = sizes or (-1, -1, 0, 0)
    mask = next(word for word, flag in _MASKS.items() if flag == flags & (f.CAUSAL | f.TOP_LEFT))
    keying = "fa2" if flags & f.FA2 else "ordo"
    return Rules(
        max_q, max_kv, scale, mask, left, right, softcap, dropout_p, keying, tuple(shard)
    )

# ---- checks; fake tensors will do ----


def check(q: Tensor, k: Tensor, v: Tensor, lists: Lists, dropout_p: float = 0.0) -> None:
    """Raise Error if tensors contradict each other."""
    packed = lists.cu_q is not None
    axes = "(row, head, dim) with cu_q" if packed else "(batch, row, head, dim)"
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != (3 if packed else 4):
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {axes}")
        if x.dtype not in DTYPES:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected {_names(DTYPES)}")
        if x.dtype != q.dtype:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected that of q, {q.dtype}")
        if x.device != q.device:
            raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")
    if q.is_cuda and q.dtype == torch.float32:
        raise Error(
            "unsupported",
            "q.dtype torch.float32 on CUDA: expected torch.bfloat16 or torch.float16; run under "
            'torch.autocast("cuda", torch.bfloat16), or convert q, k and v by .to(torch.bfloat16)',
        )
    if k.shape[:-1] != v.shape[:-1]:
        raise Error("shape", f"v.shape {tuple(v.shape)}: expected {tuple(k.shape[:-1])} as k has")
    if k.shape[-1] != q.shape[-1]:
        raise Error(
            "shape", f"k.shape {tuple(k.shape)}: expected the head size of q, {q.shape[-1]}"
        )
    if not packed and k.shape[0] != q.shape[0]:
        raise Error("shape", f"k.shape {tuple(k.shape)}: expected the batch of q, {q.shape[0]}")
    check_lists(q, lists)
    if dropout_p > 0 and lists.rng is None:
        raise Error("argument", f"rng None: expected a tensor with dropout_p {dropout_p}")


def check_lists(q: Tensor, lists: Lists) -> None:
    """Raise Error if a list does not fit q."""
    batch = sequences(q, lists)
    if batch < 0:
        raise Error("shape", "cu_q.shape (0,): expected (batch + 1,)")
    if lists.rng is not None:
        check_rng(lists.rng, q)
    for name, x, count, dtype in (
        ("cu_q", lists.cu_q, batch + 1, torch.int32),
        ("cu_kv", lists.cu_kv, batch + 1, torch.int32),
        ("q_lens", lists.q_lens, batch, torch.int32),
        ("kv_lens", lists.kv_lens, batch, torch.int32),
        ("sequence_ids", lists.sequence_ids, batch, torch.int64),
    ):
        if x is None:
            continue
        if x.shape != (count,):
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected ({count},)")
        _check_list(name, x, dtype, q)
    if lists.slopes is not None:
        heads = q.shape[-2]
        if lists.slopes.shape != (heads,) and lists.slopes.shape != (batch, heads):
            raise Error(
                "shape",
                f"slopes.shape {tuple(lists.slopes.shape)}: expected ({heads},) or "
                f"({batch}, {heads})",
            )
        _check_list("slopes", lists.slopes, torch.float32, q)
    for name, x in zip(Lists._fields[7:], lists[7:]):
        if x is not None:
            _check_list(name.replace("_", "_mask.", 1), x, torch.int32, q)


def check_rng(rng: Tensor, q: Tensor) -> None:
    if rng.shape != (2,):
        raise Error("shape", f"rng.shape {tuple(rng.shape)}: expected (2,)")
    _check_list("rng", rng, torch.int64, q)


def _check_list(name: str, x: Tensor, dtype: Any, q: Tensor) -> None:
    if x.dtype != dtype:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected {dtype}")
    if x.device != q.device:
        raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")
    if not x.is_contiguous():
        raise Error("align", f"{name}.stride {x.stride()}: expected a contiguous tensor")


def _names(things: Any) -> str:
    words = [str(x) for x in things]
    return ", ".join(words[:-1]) + " or " + words[-1]


def sequences(q: Tensor, lists: Lists) -> Any:
    return q.shape[0] if lists.cu_q is None else lists.cu_q.shape[0] - 1


def empty(q: Tensor, k: Tensor, lists: Lists) -> bool:
    """Whether there is no sequence, no query or no key: o is 0, lse -inf, gradients are 0."""
    return 0 in (sequences(q, lists), q.shape[-3], k.shape[-3])


def o_shape(q: Tensor, v: Tensor) -> tuple[Any, ...]:
    return (*q.shape[:-1], v.shape[-1])


def lse_shape(q: Tensor) -> tuple[Any, ...]:
    """(batch, head, row), packed (head, row)."""
    return (*q.shape[:-3], q.shape[-2], q.shape[-3])


def check_one(name: str, x: Tensor, shape: Any, dtype: Any, device: Any) -> None:
    """Raise Error unless a tensor is of this shape and type, on this device."""
    if x.shape != shape:
        raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {tuple(shape)}")
    if x.dtype != dtype:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected {dtype}")
    if x.device != device:
        raise Error("argument", f"{name}.device {x.device}: expected {device}")


def check_saved(
    dout: Tensor, dlse: Tensor | None, q: Tensor, v: Tensor, o: Tensor, lse: Tensor
) -> None:
    """Raise Error unless what a forward pass gave, and the gradients, fit its inputs."""
    for name, x, shape, dtype in (
        ("dout", dout, o_shape(q, v), q.dtype),
        ("o", o, o_shape(q, v), q.dtype),
        ("lse", lse, lse_shape(q), torch.float32),
        ("dlse", dlse, lse_shape(q), torch.float32),
    ):
        if x is not None:
            check_one(name, x, shape, dtype, q.device)


def check_values(q: Tensor, k: Tensor, lists: Lists, rules: Rules) -> None:
    """Raise Error if a list of lengths is wrong. Waits for the device."""
    rows, columns = q.shape[-3], k.shape[-3]
    for name, ends, total, longest in (
        ("cu_q", lists.cu_q, rows, rules.max_q),
        ("cu_kv", lists.cu_kv, columns, rules.max_kv),
    ):
        if ends is not None:
            check_ends(name, ends.tolist(), total, longest)
    for name, lengths, most in (("q_lens", lists.q_lens, rows), ("kv_lens", lists.kv_lens, columns)):
        if lengths is not None:
            check_each(name, lengths.tolist(), [most] * len(lengths))


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
            raise Error("shape", f"{name}[{b}] {length}: expected 0..{room}")
