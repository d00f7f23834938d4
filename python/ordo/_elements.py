"""What is hashed: arrays and tensors of numbers in memory. Anything else is refused by name.

np.asarray() makes an array of almost everything, and the bytes of an array of objects are
addresses, which differ in every run.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._arrays import Array, check_kind
from ._library import Error


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor of PyTorch, which need not be imported for that."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(x, kind)


def array_of(name: str, given: Any) -> Array:
    """`given`, an array, a number or nested sequences of numbers, as an array."""
    if isinstance(given, np.ma.MaskedArray):
        check_kind(name, given)
    said = f"{name} {type(given).__name__}"
    expected = "expected an array or tensor of numbers"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; arrays of another device
        raise Error("argument", f"{said}: {expected}") from None
    kind = array.dtype
    if isinstance(given, np.ndarray):
        said = f"{name}.dtype {kind}"
    # Types of ml_dtypes are "V" as well, but of their own class.
    if kind.kind not in "biufc" and (kind.kind != "V" or kind.type is np.void):
        raise Error("argument", f"{said}: {expected}")
    if kind.char in "gG":
        raise Error("argument", f"{said}: expected numbers without padding bytes; float64 has none")
    return array


def tensor_of(name: str, given: Any, sparse: bool = False) -> Any:
    """The tensor `given` without its graph and without conjugation or sign left to be done."""
    torch = sys.modules["torch"]
    if given.is_nested:
        raise Error("unsupported", f"{name} nested tensor: expected a dense one")
    if given.layout is not torch.strided and not (sparse and given.layout is torch.sparse_coo):
        raise Error(
            "unsupported",
            f"{name}.layout {given.layout}: expected torch.strided; {name}.to_dense() has that",
        )
    if given.is_quantized:
        raise Error(
            "unsupported",
            f"{name}.dtype {given.dtype}: expected one that is not quantized; "
            f"{name}.int_repr() has the integers",
        )
    if given.device.type == "meta":
        raise Error("argument", f"{name}.device meta: expected a device with memory")
    made = given.detach()
    made = made.resolve_conj() if made.is_conj() else made
    return made.resolve_neg() if made.is_neg() else made


def array_of_tensor(name: str, given: Any) -> Array:
    """The elements of a tensor, or their bits as integers where NumPy has no such type."""
    tensor = tensor_of(name, given).cpu()
    torch = sys.modules["torch"]
    try:
        try:
            made: Array = tensor.numpy()
        except TypeError:
            bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
            made = tensor.view(bits).numpy()
    except RuntimeError as error:  # a subclass, or inside vmap
        raise Error(
            "unsupported",
            f"{name} {type(given).__name__}: expected a tensor that NumPy can read: {error}",
        ) from None
    return made
