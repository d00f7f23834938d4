"""What would be a wrong result without an error: each row of the tables below is refused, or right.

test_grid.py has the calls that must work; here are those that must not, and what happens between
the two passes.
"""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.compat import flash_attn, flash_attn_3
from torch.autograd import forward_ad
from torch.nn.attention.flex_attention import create_block_mask

attention = ordo.torch.attention


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


def tensors(rows=9, heads=(4, 2, 2), dim=16, dtype=torch.float32):
    made = torch.Generator().manual_seed(rows)
    return [torch.randn(2, rows, h, dim, generator=made).to(dtype).requires_grad_() for h in heads]


def flat():
    return [x.detach()[0].requires_grad_() for x in tensors(18)]


Q, K, V = (x.detach() for x in tensors())
FLAT = [x.detach() for x in flat()]
ENDS = ints(0, 4, 18)
CACHE = torch.zeros(2, 12, 2, 16)


# ---- refused: the call, and words of the error ----


def jvp(**rest):
    return torch.func.jvp(lambda q: attention(q, K, V, **rest)[0], (Q,), (Q,))


def dual():
    with forward_ad.dual_level():
        return attention(forward_ad.make_dual(Q, Q), K, V)


def second_derivative():
    q = Q.clone().requires_grad_()
    (dq,) = torch.autograd.grad(attention(q, K, V)[0].sum(), q, create_graph=True)
    torch.autograd.grad(dq.sum(), q)


def func_grad(call=lambda f: f):
    return call(torch.func.grad(lambda q: attention(q, K, V)[0].sum()))(Q)


def compiled_func_grad():
    torch._dynamo.reset()
    return func_grad(lambda f: torch.compile(f, backend="eager", fullgraph=True))


def mask_of(rule, sequences=None, heads=None):
    return create_block_mask(rule, sequences, heads, 9, 9, device="cpu")


def prepared_for_another():
    made = ordo.torch.prepare_dropout(Q.shape, K.shape, dropout_p=0.25, device="cpu")
    attention(Q, K, V, dropout_p=0.5, prepared=made)


def cached(lengths):
    return flash_attn.flash_attn_with_kvcache(Q[:, :4], CACHE, CACHE.clone(), K[:, :4], V[:, :4], cache_seqlens=lengths)


