"""Packed sequences with gaps and with rows behind the last end; lengths that are wrong."""

from __future__ import annotations

import functools
import math

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.compat import flash_attn, flash_attn_3
from ordo.torch import _call
from ordo.torch._inputs import Lists, Rules
from torch._subclasses.fake_tensor import FakeTensorMode


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def inputs(rows, columns, dims=(16, 16)):
    made = torch.Generator().manual_seed(rows)
    shapes = (rows, 4, dims[0]), (columns, 2, dims[0]), (columns, 2, dims[1])
    return [torch.randn(*shape, generator=made).requires_grad_() for shape in shapes]


def results(o, lse, given):
    """o, lse and gradients; dout is random, that of rows without a sequence included."""
    dout = torch.randn(o.shape, generator=torch.Generator().manual_seed(7))
    return o, lse, *torch.autograd.grad(o, given, dout), dout


def expect(found, given, queries, keys, **rules):
    """That each sequence has the bits it has alone, and that all other rows are zeros.

    `queries` and `keys` are the (begin, end) of each sequence."""
    o, lse, dq, dk, dv, dout = found
    seen = [torch.zeros(len(x), dtype=torch.bool) for x in given[:2]]
    for rows, columns in zip(queries, keys):
        seen[0][slice(*rows)], seen[1][slice(*columns)] = True, True
        parts = [given[0][slice(*rows)], *(x[slice(*columns)] for x in given[1:])]
        parts = [x.detach()[None].requires_grad_() for x in parts]
        alone, alone_lse = ordo.torch.attention(*parts, **rules)
        grads = torch.autograd.grad(alone, parts, dout[slice(*rows)][None])
        assert same(o[slice(*rows)], alone[0]) and same(lse[:, slice(*rows)], alone_lse[0])
        for whole, part, at in zip((dq, dk, dv), grads, (rows, columns, columns)):
            assert same(whole[slice(*at)], part[0])
    assert not o[~seen[0]].any() and (lse[:, ~seen[0]] == -math.inf).all()
    assert not dq[~seen[0]].any() and not dk[~seen[1]].any() and not dv[~seen[1]].any()


# Ends and used lengths; lengths None: not given.
GAPS = {
    "repeated": (ints(0, 9, 9, 20), ints(9, 0, 11), ints(0, 30, 35, 40), ints(30, 5, 5)),
    "queries": (ints(0, 9, 14, 20), ints(4, 0, 6), ints(0, 30, 35, 40), None),
    "keys": (ints(0, 9, 14, 20), None, ints(0, 30, 35, 40), ints(17, 0, 5)),
    "both, rows behind": (ints(0, 9, 14, 18), ints(4, 5, 1), ints(0, 20, 30, 33), ints(3, 9, 0)),
    "none used": (ints(0, 9, 14, 20), ints(0, 0, 0), ints(0, 30, 35, 40), ints(0, 0, 0)),
}


def spans(ends, used):
    """(begin, end) of each sequence."""
    lengths = ends.diff() if used is None else used
    return [(begin, begin + n) for begin, n in zip(ends.tolist(), lengths.tolist())]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", GAPS)
def test_gaps(case, compiled):
    cu_q, used_q, cu_k, used_k = GAPS[case]
    given = inputs(20, 40)
    function = flash_attn_3.flash_attn_varlen_func
    if compiled:
        function = torch.compile(function, fullgraph=True, backend="aot_eager")
    o, lse = function(
        *given, cu_q, cu_k, 11, 30, seqused_q=used_q, seqused_k=used_k, causal=True,
        return_attn_probs=True,
    )  # fmt: skip
    rows, columns = spans(cu_q, used_q), spans(cu_k, used_k)
    expect(results(o, lse, given), given, rows, columns, causal=True)


def test_gaps_need_no_longest_length_and_have_the_same_keep_bits():
    given, cu, used = inputs(20, 20), ints(0, 9, 14, 20), ints(7, 5, 0)
    rules = dict(dropout_p=0.3, seed=(1, 2))
    o, lse = ordo.torch.attention(*given, cu_q=cu, q_lens=used, kv_lens=used, **rules)
    dense = [torch.cat([x[:7], x[9:14]]).detach() for x in given]
    other, other_lse = ordo.torch.attention(*dense, cu_q=ints(0, 7, 12, 12), **rules)
    assert same(torch.cat([o[:7], o[9:14]]), other) and not o[7:9].any() and not o[14:].any()
    assert same(torch.cat([lse[:, :7], lse[:, 9:14]], 1), other_lse)


