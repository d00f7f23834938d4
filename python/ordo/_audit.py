"""Compare what a GPU computed with what it should have computed: `ordo audit` as a function."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from ctypes import c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import _pieces
from ._convert import integer
from ._library import Error

_STATUS = {2: "argument", 3: "unsupported", 4: "file"}  # by the command's exit status
_PREFIX = "ordo audit: "


@dataclass(frozen=True)
class AuditDifference:
    """The first element that differs."""

    file: str  # path of the record
    unit: str  # for people
    tensor: str  # "o", "lse", "dq", "dk", "dv" or "dsink"
    sequence: int
    row: int
    head: int
    column: int
    found: float | None  # None: not finite
    expected: float | None
    found_bits: int  # 16 of a tensor, 32 of lse and dsink
    expected_bits: int
    elements: int  # how many differ in the unit
    damaged: tuple[str, ...]  # tensors of the file that are not what the recorder hashed


@dataclass(frozen=True)
class Audit:
    """What audit() found. True if every bit that was compared is equal."""

    equal: bool
    key: str  # the numeric key of the pass; of a folder's files each once
    units: int
    checked: int
    different: int  # checked units that differ
    unknown: int  # checked units without an answer: beside a NaN or infinity in an input
    first: AuditDifference | None
    seconds: float

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        units = f"{self.checked} of {self.units} units of {self.key}"
        if self.first is None:
            return f"equal: every bit of {units}"
        x = self.first
        place = f"{x.tensor}, sequence {x.sequence}, row {x.row}, head {x.head}, column {x.column}"
        return (
            f"DIFFERENT: {self.different} of {units}; the first is in {x.file}, {x.unit}: {place}: "
            f"found {x.found_bits:#x}, expected {x.expected_bits:#x}"
            + (f"; the file has changed since it was recorded: {', '.join(x.damaged)}" if x.damaged else "")
        )


def audit(
    record: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    sample: int = 0,
    seed: int = 0,
    part: Literal["forward", "backward", "both"] = "both",
    threads: int = 0,
) -> Audit:
    """Recompute on the CPU what the pass in `record` computed on a GPU, and compare every bit.

    `record` is the path of a file that `ordo run --save` wrote, or paths of .safetensors and .npy
    files that make one, or a folder: then each of its .safetensors files, as ordo.Recorder saves
    them. Of each file `sample` units are drawn at random with `seed`; 0 takes all.

    Raises Error: "file" for a file that cannot be read or does not fit its plan, "unsupported" for
    a pass that cannot be audited, by name.
    """
    files = [_path(x) for x in (record if isinstance(record, list | tuple) else [record])]
    command = [_command(), "audit", "--json", "--pass", str(part)]
    for name, value in (("sample", sample), ("threads", threads)):
        if integer(name, value):
            command.append(f"--{name}={integer(name, value)}")
    if integer("seed", seed, c_uint64) or sample:
        command.append(f"--seed={integer('seed', seed, c_uint64)}")
    if len(files) != 1 or not os.path.isdir(files[0]):
        return _run(command, files)
    inside = sorted(str(x) for x in Path(files[0]).glob("*.safetensors"))
    if not inside:
        raise Error("file", f"{files[0]}: expected a folder with .safetensors files")
    return _together([_run(command, [x]) for x in inside])


def _run(command: list[str], files: list[str]) -> Audit:
    """The audit of one record; a path never looks like an option."""
    command = [*command, *map(os.path.abspath, files)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        said = done.stderr.decode(errors="replace").splitlines()
        why = [x.removeprefix(_PREFIX) for x in said if x.startswith(_PREFIX)]
        status = _STATUS.get(done.returncode, "internal")
        raise Error(status, why[-1] if why else f"ordo audit ended with {done.returncode}")
    return _read(json.loads(done.stdout), files[0])


def _together(found: list[Audit]) -> Audit:
    """The audits of several records as one."""
    return Audit(
        equal=all(found),
        key=", ".join(dict.fromkeys(x.key for x in found)),
        units=sum(x.units for x in found),
        checked=sum(x.checked for x in found),
        different=sum(x.different for x in found),
        unknown=sum(x.unknown for x in found),
        first=next((x.first for x in found if x.first), None),
        seconds=sum(x.seconds for x in found),
    )


def _path(given: Any) -> str:
    try:
        path = os.fsdecode(given)
    except TypeError:
        path = "\0"
    if "\0" in path:
        raise Error("argument", f"record {given!r}: expected paths of .safetensors or .npy files")
    return path


def _read(found: dict[str, Any], file: str) -> Audit:
    passes = found["forward"], found["backward"]
    return Audit(
        equal=found["equal"],
        key=found["key"],
        units=sum(x["units"] for x in passes),
        checked=sum(x["checked"] for x in passes),
        different=found["different"],
        unknown=found["unknown"],
        first=_difference(found["first"], file) if found["first"] else None,
        seconds=found["seconds"],
    )


def _difference(found: dict[str, Any], file: str) -> AuditDifference:
    return AuditDifference(file=file, damaged=tuple(_damaged(file)), **found)


def _damaged(file: str) -> list[str]:
    """Names of the tensors whose bytes do not have the digests that the file states."""
    if not file.endswith(".safetensors"):
        return []
    data = Path(file).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    texts = header.get("__metadata__", {}).get("ordo.digests", "").split()
    pairs = [text.partition("=") for text in texts]
    stated = {name: digest for name, _, digest in pairs if name in header}
    spans = [[start + x for x in header[name]["data_offsets"]] for name in stated]
    made = _pieces.of_arrays([np.frombuffer(data[a:b], np.uint8) for a, b in spans])
    return [name for name, x in zip(stated, made.tolist()) if stated[name] != f"{x:016x}"]


def _command() -> str:
    """The command: in this folder (a wheel), in the build tree of a clone, or on the PATH."""
    here = Path(__file__).resolve().parent
    places = [here / "ordo", here.parents[1] / "build" / "bin" / "ordo"]
    for place in places:
        if os.access(place, os.X_OK) and place.is_file():
            return str(place)
    found = shutil.which("ordo")
    if found is None:
        looked = ", ".join(str(x) for x in places)
        raise Error("file", f"no command ordo: not at {looked}, nor on the PATH")
    return found
