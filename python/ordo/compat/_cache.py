"""Attention over a dense cache of keys and values, which may first be extended in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._convert import integer
from .._library import Error
from ..torch._call import Arguments, plain, prepare, widened, window_of
from ..torch._attention import attend as attend_all, run_inputs
from ..torch._inputs import ask, call_of
from ..torch._pages import Pages
from ._passes import check_integers, check_tensors


class Rotary(NamedTuple):
    """Rotary position embedding of new keys, and of the queries."""

    cos: Tensor  # (position, half of the dimensions that are rotated)
    sin: Tensor
    interleaved: bool  # whether the pairs are neighbours, else the two halves
    start: Tensor | None = None  # position of the first new key; None = the length used


def rotary_of(
    cos: Tensor | None, sin: Tensor | None, interleaved: bool, start: Tensor | None = None
) -> Rotary | None:
    if (cos is None) != (sin is None):
        raise Error("argument", "rotary_cos, rotary_sin: expected both or none of them")
    check_integers(rotary_seqlens=start)
    if cos is None or sin is None:
        return None
    check_tensors(rotary_cos=cos, rotary_sin=sin)
    if cos.dim() != 2:
        shape = tuple(cos.shape)
        raise Error("shape", f"rotary_cos.shape {shape}: expected (position, half of the rotated)")
    if sin.shape != cos.shape:
        shape, expected = tuple(sin.shape), tuple(cos.shape)
        raise Error("shape", f"rotary_sin.shape {shape}: expected that of rotary_cos, {expected}")
    for name, table in (("rotary_cos", cos), ("rotary_sin", sin)):
        if not table.is_floating_point():
            raise Error("argument", f"{name}.dtype {table.dtype}: expected a floating-point type")
    return Rotary(cos, sin, interleaved, start)


class Cache(NamedTuple):
    """k and v are (sequence, row, kv_head, dim); new ones (batch, row, kv_head, dim)."""

    k: Tensor
    v: Tensor
    new_k: Tensor | None
    new_v: Tensor | None
    lengths: int | Tensor | None  # used before the new ones are added; None = all
    batch_idx: Tensor | None  # which sequence of the cache each of the batch is; None = its own
    rotary: Rotary | None
    table: Tensor | None = None  # (batch, pages): k and v are (page, row, kv_head, dim)


def attend(q: Tensor, cache: Cache, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """(out, lse): add the new keys behind those used, then attend to all of them.

    A row has the bits that it has in one pass over the whole sequence: keys are summed in the same
    order, however many there are behind them. No gradients. What can be checked without waiting
    for a device is checked before the cache is written, in graphs of torch.compile too.
    """
    _check(q, cache, arguments)
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        used = _lengths(q, cache)
        rows, used = _rows(q, cache, used)
        q, new_k, new_v = (_apart(x, cache) for x in (q, cache.new_k, cache.new_v))
        if cache.rotary is not None:
            q, new_k, used = _turn(q, new_k, cache, used, arguments)
        total = used if new_k is None else used + new_k.shape[1]
        if cache.table is not None:
            return _attend_pages(q, cache, new_k, new_v, used, arguments._replace(kv_lens=total))
        k, v = cache.k, cache.v
        if cache.batch_idx is not None:
            k, v = k[rows], v[rows]
        inputs = prepare(q, k, v, arguments._replace(kv_lens=total))
        if plain(q, k, v):
            ask(*widened(*inputs[:3]), call_of(inputs[3], inputs[4]))  # before the cache is written
        if new_k is not None and new_v is not None:
            place = used[:, None] + torch.arange(new_k.shape[1], device=q.device)
            for whole, part, new in ((cache.k, k, new_k), (cache.v, v, new_v)):
                whole.index_put_((rows[:, None], place), new)
                if part is not whole:
                    part.index_put_((torch.arange(len(part), device=q.device)[:, None], place), new)
        return attend_all(*inputs)


def _attend_pages(
    q: Tensor, cache: Cache, new_k: Any, new_v: Any, used: Tensor, arguments: Arguments
) -> tuple[Tensor, Tensor]:
    """attend() with a table of pages, through which new keys are written."""
    table: Any = cache.table
    arguments = arguments._replace(page_table=table)
    if new_k is not None:
        pages = Pages(q, cache.k, cache.v, table, arguments.kv_lens, None)
        sequence = torch.arange(len(table), device=q.device)[:, None]
        column = used[:, None] + torch.arange(new_k.shape[1], device=q.device)
        page, row = pages.place(sequence, column)
        place = page * pages.page_rows + row
        most = pages.pages * pages.page_rows - 1
        place = _inside("row of page_table, with k", place, most, place)
        empty = arguments._replace(kv_lens=torch.zeros_like(used), page_table=table[:, :1])
        run_inputs(q[:, :0], cache.k, cache.v, empty)  # what is refused is, before a write
        for whole, new in ((cache.k, new_k), (cache.v, new_v)):
            whole.index_put_((place // pages.page_rows, place % pages.page_rows), new)
    return run_inputs(q, cache.k, cache.v, arguments)[:2]


def _check(q: Tensor, cache: Cache, arguments: Arguments) -> None:
    """The kinds and shapes of all tensors but the lists."""
    check_tensors(q=q, k_cache=cache.k, v_cache=cache.v)
    if cache.table is not None:
        check_tensors(block_table=cache.table)
    if cache.table is not None and cache.table.dim() != 2:
        shape = tuple(cache.table.shape)
        raise Error("shape", f"block_table.shape {shape}: expected (batch, pages)")
    if cache.table is None and arguments.cu_q is not None:
        raise Error("unsupported", "cu_seqlens_q given: expected None without page_table")
    if cache.table is not None and cache.batch_idx is not None:
        raise Error("unsupported", "cache_batch_idx given: expected None with a table of pages")
    if arguments.cu_q is not None and (cache.new_k is not None or cache.rotary is not None):
        raise Error("unsupported", "cu_seqlens_q given, k given: expected queries (batch, row, head, dim)")
    if (cache.new_k is None) != (cache.new_v is None):
        raise Error("argument", "k, v: expected both or none of them")
    for name, x in (("q", q), ("k_cache", cache.k), ("v_cache", cache.v)):
        if x.dim() != (3 if x is q and arguments.cu_q is not None else 4):
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected (batch, row, head, dim)")
    if cache.new_k is None or cache.new_v is None:
        return
    check_tensors(k=cache.new_k, v=cache.new_v)
    added = cache.new_k.shape[1] if cache.new_k.dim() == 4 else 1
    for name, new, whole in (("k", cache.new_k, cache.k), ("v", cache.new_v, cache.v)):
        expected = q.shape[0], added, *whole.shape[2:]
        if new.shape != expected:
            raise Error("shape", f"{name}.shape {tuple(new.shape)}: expected {expected}")
        if new.dtype != whole.dtype:
            raise Error("argument", f"{name}.dtype {new.dtype}: expected {whole.dtype}")


def _lengths(q: Tensor, cache: Cache) -> Tensor:
    """Keys used of each sequence, int32."""
    batch, room = q.shape[0], cache.k.shape[1]
    if cache.table is not None:
        batch, room = cache.table.shape[0], room * cache.table.shape[1]
    given = cache.lengths
    if given is None:
        if cache.new_k is not None:
            raise Error("argument", "cache_seqlens None: expected the lengths used, beside k")
        given = room
    most = room if cache.new_k is None else room - cache.new_k.shape[1]
    if not isinstance(given, Tensor):
        given = integer("cache_seqlens", given)
        _within("cache_seqlens", given, given, most)
        return torch.full((batch,), given, dtype=torch.int32, device=q.device)
    check_integers(cache_seqlens=given)
    if given.dim() == 0:
        given = given.expand(batch)
    elif given.device != q.device:
        wrong = f"cache_seqlens.device {given.device}"
        raise Error("argument", f"{wrong}: expected that of q, {q.device}")
    if given.shape != (batch,):
        raise Error("shape", f"cache_seqlens.shape {tuple(given.shape)}: expected ({batch},)")
    given = _inside("cache_seqlens", given, most, given)
    return given.to(q.device, torch.int32).contiguous()


def _within(name: str, least: int, most: int, limit: int) -> None:
    if least < 0 or most > limit:
        wrong = least if least < 0 else most
        raise Error("argument", f"{name} {wrong}: expected 0..{limit}, {_LIMITS[name]}")


_ONCE = "expected each once, with"
_LIMITS = {
    "cache_seqlens": "the room in the cache",
    "cache_batch_idx": "the sequences of the cache",
    "row of page_table": "the rows of all pages",
    "rotary position": "the rows of rotary_cos",
}


def _rows(q: Tensor, cache: Cache, used: Tensor) -> tuple[Tensor, Tensor]:
    """Which sequence of the cache each one of the batch is; the lengths, which follow the check."""
    index, batch, there = cache.batch_idx, q.shape[0], cache.k.shape[0]
    if cache.table is not None:
        return torch.arange(cache.table.shape[0], device=q.device), used
    if index is None:
        if there != batch:
            shape = tuple(cache.k.shape)
            raise Error("shape", f"k_cache.shape {shape}: expected the batch of q, {batch}")
        return torch.arange(batch, device=q.device), used
    check_integers(cache_batch_idx=index)
    if index.shape != (batch,):
        raise Error("shape", f"cache_batch_idx.shape {tuple(index.shape)}: expected ({batch},)")
    name = "cache_batch_idx" if cache.new_k is None else "cache_batch_idx, with k"
    used = _inside(name, index, there - 1, used)
    return index.long(), used


def _distinct(index: Tensor) -> Tensor:
    """Whether no two entries are equal."""
    return (index.flatten().sort().values.diff() != 0).all()


def _apart(x: Any, cache: Cache) -> Any:
    """x, or a copy if it may be in the memory of the cache, which is written before it is read."""
    if x is None or cache.new_k is None:
        return x
    if plain(x, cache.k, cache.v):
        memory = x.untyped_storage().data_ptr()
        if memory not in (y.untyped_storage().data_ptr() for y in (cache.k, cache.v)):
            return x
    return x.clone()


def _turn(
    q: Tensor, new: Tensor | None, cache: Cache, used: Tensor, arguments: Arguments
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and new keys, rotated by their positions; the lengths, which follow their check.

    Without a causal mask or a window all queries are at the first new position.
    """
    rotary = cache.rotary
    if rotary is None or new is None:
        raise Error("argument", "rotary_cos given: expected k and v to be added to the cache")
    start, batch = used, q.shape[0]
    if rotary.start is not None:
        start = rotary.start
        if start.shape != (batch,):
            raise Error("shape", f"rotary_seqlens.shape {tuple(start.shape)}: expected ({batch},)")
        if start.device != q.device:
            wrong = f"rotary_seqlens.device {start.device}"
            raise Error("argument", f"{wrong}: expected that of q, {q.device}")
    rows = torch.arange(max(q.shape[1], new.shape[1]), device=q.device)
    places = start.long()[:, None] + rows
    used = _inside("rotary position", places, len(rotary.cos) - 1, used)
    moving = bool(arguments.causal) or window_of(arguments.window) != (-1, -1)
    queries = places[:, : q.shape[1]] if moving else places[:, :1]
    new = _rotated(new, rotary, places[:, : new.shape[1]])
    return _rotated(q, rotary, queries), new, used


