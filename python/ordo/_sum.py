"""Sums of arrays by one fixed binary tree (ordo/sum.h)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_void_p
from typing import Any, TypeVar

import numpy as np

from . import _structs as s
from ._arrays import DTYPES, Array, address, check_kind, dtype_of, flat_f32
from ._convert import integer
from ._library import Error, lib
from ._words import TABLES, DType

MOST = 256  # inputs of one call, ORDO_SUM_MOST

T = TypeVar("T")


def by_blocks(inputs: Sequence[T], add: Callable[[Sequence[T]], T]) -> Sequence[T]:
    """At most MOST inputs with the same sum: aligned blocks of the others are added first."""
    while len(inputs) > MOST:
        inputs = [add(inputs[x : x + MOST]) for x in range(0, len(inputs), MOST)]
    return inputs


def sum_call(dtype: str, elements: int, inputs: Sequence[int], out: int, threads: int) -> Any:
    """An ordo_sum of arrays at these addresses."""
    call = s.sized(s.ordo_sum)
    call.dtype, call.threads = TABLES["dtype"].number("dtype", dtype), threads
    call.count, call.elements = len(inputs), elements
    call.inputs = (c_void_p * len(inputs))(*inputs)
    call.out = out
    return call


def tree_sum(
    inputs: Sequence[Array],
    *,
    out: Array | None = None,
    dtype: DType | None = None,
    threads: int = 0,
) -> Array:
    """The float32 sum of arrays of one shape and type, by a binary tree over their number.

    float32, float16 or bfloat16 (uint16 with dtype="bf16"). The tree adds neighbours, then
    neighbouring sums: the sum of an aligned block of 2^l inputs is a node of every larger tree, so
    the same bits come out however it is divided into blocks. `out` is overwritten if given; it may be
    one of the inputs.
    """
    try:
        arrays = list(inputs)
    except TypeError:
        said = f"inputs {type(inputs).__name__}"
        raise Error("argument", f"{said}: expected a sequence of arrays") from None
    if dtype is not None:
        TABLES["dtype"].number("dtype", dtype)
    if not arrays:
        raise Error("argument", "inputs []: expected at least one array")
    check_kind("inputs[0]", arrays[0])
    kind, shape = dtype or dtype_of(arrays[0]), arrays[0].shape
    if dtype == "bf16" and arrays[0].dtype.name == "bfloat16":
        dtype = None  # no further check: it is a type of ml_dtypes, not bits in uint16
    for index, array in enumerate(arrays):
        name = f"inputs[{index}]"
        check_kind(name, array)
        if array.shape != shape:
            raise Error("shape", f"{name}.shape {array.shape}: expected {shape}, as inputs[0]")
        if array.dtype != arrays[0].dtype or (dtype and array.dtype not in DTYPES[dtype]):
            expected = dtype if dtype and index == 0 else f"{arrays[0].dtype}, as inputs[0]"
            raise Error("argument", f"{name}.dtype {array.dtype}: expected {expected}")
    out = np.empty(shape, np.float32) if out is None else flat_f32("out", out, shape, output=True)
    count = integer("threads", threads, c_int)

    def add(some: Sequence[Array], to: Array) -> Array:
        held = [np.ascontiguousarray(array) for array in some]
        word = "f32" if some[0].dtype == np.float32 else kind  # sums of blocks are float32
        call = sum_call(word, to.size, [address(x) for x in held], address(to), count)
        lib.ordo_sum_tree(byref(call))
        return to

    return add(by_blocks(arrays, lambda some: add(some, np.empty(shape, np.float32))), out)
