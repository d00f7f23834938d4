"""What the tests of PyTorch's own node share (test_node*.py)."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import _compiled
from ordo.torch._compiled import front

NODE = "ScaledDotProductFusedAttentionOverrideableBackward0"
operator = getattr(torch.ops.aten, _compiled._NODE)
backward_operator = getattr(torch.ops.aten, f"{_compiled._NODE}_backward")
flash = ordo.torch.flash_attn_func

# PyTorch 2.11 has the operator that the kernels were written for; others may have another one.
needed = pytest.mark.skipif(
    front.node is None and not (front.on and torch.__version__.startswith("2.11.")),
    reason=front.missing or front.nodeless,
)


def tensors(batch=2, rows=37, heads=4, kv_heads=2, dim=16, dtype=torch.float32, seed=7):
    drawn = torch.Generator().manual_seed(seed)
    shapes = (batch, rows, heads, dim), (batch, rows, kv_heads, dim), (batch, rows, kv_heads, dim)
    return [torch.randn(x, generator=drawn).to(dtype).requires_grad_() for x in shapes]


def is_node(o):
    return type(o.grad_fn).__name__ == NODE


def on_node(inputs, function=flash, **rules):
    """o of a call whose plan is known, seed set before; asserts that the node is taken."""
    function(*inputs, **rules)
    torch.manual_seed(5)
    o = function(*inputs, **rules)
    assert is_node(o)
    return o


def wanted(monkeypatch, inputs, dout=None, of=None, **rules):
    """(o, dq, dk, dv) by the autograd.Function."""
    flash(*inputs, **rules)
    with monkeypatch.context() as patch:
        patch.setattr(front, "node", None)
        torch.manual_seed(5)
        o = flash(*inputs, **rules)
        assert type(o.grad_fn).__name__ == "_PlainBackward"
        dout = torch.ones_like(o) if dout is None else dout
        return [o, *torch.autograd.grad(o, of or inputs, dout)]


def all_same(found, other):
    return all(same(x, y) and x.stride() == y.stride() for x, y in zip(found, other, strict=True))


def arguments_of(node, dout):
    """What the node calls the backward operator with."""
    return [
        dout, node._saved_query, node._saved_key, node._saved_value, node._saved_attn_bias,
        [True] * 4, node._saved_output, node._saved_logsumexp, node._saved_cum_seq_q,
        node._saved_cum_seq_k, node._saved_max_q, node._saved_max_k, node._saved_dropout_p,
        node._saved_is_causal, node._saved_philox_seed, node._saved_philox_offset,
    ]  # fmt: skip


def hooked(o, name, unpack):
    getattr(o.grad_fn, f"_raw_saved_{name}").register_hooks(lambda x: x, unpack)
