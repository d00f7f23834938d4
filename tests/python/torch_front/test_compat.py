"""The names that programs import from flash_attn and flash_attn_interface."""

from __future__ import annotations

import functools
import inspect
import math

import ordo
import pytest
import torch
from bits import leaf, same
from ordo.compat import flash_attn, flash_attn_3
from ordo.compat.flash_attn import bert_padding, flash_attn_interface

TAIL_2 = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
    "alibi_slopes=None, deterministic=False, return_attn_probs=False"
)
CU = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
DESCALE = "q_descale=None, k_descale=None, v_descale=None"
TAIL_3 = (
    f"softmax_scale=None, causal=False, qv=None, {DESCALE}, window_size=(-1, -1), "
    "attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, "
    "sm_margin=0, return_attn_probs=False"
)
GRADS = "dout, q, k, v, out, softmax_lse, dq, dk, dv"
RULES = "dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap"
CACHE = "q, k_cache, v_cache, k=None, v=None"
NAMES = {
    flash_attn: {
        "flash_attn_func": f"q, k, v, {TAIL_2}",
        "flash_attn_kvpacked_func": f"q, kv, {TAIL_2}",
        "flash_attn_qkvpacked_func": f"qkv, {TAIL_2}",
        "flash_attn_varlen_func": f"q, k, v, {CU}, {TAIL_2}, block_table=None",
        "flash_attn_varlen_kvpacked_func": f"q, kv, {CU}, {TAIL_2}",
        "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {TAIL_2}",
        "flash_attn_with_kvcache": (
            f"{CACHE}, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
            "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, "
            "causal=False, window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, "
            "alibi_slopes=None, num_splits=0, return_softmax_lse=False"
        ),
    },
    flash_attn_interface: {
        "_flash_attn_forward": f"q, k, v, {RULES}, alibi_slopes, return_softmax",
        "_flash_attn_varlen_forward": (
            f"q, k, v, {CU}, dropout_p, softmax_scale, causal, window_size_left=-1, "
            "window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False, "
            "block_table=None, leftpad_k=None, seqused_k=None, zero_tensors=False, num_splits=0"
        ),
        "_flash_attn_backward": f"{GRADS}, {RULES}, alibi_slopes, deterministic, rng_state=None",
        "_flash_attn_varlen_backward": (
            f"{GRADS}, {CU}, {RULES}, alibi_slopes, deterministic, rng_state=None, "
            "zero_tensors=False"
        ),
    },
    bert_padding: {
        "index_first_axis": "x, indices",
        "index_first_axis_residual": "x, indices",
        "index_put_first_axis": "values, indices, first_axis_dim",
        "pad_input": "hidden_states, indices, batch, seqlen",
        "unpad_input": "hidden_states, attention_mask, unused_mask=None",
        "unpad_input_for_concatenated_sequences": "hidden_states, attention_mask_in_length",
    },
    flash_attn_3: {
        "flash_attn_func": f"q, k, v, {TAIL_3}",
        "flash_attn_qkvpacked_func": (
            f"qkv, softmax_scale=None, causal=False, {DESCALE}, window_size=(-1, -1), "
            "attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, "
            "return_attn_probs=False"
        ),
        "flash_attn_varlen_func": f"q, k, v, {CU}, seqused_q=None, seqused_k=None, {TAIL_3}",
        "flash_attn_combine": "out_partial, lse_partial, out=None, out_dtype=None",
        "get_scheduler_metadata": (
            "batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, "
            "cache_seqlens, qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q=None, "
            "cu_seqlens_k_new=None, cache_leftpad=None, page_size=None, max_seqlen_k_new=0, "
            "causal=False, window_size=(-1, -1), attention_chunk=0, has_softcap=False, "
            "num_splits=0, pack_gqa=None, sm_margin=0"
        ),
        "flash_attn_with_kvcache": (
            f"{CACHE}, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
            "cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, "
            f"cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, {DESCALE}, "
            "softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, "
            "softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, num_splits=0, "
            "pack_gqa=None, sm_margin=0, return_softmax_lse=False"
        ),
        "_flash_attn_forward": (
            "q, k, v, k_new=None, v_new=None, qv=None, out_=None, cu_seqlens_q=None, "
            "cu_seqlens_k=None, cu_seqlens_k_new=None, seqused_q=None, seqused_k=None, "
            "max_seqlen_q=None, max_seqlen_k=None, page_table=None, kv_batch_idx=None, "
            f"leftpad_k=None, rotary_cos=None, rotary_sin=None, seqlens_rotary=None, {DESCALE}, "
            "softmax_scale=None, causal=False, window_size_left=-1, window_size_right=-1, "
            "attention_chunk=0, softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, "
            "num_splits=1, pack_gqa=None, sm_margin=0"
        ),
        "_flash_attn_backward": (
            "dout, q, k, v, out, softmax_lse, cu_seqlens_q=None, cu_seqlens_k=None, "
            "sequed_q=None, sequed_k=None, max_seqlen_q=None, max_seqlen_k=None, dq=None, "
            "dk=None, dv=None, softmax_scale=None, is_causal=False, window_size_left=-1, "
            "window_size_right=-1, softcap=0.0, deterministic=False, sm_margin=0"
        ),
    },
}


