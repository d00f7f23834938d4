"""Attention over a dense cache of keys and values, which may first be extended in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._convert import integer
from .._library import Error
from ..torch._attention import Arguments, prepare
from ..torch._numbers import OPEN, window_of
from ..torch._ops import attend as attend_op
from ..torch._ops import plain
from ..torch._plans import ready


class Rotary(NamedTuple):
    """Rotary position embedding of new keys, and of the queries."""

    cos: Tensor  # (position, half of the dimensions that are turned)
    sin: Tensor
    interleaved: bool  # whether the pairs are neighbours, else the two halves
    start: Tensor | None = None  # position of the first new key; None = the length used


def rotary_of(
    cos: Tensor | None, sin: Tensor | None, interleaved: bool, start: Tensor | None = None
) -> Rotary | None:
    if (cos is None) != (sin is None):
        raise Error("argument", "rotary_cos, rotary_sin: expected both or none of them")
    return None if cos is None or sin is None else Rotary(cos, sin, interleaved, start)


class Cache(NamedTuple):
    """k and v are (sequence, row, kv_head, dim); new ones (batch, row, kv_head, dim)."""

    k: Tensor
    v: Tensor
    new_k: Tensor | None
    new_v: Tensor | None
    lengths: int | Tensor | None  # used before the new ones are added; None = all
    batch_idx: Tensor | None  # which sequence of the cache each of the batch is; None = its own
    rotary: Rotary | None


def attend(q: Tensor, cache: Cache, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """(out, lse): add the new keys behind those used, then attend to all of them.

    A row has the bits that it has in one pass over the whole sequence: keys are summed in the same
    order, however many there are behind them. No gradients. What can be checked without waiting
    for a device is checked before the cache is written.
    """
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        used = _lengths(q, cache)
        rows = _rows(q, cache)
        new_k, new_v = cache.new_k, cache.new_v
        if cache.rotary is not None:
            q, new_k = _turn(q, cache, used, arguments)
        k, v = cache.k, cache.v
        if cache.batch_idx is not None:
            k, v = k[rows], v[rows]
        total = used if new_k is None else used + new_k.shape[1]
        inputs = prepare(q, k, v, arguments._replace(kv_lens=total))
        if plain(q, k, v):
            ready(*inputs)  # what is refused, is refused before the cache is written
        if new_k is not None and new_v is not None:
            place = used[:, None] + torch.arange(new_k.shape[1], device=q.device)
            for whole, part, new in ((cache.k, k, new_k), (cache.v, v, new_v)):
                whole.index_put_((rows[:, None], place), new)
                if part is not whole:
                    part.index_put_((torch.arange(len(part), device=q.device)[:, None], place), new)
        return attend_op(*inputs)


def _lengths(q: Tensor, cache: Cache) -> Tensor:
    """Keys used of each sequence, int32; checked with the shapes of all that is new."""
    batch, room = q.shape[0], cache.k.shape[1]
    if (cache.new_k is None) != (cache.new_v is None):
        raise Error("argument", "k, v: expected both or none of them")
    for name, new, whole in (("k", cache.new_k, cache.k), ("v", cache.new_v, cache.v)):
        if whole.dim() != 4:
            shape = tuple(whole.shape)
            raise Error("shape", f"{name}_cache.shape {shape}: expected (batch, row, head, dim)")
        if new is None:
            continue
        expected = batch, cache.new_k.shape[1], *whole.shape[2:]  # type: ignore[union-attr]
        if new.shape != expected:
            raise Error("shape", f"{name}.shape {tuple(new.shape)}: expected {expected}")
        if new.dtype != whole.dtype:
            raise Error("argument", f"{name}.dtype {new.dtype}: expected {whole.dtype}")
    given = cache.lengths
    if given is None:
        if cache.new_k is not None:
            raise Error("argument", "cache_seqlens None: expected the lengths used, beside k")
        given = room
    added = 0 if cache.new_k is None else cache.new_k.shape[1]
    if not isinstance(given, Tensor):
        given = integer("cache_seqlens", given)
        _within("cache_seqlens", given, given, room - added)
        return torch.full((batch,), given, dtype=torch.int32, device=q.device)
    if given.dim() == 0:
        given = given.expand(batch)
    elif given.device != q.device:
        wrong = f"cache_seqlens.device {given.device}"
        raise Error("argument", f"{wrong}: expected that of q, {q.device}")
    if given.shape != (batch,):
        raise Error("shape", f"cache_seqlens.shape {tuple(given.shape)}: expected ({batch},)")
    if given.is_cpu and batch and plain(q, cache.k, cache.v):
        _within("cache_seqlens", int(given.min()), int(given.max()), room - added)
    return given.to(q.device, torch.int32).contiguous()


def _within(name: str, least: int, most: int, limit: int) -> None:
    if least < 0 or most > limit:
        wrong = least if least < 0 else most
        raise Error("argument", f"{name} {wrong}: expected 0..{limit}, the room in the cache")


def _rows(q: Tensor, cache: Cache) -> Tensor:
    """Which sequence of the cache each one of the batch is."""
    index, batch, there = cache.batch_idx, q.shape[0], cache.k.shape[0]
    if index is None:
        if there != batch:
            shape = tuple(cache.k.shape)
            raise Error("shape", f"k_cache.shape {shape}: expected the batch of q, {batch}")
        return torch.arange(batch, device=q.device)
    if index.shape != (batch,):
        raise Error("shape", f"cache_batch_idx.shape {tuple(index.shape)}: expected ({batch},)")
    if index.is_cpu and batch and plain(q, cache.k, cache.v):
        _within("cache_batch_idx", int(index.min()), int(index.max()), there - 1)
    return index.long()


def _turn(q: Tensor, cache: Cache, used: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Queries and new keys, turned by their positions.

    Without a causal mask or a window all queries are at the first new position.
    """
    rotary, new = cache.rotary, cache.new_k
    if rotary is None or new is None:
        raise Error("argument", "rotary_cos given: expected k and v to be added to the cache")
    start = used if rotary.start is None else rotary.start
    rows = torch.arange(max(q.shape[1], new.shape[1]), device=q.device)
    places = start.long()[:, None] + rows
    if places.is_cpu and places.numel() and plain(q, cache.k, cache.v):
        _within("rotary position", int(places.min()), int(places.max()), len(rotary.cos) - 1)
    moving = bool(arguments.causal) or window_of(arguments.window) != OPEN
    queries = places[:, : q.shape[1]] if moving else places[:, :1]
    return _turned(q, rotary, queries), _turned(new, rotary, places[:, : new.shape[1]])


def _turned(x: Tensor, rotary: Rotary, places: Tensor) -> Tensor:
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
