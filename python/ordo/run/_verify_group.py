"""Runs of a step in separate processes: as ranks of a group, and killed on the way."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import multiprocessing
import os
import pickle
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any

import torch

from .._library import Error
from ._verify_run import Run, run_step

_GROUP_TIMEOUT = timedelta(minutes=5)  # the longest that a rank waits for another
_LATEST = 0.9  # share of an undisturbed run's time: a later kill would often miss
_MOST_MISSES = 10  # in one run; then it goes on with fewer kills


@dataclass
class Made:
    """A finished run: what each rank computed, and how many kills it took."""

    ranks: list[Run]
    kills: int


@dataclass
class Failure:
    """What a rank leaves instead of a result."""

    time: float
    rank: int
    text: str


class Group:
    """Runs a step in forked processes, which begin as this process is now."""

    def __init__(
        self, step: Callable[..., Any], model: torch.nn.Module | None, seed: int
    ) -> None:
        if torch.cuda.is_initialized():
            raise Error(
                "unsupported",
                "ranks, kill: CUDA is in use, and forked processes cannot share it; expected a "
                "process that has not used it",
            )
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise Error("unsupported", "ranks, kill: expected a process without a process group")
        self._step, self._model, self._seed = step, model, seed
        self._random = random.Random(seed)
        self._seconds = float("inf")  # that an undisturbed run takes
        self._folder = _takes_folder(step)

    def run(self, size: int | None, kill: int) -> Made:
        """One run on `size` ranks, or in one process without a group; killed `kill` times."""
        if size is not None and size < 1:
            raise Error("argument", f"ranks {size}: expected 1 or more")
        kills = misses = 0
        with tempfile.TemporaryDirectory(prefix="ordo-verify-") as folder:
            kept = os.path.join(folder, "step")
            os.mkdir(kept)
            while kills < kill and misses < _MOST_MISSES:
                moment = self._random.random() * _LATEST * self._seconds
                if self._timed(size, folder, kept, moment):  # too late: once more from the start
                    shutil.rmtree(kept)
                    os.mkdir(kept)
                    misses += 1
                else:
                    kills += 1
            self._timed(size, folder, kept, None)
            return Made([_result(folder, rank) for rank in range(size or 1)], kills)

    def _timed(self, size: int | None, folder: str, kept: str, moment: float | None) -> bool:
        """_start(), and the shortest time of a run that came to its end."""
        begin = time.monotonic()
        ended = self._start(size, folder, kept, moment)
        if ended:
            self._seconds = min(self._seconds, time.monotonic() - begin)
        return ended

    def _start(self, size: int | None, folder: str, kept: str, moment: float | None) -> bool:
        """Start all ranks; kill one after `moment` seconds. Whether they ended by themselves."""
        meeting = tempfile.mktemp(prefix="meeting-", dir=folder)  # which the group makes
        fork = multiprocessing.get_context("fork")
        processes = [
            fork.Process(target=self._child, args=(rank, size, folder, kept, meeting))
            for rank in range(size or 1)
        ]
        try:
            _rest_openmp()
            with warnings.catch_warnings():  # about threads, whose locks no rank needs
                warnings.simplefilter("ignore", DeprecationWarning)
                for process in processes:
                    process.start()
            if moment is not None and not _all_end(processes, moment):
                running = [process for process in processes if process.exitcode is None]
                self._random.choice(running or processes).kill()
                return False
            while not _all_end(processes, 1.0):
                if any(process.exitcode for process in processes):
                    break  # the others would wait for it
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()
        if moment is None:
            _raise_failure(folder, [process.exitcode for process in processes])
        return True

    def _child(self, rank: int, size: int | None, folder: str, kept: str, meeting: str) -> None:
        """A rank: run the step and leave the result, or the error, in the folder."""
        try:
            torch.set_num_threads(1)  # ranks share the cores
            if size is not None:
                torch.distributed.init_process_group(
                    "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size,
                    timeout=_GROUP_TIMEOUT,
                )  # fmt: skip
            for parameter in [] if self._model is None else self._model.parameters():
                parameter.grad = None
            torch.manual_seed(self._seed)
            step = (lambda: self._step(kept)) if self._folder else self._step
            _leave(_path(folder, rank), run_step(step, self._model, weights=True))
            if size is not None:
                torch.distributed.barrier()  # nobody leaves while another still talks to it
        except BaseException:
            _leave(_path(folder, rank), Failure(time.monotonic(), rank, traceback.format_exc()))
            _exit(1)
        _exit(0)


def _exit(code: int) -> None:
    """End a forked process without the handlers of the process that it was forked from."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _takes_folder(step: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        x.default is x.empty and x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)
        for x in parameters
    )


def _all_end(processes: list[Any], seconds: float) -> bool:
    """Wait for the processes, at most so long or until one of them fails; whether all ended."""
    end = time.monotonic() + seconds
    while running := [process for process in processes if process.exitcode is None]:
        left = end - time.monotonic()
        if left <= 0 or any(process.exitcode for process in processes):
            return False
        wait([process.sentinel for process in running], left)
    return True


def _rest_openmp() -> None:
    """End the threads that GNU OpenMP keeps for this thread. It would wait for them in a forked
    process, where they are not, and starts others when it needs them. torch.set_num_threads(1)
    does not suffice there: Arm's library of kernels has a number of threads of its own.
    """
    hard = 2  # omp_pause_hard
    with contextlib.suppress(OSError):  # no /proc, or a file that is gone
        with open("/proc/self/maps") as maps:
            mapped = {line.split(maxsplit=5)[-1].strip() for line in maps}
        for path in mapped:
            if "libgomp" in os.path.basename(path):
                rest = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
                if rest is not None:
                    rest(hard)


def _path(folder: str, rank: int) -> str:
    return os.path.join(folder, f"rank-{rank}")


def _leave(path: str, what: Any) -> None:
    """Write a file that appears whole or not at all."""
    with open(path + ".new", "wb") as file:
        pickle.dump(what, file)
    os.replace(path + ".new", path)


def _result(folder: str, rank: int) -> Run:
    with open(_path(folder, rank), "rb") as file:
        found = pickle.load(file)
    assert isinstance(found, Run)
    return found


def _raise_failure(folder: str, codes: list[int | None]) -> None:
    """Raise what the step raised in the rank that failed first: others fail because of it."""
    failures = []
    for rank, code in enumerate(codes):
        if code == 1 and os.path.exists(_path(folder, rank)):
            with open(_path(folder, rank), "rb") as file:
                failures.append(pickle.load(file))
    if failures:
        first = min(failures, key=lambda failure: failure.time)
        raise Error("internal", f"the step failed on rank {first.rank}:\n{first.text}")
    for rank, code in enumerate(codes):
        if code:
            raise Error("internal", f"rank {rank} ended with exit code {code}")
