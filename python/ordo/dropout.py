"""Which elements dropout keeps (ordo/dropout.h): one by one, as packed bits, or as a matrix.

Whether an element is kept is a pure function of (seed, offset, sequence, head, row, column) and
of the problem's dropout parameters: every backend, both passes and any later recomputation agree.
docs/design/dropout-bits.md defines it. Each function takes a Problem or a Plan first.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_bool, c_int, c_size_t, c_uint32, c_uint64
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _structs as s
from ._arrays import Array, address, check_kind, numbers
from ._convert import integer, read
from ._library import Error, lib
from ._plan import Plan
from ._problem import Problem, to_c
from ._words import Keying

__all__ = ["DropoutInfo", "export", "fill", "keep", "philox4x32", "query"]

BLOCK_WORDS = 64  # a block has 16 rows x 128 columns

Numbers = Sequence[int] | Array | None


@dataclass(frozen=True)
class DropoutInfo:
    """Sizes of a problem's keep bits, and the parameters that decide them."""

    blocks: int  # 16 rows x 128 columns each, over all sequences and heads
    bytes: int  # all packed bits: 256 a block
    elements: int
    keying: Keying
    rounds: int
    bits: int
    threshold: int  # keep if a draw of `bits` bits is below it
    p_used: float  # 1 - threshold / 2^bits
    scale: float  # factor of kept elements


class _Call:
    """An ordo_dropout_call with the arrays it points at."""

    def __init__(
        self,
        problem: Problem | Plan,
        seed: int,
        offset: int,
        cu_q: Numbers,
        cu_kv: Numbers,
        sequence_ids: Numbers,
        threads: int = 0,
        experiment_rounds: int = 0,
    ) -> None:
        whole = problem.problem if isinstance(problem, Plan) else problem
        raw = s.sized(s.ordo_dropout_call)
        raw.seed = integer("seed", seed, c_uint64)
        raw.offset = integer("offset", offset, c_uint64)
        raw.threads = integer("threads", threads, c_int)
        raw.experiment_rounds = integer("experiment_rounds", experiment_rounds, c_int)
        self._held: list[Array] = []
        for name, given, count, dtype in (
            ("cu_q", cu_q, whole.batch + 1, np.int32),
            ("cu_kv", cu_kv, whole.batch + 1, np.int32),
            ("sequence_ids", sequence_ids, whole.batch, np.int64),
        ):
            if given is not None:
                self._held.append(numbers(name, given, count, dtype))
                setattr(raw, name, address(self._held[-1]))
        self.problem, self.raw = to_c(whole), raw
        self.arguments = byref(self.problem), byref(raw)

    def info(self) -> DropoutInfo:
        raw = s.ordo_dropout_info()
        lib.ordo_dropout_query(*self.arguments, byref(raw))
        info: DropoutInfo = read(DropoutInfo, raw)
        return info


def query(
    problem: Problem | Plan,
    *,
    seed: int = 0,
    offset: int = 0,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    sequence_ids: Numbers = None,
) -> DropoutInfo:
    """Check the arguments; sizes and parameters."""
    return _Call(problem, seed, offset, cu_q, cu_kv, sequence_ids).info()


def keep(
    problem: Problem | Plan,
    sequence: int,
    head: int,
    row: int,
    column: int,
    *,
    seed: int = 0,
    offset: int = 0,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    sequence_ids: Numbers = None,
) -> bool:
    """Whether one element is kept. `sequence` is an index in the batch."""
    call = _Call(problem, seed, offset, cu_q, cu_kv, sequence_ids)
    place = [integer(n, x) for n, x in zip(("sequence", "head", "row", "column"),
                                           (sequence, head, row, column))]  # fmt: skip
    kept = c_bool()
    lib.ordo_dropout_keep(*call.arguments, *place, byref(kept))
    return kept.value


def fill(
    problem: Problem | Plan,
    *,
    seed: int = 0,
    offset: int = 0,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    sequence_ids: Numbers = None,
    first: int = 0,
    count: int | None = None,
    out: Array | None = None,
    threads: int = 0,
    experiment_rounds: int = 0,
) -> Array:
    """Packed keep bits in storage order: 64 uint32 a block, `count` blocks from `first` on.

    All blocks by default: what forward() and backward() take as `keep_bits`. Any cut of the
    blocks and any number of threads give the same words.
    """
    call = _Call(problem, seed, offset, cu_q, cu_kv, sequence_ids, threads, experiment_rounds)
    first = integer("first", first, c_uint64)
    blocks = call.info().blocks - first if count is None else count
    blocks = integer("count", max(blocks, 0) if count is None else blocks, c_uint64)
    if out is None:
        if first + blocks > call.info().blocks:
            raise Error(
                "argument", f"first {first}, count {blocks}: expected {call.info().blocks} blocks"
            )
        out = np.empty(blocks * BLOCK_WORDS, np.uint32)
    out = _words("out", out)
    if not out.flags.writeable:
        raise Error("argument", "out read-only: expected an array that can be written")
    lib.ordo_dropout_fill(*call.arguments, first, blocks, address(out), out.nbytes)
    return out


