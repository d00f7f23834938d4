"""The compiled front: passes as operators of PyTorch's stable ABI (python/front/front.c).

It takes plain calls without most of Python's part: it finds the plan, allocates results and
workspace, draws seed and offset, and calls the library. What it declines, and every call where it
cannot be loaded, takes the way of _call.py, with the same bits.

ORDO_TORCH_FRONT chooses, when ordo.torch is imported: "auto" (the default) takes the compiled front
if PyTorch is 2.10 or later and libordo_torch.so is beside libordo; "compiled" requires it; "ctypes"
goes without.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from ctypes import c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._library import Error, _raise, path
from ._inputs import ONLY_RNG, Lists
from ._plans import Ready

_MODES = ("auto", "compiled", "ctypes")
_REVISION = 3  # of what the operators take, as in front.c
_NAMES = (
    "add", "forward", "lengths", "backward", "lengths_backward", "plain", "plain_backward"
)  # fmt: skip
RNG_GIVEN, RNG_DRAWN, DLSE_GIVEN, PACKED, IDS_GIVEN, HEADS_FIRST = 1, 2, 4, 8, 16, 32  # as in front.c


class Front:
    """The operators, and the plans that they know by their numbers."""

    def __init__(self) -> None:
        self.on = False  # whether calls go this way
        self.missing = ""  # why it is not there
        self.plans: dict[int, Ready] = {}  # kept for ever: the operators point to them
        self._rules = itertools.count(1)
        self._lock = threading.Lock()
        self._library: Any = None
        self.add: Any = None
        self.forward: Any = None
        self.lengths: Any = None
        self.backward: Any = None
        self.lengths_backward: Any = None
        self.plain: Any = None
        self.plain_backward: Any = None

    def open(self) -> None:
        mode = os.environ.get("ORDO_TORCH_FRONT", "auto")
        if mode not in _MODES:
            raise Error("argument", f"ORDO_TORCH_FRONT {mode!r}: expected {', '.join(_MODES)}")
        self.missing = "ORDO_TORCH_FRONT is ctypes" if mode == "ctypes" else self._load()
        if self.missing and mode == "compiled":
            raise ImportError(f"ORDO_TORCH_FRONT is compiled, but {self.missing}")
        self.on = not self.missing

    def _load(self) -> str:
        """Load and define the operators; returns why that is not possible, or nothing."""
        place = Path(path).with_name("libordo_torch.so")
        if not place.exists():
            return f"there is no {place}"
        torch.ops.load_library(str(place))
        library, passes = ctypes.CDLL(str(place)), ctypes.CDLL(path)
        try:
            start = library.ordo_torch_start
        except AttributeError:
            return f"{place} is of another version than the package"
        start.argtypes, start.restype = [c_int, c_void_p, c_void_p], c_char_p
        why_not: bytes | None = start(
            _REVISION,
            ctypes.cast(passes.ordo_attention_forward, c_void_p),
            ctypes.cast(passes.ordo_attention_backward, c_void_p),
        )
        if why_not:
            return why_not.decode()
        self._library = torch.library.Library("ordo", "FRAGMENT")
        for name in _NAMES:
            full = f"compiled_{name}"  # below autograd, which is Python's part
            self._library.impl(full, torch.library.fallthrough_kernel, "Autograd")
            setattr(self, name, getattr(torch.ops.ordo, full).default._op)
        return ""

    def new_rules(self) -> int:
        return next(self._rules)

    def learn(
        self,
        made: Ready,
        rules: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sequences: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """Have the operators keep a plan for tensors like these, if they can run its calls.
        `sequences`: how many ends or lengths there are, and the longest of packed ones."""
        if not self.on or made.empty or made.width or made.copied:
            return
        with self._lock:  # the operators keep the plan that comes first, which must live as long
            number: int = self.add(
                q, k, v, made.handle.value, rules, made.drops, made.forward_bytes,
                made.backward_bytes, *sequences,
            )  # fmt: skip
            if number:
                self.plans.setdefault(number, made)
                made.number = number

    def plan(self, number: int) -> Ready:
        """The plan of a number that an operator returned."""
        made = self.plans.get(number)
        if made is None:  # another thread is still in learn()
            with self._lock:
                made = self.plans[number]
        return made


front = Front()


def failed(result: int) -> None:
    """Raise the library's refusal, if it is one and the operator did not just decline."""
    if result < 0:
        _raise(-result, None, ())


def forward(
    made: Ready, q: Tensor, k: Tensor, v: Tensor, lists: Lists, bits: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """(o, lse), or None if the operator declines."""
    rng = lists.rng
    o, lse, _, result = front.forward(
        q, k, v, q if rng is None else rng, -made.number, 0 if rng is None else RNG_GIVEN,
        *_addresses(made, lists, bits),
    )  # fmt: skip
    if result <= 0:
        failed(result)
        return None
    return o, lse


def backward(
    made: Ready,
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    bits: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """(dq, dk, dv), or None if the operator declines: it compares the tensors with the plan, but
    the lists, of which it gets the addresses, have been compared."""
    rng = lists.rng
    flags = (0 if rng is None else RNG_GIVEN) | (0 if dlse is None else DLSE_GIVEN)
    dq, dk, dv, result = front.backward(
        dout, q, k, v, o, lse, dout if dlse is None else dlse, q if rng is None else rng,
        made.number, flags, *_addresses(made, lists, bits),
    )  # fmt: skip
    if result <= 0:
        failed(result)
        return None
    return dq, dk, dv


def _addresses(made: Ready, lists: Lists, bits: Tensor | None) -> tuple[int, ...]:
    """Of keep bits and lists, in the order of the operators."""
    given = 0 if bits is None else bits.data_ptr()
    if not made.lists or made.lists == ONLY_RNG:
        return (given,) if given else ()
    slopes = lists.slopes
    stride = slopes.shape[-1] if slopes is not None and slopes.dim() == 2 else 0
    return (given, *[0 if x is None else x.data_ptr() for x in lists[1:]], stride)
