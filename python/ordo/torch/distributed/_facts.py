"""Whether all ranks call with the same arguments: one small gather before anything else.

Ranks that disagree would wait for each other for ever, or add what does not belong together. Each
rank describes its call, all ranks compare all descriptions, and all of them raise the same error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from ..._library import Error

Facts = Mapping[str, Any]


def size_of(group: Any) -> int:
    """Ranks of a group; 1 where torch.distributed is not initialised."""
    return int(dist.get_world_size(group)) if _initialised() else 1


def rank_in(group: Any) -> int:
    return int(dist.get_rank(group)) if _initialised() else 0


def _initialised() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def gather_facts(
    what: str, facts: Facts, group: Any, failure: Error | None = None
) -> Sequence[Facts]:
    """The facts of every rank. `failure`, what this rank has refused, is raised on every rank."""
    if size_of(group) == 1:
        if failure is not None:
            raise failure
        return [facts]
    found: list[Any] = [None] * size_of(group)
    dist.all_gather_object(found, (dict(facts), str(failure) if failure else None), group=group)
    if failure is not None:
        raise failure
    for rank, (_, message) in enumerate(found):
        if message is not None:
            raise Error("argument", f"{what}: rank {rank} was refused: {message}")
    return [each for each, _ in found]


def same(what: str, found: Sequence[Facts], names: Sequence[str]) -> None:
    """Raise Error, on every rank alike, unless all ranks have the same facts of these names.

    A fact that is None is not compared.
    """
    for name in names:
        known = [(rank, each[name]) for rank, each in enumerate(found) if each[name] is not None]
        for rank, value in known:
            if value != known[0][1]:
                raise Error(
                    "argument",
                    f"{what}: {name}: rank {known[0][0]} has {known[0][1]}, rank {rank} has "
                    f"{value}; expected the same on every rank",
                )
