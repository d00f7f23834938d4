"""Between dataclasses and structs, by field name.

ctypes would truncate an integer to the width of its field without a word; here it is refused.
"""

from __future__ import annotations

import operator
from ctypes import c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64
from dataclasses import fields
from typing import Any

from ._library import Error
from ._structs import Struct
from ._words import TABLES

_RANGES = {
    c_int: (-(2**31), 2**31 - 1),
    c_uint32: (0, 2**32 - 1),
    c_int64: (-(2**63), 2**63 - 1),
    c_uint64: (0, 2**64 - 1),
    c_size_t: (0, 2**64 - 1),
}


def integer(name: str, value: Any, kind: Any = c_int64) -> int:
    """`value` as an int that fits C's `kind`."""
    low, high = _RANGES[kind]
    try:
        number = operator.index(value)
    except TypeError:
        raise Error("argument", f"{name} {value!r}: expected an integer") from None
    if not low <= number <= high:
        raise Error("argument", f"{name} {_shown(number)}: expected {low}..{high}")
    return number


def _shown(value: Any) -> str:
    """Not every digit of a large whole number: Python itself refuses more than 4300."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"of {value.bit_length()} bits"
    return str(value)


def real(name: str, value: Any) -> float:
    if isinstance(value, str | bytes | bytearray):  # float() would read its digits
        raise Error("argument", f"{name} {value!r}: expected a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Error("argument", f"{name} {value!r}: expected a number") from None
    except OverflowError:
        said = f"{name} {_shown(value)}"
        raise Error("argument", f"{said}: expected a number that a float holds") from None


def text(name: str, value: Any) -> bytes:
    """`value` as a C string."""
    try:
        encoded: bytes = value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise Error("argument", f"{name} {value!r}: expected a text") from None
    if b"\0" in encoded:
        raise Error("argument", f"{name} {value!r}: expected a text without NUL")
    return encoded


def fill(struct: Any, values: Any, where: str = "") -> None:
    """Set each field of `struct` from the attribute of `values` that has its name."""
    for field, kind in struct._fields_:
        if field == "size" or kind is c_char_p:  # a pointer stays NULL
            continue
        name, value = where + field, getattr(values, field)
        if field in struct._words_:
            value = TABLES[struct._words_[field]].number(name, value)
        elif kind is c_bool:
            value = bool(value)
        elif kind is c_double:
            value = real(name, value)
        elif issubclass(kind, Struct):
            fill(getattr(struct, field), value, name + ".")
            continue
        else:
            value = integer(name, value, kind)
        setattr(struct, field, value)


def read(kind: type[Any], struct: Any, **given: Any) -> Any:
    """The dataclass `kind` with the fields of `struct`; `given` ones stand instead."""
    values = dict(given)
    for field in fields(kind):
        if field.name in values:
            continue
        value = getattr(struct, field.name)
        if field.name in struct._words_:
            value = TABLES[struct._words_[field.name]].word(value)
        elif isinstance(value, bytes):
            value = value.decode()
        values[field.name] = value
    return kind(**values)