@pytest.mark.parametrize(
    "module, name", [(module, name) for module, names in NAMES.items() for name in names],
    ids=lambda x: x if isinstance(x, str) else x.__name__.rsplit(".", 1)[-1],
)  # fmt: skip
def test_names_order_and_defaults(module, name):
    there, expected = getattr(module, name), NAMES[module][name]
    assert name.startswith("_") or name in module.__all__
    parameters = inspect.signature(there).parameters.values()
    more = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert more == (["seed", "rng_state", "generator"] if TAIL_2 in expected else [])
    assert not more or there is getattr(ordo, name)
    assert expected == ", ".join(
        p.name if p.default is p.empty else f"{p.name}={p.default!r}"
        for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD
    )  # fmt: skip


def test_no_public_name_is_missing_from_the_table():
    for module, names in NAMES.items():
        others = set(flash_attn.__all__) if module is flash_attn_interface else set()
        public = set(module.__all__) - others - set(names)
        assert all(x.startswith("FlashAttn") for x in public), public  # those of test_autograd_functions


# ---- below autograd ----

PACKED = dict(
    cu_seqlens_q=torch.tensor([0, 4, 4, 20], dtype=torch.int32),
    cu_seqlens_k=torch.tensor([0, 7, 9, 40], dtype=torch.int32),
    max_seqlen_q=16,
    max_seqlen_k=31,
)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("packed", [False, True])
def test_what_the_passes_return(p, packed):
    """The table compares gradients; causal with more rows than keys, some rows see nothing, and their lse is +inf."""
    q, k, v = leaf(20, 4, 16), leaf(40, 2, 16, seed=1), leaf(40, 2, 16, seed=2)
    low, kind, lists = flash_attn_interface, "varlen_" if packed else "", PACKED
    if not packed:
        q, k, v, lists = q[None], k[None, :13], v[None, :13], {}
    rules = dict(dropout_p=p, softmax_scale=0.3, causal=True, softcap=3.0, alibi_slopes=None)
    window = dict(window_size_left=9, window_size_right=0)
    passes = [getattr(low, f"_flash_attn_{kind}{x}") for x in ("forward", "backward")]
    out, lse, mask, rng = passes[0](q, k, v, **lists, **rules, **window, return_softmax=True)
    assert not out.requires_grad and rng.shape == (2,) and rng.dtype == torch.int64
    more = dict(rng_state=rng) if p else {}
    function = getattr(flash_attn, f"flash_attn_{kind}func")
    whole = function(q, k, v, **lists, **rules, **more, window_size=(9, 0), return_attn_probs=True)
    assert all(same(x, y) for x, y in zip((out, lse, mask), whole)) and bool(mask.numel()) == (p > 0)
    assert packed or (lse == math.inf).any()
    dout, grads = torch.rand_like(out), [torch.empty_like(x) for x in (q, k, v)]
    given = dout, q, k, v, out, lse, *grads
    sums = passes[1](*given, **lists, **rules, **window, deterministic=True, rng_state=rng)
    assert sums.shape == lse.shape
    assert torch.allclose(sums, (dout * out).sum(-1).transpose(-1, -2), atol=1e-6)
    room = torch.empty_like(out)
    found = flash_attn_3._flash_attn_forward(q, k, v, out_=room, causal=True, **lists, **window)
    assert same(found[0], room) and [x.numel() for x in found[2:]] == [0, 0] and not found[0].requires_grad