def test_lengths_that_repeat_the_ends_move_nothing():
    cu_q, used_q, cu_k, used_k = GAPS["repeated"]
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


@pytest.mark.parametrize("route", ["fa2", "fa3", "ordo"])
def test_rows_behind_the_last_end(route):
    given, cu_q, cu_k = inputs(20, 40), ints(0, 4, 9), ints(0, 7, 10)
    if route == "fa2":
        o, lse, _ = flash_attn.flash_attn_varlen_func(
            *given, cu_q, cu_k, 5, 7, causal=True, return_attn_probs=True
        )
        assert (lse[:, 9:] == math.inf).all()
        lse = torch.where(lse == math.inf, -math.inf, lse)
    elif route == "fa3":
        o, lse = flash_attn_3.flash_attn_varlen_func(
            *given, cu_q, cu_k, 5, 7, causal=True, return_attn_probs=True
        )
    else:
        o, lse = ordo.torch.attention(*given, causal=True, cu_q=cu_q, cu_kv=cu_k)
    expect(results(o, lse, given), given, [(0, 4), (4, 9)], [(0, 7), (7, 10)], causal=True)


def test_many_more_rows_than_the_longest_sequence_at_a_head_size_that_is_filled_up(monkeypatch):
    """As on CUDA, where head sizes must be equal; 192 and 128 are run at 256 here."""
    from ordo.torch import _attention

    monkeypatch.setattr(_attention, "width_of", lambda q, v: 256)
    given = inputs(20, 40, (192, 128))
    o, lse = flash_attn_3.flash_attn_varlen_func(
        *given, ints(0, 9, 20), ints(0, 21, 40), 11, 1, ints(9, 11), ints(1, 0),
        return_attn_probs=True,
    )  # fmt: skip
    found = results(o, lse, given)
    monkeypatch.undo()
    seen = given[2].detach()[:1].repeat_interleave(2, 1)
    assert torch.allclose(found[0][:9], seen, atol=1e-6) and not found[0][9:].any()
    assert found[2].shape == given[0].shape and not found[4][1:].any()


# Lengths that are wrong: of CPU tensors always refused, of others with a switch.

WRONG = {
    "begin": (dict(cu_q=ints(1, 9, 20)), r"cu_q\[0\] 1: expected 0"),
    "decrease": (dict(cu_q=ints(0, 9, 3)), r"cu_q\[2\] 3: expected 9\.\."),
    "longest": (dict(cu_q=ints(0, 3, 20)), r"cu_q\[2\] 20: expected 3\.\.14"),
    "total": (dict(cu_q=ints(0, 10, 21)), r"cu_q\[2\] 21: expected .*20"),
    "keys": (dict(cu_kv=ints(0, 3, 20)), r"cu_kv\[2\] 20: expected 3\.\.14"),
}


def checked_as(rows, columns, lists, longest=0):
    """As with check_lengths(), on any device."""
    q, k = torch.empty(rows, 2, 16), torch.empty(columns, 2, 16)
    rules = Rules(longest, longest, 1.0, "full", -1, -1, 0.0, 0.0, "ordo", ())
    _call.check_values(q, k, lists, rules)


@pytest.mark.parametrize("case", WRONG)
def test_wrong_ends(case):
    changed, message = WRONG[case]
    rules = dict(cu_q=ints(0, 9, 20), cu_kv=ints(0, 9, 20), max_q=11, max_kv=11)
    with pytest.raises(ordo.Error, match=message):
        ordo.torch.attention(*inputs(20, 20), **{**rules, **changed})
    lists = {**rules, **changed}
    with pytest.raises(ordo.Error, match=message):
        checked_as(20, 20, Lists(cu_q=lists["cu_q"], cu_kv=lists["cu_kv"]), 11)


