"""Block masks: which blocks of 128 x 128 elements the rows of a sequence see (ordo/blocks.h)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_int32, c_int64, cast
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from . import _structs as s
from ._arrays import Array, address, numbers
from ._convert import integer
from ._library import BLOCK_RULE, Error, lib
from ._plan import Plan
from ._problem import BlockLimits, Problem
from ._words import TABLES, mask_of

ARRAYS = "start", "key", "first", "last"
BLOCK = 128
WHOLE = 1 << 30  # in an entry of key: the interval of a row does not apply


@dataclass(frozen=True, eq=False)
class BlockMask:
    """Lists of visible blocks, for every sequence and head or shared by them.

    Row i of blocks of a mask has entries start[i] up to start[i + 1] of key: blocks of columns,
    ascending, with WHOLE or without. Row r sees columns first[r] .. last[r] of the blocks without
    it. The mask narrows the mask of the problem. All arrays are int32. They are copied and checked
    when the mask is made, and cannot be written to.
    """

    q_len: int
    kv_len: int
    start: Array  # (sequences, heads, rows of blocks + 1)
    key: Array  # (entries,)
    first: Array | None = None  # (sequences, heads, q_len); both or neither
    last: Array | None = None
    held: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)  # by ordo.torch

    def __post_init__(self) -> None:
        for name in ARRAYS:
            array = getattr(self, name)
            if isinstance(array, np.ndarray):
                vars(self)[name] = _fixed(array.copy("C"))
        _check_lists(self)

    def __reduce__(self) -> Any:  # copies are made, and checked, as masks are
        return BlockMask, (self.q_len, self.kv_len, self.start, self.key, self.first, self.last)

    @staticmethod
    def from_intervals(first: Any, last: Any, kv_len: int) -> BlockMask:
        """Row i sees columns first[i] .. last[i]; first > last: none."""
        rows = numbers("first", first, np.size(first), np.int32)
        ends = numbers("last", last, len(rows), np.int32)
        function = lib.ordo_block_mask_from_intervals
        return _made(function, len(rows), _length("kv_len", kv_len), address(rows), address(ends))

    @staticmethod
    def from_function(
        q_len: int, kv_len: int, sees: Callable[[int, int], bool]
    ) -> BlockMask:
        """`sees` is called for each (row, column). Each row must see one interval of the columns in
        blocks that it sees in part."""
        raised: list[BaseException] = []

        def rule(context: Any, row: int, column: int) -> bool:
            try:
                return not raised and bool(sees(row, column))
            except BaseException as error:  # cannot pass through C
                raised.append(error)
                return False

        lengths = _length("q_len", q_len), _length("kv_len", kv_len)
        try:
            return _made(lib.ordo_block_mask_from_function, *lengths, BLOCK_RULE(rule), None)
        finally:
            if raised:
                raise raised[0]

    @staticmethod
    def from_documents(ids: Any) -> BlockMask:
        """Rows see the columns with their own id: (rows,), or (batch, rows) for a mask per
        sequence. Negative ids belong to no document."""
        given = np.asarray(ids)
        if given.ndim == 2:
            return BlockMask.join([[BlockMask.from_documents(one)] for one in given])
        ids = numbers("ids", given, given.size, np.int64)
        return _made(lib.ordo_block_mask_from_documents, len(ids), address(ids))

    @staticmethod
    def from_chunks(q_len: int, kv_len: int, chunk: int, offset: int = 0) -> BlockMask:
        """Rows see the columns of their own chunk, counted from column `offset`; the last row is at
        the last column."""
        lengths = _length("q_len", q_len), _length("kv_len", kv_len)
        sizes = _length("chunk", chunk), _length("offset", offset)
        return _made(lib.ordo_block_mask_from_chunks, *lengths, *sizes)

    @staticmethod
    def from_band(
        q_len: int,
        kv_len: int,
        *,
        causal: bool | Literal["bottom-right", "top-left"] = False,
        window: tuple[int, int] | None = None,
    ) -> BlockMask:
        """The block mask of an ordinary mask."""
        lengths = _length("q_len", q_len), _length("kv_len", kv_len)
        kind = TABLES["mask"].number("causal", mask_of(causal))
        band = s.ordo_window(on=window is not None)
        if window is not None:
            band.left, band.right = (integer("window", side, c_int64) for side in window)
        return _made(lib.ordo_block_mask_from_band, *lengths, kind, byref(band))

    @staticmethod
    def join(masks: Sequence[Sequence[BlockMask]]) -> BlockMask:
        """One mask of a list per sequence of a list per head, each of them a single mask."""
        heads = len(masks[0]) if masks else 0
        if heads == 0 or any(len(row) != heads for row in masks):
            raise Error("shape", "masks: expected one list per sequence, all with as many heads")
        structs = [one.to_c() for row in masks for one in row]
        places = (POINTER(s.ordo_block_mask) * len(structs))(*map(_pointer, structs))
        return _made(lib.ordo_block_mask_join, places, len(masks), heads)

    @property
    def limits(self) -> BlockLimits:
        """What a Problem says of this mask, with room for others of about its size."""
        made = self.to_c()
        entries = 1 << max(0, made.entries - 1).bit_length()
        return BlockLimits(
            entries=entries, per_sequence=made.sequences > 1, per_head=made.heads > 1
        )

    def to_c(self) -> s.ordo_block_mask:
        """As a struct, whose addresses are those of the arrays."""
        made: s.ordo_block_mask = s.sized(s.ordo_block_mask)
        made.q_len = _length("block_mask.q_len", self.q_len)
        made.kv_len = _length("block_mask.kv_len", self.kv_len)
        rows = tuple(getattr(self.start, "shape", ()))[:2]  # sequences and heads
        shapes = {
            "start": (*rows, -(-self.q_len // BLOCK) + 1),
            "key": (np.size(self.key),),
            "first": (*rows, self.q_len),
            "last": (*rows, self.q_len),
        }
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array is None and name in ("first", "last"):
                continue
            _check(name, array, shape, 3 if name == "start" else len(shape))
            setattr(made, name, address(array))
        made.sequences, made.heads = rows
        made.entries = len(self.key)
        return made

    def dense(self) -> Array:
        """Every element, bool: (sequences, heads, q_len, kv_len). For tests and pictures."""
        sequences, heads, _ = self.start.shape
        seen = np.zeros((sequences, heads, self.q_len, self.kv_len), bool)
        columns = np.arange(self.kv_len)
        for b, h in np.ndindex(sequences, heads):
            for row in range(self.q_len):
                block = row // BLOCK
                for entry in self.key[self.start[b, h, block] : self.start[b, h, block + 1]]:
                    part = slice((entry & ~WHOLE) * BLOCK, (entry & ~WHOLE) * BLOCK + BLOCK)
                    seen[b, h, row, part] = True
                    if not entry & WHOLE and self.first is not None and self.last is not None:
                        inside = (columns >= self.first[b, h, row]) & (
                            columns <= self.last[b, h, row]
                        )
                        seen[b, h, row, part] &= inside[part]
        return seen


def _fixed(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _check_lists(mask: BlockMask) -> None:
    """Raise Error if the lists are not those of a mask: the library compares them with a plan."""
    made = mask.to_c()
    problem = Problem(
        batch=made.sequences, heads=made.heads, q_len=made.q_len, kv_len=made.kv_len, head_dim=8,
        blocks=mask.limits,
    )  # fmt: skip
    plan = Plan(problem, backend="cpu")
    lib.ordo_block_mask_check_lists(plan._handle, byref(made))


def _check(name: str, array: Any, shape: tuple[int, ...], axes: int) -> None:
    """Raise Error unless the library can read the array."""
    if not isinstance(array, np.ndarray) or array.dtype != np.int32:
        raise Error("argument", f"block_mask.{name}: expected an int32 array")
    if array.ndim != axes or array.shape != shape:
        raise Error("shape", f"block_mask.{name}.shape {array.shape}: expected {shape}")


def _length(name: str, value: Any) -> int:
    return integer(name, value, c_int64)


def _pointer(struct: s.ordo_block_mask) -> Any:
    return POINTER(s.ordo_block_mask)(struct)


def _made(function: Any, *arguments: Any) -> BlockMask:
    """What a function of the library makes, as arrays."""
    mask = POINTER(s.ordo_block_mask)()
    function(byref(mask), *arguments)
    try:
        m = mask.contents
        shape, blocks = (m.sequences, m.heads), -(-m.q_len // BLOCK)
        made = object.__new__(BlockMask)  # whose lists need no check
        vars(made).update(
            q_len=m.q_len,
            kv_len=m.kv_len,
            start=_array(m.start, *shape, blocks + 1),
            key=_array(m.key, m.entries),
            first=_array(m.first, *shape, m.q_len),
            last=_array(m.last, *shape, m.q_len),
            held={},
        )
        return made
    finally:
        lib.ordo_block_mask_destroy(mask)


def _array(place: int, *shape: int) -> Array:
    count = int(np.prod(shape))
    if count == 0:
        return _fixed(np.zeros(shape, np.int32))
    found = np.ctypeslib.as_array(cast(place, POINTER(c_int32)), (count,))
    return _fixed(found.reshape(shape).copy())
