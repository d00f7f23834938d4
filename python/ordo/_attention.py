"""Execute a plan on arrays (ordo/attention.h)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_uint64, c_void_p, pointer
from typing import Any, Literal

import numpy as np

from . import _structs as s
from . import dropout
from ._arrays import (
    Array,
    address,
    check_kind,
    dtype_of,
    flat_f32,
    matrices,
    numbers,
    set_tensor,
    sink_of,
    slopes_of,
)
from ._blocks import BlockMask
from ._convert import integer, real
from ._library import Error, lib
from ._plan import Plan
from ._problem import NO_KEYS, Bias, BlockLimits, Problem, SeenLimits, dropout_of
from ._seen import Seen
from ._words import Backend, DType, mask_of

Numbers = Sequence[int] | Array | None
Gradient = Literal["dq", "dk", "dv"]
Carry = Literal["", "in", "out", "in+out"]

CARRIES = {"": 0, "in": 1, "out": 2, "in+out": 3}  # ORDO_CARRY_IN and ORDO_CARRY_OUT


def forward(
    plan: Plan,
    q: Array,
    k: Array,
    v: Array,
    *,
    o: Array | None = None,
    lse: Array | None = None,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    q_lens: Numbers = None,
    kv_lens: Numbers = None,
    sequence_ids: Numbers = None,
    slopes: Array | Sequence[float] | None = None,
    sink: Array | Sequence[float] | None = None,
    keep_bits: Array | None = None,
    block_mask: BlockMask | None = None,
    seen: Seen | None = None,
    bias: Array | None = None,
    seed: int = 0,
    offset: int = 0,
    threads: int = 0,
    mask_bits: Array | None = None,
) -> tuple[Array, Array]:
    """Forward attention: (o, lse).

    Tensors are (batch, row, head, dim), packed (row, head, dim), with any strides but a
    contiguous last axis; only inputs with negative strides are copied. lse is float32, (batch,
    heads, rows), packed (heads, rows). `o` and `lse` are overwritten if given, else made (contiguous).

        cu_q, cu_kv     packed: batch + 1 ends, from 0
        q_lens, kv_lens padded: valid rows and columns of each sequence; the rest of o is 0
        sequence_ids    of dropout; None = batch0, batch0 + 1, ...
        slopes          of ALiBi: (heads,) or (batch, heads)
        sink            (heads,): a learned logit of each head in the softmax of every row; lse
                        includes it
        keep_bits       keep bits that ordo.dropout.fill() made, instead of seed and offset
        block_mask      a BlockMask, with its limits in problem.blocks
        seen            a Seen, with its limits in problem.seen
        bias            (batch or 1, heads or 1, q_len, kv_len) or its last axes, float32 or the
                        type of q, as problem.bias says: added to the logits; -inf hides
        seed, offset    of dropout: never the same pair twice
        threads         0 = all the process may use; changes no bit
    """
    shapes, dtype = plan._shapes, plan.problem.dtype
    call = _open(plan)
    held = [
        set_tensor(call.q, "q", q, shapes["q"], dtype),
        set_tensor(call.k, "k", k, shapes["k"], dtype),
        set_tensor(call.v, "v", v, shapes["v"], dtype),
    ]
    o, lse = _make("o", o, plan, q), _make("lse", lse, plan)
    set_tensor(call.o, "o", o, shapes["o"], dtype, output=True)
    call.lse = address(flat_f32("lse", lse, shapes["lse"], output=True))
    held += _set_rest(
        call, plan, cu_q, cu_kv, q_lens, kv_lens, sequence_ids, slopes, sink,
        _renamed(keep_bits, mask_bits), block_mask, seen, bias, seed, offset, threads,
    )  # fmt: skip
    _run(lib.ordo_attention_forward, plan, call, plan.info.forward_workspace_bytes)
    del held  # the arrays at the addresses had to live until here
    return o, lse


def backward(
    plan: Plan,
    q: Array,
    k: Array,
    v: Array,
    o: Array,
    lse: Array,
    dout: Array,
    *,
    dlse: Array | None = None,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    gradients: Sequence[Gradient] = ("dq", "dk", "dv"),
    carry: Carry = "",
    dk_sums: Array | None = None,
    dv_sums: Array | None = None,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    q_lens: Numbers = None,
    kv_lens: Numbers = None,
    sequence_ids: Numbers = None,
    slopes: Array | Sequence[float] | None = None,
    sink: Array | Sequence[float] | None = None,
    dsink: Array | None = None,
    dsink_parts: Array | None = None,
    keep_bits: Array | None = None,
    block_mask: BlockMask | None = None,
    seen: Seen | None = None,
    bias: Array | None = None,
    dbias: Array | None = None,
    seed: int = 0,
    offset: int = 0,
    threads: int = 0,
    mask_bits: Array | None = None,
) -> tuple[Any, Any, Any]:
    """Backward attention: (dq, dk, dv) from dout, the gradient of o.

    q, k, v, o, lse and the keywords are what forward() took and gave; `dlse`, if any, is the
    gradient of lse. `dq`, `dk` and `dv` are overwritten if given, never added to.

        gradients        those to compute: ("dq",), ("dk", "dv") or all; the others are None
        carry            "out", "in+out", then "in": this is the first, a middle or the last part of
                         the rows of a sequence (plan.problem.shard says which), in the order in
                         which the plan visits rows; all parts have the bits of one pass
        dk_sums, dv_sums with carry: float32, contiguous, of the shapes of k and v; read ("in") and
                         written ("out"). With "out" dk and dv are None
        dsink            with sink: float32, (heads,), overwritten with its gradient
        dsink_parts      the same of each sequence, (batch, heads): sum them in f64, sequence after
                         sequence, and round once to get dsink
        dbias            with bias: float32, (batch or 1, heads or 1, q_len, kv_len), overwritten
                         with its gradient; `gradients` may then be ()
    """
    shapes, dtype = plan._shapes, plan.problem.dtype
    call = _open(plan)
    held = [
        set_tensor(call.q, "q", q, shapes["q"], dtype),
        set_tensor(call.k, "k", k, shapes["k"], dtype),
        set_tensor(call.v, "v", v, shapes["v"], dtype),
        set_tensor(call.o, "o", o, shapes["o"], dtype),
        set_tensor(call.dout, "dout", dout, shapes["dout"], dtype),
        flat_f32("lse", lse, shapes["lse"]),
    ]
    call.lse = address(held[-1])
    if dlse is not None:
        held.append(flat_f32("dlse", dlse, shapes["dlse"]))
        call.dlse = address(held[-1])
    wanted = wanted_gradients(gradients, carry, dq=dq, dk=dk, dv=dv)
    made: list[Any] = []
    for name, given, like in (("dq", dq, q), ("dk", dk, k), ("dv", dv, v)):
        made.append(_make(name, given, plan, like) if name in wanted else None)
        if name in wanted:
            set_tensor(getattr(call, name), name, made[-1], shapes[name], dtype, output=True)
    call.carry = CARRIES[carry]
    for name, sums in (("dk_sums", dk_sums), ("dv_sums", dv_sums)):
        if sums is not None:
            setattr(call, name, address(flat_f32(name, sums, shapes[name[:2]], output=True)))
    p = plan.problem
    for name, given, shape in (
        ("dsink", dsink, (p.heads,)),
        ("dsink_parts", dsink_parts, (p.batch, p.heads)),
        ("dbias", dbias, _bias_shape(p)),
    ):
        if given is not None:
            setattr(call, name, address(flat_f32(name, given, shape, output=True)))
    held += _set_rest(
        call, plan, cu_q, cu_kv, q_lens, kv_lens, sequence_ids, slopes, sink,
        _renamed(keep_bits, mask_bits), block_mask, seen, bias, seed, offset, threads,
    )  # fmt: skip
    _run(lib.ordo_attention_backward, plan, call, plan.info.backward_workspace_bytes)
    del held
    return made[0], made[1], made[2]


def combine(
    plan: Plan,
    parts: Sequence[tuple[Array, Array]],
    *,
    o: Array | None = None,
    lse: Array | None = None,
    threads: int = 0,
) -> tuple[Array, Array]:
    """Merge results over disjoint sets of keys: (o, lse) of their union.

    `parts` are (o, lse) pairs of forward passes over the same queries; they are added in the
    order given. The plan gives shapes, type and backend. A ring over sequence shards needs this.
    """
    shapes, dtype = plan._shapes, plan.problem.dtype
    call = _open(plan, s.ordo_combine)
    pairs = list(parts)
    tensors, places = (s.ordo_tensor * len(pairs))(), (c_void_p * len(pairs))()
    held = []
    for index, (part_o, part_lse) in enumerate(pairs):
        held.append(set_tensor(tensors[index], f"parts[{index}].o", part_o, shapes["o"], dtype))
        held.append(flat_f32(f"parts[{index}].lse", part_lse, shapes["lse"]))
        places[index] = address(held[-1])
    call.parts, call.o_parts, call.lse_parts = len(pairs), tensors, places
    o, lse = _make("o", o, plan, pairs[0][0] if pairs else None), _make("lse", lse, plan)
    set_tensor(call.o, "o", o, shapes["o"], dtype, output=True)
    call.lse = address(flat_f32("lse", lse, shapes["lse"], output=True))
    call.threads = integer("threads", threads, c_int)
    lib.ordo_attention_combine(plan._handle, byref(call))
    del held
    return o, lse


# ---- the parts of a call ----


def _open(plan: Plan, kind: type[Any] = s.ordo_call) -> Any:
    if plan.info.backend == "cuda":
        raise Error(
            "unsupported", "backend cuda: numpy arrays are in host memory; expected ref, cpu or emulator"
        )
    return s.sized(kind)


def _make(name: str, given: Array | None, plan: Plan, like: Array | None = None) -> Array:
    """An output: the one given, or a new one, contiguous, of the type of `like`."""
    if given is not None:
        return given
    return np.empty(plan._shapes[name], np.float32 if like is None else like.dtype)


def wanted_gradients(
    gradients: Sequence[Gradient], carry: Carry, **given: Array | None
) -> set[str]:
    """The names of the gradients that a backward pass writes as tensors."""
    if carry not in CARRIES:
        raise Error("argument", f"carry {carry!r}: expected '', 'in', 'out' or 'in+out'")
    wanted: set[str] = set(gradients)
    if not wanted <= {"dq", "dk", "dv"}:
        raise Error("argument", f"gradients {gradients!r}: expected some of 'dq', 'dk', 'dv'")
    if "out" in carry:
        wanted -= {"dk", "dv"}
    for name, tensor in given.items():
        if tensor is not None and name not in wanted:
            why = f"carry {carry!r}" if name in gradients else f"gradients {gradients!r}"
            raise Error("argument", f"{name} given: expected None with {why}")
    return wanted


def _renamed(keep_bits: Array | None, mask_bits: Array | None) -> Array | None:
    """keep_bits, or its name in version 0.1.0, which the next version refuses."""
    if mask_bits is None:
        return keep_bits
    if keep_bits is not None:
        raise Error("argument", "mask_bits: expected None with keep_bits, its new name")
    warnings.warn("ordo: mask_bits is keep_bits now", FutureWarning, stacklevel=3)
    return mask_bits


def _set_rest(
    call: Any,
    plan: Plan,
    cu_q: Numbers,
    cu_kv: Numbers,
    q_lens: Numbers,
    kv_lens: Numbers,
    sequence_ids: Numbers,
    slopes: Any,
    sink: Any,
    keep_bits: Array | None,
    block_mask: BlockMask | None,
    seen: Seen | None,
    bias: Array | None,
    seed: int,
    offset: int,
    threads: int,
) -> list[Any]:
    """Everything but tensors; what must stay alive during the call."""
    p = plan.problem
    held: list[Any] = []
    for name, given, count, dtype in (
        ("cu_q", cu_q, p.batch + 1, np.int32),
        ("cu_kv", cu_kv, p.batch + 1, np.int32),
        ("q_lens", q_lens, p.batch, np.int32),
        ("kv_lens", kv_lens, p.batch, np.int32),
        ("sequence_ids", sequence_ids, p.batch, np.int64),
    ):
        if given is not None:
            held.append(numbers(name, given, count, dtype))
            setattr(call, name, address(held[-1]))
    if slopes is not None:
        array, call.slopes_batch_stride = slopes_of(slopes, p.batch, p.heads)
        held.append(array)
        call.slopes = address(array)
    if sink is not None:
        held.append(sink_of(sink, p.heads))
        call.sink = address(held[-1])
    if keep_bits is not None:
        held.append(dropout.check_words(plan.problem, keep_bits, cu_q, cu_kv))
        call.keep_bits = address(held[-1])
    if block_mask is not None:
        held.append(block_mask.to_c())
        call.block_mask = pointer(held[-1])
    if seen is not None:
        held.append(seen)
        call.seen = pointer(seen.to_c())
    if bias is not None:
        whole = matrices("bias", bias)
        held.append(set_tensor(call.bias, "bias", whole, _bias_shape(p), p.bias.dtype))
    call.seed = integer("seed", seed, c_uint64)
    call.offset = integer("offset", offset, c_uint64)
    call.threads = integer("threads", threads, c_int)
    return held


def _bias_shape(p: Problem) -> tuple[int, ...]:
    own = p.bias
    return (
        p.batch if own.per_sequence else 1, p.heads if own.per_head else 1,
        p.q_len, max(0, p.kv_len),
    )  # fmt: skip


def _run(function: Callable[..., Any], plan: Plan, call: Any, workspace_bytes: int) -> None:
    if workspace_bytes == 0:
        function(plan._handle, byref(call))  # other threads run meanwhile
        return
    workspace = plan._take()
    try:
        call.workspace, call.workspace_bytes = workspace.address, workspace.size
        function(plan._handle, byref(call))
    finally:
        plan._give(workspace)


# ---- in one call ----


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    q_lens: Numbers = None,
    kv_lens: Numbers = None,
    sequence_ids: Numbers = None,
    slopes: Array | Sequence[float] | None = None,
    sink: Array | Sequence[float] | None = None,
    block_mask: BlockMask | None = None,
    seen: Seen | Array | None = None,
    bias: Array | None = None,
    dtype: DType | None = None,
    backend: Backend = "default",
    threads: int = 0,
) -> Array:
    """Forward attention in one call: o.

    Arrays and keywords are those of forward(); the plan follows from them and is cached for
    calls of the same shape. Causal masks (True or "bottom-right") align bottom-right, so that
    the last row sees every key; "top-left" aligns them to the first. `cu_q` (and `cu_kv`) makes
    it packed, `q_lens` (and `kv_lens`) padded. `block_mask` narrows the mask, and so does `seen`, an
    array of bool or a Seen made of one. `bias` is added to the logits. uint16 arrays need dtype="bf16". For lse and gradients make
    a Plan, and keep it: its line is what pins the bits. Without sequences, rows or keys o is empty
    or zeros.
    """
    if scale is not None and real("scale", scale) == 0:
        raise Error("argument", "scale 0: expected another number, or None for 1/sqrt(head_dim)")
    _check_axes(cu_q is not None, q=q, k=k, v=v)
    if cu_q is not None and cu_kv is None and len(q) == len(k):
        cu_kv = cu_q
    if q_lens is None and kv_lens is not None:
        q_lens = np.full(len(q), q.shape[1], np.int32)
    if kv_lens is None and q_lens is not None:
        kv_lens = np.full(len(k), k.shape[1], np.int32)
    if seen is not None and not isinstance(seen, Seen):
        seen = Seen(seen)
    dtype = dtype if dtype is not None else dtype_of(q)
    problem = Problem(
        **_measure(q, k, v, cu_q, cu_kv, q_lens is not None),
        dtype=dtype,
        mask=mask_of(causal),
        window=window,
        scale=0.0 if scale is None else scale,
        softcap=softcap,
        alibi=slopes is not None,
        dropout=dropout_of(dropout_p),
        blocks=BlockLimits() if block_mask is None else block_mask.limits,
        seen=SeenLimits() if seen is None else seen.limits,
        bias=Bias() if bias is None else _bias_of(bias, dtype),
    )
    o, _ = forward(
        _plan_of(problem, backend), q, k, v, cu_q=cu_q, cu_kv=cu_kv, q_lens=q_lens, kv_lens=kv_lens,
        sequence_ids=sequence_ids, slopes=slopes, sink=sink, block_mask=block_mask, seen=seen,
        bias=bias, seed=seed, offset=offset, threads=threads,
    )  # fmt: skip
    return o


def _bias_of(bias: Array, dtype: DType) -> Bias:
    sequences, heads = matrices("bias", bias).shape[:2]
    own: DType = "f32" if bias.dtype == np.float32 else dtype
    return Bias(on=True, per_sequence=sequences > 1, per_head=heads > 1, dtype=own)


@functools.lru_cache(maxsize=16)
def _plan_of(problem: Problem, backend: Backend) -> Plan:
    return Plan(problem, backend=backend)


def _check_axes(packed: bool, **arrays: Any) -> None:
    for name, array in arrays.items():
        check_kind(name, array)
        if array.ndim != (3 if packed else 4):
            axes = "(row, head, dim) with cu_q" if packed else "(batch, row, head, dim)"
            raise Error("shape", f"{name}.shape {array.shape}: expected {axes}")


def _measure(
    q: Array, k: Array, v: Array, cu_q: Numbers, cu_kv: Numbers, padded: bool
) -> dict[str, Any]:
    """The fields of a problem that arrays and lengths decide."""
    fields = dict(
        heads=q.shape[-2], kv_heads=k.shape[-2], head_dim=q.shape[-1], v_head_dim=v.shape[-1]
    )
    if cu_q is None:
        layout = "padded" if padded else "dense"
        keys = k.shape[1] or NO_KEYS
        return dict(fields, layout=layout, batch=len(q), q_len=q.shape[1], kv_len=keys)
    if cu_kv is None:
        raise Error("argument", "cu_kv None: expected an array with cu_q, for k has other rows")
    return dict(
        fields,
        layout="packed",
        batch=np.size(cu_q) - 1,  # type: ignore[arg-type, unused-ignore]
        total_q=len(q),
        total_kv=len(k) or NO_KEYS,
        q_len=_longest("cu_q", cu_q),
        kv_len=_longest("cu_kv", cu_kv),
    )


def _longest(name: str, ends: Any) -> int:
    if np.size(ends) == 0:
        raise Error("shape", f"{name} without a number: expected batch + 1 ends, from 0")
    lengths = np.diff(numbers(name, ends, np.size(ends), np.int64))
    return max(1, int(lengths.max())) if lengths.size else 1
