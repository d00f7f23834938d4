"""Record a training run: digests of what every step computes and reads, one JSON line per step.

docs/guide/recorder.md describes the file; ordo.compare() and `ordo compare` read it.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import json
import os
import platform
import stat
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _pieces
from ._arrays import Array
from ._elements import array_of, is_tensor, tensor_of
from ._library import Error, version

_FORMAT = 1
_DIGEST = "xxh64-pieces"
_CALLS_EVERY = 100  # steps
_FEW = 64  # ids of a batch that are written as they are
_RESULTS = ("batch", "loss", "weights", "gradients")  # what must repeat when a step does


class Recorder:
    """Appends to a file what training steps compute, so that two runs can be compared.

        with ordo.Recorder("run.jsonl", model, every=10) as recorder:
            for step in range(steps):
                loss = ...
                loss.backward()
                recorder.step(step, loss, batch=ids)  # before the optimizer changes the weights
                optimizer.step()

    Steps whose number is a multiple of `every` are recorded: digests of the loss, of every weight
    and gradient of `model`, the ids of the batch, and the seeds and plan lines of ordo's attention.
    Digests of CUDA tensors are computed on the device; nothing waits for it, and a record is
    written when a later step finds it complete, at flush() or close().

    If the file exists, the record continues it: steps that repeat are compared with what it holds,
    and a warning names those that differ. A file that another process is writing is refused.

    In a process group, rank 0 alone writes; with "{rank}" in the path each rank writes a file of
    its own. A line is in the hands of the system when it is written: killing the process loses
    none. Every `sync_seconds`, and at the end, it is forced to the disk.

    With `calls`, a folder, each `calls_every`-th step (a multiple of `every`; by default 100, or the
    next one) saves one key head of one call of attention, what it read and computed, as a file that
    audit() takes. Which one, is drawn: a function of `seed`, the step and the number of calls.
    `first` is the step with which this process begins, if it is not 0.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: Any = None,
        *,
        every: int = 1,
        weights: bool = True,
        gradients: bool = True,
        sync_seconds: float = 10.0,
        rank: int | None = None,
        ranks: int | None = None,
        calls: str | os.PathLike[str] | None = None,
        calls_every: int | None = None,
        seed: int = 0,
        first: int = 0,
    ) -> None:
        if every < 1:
            raise Error("argument", f"every {every}: expected 1 or more")
        if calls_every is None:
            calls_every = -(-_CALLS_EVERY // every) * every
        if calls_every < 1 or calls_every % every:
            raise Error(
                "argument", f"calls_every {calls_every}: expected a multiple of every, {every}"
            )
        self.every = every
        self.repeated: list[tuple[int, bool]] = []  # steps recorded again, and whether equal
        self._with = {"weights": weights, "gradients": gradients}
        found = _process_group()
        self._rank = found[0] if rank is None else rank
        self._ranks = found[1] if ranks is None else ranks
        self.path = os.fspath(path).replace("{rank}", str(self._rank))
        self._writes = self._rank == 0 or "{rank}" in os.fspath(path)
        self._model: Any = None
        self._file: _File | None = None
        self._pending: tuple[dict[str, Any], Any, Any] | None = None
        self._calls: Any = None
        self._folder = "" if calls is None else os.fspath(calls)
        if not self._writes:
            return
        self._file = _File(self.path, sync_seconds)
        try:
            if model is not None:
                from .run._record import Model

                self._model = Model(model)
            if calls is not None:
                self._open_calls(calls_every, seed, first)
            self._file.append({**self._header(), **({"resumed": True} if self._file.old else {})})
        except BaseException:
            self._file.close()
            self._release()
            raise
        atexit.register(self.close)

    def _open_calls(self, every: int, seed: int, first: int) -> None:
        from .run._calls import Calls

        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise Error("file", f"calls {self._folder}: {error.strerror}") from None
        self._calls = Calls(every, seed, first)

    def _release(self) -> None:
        for watched in (self._model, self._calls):
            if watched is not None:
                watched.release()
        self._model = self._calls = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def step(
        self,
        step: int,
        loss: Any = None,
        *,
        batch: Any = None,
        seeds: Sequence[Sequence[int]] | None = None,
        plans: Sequence[Any] | None = None,
        weights: Mapping[str, Any] | None = None,
        gradients: Mapping[str, Any] | None = None,
    ) -> bool:
        """Record step number `step` if it is a multiple of `every`; whether it is.

        Call it after backward() and before the optimizer changes the weights. `batch` are the ids
        of the global batch, so that runs on several numbers of ranks can be compared. `weights`
        and `gradients` (names to arrays, in backward order) and `seeds` and `plans` replace what
        is taken from the model and from the calls of attention.
        """
        if not self._writes:
            return False
        if self._file is None:
            raise Error("argument", f"{self.path}: expected an open recorder; it was closed")
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
            raise Error("argument", f"step {step!r}: expected a whole number")
        seen = ([], []) if self._model is None else self._model.take_calls()
        due = int(step) % self.every == 0
        call = None
        if self._calls is not None:
            call = self._calls.take(int(step))
            self._calls.begin(int(step) + 1)
        self._finish(wait=due)
        if not due:
            return False
        entry: dict[str, Any] = {"step": int(step)}
        gather = _Gather()
        _add_loss(entry, gather, loss)
        _add_batch(entry, gather, batch)
        _add_seeds(entry, gather, seen[0] if seeds is None else seeds)
        entry["plans"] = [str(getattr(x, "line", x)) for x in (seen[1] if plans is None else plans)]
        named = {"weights": weights, "gradients": gradients}
        if self._model is not None:
            taken = self._model.tensors(**self._with)
            named = {kind: taken[kind] if x is None else x for kind, x in named.items()}
        for kind, tensors in named.items():
            entry[kind] = {
                name: gather.digest(f"{kind}[{name!r}]", x) for name, x in (tensors or {}).items()
            }
        if call is not None:
            entry["call"] = self._entry_of(call, int(step), gather)
            call.start()
        self._pending = entry, gather.start(), call
        self._finish(wait=False)
        return True

    def flush(self) -> None:
        """Write the record that is not complete yet, and force the file to the disk."""
        self._finish(wait=True)
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """flush(), and let go of the file and the model. A second call does nothing.

        In a forked child, which has a copy of the recorder, the file stays as it is.
        """
        if self._file is None:
            return
        atexit.unregister(self.close)
        try:
            if self._file.owned():
                self.flush()
        finally:
            self._file.close()
            self._file = None
            self._release()

    # ---- what is written ----

    def _header(self) -> dict[str, Any]:
        versions = {"ordo": version(), "python": platform.python_version(), "numpy": np.__version__}
        device = f"cpu {platform.machine()}"
        if "torch" in sys.modules:
            from .run._record import device_of, versions_of

            versions.update(versions_of())
            device = device_of(self._model)
        return {"ordo_record": _FORMAT, "digest": _DIGEST, "every": self.every, "rank": self._rank,
                "ranks": self._ranks, "device": device, "versions": versions}  # fmt: skip

    def _entry_of(self, call: Any, step: int, gather: _Gather) -> dict[str, Any]:
        """What the line of a step says of its saved call: the file, and digests of what is in it."""
        place = f"call-{call.number}-head-{call.key_head}"
        return {
            "file": f"step-{step:09}-rank-{self._rank}-{place}.safetensors",
            "call": call.number,
            "calls": call.calls,
            "key_head": call.key_head,
            **({} if call.rng is None else {"seed": gather.words(call.rng, _unsigned)}),
            **{name: gather.words(x, list) for name, x in call.lengths.items()},
            "digests": {name: gather.digest(name, x) for name, x in call.tensors.items()},
        }

    def _finish(self, wait: bool) -> None:
        """Write the pending record if it is complete."""
        if self._pending is None or self._file is None:
            return
        entry, fetch, call = self._pending
        if not wait and not fetch.ready():
            return
        self._pending = None
        done = _resolve(entry, fetch.wait())
        if call is not None:
            call.write(os.path.join(self._folder, done["call"]["file"]), done["call"])
        before = self._file.results.get(done["step"])
        after = _results(done)
        if before is not None:
            self.repeated.append((done["step"], before == after))
            done["repeat"] = "equal" if before == after else "different"
        self._file.append(done)
        self._file.results[done["step"]] = after
        if before is not None and before != after:
            warnings.warn(
                f"{self.path}: step {done['step']} gave other results than when it was recorded "
                "before; ordo.compare() says which",
                stacklevel=3,
            )


# ---- a record: values that are known, and places of values that a device still computes ----


class _Digest(int):
    """Place of a digest among those of a gathering."""


class _Words(int):
    """Place of some whole numbers, likewise; `made` makes the value that is written of them."""

    made: Any


class _Gather:
    """Tensors to be hashed and numbers to be read, in one go for each device."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._words: list[Any] = []

    def digest(self, name: str, x: Any) -> _Digest:
        self._tensors.append(_elements(name, x))
        return _Digest(len(self._tensors) - 1)

    def words(self, x: Any, made: Any) -> _Words:
        self._words.append(x)
        place = _Words(len(self._words) - 1)
        place.made = made
        return place

    def start(self) -> Any:
        if any(is_tensor(x) for x in (*self._tensors, *self._words)):
            from .run._record import Fetch

            return Fetch(self._tensors, self._words)
        return _Done(_pieces.of_arrays(self._tensors))


class _Done:
    """Digests of arrays: complete at once."""

    def __init__(self, digests: Array) -> None:
        self._digests = digests.tolist()

    def ready(self) -> bool:
        return True

    def wait(self) -> tuple[list[int], list[list[int]]]:
        return self._digests, []


def _elements(name: str, x: Any) -> Any:
    """`x` as a tensor or as an array, little endian, whose elements can be hashed."""
    if is_tensor(x):
        return tensor_of(name, x, sparse=True)
    array = array_of(name, x)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _resolve(value: Any, found: tuple[list[int], list[list[int]]]) -> Any:
    if isinstance(value, _Digest):
        return f"{found[0][value]:016x}"
    if isinstance(value, _Words):
        return value.made(found[1][value])
    if isinstance(value, dict):
        return {key: _resolve(x, found) for key, x in value.items()}
    return value


def _add_loss(entry: dict[str, Any], gather: _Gather, loss: Any) -> None:
    if loss is None:
        return
    loss = tensor_of("loss", loss) if is_tensor(loss) else array_of("loss", loss)
    if (loss.numel() if is_tensor(loss) else loss.size) != 1:
        raise Error("shape", f"loss of shape {tuple(loss.shape)}: expected one number")
    if loss.is_complex() if is_tensor(loss) else loss.dtype.kind == "c":
        raise Error("argument", f"loss.dtype {loss.dtype}: expected a real number")
    entry["loss"] = gather.digest("loss", loss)
    if is_tensor(loss):
        value = loss.reshape(1).double()
        entry["loss_value"] = gather.words(value.view(sys.modules["torch"].int64), _double)
    else:
        entry["loss_value"] = _readable(float(loss.reshape(-1)[0]))


def _double(words: list[int]) -> float | None:
    return _readable(float(np.array(words, np.int64).view(np.float64)[0]))


def _readable(value: float) -> float | None:
    """Nine digits, for the curve; JSON has no NaN and no infinity."""
    return float(f"{value:.9g}") if np.isfinite(value) else None


def _add_batch(entry: dict[str, Any], gather: _Gather, batch: Any) -> None:
    """Few ids as they are; of many, and of what is no whole number, a digest."""
    if batch is None:
        return
    if isinstance(batch, str):
        entry["batch"] = batch
        return
    if is_tensor(batch):
        torch = sys.modules["torch"]
        batch = tensor_of("batch", batch)
        if not (batch.is_floating_point() or batch.is_complex()):
            batch = batch.reshape(-1).to(torch.int64)
            if batch.numel() <= _FEW:
                entry["batch"] = gather.words(batch, list)
                return
        entry["batch"] = gather.digest("batch", batch)
        return
    ids = array_of("batch", batch)
    if ids.dtype.kind in "iub":
        ids = ids.reshape(-1).astype(np.int64)
        if ids.size <= _FEW:
            entry["batch"] = ids.tolist()
            return
    entry["batch"] = gather.digest("batch", ids)


def _add_seeds(entry: dict[str, Any], gather: _Gather, seeds: Sequence[Any]) -> None:
    """Pairs that are known are numbers already; those on a device are read with the digests."""
    there = [x for x in seeds if is_tensor(x)]
    if there:
        flat = sys.modules["torch"].cat([x.detach().reshape(-1).to(there[0].device) for x in there])
        known = [None if is_tensor(x) else [int(part) for part in x] for x in seeds]
        entry["seeds"] = gather.words(flat, lambda words: _pairs(known, words))
    else:
        entry["seeds"] = [[int(part) for part in x] for x in seeds]


def _unsigned(words: list[int]) -> list[int]:
    return [word & 2**64 - 1 for word in words]


def _pairs(known: list[list[int] | None], words: list[int]) -> list[list[int]]:
    read = iter(zip(words[::2], words[1::2]))
    return [list(next(read)) if x is None else x for x in known]


def _results(entry: Mapping[str, Any]) -> int:
    return hash(json.dumps([entry.get(name) for name in _RESULTS], sort_keys=True))


# ---- the file ----


class _File:
    """Whole lines at the end of a file, which no other process writes."""

    def __init__(self, path: str, sync_seconds: float) -> None:
        self._path = path
        self._process = os.getpid()
        self._sync_seconds = sync_seconds
        self.results: dict[int, int] = {}  # by step: a hash of what must repeat
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise Error("file", f"{path}: {error.strerror}") from None
        try:
            self._lock()
            self._whole = self._read()
        except BaseException:
            os.close(self._fd)
            raise
        self._synced = time.monotonic()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{self._path}: expected no other process that writes it"
            raise Error("file", message) from None
        except OSError:
            pass  # a file system without locks

    def _read(self) -> bool:
        """Take in what a process before this one wrote; whether its last line is whole."""
        self.old, whole = False, True
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            return whole
        with open(self._path, "rb") as file:
            for line in file:
                entry, whole = _parsed(line), line.endswith(b"\n")
                if not self.old and not self._begins(entry, line):
                    os.ftruncate(self._fd, 0)
                    return True
                self.old = True
                if isinstance(entry.get("step"), int):
                    self.results[entry["step"]] = _results(entry)
        return whole

    def _begins(self, entry: Mapping[str, Any], line: bytes) -> bool:
        """Whether a first line is a header; false if it is one that a kill truncated."""
        if entry.get("ordo_record") == _FORMAT and entry.get("digest") == _DIGEST:
            return True
        begin = f'{{"ordo_record":{_FORMAT},'.encode()
        if line.endswith(b"\n") or not (line.startswith(begin) or begin.startswith(line)):
            message = f"{self._path}: expected a new file, or a record of format {_FORMAT}"
            raise Error("file", message)
        return False

    def append(self, entry: Mapping[str, Any]) -> None:
        data = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if not self._whole:
            data = b"\n" + data  # ends the line that was truncated
        while data:
            try:
                written = os.write(self._fd, data)
            except OSError as error:
                raise Error("file", f"{self._path}: {error.strerror}") from None
            data = data[written:]
            self._whole = not data
        if time.monotonic() - self._synced >= self._sync_seconds:
            self.sync()

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a device: nothing to force
                raise Error("file", f"{self._path}: {error.strerror}") from None
        self._synced = time.monotonic()

    def owned(self) -> bool:
        """Whether this process opened it, and is no forked child of that one."""
        return self._process == os.getpid()

    def close(self) -> None:
        if self.owned():  # a forked child that lives would keep the lock
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return {}
    return entry if isinstance(entry, dict) else {}


def _process_group() -> tuple[int, int]:
    """This process's rank and the number of ranks."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
