"""A bias of the logits, and its gradient."""

import numpy as np
import ordo
import pytest
import reference
from test_attention import normal, same_bits

B, H, ROWS, COLUMNS, DIM = 2, 4, 60, 90, 16


@pytest.fixture
def arrays():
    rows, keys = (B, ROWS, H, DIM), (B, COLUMNS, H // 2, DIM)
    return [normal(shape, seed) for seed, shape in enumerate((rows, keys, keys, rows))]


def bias_of(shape, seed=9, dtype="f32"):
    bias = normal((*shape, ROWS, COLUMNS), seed, dtype)
    bias[..., 7, :] = -np.inf
    bias[..., 50:, 3] = -np.inf
    return bias


@pytest.mark.parametrize("shape", [(B, H), (1, H), (B, 1), (1, 1), (H,), ()])
@pytest.mark.parametrize("rules", [{}, dict(mask="causal", softcap=2.0)])
def test_against_numpy(arrays, shape, rules):
    q, k, v, dout = arrays
    bias = bias_of(shape)
    whole = np.broadcast_to(bias, (B, H, ROWS, COLUMNS))
    own = bias.reshape((1,) * (2 - len(shape)) + bias.shape)
    limits = ordo.Bias(on=True, per_sequence=own.shape[0] > 1, per_head=own.shape[1] > 1)
    plan = ordo.Plan(
        ordo.Problem(batch=B, heads=H, kv_heads=H // 2, q_len=ROWS, kv_len=COLUMNS, head_dim=DIM,
                     bias=limits, **rules)
    )  # fmt: skip
    assert ordo.Plan.parse(plan.line).problem.bias == limits
    o, lse = ordo.forward(plan, q, k, v, bias=bias)
    dbias = np.full(own.shape, np.nan, np.float32)
    grads = ordo.backward(plan, q, k, v, o, lse, dout, bias=bias, dbias=dbias)
    sums = np.zeros(own.shape)
    for b in range(B):
        expected = reference.sequence(plan.problem, q[b], k[b], v[b], dout[b], bias=whole[b])
        for got, name in zip((o[b], lse[b], *(x[b] for x in grads)), ("o", "lse", "dq", "dk", "dv")):
            reference.close(got, getattr(expected, name), 2e-5)
        ds = expected.dbias if own.shape[1] > 1 else expected.dbias.sum(axis=0, keepdims=True)
        sums[b if own.shape[0] > 1 else 0] += ds
    reference.close(dbias, sums, 2e-5)
    if not rules:
        same_bits([ordo.attention(q, k, v, bias=bias)], [o])
    alone = np.empty_like(dbias)
    none = ordo.backward(plan, q, k, v, o, lse, dout, bias=bias, dbias=alone, gradients=())
    assert none == (None, None, None)
    same_bits([alone], [dbias])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_types_and_strides(arrays, dtype):
    q, k, v, _ = (x.astype(normal((1,), 0, dtype).dtype) for x in arrays)
    bias = bias_of((1, H), dtype=dtype)
    o = ordo.attention(q, k, v, bias=bias)
    same_bits([ordo.attention(q, k, v, bias=bias.astype(np.float32))], [o])
    wide = np.broadcast_to(bias, (B, H, ROWS, COLUMNS))
    same_bits([ordo.attention(q, k, v, bias=wide)], [o])
    gap = np.zeros((1, H, ROWS, COLUMNS + 7), bias.dtype)
    gap[..., :COLUMNS] = bias
    same_bits([ordo.attention(q, k, v, bias=gap[..., :COLUMNS])], [o])
    same_bits([ordo.attention(q, k, v, bias=np.flip(bias, 2).copy()[:, :, ::-1])], [o])
    lengths = dict(q_lens=[ROWS, 20], kv_lens=[COLUMNS, 40])
    padded = ordo.attention(q, k, v, bias=bias, **lengths)
    same_bits([padded[1:, :20]], [ordo.attention(q[1:, :20], k[1:, :40], v[1:, :40], bias=bias[:, :, :20, :40])])


def test_refusals(arrays):
    q, k, v, _ = arrays
    bias = bias_of((1, H))
    for wrong, says in (
        (bias[..., :-1], "bias.shape"),
        (bias[0, 0, 0], "bias.shape"),
        (bias.astype(np.float64), "bias.dtype float64: expected float32"),
        (bias.astype(np.float16), "bias.dtype float16: expected float32"),
        (bias.swapaxes(2, 3).copy().swapaxes(2, 3), "bias.strides"),
        ([[0.0]], "bias list"),
    ):
        with pytest.raises(ordo.Error, match=says):
            ordo.attention(q, k, v, bias=wrong)
    with pytest.raises(ordo.Error, match="layout packed"):
        ordo.attention(q[0], k[0], v[0], bias=bias, cu_q=[0, ROWS], cu_kv=[0, COLUMNS])
    plan = ordo.Plan(ordo.Problem(batch=B, heads=H, kv_heads=2, q_len=ROWS, kv_len=COLUMNS, head_dim=DIM))
    with pytest.raises(ordo.Error, match="bias.data given: expected NULL with bias.on false"):
        ordo.forward(plan, q, k, v, bias=bias[:, :1])
