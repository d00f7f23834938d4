"""The operators: opcheck, torch.compile, checkpointing, modes, autocast, switches."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import _front, _node
from ordo.torch._inputs import Lists, Rules, call_of
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

RNG = torch.tensor([1, 2])
ENDS = torch.tensor([0, 5, 12], dtype=torch.int32)
LENS = torch.tensor([3, 7], dtype=torch.int32)


def drawn(*shape, seed=0, dtype=torch.float32):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made).to(dtype).requires_grad_()


def rules(**given):
    plain = dict(max_q=0, max_kv=0, scale=0.25, mask="full", left=-1, right=-1, softcap=0.0)
    return Rules(**{**plain, "dropout_p": 0.0, "keying": "ordo", "shard": (), **given})


CASES = {
    "plain": ((2, 7), Lists(), rules()),
    "causal with dropout": ((2, 7), Lists(RNG), rules(mask="causal", dropout_p=0.1)),
    "packed": ((12,), Lists(None, ENDS, ENDS), rules(max_q=7, max_kv=7, mask="causal")),
    "padded": ((2, 7), Lists(None, None, None, LENS, LENS), rules(left=3, right=0)),
    "alibi": ((2, 7), Lists(slopes=torch.rand(2, 4)), rules(softcap=2.0)),
    "shard": (
        (2, 7),
        Lists(RNG, sequence_ids=torch.tensor([4, 9])),
        rules(dropout_p=0.5, keying="ordo", shard=(0, 4, 0, 0, 8, 0, 0)),
    ),
}


SINK = torch.randn(4)


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_opcheck(case, sink):
    rows, lists, plain = CASES[case]
    q, k, v = (drawn(*rows, heads, 16, seed=heads) for heads in (4, 2, 2))
    flags, scale, more, *rest = call_of(lists, plain)
    if sink:
        flags, more = flags | _front.SINK, (*more, SINK.clone().requires_grad_())
    call = flags, scale, list(more), *rest
    result = torch.library.opcheck(torch.ops.ordo.forward.default, (q, k, v, *call))
    assert set(result.values()) == {"SUCCESS"}
    with torch.no_grad():
        o, lse, _ = torch.ops.ordo.forward(q, k, v, *call)
    q, k, v = (x.detach() for x in (q, k, v))
    call = flags, scale, [x.detach() for x in more], *rest
    for dlse in (None, torch.rand_like(lse)):
        given = torch.rand_like(o), dlse, q, k, v, o, lse, *call
        result = torch.library.opcheck(torch.ops.ordo.backward.default, given)
        assert set(result.values()) == {"SUCCESS"}


def test_opcheck_of_the_draw():
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    given = (drawn(1, 2, 3, 4),)
    result = torch.library.opcheck(torch.ops.ordo.draw.default, given, test_utils=tests)
    assert set(result.values()) == {"SUCCESS"}


@pytest.mark.parametrize("case", CASES)
def test_the_operator_has_the_bits_and_gradients_of_the_function(case):
    rows, lists, plain = CASES[case]
    inputs = [drawn(*rows, heads, 16, seed=heads) for heads in (4, 2, 2)]
    short = _node.run(*inputs, call_of(lists, plain))
    long = torch.ops.ordo.forward(*inputs, *call_of(lists, plain))[:2]
    assert all(same(x, y) for x, y in zip(short, long))
    dout, dlse = torch.rand_like(short[0]), torch.rand_like(short[1])
    one = torch.autograd.grad(short, inputs, (dout, dlse))
    other = torch.autograd.grad(long, inputs, (dout, dlse))
    assert all(same(x, y) for x, y in zip(one, other))


def test_unknown_flags_and_other_numbers_of_tensors_are_refused():
    q, k, v = (drawn(2, 7, heads, 16) for heads in (4, 2, 2))
    for flags, more, message in (
        (1 << 40, [], "flags .*: expected"),
        (_front.RNG, [], "more: 0 tensors"),
        (0, [RNG], "more: 1 tensors"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.ordo.forward(q, k, v, flags, 0.25, more)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 17])
def test_a_refused_call_releases_its_tensors(count):
    q, k, v = (drawn(2, 7, heads, 16) for heads in (4, 2, 2))
    more = [torch.tensor([1, 2, 3]) for _ in range(count)]
    with pytest.raises(RuntimeError, match="more: |rng.shape"):
        torch.ops.ordo.forward(q.detach(), k.detach(), v.detach(), _front.RNG, 0.25, more)
    assert [x._use_count() for x in more] == [1] * count


def step(q, k, v, **keywords):
    return ordo.torch.attention(q, k, v, causal=True, **keywords)[0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_in_one_graph(backend):
    inputs = [drawn(2, 33, heads, 16, seed=heads) for heads in (4, 2, 2)]

    def loss(q, k, v):
        return (step(2 * q, k, v + 1, dropout_p=0.1, seed=(3, 4)) * 3).square().sum()

    whole = torch.compile(loss, fullgraph=True, backend=backend)
    one, other = loss(*inputs), whole(*inputs)
    # The sums around are PyTorch's; the attention's own bits are compared below.
    assert torch.allclose(one, other)
    direct = torch.compile(step, fullgraph=True, backend=backend)
    a, b = (f(*inputs, dropout_p=0.1, seed=(3, 4)) for f in (step, direct))
    assert same(a, b)
    dout = torch.rand_like(a)
    for x, y in zip(torch.autograd.grad(a, inputs, dout), torch.autograd.grad(b, inputs, dout)):
        assert same(x, y)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_and_eager_draw_the_same_keep_bits(backend):
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]
    dout = torch.rand(2, 33, 2, 16)

    def drop(q, k, v):
        return step(q, k, v, dropout_p=0.5)

    def twice(function):
        torch.manual_seed(1)
        made = [function(*inputs) for _ in range(2)]
        return made + [x for o in made for x in torch.autograd.grad(o, inputs, dout)]

    plain = twice(drop)
    assert not same(plain[0], plain[1])
    whole = twice(torch.compile(drop, fullgraph=True, backend=backend))
    assert all(same(x, y) for x, y in zip(plain, whole))


def test_compiled_checkpointing_draws_the_same_keep_bits():
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]

    def block(q, k, v):
        return step(q, k, v, dropout_p=0.5).square()

    def kept(q, k, v):
        return checkpoint(block, q, k, v, use_reentrant=False)

    results = []
    for function in (block, torch.compile(kept, fullgraph=True)):
        torch.manual_seed(3)
        results.append(torch.autograd.grad(function(*inputs).sum(), inputs))
    for x, y in zip(*results):
        assert torch.allclose(x, y, atol=1e-6)  # of another mask they would differ by far


def test_compile_for_any_length():
    whole = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (5, 17, 40):
        inputs = [drawn(2, rows, 2, 16, seed=x) for x in range(3)]
        assert same(whole(*inputs), step(*inputs))


def test_compile_packed_and_flash():
    def packed(q, k, v, ends):
        return ordo.torch.flash_attn_varlen_func(q, k, v, ends, ends, 7, 7, causal=True)

    def dense(qkv):
        return ordo.torch.flash_attn_qkvpacked_func(qkv, causal=True, window_size=(3, 0))

    inputs = [drawn(12, 2, 16, seed=x) for x in range(3)]
    whole = torch.compile(packed, fullgraph=True, backend="aot_eager")
    assert same(whole(*inputs, ENDS), packed(*inputs, ENDS))
    qkv = drawn(2, 9, 3, 2, 16)
    whole = torch.compile(dense, fullgraph=True, backend="aot_eager")
    assert same(whole(qkv), dense(qkv))
    one, other = (torch.autograd.grad(f(qkv).sum(), qkv)[0] for f in (whole, dense))
    assert same(one, other)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_same_keep_bits(reentrant):
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]
    calls = []

    def block(q, k, v):
        o = step(q, k, v, dropout_p=0.5)
        calls.append(o.detach())
        return o.square()

    torch.manual_seed(3)
    plain = torch.autograd.grad(block(*inputs).sum(), inputs)
    torch.manual_seed(3)
    o = checkpoint(block, *inputs, use_reentrant=reentrant)
    again = torch.autograd.grad(o.sum(), inputs) if not reentrant else _backward(o, inputs)
    assert len(calls) == 3 and same(calls[0], calls[1]) and same(calls[1], calls[2])
    assert all(same(x, y) for x, y in zip(plain, again))


def test_checkpointing_of_gradients_that_the_compiled_front_declines():
    """A gradient whose last axis has no stride of 1: the saved tensors are read once all the same."""
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]

    def block(q, k, v):
        return step(q, k, v).transpose(-1, -2).contiguous()

    for _ in range(3):  # so that the plan is known
        plain = torch.autograd.grad(block(*inputs).square().sum(), inputs)
    o = checkpoint(block, *inputs, use_reentrant=False)
    again = torch.autograd.grad(o.square().sum(), inputs)
    assert all(same(x, y) for x, y in zip(plain, again))


def _backward(o, inputs):
    for x in inputs:
        x.grad = None
    o.sum().backward()
    return [x.grad for x in inputs]


def test_selective_checkpointing_may_keep_the_operator():
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]

    def policy(ctx, op, *args, **kwargs):
        ours = op is torch.ops.ordo.forward.default
        return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE

    def block(q, k, v):
        return step(q, k, v, dropout_p=0.5, seed=1).square()

    plain = torch.autograd.grad(block(*inputs).sum(), inputs)
    o = checkpoint(
        block, *inputs, use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )  # fmt: skip
    assert all(same(x, y) for x, y in zip(plain, torch.autograd.grad(o.sum(), inputs)))


def test_autocast():
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]
    with torch.autocast("cpu", torch.bfloat16):
        o = step(*inputs)
    assert o.dtype == torch.bfloat16
    assert same(o, step(*(x.bfloat16() for x in inputs)))
    grads = torch.autograd.grad(o.sum(), inputs)
    assert all(x.dtype == torch.float32 for x in grads)


@pytest.mark.parametrize("halves", ["q", "k", "v", "qk", "kv", "qv"])
def test_autocast_of_some(halves):
    """Tensors that have the type already, beside others; again, when the call is known."""
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]
    expected = step(*(x.bfloat16() for x in inputs))
    mixed = [x.bfloat16() if name in halves else x for name, x in zip("qkv", inputs)]
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            assert same(step(*mixed), expected)


def test_no_second_derivative():
    q = drawn(1, 5, 2, 16)
    (plain,) = torch.autograd.grad(step(q, q, q).sum(), q)
    (dq,) = torch.autograd.grad(step(q, q, q).sum(), q, create_graph=True)
    assert same(plain, dq)
    with pytest.raises(ordo.Error, match="second derivatives"):
        torch.autograd.grad(dq.sum(), q)


def test_fake_tensors_know_shapes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k, v = torch.empty(2, 9, 4, 16), torch.empty(2, 30, 2, 16), torch.empty(2, 30, 2, 24)
        o, lse = ordo.torch.attention(q, k, v)
        assert o.shape == (2, 9, 4, 24) and lse.shape == (2, 4, 9) and lse.dtype == torch.float32
    q = torch.empty(2, 9, 4, 16, device="meta")
    o, _ = ordo.torch.attention(q, q, q)
    assert o.is_meta and o.shape == q.shape


@pytest.mark.parametrize("warn_only", [False, True])
def test_switches_change_no_bit(warn_only, monkeypatch, recwarn):
    inputs = [drawn(2, 70, 2, 16, seed=x) for x in range(3)]
    dout = torch.rand(2, 70, 2, 16)

    def run():
        o = step(*inputs, dropout_p=0.1, seed=1)
        return [o, *torch.autograd.grad(o, inputs, dout)]

    plain = run()
    monkeypatch.setenv("FLASH_ATTENTION_DETERMINISTIC", "1")
    monkeypatch.setenv("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0")
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    assert all(same(x, y) for x, y in zip(plain, run()))
    for deterministic in (False, True):
        o = ordo.torch.flash_attn_func(
            *inputs, 0.1, causal=True, deterministic=deterministic, seed=1
        )
        assert same(o, plain[0])
    assert not [w for w in recwarn if "determin" in str(w.message).lower()]


def test_many_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    inputs = [drawn(2, 70, 2, 16, seed=x) for x in range(3)]

    def run(seed):
        o = step(*inputs, dropout_p=0.1, seed=seed)
        return [o, *torch.autograd.grad(o.sum(), inputs)]

    alone = [run(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, range(8)))
    for one, other in zip(alone, together):
        assert all(same(x, y) for x, y in zip(one, other))