def export(
    problem: Problem | Plan,
    *,
    sequence: int = 0,
    head: int = 0,
    rows: tuple[int, int] | None = None,
    cols: tuple[int, int] | None = None,
    words: Array | None = None,
    bits: bool = False,
    seed: int = 0,
    offset: int = 0,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    sequence_ids: Numbers = None,
    experiment_rounds: int = 0,
) -> Array:
    """A rectangle of one head as a bool array (rows, columns): True is kept.

    `rows` and `cols` are (first, end), None = all. `words` are the packed bits of the whole
    problem, as fill() gives them; without them they are generated. With `bits`, a uint8 array
    of 8 elements per byte, lowest bit first, as numpy.unpackbits(..., bitorder="little") reads it.
    """
    whole = problem.problem if isinstance(problem, Plan) else problem
    call = _Call(
        problem, seed, offset, cu_q, cu_kv, sequence_ids, experiment_rounds=experiment_rounds
    )
    place = None
    if words is not None:
        words = check_words(whole, words, cu_q, cu_kv)
        place = address(words)
    part = s.sized(s.ordo_dropout_part)
    part.sequence, part.head = integer("sequence", sequence), integer("head", head)
    part.format = 1 if bits else 0
    lengths = _lengths(whole, part.sequence, cu_q, cu_kv)
    part.row, part.rows = _range("rows", rows, lengths[0])
    part.col, part.cols = _range("cols", cols, lengths[1])
    shape = part.rows, -(-part.cols // 8) if bits else part.cols
    if 0 in shape:  # to the library a count of 0 means all
        return np.empty(shape, np.uint8 if bits else np.bool_)
    needed = c_size_t()
    lib.ordo_dropout_export(*call.arguments, place, byref(part), None, 0, byref(needed))
    out = np.empty(shape, np.uint8)
    if needed.value != out.nbytes:
        raise Error("internal", f"export: {needed.value} bytes, expected {out.nbytes}")
    lib.ordo_dropout_export(*call.arguments, place, byref(part), address(out), out.nbytes, None)
    return out if bits else out.view(np.bool_)


def philox4x32(counter: Sequence[int], key: Sequence[int], rounds: int = 7) -> tuple[int, ...]:
    """The generator underneath: four words of Philox4x32 with 1 to 10 rounds."""
    start, secret, words = _few("counter", counter, 4), _few("key", key, 2), (c_uint32 * 4)()
    lib.ordo_philox4x32(start, secret, integer("rounds", rounds, c_int), words)
    return tuple(words)


# ---- checks ----


def _few(name: str, given: Sequence[int], count: int) -> Any:
    if len(given) != count:
        raise Error("shape", f"{name} {given}: expected {count} words")
    return (c_uint32 * count)(*(integer(name, word, c_uint32) for word in given))


def _words(name: str, words: Any) -> Array:
    check_kind(name, words)
    made: Array = words
    if made.dtype != np.uint32:
        raise Error("argument", f"{name}.dtype {made.dtype}: expected uint32")
    if not made.flags.c_contiguous:
        raise Error("align", f"{name}.strides {made.strides}: expected a contiguous array")
    return made


def check_words(problem: Problem, words: Any, cu_q: Numbers, cu_kv: Numbers) -> Array:
    """Packed bits of a whole problem: as many as it has, for the library cannot count them."""
    needed = _Call(problem, 0, 0, cu_q, cu_kv, None).info().bytes
    made = _words("keep_bits", words)
    if made.nbytes < needed:
        raise Error("shape", f"keep_bits {made.nbytes} bytes: expected {needed}")
    return made


def _lengths(problem: Problem, sequence: int, cu_q: Numbers, cu_kv: Numbers) -> tuple[int, int]:
    if not 0 <= sequence < problem.batch:
        raise Error("argument", f"sequence {sequence}: expected 0..{problem.batch - 1}")
    if problem.layout != "packed" or cu_q is None or cu_kv is None:
        return problem.q_len, problem.kv_len or problem.q_len
    return (
        int(cu_q[sequence + 1]) - int(cu_q[sequence]),
        int(cu_kv[sequence + 1]) - int(cu_kv[sequence]),
    )


def _range(name: str, given: tuple[int, int] | None, length: int) -> tuple[int, int]:
    if given is None:
        return 0, length
    first, end = (integer(name, x) for x in given)
    if not 0 <= first <= end <= length:
        raise Error("argument", f"{name} {given}: expected 0 <= first <= end <= {length}")
    return first, end - first
