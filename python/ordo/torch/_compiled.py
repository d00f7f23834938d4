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
_REVISION = 4  # of what the operators take, as in front.c
_NAMES = (
    "add", "forward", "lengths", "backward", "lengths_backward", "plain", "plain_backward"
)  # fmt: skip
RNG_GIVEN, RNG_DRAWN, DLSE_GIVEN, PACKED, IDS_GIVEN, HEADS_FIRST = 1, 2, 4, 8, 16, 32  # as in front.c

# PyTorch's operator with a node of autograd in C++, for which the front has kernels
# (python/front/node.h), and its schemas as those kernels take them.
_NODE = "_scaled_dot_product_fused_attention_overrideable"
_SCHEMAS = {
    _NODE: f"aten::{_NODE}(Tensor query, Tensor key, Tensor value, Tensor? attn_bias=None, float "
    "dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> "
    "(Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt "
    "max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask)",
    f"{_NODE}_backward": f"aten::{_NODE}_backward(Tensor grad_out, Tensor query, Tensor key, "
    "Tensor value, Tensor attn_bias, bool[4] grad_input_mask, Tensor out, Tensor logsumexp, Tensor "
    "cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, "
    "Tensor philox_seed, Tensor philox_offset, *, float? scale=None) -> (Tensor grad_query, Tensor "
    "grad_key, Tensor grad_value, Tensor grad_attn_bias)",
}
_KEYS = ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA")  # where others may have kernels
MARK, MARKED_RULES = 0x6F72646F << 22, 1 << 22  # as in node.h


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
        self.node: Any = None  # PyTorch's operator, if calls may take its node
        self.nodeless = ""  # why not

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
        start.argtypes, start.restype = [c_int, c_void_p, c_void_p, c_void_p], c_char_p
        why_not: bytes | None = start(
            _REVISION,
            ctypes.cast(passes.ordo_attention_forward, c_void_p),
            ctypes.cast(passes.ordo_attention_backward, c_void_p),
            ctypes.cast(passes.ordo_last_error, c_void_p),
        )
        if why_not:
            return why_not.decode()
        self._library = torch.library.Library("ordo", "FRAGMENT")
        for name in _NAMES:
            full = f"compiled_{name}"  # below autograd, which is Python's part
            self._library.impl(full, torch.library.fallthrough_kernel, "Autograd")
            setattr(self, name, getattr(torch.ops.ordo, full).default._op)
        self.nodeless = node_misfit() or self._load_node(library)
        return ""

    def _load_node(self, library: Any) -> str:
        """Register the kernels of PyTorch's operator; returns why that is not possible."""
        start = library.ordo_torch_start_node
        start.argtypes, start.restype = [], c_char_p
        why_not: bytes | None = start()
        if why_not:
            return why_not.decode()
        self._meta = torch.library.Library("aten", "IMPL", "Meta")
        self._meta.impl(f"{_NODE}_backward", _meta_backward)
        # Or PyTorch would refuse that of a package with a device of its own, which may replace this.
        getattr(torch.library, "_impls", set()).discard(f"aten/{_NODE}_backward/Meta")
        self.node = getattr(torch.ops.aten, _NODE).default._op
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


def node_misfit() -> str:
    """Why PyTorch's operator and its node are not those that the kernels were written for."""
    for name, schema in _SCHEMAS.items():
        operator = getattr(getattr(torch.ops.aten, name, None), "default", None)
        if operator is None or str(operator._schema) != schema:
            return f"aten::{name} has another schema"
        for key in (*_KEYS, "Meta") if name.endswith("_backward") else _KEYS:
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                return f"aten::{name} has a kernel for {key}"
    if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        return "torch._C._autograd._top_saved_tensors_default_hooks() is missing"
    return ""


def _meta_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **_: Any
) -> tuple[Tensor, Tensor, Tensor, None]:
    """What the backward kernel returns, for tracers: contiguous gradients, as seen with rows first.

    It gets tensors with data too if a single one is on the meta device, where hooks of saved
    tensors may have put it."""
    dropout_p, heads_first = rest[8:10]  # the second is is_causal
    if not MARK < -dropout_p < MARK + MARKED_RULES:
        raise NotImplementedError(
            f"aten::{_NODE}_backward: not implemented for meta tensors; the kernel registered "
            "there serves calls of ordo.torch only"
        )
    out, lse, rng = rest[2], rest[3], rest[10]
    given = dict(rng=rng, q=query, k=key, v=value, o=out, dout=grad_out, lse=lse)
    places = {name: x.device for name, x in given.items() if x is not None}
    expected = next((x for x in places.values() if x.type != "meta"), None)
    for name, place in places.items():
        if expected is not None and place != expected:
            raise Error("argument", f"{name}.device {place}: expected {expected}")

    def grad(x: Tensor) -> Tensor:
        if heads_first:
            rows_first = x.transpose(1, 2)
            return torch.empty_like(rows_first, memory_format=torch.contiguous_format).transpose(1, 2)
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    return grad(query), grad(key), grad(value), None


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
