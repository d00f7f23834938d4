"""ordo.torch.attention: values and gradients against float64, and equal bits."""

from __future__ import annotations

import math64
import ordo
import ordo.torch
import pytest
import torch
from math64 import close, same
from ordo.torch._attention import call, run_inputs
from ordo.torch._call import Arguments
from ordo.torch._mask import keep_mask
from ordo.torch._plans import plan_of
from torch.autograd import forward_ad

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


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape, rules):
    inputs, dout = tensors(SHAPES[shape])
    o, lse = ordo.torch.attention(*inputs, **RULES[rules])
    expected, expected_lse = math64.attention(*inputs, **RULES[rules])
    close(o, expected, torch.float32)
    close(lse, expected_lse, torch.float32)
    for got, wanted in zip(gradients(o, inputs, dout), gradients(expected, inputs, dout.double())):
        close(got, wanted.double(), torch.float32)


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    inputs, dout = tensors(SHAPES["grouped"], dtype)
    o, _ = ordo.torch.attention(*inputs, causal=True)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    expected, _ = math64.attention(*wide, causal=True)
    assert o.dtype == dtype
    close(o, expected, dtype)
    for got, wanted in zip(gradients(o, inputs, dout), gradients(expected, wide, dout.double())):
        assert got.dtype == dtype
        close(got, wanted, dtype)


@pytest.mark.parametrize("p", [0.1, 0.17, 0.5])
@pytest.mark.parametrize("keying", ["ordo", "fa2"])
def test_dropout_has_the_keep_bits_of_the_seed(p, keying):
    inputs, dout = tensors(SHAPES["grouped"])
    o, _, seen = run_inputs(*inputs, Arguments(causal=True, dropout_p=p, seed=(3, 9), keying=keying))
    keep = keep_mask(*seen)
    problem = ordo.Problem(
        batch=2, heads=6, kv_heads=2, q_len=40, kv_len=70, head_dim=24,
        dropout=ordo.Dropout(p=p, keying=keying),
    )  # fmt: skip
    info = ordo.dropout.query(problem)
    assert abs(1 - keep.double().mean().item() - p) < 0.03
    expected, _ = math64.attention(*inputs, causal=True, keep=keep, kept_scale=info.scale)
    close(o, expected, torch.float32)
    for got, wanted in zip(gradients(o, inputs, dout), gradients(expected, inputs, dout.double())):
        close(got, wanted.double(), torch.float32)


@pytest.mark.parametrize("p", [0.001, 0.003, 0.999])
def test_enough_bits_for_any_p(p):
    inputs, dout = tensors(SHAPES["grouped"])
    o, _, seen = run_inputs(*inputs, Arguments(dropout_p=p, seed=(3, 9)))
    used = plan_of(*seen).info.dropout_p_used
    assert abs(used - p) <= 2**-17
    keep = keep_mask(*seen)
    rare = (~keep if p < 0.5 else keep).double().mean().item()
    assert abs(rare / min(p, 1 - p) - 1) < 0.5
    expected, _ = math64.attention(*inputs, keep=keep, kept_scale=1 / (1 - used))
    close(o, expected, torch.float32)
    for got, wanted in zip(gradients(o, inputs, dout), gradients(expected, inputs, dout.double())):
        close(got, wanted.double(), torch.float32)


@pytest.mark.parametrize("batched", [False, True])
def test_alibi(batched):
    inputs, dout = tensors(SHAPES["grouped"])
    slopes = torch.rand(2, 6) if batched else torch.rand(6)
    o, _ = ordo.torch.attention(*inputs, causal=True, slopes=slopes)
    expected, _ = math64.attention(*inputs, causal=True, slopes=slopes)
    close(o, expected, torch.float32)
    for got, wanted in zip(gradients(o, inputs, dout), gradients(expected, inputs, dout.double())):
        close(got, wanted.double(), torch.float32)


