"""PyTorch's plug-in point. The CUDA operators are called here with CPU tensors, by hand."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
import torch.nn.functional as F
from bits import close, leaf, same
from ordo.torch import _parts, _sdpa

attention = pytest.importorskip("torch.nn.attention")
bias = pytest.importorskip("torch.nn.attention.bias")
if not hasattr(attention, "register_flash_attention_impl"):
    pytest.skip("this PyTorch has no plug-in point", allow_module_level=True)


@pytest.fixture
def active():
    ordo.torch.register()
    attention.activate_flash_attention_impl("ORDO")
    yield
    attention.restore_flash_attention_impl()


def inputs(rows=33, columns=33, heads=4, kv_heads=4, dtype=torch.float32):
    """(batch, head, row, dim)."""
    sizes = (heads, rows), (kv_heads, columns), (kv_heads, columns)
    return [leaf(2, *size, 16, seed=x, dtype=dtype) for x, size in enumerate(sizes)]


def ours(q, k, v, **rules):
    made, _ = ordo.torch.attention(*(x.transpose(1, 2) for x in (q, k, v)), **rules)
    return made.transpose(1, 2)


MATH = attention.sdpa_kernel(attention.SDPBackend.MATH)
THEIRS = {
    "fp64": lambda: F.scaled_dot_product_attention(*(x.double() for x in inputs()), attn_mask=leaf(33, 33).double()),
    "five axes": lambda: F.scaled_dot_product_attention(*(x[None] for x in inputs())),
    "another kernel": lambda: MATH(F.scaled_dot_product_attention)(*inputs(), dropout_p=0.25),
    "torch.func": lambda: torch.func.grad(lambda q: F.scaled_dot_product_attention(q, q, q).sum())(inputs()[0]),
    "values of fewer heads": lambda: F.scaled_dot_product_attention(*inputs()[:2], inputs()[2][:, :2], enable_gqa=True),
}


@pytest.mark.parametrize("call", THEIRS)
def test_what_stays_with_pytorch(active, call):
    torch.manual_seed(1)
    found = THEIRS[call]()
    attention.restore_flash_attention_impl(_raise_warn=False)
    torch.manual_seed(1)
    assert same(found, THEIRS[call]())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mask", [None, leaf(33, 20), torch.rand(33, 20) < 0.7])
def test_dropout_draws_as_attention_does(active, mask, compiled):
    given, dout = inputs(columns=20, kv_heads=2), torch.rand(2, 4, 33, 16)
    rules = {} if mask is None else {"seen" if mask.dtype == torch.bool else "bias": mask[None, None]}
    torch.manual_seed(3)
    found = both(sdpa_of(compiled), given, dout, mask, dropout_p=0.25, enable_gqa=True)
    torch.manual_seed(3)
    assert all(map(same, found, both(ours, given, dout, dropout_p=0.25, **rules)))


def test_fewer_axes_and_one_for_all(active):
    """Tensors of 2 and 3 axes; keys of one sequence or head that all share; values of another size."""
    q, k, v = inputs(columns=20)
    for given, whole in (
        ((q[0, 0], k[0, 0], v[0, 0]), (q[:1, :1], k[:1, :1], v[:1, :1])),
        ((q[0], k[0], v[0]), (q[:1], k[:1], v[:1])),
        ((q, k[:1], v[:1]), (q, k[:1].expand_as(k), v[:1].expand_as(v))),
        ((q, k[:, :1], v[:, :1]), (q, k[:, :1], v[:, :1])),
        ((q, k, v[..., :8]), (q, k, v[..., :8])),
    ):
        o = F.scaled_dot_product_attention(*given)
        assert same(o, ours(*whole).view_as(o))


def test_graphs_are_those_of_the_kernels_at_hand():
    """Compiled before ORDO is activated, while it is, and after. Nothing happens before it is asked for."""
    assert "ORDO" not in (attention.current_flash_attention_impl() or "")
    given = [x.detach() for x in inputs()]
    made = []
    for switch in (ordo.torch.register, lambda: attention.activate_flash_attention_impl("ORDO"), attention.restore_flash_attention_impl):
        switch()
        compiled = torch.compile(F.scaled_dot_product_attention, fullgraph=True)
        for run in (compiled, F.scaled_dot_product_attention):
            made.append(run(*given, is_causal=True))
    assert all(same(x, y) for x, y in zip(made[::2], made[1::2]))
    assert same(made[0], made[4]) and not same(made[0], made[2])
    assert "ORDO" in attention.list_flash_attention_impls()


MASKS = {  # for 4 heads, 33 rows and 20 columns
    "bool": torch.rand(33, 20) < 0.5,
    "bool, of each sequence": torch.rand(2, 1, 1, 20) < 0.5,
    "0 and -inf": torch.zeros(2, 4, 33, 20).masked_fill(torch.rand(2, 4, 33, 20) < 0.5, -torch.inf),
    "float": torch.randn(33, 20),
    "float, of each head": torch.randn(1, 4, 1, 20),
    "float, of each row": torch.randn(1, 1, 33, 1),
    "float, with a gradient": leaf(33, 20),
    "float, of each key with a gradient": leaf(2, 1, 1, 20),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_masks_are_element_masks_or_biases(active, kind, compiled):
    mask, dout = MASKS[kind], torch.rand(2, 4, 33, 16)
    given = inputs(columns=20)
    learned = [mask] if mask.requires_grad else []
    whole = mask[(None,) * (4 - mask.dim())].expand(-1, -1, 33, 20)
    rules = {"seen" if mask.dtype == torch.bool else "bias": whole}
    found, expected = (
        [o.detach(), *torch.autograd.grad(o, given + learned, dout)]
        for o in (sdpa_of(compiled)(*given, attn_mask=mask), ours(*given, **rules))
    )
    assert all(same(x, y) for x, y in zip(found, expected))


# Masks of torch.nn.attention.bias.

SHAPES = [(33, 33), (9, 20), (20, 9)]  # rows and columns


def both(function, given, dout, *rest, **rules):
    """The result and its gradients."""
    o = function(*given, *rest, **rules)
    return [o.detach(), *torch.autograd.grad(o, given, dout)]


def sdpa_of(compiled):
    sdpa = F.scaled_dot_product_attention
    return torch.compile(sdpa, fullgraph=True, backend="aot_eager") if compiled else sdpa


@pytest.fixture
def as_on_cuda(monkeypatch):
    """CPU tensors take the operators of CUDA: bias.py calls aten's flash attention with them."""
    kernels = _sdpa.KERNELS["CUDA"]
    library = torch.library.Library("aten", "IMPL", "CPU")
    for name in kernels:
        if name.startswith("_scaled"):
            library.impl(name, kernels[name])
    monkeypatch.setattr(bias, "can_use_flash_attention", lambda given: True)
    yield
    library._destroy()


@pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_lower_right_bias_where_aten_has_flash_attention(active, as_on_cuda, shape, compiled):
    given, dout = inputs(*shape), torch.rand(2, 4, shape[0], 16)
    mask = bias.causal_lower_right(*shape)
    for x, y in zip(both(sdpa_of(compiled), given, dout, mask), both(ours, given, dout, causal=True)):
        assert same(x, y)


@pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")
@pytest.mark.filterwarnings("ignore:.*CPU implementation for lower-right")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", SHAPES[:2])  # PyTorch has no value for rows that see nothing
@pytest.mark.parametrize("variant", ["causal_upper_left", "causal_lower_right"])
def test_biases_of_the_cpu(active, variant, shape, compiled):
    given, dout = inputs(*shape), torch.rand(2, 4, shape[0], 16)
    found = both(sdpa_of(compiled), given, dout, getattr(bias, variant)(*shape))
    causal = "top-left" if variant == "causal_upper_left" else True
    for x, y in zip(found, both(ours, given, dout, causal=causal)):
        close(x, y.double(), torch.float32)


# The kernels registered for CUDA, fed by hand.


@pytest.mark.parametrize("rows", [33, 20])
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("causal", [False, True])
def test_the_dense_operator(p, causal, rows):
    """Causal is bottom-right here, in the operator of the CPU top-left."""
    q, k, v = (x.detach() for x in inputs(rows, heads=4, kv_heads=2))
    if rows != 33:  # as attention() has them
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
        first = _sdpa._on_cpu(q, k, v, is_causal=causal, enable_gqa=True)
        assert same(first, ours(q, k, v, causal="top-left" if causal else False))
    out, lse, cum_q, cum_k, max_q, max_k, state, unused, debug = _sdpa._sdpa_forward(
        q, k, v, p, causal, True, scale=0.3
    )
    assert (cum_q, cum_k, max_q, max_k) == (None, None, rows, 33)
    assert out.stride() == q.stride() and lse.shape == (2, 4, rows)
    assert state.dtype == torch.uint64 and state.shape == (2,) and unused.shape == ()
    rng = state.view(torch.int64)
    rules = dict(causal=causal, dropout_p=p, rng_state=rng if p else None, scale=0.3)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    other = ours(*leaves, **rules)
    assert same(out, other)
    assert debug.numel() == (2 * 4 * 128 * 128 if p else 0)
    dout = torch.rand_like(out)
    grads = _sdpa._sdpa_backward(
        dout, q, k, v, out, lse, None, None, rows, 33, p, causal, state, unused, scale=0.3
    )
    for x, y, like in zip(grads, torch.autograd.grad(other, leaves, dout), (q, k, v)):
        assert same(x, y) and x.stride() == like.stride()


