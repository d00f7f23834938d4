"""flash_attn_with_kvcache: a dense cache, extended in place, with the bits of one whole pass."""

from __future__ import annotations

import math

import numpy as np
import ordo
import pytest
import torch
from bits import drawn, same
from ordo.compat import flash_attn, flash_attn_3
from ordo.torch._call import Arguments

BOTH = pytest.mark.parametrize("module", [flash_attn, flash_attn_3])
WINDOW = (37, 0)


def caches(room, kv_heads=2, dim=16, batch=2, dtype=torch.float32):
    """Full of NaN: what is not used must not be read."""
    return [torch.full((batch, room, kv_heads, dim), math.nan, dtype=dtype) for _ in range(2)]


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rules", [{}, dict(window_size=WINDOW), dict(softcap=2.0)])
def test_decoding_has_the_bits_of_the_whole_pass(module, dtype, rules):
    """A prompt, then rows one by one, in a cache with more room than is ever used."""
    rows, prompt = 150, 100
    q = drawn(2, rows, 4, 16, dtype=dtype)
    k, v = (drawn(2, rows, 2, 16, seed=x, dtype=dtype) for x in (1, 2))
    whole, lse = module.flash_attn_func(q, k, v, causal=True, return_attn_probs=True, **rules)[:2]
    k_cache, v_cache = caches(333, dtype=dtype)
    lengths = torch.zeros(2, dtype=torch.int32)
    for first, end in [(0, prompt), *((x, x + 1) for x in range(prompt, rows))]:
        part = slice(first, end)
        out, part_lse, *_ = module.flash_attn_with_kvcache(
            q[:, part], k_cache, v_cache, k[:, part], v[:, part], cache_seqlens=lengths,
            causal=True, return_softmax_lse=True, **rules,
        )  # fmt: skip
        assert same(out, whole[:, part]) and same(part_lse, lse[..., part])
        lengths += end - first
    assert same(k_cache[:, :rows], k) and same(v_cache[:, :rows], v)
    assert k_cache[:, rows:].isnan().all() and v_cache[:, rows:].isnan().all()


@BOTH
def test_one_row_needs_no_causal_mask(module):
    q, k = drawn(2, 60, 4, 16), drawn(2, 60, 4, 16, seed=1)
    whole = module.flash_attn_func(q, k, k, causal=True)
    for length in (1, 17, 60):
        out = module.flash_attn_with_kvcache(q[:, length - 1 : length], k, k, cache_seqlens=length)
        assert same(out, whole[:, length - 1 : length])
    assert same(module.flash_attn_with_kvcache(q, k, k, causal=True), whole)  # all of it is used


