"""Sharding rules of ordo's operators: DTensors divided by batch or by heads stay as they are.

Heads are divided where whole groups of heads that share keys come to each rank; sequences, unless
they are packed. Neither changes a bit. With dropout the mask depends on which sequence and head it
is, which the operators cannot know of a shard: the tensors are gathered first. The same holds for
every other placement.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from ..._library import Error
from .._inputs import Lists, Rules

_COUNT = len(Lists._fields)
Placements = list[Any]


def replicated(q: Tensor, lists: Lists) -> Lists:
    """Lists as DTensors beside q: each rank has all of them."""
    if lists.rng is not None and not isinstance(lists.rng, DTensor):
        raise Error(
            "unsupported",
            "dropout_p on a DTensor: ranks would draw masks of their own; call attention() on "
            "q.to_local() with shard=ordo.Shard(...) and a common seed",
        )
    everywhere = [Replicate()] * q.device_mesh.ndim
    return Lists(*[
        x if x is None or isinstance(x, DTensor)
        else DTensor.from_local(x, q.device_mesh, everywhere, run_check=False)
        for x in lists
    ])  # fmt: skip


def _lists(given: Any, along: str) -> Placements:
    """Placements of the lists where tensors are divided along batch or heads."""
    found: Placements = []
    for name, x in zip(Lists._fields, given):
        if x is None:
            found.append(None)
        elif name == "slopes" and along == "heads":
            found.append(Shard(x.ndim - 1))
        elif along == "batch" and (name != "slopes" or x.ndim == 2):
            found.append(Shard(0))
        else:
            found.append(Replicate())
    return found


def _ways(q: Any, k: Any, rest: Any) -> list[tuple[Any, Any, Placements]]:
    """Placements of q and its like, of lse, and of the lists and rules: each an allowed way."""
    given, rules = rest[:_COUNT], Rules(*rest[_COUNT:])
    no_tensors: Placements = [None] * len(rules)
    packed = Lists(*given).cu_q is not None
    ways = [(Replicate(), Replicate(), _lists(given, "none") + no_tensors)]
    if rules.dropout_p > 0 or any(rules.shard):
        return ways
    heads, of_lse = (1, 0) if packed else (2, 1)
    if k.shape[heads] % q.mesh.size() == 0:
        ways.append((Shard(heads), Shard(of_lse), _lists(given, "heads") + no_tensors))
    if not packed:
        ways.append((Shard(0), Shard(0), _lists(given, "batch") + no_tensors))
    return ways


@register_sharding(torch.ops.ordo.attention_forward.default)
def _forward(q: Any, k: Any, v: Any, *rest: Any) -> list[tuple[Placements, Placements]]:
    return [([x, lse], [x, x, x, *others]) for x, lse, others in _ways(q, k, rest)]


@register_sharding(torch.ops.ordo.attention_backward.default)
def _backward(
    dout: Any, dlse: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *rest: Any
) -> list[tuple[Placements, Placements]]:
    return [
        ([x, x, x], [x, None if dlse is None else of_lse, x, x, x, x, of_lse, *others])
        for x, of_lse, others in _ways(q, k, rest)
    ]
