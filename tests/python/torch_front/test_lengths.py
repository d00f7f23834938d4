"""Lengths and gaps as they are taken on a device, whose values nobody looks at; and with the switch."""

from __future__ import annotations

import functools

import ordo
import ordo.torch
import pytest
import torch
from ordo.compat import flash_attn_3
from ordo.torch import _call
from ordo.torch._inputs import Lists, Rules
from torch._subclasses.fake_tensor import FakeTensorMode


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def inputs(rows, columns, dims=(16, 16)):
    made = torch.Generator().manual_seed(rows)
    shapes = (rows, 4, dims[0]), (columns, 2, dims[0]), (columns, 2, dims[1])
    return [torch.randn(*shape, generator=made).requires_grad_() for shape in shapes]


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
    from ordo.torch import _attention

    monkeypatch.setattr(_attention, "width_of", lambda q, v: 256)
    given = inputs(20, 40, (192, 128))
    o, lse = flash_attn_3.flash_attn_varlen_func(
        *given, ints(0, 9, 20), ints(0, 21, 40), 11, 1, ints(9, 11), ints(1, 0),
        return_attn_probs=True,
    )  # fmt: skip
    dq, _, dv = torch.autograd.grad(o, given, torch.randn(o.shape))
    seen = given[2].detach()[:1].repeat_interleave(2, 1)
    assert torch.allclose(o[:9], seen, atol=1e-6) and not o[9:].any() and (lse[:, 9:] == -torch.inf).all()
    assert dq.shape == given[0].shape and not dv[1:].any()


def checked_as(rows, columns, lists, longest=0):
    """As with check_lengths(), on any device."""
    q, k = torch.empty(rows, 2, 16), torch.empty(columns, 2, 16)
    rules = Rules(longest, longest, 1.0, "full", -1, -1, 0.0, 0.0, "ordo", ())
    _call.check_values(q, k, lists, rules)


def test_with_the_switch_lengths_of_any_device_are_checked():
    ends = dict(cu_q=ints(0, 9, 20), cu_kv=ints(0, 9, 20))
    checked_as(20, 20, Lists(**ends), 11)
    checked_as(11, 9, Lists(q_lens=ints(11, 0), kv_lens=ints(9, 9)))
    for wrong, message in (
        (dict(cu_q=ints(1, 9, 20)), r"cu_q\[0\] 1: expected 0"),
        (dict(cu_q=ints(0, 9, 3)), r"cu_q\[2\] 3: expected 9\.\."),
        (dict(cu_q=ints(0, 3, 20)), r"cu_q\[2\] 20: expected 3\.\.14"),
        (dict(cu_q=ints(0, 10, 21)), r"cu_q\[2\] 21: expected .*20"),
        (dict(cu_kv=ints(0, 3, 20)), r"cu_kv\[2\] 20: expected 3\.\.14"),
    ):
        with pytest.raises(ordo.Error, match=message):
            checked_as(20, 20, Lists(**{**ends, **wrong}), 11)
    with pytest.raises(ordo.Error, match=r"kv_lens\[1\] 10: expected 0..9"):
        checked_as(11, 9, Lists(q_lens=ints(11, 0), kv_lens=ints(9, 10)))


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


def test_on_a_device_lengths_beyond_int32_are_clamped_to_the_rows():
    """close_gaps() of CUDA tensors, whose values nobody looks at."""
    far = torch.tensor([2**32 + 3, -(2**32) + 3])
    moved = _call.close_gaps("q", 20, ints(0, 9, 20), far, look=False)
    assert moved.ends.tolist() == [0, 9, 9]
    assert _call.as_int32("kv_lens", far).tolist() == [2**31 - 1, -(2**31) + 1]
    same_list = ints(1, 2)
    assert _call.as_int32("kv_lens", same_list) is same_list
