"""Text as bytes, and which of them a micro-batch reads: a pure function of (seed, step, number)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("src", "include", "lab", "cli", "python", "docs")
ENDINGS = (".c", ".h", ".cu", ".cuh", ".py", ".md")


def read(path: str | None) -> Tensor:
    """The bytes of a file; without one, of this repository's sources."""
    if path is not None:
        text = Path(path).read_bytes()
    else:
        files = (file for folder in SOURCES for file in sorted((ROOT / folder).rglob("*")))
        text = b"".join(file.read_bytes() for file in files if file.suffix in ENDINGS)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(0)


def key(*numbers: int) -> int:
    """A number below 2^63 that depends on the given ones only, on every machine."""
    name = " ".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1


def batch(
    text: Tensor, rows: int, context: int, seed: int, step: int, number: int, device: str = "cpu"
) -> tuple[Tensor, Tensor]:
    """(tokens, targets) of one global micro-batch, each (rows, context)."""
    starts = [key(seed, step, number, row) % (len(text) - context) for row in range(rows)]
    picked = send(torch.stack([text[at : at + context + 1] for at in starts]), device).long()
    return picked[:, :-1].contiguous(), picked[:, 1:].contiguous()


def send(x: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device. The host does not wait for the work that is before it there."""
    if torch.device(device).type == "cpu":
        return x
    return x.pin_memory().to(device, non_blocking=True)