# ---- numbers of a list, checked in graphs too ----

_library = torch.library.Library("ordo", "FRAGMENT")
_library.define(
    "numbers_inside(Tensor x, str name, SymInt limit, Tensor then) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _inside(name: str, x: Tensor, limit: int, then: Tensor) -> Tensor:
    """`then`, if the numbers x are 0..limit, and with a name "..., with k" no two are equal; else
    Error. Those on a device are compared there, where PyTorch stops the program: it takes negative
    indices for places from the end.

    What is computed from the result comes after the check: a graph has no other order."""
    if not x.is_cpu:
        name, _, written = name.partition(", ")
        expected = f"expected no negative number, and none beyond {_LIMITS[name]}"
        torch._assert_async(_all_within(x, limit), f"{name}: {expected}")
        if written:
            torch._assert_async(_distinct(x), f"{name}: {_ONCE} k and v")
        return then
    if plain(x, x, then):
        _look(name, x, limit)
        return then
    made: Tensor = torch.ops.ordo.numbers_inside(x, name, limit, then)
    return made


def _all_within(x: Tensor, limit: int) -> Tensor:
    """Whether all numbers are 0..limit, without a look at them."""
    return (x.long().clamp(0, limit) == x).all()


def _look(name: str, x: Tensor, limit: int) -> None:
    name, _, written = name.partition(", ")
    if x.numel():
        _within(name, int(x.min()), int(x.max()), limit)
    if written and not _distinct(x):  # one would overwrite the other's new keys
        numbers = x.tolist()
        raise Error("argument", f"{name} {numbers}: {_ONCE} {written.removeprefix('with ')} and v")


def _numbers_inside(x: Tensor, name: str, limit: int, then: Tensor) -> Tensor:
    _look(name, x, limit)
    return then.clone()


_library.impl("numbers_inside", _numbers_inside, "CompositeExplicitAutograd")


@torch.library.register_fake("ordo::numbers_inside", lib=_library)
def _numbers_inside_fake(x: Tensor, name: str, limit: int, then: Tensor) -> Tensor:
    return torch.empty_like(then)


def _rotated(x: Tensor, rotary: Rotary, places: Tensor) -> Tensor:
    cos, sin = (table[places].unsqueeze(2).float() for table in (rotary.cos, rotary.sin))
    width = 2 * cos.shape[-1]
    if width > x.shape[-1]:
        shape, most = tuple(rotary.cos.shape), x.shape[-1] // 2
        raise Error("shape", f"rotary_cos.shape {shape}: expected {most} columns at most")
    part: Any = x[..., :width].float()
    pairs = part.unflatten(-1, (-1, 2)) if rotary.interleaved else part.unflatten(-1, (2, -1))
    axis = -1 if rotary.interleaved else -2
    one, other = pairs.unbind(axis)
    made = torch.stack((one * cos - other * sin, one * sin + other * cos), axis).flatten(-2)
    return torch.cat((made.to(x.dtype), x[..., width:]), -1)
