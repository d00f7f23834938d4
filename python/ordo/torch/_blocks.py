"""Block masks as the operators take them, lists on the device of a call; and FlexAttention's.

An ordo.BlockMask cannot change: its lists are copied to a device once. A mask of FlexAttention can:
its lists and the tensors that its rule reads may be written to past PyTorch's counter of writes, by
a CUDA graph or a kernel. So it is read whenever block_mask() is called, by attention() at each call,
and nothing is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._blocks import ARRAYS, BLOCK, WHOLE, BlockMask
from .._library import Error
from ._inputs import Rules, longest


class Blocks(NamedTuple):
    """The lists of a block mask on a device; first and last None where every column is seen."""

    start: Any
    key: Any
    first: Any
    last: Any


_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_streams: dict[torch.device, Any] = {}  # on which lists are made
_captured: list[Blocks] = []  # which CUDA graphs read, for as long as these may run


def blocks_on(mask: BlockMask, device: torch.device) -> Blocks:
    """The lists of a mask on a device, for a call on any stream."""
    graph = "torch.compile" if _compiling() else ""  # it sees tensors: those of another mask need no other graph
    if not graph and _modes():  # tensors that are made here are not what they seem
        return _copied(mask, device)
    if not graph and device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        graph = "a CUDA graph"
    there: Blocks | None = mask.held.get(device)
    if there is None and graph:
        raise Error(
            "unsupported",
            f"block_mask in {graph}: its lists are not on {device}: expected what "
            "ordo.torch.block_mask(mask, device=...) returns",
        )
    if there is None:
        with torch.inference_mode(False):  # a later call may have gradients
            there = mask.held[device] = _upload(mask, device)
    if graph == "a CUDA graph" and not any(there is x for x in _captured):
        _captured.append(there)
    return there


def _upload(mask: BlockMask, device: torch.device) -> Blocks:
    """Copies, complete on every stream when this returns.

    A mask may be deleted while kernels of any stream read its lists, and PyTorch knows of the stream
    alone on which these were made. That is one of their own: their memory becomes that of other lists
    only, which wait here for the device."""
    if device.type != "cuda":
        return _copied(mask, device)
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    torch.cuda.synchronize(device)
    with torch.cuda.stream(_streams[device]):
        return _copied(mask, device)


def _copied(mask: BlockMask, device: torch.device) -> Blocks:
    arrays = (getattr(mask, name) for name in ARRAYS)
    return Blocks(*[None if x is None else torch.tensor(x, device=device) for x in arrays])


class _Several(Error):
    """Rows of a mask of FlexAttention see more than one interval of columns."""


def lists_of_mask(given: Any, q: Tensor, k: Tensor, sequences: Any, rules: Rules) -> Blocks | Tensor:
    """The lists of a mask, ordo's or FlexAttention's, on the device of q, or the elements of one that lists
    cannot say; Error if it is not one of this call."""
    packed, device, heads, mask = q.dim() == 3, q.device, q.shape[-2], given
    if device.type != "cpu" and device.type != "cuda":
        raise Error("unsupported", f"block_mask, q.device {device}: expected cpu or cuda")
    if not isinstance(given, BlockMask):
        if _compiling():
            expected = "expected what ordo.torch.block_mask(mask) returns"
            raise Error("unsupported", f"block_mask in torch.compile: {expected}")
        try:
            mask = block_mask(given, None if packed else sequences, heads)
        except _Several:
            return _all_elements(given).to(device)
    made = blocks_on(mask, device)
    masks, each = made.start.shape[:2]
    names, found_all = ("q_len", "kv_len", "sequences", "heads"), (mask.q_len, mask.kv_len, masks, each)
    sizes = *longest(q, k, rules.max_q, rules.max_kv), 1 if masks == 1 else sequences, 1 if each == 1 else heads
    for name, found, expected in zip(names, found_all, sizes):
        if found != expected:
            raise Error("shape", f"block_mask.{name} {found}: expected {expected}")
    return made


# ---- masks of FlexAttention ----


def block_mask(
    mask: Any, batch: int | None = None, heads: int | None = None, *, device: Any = None
) -> BlockMask:
    """A block mask of torch.nn.attention.flex_attention as it is now, as an ordo.BlockMask.

    Of its partial blocks each row has to see one interval of columns. Waits for the device of the mask.
    What is written to its lists or to tensors of its rule later does not count.

    Lists that all sequences or heads share are those of b or h 0: a mask_mod that depends on b or h
    is refused then, unless `batch` or `heads`, of the calls that the result is for, is 1.

    The result's lists are copied to `device`, or with a mask on CUDA to its device, where graphs of
    torch.compile and CUDA graphs find them; an ordo.BlockMask is given back, with its lists there.
    """
    if isinstance(mask, BlockMask):
        made = mask
    elif hasattr(mask, "kv_num_blocks") and hasattr(mask, "mask_mod"):
        made = _converted(mask, batch, heads)
        device = mask.kv_num_blocks.device if device is None else device
    else:
        raise Error("argument", f"block_mask {mask!r}: expected ordo.BlockMask or FlexAttention's")
    if device is not None:
        blocks_on(made, torch.empty(0, device=device).device)  # with its number
    return made


def _converted(mask: Any, batch: int | None, heads: int | None) -> BlockMask:
    if tuple(mask.BLOCK_SIZE) != (BLOCK, BLOCK):
        raise Error("unsupported", f"block_mask.BLOCK_SIZE {mask.BLOCK_SIZE}: expected 128 x 128")
    for axis, (name, count) in enumerate((("b", batch), ("h", heads))):
        if count != 1 and mask.kv_num_blocks.shape[axis] == 1 and _depends(mask, axis):
            raise Error(
                "unsupported",
                f"block_mask.mask_mod: depends on {name}, and the lists of blocks are those of "
                f"{name} 0: expected create_block_mask() with {name.upper()}, not None",
            )
    rows, columns = mask.seq_lengths
    shape, blocks = mask.kv_num_blocks.shape[:2], -(-rows // BLOCK)
    if mask.kv_num_blocks.shape[2] < blocks:  # a part of a mask, which has the lengths of the whole
        found = f"block_mask.kv_num_blocks.shape {tuple(mask.kv_num_blocks.shape)}"
        raise Error("shape", f"{found}: expected {blocks} rows of blocks, of {rows} rows")
    parts = _places(mask.kv_num_blocks, mask.kv_indices, blocks)
    fulls = _places(mask.full_kv_num_blocks, mask.full_kv_indices, blocks)
    first, last = _intervals(mask, parts, rows, columns)
    b, h, i, j = np.concatenate((parts, fulls), 1)
    whole = np.repeat((0, WHOLE), (parts.shape[1], fulls.shape[1]))
    row = (b * shape[1] + h) * blocks + i
    order = np.lexsort((j, row))
    ends = np.searchsorted(row[order], np.arange(shape[0] * shape[1] * blocks + 1))
    at = np.arange(shape[0] * shape[1])[:, None] * blocks + np.arange(blocks + 1)
    start = ends[at].reshape(*shape, blocks + 1).astype(np.int32)
    return BlockMask(rows, columns, start, (j | whole)[order].astype(np.int32), first, last)


def _depends(mask: Any, axis: int) -> bool:
    """Whether the rule depends on b (axis 0) or h (axis 1), or does what vmap cannot follow. vmap
    knows which results follow from its argument, and refuses out_dims None for them."""
    one = torch.zeros(1, dtype=torch.int64, device=mask.kv_num_blocks.device)

    def elements(x: Tensor) -> Tensor:
        b, h = (x if at == axis else one[0] for at in (0, 1))

        def element(row: Tensor, column: Tensor) -> Tensor:
            with _Shaped(x, one[0]):
                return torch.as_tensor(mask.mask_mod(b, h, row, column), device=one.device)

        return torch.vmap(element)(one, one)

    try:
        torch.vmap(elements, out_dims=None)(one)
    except Exception:  # vmap's, whose kinds are many: a rule that is wrong fails when it is read
        return True
    return False


class _Shaped(TorchFunctionMode):
    """Tensors with the type and device of x are made from `alike` instead, so that vmap does not
    take them for results of x: and_masks() and noop_mask() of FlexAttention make such."""

    def __init__(self, x: Tensor, alike: Tensor) -> None:
        super().__init__()
        self.x, self.alike = x, alike

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _MADE_ALIKE and args and args[0] is self.x:
            args = self.alike, *args[1:]
        return func(*args, **(kwargs or {}))


_MADE_ALIKE = (
    Tensor.new_ones, Tensor.new_zeros, Tensor.new_full,
    torch.ones_like, torch.zeros_like, torch.full_like,
)  # fmt: skip


def _places(counts: Tensor | None, indices: Tensor | None, blocks: int) -> Any:
    """(sequence, head, row of blocks, column of blocks) of each block, as rows of an array."""
    if counts is None or indices is None:
        return np.zeros((4, 0), np.int64)
    number, index = counts[:, :, :blocks].cpu().numpy(), indices[:, :, :blocks].cpu().numpy()
    b, h, i, at = np.nonzero(np.arange(index.shape[-1]) < number[..., None])
    return np.stack((b, h, i, index[b, h, i, at].astype(np.int64)))


_AT_ONCE = 1 << 9  # blocks whose elements are computed together


def _intervals(mask: Any, parts: Any, rows: int, columns: int) -> Any:
    """The first and the last column that each row sees of partial blocks; if none, one behind the
    columns and -1."""
    shape = *mask.kv_num_blocks.shape[:2], -(-rows // BLOCK) * BLOCK
    first, last = np.full(shape, columns, np.int32), np.full(shape, -1, np.int32)
    seen, between = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    pieces = [parts[:, at : at + _AT_ONCE] for at in range(0, parts.shape[1], _AT_ONCE)]
    for some in pieces:
        b, h, i, j = some
        lines = i[:, None] * BLOCK + np.arange(BLOCK)
        at = b[:, None], h[:, None], lines
        low, high, count = _seen(mask, some, rows, columns)
        np.minimum.at(first, at, low)
        np.maximum.at(last, at, high)
        np.add.at(seen, at, count)
    for some in pieces:  # columns of listed blocks between the first and the last
        b, h, i, j = some
        at = b[:, None], h[:, None], i[:, None] * BLOCK + np.arange(BLOCK)
        end = np.minimum((j + 1) * BLOCK, columns)[:, None]
        inside = np.minimum(last[at] + 1, end) - np.maximum(first[at], j[:, None] * BLOCK)
        np.add.at(between, at, np.maximum(inside, 0))
    wrong = np.argwhere(seen != between)
    if len(wrong):
        b, h, row = wrong[0]
        raise _Several(
            "unsupported",
            f"block_mask.mask_mod: row {row} sees columns {first[b, h, row]} and {last[b, h, row]}, but "
            "not all between them: expected one interval of columns per row in partial blocks, as "
            "documents, causal masks and windows have",
        )
    return tuple(np.ascontiguousarray(x[..., :rows]) for x in (first, last))


def _all_elements(mask: Any) -> Tensor:
    """(sequence or 1, head or 1, row, column): blocks that are not listed are hidden."""
    rows, columns = mask.seq_lengths
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    made = torch.zeros(*mask.kv_num_blocks.shape[:2], down, BLOCK, across, BLOCK, dtype=torch.bool)
    parts = _places(mask.kv_num_blocks, mask.kv_indices, down)
    for some in np.split(parts, range(_AT_ONCE, parts.shape[1], _AT_ONCE), axis=1):
        b, h, i, j = some
        made[b, h, i, :, j] = _elements(mask, some, rows, columns)[0].cpu()
    b, h, i, j = _places(mask.full_kv_num_blocks, mask.full_kv_indices, down)
    made[b, h, i, :, j] = True
    return made.flatten(4, 5).flatten(2, 3)[:, :, :rows, :columns]


def _seen(mask: Any, some: Any, rows: int, columns: int) -> Any:
    """Of each row of these blocks: the first and last column that it sees, and how many."""
    made, column = _elements(mask, some, rows, columns)
    ones = made.to(torch.int8)
    any_ = made.any(-1)
    low = torch.where(any_, column[:, :1] + ones.argmax(-1), columns)
    high = torch.where(any_, column[:, -1:] - ones.flip(-1).argmax(-1), -1)
    return [x.cpu().numpy() for x in (low.int(), high.int(), made.sum(-1))]


def _elements(mask: Any, some: Any, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Whether each element of these blocks is seen, and the numbers of the blocks' columns."""
    device = mask.kv_num_blocks.device

    def element(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return torch.as_tensor(mask.mask_mod(b, h, row, column), device=device)

    # Rules are written for single elements.
    each = torch.vmap(torch.vmap(torch.vmap(element, (None, None, None, 0)), (None, None, 0, None)))
    b, h, i, j = torch.from_numpy(np.ascontiguousarray(some)).to(device)
    inner = torch.arange(BLOCK, device=device)
    row, column = i[:, None] * BLOCK + inner, j[:, None] * BLOCK + inner
    # A rule may read tensors by row and column: those outside are read as the last ones.
    made = each(b, h, row.clamp(max=rows - 1), column.clamp(max=columns - 1)).bool()
    return made & (row < rows)[:, :, None] & (column < columns)[:, None], column
