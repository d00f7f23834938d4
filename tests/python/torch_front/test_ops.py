"""The operators: opcheck, torch.compile, checkpointing, modes, autocast, switches."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import _front
from ordo.torch._inputs import Lists, Rules, call_of
from torch.utils.checkpoint import checkpoint

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


@pytest.mark.parametrize("halves", ["q", "k", "v", "qk", "kv", "qv"])
def test_autocast_of_some(halves):
    """Tensors that have the type already, beside others; again, when the call is known."""
    inputs = [drawn(2, 33, 2, 16, seed=x) for x in range(3)]
    expected = step(*(x.bfloat16() for x in inputs))
    mixed = [x.bfloat16() if name in halves else x for name, x in zip("qkv", inputs)]
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            assert same(step(*mixed), expected)


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
