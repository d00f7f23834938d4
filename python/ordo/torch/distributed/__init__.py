"""Attention and sums over the ranks of a torch.distributed group, whose bits do not depend on the
number of ranks: docs/guide/ranks.md and docs/guide/ordered-sums.md.

The modules are imported when a name of theirs is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "context_parallel_attention": "_context",
    "shard_sequence": "_shards",
    "unshard_sequence": "_shards",
    "OrderedDDP": "_ordered_ddp",
    "OrderedFSDP": "_ordered_fsdp",
    "OrderedGradients": "_ordered_gradients",
    "ordered_all_reduce": "_ordered",
    "ordered_clip_grad_norm_": "_ordered_norm",
    "ordered_grad_norm": "_ordered_norm",
    "ordered_mean": "_ordered",
    "ordered_reduce_scatter": "_ordered",
    "owned_micro_batches": "_ordered",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
