"""Block masks of FlexAttention that come again, converted once.

Whether a mask is still what was converted can be seen as long as its rule is a function of numbers,
tensors and other such functions. Tensors on the CPU are compared byte by byte; those on a device
count the writes to them. A rule that reaches anything else (objects, modules other than PyTorch's,
names looked up when it runs) is converted in every call.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._blocks import BlockMask
from .._library import Error

_LISTS = "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"
_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
_MODULES = ("torch", "math", "operator")
_LARGEST = 1 << 20  # elements of a tensor on the CPU that are compared
_BUILTINS = {"abs", "all", "any", "bool", "float", "int", "len", "max", "min", "range", "sum", "tuple"}


class _Unknown(Exception):
    """The mask depends on something whose changes cannot be seen."""


class Flex(NamedTuple):
    """A mask of FlexAttention as ordo's, whose lists all sequences or heads may share."""

    mask: BlockMask
    differs_by_b: bool  # a rule of shared lists that is not the same for all
    differs_by_h: bool


_converted: dict[int, tuple[Any, Any, Flex]] = {}  # by id: the mask, its state, what it became


def converted(
    mask: Any, counts: tuple[int | None, int], convert: Callable[[Any], Flex]
) -> BlockMask:
    """convert(mask), or what it returned when the mask was last converted, if nothing has changed.
    Error if that does not hold for so many sequences (None: unknown) and heads."""
    flex = _flex_of(mask, convert)
    for name, count, differs in zip("bh", counts, flex[1:]):
        if differs and count != 1:
            raise Error(
                "unsupported",
                f"block_mask.mask_mod: depends on {name}, and the lists of blocks are those of "
                f"{name} 0: expected create_block_mask() with {name.upper()}, not None",
            )
    return flex.mask


def _flex_of(mask: Any, convert: Callable[[Any], Flex]) -> Flex:
    try:
        state = list(_state(mask))
    except (_Unknown, AttributeError):
        return convert(mask)
    known = _converted.get(id(mask))
    if known is not None and known[0]() is mask and _same(known[1], state):
        return known[2]
    made, key = convert(mask), id(mask)
    held = weakref.ref(mask, lambda _: _converted.pop(key, None))
    _converted[key] = held, [(_weak(x), y) for x, y in state], made
    return made


def _weak(x: Any) -> Any:
    return weakref.ref(x) if isinstance(x, (Tensor, types.FunctionType)) else lambda: x


def _same(kept: Any, state: Any) -> bool:
    return len(kept) == len(state) and all(
        (x() is y or (type(y) in _PLAIN and type(x()) is type(y) and x() == y)) and count == now
        for (x, count), (y, now) in zip(kept, state)
    )


# Each part of a state: (an object, which must stay the same one or, of plain values, equal; what a
# write to it changes).
_State = Iterator[tuple[Any, Any]]


def _state(mask: Any) -> _State:
    for name in _LISTS:
        yield from _of(getattr(mask, name), ())
    yield from _of(tuple(mask.BLOCK_SIZE), ())
    yield from _of(tuple(mask.seq_lengths), ())
    yield from _of(mask.mask_mod, ())


def _of(x: Any, inside: tuple[Any, ...]) -> _State:
    """`inside`: the functions that are being looked at."""
    if type(x) in _PLAIN or _is_builtin(x):
        yield x, None
    elif type(x) is Tensor and x.layout is torch.strided and not x.is_inference():
        yield x, (x._version, x.data_ptr(), x.shape, x.stride(), _bytes(x))
    elif type(x) is tuple:
        yield len(x), None
        for part in x:
            yield from _of(part, inside)
    elif isinstance(x, types.ModuleType) and x.__name__.split(".")[0] in _MODULES:
        yield None, None
    elif isinstance(x, types.FunctionType):
        yield from () if x in inside else _of_function(x, (*inside, x))
    else:
        raise _Unknown


def _is_builtin(x: Any) -> bool:
    """A function of PyTorch's or Python's, and no method of an object."""
    if not isinstance(x, types.BuiltinFunctionType):
        return False
    return x.__self__ is None or isinstance(x.__self__, (type, types.ModuleType))


def _bytes(x: Tensor) -> bytes:
    """Of a tensor on the CPU, which others may write to unseen, by NumPy."""
    if not x.is_cpu:
        return b""
    if x.numel() > _LARGEST:
        raise _Unknown
    return bytes(x.detach().reshape(-1).view(torch.uint8).numpy())


def _of_function(function: Any, inside: tuple[Any, ...]) -> _State:
    names = _names(function.__code__)
    if names is None or function.__dict__:
        raise _Unknown
    yield function, id(function.__code__)
    try:
        held = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # an empty cell
        raise _Unknown from None
    held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    held += [function.__globals__[name] for name in names if name in function.__globals__]
    for x in held:
        yield from _of(x, inside)


@functools.lru_cache(maxsize=256)
def _names(code: types.CodeType) -> tuple[str, ...] | None:
    """Names that the code looks up, attributes among them; None if it may reach more."""
    names = list(code.co_names)
    operations = {x.opname for x in dis.get_instructions(code)}
    if any(x.startswith(("IMPORT", "STORE_GLOBAL", "STORE_DEREF")) for x in operations):
        return None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more = _names(inner)
            if more is None:
                return None
            names += more
    if any(hasattr(builtins, name) and name not in _BUILTINS for name in names):
        return None
    return tuple(dict.fromkeys(names))
