"""Transformer blocks of ordo/lab/block.h in this process, for `bench/gpu/run block_h200`.

One process opens the device and loads cuBLASLt once for all shapes. Results have the names that
`ordo block --json` gives them. Digests are xxh64-pieces (ordo/digest.h), read through one buffer.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_int
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TENSORS = {"digest_o": (14,), "digest_dx": (7,), "digest_dw": range(8, 14)}  # ordo_block_tensor
SIZES = {"cpu": (64, 16), "cuda": (1, 128)}  # sizes of rows are divided by the first; head size
MODES = ("none", "sequential", "fused", "overlapped", "overlapped-qkv")


class Wrong(Exception):
    """Digests that differ."""


def load() -> None:
    """Load the libraries; ImportError says what is missing."""
    global ordo, np, lib, structs, pieces
    sys.path[:0] = [str(ROOT / "python")]
    import numpy as np
    import ordo
    from ordo import _pieces as pieces
    from ordo.lab import _structs as structs
    from ordo.lab._library import lib


def why_not(device: str) -> str:
    """Why no block can run on the device; "" if it can."""
    return "" if device == "cpu" else ordo.backend_why_not("cuda")


def number_of(name_at, name: str) -> int:
    """The constant of an enumeration whose name that is."""
    for number in range(16):
        if name_at(number) == name.encode():
            return number
    raise ValueError(f"{name}: unknown")


def job_of(what: dict, device: str):
    """A row of the table as an ordo_block_job."""
    small, dim = SIZES[device]
    job = ordo._structs.sized(structs.ordo_block_job)
    job.backend = number_of(ordo._library.lib.ordo_backend_name, device)
    job.precision = number_of(lib.ordo_precision_name, what["precision"])
    job.seq, job.embed = what["seq"] // small, what["embed"] // small
    job.heads = job.embed // dim
    job.causal, job.backward = what.get("causal", False), what.get("backward", False)
    job.dropout = 0.1
    job.rounds = what["rng_rounds"]
    # Unless a row says so it is cuBLASLt there, whose products the first results are of.
    job.gemm = int(device == "cuda" and what.get("gemm") != "ordo")
    job.placement = number_of(lib.ordo_block_placement_name, what.get("placement", "stream"))
    job.generator = number_of(lib.ordo_generator_name, what["generator"])
    job.modes = sum(1 << number_of(lib.ordo_block_mode_name, mode) for mode in what["modes"])
    job.sm_target, job.small_tiles = what.get("sm_target", 0), what.get("small_tiles", False)
    return job


class Block:
    """A runner, to be used in a `with`. ordo.Error: the job is refused."""

    buffer = None  # what tensors are read into

    def __init__(self, what: dict, device: str) -> None:
        self.what, self.runner = what, ctypes.c_void_p()
        self.modes = {mode: number_of(lib.ordo_block_mode_name, mode) for mode in what["modes"]}
        lib.ordo_block_runner_create(byref(self.runner), byref(job_of(what, device)))

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *_) -> None:
        lib.ordo_block_runner_destroy(self.runner)

    def _digest(self, tensors) -> str:
        """The digest of tensors one after the other; a block need not have all of them."""
        made = []
        for tensor in tensors:
            extent = structs.ordo_block_extent()
            lib.ordo_block_extent_of(self.runner, tensor, byref(extent))
            if not extent.rows:
                continue
            if Block.buffer is None or Block.buffer.nbytes < extent.bytes:
                Block.buffer = np.empty(extent.bytes, np.uint8)
            address = Block.buffer.ctypes.data
            lib.ordo_block_read(self.runner, tensor, address, extent.bytes)
            made += [f"{int(pieces.on_cpu([(address, extent.bytes)])[0]):016x}"]
        return "-".join(made)

    def digests(self) -> list[dict]:
        """Run every mode twice, because bits made during the pass before are first used by the
        second run, and compare the digests of all that drop."""
        said = []
        for mode, number in self.modes.items():
            for _ in range(2):
                lib.ordo_block_forward(self.runner, number)
                if self.what.get("backward"):
                    lib.ordo_block_backward(self.runner)
            wanted = TENSORS if self.what.get("backward") else ("digest_o",)
            said.append({"mode": mode} | {key: self._digest(TENSORS[key]) for key in wanted})
        drops = [{k: v for k, v in m.items() if k != "mode"} for m in said if m["mode"] != "none"]
        if any(each != drops[0] for each in drops):
            raise Wrong(f"{self.what}: the digests depend on the dropout mode: {said}")
        return said

    def times(self, seconds: float, modes: tuple[str, ...] = ()) -> dict[str, dict]:
        """Times of the modes, alternately, for `seconds` or more each."""
        names = modes or tuple(self.modes)
        numbers = (c_int * len(names))(*(self.modes[name] for name in names))
        times = (structs.ordo_block_time * len(names))()
        lib.ordo_block_measure(self.runner, numbers, len(names), seconds, times)
        return {
            name: {"ms": 1e3 * t.seconds, "fastest_ms": 1e3 * t.fastest}
            | {"slowest_ms": 1e3 * t.slowest, "samples": t.samples, "passes": t.passes}
            | {"watts": t.watts, "clock_ghz": t.clock_ghz}
            for name, t in zip(names, times)
        }

    def joules(self, seconds: float, mode: str, energy) -> dict:
        """Joules of a pass, those of the whole board at rest included: its power while passes of one
        mode follow each other, times their time."""
        self.times(0.3, (mode,))  # after a change of load power settles
        said: dict = {}
        watts = energy.watts(lambda: said.update(self.times(seconds, (mode,))[mode]))
        return said | {"watts": watts, "joules": watts * said["ms"] * 1e-3}

    def interference(self, seconds: float) -> dict:
        """A product and the making of keep bits at the same time; on the CPU nothing."""
        i = structs.ordo_block_interference()
        lib.ordo_block_interfere(self.runner, seconds, byref(i))
        said = {f"{name}_ms": 1e3 * getattr(i, name) for name, kind in i._fields_[:-1]}
        return said | {
            "product_slowdown": i.product_beside / i.product - 1,
            "bits_slowdown": i.bits_beside / i.bits - 1,
            "hidden": (i.then - i.both) / i.bits,
            "dropping_alone": i.dropping / i.attention - 1,
            "algorithm": i.algorithm.decode(),
        }

    def trace(self) -> dict:
        t = structs.ordo_block_trace()
        lib.ordo_block_trace_run(self.runner, byref(t))
        if not t.same_words:
            raise Wrong(f"{self.what}: the kernel of the trace made other keep bits")
        said = {name: getattr(t, name) for name, kind in t._fields_ if name != "active"}
        return said | {"active_warps": list(t.active)}
