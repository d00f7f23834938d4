"""Kept elements and the debug mask (S_dmask) as tensors."""

from __future__ import annotations

import math64
import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.compat import flash_attn
from ordo.torch._attention import run_inputs
from ordo.torch._call import Arguments
from ordo.torch._inputs import call_of
from ordo.torch._kept import kept_elements, signed_probabilities


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exported(problem, seed, **lists):
    """The kept elements that ordo.dropout.export() writes, (batch, head, row, column)."""
    made = torch.zeros(problem.batch, problem.heads, problem.q_len, problem.kv_len, dtype=bool)
    for b in range(problem.batch):
        for h in range(problem.heads):
            part = torch.from_numpy(
                ordo.dropout.export(problem, sequence=b, head=h, seed=seed[0], offset=seed[1],
                                    **lists)
            )  # fmt: skip
            made[b, h, : part.shape[0], : part.shape[1]] = part
    return made


def exponentials(q, k, **rules):
    """exp(s - the largest of the row) in float64, of (batch, row, head, dim)."""
    columns = k.shape[1]
    eye = torch.eye(columns, dtype=torch.float64).view(1, columns, 1, columns)
    eye = eye.expand(k.shape[0], -1, k.shape[2], -1)
    p = math64.attention(q, k, eye, **rules)[0].transpose(1, 2)  # what is attended to: columns
    return p / p.amax(-1, keepdim=True).clamp_min(1e-300)