REFUSED = {
    "k of another type": (lambda: attention(Q, K.half(), V), "k.dtype torch.float16: expected that of q"),
    "v of another type": (lambda: attention(Q, K, V.bfloat16()), "v.dtype"),
    "v of another length": (lambda: attention(Q, K, V[:, :8]), "v.shape .* as k has"),
    "k of another head size": (lambda: attention(Q, K[..., :8], V), "k.shape .* head size of q, 16"),
    "k of another batch": (lambda: attention(Q, K[:1], V[:1]), "k.shape .* expected the batch of q, 2"),
    "k on another device": (lambda: attention(Q, K.to("meta"), V), "k.device|meta"),
    "slopes on another device": (lambda: attention(Q, K, V, rng_state=ints(1, 2).to("meta"), dropout_p=0.5), "rng|meta"),
    "three axes": (lambda: attention(Q[0], K[0], V[0]), r"q.shape \(9, 4, 16\): expected \(batch, row"),
    "four axes beside cu_q": (lambda: attention(Q, K, V, cu_q=ENDS, max_q=14), r"\(row, head, dim\)"),
    "nested": (lambda: attention(*[torch.nested.nested_tensor([x[0], x[1]]) for x in (Q, K, V)]), ""),
    "sparse": (lambda: attention(Q.to_sparse(), K, V), ""),
    "scale 0": (lambda: attention(Q, K, V, scale=0.0), "scale 0"),
    "scale 0 of flash_attn_func": (lambda: ordo.torch.flash_attn_func(Q, K, V, softmax_scale=0), "scale 0"),
    "scale with a gradient": (lambda: attention(Q, K, V, scale=torch.tensor(0.5, requires_grad=True)), "scale.requires_grad"),
    "softcap with a gradient": (lambda: attention(Q, K, V, softcap=torch.tensor(0.5, requires_grad=True)), "softcap.requires_grad"),
    "slopes with a gradient": (lambda: attention(Q, K, V, slopes=torch.ones(4, requires_grad=True)), "slopes.requires_grad"),
    "complex slopes": (lambda: attention(Q, K, V, slopes=torch.ones(4, dtype=torch.complex64)), "slopes.dtype torch.complex64: expected real numbers"),
    "complex sink": (lambda: attention(Q, K, V, sink=torch.ones(4, dtype=torch.complex64)), "sink.dtype torch.complex64: expected real numbers"),
    "sink of another length": (lambda: attention(Q, K, V, sink=torch.ones(3)), "sink.shape"),
    "slopes of another length": (lambda: attention(Q, K, V, slopes=torch.ones(3)), r"slopes.shape \(3,\): expected"),
    "cu_kv alone": (lambda: attention(*FLAT, cu_kv=ENDS), "cu_kv given, cu_q None: expected"),
    "max_q alone": (lambda: attention(Q, K, V, max_q=4), "max_q given, cu_q None: expected"),
    "cu_kv missing": (lambda: attention(FLAT[0], FLAT[1][:9], FLAT[2][:9], cu_q=ENDS, max_q=14), "cu_kv None"),
    "float ends": (lambda: attention(*FLAT, cu_q=ENDS.float(), max_q=14), "cu_q.dtype"),
    "bool lengths": (lambda: attention(Q, K, V, q_lens=ints(1, 1).bool()), "q_lens.dtype"),
    "lengths beyond int32": (lambda: attention(Q, K, V, kv_lens=ints(2**32 + 1, 3, dtype=torch.int64)), "kv_lens"),
    "ends of another length": (lambda: attention(*FLAT, cu_q=ENDS, cu_kv=ints(0, 18), max_q=18), "cu_kv.shape"),
    "lengths of another length": (lambda: attention(Q, K, V, q_lens=ints(1, 2, 3)), "q_lens.shape"),
    "ids of another type": (lambda: attention(Q, K, V, dropout_p=0.5, sequence_ids=ints(1, 2)), "sequence_ids.dtype"),
    "a sequence longer than max_q": (lambda: attention(*FLAT, cu_q=ENDS, max_q=4), "cu_q"),
    "a sequence longer than max_q, with dropout": (lambda: attention(*FLAT, cu_q=ENDS, max_q=4, dropout_p=0.5), "cu_q"),
    "a length beyond the rows, with dropout": (lambda: attention(Q, K, V, q_lens=ints(10, 1), dropout_p=0.5), "q_lens"),
    "rng of another length": (lambda: attention(Q, K, V, dropout_p=0.5, rng_state=torch.tensor([1, 2, 3])), "rng"),
    "rng as floats": (lambda: attention(Q, K, V, dropout_p=0.5, rng_state=torch.ones(2)), "rng"),
    "two sources": (lambda: attention(Q, K, V, dropout_p=0.5, seed=1, generator=torch.Generator()), "one of them at most"),
    "prepared for another call": (prepared_for_another, "prepared"),
    "vmap": (lambda: torch.vmap(lambda q: attention(q[None], K[:1], V[:1])[0])(Q), "torch.func"),
    "func.grad": (func_grad, "torch.func"),
    "func.grad in a graph": (compiled_func_grad, ""),
    "func.jvp": (jvp, "torch.func"),
    "func.jvp with a sink": (lambda: jvp(sink=torch.ones(4)), "torch.func"),
    "a tangent": (dual, ""),
    "a second derivative": (second_derivative, "second derivatives|once_differentiable|does not require grad"),
    "a rule by sequence": (lambda: attention(Q, K, V, block_mask=mask_of(lambda b, h, i, j: (i >= j) | (b == 1))), "block_mask"),
    "a rule by head": (lambda: attention(Q, K, V, block_mask=mask_of(lambda b, h, i, j: (i >= j) | (h == 1))), "block_mask"),
    "a rule of two intervals": (lambda: attention(Q, K, V, block_mask=mask_of(lambda b, h, i, j: (j < 2) | (j > 6))), "mask_mod"),
    "a cache that is full": (lambda: cached(ints(9, 9)), "cache_seqlens"),
    "a negative cache length": (lambda: cached(ints(-1, 3)), "cache_seqlens"),
}  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
@pytest.mark.parametrize("known", [False, True])
def test_refused(row, known):
    """The second time the plan of the rightful call is known. Nothing has been drawn."""
    call, words = REFUSED[row]
    if known:
        attention(Q, K, V)
        attention(*FLAT, cu_q=ENDS, max_q=14)
    before, cache = torch.get_rng_state(), CACHE.clone()
    with pytest.raises((RuntimeError, NotImplementedError), match=words):
        call()
    if "prepared" not in row:
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(CACHE, cache)


