"""A device as numbers: workers, memory levels, rates (ordo/machine.h, ordo/device.h)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_double, c_int, c_void_p
from dataclasses import dataclass, fields
from typing import Any, Literal

from . import _structs as s
from ._convert import integer, read, text
from ._library import Error, lib
from ._words import TABLES, Backend


@dataclass(frozen=True)
class MachineKey:
    """One entry of the table of keys that a machine file may hold."""

    name: str
    unit: str
    kind: str  # "physical", "measured" or "fitted"
    required_by: str  # "cpu", "cuda", "all" or "none"
    about: str


class Machine:
    """A machine by built-in name ("h200", "host"; see `Machine.builtin()`) or by path."""

    def __init__(self, name_or_path: str | os.PathLike[str]) -> None:
        self._handle = c_void_p()
        lib.ordo_machine_create(byref(self._handle), text("machine", os.fspath(name_or_path)))

    @classmethod
    def parse(cls, lines: str, label: str = "text") -> Machine:
        """The same from the text of a machine file; `label` stands for its name in messages."""
        made = cls.__new__(cls)
        made._handle = c_void_p()
        data = lines.encode()
        lib.ordo_machine_parse(byref(made._handle), data, len(data), text("label", label))
        return made

    @classmethod
    def of_device(cls, index: int = 0) -> Machine:
        """A CUDA device as a machine to plan for, with its own number of workers."""
        made = cls.__new__(cls)
        made._handle = c_void_p()
        lib.ordo_device_machine(integer("index", index, c_int), byref(made._handle))
        return made

    @staticmethod
    def builtin() -> list[str]:
        """Names of the built-in machines, "host" last."""
        names: list[str] = []
        while (name := lib.ordo_machine_builtin(len(names))) is not None:
            names.append(name.decode())
        return names

    @staticmethod
    def key_table() -> list[MachineKey]:
        """What a machine file may say."""
        at = lib.ordo_machine_key_at
        return [read(MachineKey, at(i).contents) for i in range(lib.ordo_machine_key_count())]

    def __del__(self, _destroy: Any = lib.ordo_machine_destroy) -> None:
        _destroy(getattr(self, "_handle", None))

    def __repr__(self) -> str:
        return f"Machine({self.name!r})"

    @property
    def name(self) -> str:
        name: bytes = lib.ordo_machine_name(self._handle)
        return name.decode()

    @property
    def title(self) -> str:
        title: bytes = lib.ordo_machine_title(self._handle)
        return title.decode()

    @property
    def family(self) -> Literal["cpu", "cuda", "npu"]:
        names: tuple[Literal["cpu"], Literal["cuda"], Literal["npu"]] = ("cpu", "cuda", "npu")
        return names[lib.ordo_machine_family_of(self._handle)]

    def __getitem__(self, key: str) -> float:
        """Value of a key; KeyError if this machine does not give it, Error if none can."""
        value = c_double()
        try:
            lib.ordo_machine_get(self._handle, text("key", key), byref(value))
        except Error as error:
            if error.status == "unsupported":
                raise KeyError(key) from error
            raise
        return value.value

    def __iter__(self) -> Iterator[str]:
        """The keys this machine gives."""
        for key in self.key_table():
            try:
                self[key.name]
            except KeyError:
                continue
            yield key.name

    def source(self, key: str) -> str | None:
        """Where a value comes from, as the file says it; None if not given."""
        source: bytes | None = lib.ordo_machine_source(self._handle, text("key", key))
        return None if source is None else source.decode()


# ---- what can execute here ----


def backend_available(backend: Backend) -> bool:
    """Whether a backend can execute here; `backend_why_not()` says why not."""
    available: bool = lib.ordo_backend_available(_number(backend), None)
    return available


def backend_why_not(backend: Backend) -> str:
    """Why a backend cannot execute here; "" if it can."""
    why = c_char_p()
    lib.ordo_backend_available(_number(backend), byref(why))
    return (why.value or b"").decode()


@dataclass(frozen=True)
class BackendLimits:
    """What the passes of a backend accept; include/ordo/attention.h describes each field."""

    dtypes: tuple[str, ...]
    unequal_head_dims: bool
    makes_fa2_bits: bool
    head_dim_max: int
    head_dim_multiple: int
    tensor_align: int
    made_bits_head_dim_max: int


def backend_limits(backend: Backend) -> BackendLimits:
    """What the passes of a backend accept, whether or not it is available."""
    limits = s.sized(s.ordo_backend_limits)
    lib.ordo_backend_query(_number(backend), byref(limits))
    words = TABLES["dtype"].words
    dtypes = tuple(word for at, word in enumerate(words) if limits.dtypes >> at & 1)
    numbers = {x.name: getattr(limits, x.name) for x in fields(BackendLimits)[1:]}
    return BackendLimits(dtypes, **numbers)


def _number(backend: str) -> int:
    return TABLES["backend"].number("backend", backend)


@dataclass(frozen=True)
class Device:
    """One device of the CUDA module."""

    name: str
    major: int  # compute capability
    minor: int
    workers: int  # multiprocessors
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int
    clock_ghz: float
    driver: int  # as CUDA numbers them: 13000 = 13.0
    runtime: int


def devices() -> list[Device]:
    """The CUDA devices. Error "unsupported" without the CUDA module, "device" without a driver."""
    count = c_int()
    lib.ordo_device_count(byref(count), None)
    found: list[Device] = []
    for index in range(count.value):
        device = s.ordo_device()
        lib.ordo_device_query(index, byref(device))
        found.append(read(Device, device))
    return found
