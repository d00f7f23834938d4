"""What would be a wrong result without an error, between two passes and from call to call.

test_grid.py has the calls that must work, test_refusals.py those that must not.
"""

from __future__ import annotations

import functools

import ordo
import ordo.torch
import pytest
import torch
from bits import equal, ints, same

attention = ordo.torch.attention


def tensors(rows=9, heads=(4, 2, 2), dim=16, dtype=torch.float32):
    made = torch.Generator().manual_seed(rows)
    return [torch.randn(2, rows, h, dim, generator=made).to(dtype).requires_grad_() for h in heads]


def flat():
    return [x.detach()[0].requires_grad_() for x in tensors(18)]


def heads_first():
    return [x.detach().transpose(1, 2).requires_grad_() for x in tensors()]


def layer(q, k, v):
    """As layers of transformers call it: by a mask of theirs."""
    from ordo.transformers import attention_forward, attention_mask
    from transformers.masking_utils import causal_mask_function

    mask = attention_mask(batch_size=2, q_length=9, kv_length=9, mask_function=causal_mask_function)
    return attention_forward(torch.nn.Identity(), q, k, v, mask)[0], None


Q, K, V = (x.detach() for x in tensors())
FLAT = [x.detach() for x in flat()]
ENDS = ints(0, 4, 18)


@pytest.fixture(autouse=True)
def forget():
    yield
    ordo.torch._front.forget_plans()


# ---- between the passes ----

CASES = {  # tensors, and the call or its keywords
    "layer": (heads_first, layer),
    "plain": (tensors, dict(causal=True)),
    "dropout": (tensors, dict(dropout_p=0.25)),
    "padded": (tensors, dict(q_lens=ints(9, 4), kv_lens=ints(8, 5))),
    "packed": (flat, dict(cu_q=ints(0, 4, 18), cu_kv=ints(0, 9, 18), max_q=14, max_kv=9)),
    "slopes": (tensors, dict(slopes=torch.full((4,), 0.5))),
    "ids": (tensors, dict(dropout_p=0.25, seed=1, sequence_ids=ints(3, 5).long())),
    "sink": (tensors, dict(sink=torch.ones(4))),
}
REPLACED = {
    "half": lambda x: x.half() if x.is_floating_point() else x.to(torch.int16),
    "double": lambda x: x.double() if x.is_floating_point() else x.to(torch.int8),
    "shorter": lambda x: x[:1].clone(),
    "first axis twice": lambda x: torch.cat((x, x)),
    "rows": lambda x: x[:, :1].clone() if x.dim() > 1 else x[:-1].clone(),
    "flat": lambda x: x.flatten()[None],
    "device": lambda x: x.to("meta"),
}


@pytest.mark.parametrize("change", REPLACED)
@pytest.mark.parametrize("case", CASES)
def test_a_saved_tensor_that_was_replaced_is_refused(case, change):
    make, call = CASES[case]
    if isinstance(call, dict):
        call = functools.partial(attention, **call)
    inputs, count = make(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (count.append(0), x)[1], lambda x: x):
        call(*inputs)
    assert len(count) >= 5
    for at in range(len(count)):
        seen = iter(range(99))

        def pack(x, at=at, seen=seen):
            return next(seen) == at, x

        def unpack(kept):
            return REPLACED[change](kept[1]) if kept[0] else kept[1]

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            made = [x for x in call(*inputs) if x is not None]
        with pytest.raises((RuntimeError, NotImplementedError)):
            torch.autograd.grad(made, inputs, [torch.ones_like(x) for x in made])


@pytest.mark.parametrize("change", [torch.Tensor.half, torch.Tensor.double, lambda x: x[:1].clone()])
def test_all_tensors_replaced_alike(change):
    """Together they would be a call with a plan of its own."""
    inputs = tensors()
    with torch.autograd.graph.saved_tensors_hooks(change, lambda x: x):
        o, _ = attention(*inputs, causal=True)
    with pytest.raises(ordo.Error, match=r"^([qk]|dout)\.(shape|dtype) "):
        o.sum().backward()


def test_kept_bits_are_compared(monkeypatch):
    monkeypatch.setenv("ORDO_DROPOUT_MODE", "sequential")
    ordo.torch._front.forget_plans()
    o, _ = attention(*tensors(), dropout_p=0.25)
    bits = o.grad_fn._raw_saved_tensors[6]  # behind rng
    bits.register_hooks(lambda x: x, lambda x: x[:4].clone())
    with pytest.raises(ordo.Error, match=r"^bits\.shape \(4,\): expected"):
        o.sum().backward()


def test_one_key_replaced_by_eight_is_refused():
    """Keys alone: everything else fits them, and autograd would sum dk to the old shape."""
    q, k, v = tensors()
    k, v = (x.detach()[:, :1].requires_grad_() for x in (k, v))

    def unpack(x):
        return x.repeat(1, 8, 1, 1) if x.shape == k.shape else x

    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
        o, _ = attention(q, k, v)
    with pytest.raises(RuntimeError, match=r"k\.shape"):
        o.sum().backward()