def test_the_backward_pass_refuses_before_it_writes():
    q = leaf(1, 6, 2, 16).detach()
    out, lse, _, rng = flash_attn_interface._flash_attn_forward(
        q, q, q, 0.3, None, True, -1, -1, 0.0, None, False
    )
    grads = [torch.zeros_like(q) for _ in range(3)]

    def backward(grads, rng):
        flash_attn_interface._flash_attn_backward(
            out, q, q, q, out, lse, *grads, 0.3, None, True, -1, -1, 0.0, None, False, rng
        )

    with pytest.raises(ordo.Error, match="rng_state None: expected the one"):
        backward(grads, None)
    with pytest.raises(ordo.Error, match=r"dk.shape \(6, 2, 16\): expected \(1, 6, 2, 16\)"):
        backward([grads[0], grads[1][0], grads[2]], rng)
    with pytest.raises(ordo.Error, match="dv.dtype torch.int32: expected a floating-point type"):
        backward([grads[0], grads[1], grads[2].int()], rng)
    assert not any(x.any() for x in grads)
    backward([None, grads[1], None], rng)
    assert grads[1].any() and not grads[0].any()


def test_lists_are_refused_by_the_names_of_the_function():
    x, dense, ends = leaf(20, 2, 16).detach(), leaf(2, 10, 2, 16).detach(), PACKED["cu_seqlens_q"]
    lse, low, used = torch.zeros(2, 20), flash_attn_interface, torch.tensor([2.5, 9.0])
    longest = dict(max_seqlen_q=16, max_seqlen_k=16)
    rules = dict(longest, dropout_p=0.0, softmax_scale=None, causal=False)
    more = dict(rules, softcap=0.0, window_size_left=-1, window_size_right=-1, alibi_slopes=None, deterministic=True)
    varlen = functools.partial(flash_attn_3.flash_attn_varlen_func, **longest)
    both, both_backward = flash_attn_3._flash_attn_forward, flash_attn_3._flash_attn_backward
    rows = [
        (both, 3, dense, dict(seqused_k=used), "seqused_k.dtype torch.float32"),
        (both, 3, dense, dict(seqused_q=used > 3), "seqused_q.dtype torch.bool"),
        (both_backward, 5, dense, dict(sequed_k=used), "sequed_k.dtype torch.float32"),
        (varlen, 3, x, dict(cu_seqlens_q=ends, cu_seqlens_k=ends, seqused_k=torch.ones(3)), "seqused_k.dtype torch.float32"),
        (varlen, 3, x, dict(cu_seqlens_q=ends, cu_seqlens_k=ends, seqused_q=[1]), r"seqused_q \[1\]: expected a tensor"),
        (both, 3, dense, dict(out_=dense.int()), "out_.dtype torch.int32: expected a floating"),
        (both, 3, dense, dict(out_=dense.expand(2, 2, 10, 2, 16)), r"out_.shape \(2, 2, 10, 2, 16\)"),
    ]
    for function, count in (
        (varlen, 3), (both, 3), (functools.partial(low._flash_attn_varlen_forward, **rules), 3), (both_backward, 5),
        (functools.partial(low._flash_attn_varlen_backward, dq=None, dk=None, dv=None, **more), 5),
    ):  # fmt: skip
        rows.append((function, count, dense, dict(cu_seqlens_q=None, cu_seqlens_k=ends), "cu_seqlens_q None: expected"))
        for wrong in (ends.float(), ends > 3):
            lists = dict(cu_seqlens_q=ends, cu_seqlens_k=wrong)
            rows.append((function, count, x, lists, f"cu_seqlens_k.dtype {wrong.dtype}: expected torch.int32"))
    for function, count, given, lists, words in rows:
        with pytest.raises(ordo.Error, match=words):
            function(*[given] * count, **dict(softmax_lse=lse) if count == 5 else {}, **lists)


