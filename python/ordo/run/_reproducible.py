"""Set what a training step needs, in addition to attention, to give the same bits again."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .._library import Error
from ._unordered import Operation, by_module, by_optimizer, by_running

_CUBLAS = (":4096:8", ":16:8")  # with other workspaces cuBLAS may choose by what is in use
_NOT_COVERED = (
    "other shapes: a row of a product, norm or softmax may have other bits in another batch; "
    "ordo.torch.invariant() and ordo.torch.attention give it the same",
    "sums over ranks: those of NCCL and gloo depend on the number of ranks; "
    "ordo.torch.distributed has them in one order",
)
_MKL_OFF = 1  # what mkl_serv_cbwr_get returns without MKL_CBWR


class Setting(NamedTuple):
    """One switch: its value before and after reproducible(), and what it decides."""

    name: str
    found: str
    now: str
    decides: str

    def __str__(self) -> str:
        change = self.now if self.now == self.found else f"{self.now} (was {self.found})"
        return f"{self.name} = {change}: {self.decides}"


@dataclass(frozen=True)
class Reproducible:
    """What reproducible() found and set. True if nothing is left that may change bits."""

    settings: tuple[Setting, ...]
    problems: tuple[str, ...]  # what could not be set any more, and what to do about it
    operations: tuple[Operation, ...]  # those used that have no deterministic form
    not_covered: tuple[str, ...] = _NOT_COVERED  # on what bits depend whatever is set
    _undo: tuple[Callable[[], None], ...] = field(repr=False, compare=False, default=())

    def __bool__(self) -> bool:
        return not self.problems and not self.operations

    def __str__(self) -> str:
        lines = [*self.settings, *(f"PROBLEM: {problem}" for problem in self.problems)]
        lines += [f"NOT DETERMINISTIC: {operation}" for operation in self.operations]
        lines += [f"not covered: {what}" for what in self.not_covered]
        return "\n".join(map(str, lines))

    def restore(self) -> None:
        """Set every switch back to what was found."""
        for undo in self._undo:
            undo()


def reproducible(
    model: torch.nn.Module | None = None,
    *,
    step: Callable[[], Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    threads: int | None = None,
    tf32: bool = False,
    fill_memory: bool | None = None,
) -> Reproducible:
    """Set everything outside of attention that a step needs to repeat; say what was set.

    Call it first in a program: cuBLAS and MKL read their settings once, when they are first
    used. What comes too late is in `problems` of the result, which prints as one line per
    setting; this function prints nothing.

        model      its modules that have no deterministic form on the device of its parameters
                   are named in `operations`
        step       step() runs forward and backward once on `model`: the operations without a
                   deterministic form that it really calls are named too; afterwards the model,
                   the optimizer and the generators are as they were
        optimizer  is checked: a fused one on the CPU rounds an element by its place in a tensor
        threads    of the CPU in each process; None keeps the number, which depends on the machine
        tf32       whether float32 products on CUDA are computed in TF32, which repeats as well
        fill_memory
                   whether PyTorch fills every new tensor before an operation writes it, as it does
                   under strict determinism; None keeps what is set. False saves a launch per tensor
                   (some 60 per layer of GPT-2 and step), and repeats if the program reads no memory
                   that it has not written (torch.empty)

    Bits then repeat for equal shapes, thread counts, versions and device types; `not_covered` of the
    result says what they still depend on.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise Error("argument", f"threads {threads!r}: expected 1 or more, or None")
    if fill_memory not in (None, True, False):
        raise Error("argument", f"fill_memory {fill_memory!r}: expected True, False or None")
    if step is not None and model is None:
        raise Error("argument", "model None: expected the model that step runs")
    problems: list[str] = []
    undo: list[Callable[[], None]] = []
    settings = _environment(problems, undo)
    settings += [_turn(switch, undo) for switch in _switches(threads, tf32, fill_memory)]
    report = Reproducible(tuple(settings), tuple(problems), (), _undo=tuple(undo))
    try:
        return replace(report, operations=tuple(_operations(model, step, optimizer)))
    except BaseException:
        report.restore()
        raise


def _operations(model: Any, step: Any, optimizer: Any) -> list[Operation]:
    found = [] if model is None else by_module(model)
    if optimizer is not None:
        found += by_optimizer(optimizer)
    if step is not None:
        found += by_running(step, model, optimizer)
    return found


# ---- switches ----


class _Switch(NamedTuple):
    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    value: Any
    decides: str


