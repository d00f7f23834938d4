"""The operators themselves: opcheck of what calls use, flags, what is refused, compiled checkpoints."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from bits import leaf
from ordo.compat import flash_attn
from ordo.torch import _front
from ordo.torch._inputs import learned
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

ENDS = torch.tensor([0, 5, 12], dtype=torch.int32)
LENS = torch.tensor([3, 7], dtype=torch.int32)


class Seen(TorchDispatchMode):
    """The operators of ordo that run, with their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "ordo":
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


CASES = {
    "plain": dict(),
    "causal with dropout": dict(causal=True, dropout_p=0.1),
    "packed, sink": dict(cu_q=ENDS, max_q=7, causal=True, sink=leaf(4)),
    "padded": dict(q_lens=LENS, kv_lens=LENS, window=(3, 0)),
    "seen, bias": dict(seen=torch.rand(2, 1, 7, 7) < 0.5, bias=leaf(1, 4, 7, 7)),
    "bias, sink": dict(bias=leaf(2, 1, 7, 7), sink=leaf(4), causal=True),
    "alibi, sink": dict(slopes=torch.rand(2, 4), softcap=2.0, sink=leaf(4)),
    "shard": dict(
        dropout_p=0.5, seed=1, sequence_ids=torch.tensor([4, 9]), shard=ordo.Shard(head0=4, heads_total=8)
    ),
}
MASKED = dict(dropout_p=0.3, seed=1, return_attn_probs=True)
ROWS = dict(cu_seqlens_q=ENDS, cu_seqlens_k=ENDS, max_seqlen_q=7, max_seqlen_k=7)


def opchecked(seen):
    """The names of the operators, each of which passes."""
    for op, args in seen.calls:
        learns = op.name() == "ordo::forward"
        args = torch.utils._pytree.tree_map_only(torch.Tensor, torch.detach, args)
        for x in (*args[:3], *learned(args[3], args[5])) if learns else ():
            if x is not None:
                x.requires_grad_()
        tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
        if op.name() != "ordo::draw":  # which gives other numbers each time
            tests.append("test_aot_dispatch_dynamic")
        result = torch.library.opcheck(op, args, test_utils=tests)
        assert set(result.values()) == {"SUCCESS"}
    return {op.name() for op, _ in seen.calls}


@pytest.mark.parametrize("case", CASES)
def test_opcheck(case):
    rows = (12,) if "cu_q" in CASES[case] else (2, 7)
    inputs = [leaf(*rows, heads, 16, seed=heads) for heads in (4, 2, 2)]
    with Seen() as seen:
        made = ordo.torch.attention(*inputs, **CASES[case])[: 1 if case == "plain" else 2]  # o alone, or with lse
        own = [x for x in CASES[case].values() if isinstance(x, torch.Tensor) and x.requires_grad]
        torch.autograd.grad(made, inputs + own, [torch.rand_like(x) for x in made])
    assert opchecked(seen) - {"ordo::draw", "ordo::seen"} == {"ordo::forward", "ordo::backward"}
    if case not in ("plain", "packed, sink"):
        return
    with Seen() as seen, torch.no_grad():  # and of the debug mask
        call = flash_attn.flash_attn_varlen_func if "cu_q" in CASES[case] else flash_attn.flash_attn_func
        call(*inputs, **MASKED, **ROWS if "cu_q" in CASES[case] else {})
    assert opchecked(seen) == {"ordo::forward", "ordo::kept_elements"}


def test_unknown_flags_and_other_numbers_of_tensors_are_refused():
    q, k, v = (leaf(2, 7, heads, 16) for heads in (4, 2, 2))
    for flags, more, message in (
        (1 << 40, [], "flags .*: expected"),
        (_front.RNG, [], "more: 0 tensors"),
        (0, [torch.tensor([1, 2])], "more: 1 tensors"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.ordo.forward(q, k, v, flags, 0.25, more)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 30])
def test_a_refused_call_releases_its_tensors(count):
    q, k, v = (leaf(2, 7, heads, 16) for heads in (4, 2, 2))
    more = [torch.tensor([1, 2, 3]) for _ in range(count)]
    with pytest.raises(RuntimeError, match="more: |rng.shape"):
        torch.ops.ordo.forward(q.detach(), k.detach(), v.detach(), _front.RNG, 0.25, more)
    assert [x._use_count() for x in more] == [1] * count


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_compiled_for_any_length_with_checkpoints(p):
    """A checkpoint that is compiled draws the same keep bits."""

    def block(q, k, v):
        return ordo.torch.attention(q, k, v, causal=True, dropout_p=p)[0].square()

    def kept(q, k, v):
        return checkpoint(block, q, k, v, use_reentrant=False)

    whole = torch.compile(kept, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (5, 17, 40):
        inputs, results = [leaf(2, rows, 2, 16, seed=x) for x in range(3)], []
        for function in (block, whole):
            torch.manual_seed(3)
            o = function(*inputs)
            results.append([o, *torch.autograd.grad(o.sum(), inputs)])
        for x, y in zip(*results):
            assert torch.allclose(x, y, atol=1e-6)  # with another mask they would differ by far
