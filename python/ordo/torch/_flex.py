"""Block masks of FlexAttention as ordo's.

Nothing tells whether such a mask is still what it was: its lists and the tensors that its rule reads
may be written to past PyTorch's counter of writes, by a CUDA graph or a kernel. So a mask is read
whenever block_mask() is called, by attention() at each call, and nothing is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._blocks import BLOCK, WHOLE, BlockMask
from .._library import Error


def block_mask(mask: Any, batch: int | None = None, heads: int | None = None) -> BlockMask:
    """A block mask of torch.nn.attention.flex_attention as it is now, as an ordo.BlockMask.

    Its full blocks are whole. The elements of the others are those of its mask_mod, of which each
    row has to see one interval of columns: documents, causal masks and windows do. Waits for the
    device of the mask. What is written to its lists or to tensors of its rule later does not count.

    Lists that all sequences or heads share are those of b or h 0: a mask_mod that depends on b or h
    is refused then, unless `batch` or `heads`, of the calls that the result is for, is 1.
    """
    if not hasattr(mask, "kv_num_blocks") or not hasattr(mask, "mask_mod"):
        raise Error("argument", f"block_mask {mask!r}: expected ordo.BlockMask or FlexAttention's")
    if tuple(mask.BLOCK_SIZE) != (BLOCK, BLOCK):
        raise Error("unsupported", f"block_mask.BLOCK_SIZE {mask.BLOCK_SIZE}: expected 128 x 128")
    for axis, (name, count) in enumerate((("b", batch), ("h", heads))):
        if count != 1 and mask.kv_num_blocks.shape[axis] == 1 and _depends(mask, axis):
            raise Error(
                "unsupported",
                f"block_mask.mask_mod: depends on {name}, and the lists of blocks are those of "
                f"{name} 0: expected create_block_mask() with {name.upper()}, not None",
            )
    part = _on_host(mask.kv_num_blocks, mask.kv_indices)
    full = _on_host(mask.full_kv_num_blocks, mask.full_kv_indices)
    sequences, count = mask.kv_num_blocks.shape[:2]
    return BlockMask.join(
        [[_one(mask, b, h, part, full) for h in range(count)] for b in range(sequences)]
    )


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


_Lists = tuple[Any, Any] | None  # numbers of blocks, and the blocks, of each row of blocks


def _on_host(counts: Tensor | None, indices: Tensor | None) -> _Lists:
    if counts is None or indices is None:
        return None
    return counts.cpu().numpy(), indices.cpu().numpy()


def _listed(lists: _Lists, b: int, h: int, i: int) -> list[int]:
    if lists is None:
        return []
    made: list[int] = lists[1][b, h, i, : lists[0][b, h, i]].tolist()
    return made


def _one(mask: Any, b: int, h: int, parts: _Lists, fulls: _Lists) -> BlockMask:
    rows, columns = mask.seq_lengths
    blocks = -(-rows // BLOCK)
    start, key = [0], []
    first, last = np.full(rows, columns, np.int32), np.full(rows, -1, np.int32)
    for i in range(blocks):
        part, full = _listed(parts, b, h, i), _listed(fulls, b, h, i)
        lines = np.arange(i * BLOCK, min((i + 1) * BLOCK, rows))
        if part:
            first[lines], last[lines] = _intervals(mask, b, h, lines, part)
        key += sorted([(j, j) for j in part] + [(j, j | WHOLE) for j in full])
        start.append(len(key))
    lists = (np.array(x, np.int32) for x in (start, [entry for _, entry in key]))
    heads, keys = lists
    return BlockMask(rows, columns, heads.reshape(1, 1, -1), keys,
                     first.reshape(1, 1, -1), last.reshape(1, 1, -1))  # fmt: skip


def _intervals(mask: Any, b: int, h: int, lines: Any, part: list[int]) -> tuple[Any, Any]:
    """The first and the last column that each row sees of partial blocks; if none, one behind the
    columns and -1."""
    columns = mask.seq_lengths[1]
    device = mask.kv_num_blocks.device
    places = np.concatenate([np.arange(j * BLOCK, (j + 1) * BLOCK) for j in sorted(part)])
    places = places[places < columns]
    sequence, head = (torch.tensor(x, device=device) for x in (b, h))

    def one(row: Tensor, column: Tensor) -> Tensor:
        return torch.as_tensor(mask.mask_mod(sequence, head, row, column), device=device)

    each = torch.vmap(torch.vmap(one, (None, 0)), (0, None))  # of single elements: the rule's words
    given = (torch.as_tensor(x, device=device) for x in (lines, places))
    seen = each(*given).bool().cpu().numpy()
    some = seen.any(1)
    first = np.where(some, places[seen.argmax(1)], columns)
    last = np.where(some, places[len(places) - 1 - seen[:, ::-1].argmax(1)], -1)
    inside = (places >= first[:, None]) & (places <= last[:, None])
    wrong = np.argwhere(inside & ~seen)
    if len(wrong):
        row, column = wrong[0]
        raise Error(
            "unsupported",
            f"block_mask.mask_mod: row {lines[row]} sees columns {first[row]} and {last[row]}, but "
            f"not {places[column]}: expected one interval of columns per row in partial blocks, as "
            "documents, causal masks and windows have",
        )
    return first, last
