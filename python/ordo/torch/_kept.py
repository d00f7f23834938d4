"""Which elements dropout keeps, and the debug mask, as tensors. Nothing here waits for a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _front as f
from ._inputs import Lists, Rules, call_of, empty, fake_rows, lists_of, longest, sequences

_ROWS, _COLUMNS, _WORDS = 16, 128, 64  # a block of keep bits (docs/design/dropout-bits.md)

f.library.define(
    f"kept_elements(Tensor q, Tensor k, Tensor v, {f.CALL}) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _kept_elements(q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, *rest: Any) -> Tensor:
    """(batch, head, row, column), True = kept; shorter sequences of a packed batch end in False.

    Made on the device of q, from the bits that the library makes there.
    """
    lists, sizes = lists_of(flags, more), _sizes(q, k, *rest)
    bits = f.keep_bits(q, k, v, flags | f.HIDDEN, scale, more, *rest)
    kept = _unpack(_blocks(bits.view(torch.int32), q, lists, *sizes))[:, :, : sizes[0], : sizes[1]]
    if lists.cu_q is not None:
        kept = kept & _places(q, lists, *sizes)[0][:, None]
    return kept.contiguous()


f.library.impl("kept_elements", _kept_elements, "CompositeExplicitAutograd")


@torch.library.register_fake("ordo::kept_elements", lib=f.library)
def _kept_elements_fake(q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, *rest: Any) -> Tensor:
    fake_rows(flags, more, q, k, v)
    shape = sequences(q, lists_of(flags, more)), q.shape[-2], *_sizes(q, k, *rest)
    return q.new_empty(shape, dtype=torch.bool)


def _sizes(q: Tensor, k: Tensor, softcap: float = 0.0, dropout_p: float = 0.0, sizes: Any = ()) -> tuple[Any, Any]:
    """Rows and columns of the longest sequence, from the last arguments of a call."""
    return longest(q, k, *sizes[2:4] or (0, 0))


def _blocks(words: Tensor, q: Tensor, lists: Lists, rows: int, columns: int) -> Tensor:
    """(batch, head, row block, column block, word); of packed batches other blocks fill up."""
    batch, heads = sequences(q, lists), q.shape[-2]
    shape = (batch, heads, -(-rows // _ROWS), -(-columns // _COLUMNS))
    if lists.cu_q is None or lists.cu_kv is None:
        count = shape[0] * shape[1] * shape[2] * shape[3]
        return words[: count * _WORDS].view(*shape, _WORDS)
    down = (lists.cu_q.diff() + (_ROWS - 1)) // _ROWS
    across = (lists.cu_kv.diff() + (_COLUMNS - 1)) // _COLUMNS
    own = heads * down.long() * across
    base = own.cumsum(0) - own
    h, i, j = (torch.arange(x, device=q.device) for x in shape[1:])
    down, across, base = (x.view(-1, 1, 1, 1) for x in (down, across, base))
    at = base + (h[:, None, None] * down + i[:, None]) * across + j
    at = torch.where((i[:, None] < down) & (j < across), at, 0)
    return words[: words.numel() // _WORDS * _WORDS].view(-1, _WORDS)[at]


def _unpack(blocks: Tensor) -> Tensor:
    """(batch, head, row, column), bool: the storage order of docs/design/dropout-bits.md undone."""
    batch, heads, down, across, _ = blocks.shape
    power = 1 << torch.arange(7, -1, -1, dtype=torch.uint8, device=blocks.device)
    # (row mod 8, column / 2 mod 4, row / 8), then the bytes of a word: (j mod 2, column mod 2)
    byte = blocks.contiguous().view(torch.uint8).view(batch, heads, down, across, 8, 4, 2, 2, 2, 1)
    bits = (byte & power) != 0  # the bits of a byte: j / 2
    ordered = bits.permute(0, 1, 2, 6, 4, 3, 9, 7, 5, 8)
    return ordered.reshape(batch, heads, down * _ROWS, across * _COLUMNS)


# ---- rows and columns of sequences ----


def _places(q: Tensor, lists: Lists, rows: int, columns: int, mask: str = "full") -> tuple[Tensor, Tensor]:
    """(batch or 1, row, column): whether it is inside the sequence; how far right of the row's
    own column it is."""
    row = torch.arange(rows, device=q.device)[:, None]
    column = torch.arange(columns, device=q.device)
    used: list[Any] = [rows, columns]
    if lists.cu_q is not None and lists.cu_kv is not None:
        used = [x.diff().view(-1, 1, 1) for x in (lists.cu_q, lists.cu_kv)]
    inside = ((row < used[0]) & (column < used[1])).view(-1, rows, columns)
    delta = 0 if mask == "causal-top-left" else used[1] - used[0]
    return inside, (column - row - delta).view(-1, rows, columns)


def _by_sequence(x: Tensor, ends: Tensor | None, most: int) -> Tensor:
    """(batch, head, row, dim) in float32; behind the end of a sequence any row."""
    if ends is not None:
        at = ends[:-1, None] + torch.arange(most, device=x.device)
        x = x[at.clamp(max=x.shape[0] - 1)]
    return x.transpose(1, 2).float()


# ---- the debug mask ----


def signed_probabilities(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Tensor:
    """FlashAttention-2's S_dmask: exp(s - the largest s of the row), the sign set where dropped.

    (batch, head, row, column), rows and columns filled up to multiples of 128 with zeros. s are
    the scores after scale, softcap and slopes; what a row does not see is 0, with the sign.
    Computed beside the pass, in float32, and rounded to the type of q, k and v. Empty without dropout, and
    where there is no element.
    """
    if not rules.dropout_p > 0 or empty(q, k, lists):
        return q.new_empty(0)
    rows, columns = longest(q, k, rules.max_q, rules.max_kv)
    keep = torch.ops.ordo.kept_elements(q, k, v, *call_of(lists, rules))
    inside, distance = (x[:, None] for x in _places(q, lists, rows, columns, rules.mask))
    q, k = _by_sequence(q, lists.cu_q, rows), _by_sequence(k, lists.cu_kv, columns)
    logit = _products(rules.scale * q, k)
    if rules.softcap > 0:
        logit = rules.softcap * torch.tanh(logit / rules.softcap)
    if lists.slopes is not None:
        logit = logit - lists.slopes.view(-1, q.shape[1], 1, 1) * distance.abs()
    left, right = (torch.inf if side < 0 else side for side in (rules.left, rules.right))
    seen = inside & (distance >= -left) & (distance <= (right if rules.mask == "full" else 0))
    largest = logit.masked_fill(~seen, -torch.inf).amax(-1, keepdim=True)
    p = torch.where(seen, torch.exp(logit - largest), 0.0)
    signed = torch.where(inside, torch.where(keep, p, -p), 0.0).to(v.dtype)
    return torch.nn.functional.pad(signed, (0, -columns % 128, 0, -rows % 128))


def _products(q: Tensor, k: Tensor) -> Tensor:
    """q times k transposed, in the order of the columns, of heads that may share keys. Not by cuBLAS,
    which cannot begin while a CUDA graph is captured and would leave PyTorch's generator stuck."""
    groups, keys = q.unflatten(1, (k.shape[1], -1)), k[:, :, None]
    made = q.new_zeros(*groups.shape[:-1], k.shape[2])
    for column in range(q.shape[-1]):
        made.addcmul_(groups[..., column, None], keys[..., None, :, column])
    return made.flatten(1, 2)
