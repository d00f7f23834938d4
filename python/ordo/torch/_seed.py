"""Seed and offset of dropout, as a tensor on the device of a call."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor

from .._library import Error
from . import _front as f
from ._inputs import check_rng


_LIMIT = 2**32


def draw(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Seed and offset, on the device of `like`.

    Both below 2^32: an offset has to be, and a pair of 64 bits suffices.
    """
    if generator is not None:
        return torch.randint(_LIMIT, (2,), device=like.device, generator=generator)
    drawn: Tensor = torch.ops.ordo.draw(like) if torch.compiler.is_compiling() else f.draw(like)
    return drawn


def rng_of(
    q: Tensor,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(seed, offset) on the device of q: the one given, or drawn, without a synchronisation."""
    if seed is None and rng_state is None:
        return draw(q, generator)
    if generator is not None or (seed is not None and rng_state is not None):
        raise Error("argument", "seed, rng_state, generator: expected one of them at most")
    if rng_state is not None:
        if not isinstance(rng_state, Tensor):
            raise Error("argument", f"rng_state {rng_state!r}: expected a tensor")
        check_rng(rng_state, q)
        return rng_state
    pair = (seed, 0) if isinstance(seed, int) else _pair(seed)
    if len(pair) != 2 or not all(0 <= x < 2**64 for x in pair):
        raise Error("argument", f"seed {seed}: expected a number or (seed, offset) below 2^64")
    signed = [x - 2**64 if x >= 2**63 else x for x in pair]
    if q.is_cpu:
        return torch.tensor(signed, dtype=torch.int64, device=q.device)
    made = torch.full((2,), signed[1], dtype=torch.int64, device=q.device)  # not a copy: no wait
    made[:1].fill_(signed[0])
    return made


def _pair(seed: Any) -> tuple[int, ...]:
    """(seed, offset) of a NumPy number, a tensor or a sequence; empty if it is none of them."""
    given = seed.tolist() if hasattr(seed, "tolist") else seed
    try:
        return tuple(map(index, (given, 0) if isinstance(given, int) else given))
    except TypeError:
        return ()
