"""Padded batches of transformers: where the valid tokens are, and attention to them alone.

Whether the tokens of a sequence are one run, and where it begins, decides how a batch is computed,
so that the host has to know. It reads one line of answers per mask, not per layer. The lengths
themselves stay on the device.

    one run from the first token on (padding on the right): the padded layout, nothing is copied
    one run anywhere (padding on the left), causal or windowed: sequences end to end, where what lies
        between two runs is a sequence of its own whose results and gradients are cleared
    anything else: the valid rows are gathered
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ._library import Error
from .torch._attention import call
from .torch._call import Arguments

class _Kept(dict[tuple[str, bool], Any]):
    """What is known of one mask, by kind and whether in inference mode: (the mask's version, the
    answer)."""


# What follows from a mask is the same in every layer: it is computed, and waited for, once.
_known: Any = WeakTensorKeyDictionary()

# The mask that was asked about last, and what is known of it: found without the table, which costs
# more than a small call. Both weak, so that nothing lives longer and no other mask is taken for it.
_last: tuple[Any, Any] = (lambda: None, lambda: None)


def _kept_of(mask: Tensor) -> _Kept:
    global _last
    known, kept = _last
    if known() is mask:
        found: _Kept | None = kept()
        if found is not None:
            return found
    made: _Kept = _known.setdefault(mask, _Kept())
    _last = weakref.ref(mask), weakref.ref(made)
    return made


def once(mask: Tensor, kind: str, compute: Callable[[Tensor], Any]) -> Any:
    """compute(mask), computed again only when the mask has been written to."""
    if torch.compiler.is_compiling() or mask.is_inference():
        return compute(mask)
    kept = _kept_of(mask)
    at = kind, torch.is_inference_mode_enabled()  # what is made there cannot be saved for backward
    version, made = kept.get(at, (None, None))
    if version != mask._version:
        made = compute(mask)
        kept[at] = (mask._version, made)
    return made


class Padding(NamedTuple):
    """Where the valid tokens of a batch are."""

    none: bool  # all are valid
    right: bool  # each sequence is one run from its first token on
    runs: bool  # each sequence is one run
    first: Tensor  # of each run, int32
    lengths: Tensor  # int32


def padding_of(mask: Tensor) -> Padding:
    """Look at a mask of valid tokens, bool, (batch, key). Waits for the device, once per mask."""

    def compute(valid: Tensor) -> Padding:
        rows = valid.shape[1]
        lengths = valid.sum(dim=-1, dtype=torch.int32)
        if not rows:
            return Padding(True, True, True, lengths, lengths)
        place = torch.arange(1, rows + 1, dtype=torch.int32, device=valid.device)
        end = (place * valid).amax(dim=-1)
        first = valid.view(torch.uint8).argmax(dim=-1).to(torch.int32)
        # What follows from three numbers per sequence is decided on the host: fewer launches.
        of_each = list(zip(*torch.stack([lengths, end, first]).tolist()))
        return Padding(
            none=all(length == rows for length, _, _ in of_each),
            right=all(length == end for length, end, _ in of_each),
            runs=all(length == end - first for length, end, first in of_each),
            first=first,
            lengths=lengths,
        )  # of no valid token: first, end and length are 0

    made: Padding = once(mask, "padding", compute)
    return made


def right_padded(rows: int, mask: Tensor, arguments: Arguments) -> Arguments | None:
    """The arguments of attention to valid keys where tokens are padded on the right: the tensors
    stay as they are. None if they are padded otherwise."""
    if torch.compiler.is_compiling() or (_placed(arguments) and rows != mask.shape[1]):
        return None
    where = padding_of(mask)
    if not where.right:
        return None
    queries = where.lengths
    if not _placed(arguments):
        queries = once(mask, f"rows {rows}", lambda x: torch.full_like(where.lengths, rows))
    return arguments._replace(q_lens=queries, kv_lens=where.lengths)


def padded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, arguments: Arguments) -> Tensor:
    """Attention to valid keys only. Where queries have places among the keys, of valid queries
    only, too, with zeros in the other rows of the result."""
    rows, placed = q.shape[1], _placed(arguments)
    if placed:
        _check_places(rows, mask, arguments)
    right = right_padded(rows, mask, arguments)
    if right is not None:
        return call(q, k, v, right)[0]
    if placed and rows == mask.shape[1] and not torch.compiler.is_compiling():
        where = padding_of(mask)
        if where.runs:
            return _runs(q, k, v, mask, where, arguments)
    return _gathered(q, k, v, mask, arguments, placed)


def _placed(arguments: Arguments) -> bool:
    """Whether queries have places among the keys."""
    return bool(arguments.causal) or arguments.window != (-1, -1)


def _check_places(rows: int, mask: Tensor, arguments: Arguments) -> None:
    """A window counts places: those between a query and a key have to stay when padding goes."""
    if rows > mask.shape[1] or (rows != mask.shape[1] and not arguments.causal):
        raise Error("unsupported", f"query_length {rows}: expected that of keys, {mask.shape[1]}")
    if arguments.window == (-1, -1):
        return
    message = "attention_mask with padding between valid tokens and a sliding window: not supported"
    if torch.compiler.is_compiling():
        torch._assert_async(~_holes(mask), message)
    elif not padding_of(mask).runs:
        raise Error("unsupported", message)


def _holes(valid: Tensor) -> Tensor:
    starts = (valid[:, 1:] & ~valid[:, :-1]).sum(-1) + valid[:, 0]
    return (starts > 1).any()


# ---- runs of valid tokens, in place ----


class _Ends(NamedTuple):
    ends: Tensor
    ids: Tensor  # of dropout: those of the sequences first


def _runs(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, where: Padding, arguments: Arguments
) -> Tensor:
    batch, rows = q.shape[:2]

    def compute(valid: Tensor) -> _Ends:
        begin = torch.arange(batch, dtype=torch.int32, device=valid.device) * rows
        run = begin + where.first
        ends = torch.stack([run, run + where.lengths, begin + rows], -1).flatten()
        number = torch.arange(batch, dtype=torch.int64, device=valid.device)
        ids = torch.stack([number + batch, number, number + 2 * batch], -1).flatten()
        return _Ends(torch.nn.functional.pad(ends, (1, 0)), ids)

    made: _Ends = once(mask, "runs", compute)
    arguments = arguments._replace(
        cu_q=made.ends, cu_kv=made.ends, max_q=rows, max_kv=rows, sequence_ids=made.ids
    )
    o, _ = call(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), arguments)
    valid = mask.flatten()[:, None, None]
    return torch.where(valid, o, 0.0).unflatten(0, (batch, rows))


# ---- valid rows, gathered ----


class _Tokens(NamedTuple):
    rows: Tensor  # of the flattened batch
    ends: Tensor
    longest: int


def _valid(mask: Tensor, last: int) -> _Tokens:
    """The valid ones of the last tokens of each sequence."""

    def compute(valid: Tensor) -> _Tokens:
        valid = valid[:, -last:]
        lengths = valid.sum(dim=-1, dtype=torch.int32)
        rows = valid.flatten().nonzero().flatten()
        ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        return _Tokens(rows, ends, int(lengths.max()))

    made: _Tokens = once(mask, f"valid {last}", compute)
    return made


def _gathered(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, arguments: Arguments, placed: bool
) -> Tensor:
    batch, rows = q.shape[:2]
    keys = _valid(mask, mask.shape[1])
    kept = _valid(mask, rows) if placed else None
    if kept is None:
        packed, longest = q.flatten(0, 1), rows
        ends = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * rows
    else:
        packed, longest, ends = take(q, kept.rows), kept.longest, kept.ends
    arguments = arguments._replace(cu_q=ends, cu_kv=keys.ends, max_q=longest, max_kv=keys.longest)
    o, _ = call(packed, take(k, keys.rows), take(v, keys.rows), arguments)
    if kept is not None:
        o = o.new_zeros(batch * rows, *o.shape[1:]).index_copy(0, kept.rows, o)
    return o.unflatten(0, (batch, rows))


def take(x: Tensor, rows: Tensor) -> Tensor:
    # Each row once: however the gradient is scattered back, nothing is added to anything.
    return x.flatten(0, 1).index_select(0, rows)
