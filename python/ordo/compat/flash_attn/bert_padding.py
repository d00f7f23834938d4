"""Between padded batches and sequences end to end. Gradients are deterministic: each row of a
batch is read or written once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = [
    "index_first_axis",
    "index_first_axis_residual",
    "index_put_first_axis",
    "pad_input",
    "unpad_input",
    "unpad_input_for_concatenated_sequences",
]


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    """Rows of x; the gradient goes back to the rows it came from."""
    return x[indices]


def index_first_axis_residual(x: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """(rows of x, x itself): the gradients of both go back to x."""
    return x[indices], x.view_as(x)


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """The rows at their places among first_axis_dim, zeros elsewhere; each place once."""
    made = values.new_zeros(first_axis_dim, *values.shape[1:])
    return made.index_copy(0, indices.to(torch.int64), values)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """(rows, their indices in the flattened batch, ends, the longest sequence, lengths used).

    hidden_states is (batch, row, ...), the masks (batch, row): True where a row is valid, or
    unused but to be kept.
    """
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    return *_rows(hidden_states, kept, kept.sum(dim=-1, dtype=torch.int32)), used


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """(rows, their indices in the flattened batch, ends, the longest sequence).

    A row of attention_mask_in_length, (batch, row), begins with the lengths of the sequences that
    follow each other in that row of the batch; the rest of it is 0.
    """
    total = attention_mask_in_length.sum(dim=-1, keepdim=True)
    place = torch.arange(attention_mask_in_length.shape[-1], device=total.device)
    lengths = attention_mask_in_length[attention_mask_in_length != 0].to(torch.int32)
    return _rows(hidden_states, place < total, lengths)


def _rows(x: Tensor, kept: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    indices = kept.flatten().nonzero().flatten()
    ends = pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if lengths.numel() else 0
    return index_first_axis(x.flatten(0, 1), indices), indices, ends, longest


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The rows back in their places, (batch, seqlen, ...), zeros elsewhere."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(
        0, (batch, seqlen)
    )
