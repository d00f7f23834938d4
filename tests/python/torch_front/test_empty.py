"""No sequence, no query, no key: zeros of the right shape, lse -inf, gradients zero."""

from __future__ import annotations

import math

import ordo
import ordo.torch
import pytest
import torch
from ordo.compat import flash_attn, flash_attn_3
from ordo.torch import _front, _sdpa

# (batch, rows, columns)
DENSE = {"no sequence": (0, 5, 7), "no query": (2, 0, 7), "no key": (2, 5, 0), "none": (0, 0, 0)}

# ends of queries and keys, rows of the tensors
PACKED = {
    "no sequence": ([0], [0], 0, 0),
    "no sequence, but rows": ([0], [0], 5, 7),
    "no query": ([0, 0, 0], [0, 3, 7], 0, 7),
    "no key": ([0, 2, 5], [0, 0, 0], 5, 0),
    "sequences without rows": ([0, 0, 0], [0, 0, 0], 0, 0),
}


def ones(*shape):
    return torch.ones(shape, requires_grad=True)


def dense(case):
    batch, rows, columns = DENSE[case]
    return ones(batch, rows, 4, 16), ones(batch, columns, 2, 16), ones(batch, columns, 2, 24)


def packed(case):
    ends, other, rows, columns = PACKED[case]
    lists = [torch.tensor(x, dtype=torch.int32) for x in (ends, other)]
    return (ones(rows, 4, 16), ones(columns, 2, 16), ones(columns, 2, 24)), lists


def check(inputs, o, lse, nothing=-math.inf):
    q, _, v = inputs
    assert o.shape == (*q.shape[:-1], v.shape[-1]) and o.dtype == q.dtype and not o.any()
    assert lse.shape == (*q.shape[:-3], q.shape[-2], q.shape[-3])
    assert lse.dtype == torch.float32 and (lse == nothing).all()
    for x, grad in zip(inputs, torch.autograd.grad(o.sum(), inputs)):
        assert grad.shape == x.shape and grad.stride() == torch.empty(x.shape).stride()
        assert not grad.any()


@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("case", DENSE)
def test_dense(case, p):
    for _ in range(2):
        inputs = dense(case)
        check(inputs, *ordo.torch.attention(*inputs, causal=True, dropout_p=p, seed=1))
        out, lse, signed = flash_attn.flash_attn_func(*inputs, dropout_p=p, return_attn_probs=True)
        check(inputs, out, lse, math.inf)
        assert signed.numel() == 0
        check(inputs, *flash_attn_3.flash_attn_func(*inputs, return_attn_probs=True))


@pytest.mark.parametrize("case", PACKED)
def test_packed(case):
    inputs, lists = packed(case)
    longest = [int(x.diff().max()) if len(x) > 1 else 0 for x in lists]
    check(inputs, *ordo.torch.attention(*inputs, cu_q=lists[0], cu_kv=lists[1]))
    out, lse, _ = flash_attn.flash_attn_varlen_func(
        *inputs, *lists, *longest, 0.1, return_attn_probs=True
    )
    check(inputs, out, lse, math.inf)
    check(
        inputs,
        *flash_attn_3.flash_attn_varlen_func(*inputs, *lists, *longest, return_attn_probs=True),
    )


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


@pytest.mark.parametrize("case", DENSE)
def test_the_plug_in(case):
    q, k, _ = (x.detach().transpose(1, 2) for x in dense(case))
    k = k.repeat_interleave(2, 1)
    out, lse, *_, state, unused, _ = _sdpa._sdpa_forward(q, k, k, 0.1, True, True)
    assert out.shape == q.shape and not out.any() and (lse == -math.inf).all()
    grads = _sdpa._sdpa_backward(
        out, q, k, k, out, lse, None, None, q.shape[2], k.shape[2], 0.1, True, state, unused
    )
    for x, y in zip(grads, (q, k, k)):
        assert x.shape == y.shape and not x.any()


@pytest.mark.parametrize("case", DENSE)
def test_scaled_dot_product_attention(case):
    attention = pytest.importorskip("torch.nn.attention")
    ordo.torch.register()
    attention.activate_flash_attention_impl("ORDO")
    try:
        q, k, v = (x.transpose(1, 2) for x in dense(case))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    finally:
        attention.restore_flash_attention_impl()
    assert out.shape == (*q.shape[:-1], 24) and not out.any()


def test_the_rest_is_still_checked():
    q, k, v = dense("no key")
    for rules, message in ((dict(dropout_p=1.0, seed=1), "dropout.p"), (dict(scale=0), "scale 0")):
        with pytest.raises(ordo.Error, match=message):
            ordo.torch.attention(q, k, v, **rules)
    none = torch.empty(0, dtype=torch.int32)
    with pytest.raises(ordo.Error, match=r"cu_q.shape \(0,\): expected \(batch \+ 1,\)"):
        ordo.torch.attention(q[0], k[0], v[0], cu_q=none, cu_kv=none)