# ---- between the passes ----

CASES = {
    "plain": (tensors, dict(causal=True)),
    "dropout": (tensors, dict(dropout_p=0.25)),
    "padded": (tensors, dict(q_lens=ints(9, 4), kv_lens=ints(8, 5))),
    "packed": (flat, dict(cu_q=ints(0, 4, 18), cu_kv=ints(0, 9, 18), max_q=14, max_kv=9)),
    "slopes": (tensors, dict(slopes=torch.full((4,), 0.5))),
    "ids": (tensors, dict(dropout_p=0.25, seed=1, sequence_ids=ints(3, 5, dtype=torch.int64))),
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
    make, keywords = CASES[case]
    inputs, count = make(), [0]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (count.append(0), x)[1], lambda x: x):
        attention(*inputs, **keywords)
    for at in range(len(count) - 1):
        seen = iter(range(99))

        def pack(x, at=at, seen=seen):
            return next(seen) == at, x

        def unpack(kept):
            return REPLACED[change](kept[1]) if kept[0] else kept[1]

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            o, lse = attention(*inputs, **keywords)
        with pytest.raises((RuntimeError, NotImplementedError)):
            torch.autograd.grad((o, lse), inputs, (torch.ones_like(o), torch.ones_like(lse)))


def test_one_key_replaced_by_eight_is_refused():
    """Of keys alone: everything else fits them, and autograd would sum dk to the old shape."""
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


WRITTEN = ("cu_q", "cu_kv", "q_lens", "kv_lens", "slopes", "sequence_ids", "sink", "rng_state")


@pytest.mark.parametrize("name", WRITTEN)
def test_a_list_that_is_written_to_between_the_passes_is_an_error(name):
    case = next((x for x in CASES if name in CASES[x][1]), "dropout")
    make, keywords = CASES[case]
    keywords = dict(keywords)
    if name == "rng_state":
        keywords["rng_state"] = torch.tensor([1, 2])
    keywords[name] = keywords[name].clone()
    inputs = make()
    o, _ = attention(*inputs, **keywords)
    keywords[name] += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_an_input_that_is_written_to_between_the_passes_is_an_error():
    inputs = [x.detach().clone().requires_grad_() for x in tensors()]
    given = [x * 1 for x in inputs]
    o, _ = attention(*given)
    given[1].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


# ---- seeds ----


@pytest.mark.parametrize("mode", ["auto", "sequential"])
def test_one_pair_is_drawn_for_each_call(mode, monkeypatch):
    monkeypatch.setenv("ORDO_DROPOUT_MODE", mode)
    ordo.torch._attention.forget()
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
    assert all(same(x, y) for x, y in zip(found, right))
    assert torch.equal(after, torch.randint(100, (4,)))
    ordo.torch._attention.forget()


def test_bits_are_not_kept_under_hooks(monkeypatch):
    """A checkpoint that runs the call again must save as many tensors."""
    monkeypatch.setenv("ORDO_DROPOUT_MODE", "sequential")
    ordo.torch._attention.forget()
    inputs, counts = tensors(), []
    for memory in (1, None):
        ordo.torch.set_keep_bits_memory(memory)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: (saved.append(x), x)[1], lambda x: x):
            attention(*inputs, dropout_p=0.5)
        counts.append(len(saved))
    assert counts[0] == counts[1]
    ordo.torch._attention.forget()


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
    q = Q[:, :5]
    for change in (dict(), *changes):
        given = dict(base, **change)
        ordo.torch._attention.forget()
        alone = attention(q, K, V, **given)
        ordo.torch._attention.forget()
        for other in (dict(), *changes):
            attention(q, K, V, **dict(base, **other))
        found = attention(q, K, V, **given)
        assert all(same(x, y) for x, y in zip(alone, found)), change


