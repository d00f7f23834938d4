"""The operators torch.ops.ordo.*, whose kernels are compiled to PyTorch's stable ABI (python/front).

    forward        o, lse, and the keep bits that the backward pass is to read
    backward       dq, dk, dv, dsink, dbias
    backward_part  dq, dk, dv of some rows, with sums that are carried on
    keep_bits      the keep bits of a call, made ahead of it; with ASK the line of its plan
    draw           seed and offset
    seen           an element mask, bool, packed for the others
    gemm           a matrix product (python/front/gemm.h)
    eager_forward, eager_backward  the first two for _node.py alone, which makes no graph of them: they
                   have no formula of autograd, and seed and offset are drawn inside, a fourth result

All are pure functions of their arguments but those that draw. `more` holds the tensors that bits of
`flags` name, in their order; `sizes` is empty, or left, right, max_q, max_kv and the numbers of a
shard. A flag never gets another meaning: graphs that were saved hold it.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import CFUNCTYPE, c_bool, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch

from .._library import Error, path

# Tensors in `more`, and the other flags; as in python/front/call.h.
RNG, CU_Q, CU_KV, Q_LENS, KV_LENS, IDS, SLOPES, BITS = (1 << x for x in range(8))
BLOCK_START, BLOCK_KEY, BLOCK_FIRST, BLOCK_LAST, SEEN, BIAS, PAGES, SINK = (1 << x for x in range(8, 16))
CAUSAL, TOP_LEFT, FA2, HEADS_FIRST, LIKE_Q, KEEP, NO_DQ, NO_DKV, HIDDEN, ASK, DRAW, NEEDS_DBIAS = (
    1 << x for x in range(16, 28)
)
STARTS = 1 << 28  # a tensor again

_REVISION = 12  # changes with what the operators take; as in front.c
CALL = "int flags, float scale, Tensor[] more, float softcap=0, float dropout_p=0, SymInt[] sizes=[]"
_SAVED = "Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse"
_DRAWS = (torch.Tag.nondeterministic_seeded,)
_SCHEMAS = {
    f"forward(Tensor q, Tensor k, Tensor v, {CALL}) -> (Tensor, Tensor, Tensor)": None,
    f"eager_forward(Tensor q, Tensor k, Tensor v, {CALL}) -> (Tensor, Tensor, Tensor, Tensor)": _DRAWS,
    f"backward({_SAVED}, {CALL}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)": None,
    f"eager_backward({_SAVED}, {CALL}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)": None,
    f"backward_part({_SAVED}, Tensor(a!) dk_sums, Tensor(b!) dv_sums, int carry, {CALL}) -> (Tensor, Tensor, Tensor)": None,
    f"keep_bits(Tensor q, Tensor k, Tensor v, {CALL}) -> Tensor": None,
    "draw(Tensor like) -> Tensor": _DRAWS,
    "seen(Tensor elements) -> Tensor": None,
    "gemm(Tensor a, Tensor b, Tensor? bias=None, int sections=1, bool wide=False) -> Tensor": None,
}
_PURE = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)

ASK_MEMORY = CFUNCTYPE(None, c_int)

library = torch.library.Library("ordo", "DEF")


def _start() -> Any:
    place = Path(path).with_name("libordo_torch.so")
    if not place.exists():
        raise ImportError(
            f"there is no {place}, which ordo.torch needs: `make` in the sources builds it, and "
            "wheels of ordo have it"
        )
    for schema, tags in _SCHEMAS.items():
        library.define(schema, tags=tags or _PURE)
    torch.ops.load_library(str(place))
    compiled = ctypes.CDLL(str(place))
    compiled.ordo_torch_start.argtypes = [c_int]
    compiled.ordo_torch_start.restype = c_char_p
    why_not = compiled.ordo_torch_start(_REVISION)
    if why_not:
        raise ImportError(
            f"{place} cannot be used with torch {torch.__version__}: {why_not.decode()}; ordo.torch "
            "needs PyTorch 2.10 or later"
        )
    return compiled


class _Memory(ctypes.Structure):
    _fields_ = [("known", c_bool), ("limit", c_int64), ("kept", c_int64), ("side", c_void_p)]


class _Front(ctypes.Structure):
    """As in run.h, which says what each is."""

    _fields_ = [
        ("forget_plans", CFUNCTYPE(None)),
        ("hold", CFUNCTYPE(None, c_int, c_int64)),
        ("ask", ASK_MEMORY),
        ("memory", _Memory * 65),
        ("counts", c_int64 * 2),
    ]


_compiled = _start()
front = _Front.in_dll(_compiled, "ordo_torch_front")
forget_plans, hold = front.forget_plans, front.hold

forward = torch.ops.ordo.forward.default._op  # without the look for overloads
backward = torch.ops.ordo.backward.default._op
eager_forward = torch.ops.ordo.eager_forward.default._op
eager_backward = torch.ops.ordo.eager_backward.default._op
backward_part = torch.ops.ordo.backward_part.default._op
keep_bits = torch.ops.ordo.keep_bits.default._op
draw = torch.ops.ordo.draw.default._op
seen = torch.ops.ordo.seen.default._op
below = torch._C._AutoDispatchBelowAutograd

_STATUS = re.compile(
    r"\s*(argument|shape|align|unsupported|overflow|memory|device|internal|file|parse): (.*)", re.DOTALL
)


def run(operator: Any, *given: Any) -> Any:
    """Its results, or the Error that it was refused with."""
    try:
        return operator(*given)
    except RuntimeError as error:
        raise error_of(error) from None


def error_of(error: RuntimeError) -> Exception:
    """The Error of ordo that a kernel raised; for memory that ran out PyTorch's own, raised by
    another attempt; what is neither as it is."""
    found = _STATUS.match(str(error))
    if found is None or isinstance(error, Error):
        return error
    status, message = found[1], found[2].rstrip()
    if status == "memory":
        try:
            count, _, _, device, *_ = message.replace(": ", " ").split()
            torch.empty(int(count), dtype=torch.uint8, device=device)
        except (RuntimeError, ValueError) as own:
            return own
    return Error(status, message)