def test_the_gradient_of_lse():
    inputs, dout = tensors(SHAPES["grouped"])
    for both in (True, False):
        o, lse = ordo.torch.attention(*inputs, causal=True)
        expected, expected_lse = math64.attention(*inputs, causal=True)
        loss = lse.square().sum() + (o * dout).sum() * both
        wanted = expected_lse.square().sum() + (expected * dout).sum() * both
        unused = dict(allow_unused=True, materialize_grads=True)
        for got, other in zip(
            torch.autograd.grad(loss, inputs, **unused),
            torch.autograd.grad(wanted, inputs, **unused),
        ):
            close(got, other.double(), torch.float32)


def test_packed_sequences_have_the_bits_they_have_alone():
    lengths = [5, 0, 40, 17]
    ends = torch.tensor([0, 5, 5, 45, 62], dtype=torch.int32)
    inputs, dout = tensors((1, 62, 62, 4, 2, 16, 16))
    inputs = [x.detach()[0].requires_grad_() for x in inputs]
    rules = dict(causal=True, dropout_p=0.1, seed=(1, 2))
    o, lse = ordo.torch.attention(*inputs, cu_q=ends, **rules)
    grads = gradients(o, inputs, dout[0])
    for b, length in enumerate(lengths):
        if length == 0:
            continue
        rows = slice(int(ends[b]), int(ends[b + 1]))
        alone = [x.detach()[None, rows].requires_grad_() for x in inputs]
        ids = torch.tensor([b])
        one, one_lse = ordo.torch.attention(*alone, sequence_ids=ids, **rules)
        assert same(one[0], o[rows]) and same(one_lse[0], lse[:, rows])
        for whole, part in zip(grads, gradients(one, alone, dout[:, rows])):
            assert same(whole[rows], part[0])


def test_padded_sequences_have_the_bits_of_packed_ones():
    lengths = torch.tensor([9, 33], dtype=torch.int32)
    inputs, _ = tensors(SHAPES["square"])
    o, _ = ordo.torch.attention(*inputs, q_lens=lengths, kv_lens=lengths, causal=True)
    rows = torch.cat([x[: int(n)] for x, n in zip(o, lengths)])
    flat = [torch.cat([y[: int(n)] for y, n in zip(x, lengths)]) for x in inputs]
    ends = torch.tensor([0, 9, 42], dtype=torch.int32)
    packed, _ = ordo.torch.attention(*flat, cu_q=ends, causal=True)
    assert same(rows, packed)


def test_ranks_that_hold_some_heads_draw_their_part_of_the_same_keep_bits():
    inputs, _ = tensors(SHAPES["grouped"])
    rules = dict(dropout_p=0.2, seed=7)
    whole, _ = ordo.torch.attention(*inputs, **rules)
    for rank in range(2):
        q = inputs[0][:, :, 3 * rank : 3 * rank + 3]
        k, v = (x[:, :, rank : rank + 1] for x in inputs[1:])
        shard = ordo.Shard(head0=3 * rank, heads_total=6)
        part, _ = ordo.torch.attention(q, k, v, shard=shard, **rules)
        assert same(part, whole[:, :, 3 * rank : 3 * rank + 3])


def test_bits_do_not_depend_on_threads_or_runs():
    inputs, dout = tensors((2, 129, 129, 4, 2, 32, 32))
    results = []
    for threads in (1, 2, 3, 1):
        torch.set_num_threads(threads)
        o, lse = ordo.torch.attention(*inputs, causal=True, dropout_p=0.1, seed=1)
        results.append([o, lse, *gradients(o, inputs, dout)])
    for other in results[1:]:
        assert all(same(x, y) for x, y in zip(results[0], other))


