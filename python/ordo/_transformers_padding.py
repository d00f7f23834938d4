"""Which rows of a batch of transformers are computed: those of valid tokens, and chunks.

Whether the tokens of a sequence are one run, and where it begins, decides how a batch is computed,
so that the host has to know. It reads one line of answers per mask, not per layer. Where all
sequences begin with their first token (padding on the right), nothing is copied: the batch has the
padded layout, and its lengths stay on the device. Otherwise the valid rows are gathered into a
packed batch. The chunks of a causal mask are sequences of a packed batch, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ._library import Error
from .torch._call import Arguments

# What follows from a mask is the same in every layer: it is computed, and waited for, once. By kind
# and whether in inference mode: (the mask's version, the answer).
_known: Any = WeakTensorKeyDictionary()


T = TypeVar("T")


def keeps_numbers() -> bool:
    """Whether torch.export, torch.jit.trace or make_fx records, for which what the host reads of a mask
    is a constant of the graph. Dynamo, to which is_exporting() is always true, checks what it read."""
    return not torch.compiler.is_dynamo_compiling() and (
        torch.compiler.is_exporting() or torch.jit.is_tracing()
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
    )  # fmt: skip


def once(mask: Tensor, kind: str, compute: Callable[[Tensor], T]) -> T:
    """compute(mask), computed again only when the mask has been written to."""
    if torch.compiler.is_compiling() or keeps_numbers() or mask.is_inference():
        return compute(mask)
    cached: dict[Any, tuple[int, Any]] = _known.setdefault(mask, {})
    at = kind, torch.is_inference_mode_enabled()  # what is made there cannot be saved for backward
    if at not in cached or cached[at][0] != mask._version:
        cached[at] = (mask._version, compute(mask))
    return cached[at][1]  # type: ignore[no-any-return]


class Padding(NamedTuple):
    """Where the valid tokens of a batch are."""

    none: bool  # all are valid
    right: bool  # each sequence is one run from its first token on
    runs: bool  # each sequence is one run
    lengths: Tensor  # int32


def padding_of(mask: Tensor) -> Padding:
    """Look at a mask of valid tokens, bool, (batch, key). Waits for the device, once per mask."""

    def compute(valid: Tensor) -> Padding:
        rows, runs = valid.shape[1], _runs(valid)
        # What follows from three numbers per sequence is decided on the host: fewer launches.
        of_each = list(zip(*torch.stack(runs).tolist()))
        return Padding(
            none=all(length == rows for length, _, _ in of_each),
            right=all(length == end for length, _, end in of_each),
            runs=all(length == end - first for length, first, end in of_each),
            lengths=runs[0],
        )

    return once(mask, "padding", compute)


def _runs(valid: Tensor) -> list[Tensor]:
    """How many tokens of each sequence are valid, the first one of them and the last one + 1; all 0 of
    none. int32."""
    lengths = valid.sum(dim=-1, dtype=torch.int32)
    if not valid.shape[1]:
        return [lengths] * 3
    place = torch.arange(1, valid.shape[1] + 1, dtype=torch.int32, device=valid.device)
    first = valid.view(torch.uint8).argmax(dim=-1).to(torch.int32)
    return [lengths, first, (place * valid).amax(dim=-1)]


def right_padded(rows: int, mask: Tensor, arguments: Arguments) -> Arguments | None:
    """The arguments of attention to valid keys where tokens are padded on the right; else None."""
    if torch.compiler.is_compiling() or (_placed(arguments) and rows != mask.shape[1]):
        return None
    where = padding_of(mask)
    if not where.right:
        return None
    queries = where.lengths if _placed(arguments) else None
    return arguments._replace(q_lens=queries, kv_lens=where.lengths)


def _placed(arguments: Arguments) -> bool:
    """Whether queries have places among the keys."""
    return bool(arguments.causal) or arguments.window != (-1, -1)


def _check_places(rows: int, mask: Tensor, arguments: Arguments) -> None:
    """A window counts places: those between a query and a key have to stay when padding goes."""
    if rows > mask.shape[1] or (rows != mask.shape[1] and not arguments.causal):
        raise Error("unsupported", f"query_length {rows}: expected that of keys, {mask.shape[1]}")
    if arguments.window == (-1, -1):
        return
    if torch.compiler.is_compiling():
        lengths, first, end = _runs(mask)
        message = "attention_mask with padding between valid tokens and a sliding window: not supported"
        torch._assert_async((lengths == end - first).all(), message)


# ---- sequences end to end ----


class Tokens(NamedTuple):
    rows: Tensor | None  # indices in the flattened batch; None: all
    ends: Tensor  # where sequences end, after a first 0
    longest: int


class Packed(NamedTuple):
    """A batch as sequences end to end."""

    q: Tokens
    kv: Tokens


def taken(x: Tensor, tokens: Tokens) -> Tensor:
    """Rows of the flattened batch. Each once: however the gradient is scattered back, nothing is
    added to anything."""
    return x.flatten(0, 1) if tokens.rows is None else x.flatten(0, 1).index_select(0, tokens.rows)


def of_ends(ends: Tensor, longest: int | None) -> Tokens:
    """All rows; reads the longest sequence from the device if it is not given."""
    return Tokens(None, ends, once(ends, "longest", lambda x: int(x.diff().max())) if longest is None else longest)


def of_runs(packing: Tensor) -> Packed:
    """Each run of equal numbers, row after row, is a sequence."""

    def compute(numbers: Tensor) -> Packed:
        first = torch.ones_like(numbers, dtype=torch.bool)
        first[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
        starts = first.flatten().nonzero().flatten().to(torch.int32)
        ends = torch.nn.functional.pad(starts, (0, 1), value=numbers.numel())
        runs = Tokens(None, ends, int(ends.diff().max()))
        return Packed(runs, runs)

    return once(packing, "runs", compute)


def of_valid(batch: int, rows: int, mask: Tensor, arguments: Arguments) -> Packed:
    """Valid keys only. Where queries have places among the keys, valid queries only, too."""
    keys = _valid(mask, mask.shape[1])
    if _placed(arguments):
        _check_places(rows, mask, arguments)
        return Packed(_valid(mask, rows), keys)
    ends = torch.arange(batch + 1, dtype=torch.int32, device=mask.device) * rows
    return Packed(Tokens(None, ends, rows), keys)


def _valid(mask: Tensor, last: int) -> Tokens:
    """The valid ones of the last tokens of each sequence."""

    def compute(valid: Tensor) -> Tokens:
        valid = valid[:, -last:]
        lengths = valid.sum(dim=-1, dtype=torch.int32)
        rows = valid.flatten().nonzero().flatten()
        ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        return Tokens(rows, ends, int(lengths.max()))

    return once(mask, f"valid {last}", compute)


def of_chunks(batch: int, rows: int, keys: int, pattern: Any) -> Packed:
    """The chunks of a causal pattern, of valid tokens only. Queries come last among the keys."""

    def compute(shift: Tensor) -> Packed:
        places = torch.arange(keys, device=shift.device)
        numbers = (places + shift.view(-1, 1)).expand(batch, keys)
        numbers = numbers.div(pattern.chunk, rounding_mode="floor")
        most = (keys - 1) // pattern.chunk + 2  # chunks that keys of a sequence can be in
        first = torch.arange(batch, device=shift.device).view(-1, 1) * most
        numbers = numbers - numbers[:, :1] + first
        bounds = torch.arange(batch * most + 1, device=shift.device)
        made: list[Tokens] = []
        for last in (rows, keys):
            mine, kept = numbers[:, keys - last :].flatten(), None
            if pattern.valid is not None:
                kept = pattern.valid[:, keys - last :].flatten().nonzero().flatten()
                mine = mine[kept]
            ends = torch.searchsorted(mine, bounds).to(torch.int32)
            made.append(Tokens(kept, ends, min(pattern.chunk, last)))
        return Packed(*made)

    valid = pattern.valid
    writes = 0 if valid is None or valid.is_inference() else valid._version
    return once(pattern.shift, f"chunks {batch} {rows} {keys} {writes}", compute)