def test_head_sizes_that_are_filled_up(monkeypatch):
    """As on CUDA, whose kernels have a few sizes."""
    q, k, v = (x.detach() for x in inputs())
    plain = _sdpa._sdpa_forward(q, k, v, 0.1, True)
    monkeypatch.setattr(_parts, "width_of", lambda q, v: 64)
    monkeypatch.setattr(_sdpa, "rng_of", lambda q: plain[6].view(torch.int64))
    out, lse, *_, state, unused, _ = _sdpa._sdpa_forward(q, k, v, 0.1, True)
    assert out.shape == q.shape and torch.allclose(out, plain[0], atol=1e-5)
    dout = torch.rand_like(out)
    rest = (None, None, 33, 33, 0.1, True, state, unused)
    grads = _sdpa._sdpa_backward(dout, q, k, v, out, lse, *rest)
    monkeypatch.undo()
    for x, y in zip(grads, _sdpa._sdpa_backward(dout, q, k, v, out, lse, *rest)):
        assert x.shape == y.shape and torch.allclose(x, y, atol=1e-5)


def test_the_packed_operator():
    ends = torch.tensor([0, 7, 20], dtype=torch.int32)
    q, k, v = (leaf(20, 2, 16, seed=x).detach() for x in range(3))
    out, lse, state, unused, _ = _sdpa._flash_forward(
        q, k, v, ends, ends, 13, 13, 0.1, True, False, window_size_left=5, window_size_right=0
    )
    rules = dict(
        causal=True, window=(5, 0), dropout_p=0.1, rng_state=state.view(torch.int64), cu_q=ends
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    other, other_lse = ordo.torch.attention(*leaves, **rules)
    assert same(out, other) and same(lse, other_lse)
    dout = torch.rand_like(out)
    grads = _sdpa._flash_backward(
        dout, q, k, v, out, lse, ends, ends, 13, 13, 0.1, True, state, unused,
        window_size_left=5, window_size_right=0,
    )  # fmt: skip
    for x, y in zip(grads, torch.autograd.grad(other, leaves, dout)):
        assert same(x, y)


def test_what_is_not_there_raises_as_pytorch_expects(active):
    """A scale of 0 is the default to the library: the result would be another one."""
    q, flat, none = torch.zeros(2, 4, 8, 16), torch.zeros(20, 2, 16), torch.zeros(2, 4, 8, 0)
    ends = torch.tensor([0, 20], dtype=torch.int32)
    packed = flat, flat, flat, ends, ends, 20, 20
    zero = "scale 0: expected another number"
    for call, words in (
        (lambda: _sdpa._flash_forward(*packed, 0.0, False, False, seqused_k=ends), "seqused_k given"),
        (lambda: _sdpa._flash_forward(*packed, 1.0, False, False), "dropout.p"),
        (lambda: F.scaled_dot_product_attention(q, q, q, scale=0.0), zero),
        (lambda: _sdpa._sdpa_forward(q, q, q, scale=0.0), zero),
        (lambda: _sdpa._flash_forward(q, q, q, None, None, 8, 8, 0.0, False, False, scale=0.0), zero),
        (lambda: _sdpa._on_cpu(none, none, none), "head_dim 0: expected"),
        (lambda: F.scaled_dot_product_attention(q, q, q, dropout_p=1.0), "dropout.p 1: expected"),
        (lambda: F.scaled_dot_product_attention(q, q[:, :3], q[:, :3], enable_gqa=True), "kv_heads 3: expected a divisor"),
        (lambda: F.scaled_dot_product_attention(q, q[:, :2], q[:, :2]), "size of tensor a"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