RULES = {
    "plain": {},
    "causal": dict(causal=True),
    "top-left": dict(causal="top-left"),
    "window": dict(causal=True, window=(7, 3)),
    "window without a mask": dict(window=(2, 5)),
    "softcap": dict(softcap=2.0, scale=0.7),
    "alibi": dict(slopes=torch.tensor([[0.5, 0.25, 1.0, 0.1], [0.3, 0.2, 0.9, 0.0]])),
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("rows, columns", [(20, 33), (40, 9), (129, 257)])
def test_sign_and_magnitude(rules, rows, columns):
    q, k, v = drawn(2, rows, 4, 16), drawn(2, columns, 2, 16, seed=1), drawn(2, columns, 2, 16)
    *_, inputs = run_inputs(q, k, v, Arguments(dropout_p=0.3, seed=(5, 6), **rules))
    signed = signed_probabilities(*inputs)
    assert signed.shape == (2, 4, -(-rows // 128) * 128, -(-columns // 128) * 128)
    problem = ordo.Problem(
        batch=2, heads=4, kv_heads=2, q_len=rows, kv_len=columns, head_dim=16, dropout=0.3
    )
    keep = exported(problem, (5, 6))
    assert torch.equal(kept_elements(*inputs), keep)
    assert torch.equal(torch.signbit(signed[:, :, :rows, :columns]), ~keep)
    expected = exponentials(q, k, **rules)
    assert (signed[:, :, :rows, :columns].abs() - expected).abs().max() < 2e-6
    assert signed[:, :, rows:].count_nonzero() == signed[..., columns:].count_nonzero() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_sequences_have_the_masks_of_their_own(dtype):
    ends, other = [0, 40, 40, 60, 61], [0, 7, 20, 300, 300]
    q = drawn(61, 4, 16, dtype=dtype)
    k, v = (drawn(300, 2, 16, seed=x, dtype=dtype) for x in (1, 2))
    cu = [torch.tensor(x, dtype=torch.int32) for x in (ends, other)]
    out, lse, signed = flash_attn.flash_attn_varlen_func(
        q, k, v, *cu, 40, 280, 0.2, causal=True, window_size=(100, 0), softcap=4.0,
        return_attn_probs=True, seed=(3, 9),
    )  # fmt: skip
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
            rules = dict(causal=True, window=(100, 0), softcap=4.0)
            expected = exponentials(q[None, rows], k[None, columns], **rules)[0]
            tolerance = 2e-6 if dtype == torch.float32 else 2**-8
            assert (part.abs() - expected).abs().max() < tolerance


def test_the_result_is_rebuilt_from_it():
    q, k, v = drawn(2, 20, 4, 16), drawn(2, 33, 2, 16, seed=1), drawn(2, 33, 2, 16, seed=2)
    rules = dict(causal=True, window_size=(7, 3), softcap=4.0, alibi_slopes=torch.rand(2, 4))
    out, _, signed = flash_attn.flash_attn_func(
        q, k, v, 0.3, return_attn_probs=True, seed=(5, 6), **rules
    )
    signed = signed[:, :, :20, :33]
    scale = ordo.dropout.query(ordo.Problem(q_len=1, head_dim=1, dropout=0.3)).scale
    p = signed.clamp_min(0.0) * scale / signed.abs().sum(-1, keepdim=True)
    rebuilt = torch.einsum("bhqk,bkhd->bqhd", p, v.repeat_interleave(2, 2))
    assert (rebuilt - out).abs().max() < 1e-5
    assert flash_attn.flash_attn_func(q, k, v, return_attn_probs=True)[2].numel() == 0


@pytest.mark.parametrize("packed", [False, True])
def test_compiled_in_one_graph(packed):
    q, k = drawn(30, 4, 16), drawn(50, 2, 16, seed=1)
    rng = torch.tensor([7, 8])
    if packed:
        cu = torch.tensor([0, 10, 30], dtype=torch.int32), torch.tensor([0, 45, 50]).int()

        def call(q, k, rng):
            return flash_attn.flash_attn_varlen_func(
                q, k, k, *cu, 20, 45, 0.3, causal=True, return_attn_probs=True, rng_state=rng
            )
    else:
        q, k = q[None], k[None]

        def call(q, k, rng):
            return flash_attn.flash_attn_func(
                q, k, k, 0.3, causal=True, return_attn_probs=True, rng_state=rng
            )

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for x, y in zip(compiled(q, k, rng), call(q, k, rng)):
        assert same(x, y)
    one = call(q, k, rng)[2]
    assert not same(one, call(q, k, torch.tensor([7, 9]))[2])


def test_autocast_does_not_round_the_scores():
    q, k = drawn(1, 16, 2, 16, dtype=torch.bfloat16), drawn(1, 16, 2, 16, dtype=torch.bfloat16)
    rules = dict(return_attn_probs=True, seed=(1, 2))
    expected = flash_attn.flash_attn_func(q, k, k, 0.3, **rules)[2]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(flash_attn.flash_attn_func(q.float(), k, k, 0.3, **rules)[2], expected)


@pytest.mark.parametrize("rows, columns", [(0, 5), (5, 0), (0, 0)])
def test_nothing_to_keep(rows, columns):
    from ordo.torch._inputs import Lists, Rules

    q, k = drawn(2, rows, 4, 16), drawn(2, columns, 4, 16)
    rules = Rules(0, 0, 0.25, "full", -1, -1, 0.0, 0.3, "ordo", ())
    made = signed_probabilities(q, k, k, Lists(torch.tensor([1, 2])), rules)
    assert made.shape == (2, 4, 128 if rows else 0, 128 if columns else 0)
    assert not made.any()


@pytest.mark.parametrize("packed", [False, True])
def test_operator(packed):
    q, k = drawn(30, 4, 16), drawn(50, 2, 16, seed=1)
    lists = {}
    if packed:
        ends = torch.tensor([0, 10, 30]).int(), torch.tensor([0, 45, 50]).int()
        lists = dict(cu_q=ends[0], cu_kv=ends[1], max_q=20, max_kv=45)
    else:
        q, k = q[None], k[None]
    *_, (q, k, v, given, rules) = run_inputs(q, k, k, Arguments(dropout_p=0.3, seed=1, **lists))
    done = torch.library.opcheck(torch.ops.ordo.kept_elements.default, (q, k, v, *call_of(given, rules)))
    assert set(done.values()) == {"SUCCESS"}


def test_the_debug_mask_calls_no_cublas():
    """In a CUDA graph, as the first call of cuBLAS, that would be an error."""
    called = []

    class Operators(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function._schema.name)
            return function(*args, **(kwargs or {}))

    q, k = torch.randn(2, 40, 4, 16), torch.randn(2, 40, 2, 16)
    *_, inputs = run_inputs(q, k, k, Arguments(causal=True, dropout_p=0.3, seed=(3, 4)))
    with torch.no_grad(), Operators():
        signed_probabilities(*inputs)
    assert called and not any(x in name for name in called for x in ("mm", "matmul", "dot", "linear"))