@pytest.mark.parametrize("which", ["q", "kv"])
def test_longest_lengths_are_a_part_of_the_plan(which):
    """Found by the lengths of the other, the plan would refuse or leave out rows."""
    ordo.torch._attention.forget()
    lists = dict(cu_q=ENDS, cu_kv=ENDS, max_q=14, max_kv=14)
    attention(*FLAT, **lists)
    lists.update({f"cu_{which}": ints(0, 0, 18), f"max_{which}": 18})
    for _ in range(2):
        o, _ = attention(*FLAT, **lists)
        first = lists["cu_q"][1], lists["cu_kv"][1]
        right = attention(*(x[None, at:] for x, at in zip(FLAT, (first[0], first[1], first[1]))))[0][0]
        assert torch.allclose(o[first[0] :], right, atol=1e-5)


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
    ordo.torch._attention.forget()
    attention(Q, K, V, window=(1, 1))
    assert all(same(x, y) for x, y in zip(graph(Q, K, V), call(Q, K, V)))


def test_a_cache_that_is_full_is_refused_in_a_graph():
    torch._dynamo.reset()
    whole = torch.compile(cached, backend="aot_eager", fullgraph=True)
    before = CACHE.clone()
    with pytest.raises(RuntimeError, match="cache_seqlens"):
        whole(ints(9, 9))
    assert torch.equal(CACHE, before)


# ---- masks ----


def test_masks_of_as_many_blocks_have_lists_of_their_own():
    """One plan serves them."""
    inputs = tensors(130)
    for ends in (50, 60):
        mask = ordo.BlockMask.from_documents((torch.arange(130) // ends).numpy())
        o, _ = attention(*inputs, block_mask=mask)
        parts = [attention(*[x[:, at : at + ends] for x in inputs])[0] for at in range(0, 130, ends)]
        assert torch.allclose(o, torch.cat(parts, 1), atol=1e-6)


def test_dropout_of_a_dtensor_is_refused():
    from situations import one_rank
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

    with one_rank():
        mesh = init_device_mesh("cpu", (1,))
        q, k, v = (DTensor.from_local(x, mesh, [Replicate()]) for x in (Q, K, V))
        with pytest.raises(RuntimeError, match="dropout"):
            attention(q, k, v, dropout_p=0.5)


def test_the_causal_corners_of_sdpa():
    """Bottom-right in aten's operators for CUDA, top-left in that of the CPU."""
    from ordo.torch import _sdpa

    q, k, v = (x.transpose(1, 2) for x in (Q[:, :5, :2], K, V))
    o = _sdpa._sdpa_forward(q, k, v, is_causal=True)[0].transpose(1, 2)
    assert same(o, attention(Q[:, :5, :2], K, V, causal=True)[0])
    o = _sdpa._cpu_forward(q, k, v, is_causal=True)[0].transpose(1, 2)
    assert same(o, attention(Q[:, :5, :2], K, V, causal="top-left")[0])


def test_out_of_sdpa_is_laid_out_as_the_query():
    from ordo.torch import _sdpa

    for q in (Q.transpose(1, 2), Q.transpose(1, 2).contiguous()):
        k, v = (x.transpose(1, 2) for x in (K, V))
        out = _sdpa._sdpa_forward(q, k, v)[0]
        assert out.stride() == torch.empty_like(q).stride()


def test_flash_attention_3_takes_lists_by_name():
    """Ends of queries and of keys are not exchanged."""
    q, (k, v) = FLAT[0][:6], FLAT[1:]
    o = flash_attn_3.flash_attn_varlen_func(q, k, v, ints(0, 2, 6), ints(0, 11, 18), 4, 11, causal=True)
    for rows, columns in ((slice(0, 2), slice(0, 11)), (slice(2, 6), slice(11, 18))):
        one = attention(q[None, rows], k[None, columns], v[None, columns], causal=True)[0][0]
        assert torch.allclose(o[rows], one, atol=1e-6)
