"""NumPy arrays as C sees them: checked, then handed over without a copy where that is possible.

The library knows addresses and strides but not where an array ends, so shapes and types are
checked here, and nothing reaches the library that could make it read past an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._library import Error
from ._structs import ordo_tensor
from ._words import DType

Array = npt.NDArray[Any]

# bf16 has no type in NumPy: uint16 holds its bits; ml_dtypes.bfloat16 joins when first seen.
DTYPES: dict[str, set[Any]] = {
    "f32": {np.dtype(np.float32)},
    "f16": {np.dtype(np.float16)},
    "bf16": {np.dtype(np.uint16)},
}
_EXPECTED = {"f32": "float32", "f16": "float16", "bf16": "bfloat16 (ml_dtypes) or uint16"}


def dtype_of(array: Array) -> DType:
    """ordo's word for the type of an array; uint16 has none, for it could be anything."""
    words: dict[str, DType] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    if array.dtype.name in words and array.dtype.isnative:
        return words[array.dtype.name]
    hint = '; dtype="bf16" if these are its bits' if array.dtype == np.uint16 else ""
    raise Error("argument", f"dtype {array.dtype}: expected float32, float16 or bfloat16{hint}")


def _check_dtype(name: str, array: Array, dtype: str) -> None:
    if dtype == "bf16" and array.dtype.name == "bfloat16" and array.dtype.isnative:
        DTYPES[dtype].add(array.dtype)
        return
    raise Error("argument", f"{name}.dtype {array.dtype}: expected {_EXPECTED[dtype]}")


def check_kind(name: str, array: Any) -> None:
    """Raise Error unless `array` is a NumPy array without a mask of its own."""
    if not isinstance(array, np.ndarray):
        raise Error("argument", f"{name} {type(array).__name__}: expected a numpy array")
    if isinstance(array, np.ma.MaskedArray):
        raise Error(
            "argument",
            f"{name} MaskedArray: expected a numpy array without a mask, which would be ignored; "
            f"{name}.filled(value) makes one",
        )


def _from_sequence(name: str, given: Any) -> Array:
    """`given`, an array or a sequence of numbers, as an array."""
    if isinstance(given, np.ma.MaskedArray):
        check_kind(name, given)
    try:
        return np.asarray(given)
    except ValueError:
        raise Error("argument", f"{name} {given!r}: expected an array of numbers") from None


def _check(name: str, array: Any, shape: tuple[int, ...], output: bool) -> None:
    check_kind(name, array)
    if array.shape != shape:
        raise Error("shape", f"{name}.shape {array.shape}: expected {shape}")
    if output and not array.flags.writeable:
        raise Error("argument", f"{name} read-only: expected an array that can be written")


def address(array: Array) -> int:
    place: int = array.ctypes.data
    return place


def set_tensor(
    tensor: ordo_tensor,
    name: str,
    array: Any,
    shape: tuple[int, ...],
    dtype: str,
    output: bool = False,
) -> Array:
    """Point `tensor` at `array`, indexed (batch, row, head, dim) or, packed, (row, head, dim).

    Returns the array that must outlive the call: `array`, or a copy of an input whose strides
    are negative, which the library does not take.
    """
    _check(name, array, shape, output)
    if array.dtype not in DTYPES[dtype]:
        _check_dtype(name, array, dtype)
    made: Array = array
    if not array.flags.c_contiguous:  # else strides of 0 say so
        strides = _strides(name, array)
        if min(strides) < 0 and not output:
            made = np.ascontiguousarray(array)
        else:
            tensor.stride = strides if len(strides) == 4 else (0, *strides)
    tensor.data = address(made)
    return made


def _strides(name: str, array: Array) -> tuple[int, ...]:
    """Strides in elements; 0 where there is but one."""
    width, counts = array.itemsize, array.shape
    strides = [0 if count == 1 else x for count, x in zip(counts, array.strides)]
    if counts[-1] == 1:  # NumPy gives the axis of a single element any stride
        strides[-1] = width
    if strides[-1] != width:
        raise Error(
            "align",
            f"{name}.strides {array.strides}: expected {width}, the size of an element, last; "
            f"numpy.ascontiguousarray({name}) copies",
        )
    if any(x % width for x in strides):
        raise Error("align", f"{name}.strides {array.strides}: expected multiples of {width}")
    return tuple(x // width for x in strides)


def flat_f32(name: str, array: Any, shape: tuple[int, ...], output: bool = False) -> Array:
    """lse or dlse, float32 and contiguous: the array given, or a copy of an input with strides."""
    _check(name, array, shape, output)
    if array.dtype != np.float32:
        raise Error("argument", f"{name}.dtype {array.dtype}: expected float32")
    if output and not array.flags.c_contiguous:
        raise Error("align", f"{name}.strides {array.strides}: expected a contiguous array")
    return np.ascontiguousarray(array)


def numbers(name: str, given: Any, count: int, dtype: Any) -> Array:
    """Lengths or ids: any sequence of `count` integers, as a contiguous array of `dtype`."""
    array = _from_sequence(name, given)
    if array.shape != (count,):
        raise Error("shape", f"{name}.shape {array.shape}: expected ({count},)")
    if array.dtype == dtype or count == 0:  # NumPy makes float64 of an empty list
        return np.ascontiguousarray(array, dtype)
    if array.dtype.kind not in "iu":
        raise Error("argument", f"{name}.dtype {array.dtype}: expected integers")
    made = array.astype(dtype)
    if not np.array_equal(made, array) or ((made < 0) != (array < 0)).any():
        raise Error("argument", f"{name} {array}: expected numbers that fit {np.dtype(dtype)}")
    return made


def _reals(name: str, given: Any) -> Array:
    array = _from_sequence(name, given)
    if array.dtype.kind in "cOSUMm":
        raise Error("argument", f"{name}.dtype {array.dtype}: expected real numbers")
    return np.ascontiguousarray(array, np.float32)


def sink_of(given: Any, heads: int) -> Array:
    """One logit a head."""
    array = _reals("sink", given)
    if array.shape != (heads,):
        raise Error("shape", f"sink.shape {array.shape}: expected ({heads},)")
    return array


def slopes_of(given: Any, batch: int, heads: int) -> tuple[Array, int]:
    """ALiBi's slopes, one a head, and how far those of the next sequence are."""
    array = _reals("slopes", given)
    if array.shape == (heads,):
        return array, 0
    if array.shape == (batch, heads):
        return array, heads
    raise Error("shape", f"slopes.shape {array.shape}: expected ({heads},) or ({batch}, {heads})")


def matrices(name: str, array: Any) -> Array:
    """(sequences or 1, heads or 1, rows, columns) of an array of that shape or its last axes; an
    axis that is broadcast has one element."""
    check_kind(name, array)
    if not 2 <= array.ndim <= 4:
        axes = "(batch or 1, heads or 1, q_len, kv_len)"
        raise Error("shape", f"{name}.shape {array.shape}: expected {axes}")
    whole: Array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    if whole.strides[0] == 0:
        whole = whole[:1]
    if whole.strides[1] == 0:
        whole = whole[:, :1]
    return whole
