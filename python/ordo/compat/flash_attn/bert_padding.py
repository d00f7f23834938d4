"""Between padded batches and sequences end to end."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["index_first_axis", "pad_input", "unpad_input"]


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    """Rows of x; the gradient goes back to the rows it came from."""
    return x[indices]


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """(rows, their indices in the flattened batch, ends, the longest sequence, lengths used).

    hidden_states is (batch, row, ...), the masks (batch, row): True where a row is valid, or
    unused but to be kept.
    """
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = kept.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = kept.flatten().nonzero().flatten()
    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, ends, int(lengths.max()), used


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The rows back in their places, (batch, seqlen, ...), zeros elsewhere."""
    made = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    return made.index_copy(0, indices.to(torch.int64), hidden_states).unflatten(0, (batch, seqlen))
