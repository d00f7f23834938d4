"""Sparse attention of transformers: keys, or blocks of keys, that an indexer chose for each query.

ordo computes what the mask shows. A choice changes nothing as long as it names all of that; one that
leaves out a visible key is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._library import Error
from ._transformers_mask import Pattern


def check_choice(name: str, chosen: Tensor, block: int, pattern: Pattern, keys: int) -> None:
    """Raise Error unless each query's choice names every key that `pattern` shows it.

    `chosen`, (batch, query, choice) or (batch, head, query, choice), holds numbers of blocks of
    `block` keys; a negative one names nothing. Rows of padding, which are 0, do not count. Waits for
    the device; in a graph, which cannot, the check is an assertion there.
    """
    chosen = chosen[:, None] if chosen.dim() == 3 else chosen
    if pattern.seen is not None or pattern.bias is not None:
        raise Error("unsupported", f"{name} beside a mask of single elements: not supported")
    blocks = -(-keys // block)
    numbers = chosen.long()
    numbers = numbers.masked_fill((numbers < 0) | (numbers >= blocks), blocks)
    named = torch.zeros(*chosen.shape[:-1], blocks + 1, dtype=torch.bool, device=chosen.device)
    named = named.scatter(-1, numbers, True)[..., :blocks]
    seen = seen_of(pattern, chosen.shape[2], keys, chosen.device)
    seen = torch.nn.functional.pad(seen, (0, blocks * block - keys))
    missing = seen.unflatten(-1, (blocks, block)).any(-1)[:, None] & ~named
    expected = "expected all keys that the mask shows"
    if torch.compiler.is_compiling():
        torch._assert_async(~missing.any(), f"{name}: {expected}")
        return
    first = missing.nonzero()[:1].tolist()
    if first:
        batch, head, row, number = first[0]
        place = f"key {number}" if block == 1 else f"keys of block {number}, {block} each"
        raise Error(
            "unsupported",
            f"{name}[{batch}, {head}, {row}]: the query sees {place}, which is not chosen: {expected}",
        )


def seen_of(pattern: Pattern, rows: int, keys: int, device: Any) -> Tensor:
    """Which keys each query sees, (batch or 1, query, key): those of padding see none."""
    key = torch.arange(keys, device=device)
    row = torch.arange(keys - rows, keys, device=device)[:, None]
    left, right = (rows + keys if side < 0 else side for side in pattern.window)
    seen = ((key >= row - left) & (key <= row + (0 if pattern.causal else right)))[None]
    groups = pattern.packing
    if pattern.chunk is not None and pattern.shift is not None:
        groups = (key + pattern.shift.view(-1, 1)).div(pattern.chunk, rounding_mode="floor")
    if groups is not None:
        seen = seen & (groups[:, keys - rows :, None] == groups[:, None])
    if pattern.valid is not None:
        seen = seen & pattern.valid[:, None]
        if pattern.causal or pattern.window != (-1, -1):
            seen = seen & pattern.valid[:, keys - rows :, None]
    return seen