# ---- autograd functions by name ----


def test_autograd_functions():
    low = flash_attn_interface
    q, k, v = (leaf(2, 9, 4, 16, seed=x) for x in range(3))
    tail = (0.0, None, True, (-1, -1), 0.0, None, False, False)
    out = flash_attn.flash_attn_func(q, k, v, *tail)
    assert same(out, low.FlashAttnFunc.apply(q, k, v, *tail, True))
    assert same(out, low.FlashAttnKVPackedFunc.apply(q, torch.stack([k, v], 2), *tail, True))
    qkv = torch.stack([q, k, v], 2)
    made = low.FlashAttnQKVPackedFunc.apply(qkv, *tail)
    assert same(out, made) and made.requires_grad
    assert not low.FlashAttnFunc.apply(q, k, v, *tail, False).requires_grad
    assert len(low.FlashAttnFunc.apply(q, k, v, *tail[:-1], True, True)) == 3
    with pytest.raises(TypeError):
        low.FlashAttnFunc.apply(q, k, v, *tail, None, True)

    ends = torch.tensor([0, 9, 18], dtype=torch.int32)
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    cu = (ends, ends, 9, 9)
    wanted = out.flatten(0, 1)
    assert same(wanted, low.FlashAttnVarlenFunc.apply(*flat, *cu, *tail, None, True))
    packed = torch.stack(flat, 1)
    assert same(wanted, low.FlashAttnVarlenQKVPackedFunc.apply(packed, ends, 9, *tail, True))
    assert same(
        wanted, low.FlashAttnVarlenKVPackedFunc.apply(flat[0], packed[:, 1:], *cu, *tail, True)
    )
    assert same(out, flash_attn_3.FlashAttnFunc.apply(q, k, v, None, True))
    assert same(out, flash_attn_3.FlashAttnQKVPackedFunc.apply(qkv, None, True))
    assert same(
        wanted,
        flash_attn_3.FlashAttnVarlenFunc.apply(*flat, ends, ends, None, None, 9, 9, None, True),
    )


# ---- combine and metadata ----


@pytest.mark.parametrize("by", ["_by_library", "_by_tensors"])
def test_combine_merges_parts(by, monkeypatch):
    from ordo.compat import _combine

    monkeypatch.setattr(_combine, "_by_library", getattr(_combine, by))
    q, k, v = (leaf(2, 7, 4, 16, seed=x).detach() for x in range(3))
    cuts = [(0, 3), (3, 4), (4, 7)]
    rules = dict(return_attn_probs=True)
    parts = [flash_attn_3.flash_attn_func(q, k[:, a:b], v[:, a:b], **rules) for a, b in cuts]
    parts.append((torch.full_like(parts[0][0], 3.0), torch.full_like(parts[0][1], -math.inf)))
    outs = torch.stack([x for x, _ in parts])
    lses = torch.stack([x.transpose(1, 2) for _, x in parts])
    out, lse = flash_attn_3.flash_attn_combine(outs, lses)
    whole, whole_lse = flash_attn_3.flash_attn_func(q, k, v, **rules)
    assert out.dtype == lse.dtype == torch.float32
    assert torch.allclose(out, whole, atol=1e-6)
    assert torch.allclose(lse, whole_lse.transpose(1, 2), atol=1e-6)
    room = torch.empty_like(whole, dtype=torch.bfloat16)
    made, _ = flash_attn_3.flash_attn_combine(outs, lses, out=room)
    assert made is room and same(room, out.bfloat16())
    assert flash_attn_3.flash_attn_combine(outs, lses, out_dtype=torch.half)[0].dtype == torch.half
    out, lse = flash_attn_3.flash_attn_combine(outs[3:], lses[3:])
    assert not out.any() and (lse == -math.inf).all()


