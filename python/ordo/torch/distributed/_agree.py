"""Whether all ranks call with the same arguments: a small gather before anything else.

Ranks that disagree would wait for each other for ever, or add what does not belong together. Each
rank describes its call, all ranks compare all descriptions, and all of them raise the same error. A
rank that has already refused its arguments sends the message instead, and the others raise it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from ..._library import Error
from ._exchange import Ranks, named

Facts = Mapping[str, Any]


def agree(
    ranks: Ranks, what: str, facts: Facts, failure: Exception | None = None, free: Sequence[str] = ()
) -> Sequence[Facts]:
    """The facts of every rank. Raises Error on every rank if one differs that is not `free`; those
    that a rank does not state are not compared.

    `failure` is what this rank refused its arguments with: it is raised here, and its message on
    the other ranks.
    """
    if ranks.size == 1:
        if failure is not None:
            raise failure
        return [facts]
    found: list[Any] = [None] * ranks.size
    with named(ranks, f"{what} (agreement on arguments)"):
        dist.all_gather_object(found, (facts, failure and str(failure)), group=ranks.group)
    if failure is not None:
        raise failure
    for rank, (_, message) in enumerate(found):
        if message is not None:
            raise Error("argument", f"{what}: rank {rank} refused its arguments: {message}")
    described: list[Facts] = [each for each, _ in found]
    seen: dict[str, tuple[int, str]] = {}  # by name: the first rank that states it, and its words
    for rank, each in enumerate(described):
        for name, value in each.items():
            words = value if isinstance(value, str) else repr(value)
            first, expected = seen.setdefault(name, (rank, words))
            if words != expected and name not in free:
                one, other = (x if len(x) < 80 else x[:70] + " …" for x in (expected, words))
                raise Error(
                    "argument",
                    f"{what}: {name}: rank {first} has {one}, rank {rank} has "
                    f"{'another' if other == one else other}; expected the same on every rank",
                )
    return described