def test_sequences_of_other_lengths_in_other_places():
    """cache_batch_idx; slopes; a sequence that sees nothing."""
    k_cache, v_cache = caches(20, batch=4, kv_heads=1)
    q, k, v = drawn(3, 2, 2, 16), drawn(3, 2, 1, 16, seed=1), drawn(3, 2, 1, 16, seed=2)
    where, lengths = torch.tensor([3, 0, 2], dtype=torch.int32), torch.tensor([5, 18, 0]).int()
    old = drawn(4, 20, 1, 16, seed=3)
    for place, length in zip(where, lengths):
        k_cache[place, :length] = old[place, :length]
        v_cache[place, :length] = -old[place, :length]
    slopes = torch.tensor([0.5, 0.25])
    out = flash_attn.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, cache_seqlens=lengths, cache_batch_idx=where, causal=True,
        alibi_slopes=slopes,
    )  # fmt: skip
    for b, (place, length) in enumerate(zip(where, lengths)):
        keys = torch.cat([old[place, :length], k[b]])[None]
        values = torch.cat([-old[place, :length], v[b]])[None]
        one = flash_attn.flash_attn_func(
            q[b : b + 1], keys, values, causal=True, alibi_slopes=slopes
        )
        assert same(out[b : b + 1], one)
        assert same(k_cache[place, : length + 2], keys[0])
        assert k_cache[place, length + 2 :].isnan().all()
    assert k_cache[1].isnan().all() and lengths.tolist() == [5, 18, 0]
    twice = torch.tensor([3, 3, 0])  # without new keys a sequence may serve several queries
    out = flash_attn.flash_attn_with_kvcache(
        q[[0, 0, 1]], k_cache, v_cache, cache_seqlens=5, cache_batch_idx=twice, causal=True
    )
    assert same(out[0], out[1]) and not same(out[0], out[2])
    none = torch.zeros(3, dtype=torch.int32)
    rest = dict(cache_seqlens=none, cache_batch_idx=where, return_softmax_lse=True)
    out, lse = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, **rest)
    assert not out.any() and (lse == math.inf).all()
    out, lse, *_ = flash_attn_3.flash_attn_with_kvcache(q, k_cache, v_cache, **rest)
    assert not out.any() and (lse == -math.inf).all()


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_rotary_embedding(interleaved, causal):
    """Against rotation by complex numbers, in float64."""
    q, k = drawn(2, 3, 4, 16), drawn(2, 3, 2, 16, seed=1)
    angle = torch.outer(torch.arange(30.0), 0.3 ** torch.arange(4))  # 8 of 16 dimensions turn
    lengths = torch.tensor([4, 11], dtype=torch.int32)

    def rotated(x, step):
        at = lengths[:, None] + step * torch.arange(x.shape[1])
        part = x[..., :8].double()
        pairs = part.unflatten(-1, (4, 2)) if interleaved else part.unflatten(-1, (2, 4)).mT
        wave = torch.polar(torch.ones_like(angle), angle)[at][:, :, None].to(torch.complex128)
        made = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * wave)
        made = made.flatten(-2) if interleaved else made.mT.flatten(-2)
        return torch.cat([made.float(), x[..., 8:]], -1)

    plain, other = [drawn(2, 20, 2, 16, seed=x) for x in (2, 3)], []
    other = [x.clone() for x in plain]
    tables = angle.cos(), angle.sin()
    out = flash_attn.flash_attn_with_kvcache(
        q, *plain, k, k, *tables, cache_seqlens=lengths, causal=causal,
        rotary_interleaved=interleaved,
    )  # fmt: skip
    wanted = flash_attn.flash_attn_with_kvcache(
        rotated(q, int(causal)), *other, rotated(k, 1), k, cache_seqlens=lengths, causal=causal
    )
    assert torch.allclose(plain[0], other[0], atol=1e-6) and same(plain[1], other[1])
    assert torch.allclose(out, wanted, atol=1e-6)
    again = flash_attn_3.flash_attn_with_kvcache(
        q, *other, k, k, None, *tables, cache_seqlens=lengths - 1, causal=causal,
        rotary_interleaved=interleaved, rotary_seqlens=lengths,
    )  # fmt: skip
    assert again.shape == out.shape
    for b, length in enumerate(lengths):
        rows = plain[0][b, length : length + 3]
        assert same(other[0][b, length - 1 : length + 2], rows)


def test_under_autocast():
    q, k, made = drawn(2, 1, 4, 16), drawn(2, 1, 2, 16, seed=1), []
    for dtype in (None, torch.bfloat16):
        caches = [drawn(2, 9, 2, 16, seed=x) for x in (2, 3)]
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            o = flash_attn.flash_attn_with_kvcache(q, *caches, k, k, cache_seqlens=3, causal=True)
        made.append((o, caches[0]))
    assert all(same(x, y) for x, y in zip(*made))


def test_graphs_check_their_lists_before_the_cache_is_written():
    q, k, v = drawn(2, 2, 4, 16), drawn(2, 2, 2, 16, seed=1), drawn(2, 2, 2, 16, seed=2)
    table = torch.ones(12, 4)
    good, rows = torch.tensor([3, 7], dtype=torch.int32), torch.tensor([1, 0])

    def step(q, k, v, k_cache, v_cache, lengths, rows, places):
        return flash_attn_3.flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, None, table, table, cache_seqlens=lengths,
            cache_batch_idx=rows, rotary_seqlens=places, causal=True,
        )  # fmt: skip

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for lists, words in (
        ((good, rows, good), None),
        ((good - 4, rows, good), r"cache_seqlens -1: expected 0\.\.7, the room in the cache"),
        ((good + 1, rows, good), r"cache_seqlens 8: expected 0\.\.7"),
        ((good, rows - 1, good), r"cache_batch_idx -1: expected 0\.\.1, the sequences"),
        ((good, rows + 1, good), r"cache_batch_idx 2: expected 0\.\.1"),
        ((good, rows * 0, good), r"cache_batch_idx \[0, 0\]: expected each once"),
        ((good, rows, good - 4), r"rotary position -1: expected 0\.\.11, the rows of rotary_cos"),
        ((good, rows, good + 4), r"rotary position 12: expected 0\.\.11"),
    ):
        caches = [torch.zeros(2, 9, 2, 16) for _ in range(2)]
        if words is None:
            others = [x.clone() for x in caches]
            assert same(compiled(q, k, v, *caches, *lists), step(q, k, v, *others, *lists))
            assert all(same(x, y) for x, y in zip(caches, others))
            continue
        for run in (compiled, step):
            with pytest.raises(ordo.Error, match=words):
                run(q, k, v, *caches, *lists)
            assert not any(x.any() for x in caches)


