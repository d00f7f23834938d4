"""Attention over the ranks of a torch.distributed group, with the bits of one call on one device.

    from ordo.torch.distributed import context_parallel_attention, shard_sequence
    q, k, v = (shard_sequence(x, 1, layout="zigzag") for x in (q, k, v))
    o, lse = context_parallel_attention(q, k, v, layout="zigzag", causal=True)

docs/guide/ranks.md. The modules are imported when a name of theirs is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "context_parallel_attention": "_context",
    "shard_sequence": "_shards",
    "unshard_sequence": "_shards",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
