"""Sharding rules of ordo's operators: DTensors divided by batch or by heads stay as they are.

Heads are divided where whole groups of heads that share keys come to each rank; sequences, unless
they are packed. Neither changes a bit. With dropout the keep bits depend on which sequence and head it
is, which the operators cannot know of a shard: the tensors are gathered first. The same holds for
every other placement.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from .._inputs import Lists, lists_of

Placements = list[Any]


def replicated(q: Tensor, lists: Lists) -> Lists:
    """Lists as DTensors beside q: each rank has all of them."""
    everywhere = [Replicate()] * q.device_mesh.ndim
    return Lists(*[
        x if x is None or isinstance(x, DTensor)
        else DTensor.from_local(x, q.device_mesh, everywhere, run_check=False)
        for x in lists
    ])  # fmt: skip


def _placed(name: str, x: Any, along: str) -> Any:
    """The placement of a list where tensors are divided along batch or heads."""
    if along == "heads" and name == "slopes":
        return Shard(x.ndim - 1)
    return Shard(0) if along == "batch" and (name != "slopes" or x.ndim == 2) else Replicate()


def _ways(q: Any, k: Any, flags: int, rest: Any) -> list[tuple[Any, Any, Placements]]:
    """Placements of q and its like, of lse, and of flags and what follows: each an allowed way."""
    lists, sizes = lists_of(flags, rest[1]), rest[4] if len(rest) > 4 else ()

    def others(along: str) -> Placements:
        # The tensors of a list are counted one by one.
        given = [_placed(name, x, along) for name, x in lists._asdict().items() if x is not None]
        return [None, None, *given, *[None] * (len(rest) - 2)]

    packed = lists.cu_q is not None
    ways = [(Replicate(), Replicate(), others("none"))]
    if lists.rng is not None or any(sizes[4:]) or lists.block_start is not None:
        return ways
    heads, of_lse = (1, 0) if packed else (2, 1)
    if k.shape[heads] % q.mesh.size() == 0:
        ways.append((Shard(heads), Shard(of_lse), others("heads")))
    if not packed:
        ways.append((Shard(0), Shard(0), others("batch")))
    return ways


@register_sharding(torch.ops.ordo.forward.default)
def _forward(
    q: Any, k: Any, v: Any, flags: int, *rest: Any
) -> list[tuple[Placements, Placements]]:
    return [([x, lse, None], [x, x, x, *others]) for x, lse, others in _ways(q, k, flags, rest)]


@register_sharding(torch.ops.ordo.backward.default)
def _backward(
    dout: Any, dlse: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, flags: int, *rest: Any
) -> list[tuple[Placements, Placements]]:
    return [
        ([x, x, x, None, None], [x, None if dlse is None else of_lse, x, x, x, x, of_lse, *others])
        for x, of_lse, others in _ways(q, k, flags, rest)
    ]