@pytest.mark.parametrize("compiled", [False, True])
def test_new_keys_may_lie_in_the_cache(compiled):
    """And queries: rows that the call writes are read before."""

    def step(k_cache, v_cache, apart):
        q, k, v = k_cache[:, 2:5], k_cache[:, 1:4], k_cache[:, 2:5]
        if apart:
            q, k, v = q.clone(), k.clone(), v.clone()
        return flash_attn.flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, cache_seqlens=2, causal=True
        )

    run = torch.compile(step, fullgraph=True, backend="aot_eager") if compiled else step
    mine, theirs = ([drawn(2, 9, 2, 16, seed=x) for x in (2, 3)] for _ in range(2))
    assert same(run(*mine, False), step(*theirs, True))
    assert same(mine[0], theirs[0]) and same(mine[1], theirs[1])


X, NEW = torch.zeros(2, 1, 2, 16), torch.ones(2, 1, 2, 16)
TABLE = dict(rotary_cos=torch.ones(9, 4), rotary_sin=torch.ones(9, 4))
LENGTHS = torch.tensor([3, 8], dtype=torch.int32)


def rotary(**changed):
    return dict(k=NEW, v=NEW, cache_seqlens=1) | TABLE | changed


REFUSED = [
    (dict(k=NEW), "k, v: expected both or none"),
    (dict(k=NEW, v=NEW), "cache_seqlens None: expected the lengths used"),
    (dict(k=NEW, v=NEW, cache_seqlens=8), r"cache_seqlens 8: expected 0\.\.7, the room"),
    (dict(k=NEW, v=NEW, cache_seqlens=LENGTHS), r"cache_seqlens 8: expected 0\.\.7"),
    (dict(cache_seqlens=LENGTHS + 1), r"cache_seqlens 9: expected 0\.\.8"),
    (dict(cache_seqlens=LENGTHS.to("meta")), "cache_seqlens.device meta: expected that of q"),
    (dict(cache_seqlens=-LENGTHS), r"cache_seqlens -8: expected 0\.\.8"),
    (dict(cache_seqlens=LENGTHS[:1]), r"cache_seqlens.shape \(1,\): expected \(2,\)"),
    (dict(cache_seqlens=LENGTHS.float()), "cache_seqlens.dtype torch.float32: expected"),
    (dict(cache_seqlens=torch.tensor(3.5)), "cache_seqlens.dtype torch.float32: expected"),
    (dict(cache_seqlens=LENGTHS > 3), "cache_seqlens.dtype torch.bool: expected"),
    (dict(cache_seqlens=torch.tensor([2**32 + 3, 3])), "cache_seqlens 4294967299: expected 0"),
    (dict(cache_seqlens=torch.tensor(9)), r"cache_seqlens 9: expected 0\.\.8"),
    *((dict(cache_seqlens=x), "cache_seqlens .*: expected an integer") for x in ([1, 1], "all", 1.5)),
    (dict(k=NEW[:1], v=NEW, cache_seqlens=1), r"k.shape \(1, 1, 2, 16\): expected \(2,"),
    (dict(k=NEW[0, 0, 0], v=NEW, cache_seqlens=1), r"k.shape \(16,\): expected \(2, 1, 2, 16"),
    (dict(k=[1], v=NEW, cache_seqlens=1), r"k \[1\]: expected a tensor"),
    (dict(k=NEW, v=NEW.half(), cache_seqlens=1), "v.dtype torch.float16: expected torch.float"),
    (dict(k=NEW, v=NEW, cache_seqlens=1, softcap=-1.0), "softcap -1"),
    (dict(q=X[0]), r"q.shape \(1, 2, 16\): expected \(batch, row, head, dim\)"),
    (dict(q=None), "q None: expected a tensor"),
    (dict(k_cache=X[:1], v_cache=X[:1]), "k_cache.shape"),
    (dict(cache_batch_idx=torch.tensor([0, 2])), r"cache_batch_idx 2: expected 0\.\.1"),
    (dict(k=NEW, v=NEW, cache_seqlens=1, cache_batch_idx=torch.tensor([1, 1])),
     r"cache_batch_idx \[1, 1\]: expected each once, with k and v"),
    (dict(cache_batch_idx=[1, 0]), r"cache_batch_idx \[1, 0\]: expected a tensor of integers"),
    (dict(cache_batch_idx=torch.tensor([0.0, 1.0])), "cache_batch_idx.dtype torch.float32"),
    (dict(cache_batch_idx=torch.tensor([False, True])), "cache_batch_idx.dtype torch.bool"),
    (dict(cache_leftpad=LENGTHS), "cache_leftpad given"),
    (rotary(rotary_cos=torch.ones(4)), r"rotary_cos.shape \(4,\): expected \(position"),
    (rotary(rotary_sin=torch.ones(9, 1)), r"rotary_sin.shape \(9, 1\): expected that of rotary_cos, \(9, 4\)"),
    (rotary(rotary_sin=torch.ones(5, 4)), r"rotary_sin.shape \(5, 4\): expected that of rotary_cos, \(9, 4\)"),
    (rotary(rotary_sin=torch.ones(9, 4).int()), "rotary_sin.dtype torch.int32: expected a floating"),
    (rotary(cache_seqlens=2, rotary_cos=X[0, 0], rotary_sin=X[0, 0]), r"rotary position 2: expected 0\.\.1"),
    (dict(rotary_cos=X), "rotary_cos, rotary_sin: expected both or none"),
    (dict(rotary_cos=X[0, 0], rotary_sin=X[0, 0], cache_seqlens=1), "rotary_cos given: expect"),
]  # fmt: skip
OF_ONE = [  # arguments that one of the modules has
    (flash_attn, dict(block_table=LENGTHS), r"block_table.shape .* expected .batch, pages."),
    (flash_attn_3, dict(cu_seqlens_q=LENGTHS), "cu_seqlens_q given: expected None without page_table"),
    *((flash_attn_3, {x: LENGTHS}, f"{x} given: not supported") for x in ("qv", "q_descale")),
    (flash_attn_3, rotary(rotary_seqlens=3), "rotary_seqlens 3: expected a tensor of integers"),
    (flash_attn_3, rotary(rotary_seqlens=LENGTHS.float()), "rotary_seqlens.dtype torch.float32: expected torch.int32"),
    (flash_attn_3, rotary(rotary_seqlens=LENGTHS[:1]), r"rotary_seqlens.shape \(1,\): expected \(2,\)"),
    (flash_attn_3, rotary(rotary_seqlens=LENGTHS.to("meta")), "rotary_seqlens.device meta: expected that of q"),
]  # fmt: skip


