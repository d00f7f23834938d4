"""ordo.torch.attention beside the table: numbers and seeds of every kind, sinks, lists, lengths, empty calls."""

from __future__ import annotations

import functools
import math

import numpy as np
import ordo
import ordo.torch
import pytest
import torch
from bits import equal, ints, same
from ordo.compat import flash_attn, flash_attn_3
from ordo.torch import _call, _front
from torch._subclasses.fake_tensor import FakeTensorMode

attention = ordo.torch.attention


def tensors(batch=2, rows=33, columns=33, heads=4, kv_heads=4, dim=16, v_dim=16, dtype=torch.float32):
    """q, k, v and the gradient of o."""
    made = torch.Generator().manual_seed(rows)
    sizes = (rows, heads, dim), (columns, kv_heads, dim), (columns, kv_heads, v_dim), (rows, heads, v_dim)
    *inputs, dout = (torch.randn(batch, *size, generator=made).to(dtype) for size in sizes)
    return [x.requires_grad_() for x in inputs], dout


def results(inputs, dout, **rules):
    o, lse = attention(*inputs, **rules)
    return [o, lse, *torch.autograd.grad(o, inputs, dout)]


INPUTS = [x.detach() for x in tensors(rows=20, columns=20)[0]]
FLAT = [x[0] for x in INPUTS]


# ---- numbers ----

WINDOWS = (
    torch.tensor([3, 0]), torch.tensor([3, 0], dtype=torch.int32), [3, 0], np.array([3, 0]),
    (torch.tensor(3), torch.tensor(0)), (np.int64(3), np.int32(0)),
)  # fmt: skip


def test_windows_of_every_kind():
    expected, _ = attention(*INPUTS, window=(3, 0))
    for window in WINDOWS:
        for function in (flash_attn.flash_attn_func, flash_attn_3.flash_attn_func):
            assert same(function(*INPUTS, window_size=window), expected)
    whole = torch.compile(flash_attn.flash_attn_func, backend="aot_eager")
    for window in (WINDOWS[0], WINDOWS[2], WINDOWS[5]):
        assert same(whole(*INPUTS, window_size=window), expected)


@pytest.mark.parametrize(
    "same_as, windows",
    [
        ((-1, -1), (None, (None, None), torch.tensor([-1, -1]), [-2, -2])),
        ((3, -1), ((3, None), (3, -100), np.array((3, -100)))),
        ((-1, 2), ((-7, 2), torch.tensor((-7, 2)))),  # any negative size, as FlashAttention has it
    ],
)
def test_a_side_of_a_window_may_be_open(same_as, windows):
    expected, _ = attention(*INPUTS, window=same_as)
    for window in windows:
        assert same(attention(*INPUTS, window=window)[0], expected)
    lower, _ = attention(*INPUTS, causal=True)
    for right in (0, 5):  # it hides nothing that the mask shows
        assert same(attention(*INPUTS, causal=True, window=(-1, right))[0], lower)


def test_words_for_causal():
    q, k, v = INPUTS[0][:, :9], *INPUTS[1:]
    last, first, named = (attention(q, k, v, causal=x)[0] for x in (True, "top-left", "bottom-right"))
    assert same(named, last) and not same(first, last)


# ---- seeds ----


@pytest.mark.parametrize(
    "seed, pair",
    [
        (5, (5, 0)), (np.int64(5), (5, 0)), (torch.tensor(5), (5, 0)), (np.array([5, 6]), (5, 6)),
        ([np.uint64(5), torch.tensor(6)], (5, 6)), (torch.tensor([5, 6]), (5, 6)),
        (2**64 - 1, (-1, 0)), (2**63, (-(2**63), 0)), (2**63 - 1, (2**63 - 1, 0)),
    ],
)  # fmt: skip
def test_seeds_of_every_kind(seed, pair):
    one, other = (attention(*INPUTS, dropout_p=0.5, **x)[0] for x in (dict(seed=seed), dict(rng_state=torch.tensor(pair))))
    assert same(one, other) and not same(one, attention(*INPUTS, dropout_p=0.5, seed=3)[0])


def test_a_seed_lies_where_the_queries_are():
    one = attention(*INPUTS, dropout_p=0.5, seed=77)
    with torch.device("meta"):
        assert equal(one, attention(*INPUTS, dropout_p=0.5, seed=77))


# ---- what decides no bit ----