def test_combine_on_the_cpu_has_the_bits_of_the_library():
    outs, lses = leaf(3, 2, 5, 4, 8).detach(), leaf(3, 2, 5, 4, seed=1).detach()
    out, lse = flash_attn_3.flash_attn_combine(outs, lses)
    plan = ordo.Plan(ordo.Problem(batch=2, q_len=5, heads=4, head_dim=8), backend="cpu")
    parts = [(x.numpy(), y.transpose(1, 2).contiguous().numpy()) for x, y in zip(outs, lses)]
    wanted = [torch.from_numpy(x) for x in ordo.combine(plan, parts)]
    assert same(out, wanted[0]) and same(lse, wanted[1].transpose(1, 2))


def test_combine_refuses():
    outs, lses = torch.zeros(3, 2, 5, 4, 8), torch.zeros(3, 2, 5, 4)
    for given, words in (
        ((outs[0], lses), "out_partial.shape"),
        ((outs[:0], lses[:0]), "out_partial.shape"),
        ((outs, lses[:2]), "lse_partial.shape"),
        ((outs.half(), lses), "out_partial.dtype torch.float16"),
        ((outs, lses, outs), "out.shape"),
        ((outs, lses, outs[0].int()), "out.dtype torch.int32: expected a floating-point type"),
        ((outs, lses, None, torch.int32), "out_dtype torch.int32: expected a floating-point type"),
        ((outs, lses, outs[0], torch.half), "out.dtype torch.float32: expected out_dtype"),
    ):
        with pytest.raises(ordo.Error, match=words):
            flash_attn_3.flash_attn_combine(*given)


# ---- chunks ----


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows, columns", [(20, 20), (7, 20), (20, 7)])
def test_chunks_of_the_third(rows, columns, causal):
    """As FlashAttention-3's own tests have it: the last row belongs to the last key."""
    given = [leaf(2, n, heads, 16, seed=heads + n) for n, heads in ((rows, 4), (columns, 2), (columns, 2))]
    row, column = torch.arange(rows)[:, None] + columns - rows, torch.arange(columns)
    seen = (row.div(6, rounding_mode="floor") == column.div(6, rounding_mode="floor"))[None, None]
    expected, _ = ordo.torch.attention(*given, causal=causal, seen=seen)
    found = flash_attn_3.flash_attn_func(*given, causal=causal, attention_chunk=6)
    assert same(found, expected)
    compiled = torch.compile(flash_attn_3.flash_attn_func, backend="aot_eager")
    assert same(compiled(*given, causal=causal, attention_chunk=6), expected)
    for x, y in zip(*(torch.autograd.grad(o.square().sum(), given) for o in (found, expected))):
        assert torch.allclose(x, y, atol=1e-5)


def test_chunks_of_packed_sequences():
    q, ends = leaf(27, 4, 16), torch.tensor([0, 20, 27], dtype=torch.int32)
    found = flash_attn_3.flash_attn_varlen_func(q, q, q, ends, ends, 20, 20, causal=True, attention_chunk=6)
    for begin, end in ((0, 20), (20, 27)):
        part = q[None, begin:end]
        assert same(found[begin:end], flash_attn_3.flash_attn_func(part, part, part, causal=True, attention_chunk=6)[0])


# ---- bert_padding ----