def test_refusals_leave_the_cache_alone():
    rows = [(module, *row) for module in (flash_attn, flash_attn_3) for row in REFUSED]
    for module, given, words in rows + OF_ONE:
        caches = dict(k_cache=torch.zeros(2, 8, 2, 16), v_cache=torch.zeros(2, 8, 2, 16))
        with pytest.raises(ordo.Error, match=words):
            module.flash_attn_with_kvcache(**dict(q=X) | caches | given)
        assert not any(x.any() for x in caches.values())


def test_one_length_for_all_and_open_windows_in_every_form():
    q, k = drawn(2, 3, 4, 16), drawn(2, 60, 4, 16, seed=1)
    angle = torch.outer(torch.arange(60.0), 0.3 ** torch.arange(4))

    def call(length=17, window=(-1, -1)):
        caches = [k.clone(), k.clone()]
        more = dict(cache_seqlens=length, window_size=window)
        return flash_attn.flash_attn_with_kvcache(q, *caches, q, q, angle.cos(), angle.sin(), **more)

    expected = call()
    for given in (np.int64(17), torch.tensor(17), torch.tensor(17, dtype=torch.int32)):
        assert same(call(given), expected)
    for window in (None, (None, None), (-5, -1), torch.tensor([-1, -1])):  # queries turn as beside no window
        assert same(call(window=window), expected)


def test_a_device_stops_where_an_entry_is_wrong(monkeypatch):
    """Entries on a device are not read by the host: the checks are assertions there. PyTorch would
    take -1 for the last sequence, or the last row, and not stop."""
    from ordo.compat import _cache

    said = []
    monkeypatch.setattr(torch, "_assert_async", lambda holds, says: said.append(says.partition(": ")))
    q, keys = torch.empty(3, 1, 2, 16, device="meta"), torch.empty(4, 8, 2, 16, device="meta")
    table, some = torch.empty(8, 4, device="meta"), torch.zeros(3, dtype=torch.int32, device="meta")
    for new in (None, q):
        said.clear()
        cache = _cache.Cache(keys, keys, new, new, some, some, _cache.Rotary(table, table, True))
        _, used = _cache._rows(q, cache, _cache._lengths(q, cache))
        twice = [x[0] for x in said if "expected each once" in x[2]]
        assert twice == ([] if new is None else ["cache_batch_idx"])
    _cache._turn(q, q, cache, used, Arguments(causal=True))
    inside = [x[0] for x in said if "negative" in x[2]]
    assert inside == ["cache_seqlens", "cache_batch_idx", "rotary position"]
    for entries, once in (([3, 0, 2], True), ([3, 0, 3], False), ([], True)):
        assert _cache._distinct(torch.tensor(entries, dtype=torch.int32)).item() is once
    for entries, inside in (([3, 0], True), ([-1, 0], False), ([4, 0], False), ([], True)):
        for dtype in (torch.int32, torch.int64):
            assert _cache._all_within(torch.tensor(entries, dtype=dtype), 3).item() is inside
    assert _cache._all_within(torch.tensor([255], dtype=torch.uint8), 300).item()
