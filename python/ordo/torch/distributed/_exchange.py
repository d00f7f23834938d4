"""Collectives on lists of tensors: each is one collective of torch.distributed on bytes.

Bytes have no type, so that tensors of several types travel together and every backend takes them.
An error of a collective names ordo's operation, the rank and what was being exchanged.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..._library import Error

_ALIGN = 16  # bytes: where each tensor in a buffer begins


class Ranks(NamedTuple):
    """A group, and this process in it."""

    group: Any
    rank: int
    size: int

    @classmethod
    def of(cls, group: Any, alone: bool = False) -> Ranks:
        """Of the world if `group` is None; with `alone`, one rank where there is none."""
        if not dist.is_available() or not dist.is_initialized():
            if alone:
                return cls(None, 0, 1)
            raise Error(
                "argument",
                "group: torch.distributed is not initialised; expected "
                "torch.distributed.init_process_group() before the call",
            )
        group = dist.group.WORLD if group is None else group
        rank = dist.get_rank(group)
        if rank < 0:
            raise Error("argument", f"group {group}: expected a group that this process is in")
        return cls(group, rank, dist.get_world_size(group))


@contextlib.contextmanager
def named(ranks: Ranks, what: str) -> Iterator[None]:
    """Name the operation in the error of a collective, as where another rank has died."""
    try:
        yield
    except Error:
        raise
    except RuntimeError as error:  # DistBackendError and the like
        raise Error(
            "device",
            f"ordo.torch.distributed.{what}: failed on rank {ranks.rank} of {ranks.size}: {error}",
        ) from error


class Form(NamedTuple):
    """Shape and type of a tensor that arrives."""

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, x: Tensor, lengths: Mapping[int, int] = {}) -> Form:
        """That of x, with other lengths of some axes."""
        shape = list(x.shape)
        for axis, length in lengths.items():
            shape[axis] = length
        return cls(tuple(shape), x.dtype)

    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def room(self) -> int:
        """Bytes in a buffer."""
        return -(-self.size() // _ALIGN) * _ALIGN


def pack(tensors: Sequence[Tensor], buffer: Tensor) -> None:
    """Write tensors into a buffer of bytes, one behind the other."""
    for part, x in zip(unpack(buffer, [Form.of(x) for x in tensors]), tensors):
        part.copy_(x)


def unpack(buffer: Tensor, forms: Sequence[Form]) -> list[Tensor]:
    """Views of the tensors that pack() wrote."""
    begins = itertools.accumulate((form.room() for form in forms), initial=0)
    return [buffer[a : a + x.size()].view(x.dtype).view(x.shape) for a, x in zip(begins, forms)]


def gather(
    ranks: Ranks, what: str, mine: Sequence[Tensor], forms: Sequence[Sequence[Form]]
) -> list[list[Tensor]]:
    """The tensors of every rank. `forms` are those of each rank; shapes may differ."""
    rooms = [sum(form.room() for form in each) for each in forms]
    most = max(rooms)
    buffer = torch.zeros(most, dtype=torch.uint8, device=mine[0].device)
    pack(mine, buffer)
    found = buffer.new_empty(ranks.size * most)
    if most:
        with named(ranks, what):
            dist.all_gather_into_tensor(found, buffer, group=ranks.group)
    return [unpack(found[r * most :], each) for r, each in enumerate(forms)]


def swap(
    ranks: Ranks, what: str, outgoing: Sequence[Sequence[Tensor]], forms: Sequence[Sequence[Form]],
    device: Any,
) -> list[list[Tensor]]:  # fmt: skip
    """Send outgoing[r] to each rank r; returns what each rank sent here, of these forms."""
    given = [sum(Form.of(x).room() for x in each) for each in outgoing]
    taken = [sum(form.room() for form in each) for each in forms]
    buffer = torch.zeros(sum(given), dtype=torch.uint8, device=device)
    for each, part in zip(outgoing, buffer.split(given)):
        pack(each, part)
    found = buffer.new_empty(sum(taken))
    with named(ranks, what):
        dist.all_to_all_single(found, buffer, taken, given, group=ranks.group)
    return [unpack(part, each) for part, each in zip(found.split(taken), forms)]


class Move(NamedTuple):
    """Tensors on their way; `tensors` are there on the source alone."""

    source: int
    target: int
    tensors: Sequence[Tensor]
    forms: Sequence[Form]


def move(
    ranks: Ranks, what: str, moves: Mapping[Any, Move], device: Any
) -> Iterator[tuple[Any, list[Tensor]]]:
    """The keys of the moves to this rank, in their order, and their tensors. All ranks know all moves;
    where none crosses ranks, none waits."""
    arrived: dict[Any, list[Tensor]] = {}
    outgoing: list[list[Tensor]] = [[] for _ in range(ranks.size)]
    coming: list[list[tuple[Any, Sequence[Form]]]] = [[] for _ in range(ranks.size)]
    for key, (source, target, tensors, forms) in moves.items():
        if source == target == ranks.rank:
            arrived[key] = list(tensors)
        elif source == ranks.rank:
            outgoing[target] += tensors
        elif target == ranks.rank:
            coming[source].append((key, forms))
    if any(m.source != m.target for m in moves.values()):
        expected = [[form for _, forms in each for form in forms] for each in coming]
        for each, found in zip(coming, swap(ranks, what, outgoing, expected, device)):
            rest = iter(found)
            arrived |= {key: list(itertools.islice(rest, len(forms))) for key, forms in each}
    yield from ((key, arrived[key]) for key in moves if key in arrived)
