"""ordo.torch.attention: values and gradients against float64, and equal bits."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import close, same
from ordo.torch._attention import call, run_inputs
from ordo.torch._call import Arguments
from ordo.torch._plans import plan_of

SHAPES = {
    "square": (2, 33, 33, 4, 4, 16, 16),
    "grouped": (2, 40, 70, 6, 2, 24, 24),
    "more rows than keys": (1, 50, 20, 2, 1, 8, 8),
    "other size of values": (1, 17, 130, 3, 3, 20, 36),
    "odd size": (2, 19, 19, 2, 2, 7, 7),
}


def tensors(shape, dtype=torch.float32, seed=0):
    """q, k, v and the gradient of o."""
    batch, rows, columns, heads, kv_heads, dim, v_dim = shape
    made = torch.Generator().manual_seed(seed)
    sizes = [(rows, heads, dim), (columns, kv_heads, dim), (columns, kv_heads, v_dim)]
    drawn = [torch.randn(batch, *size, generator=made).to(dtype) for size in sizes]
    dout = torch.randn(batch, rows, heads, v_dim, generator=made).to(dtype)
    return [x.requires_grad_() for x in drawn], dout


def gradients(o, inputs, dout):
    return torch.autograd.grad(o, inputs, dout)


RULES = {
    "full": {},
    "causal": dict(causal=True),
    "top-left": dict(causal="top-left"),
    "window": dict(causal=True, window=(7, 7)),
    "both sides": dict(window=(5, 9)),
    "scale": dict(scale=0.3, causal=True),
    "softcap": dict(softcap=3.0),
}


@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients_of_pytorchs_math_backend(causal):
    inputs, dout = tensors(SHAPES["square"])
    wide = [x.detach().double().transpose(1, 2).requires_grad_() for x in inputs]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=causal)
    wanted = gradients(expected, wide, dout.double().transpose(1, 2))
    o, _ = ordo.torch.attention(*inputs, causal=causal)
    close(o, expected.transpose(1, 2), torch.float32)
    for got, other in zip(gradients(o, inputs, dout), wanted):
        close(got, other.transpose(1, 2), torch.float32)


@pytest.mark.parametrize("rules", [*RULES, "list", "dropout", "drawn", "shard"])
def test_a_call_that_is_known_has_the_bits_of_one_that_is_not(rules):
    more = {
        "list": dict(causal=True, window=[7, 7]),
        "dropout": dict(dropout_p=0.1, seed=(3, 4)),
        "drawn": dict(dropout_p=0.1),
        "shard": dict(dropout_p=0.1, seed=1, shard=ordo.Shard(head0=2, heads_total=8)),
    }
    given = more.get(rules) or RULES[rules]
    inputs, dout = tensors(SHAPES["square"])
    made = []
    for function in (run_inputs, call, call, call):
        torch.manual_seed(5)
        o, lse, *_ = function(*inputs, Arguments(**given))
        made.append((o, lse, *gradients(o, inputs, dout)))
    for other in made[1:]:
        assert all(same(x, y) for x, y in zip(made[0], other))


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_a_known_call_reads_its_lists_again(kind):
    """Ends and lengths of the same shape, other content; those of int64 are converted each time."""
    inputs, dout = tensors(SHAPES["square"])
    flat = [x.detach()[0].requires_grad_() for x in inputs]
    slopes = torch.rand(2, 4)
    for first in (5, 20, 5):
        ends = torch.tensor([0, first, 33], dtype=kind)
        lens = torch.tensor([first, 33], dtype=kind)
        for tensors_, gradient, rules in (
            (flat, dout[0], dict(cu_q=ends, max_q=28, dropout_p=0.1, seed=1)),
            (flat, dout[0], dict(cu_q=ends, cu_kv=ends)),
            (inputs, dout, dict(q_lens=lens, kv_lens=lens, slopes=slopes * first)),
            (inputs, dout, dict(sequence_ids=lens.long(), dropout_p=0.1, seed=2)),
        ):
            made = []
            for function in (run_inputs, call, call):
                o, lse, *_ = function(*tensors_, Arguments(causal=True, **rules))
                made.append((o, lse, *gradients(o, tensors_, gradient)))
            for other in made[1:]:
                assert all(same(x, y) for x, y in zip(made[0], other))


def test_a_window_that_hides_nothing_is_none():
    inputs, _ = tensors(SHAPES["grouped"])
    plain, _, _ = run_inputs(*inputs, Arguments(causal=True))
    for right in (0, 5):
        o, _, seen = run_inputs(*inputs, Arguments(causal=True, window=(-1, right)))
        assert same(o, plain) and plan_of(*seen).problem.window is None
    _, _, seen = run_inputs(*inputs, Arguments(window=(-1, 5)))
    assert plan_of(*seen).problem.window == (-1, 5)


def test_plans_are_kept_but_not_for_ever():
    """More plans than there is room for: the first ones are made anew."""
    q = torch.ones(1, 1, 1, 4)
    for number in range(4200):
        ordo.torch.attention(q, q, q, scale=1 + number / 8192)
    assert ordo.torch.attention(q, q, q, scale=1.0)[1].item() == 4.0


def test_bits_do_not_depend_on_threads_or_runs():
    inputs, dout = tensors((2, 129, 129, 4, 2, 32, 32))
    results = []
    for threads in (1, 2, 3, 1):
        torch.set_num_threads(threads)
        o, lse = ordo.torch.attention(*inputs, causal=True, dropout_p=0.1, seed=1)
        results.append([o, lse, *gradients(o, inputs, dout)])
    for other in results[1:]:
        assert all(same(x, y) for x, y in zip(results[0], other))


def test_only_some_inputs_need_gradients():
    (q, k, v), dout = tensors(SHAPES["square"])
    o, _ = ordo.torch.attention(q, k, v)
    dq, dk, dv = gradients(o, (q, k, v), dout)
    o, _ = ordo.torch.attention(q.detach(), k, v.detach())
    assert same(torch.autograd.grad(o, k, dout)[0], dk)


@pytest.mark.parametrize("rows", [5, 0])
def test_gradients_of_no_elements(rows):
    """Of keys of no rows alone, the library is asked for no gradient that has an address."""
    q, k, v = (torch.randn(1, n, 2, 16) for n in (rows, 0, 0))
    given = [k.requires_grad_(), v.requires_grad_()]
    o, _ = ordo.torch.attention(q, *given)
    made = gradients(o, given, torch.ones_like(o))
    assert [x.shape for x in made] == [x.shape for x in given]


def test_where_seed_and_offset_come_from():
    inputs, _ = tensors(SHAPES["square"])

    def o(**keywords):
        return ordo.torch.attention(*inputs, dropout_p=0.3, **keywords)[0]

    assert same(o(seed=(2, 3)), o(rng_state=torch.tensor([2, 3])))
    assert same(o(seed=2), o(seed=(2, 0)))
    assert not same(o(seed=2), o(seed=3))
    for seed, signed in ((2**64 - 1, -1), (2**63, -(2**63)), (2**63 - 1, 2**63 - 1)):
        assert same(o(seed=seed), o(rng_state=torch.tensor([signed, 0])))
    torch.manual_seed(5)
    one, other = o(), o()
    assert not same(one, other)
    torch.manual_seed(5)
    assert same(one, o())
    assert same(
        o(generator=torch.Generator().manual_seed(8)), o(generator=torch.Generator().manual_seed(8))
    )
