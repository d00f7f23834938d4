"""FlashAttention's functions: layouts, what they return. test_compat.py has the signatures."""

from __future__ import annotations

import math

import math64
import ordo
import ordo.torch
import pytest
import torch
from math64 import close, same
from ordo.compat import flash_attn, flash_attn_3
from ordo.compat.flash_attn import bert_padding

def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def test_causal_is_bottom_right_and_windows_are_inclusive():
    q, k, v = drawn(1, 3, 1, 8), drawn(1, 5, 1, 8, seed=1), torch.eye(5).view(1, 5, 1, 5)
    seen = flash_attn.flash_attn_func(q, k, v, causal=True)[0, :, 0] > 0
    assert seen.tolist() == math64.seen_by(3, 5, True)[0].tolist()
    assert seen.sum(-1).tolist() == [3, 4, 5]
    for window in ((1, 0), (0, 1), (2, 2)):
        seen = flash_attn.flash_attn_func(q, k, v, window_size=window)[0, :, 0] > 0
        assert seen.tolist() == math64.seen_by(3, 5, False, window)[0].tolist()
    # transformers asks for causal windows so: the right side is cut by the mask
    seen = flash_attn.flash_attn_func(q, k, v, causal=True, window_size=(1, 1))[0, :, 0] > 0
    assert seen.sum(-1).tolist() == [2, 2, 2]


def test_rows_that_see_nothing():
    q, k = drawn(1, 5, 2, 8), drawn(1, 2, 2, 8, seed=1)
    out, lse, _ = flash_attn.flash_attn_func(q, k, k, causal=True, return_attn_probs=True)
    assert not out[:, :3].any()
    assert (lse[:, :, :3] == math.inf).all() and torch.isfinite(lse[:, :, 3:]).all()
    _, lse = flash_attn_3.flash_attn_func(q, k, k, causal=True, return_attn_probs=True)
    assert (lse[:, :, :3] == -math.inf).all()
    (dq,) = torch.autograd.grad(out.sum(), q)
    assert not dq[:, :3].any()


def test_scale_is_of_the_head_size_given():
    q, k, v = (drawn(1, 9, 2, 20, seed=x) for x in range(3))
    expected, _ = math64.attention(q, k, v, scale=20**-0.5)
    close(flash_attn.flash_attn_func(q, k, v), expected, torch.float32)


def test_flash_attention_2s_mask_by_name():
    """The vector of docs/design/dropout-bits.md: batch 1 of two, head 2 of three."""
    q = torch.zeros(2, 64, 3, 8)
    k = torch.zeros(2, 128, 3, 8)
    from ordo.torch._attention import run_inputs
    from ordo.torch._call import Arguments
    from ordo.torch._kept import kept_elements

    seed = (0x0123456789ABCDEF, 0x100001000)
    *_, inputs = run_inputs(q, k, k, Arguments(dropout_p=0.1, seed=seed, keying="fa2"))
    assert int(kept_elements(*inputs)[1, 2].sum()) == 7363


def test_unpad_and_pad():
    x = drawn(3, 5, 2)
    mask = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    rows, indices, ends, longest, used = bert_padding.unpad_input(x, mask)
    assert ends.tolist() == [0, 2, 6, 6] and longest == 4 and used.tolist() == [2, 4, 0]
    back = bert_padding.pad_input(rows, indices, 3, 5)
    assert same(back, torch.where(mask[..., None] == 1, x, 0.0))
    assert same(torch.autograd.grad(back.sum(), x)[0], mask[..., None].float().expand(3, 5, 2))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda q: flash_attn_3.flash_attn_func(q, q, q, qv=q), "qv given"),
        (lambda q: flash_attn_3.flash_attn_func(q, q, q, q_descale=q), "q_descale given"),
        (lambda q: flash_attn_3.flash_attn_func(q, q, q, attention_chunk=4), "attention_chunk"),
        (
            lambda q: flash_attn.flash_attn_varlen_func(
                q[0], q[0], q[0], None, None, 1, 1, block_table=q
            ),
            "block_table given",
        ),
        (lambda q: flash_attn.flash_attn_qkvpacked_func(q), "qkv.shape"),
    ],
)
def test_what_is_not_there_is_refused_by_name(call, message):
    with pytest.raises(ordo.Error, match=message):
        call(torch.zeros(1, 4, 2, 8))