@pytest.mark.parametrize("which", range(3))
def test_other_data_behind_an_input(which):
    for change in (torch.Tensor.half, lambda x: x[:1], lambda x: x[:, :1]):
        inputs = tensors()
        o, _ = attention(*inputs)
        inputs[which].data = change(inputs[which].data).clone()
        with pytest.raises(RuntimeError):
            o.sum().backward()


WRITTEN = ("k", "cu_q", "cu_kv", "q_lens", "kv_lens", "slopes", "sequence_ids", "sink", "rng_state")


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_to_between_the_passes_is_an_error(name):
    case = next((x for x in CASES if x != "layer" and name in CASES[x][1]), "dropout")
    make, keywords = CASES[case]
    keywords = dict(keywords)
    if name == "rng_state":
        keywords["rng_state"] = torch.tensor([1, 2])
    inputs = [x * 1 for x in make()]
    written = inputs[1] if name == "k" else keywords[name].clone()
    if name != "k":
        keywords[name] = written
    o, _ = attention(*inputs, **keywords)
    written.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


# ---- seeds ----


@pytest.mark.parametrize("mode", ["auto", "sequential"])
def test_one_pair_is_drawn_for_each_call(mode, monkeypatch):
    monkeypatch.setenv("ORDO_DROPOUT_MODE", mode)
    ordo.torch._front.forget_plans()
    inputs, found = tensors(), []
    torch.manual_seed(5)
    for call in (lambda: attention(*inputs, dropout_p=0.5)[0],
                 lambda: ordo.torch.flash_attn_func(*inputs, 0.5)):  # fmt: skip
        o = call()
        found += [o, *torch.autograd.grad(o.sum(), inputs)]
    after = torch.randint(100, (4,))
    torch.manual_seed(5)
    right = []
    for _ in range(2):
        o, _ = attention(*inputs, dropout_p=0.5, rng_state=torch.randint(2**32, (2,)))
        right += [o, *torch.autograd.grad(o.sum(), inputs)]
    assert equal(found, right)
    assert torch.equal(after, torch.randint(100, (4,)))


# ---- numbers ----


def test_a_number_that_changes_in_place_is_read_again():
    window, scale, cap = torch.tensor([3, 0]), torch.tensor(0.5), torch.tensor(2.0)
    p, longest = torch.tensor(0.25), torch.tensor(14)
    attention(Q, K, V, window=window, scale=scale, softcap=cap, dropout_p=p, seed=1)
    attention(*FLAT, cu_q=ENDS, max_q=longest)
    window[0], ends = 5, ints(0, 1, 18)
    scale.fill_(0.25), cap.fill_(3.0), p.fill_(0.5), longest.fill_(17)
    changed, _ = attention(Q, K, V, window=window, scale=scale, softcap=cap, dropout_p=p, seed=1)
    assert same(changed, attention(Q, K, V, window=(5, 0), scale=0.25, softcap=3.0, dropout_p=0.5, seed=1)[0])
    changed, _ = attention(*FLAT, cu_q=ends, max_q=longest)
    assert same(changed, attention(*FLAT, cu_q=ends, max_q=17)[0])


def test_calls_that_differ_in_one_number_have_plans_of_their_own():
    """Each number of a call is a part of what its plan is found by."""
    base = dict(scale=0.3, softcap=2.0, window=(4, 4), dropout_p=0.25, seed=3)
    changes = [dict(scale=0.3 + 1e-8), dict(scale=-0.3), dict(softcap=2.5), dict(window=(4, 3)),
               dict(window=(3, 4)), dict(causal=True), dict(causal="top-left"), dict(dropout_p=0.5),
               dict(shard=ordo.Shard(batch0=1)), dict(keying="fa2")]  # fmt: skip
    packed = dict(cu_q=ENDS, cu_kv=ENDS, max_q=14, max_kv=14)
    longer = [{f"cu_{x}": ints(0, 0, 18), f"max_{x}": 18} for x in ("q", "kv")]
    for tensors, base, changes in (((Q[:, :5], K, V), base, changes), (FLAT, packed, longer)):
        for change in (dict(), *changes):
            given = dict(base, **change)
            ordo.torch._front.forget_plans()
            alone = attention(*tensors, **given)
            ordo.torch._front.forget_plans()
            for other in (dict(), *changes):
                attention(*tensors, **dict(base, **other))
            assert equal(alone, attention(*tensors, **given)), change


# ---- graphs ----


def test_windows_that_become_symbolic():
    """Dynamo makes an integer that changes symbolic, at the second change."""
    torch._dynamo.reset()
    whole = torch.compile(lambda q, k, v, w: attention(q, k, v, window=(w, 0))[0], backend="aot_eager")
    for width in (3, 5, 7, 8):
        assert same(whole(Q, K, V, width), attention(Q, K, V, window=(width, 0))[0])


def test_a_graph_holds_no_number_of_this_process():
    """A graph that was traced works when plans were made in another order."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def call(q, k, v):
        return attention(q, k, v, causal=True, window=(3, -1))

    for other in (dict(), dict(softcap=3.0), dict(window=(5, 1))):
        attention(Q, K, V, **other)
    graph = make_fx(call)(Q, K, V)
    ordo.torch._front.forget_plans()
    attention(Q, K, V, window=(1, 1))
    assert equal(graph(Q, K, V), call(Q, K, V))