def test_bits_do_not_depend_on_threads_or_switches(monkeypatch, recwarn):
    inputs, dout = tensors(rows=129, columns=129, kv_heads=2, dim=32, v_dim=32)
    rules = dict(causal=True, dropout_p=0.1, seed=1)
    expected = results(inputs, dout, **rules)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert equal(results(inputs, dout, **rules), expected)
    monkeypatch.setenv("FLASH_ATTENTION_DETERMINISTIC", "1")
    monkeypatch.setenv("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0")
    for warn_only in (False, True):
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        assert equal(results(inputs, dout, **rules), expected)
        o = flash_attn.flash_attn_func(*inputs, 0.1, causal=True, deterministic=warn_only, seed=1)
        assert same(o, expected[0])
    assert not [w for w in recwarn if "determin" in str(w.message).lower()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_type_of_pytorch_does_not_matter(dtype):
    mask = ordo.BlockMask.from_band(20, 20, causal=True)
    expected = attention(*INPUTS), attention(*INPUTS, block_mask=mask)
    torch.set_default_dtype(dtype)
    try:
        assert equal(attention(*INPUTS), expected[0]) and equal(attention(*INPUTS, block_mask=mask), expected[1])
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("halves", ["q", "k", "v", "qk", "kv", "qv", "qkv"])
def test_autocast_of_some(halves):
    """Tensors that have the type already, beside others; those that have it are not converted."""
    inputs, _ = tensors()
    expected = attention(*(x.bfloat16() for x in inputs))
    mixed = [x.bfloat16() if name in halves else x for name, x in zip("qkv", inputs)]
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            assert equal(attention(*mixed), expected)
        with torch.profiler.profile() as seen:
            attention(*mixed)
    assert ("aten::to" in {x.name for x in seen.events()}) == (halves != "qkv")


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_a_known_call_reads_its_lists_again(kind):
    """Ends and lengths of the same shape, other content; those of int64 are converted each time."""
    inputs, dout = tensors()
    flat, slopes = [x.detach()[0].requires_grad_() for x in inputs], torch.rand(2, 4)

    def calls(first):
        ends, lens = (torch.tensor(x, dtype=kind) for x in ([0, first, 33], [first, 33]))
        yield flat, dout[0], dict(cu_q=ends, max_q=28, dropout_p=0.1, seed=1)
        yield flat, dout[0], dict(cu_q=ends, cu_kv=ends)
        yield inputs, dout, dict(q_lens=lens, kv_lens=lens, slopes=slopes * first)
        yield inputs, dout, dict(sequence_ids=lens.long(), dropout_p=0.1, seed=2)

    for first in (5, 20, 5):
        known = [results(*given, causal=True, **rules) for *given, rules in calls(first)]
        ordo.torch._front.forget_plans()
        assert all(equal(x, results(*given, causal=True, **rules)) for x, (*given, rules) in zip(known, calls(first)))


def test_only_some_inputs_need_gradients():
    (q, k, v), dout = tensors()
    _, _, _, dk, _ = results((q, k, v), dout)
    o, _ = attention(q.detach(), k, v.detach())
    assert same(torch.autograd.grad(o, k, dout)[0], dk)


@pytest.mark.parametrize("step", [16, 48])
def test_chunks_with_dropout_at_blocks_of_keep_bits(step):
    """Decoding: with dropout a chunk says where it lies, at a multiple of 16 rows."""
    (q, k, v), _ = tensors(rows=150, columns=150, kv_heads=2, dtype=torch.bfloat16)
    rules = dict(causal=True, dropout_p=0.2, seed=9)
    whole, lse = attention(q, k, v, **rules)
    for first in range(0, 150, step):
        part, shard = slice(first, first + step), ordo.Shard(row0=first, q_total=150, kv_total=150)
        got = attention(q[:, part], k, v, shard=shard, **rules)
        assert same(got[0], whole[:, part]) and same(got[1], lse[:, :, part])
    with pytest.raises(ordo.Error, match="shard.row0 8: expected a multiple of 16 with dropout"):
        attention(q[:, 8:20], k, v, shard=ordo.Shard(row0=8, q_total=150, kv_total=150), **rules)


# ---- sinks ----


def test_a_sink_of_another_type_gets_a_gradient_of_that_type():
    inputs, dout = tensors()
    sink = torch.tensor([0.5, -1.0, 2.0, 0.25])
    one, other = (_with_sink(inputs, x.requires_grad_(), dout)[-1] for x in (sink, sink.bfloat16()))
    assert other.dtype == torch.bfloat16 and same(one.bfloat16(), other)


def test_minus_infinity_is_no_sink():
    inputs, dout = tensors()
    none = torch.full((4,), -math.inf, requires_grad=True)
    plain = results(inputs, dout, causal=True)
    *made, dsink = _with_sink(inputs, none, dout)
    assert equal(plain, made) and not dsink.any()


def _with_sink(inputs, sink, dout, **rules):
    o, lse = attention(*inputs, sink=sink, causal=True, **rules)
    return [o, lse, *torch.autograd.grad(o, [*inputs, sink], dout)]


def test_dropout_never_drops_the_sink():
    inputs, dout = tensors()
    sink = torch.randn(4, requires_grad=True)
    one, two = (_with_sink(inputs, sink, dout, dropout_p=0.5, seed=seed) for seed in (1, 2))
    assert same(one[1], two[1]) and not same(one[0], two[0])


# ---- element masks and biases ----


def test_elements_that_make_a_mask_give_its_bits():
    inputs, dout = tensors(rows=140, columns=150, kv_heads=2)
    seen = torch.ones(140, 150, dtype=torch.bool).tril(10)[None, None]
    expected = results(inputs, dout, causal=True)
    for same_elements in (seen, seen.expand(2, 4, -1, -1), seen.mT.contiguous().mT):
        o, lse, *grads = results(inputs, dout, seen=same_elements)
        assert equal([o, lse], expected[:2])
        for x, y in zip(grads, expected[2:]):  # in the order of a full mask
            assert torch.allclose(x, y, atol=1e-5)


def test_what_is_written_to_an_element_mask_later_does_not_count():
    inputs, dout = tensors()
    seen = torch.ones(1, 1, 33, 33, dtype=torch.bool)
    expected = results(inputs, dout, seen=seen)
    o, lse = attention(*inputs, seen=seen)
    seen[:] = False
    assert equal(expected, [o, lse, *torch.autograd.grad(o, inputs, dout)])


def _dbias(inputs, dout, bias, **rules):
    leaf = bias.detach().requires_grad_()
    o, _ = attention(*inputs, bias=leaf, **rules)
    return torch.autograd.grad(o, leaf, dout)[0]


def test_the_gradient_of_a_shared_bias_is_a_sum_in_order():
    """Heads upwards, then sequences; but each element of an expanded bias has its own."""
    (q, k, v), dout = tensors()
    bias, rules = torch.randn(1, 1, 33, 33), dict(causal=True, dropout_p=0.25, seed=1)
    parts = [
        _dbias([x.detach()[b : b + 1] for x in (q, k, v)], dout[b : b + 1], bias,
               **rules, shard=ordo.Shard(batch0=b)) for b in range(2)
    ]  # fmt: skip
    whole = _dbias((q, k, v), dout, bias, **rules)
    assert same(whole, torch.zeros_like(bias) + parts[0] + parts[1])
    wide = bias.expand(2, 4, -1, -1)
    assert same(*(_dbias((q, k, v), dout, x, **rules) for x in (wide, wide.contiguous())))


def test_a_gradient_of_the_bias_alone_changes_none():
    (q, k, v), dout = tensors(dtype=torch.bfloat16)
    bias = torch.randn(2, 1, 33, 33, dtype=torch.bfloat16)
    alone = _dbias([x.detach() for x in (q, k, v)], dout, bias)
    assert alone.dtype == torch.bfloat16 and same(alone, _dbias((q, k, v), dout, bias))


# ---- no element: zeros of the right shape, lse -inf, gradients zero ----


def ones(*shape):
    return torch.ones(shape, requires_grad=True)


EMPTY = {  # ends of queries and keys, rows of the tensors
    "no sequence": ([0], [0], 0, 0),
    "no sequence, but rows": ([0], [0], 5, 7),
    "no query": ([0, 0, 0], [0, 3, 7], 0, 7),
    "no key": ([0, 2, 5], [0, 0, 0], 5, 0),
    "sequences without rows": ([0, 0, 0], [0, 0, 0], 0, 0),
}


@pytest.mark.parametrize("case", EMPTY)
def test_packed_sequences_of_no_elements(case):
    *ends, rows, columns = EMPTY[case]
    inputs = ones(rows, 4, 16), ones(columns, 2, 16), ones(columns, 2, 24)
    cu_q, cu_kv = (torch.tensor(x, dtype=torch.int32) for x in ends)
    longest = [int(x.diff().max()) if len(x) > 1 else 0 for x in (cu_q, cu_kv)]
    lists = cu_q, cu_kv, *longest
    for (o, lse, *_), nothing in (
        (attention(*inputs, cu_q=cu_q, cu_kv=cu_kv), -math.inf),
        (flash_attn.flash_attn_varlen_func(*inputs, *lists, 0.1, return_attn_probs=True), math.inf),
        (flash_attn_3.flash_attn_varlen_func(*inputs, *lists, return_attn_probs=True), -math.inf),
    ):
        assert o.shape == (rows, 4, 24) and not o.any() and lse.shape == (4, rows) and (lse == nothing).all()
        for x, grad in zip(inputs, torch.autograd.grad(o.sum(), inputs)):
            assert grad.shape == x.shape and not grad.any()


@pytest.mark.parametrize("batch, rows", [(0, 5), (2, 0)])
def test_packed_with_heads_first(batch, rows):
    """The rows of (batch, head, row, dim) are packed rows, whatever the strides of no elements."""
    inputs = [ones(batch, heads, rows, dim) for heads, dim in ((4, 16), (2, 16), (2, 24))]
    ends = torch.zeros(3, dtype=torch.int32)
    flags = _front.HEADS_FIRST | _front.CU_Q | _front.CU_KV
    rest = flags, 0.25, [ends, ends], 0.0, 0.0, (-1, -1, 5, 5, *[0] * 7)
    o, lse, _ = torch.ops.ordo.forward(*inputs, *rest)
    assert o.shape == (batch, rows, 4, 24) and lse.shape == (4, 0)
    grads = torch.autograd.grad(o.sum(), inputs)
    assert [x.shape for x in grads] == [x.shape for x in inputs]


@pytest.mark.parametrize("rows", [5, 0])
def test_gradients_of_no_elements(rows):
    """Keys without rows: the library computes no gradient that has an address."""
    q, k, v = (torch.randn(1, n, 2, 16) for n in (rows, 0, 0))
    given = [k.requires_grad_(), v.requires_grad_()]
    o, _ = attention(q, *given)
    made = torch.autograd.grad(o, given, torch.ones_like(o))
    assert [x.shape for x in made] == [x.shape for x in given]


# ---- lengths as on a device, whose values nobody looks at, and with the switch ----


def test_lengths_that_repeat_the_ends_move_nothing():
    cu_q, used_q = ints(0, 9, 9, 20), ints(9, 0, 11)
    assert _call.close_gaps("q", 20, cu_q, used_q, look=True) is None
    moved = _call.close_gaps("q", 20, cu_q, used_q, look=False)  # as on CUDA, without a wait
    assert moved.ends.tolist() == cu_q.tolist() and moved.rows.tolist() == list(range(20))


def test_gaps_on_cuda_are_closed_without_the_host():
    """A fake tensor has no value to wait for: reading one would raise."""
    with FakeTensorMode():
        new = functools.partial(torch.empty, device="cuda")
        q, v = new(20, 4, 192, dtype=torch.bfloat16), new(20, 4, 128, dtype=torch.bfloat16)
        cu, used = new(3, dtype=torch.int32), new(2, dtype=torch.int32)
        o, lse = flash_attn_3.flash_attn_varlen_func(
            q, q, v, cu, cu, 11, 11, used, used, return_attn_probs=True
        )
    assert o.shape == (20, 4, 128) and lse.shape == (4, 20)


def test_many_more_rows_than_the_longest_sequence_at_a_head_size_that_is_filled_up(monkeypatch):
    """As on CUDA, where head sizes must be equal; 192 and 128 are run at 256 here."""
    monkeypatch.setattr(_call, "width_of", lambda q, v: 256)
    given = [x.detach()[0].requires_grad_() for x in tensors(1, 20, 40, 4, 2, 192, 128)[0]]
    o, lse = flash_attn_3.flash_attn_varlen_func(
        *given, ints(0, 9, 20), ints(0, 21, 40), 11, 1, ints(9, 11), ints(1, 0),
        return_attn_probs=True,
    )  # fmt: skip
    dq, _, dv = torch.autograd.grad(o, given, torch.randn(o.shape))
    seen = given[2].detach()[:1].repeat_interleave(2, 1)
    assert torch.allclose(o[:9], seen, atol=1e-6) and not o[9:].any() and (lse[:, 9:] == -torch.inf).all()
    assert dq.shape == given[0].shape and not dv[1:].any()
    score = torch.einsum("ihd,hd->hi", given[0][:9], given[1][0].repeat_interleave(2, 0)) * 192**-0.5
    assert torch.allclose(lse[:, :9], score, atol=1e-5)  # the one key's logit, scaled by the size given


def test_used_lengths_that_cannot_be_looked_at_are_clamped():
    """As on CUDA; those beyond int32 do not wrap around."""
    for used, ends, rows in (
        (ints(-3, 99), [0, 0, 11], [*range(9, 20), *range(9)]),
        (torch.tensor([2**32 + 3, -(2**32) + 3]), [0, 9, 9], [*range(20)]),
    ):
        moved = _call.close_gaps("q", 20, ints(0, 9, 20), used, look=False)
        assert moved.ends.tolist() == ends and moved.rows.tolist() == rows
    assert _call.as_int32("kv_lens", used).tolist() == [2**31 - 1, -(2**31) + 1]


def test_the_switch(monkeypatch):
    looked, call = [], dict(cu_q=ints(0, 9, 20), max_q=11)
    monkeypatch.setattr(_call, "check_values", lambda *given: looked.append(given))
    for on in (False, True, True, False):
        ordo.torch.check_lengths(on)
        attention(*FLAT, **call)
    assert len(looked) == 2 and looked[0][2].cu_q is call["cu_q"]
