"""Checkpoints that are complete or absent, and that any number of ranks can read.

A checkpoint is a folder step-00000020 with the files of torch.distributed.checkpoint and a
manifest: the settings of the run, and the size and digest of every file. It is written under
another name, synchronised to the disk and renamed, so that a process that is killed at any moment
leaves the checkpoints before it as they were. Other files of the folder are left alone. The digests
find damage; who can write the files can write a manifest that fits them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import re
import shutil
import time
import uuid
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

Named = dict[str, Any]
CHECKPOINT, PENDING = r"step-\d{8}", r"pending-[0-9a-f]{32}"  # complete, and being written
MANIFEST = "manifest.json"
LOCK, PATIENCE = "lock", 10.0  # seconds: a run that was killed may take some to end
MAY_DIFFER = ("torch", "ordo", "processor")  # bits may then be others; the run goes on


class Refused(Exception):
    """A checkpoint that cannot be read or written, or ranks that disagree; says why."""


def together(work: Any) -> Any:
    """The result of work() on rank 0, for every rank; an error there is raised on every rank."""
    answer: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            answer[0] = work()
        except (Refused, OSError, ValueError) as error:
            answer[1] = str(error)
    dist.broadcast_object_list(answer, src=0)
    if answer[1] is not None:
        raise Refused(answer[1])
    return answer[0]


def agree(facts: Named) -> None:
    """Every rank must have the same facts, or every rank raises Refused."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, facts)
    for rank, others in enumerate(gathered):
        for name, value in gathered[0].items():
            if others[name] != value:
                raise Refused(
                    f"ranks disagree: {name} is {others[name]} on rank {rank}, {value} on rank 0"
                )


def folders(folder: Path, pattern: str) -> list[Path]:
    """The folders in it whose whole name has this pattern, in order."""
    return sorted(x for x in folder.glob("*") if re.fullmatch(pattern, x.name) and x.is_dir())


def newest(folder: Path) -> Path | None:
    return max(folders(folder, CHECKPOINT), default=None)


def lock(folder: Path) -> IO[str]:
    """Keep other runs out of the folder until the file is closed, or this process ends."""
    file, end = open(folder / LOCK, "a"), time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError as error:
            if time.monotonic() > end:
                file.close()
                raise Refused(f"--out {folder}: another run is training there") from error
            time.sleep(0.05)


def save(folder: Path, state: Named, settings: Named, step: int, keep: int) -> None:
    """Write a checkpoint from all ranks; then remove all but the last `keep`."""
    final = folder / f"step-{step:08d}"
    state = {**state, "step": torch.tensor(step)}
    pending = folder / together(lambda: f"pending-{uuid.uuid4().hex}")

    def clear() -> None:
        for old in folders(folder, PENDING):  # left by runs that were killed
            shutil.rmtree(old)
        pending.mkdir(parents=True)
        room = sum(x.numel() * x.element_size() for x in state.values())
        with open(pending / "room", "wb") as file:  # a full disk is found before it is written to
            os.posix_fallocate(file.fileno(), 0, room)
        os.unlink(file.name)

    def finish() -> None:
        check_metadata(pending)
        sizes = {x.name: [x.stat().st_size, digest(x)] for x in sorted(pending.iterdir())}
        with open(pending / MANIFEST, "w") as file:
            json.dump({"step": step, "settings": settings, "files": sizes}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        sync(pending)
        os.rename(pending, final)
        sync(folder)
        for old in folders(folder, CHECKPOINT)[:-keep]:
            old.rename(pending)  # a half removed checkpoint must not look like a whole one
            shutil.rmtree(pending)

    try:
        together(clear)
        dcp.save(state, storage_writer=dcp.FileSystemWriter(pending, sync_files=True))
        together(finish)
    except (Refused, CheckpointException) as error:
        if dist.get_rank() == 0:
            shutil.rmtree(pending, ignore_errors=True)
        last = newest(folder)
        raise Refused(
            f"checkpoint {final} could not be written: {reason(error)}; "
            f"the last good one is {last.name if last else 'none'}"
        ) from error


def load(path: Path, state: Named, settings: Named) -> tuple[int, list[str]]:
    """Read a checkpoint of equal settings into the tensors of `state`: (step, what differs)."""

    def check() -> tuple[int, list[str]]:
        notes = []
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            step, written, files = (manifest[name] for name in ("step", "settings", "files"))
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"checkpoint {path}: {MANIFEST} is damaged: {error}") from error
        if path.name != f"step-{step:08d}":
            raise Refused(f"checkpoint {path}: its manifest says step {step}")
        for name, value in settings.items():
            if written.get(name) != value:
                notes.append(f"{name} is {written.get(name)} there and {value} here")
                if name not in MAY_DIFFER:
                    raise Refused(f"checkpoint {path}: {notes[-1]}")
        for name, (size, expected) in files.items():
            file = path / name
            found = file.stat().st_size if file.exists() else None
            if found != size:
                raise Refused(f"checkpoint {path}: {name} has {found} bytes, expected {size}")
            if digest(file) != expected:
                raise Refused(f"checkpoint {path}: {name} is damaged: expected digest {expected}")
        check_metadata(path)
        return step, notes

    step, notes = together(check)
    inside = torch.tensor(-1)  # the step that the tensors were written with
    try:
        dcp.load({**state, "step": inside}, storage_reader=dcp.FileSystemReader(path))
    except CheckpointException as error:
        raise Refused(f"checkpoint {path}: {reason(error)}") from error
    if inside != step:
        raise Refused(f"checkpoint {path}: its tensors are those of step {inside}")
    return step, notes


class Metadata(pickle.Unpickler):
    """Reads what torch.distributed.checkpoint writes about tensors, and runs nothing else.

    PyTorch reads tensors with its safe loader, but this file, and objects other than tensors, as any
    pickle, which can run any code.
    """

    NAMES = ("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata",
             "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING", "_StorageInfo")  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        known = module.startswith("torch.distributed.checkpoint.") and name in self.NAMES
        known |= module.partition(".")[0] == "pathlib" and name == "PosixPath"
        known |= (module, name) in (("torch", "Size"), ("torch.serialization", "_get_layout"))
        known |= module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not known:
            raise Refused(f"it names {module}.{name}, which is no part of a checkpoint")
        return super().find_class(module, name)


def check_metadata(path: Path) -> None:
    with open(path / ".metadata", "rb") as file:
        try:
            Metadata(file).load()
        except Exception as error:  # what a pickle may raise has no bound
            raise Refused(f"checkpoint {path}: .metadata: {error}") from error


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Named:
    """Every tensor of the run by name; what the optimizer keeps is made if it is not there."""
    state = {}
    for name, parameter in model.named_parameters():
        kept = optimizer.state[parameter]
        if not kept:
            fused = optimizer.defaults.get("fused")  # counts on the device
            kept["step"] = torch.zeros((), device=parameter.device if fused else "cpu")
            kept["exp_avg"] = torch.zeros_like(parameter)
            kept["exp_avg_sq"] = torch.zeros_like(parameter)
        state[f"model.{name}"] = parameter.detach()
        state.update({f"{what}.{name}": x for what, x in kept.items()})
    return state


def digest(file: Path) -> str:
    made = hashlib.sha256()
    with open(file, "rb") as stream:
        while piece := stream.read(1 << 20):
            made.update(piece)
    return made.hexdigest()


def sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def reason(error: Exception) -> str:
    if isinstance(error, CheckpointException):
        return "; ".join(f"rank {rank}: {why[0]}" for rank, why in error.failures.items())
    return str(error)