def test_wrong_lengths():
    checked_as(11, 9, Lists(q_lens=ints(11, 0), kv_lens=ints(9, 9)))
    with pytest.raises(ordo.Error, match=r"kv_lens\[1\] 10: expected 0..9"):
        checked_as(11, 9, Lists(q_lens=ints(11, 0), kv_lens=ints(9, 10)))
    given, cu = inputs(20, 20), ints(0, 9, 20)
    for used, message in (
        (ints(9, 12), r"q_lens\[1\] 12: expected 0..11"),
        (ints(-1, 11), r"q_lens\[0\] -1: expected 0..9"),
        (ints(9), r"q_lens.shape \(1,\): expected \(2,\)"),
        (ints(9, 11).to("meta"), "q_lens.device meta: expected that of cu_q, cpu"),
    ):
        with pytest.raises(ordo.Error, match=message):
            ordo.torch.attention(*given, cu_q=cu, q_lens=used)
    with pytest.raises(ordo.Error, match=r"cu_q\[2\] 3: expected 9..20"):
        ordo.torch.attention(*given, cu_q=ints(0, 9, 3), q_lens=ints(1, 1))


def test_used_lengths_that_cannot_be_looked_at_are_clamped():
    moved = _call.close_gaps("q", 20, ints(0, 9, 20), ints(-3, 99), look=False)
    assert moved.ends.tolist() == [0, 0, 11]
    assert moved.rows.tolist() == [*range(9, 20), *range(9)]


def test_the_switch(monkeypatch):
    looked = []
    monkeypatch.setattr(_call, "check_values", lambda *given: looked.append(given))
    given = inputs(20, 20)
    call = dict(cu_q=ints(0, 9, 20), max_q=11)
    ordo.torch.attention(*given, **call)
    assert not looked
    ordo.torch.check_lengths(True)
    try:
        for _ in range(2):
            o, _ = ordo.torch.attention(*given, **call)
        torch.autograd.grad(o.sum(), given)
    finally:
        ordo.torch.check_lengths(False)
    assert len(looked) == 2 and looked[0][2].cu_q is call["cu_q"]
    ordo.torch.attention(*given, **call)
    assert len(looked) == 2


# ---- types ----

PADDED = torch.zeros(2, 8, 2, 16)
PACKED = torch.zeros(16, 2, 16)
USED = dict(cu_q=ints(0, 8, 16), max_q=8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64, torch.int16])
def test_lengths_that_are_no_integers_are_refused(dtype):
    for given, names, rest in (
        (PADDED, ("q_lens", "kv_lens"), {}),
        (PACKED, ("q_lens", "kv_lens"), USED),
        (PACKED, ("cu_q", "cu_kv"), dict(USED, max_kv=8)),
    ):
        for name in names:
            wrong = ints(*(0, 8, 16) if name[:2] == "cu" else (3, 8)).to(dtype)
            for longest in (8, None):
                keywords = {**rest, **({"max_q": longest} if rest else {}), name: wrong}
                with pytest.raises(ordo.Error, match=rf"^{name}\.dtype {dtype}: expected"):
                    ordo.torch.attention(given, given, given, **keywords)


@pytest.mark.parametrize("far", [2**32, -(2**32), 2**31, 2**63 - 8])
def test_lengths_beyond_int32_do_not_wrap_around(far):
    for given, keywords, message in (
        (PADDED, dict(kv_lens=torch.tensor([far + 3, 8])), r"kv_lens\[0\]"),
        (PADDED, dict(q_lens=torch.tensor([8, far + 3])), r"q_lens\[1\]"),
        (PACKED, dict(cu_q=torch.tensor([0, far + 3, 16]), max_q=13), r"cu_q\[1\]"),
        (PACKED, dict(cu_q=torch.tensor([0, far + 3, 16])), "cu_q|q_len"),
        (PACKED, dict(USED, cu_kv=torch.tensor([0, far + 3, 16]), max_kv=13), r"cu_kv\[1\]"),
        (PACKED, dict(USED, kv_lens=torch.tensor([far + 3, 8])), rf"kv_lens\[0\] {far + 3}:"),
    ):
        with pytest.raises(ordo.Error, match=message):
            ordo.torch.attention(given, given, given, **keywords)


def test_on_a_device_lengths_beyond_int32_are_clamped_to_the_rows():
    """close_gaps() of CUDA tensors, whose values nobody looks at."""
    far = torch.tensor([2**32 + 3, -(2**32) + 3])
    moved = _call.close_gaps("q", 20, ints(0, 9, 20), far, look=False)
    assert moved.ends.tolist() == [0, 9, 9]
    assert _call.as_int32("kv_lens", far).tolist() == [2**31 - 1, -(2**31) + 1]
    same_list = ints(1, 2)
    assert _call.as_int32("kv_lens", same_list) is same_list
