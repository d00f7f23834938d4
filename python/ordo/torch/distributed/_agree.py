"""Whether all ranks call with the same arguments: one small gather before anything else.

Ranks that disagree would wait for each other for ever, or add what does not belong together. Each
rank describes its call, all ranks compare all descriptions, and all of them raise the same error. A
rank that has already refused its arguments sends the message instead, and the others raise it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..._library import Error
from ._exchange import Form, Ranks, gather

Facts = Mapping[str, Any]
_ROOM = 2048  # bytes of a description that need one gather only


def agree(
    ranks: Ranks, what: str, facts: Facts, failure: Exception | None = None,
    free: Sequence[str] = (), device: Any = None,
) -> Sequence[Facts]:  # fmt: skip
    """The facts of every rank. Raises Error on every rank if one differs that is not `free`; those
    that a rank does not state are not compared.

    `failure` is what this rank refused its arguments with: it is raised here, and its message on
    the other ranks.
    """
    if ranks.size == 1:
        if failure is not None:
            raise failure
        return [facts]
    found = _gather(ranks, what, pickle.dumps((facts, failure and str(failure))), device)
    if failure is not None:
        raise failure
    for rank, (_, message) in enumerate(found):
        if message is not None:
            raise Error("argument", f"{what}: rank {rank} refused its arguments: {message}")
    described: list[Facts] = [each for each, _ in found]
    for name in dict.fromkeys(name for each in described for name in each):
        if name not in free:
            _compare(f"{what}: {name}", {r: x[name] for r, x in enumerate(described) if name in x})
    return described


def _gather(ranks: Ranks, what: str, said: bytes, device: Any) -> list[Any]:
    """What every rank says. It travels by the CPU where the group has a backend for it."""
    types = getattr(ranks.group, "_device_types", [])
    if torch.device("cpu") in types or not types:
        device = torch.device("cpu")
    elif device is None or device.type == "cpu":
        device = torch.device("cuda", torch.cuda.current_device())
    what += " (agreement on arguments)"
    text = torch.frombuffer(bytearray(said.ljust(_ROOM, b"\0")), dtype=torch.uint8).to(device)
    size = torch.tensor([len(said)], device=device)
    forms = [Form.of(size), Form((_ROOM,), torch.uint8)]
    found = gather(ranks, what, [size, text[:_ROOM]], [forms] * ranks.size)
    sizes, texts = [int(each[0]) for each in found], [each[1] for each in found]
    if max(sizes) > _ROOM:
        rest = [[Form((max(size, _ROOM),), torch.uint8)] for size in sizes]
        texts = [each[0] for each in gather(ranks, what, [text], rest)]
    return [pickle.loads(x[:size].cpu().numpy().tobytes()) for x, size in zip(texts, sizes)]


def _compare(what: str, values: Mapping[int, Any]) -> None:
    """By rank."""
    shown = {rank: x if isinstance(x, str) else repr(x) for rank, x in values.items()}
    first, expected = next(iter(shown.items()))
    for rank, value in shown.items():
        if value != expected:
            one, other = (x if len(x) < 80 else x[:70] + " …" for x in (expected, value))
            raise Error(
                "argument",
                f"{what}: rank {first} has {one}, rank {rank} has "
                f"{'another' if other == one else other}; expected the same on every rank",
            )