def test_unpad_and_pad():
    x = leaf(3, 5, 2)
    mask = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    rows, indices, ends, longest, used = bert_padding.unpad_input(x, mask)
    assert ends.tolist() == [0, 2, 6, 6] and longest == 4 and used.tolist() == [2, 4, 0]
    back = bert_padding.pad_input(rows, indices, 3, 5)
    assert same(back, torch.where(mask[..., None] == 1, x, 0.0))
    assert same(torch.autograd.grad(back.sum(), x)[0], mask[..., None].float().expand(3, 5, 2))


def test_rows_by_index_and_back():
    x, places = leaf(6, 3), torch.tensor([4, 0, 3])
    rows, residual = bert_padding.index_first_axis_residual(x, places)
    assert same(rows, x[places]) and same(residual, x)
    weights = torch.rand_like(rows), torch.rand_like(residual)
    (dx,) = torch.autograd.grad((rows * weights[0]).sum() + (residual * weights[1]).sum(), x)
    expected = weights[1].clone()
    expected[places] += weights[0]
    assert same(dx, expected)

    values = leaf(3, 2, 5, seed=1)
    made = bert_padding.index_put_first_axis(values, places, 6)
    assert made.shape == (6, 2, 5) and same(made[places], values) and not made[[1, 2, 5]].any()
    weight = torch.rand_like(made)
    assert same(torch.autograd.grad((made * weight).sum(), values)[0], weight[places])


def test_unpad_concatenated_sequences():
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [0] * 6, [3, 2, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]])
    x = leaf(4, 6, 2)
    rows, indices, ends, longest = bert_padding.unpad_input_for_concatenated_sequences(x, lengths)
    assert indices.tolist() == [*range(5), *range(12, 17), *range(18, 24)]
    assert ends.tolist() == [0, 2, 5, 8, 10, 16] and longest == 6 and ends.dtype == torch.int32
    assert same(rows, x.flatten(0, 1)[indices])
    back = bert_padding.pad_input(rows, indices, 4, 6)
    (dx,) = torch.autograd.grad(back.sum(), x)
    assert same(dx, (torch.arange(6) < lengths.sum(-1)[:, None])[..., None].float().expand(4, 6, 2))


X, E = torch.zeros(1, 4, 2, 8), torch.tensor([0, 4], dtype=torch.int32)
third = flash_attn_3.flash_attn_qkvpacked_func
REFUSED = (
    (lambda: flash_attn_3.flash_attn_func(X, X, X, qv=X), "qv given"),
    (lambda: flash_attn_3.flash_attn_func(X, X, X, q_descale=X), "q_descale given"),
    (lambda: flash_attn_3._flash_attn_forward(X, X, X, attention_chunk=4), "attention_chunk"),
    (lambda: flash_attn_3.flash_attn_func(X, X, X, attention_chunk=-4), "chunk -4"),
    (lambda: flash_attn_3.flash_attn_varlen_func(X[0], X[0], X[0], E, E.clone(), 4, 4, attention_chunk=2), "attention_chunk 2: expected keys"),
    (lambda: flash_attn.flash_attn_qkvpacked_func(X), "qkv.shape"),
    (lambda: third(torch.zeros(2, 5, 4, 7, 8)), r"qkv.shape \(2, 5, 4, 7, 8\): expected 5 axes, 3 at -3"),
    (lambda: third(torch.zeros(5, 7, 8), num_heads_q=3), r"qkv.shape \(5, 7, 8\): expected 5 axes"),
    (lambda: third(torch.zeros(2, 5, 7, 8), num_heads_q=4), "num_heads_q 4: expected so many of 7 heads"),
    (lambda: third(torch.zeros(2, 5, 4, 8), num_heads_q=4), "num_heads_q 4: expected so many of 4 heads"),
    (lambda: third(torch.zeros(2, 5, 4, 8)), "num_heads_q None: expected"),
)  # fmt: skip


def test_what_is_not_there_is_refused_by_name():
    for call, words in REFUSED:
        with pytest.raises(ordo.Error, match=words):
            call()
