"""Whether all ranks call with the same arguments: one small gather before anything else.

Each rank describes its call by the same number of integers. What must be equal is compared on
every rank alike, so that all of them raise the same error, or none does. A rank that has already
refused its arguments sends the message instead, and the others raise it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from ..._library import Error
from ..._words import Mask
from ._exchange import Form, Ranks, gather

_TEXT = 480  # bytes of a message
WHAT = "context_parallel_attention"

# How to print a value; other values are integers.
_WORDS: dict[str, Sequence[str]] = {
    "method": ("auto", "heads", "gather", "relay"),
    "layout": ("contiguous", "zigzag"),
    "dtype": ("torch.float32", "torch.bfloat16", "torch.float16"),
    "device": ("cpu", "cuda"),
    "causal": get_args(Mask),
    "keying": ("ordo", "fa2"),
    "seed given": ("no", "yes"),
    "packed": ("no", "yes"),
}
_REALS = ("scale", "softcap", "dropout_p")
_LISTS = ("cu_q", "cu_kv", "q_lens", "kv_lens", "sequence_ids", "slopes")
# each rank's own
FREE = ("rows", "columns", "drawn seed", "drawn offset", "link", "rate", "workers")


def word(name: str, value: Any) -> int:
    """The number of one of the words that an argument may be."""
    return _WORDS[name].index(str(value))


def real(value: float) -> int:
    return int(struct.unpack("q", struct.pack("d", float(value)))[0])


def real_of(value: int) -> float:
    return float(struct.unpack("d", struct.pack("q", value))[0])


def list_digest(x: Tensor | None) -> int:
    """A number for the shape and the values of a tensor; 0 for None. Waits for the device."""
    if x is None:
        return 0
    made = hashlib.blake2b(repr(tuple(x.shape)).encode(), digest_size=8)
    made.update(x.detach().double().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return int(struct.unpack("q", made.digest())[0])


def _shown(name: str, value: int) -> str:
    if name in _WORDS:
        return _WORDS[name][value]
    if name in _REALS:
        return repr(real_of(value))
    return str(value)


def device_of(ranks: Ranks, device: Any) -> Any:
    """Where the description travels: the CPU where the group has a backend for it."""
    types = getattr(ranks.group, "_device_types", [])
    if torch.device("cpu") in types or not types:
        return torch.device("cpu")
    return device if device.type != "cpu" else torch.device("cuda", torch.cuda.current_device())


def agree(
    ranks: Ranks, facts: Mapping[str, int], names: Sequence[str], failure: Any, device: Any
) -> list[dict[str, int]]:
    """The facts of every rank. Raises Error on every rank if those that must be equal are not.

    `failure` is what this rank refused its arguments with, or None: it is raised here, and its
    message on the other ranks.
    """
    text = str(failure).encode()[:_TEXT] if failure is not None else b""
    letters = list(struct.unpack(f"{_TEXT // 8}q", text.ljust(_TEXT, b"\0")))
    values = [int(failure is not None), *(facts.get(name, 0) for name in names), *letters]
    here = torch.tensor(values, dtype=torch.int64, device=device_of(ranks, device))
    form = Form((len(values),), torch.int64)
    found = gather(ranks, f"{WHAT} (agreement on arguments)", [here], [[form]] * ranks.size)
    if failure is not None:
        raise failure
    table = [each[0].tolist() for each in found]
    for rank, row in enumerate(table):
        if row[0]:
            raw = struct.pack(f"{_TEXT // 8}q", *row[1 + len(names) :]).rstrip(b"\0")
            message = raw.decode(errors="ignore")
            raise Error("argument", f"{WHAT}: rank {rank} refused its arguments: {message}")
    described = [dict(zip(names, row[1:])) for row in table]
    for name in names:
        if name not in FREE:
            _compare(name, [each[name] for each in described])
    return described


def _compare(name: str, values: Sequence[int]) -> None:
    for rank, value in enumerate(values):
        if value == values[0]:
            continue
        if name in _LISTS:
            differ = f"rank {rank} has another tensor than rank 0"
        else:
            differ = f"rank 0 has {_shown(name, values[0])}, rank {rank} {_shown(name, value)}"
        raise Error("argument", f"{WHAT}: {name}: {differ}; expected the same on every rank")
