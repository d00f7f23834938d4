"""ordo: bit-reproducible attention.

    plan = ordo.Plan(ordo.Problem(batch=2, heads=8, kv_heads=2, q_len=1024, head_dim=64,
                                  mask="causal", dropout=0.1))
    o, lse = ordo.forward(plan, q, k, v, seed=1)
    dq, dk, dv = ordo.backward(plan, q, k, v, o, lse, dout, seed=1)

Same plan, same inputs, same bits. `plan.line` is the plan as text: keep it with a checkpoint.

ordo.lab, loaded when first asked for, replays schedules of the backward pass on a timeline.

With PyTorch: ordo.torch, ordo.transformers, ordo.compat, ordo.Attention, ordo.verify and
FlashAttention's functions; they load PyTorch when first asked for.
"""

import importlib
from typing import Any

from . import dropout
from ._attention import attention, backward, combine, forward
from ._audit import Audit, AuditDifference, audit
from ._blocks import BlockMask
from ._compare import Comparison, compare
from ._digest import digest
from ._gemm import gemm
from ._library import Build, Error, build, version
from ._machine import (
    BackendLimits,
    Device,
    Machine,
    MachineKey,
    backend_available,
    backend_limits,
    backend_why_not,
    devices,
)
from ._plan import Plan, PlanInfo, Tile
from ._problem import NO_KEYS, Bias, BlockLimits, Dropout, Extra, Paging, Problem, SeenLimits, Shard
from ._recorder import Recorder
from ._save_call import save_call
from ._seen import Seen
from ._sum import tree_sum
from ._verify import verify as _verify_structs

__all__ = [
    "Audit",
    "AuditDifference",
    "BackendLimits",
    "Bias",
    "BlockLimits",
    "BlockMask",
    "Build",
    "Comparison",
    "Device",
    "Dropout",
    "Error",
    "Extra",
    "Machine",
    "MachineKey",
    "NO_KEYS",
    "Paging",
    "Plan",
    "PlanInfo",
    "Problem",
    "Recorder",
    "Seen",
    "SeenLimits",
    "Shard",
    "Tile",
    "attention",
    "audit",
    "backend_available",
    "backend_limits",
    "backend_why_not",
    "backward",
    "build",
    "combine",
    "compare",
    "devices",
    "digest",
    "dropout",
    "forward",
    "gemm",
    "save_call",
    "tree_sum",
    "version",
]

_verify_structs()
__version__ = version()

_MODULES = ("compat", "lab", "torch", "transformers")
_IN_LAB = ("Critical", "Schedule", "Timeline", "TimelineInfo", "timeline")  # they were here once
_FROM_TORCH = (
    "Attention",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "verify",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _FROM_TORCH:
        return getattr(importlib.import_module(".torch", __name__), name)
    hint = f"; it is ordo.lab.{name}" if name in _IN_LAB else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_FROM_TORCH])