def test_strides_change_no_bit():
    inputs, dout = tensors(SHAPES["square"])
    o, _ = ordo.torch.attention(*inputs, causal=True)
    grads = gradients(o, inputs, dout)
    for change in (
        lambda x: x.detach().transpose(1, 2).contiguous().transpose(1, 2),  # head before row
        lambda x: x.detach().transpose(2, 3).contiguous().transpose(2, 3),  # last axis strided
        lambda x: torch.cat([x.detach(), x.detach()], -1)[..., : x.shape[-1]],  # with gaps
    ):
        views = [change(x).requires_grad_() for x in inputs]
        assert not views[0].is_contiguous()
        strided, _ = ordo.torch.attention(*views, causal=True)
        assert same(o, strided)
        assert all(same(x, y) for x, y in zip(grads, gradients(strided, views, change(dout))))


def test_saved_tensors_may_come_back_in_another_layout():
    inputs, dout = tensors(SHAPES["square"])
    views = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    views = [x.requires_grad_() for x in views]
    plain = gradients(ordo.torch.attention(*views, causal=True)[0], views, dout)
    stored = torch.autograd.graph.saved_tensors_hooks(
        lambda x: x.detach().clone(memory_format=torch.contiguous_format), lambda x: x
    )
    with stored:
        o, _ = ordo.torch.attention(*views, causal=True)
    assert all(same(x, y) for x, y in zip(plain, gradients(o, views, dout)))


def test_a_broadcast_gradient():
    inputs, _ = tensors(SHAPES["square"])
    o, _ = ordo.torch.attention(*inputs)
    one = gradients(o, inputs, torch.ones_like(o))
    o, _ = ordo.torch.attention(*inputs)
    assert all(same(x, y) for x, y in zip(one, torch.autograd.grad(o.sum(), inputs)))


def test_numpy_gives_the_same_bits():
    inputs, dout = tensors(SHAPES["grouped"])
    o, lse = ordo.torch.attention(*inputs, causal=True, dropout_p=0.1, seed=(5, 6))
    dq, dk, dv = gradients(o, inputs, dout)
    q, k, v = (x.detach().numpy() for x in inputs)
    problem = ordo.Problem(
        batch=2, heads=6, kv_heads=2, q_len=40, kv_len=70, head_dim=24, mask="causal", dropout=0.1
    )
    plan = ordo.Plan(problem)
    no, nlse = ordo.forward(plan, q, k, v, seed=5, offset=6)
    grads = ordo.backward(plan, q, k, v, no, nlse, dout.numpy(), seed=5, offset=6)
    for tensor, array in zip((o, lse, dq, dk, dv), (no, nlse, *grads)):
        assert ordo.digest(tensor) == ordo.digest(array)


def test_no_gradient_no_graph():
    inputs, _ = tensors(SHAPES["square"])
    with torch.no_grad():
        o, lse = ordo.torch.attention(*inputs)
    assert not o.requires_grad and not lse.requires_grad
    with torch.inference_mode():
        assert same(ordo.torch.attention(*inputs)[0], o)


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


def test_forward_mode_derivatives_are_refused():
    """An operator without them would leave a tangent out: the derivative would be 0."""
    q, k, v, t = (torch.randn(1, 40, 2, 64) for _ in range(4))

    def output(q):
        return ordo.torch.attention(q, k, v)[0]

    output(q)  # a call that is known goes another way than a new one
    for derivative in (
        lambda: torch.func.jvp(output, (q,), (t,)),
        lambda: torch.func.jacfwd(output)(q[:, :1]),
        lambda: torch.func.hessian(lambda x: output(x).sum())(q[:, :1]),
    ):
        with pytest.raises(ordo.Error, match="torch.func .*jvp.*: not supported"):
            derivative()
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="forward AD|jvp"):
            ordo.torch.attention(q, forward_ad.make_dual(k, t), v)
        with pytest.raises(RuntimeError, match="forward AD|jvp"):
            ordo.torch.flash_attn_func(forward_ad.make_dual(q, t), k, v)
        assert torch.equal(output(q), ordo.torch.attention(q, k, v)[0])
