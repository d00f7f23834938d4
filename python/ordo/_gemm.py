"""Matrix products whose rows do not depend on the batch (ordo/gemm.h), on NumPy arrays."""

from __future__ import annotations

from ctypes import byref, c_int
from typing import Any

import numpy as np

from . import _structs as s
from ._arrays import DTYPES, Array, address, check_kind, dtype_of
from ._convert import integer
from ._library import HANDLE, Error, lib
from ._words import TABLES, Backend, DType


def gemm(
    a: Array,
    b: Array,
    *,
    bias: Array | None = None,
    out: Array | None = None,
    add: bool = False,
    wide: bool = False,
    sections: int = 1,
    dtype: DType | None = None,
    backend: Backend = "cpu",
    threads: int = 0,
) -> Array:
    """a b, plus `bias` in every row: the bits of a row do not depend on the others.

    a is (m, k) and b (k, n), of one type: float32 (backend cpu), float16 or bfloat16 (uint16 with
    dtype="bf16"). Rows or columns of each are contiguous, so that x w.T needs no copy. The result has
    the type of a, or float32 if `wide`; `out` is written if given, and with `add`, which is wide,
    added to. `sections` divides k into 2, 4 or 8 chains and a tree over them (docs/guide/linear.md).
    Backend emulator gives the bits of an H200.
    """
    for name, x in (("a", a), ("b", b)):
        check_kind(name, x)
        if x.ndim != 2:
            raise Error("shape", f"{name}.shape {x.shape}: expected two axes")
    word = dtype or dtype_of(a)
    TABLES["dtype"].number("dtype", word)
    if b.shape[0] != a.shape[1]:
        raise Error("shape", f"b.shape {b.shape}: expected ({a.shape[1]}, n), as a has columns")
    for name, x in (("a", a), ("b", b)):
        if x.dtype not in DTYPES[word] and x.dtype.name != {"bf16": "bfloat16"}.get(word):
            raise Error("argument", f"{name}.dtype {x.dtype}: expected {word}")
    m, n = a.shape[0], b.shape[1]
    kind = np.dtype(np.float32) if wide or add else a.dtype
    if add and out is None:
        raise Error("argument", "out None: expected an array to add to")
    out = np.empty((m, n), kind) if out is None else out
    _check("out", out, (m, n), kind)
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise Error("align", f"out.strides {out.strides}: expected a contiguous array to write")

    problem, call = s.sized(s.ordo_gemm_problem), s.sized(s.ordo_gemm_call)
    problem.m, problem.n, problem.k = m, n, a.shape[1]
    problem.dtype = TABLES["dtype"].number("dtype", word)
    problem.c_dtype = 0 if kind == np.float32 else problem.dtype
    problem.sections = integer("sections", sections, c_int)
    problem.add, problem.bias = add, bias is not None
    call.threads = integer("threads", threads, c_int)
    a, problem.a_transposed = _set(call.a, a)
    b, problem.b_transposed = _set(call.b, b)
    call.c.data = address(out)
    if bias is not None:
        _check("bias", bias, (n,), kind)
        bias = np.ascontiguousarray(bias)
        call.bias = address(bias)
    _run(problem, call, backend)
    return out


def _check(name: str, x: Any, shape: tuple[int, ...], kind: Any) -> None:
    check_kind(name, x)
    if x.shape != shape:
        raise Error("shape", f"{name}.shape {x.shape}: expected {shape}")
    if x.dtype != kind:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected {kind}")


def _set(matrix: Any, x: Array) -> tuple[Array, bool]:
    """Point `matrix` at an array: what must outlive the call, and whether its columns are the rows."""
    for transposed, rows in enumerate((x, x.T)):
        count, length = rows.shape
        step = rows.strides[0] // x.itemsize if count > 1 else length
        if (length <= 1 or rows.strides[1] == x.itemsize) and step >= length and (
            count <= 1 or rows.strides[0] % x.itemsize == 0
        ):  # fmt: skip
            matrix.data, matrix.stride = address(x), step
            return x, bool(transposed)
    return _set(matrix, np.ascontiguousarray(x))


def _run(problem: Any, call: Any, backend: str) -> None:
    if backend not in ("cpu", "emulator"):
        raise Error(
            "unsupported", f"backend {backend}: numpy arrays are in host memory; expected cpu or emulator"
        )
    plan = HANDLE()
    lib.ordo_gemm_plan_create(byref(plan), byref(problem), TABLES["backend"].number("backend", backend))
    try:
        lib.ordo_gemm_run(plan, byref(call))
    finally:
        lib.ordo_gemm_plan_destroy(plan)
