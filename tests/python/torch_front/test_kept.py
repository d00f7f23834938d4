"""The debug mask (S_dmask): its sign is what dropout keeps, its magnitude exp(score - the largest of the row)."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from bits import drawn, same
from ordo.compat import flash_attn
from torch.utils._python_dispatch import TorchDispatchMode

flash, varlen = flash_attn.flash_attn_func, flash_attn.flash_attn_varlen_func


def exported(problem, seed, **lists):
    """The kept elements that ordo.dropout.export() writes, (batch, head, row, column)."""
    made = torch.zeros(problem.batch, problem.heads, problem.q_len, problem.kv_len, dtype=bool)
    rest = dict(seed=seed[0], offset=seed[1], **lists)
    for b in range(problem.batch):
        for h in range(problem.heads):
            part = torch.from_numpy(ordo.dropout.export(problem, sequence=b, head=h, **rest))
            made[b, h, : part.shape[0], : part.shape[1]] = part
    return made


def exponentials(q, k, **rules):
    """exp(s - the largest of the row) of (batch, row, head, dim): columns are what is attended to."""
    eye = torch.eye(k.shape[1]).view(1, k.shape[1], 1, -1).expand(len(k), -1, k.shape[2], -1)
    p = flash(q.float(), k.float(), eye, **rules).transpose(1, 2)
    return p / p.amax(-1, keepdim=True).clamp_min(1e-30)


RULES = {
    "plain": {},
    "causal": dict(causal=True),
    "window": dict(causal=True, window_size=(7, 3)),
    "window without a mask": dict(window_size=(2, 5)),
    "softcap": dict(softcap=2.0, softmax_scale=0.7),
    "alibi": dict(alibi_slopes=torch.tensor([[0.5, 0.25, 1.0, 0.1], [0.3, 0.2, 0.9, 0.0]])),
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("rows, columns", [(20, 33), (40, 9), (129, 257)])
def test_sign_and_magnitude(rules, rows, columns):
    q, k, v = drawn(2, rows, 4, 16), drawn(2, columns, 2, 16, seed=1), drawn(2, columns, 2, 16, seed=2)
    out, _, signed = flash(q, k, v, 0.3, return_attn_probs=True, seed=(5, 6), **rules)
    assert signed.shape == (2, 4, -(-rows // 128) * 128, -(-columns // 128) * 128)
    assert signed[:, :, rows:].count_nonzero() == signed[..., columns:].count_nonzero() == 0
    signed = signed[:, :, :rows, :columns]
    problem = ordo.Problem(batch=2, heads=4, kv_heads=2, q_len=rows, kv_len=columns, head_dim=16, dropout=0.3)
    assert torch.equal(torch.signbit(signed), ~exported(problem, (5, 6)))
    assert (signed.abs() - exponentials(q, k, **rules)).abs().max() < 4e-6
    scale = ordo.dropout.query(problem).scale  # the result can be made of it
    p = signed.clamp_min(0.0) * scale / signed.abs().sum(-1, keepdim=True).clamp_min(1e-30)
    assert (torch.einsum("bhqk,bkhd->bqhd", p, v.repeat_interleave(2, 2)) - out).abs().max() < 2e-5
    assert flash(q, k, v, return_attn_probs=True)[2].numel() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_sequences_have_the_masks_of_their_own(dtype):
    ends, other = [0, 40, 40, 60, 61], [0, 7, 20, 300, 300]
    q = drawn(61, 4, 16, dtype=dtype)
    k, v = (drawn(300, 2, 16, seed=x, dtype=dtype) for x in (1, 2))
    cu = [torch.tensor(x, dtype=torch.int32) for x in (ends, other)]
    rules = dict(causal=True, window_size=(100, 0), softcap=4.0)
    *_, signed = varlen(q, k, v, *cu, 40, 280, 0.2, return_attn_probs=True, seed=(3, 9), **rules)
    assert signed.shape == (4, 4, 128, 384) and signed.dtype == dtype
    problem = ordo.Problem(
        batch=4, heads=4, kv_heads=2, q_len=40, kv_len=280, head_dim=16, dropout=0.2,
        layout="packed", total_q=61, total_kv=300,
    )  # fmt: skip
    keep = exported(problem, (3, 9), cu_q=ends, cu_kv=other)
    for b in range(4):
        rows, columns = slice(*ends[b : b + 2]), slice(*other[b : b + 2])
        size = rows.stop - rows.start, columns.stop - columns.start
        part = signed[b, :, : size[0], : size[1]]
        assert torch.equal(torch.signbit(part), ~keep[b, :, : size[0], : size[1]])
        assert torch.signbit(signed[b]).sum() == torch.signbit(part).sum()
        assert signed[b].count_nonzero() == part.count_nonzero()
        if 0 not in size:
            expected = exponentials(q[None, rows], k[None, columns], **rules)[0]
            assert (part.abs() - expected).abs().max() < (4e-6 if dtype == torch.float32 else 2**-8)


@pytest.mark.parametrize("packed", [False, True])
def test_compiled_in_one_graph(packed):
    q, k = drawn(30, 4, 16), drawn(50, 2, 16, seed=1)
    cu = torch.tensor([0, 10, 30], dtype=torch.int32), torch.tensor([0, 45, 50]).int()

    def call(q, k, rng):
        rest = dict(causal=True, return_attn_probs=True, rng_state=rng)
        if packed:
            return varlen(q, k, k, *cu, 20, 45, 0.3, **rest)
        return flash(q[None], k[None], k[None], 0.3, **rest)

    rng = torch.tensor([7, 8])
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for x, y in zip(compiled(q, k, rng), call(q, k, rng)):
        assert same(x, y)
    assert not same(call(q, k, rng)[2], call(q, k, torch.tensor([7, 9]))[2])


def test_autocast_does_not_round_the_scores():
    q, k = drawn(1, 16, 2, 16, dtype=torch.bfloat16), drawn(1, 16, 2, 16, dtype=torch.bfloat16)
    rules = dict(return_attn_probs=True, seed=(1, 2))
    expected = flash(q, k, k, 0.3, **rules)[2]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(flash(q.float(), k, k, 0.3, **rules)[2], expected)


def test_the_debug_mask_calls_no_cublas():
    """In a CUDA graph, as the first call of cuBLAS, that would be an error."""
    called = []

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function._schema.name)
            return function(*args, **(kwargs or {}))

    q, k = torch.randn(2, 40, 4, 16), torch.randn(2, 40, 2, 16)
    with torch.no_grad(), Operators():
        flash(q, k, k, 0.3, causal=True, return_attn_probs=True, seed=(3, 4))
    assert called and not any(x in name for name in called for x in ("mm", "matmul", "dot", "linear"))