def _switches(threads: int | None, tf32: bool, fill_memory: bool | None) -> list[_Switch]:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    memory = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory if fill_memory is None else fill_memory
    rounding = "whether partial sums of split products are rounded to 16 bits"
    switches = [
        _Switch(
            "deterministic algorithms", torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode, 2,
            "2: operations without a deterministic form raise an error",
        ),
        _attribute(
            "memory", memory, "fill_uninitialized_memory", fill,
            "whether a program that reads memory it has not written repeats",
        ),
        _attribute("cudnn", cudnn, "deterministic", True, "which convolutions cuDNN may take"),
        _attribute("cudnn", cudnn, "benchmark", False, "whether timing chooses a convolution"),
        _attribute("cudnn", cudnn, "allow_tf32", tf32, "the precision of convolutions"),
        _Switch(
            "float32 matmul precision", torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision, "high" if tf32 else "highest",
            "whether float32 products are computed in TF32",
        ),
        _attribute("matmul", products, "allow_bf16_reduced_precision_reduction", False, rounding),
        _attribute("matmul", products, "allow_fp16_reduced_precision_reduction", False, rounding),
        _attribute("mkldnn", torch.backends.mkldnn, "deterministic", True, "oneDNN on the CPU"),
        _Switch(
            "CPU threads", torch.get_num_threads, torch.set_num_threads,
            threads or torch.get_num_threads(), "how products and sums on the CPU are divided",
        ),
    ]  # fmt: skip
    if hasattr(torch._C, "_cuda_tunableop_is_enabled"):  # not in a build for the CPU
        tunable, decides = torch.cuda.tunable, "whether timing chooses a product"
        switches.append(
            _Switch("tunable operations", tunable.is_enabled, tunable.enable, False, decides)
        )
    return switches


def _attribute(prefix: str, owner: Any, name: str, value: Any, decides: str) -> _Switch:
    def write(value: Any) -> None:
        setattr(owner, name, value)

    return _Switch(f"{prefix}.{name}", lambda: getattr(owner, name), write, value, decides)


def _turn(switch: _Switch, undo: list[Callable[[], None]]) -> Setting:
    try:
        found = switch.read()
    except RuntimeError:  # the newer fp32_precision switches were used: there is no one value
        found = None
    if found != switch.value:
        switch.write(switch.value)
        if found is not None:
            undo.append(lambda: switch.write(found))
    return Setting(switch.name, str(found), str(switch.value), switch.decides)


# ---- libraries that read the environment once ----


def _environment(problems: list[str], undo: list[Callable[[], None]]) -> list[Setting]:
    settings = [_cublas(problems, undo)]
    if torch.backends.mkl.is_available():
        settings.append(_mkl(problems, undo))
    override = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if override is not None:
        problems.append(
            f"NVIDIA_TF32_OVERRIDE {override}: expected unset: it decides about TF32 in place of "
            "PyTorch's settings; unset it before the program starts"
        )
    return settings


def _cublas(problems: list[str], undo: list[Callable[[], None]]) -> Setting:
    name = "CUBLAS_WORKSPACE_CONFIG"
    found = os.environ.get(name)
    if found not in _CUBLAS and (found is not None or needs_cublas_variable()):
        if torch.cuda.is_initialized():
            problems.append(
                f"{name} {found or 'unset'}: expected {_CUBLAS[0]}, but CUDA is initialised: call "
                "reproducible() before the first use of CUDA, or set it before the program starts"
            )
        else:
            _set_variable(name, _CUBLAS[0], undo)
    return Setting(name, str(found), str(os.environ.get(name)), "the workspaces of cuBLAS")


def needs_cublas_variable() -> bool:
    """Whether PyTorch's products raise an error under strict determinism without
    CUBLAS_WORKSPACE_CONFIG.

    Older releases do. Newer ones rely on the workspace of fixed size that PyTorch gives cuBLAS for
    every handle and stream, with which cuBLAS repeats. Those are better left without the variable:
    PyTorch 2.11 parses it by a regular expression in every product, up to three times, at 60 us of
    host time each.
    """
    check = "_ZNK2at7Context33alertCuBLASConfigNotDeterministicEv"
    try:
        return hasattr(_torch_cpu(), check)
    except OSError:  # a build with other libraries
        return True


def _torch_cpu() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


def _mkl(problems: list[str], undo: list[Callable[[], None]]) -> Setting:
    """Without MKL_CBWR the order of a sum may follow alignment and cache sizes."""
    name = "MKL_CBWR"
    found = os.environ.get(name)
    if found is None:
        _set_variable(name, "AUTO", undo)
    mode = _mkl_mode()  # reads the variable, if nothing has done so before
    if mode == _MKL_OFF:
        problems.append(
            f"{name} {found or 'unset'}: expected AUTO, but MKL has run without: call "
            "reproducible() before the first product on the CPU, or set it before the program "
            "starts"
        )
    return Setting(name, str(found), str(os.environ.get(name)), "MKL: one order of sums")


def _mkl_mode() -> int | None:
    """The mode that MKL works in; None if this build of PyTorch cannot say."""
    try:
        get = _torch_cpu().mkl_serv_cbwr_get
    except (OSError, AttributeError):
        return None
    get.argtypes, get.restype = [ctypes.c_int], ctypes.c_int
    return int(get(-1))  # MKL_CBWR_ALL


def _set_variable(name: str, value: str, undo: list[Callable[[], None]]) -> None:
    found = os.environ.get(name)

    def back() -> None:
        if found is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = found

    undo.append(back)
    os.environ[name] = value
