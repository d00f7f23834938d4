"""Lengths and gaps as they are taken on a device, whose values nobody looks at; and with the switch."""

from __future__ import annotations

import functools

import ordo
import ordo.torch
import torch
from ordo.compat import flash_attn_3
from ordo.torch import _call
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
    score = torch.einsum("ihd,hd->hi", given[0][:9], given[1][0].repeat_interleave(2, 0)) * 192**-0.5
    assert torch.allclose(lse[:, :9], score, atol=1e-5)  # of the one key, with the scale of the size given


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
    looked, given, call = [], inputs(20, 20), dict(cu_q=ints(0, 9, 20), max_q=11)
    monkeypatch.setattr(_call, "check_values", lambda *given: looked.append(given))
    for on in (False, True, True, False):
        ordo.torch.check_lengths(on)
        ordo.torch.attention(*given, **call)
    assert len(looked) == 2 and looked[0][2].cu_q is call["cu_q"]
