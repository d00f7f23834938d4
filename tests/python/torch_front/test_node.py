"""The node of PyTorch's own: the bits of the autograd.Function, and no other way to a wrong result."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import _compiled, _quick
from ordo.torch._attention import Arguments
from ordo.torch._compiled import front
from ordo.torch._repeated import Repeated
from torch.autograd import forward_ad
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

NODE = "ScaledDotProductFusedAttentionOverrideableBackward0"
operator = getattr(torch.ops.aten, _compiled._NODE)
backward_operator = getattr(torch.ops.aten, f"{_compiled._NODE}_backward")
flash = ordo.torch.flash_attn_func

# PyTorch 2.11 has the operator that the kernels were written for; others may have another one.
pytestmark = pytest.mark.skipif(
    front.node is None and not (front.on and torch.__version__.startswith("2.11.")),
    reason=front.missing or front.nodeless,
)


def tensors(batch=2, rows=37, heads=4, kv_heads=2, dim=16, dtype=torch.float32, seed=7):
    drawn = torch.Generator().manual_seed(seed)
    shapes = (batch, rows, heads, dim), (batch, rows, kv_heads, dim), (batch, rows, kv_heads, dim)
    return [torch.randn(x, generator=drawn).to(dtype).requires_grad_() for x in shapes]


def is_node(o):
    return type(o.grad_fn).__name__ == NODE


def on_node(inputs, function=flash, **rules):
    """o of a call whose plan is known, seed set before; asserts that the node is taken."""
    function(*inputs, **rules)
    torch.manual_seed(5)
    o = function(*inputs, **rules)
    assert is_node(o)
    return o


def wanted(monkeypatch, inputs, dout=None, of=None, **rules):
    """(o, dq, dk, dv) by the autograd.Function."""
    flash(*inputs, **rules)
    with monkeypatch.context() as patch:
        patch.setattr(front, "node", None)
        torch.manual_seed(5)
        o = flash(*inputs, **rules)
        assert type(o.grad_fn).__name__ == "_PlainBackward"
        dout = torch.ones_like(o) if dout is None else dout
        return [o, *torch.autograd.grad(o, of or inputs, dout)]


def all_same(found, other):
    return all(same(x, y) and x.stride() == y.stride() for x, y in zip(found, other, strict=True))


CASES = {
    "full": dict(),
    "causal": dict(causal=True),
    "window": dict(causal=True, window_size=(5, 0)),
    "dropout": dict(causal=True, dropout_p=0.1),
    "softcap": dict(softcap=3.0, dropout_p=0.25),
}


def test_there_is_a_node():
    assert front.nodeless == "" and front.node is not None


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bits_of_the_function(monkeypatch, case, dtype):
    rules, inputs = CASES[case], tensors(dtype=dtype)
    turned = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    for given in (inputs, [x.requires_grad_() for x in turned]):
        o = on_node(given, **rules)
        found = [o, *torch.autograd.grad(o, given, torch.ones_like(o))]
        assert all_same(found, wanted(monkeypatch, given, **rules))


@pytest.mark.parametrize("p", [0.0, 0.1])
def test_heads_first(monkeypatch, p):
    """As the layers of a model call it."""
    inputs = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors()]
    call = Repeated(Arguments(causal=True, dropout_p=p)).call
    o = on_node(inputs, call)
    dout = torch.randn(o.shape)
    found = [o, *torch.autograd.grad(o, inputs, dout)]
    monkeypatch.setattr(front, "node", None)
    torch.manual_seed(5)
    o = call(*inputs)
    assert not is_node(o)
    assert all_same(found, [o, *torch.autograd.grad(o, inputs, dout)])


def test_autocast(monkeypatch):
    inputs = tensors()
    halves = [x.detach().bfloat16().requires_grad_() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        o = on_node(inputs)
    grads = torch.autograd.grad(o, inputs, torch.ones_like(o))
    other = wanted(monkeypatch, halves)
    assert all(same(x.to(y.dtype), y) for x, y in zip((o, *grads), other))


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_gradients_of_some(monkeypatch, which):
    inputs = [x.detach() for x in tensors()]
    of = [inputs[at].requires_grad_() for at in which]
    o = on_node(inputs, causal=True)
    found = [o, *torch.autograd.grad(o, of, torch.ones_like(o))]
    assert all_same(found, wanted(monkeypatch, inputs, of=of, causal=True))


def test_a_pair_with_lse_keeps_the_function():
    """PyTorch's node has no gradient of lse."""
    inputs = tensors()
    for _ in range(2):
        o, lse = ordo.torch.attention(*inputs, causal=True)
        assert not is_node(o) and lse.requires_grad


# ---- gradients of the output ----


def gradients_of_output(like):
    drawn = torch.randn(like.shape)
    wide = torch.randn(*like.shape[:-1], like.shape[-1] + 3)
    return {
        "dense": drawn,
        "expanded": torch.ones(()).expand(like.shape),
        "rows expanded": torch.randn(like.shape[-1]).expand(like.shape),
        "turned": drawn.transpose(1, 3).contiguous().transpose(1, 3),
        "a part": wide[..., 3:],
        "every second": torch.randn(*like.shape[:-1], 2 * like.shape[-1])[..., ::2],
        "negative": torch._neg_view(drawn),
        "imaginary": torch.complex(drawn, drawn).conj().imag,
        "of zeros": torch._efficientzerotensor(like.shape),
    }


@pytest.mark.parametrize("kind", gradients_of_output(torch.ones(2, 3, 2, 4)))
@pytest.mark.parametrize("p", [0.0, 0.1])
def test_any_gradient_of_the_output(monkeypatch, kind, p):
    inputs = tensors()
    o = on_node(inputs, dropout_p=p)
    dout = gradients_of_output(o)[kind]
    found = [o, *torch.autograd.grad(o, inputs, dout)]
    dense = dout.resolve_neg().clone().contiguous()
    assert all_same(found, wanted(monkeypatch, inputs, dense, dropout_p=p))


def test_a_sum_and_a_gradient_that_is_none(monkeypatch):
    inputs = tensors()
    on_node(inputs).sum().backward()
    assert all_same([x.grad for x in inputs], wanted(monkeypatch, inputs)[1:])

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return None

    found = torch.autograd.grad(Nothing.apply(on_node(inputs)).sum(), inputs)
    monkeypatch.setattr(front, "node", None)
    assert all_same(found, torch.autograd.grad(Nothing.apply(flash(*inputs)).sum(), inputs))


def test_the_graph_kept_and_freed(monkeypatch):
    inputs = tensors()
    o = on_node(inputs, dropout_p=0.1)
    dout = torch.ones_like(o)
    first = torch.autograd.grad(o, inputs, dout, retain_graph=True)
    assert all_same(first, torch.autograd.grad(o, inputs, dout))
    assert all_same(first, wanted(monkeypatch, inputs, dropout_p=0.1)[1:])
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(o, inputs, dout)


@pytest.mark.parametrize("at", range(4))
def test_tensors_changed_in_place_are_refused(at):
    inputs = tensors()
    copies = [x.clone() for x in inputs]
    o = on_node(copies)
    with torch.no_grad():
        (*copies, o)[at].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(o, inputs, torch.ones_like(o))


def test_anomaly_mode(monkeypatch):
    inputs = tensors()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anomaly = torch.autograd.detect_anomaly()
    with anomaly:
        o = on_node(inputs)
        found = [o, *torch.autograd.grad(o, inputs, torch.ones_like(o))]
    assert all_same(found, wanted(monkeypatch, inputs))


def test_threads(monkeypatch):
    inputs = tensors(rows=65)
    other = wanted(monkeypatch, inputs, causal=True)
    shared = on_node(inputs, causal=True)

    def work(turn):
        mine, o = inputs, shared
        if turn % 2:
            mine = [x.detach().clone().requires_grad_() for x in inputs]
            o = flash(*mine, causal=True)
        return all_same(
            [o, *torch.autograd.grad(o, mine, torch.ones_like(o), retain_graph=True)], other
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


# ---- compilers and tracers ----


def compiled_backward(o, inputs, backend):
    for x in inputs:
        x.grad = None
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
        (o * torch.ones_like(o)).sum().backward()
    return [x.grad for x in inputs]


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_autograd(monkeypatch, fresh, backend):
    """Equal shapes with other rules, whose graph must not be taken again, and other shapes."""
    calls = [(0.0, 37, True), (0.0, 37, False), (0.1, 37, True), (0.0, 20, True), (0.1, 20, False)]
    for p, rows, causal in calls:
        inputs = tensors(rows=rows)
        rules = dict(causal=causal, dropout_p=p)
        o = on_node(inputs, **rules)
        found = [o, *compiled_backward(o, inputs, backend)]
        assert all_same(found, wanted(monkeypatch, inputs, **rules))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_autograd_heads_first(monkeypatch, fresh, backend):
    inputs = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors()]
    call = Repeated(Arguments(causal=True)).call
    found = compiled_backward(on_node(inputs, call), inputs, backend)
    monkeypatch.setattr(front, "node", None)
    o = call(*inputs)
    other = torch.autograd.grad(o, inputs, torch.ones_like(o))
    assert all(same(x, y) for x, y in zip(found, other))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_takes_the_operator(monkeypatch, fresh, backend):
    inputs = tensors()
    on_node(inputs, causal=True)
    graph = torch.compile(flash, backend=backend, fullgraph=True)
    o = graph(*inputs, causal=True)
    assert not is_node(o)
    found = [o, *torch.autograd.grad(o, inputs, torch.ones_like(o))]
    assert all_same(found, wanted(monkeypatch, inputs, causal=True))


def test_make_fx(monkeypatch):
    """A trace of both passes has ordo's operators, one of the backward pass alone PyTorch's."""
    inputs = tensors()
    o = on_node(inputs)
    other = wanted(monkeypatch, inputs)

    def both(*given):
        made = flash(*given)
        return [made, *torch.autograd.grad(made, given, torch.ones_like(made))]

    graph = make_fx(both)(*inputs)
    assert all_same(graph(*inputs), other)
    assert "ordo.attention_backward" in graph.code

    def second(dout):
        return torch.autograd.grad(o, inputs, dout, retain_graph=True)

    graph = make_fx(second)(torch.zeros_like(o))
    assert all_same(graph(torch.ones_like(o)), other[1:])
    assert "overrideable_backward" in graph.code


@pytest.mark.parametrize("heads_first", [False, True])
def test_meta_tensors_have_the_strides_of_real_ones(heads_first):
    inputs = tensors()
    call = flash
    if heads_first:
        inputs = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs]
        call = Repeated(Arguments()).call
    o = on_node(inputs, call)
    given = arguments_of(o.grad_fn, torch.ones_like(o))
    real = backward_operator(*given)
    meta = backward_operator(*[x.to("meta") if isinstance(x, torch.Tensor) else x for x in given])
    for x, y in zip(real[:3], meta[:3]):
        assert x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype
    assert real[3] is None and meta[3] is None


def arguments_of(node, dout):
    """What the node calls the backward operator with."""
    return [
        dout, node._saved_query, node._saved_key, node._saved_value, node._saved_attn_bias,
        [True] * 4, node._saved_output, node._saved_logsumexp, node._saved_cum_seq_q,
        node._saved_cum_seq_k, node._saved_max_q, node._saved_max_k, node._saved_dropout_p,
        node._saved_is_causal, node._saved_philox_seed, node._saved_philox_offset,
    ]  # fmt: skip


# ---- what is refused, and what is not for the node ----


def test_second_derivatives_are_refused(monkeypatch):
    inputs = tensors()
    o = on_node(inputs)
    grads = torch.autograd.grad(o, inputs, torch.ones_like(o), create_graph=True)
    assert all_same(grads, wanted(monkeypatch, inputs)[1:])
    with pytest.raises(RuntimeError, match="overrideable_backward is not implemented"):
        torch.autograd.grad(grads[0].sum(), inputs[0])


def test_forward_mode_derivatives_are_refused():
    inputs = tensors()
    o = on_node(inputs)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(inputs[0], torch.ones_like(inputs[0]))
        with pytest.raises(ordo.Error, match="q: a tangent"):
            flash(dual, *inputs[1:])
        dout = forward_ad.make_dual(torch.ones_like(o), torch.ones_like(o))
        with pytest.raises(NotImplementedError, match="forward AD"):
            torch.autograd.grad(o, inputs, dout)


def test_transforms_are_refused_as_without_the_node():
    inputs = tensors()
    on_node(inputs)
    with pytest.raises(ordo.Error, match="torch.func.grad, .* expected torch.autograd.grad"):
        torch.func.grad(lambda *x: flash(*x).sum())(*inputs)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_reads_its_inputs():
    q, k, v = (x.detach() for x in tensors())
    on_node([q.requires_grad_(), k, v])
    traced = torch.jit.trace(lambda x: flash(x, k, v), (q,), check_trace=False)
    other = torch.randn(q.shape, requires_grad=True)
    assert same(traced(other), on_node([other, k, v]))


def test_the_short_way_checks_its_arguments():
    """Numbers that compare equal to those of a call that went before."""
    inputs = tensors()
    on_node(inputs, window_size=(5, 0))
    for wrong in ((5.0, 0), (5, 0.0), (5 + 0j, 0)):
        with pytest.raises(ordo.Error, match="window"):
            flash(*inputs, window_size=wrong)
    on_node(inputs)
    with pytest.raises(ordo.Error, match="dropout_p"):
        flash(*inputs, dropout_p=torch.zeros(2))
    on_node(inputs, softmax_scale=0.5)
    for wrong in (dict(dropout_p=0j), dict(softcap=0j), dict(softmax_scale=0.5 + 0j)):
        with pytest.raises(ordo.Error, match="expected a number"):
            flash(*inputs, **wrong)
        wrong = {name.removeprefix("softmax_"): x for name, x in wrong.items()}
        with pytest.raises(ordo.Error, match="expected a number"):
            ordo.torch.attention(*inputs, **wrong)
    with pytest.raises(ordo.Error, match="dropout_p 0j: expected a number"):
        rng = torch.zeros(2, dtype=torch.int64)
        ordo.torch.attention(*inputs, dropout_p=0j, prepared=SimpleNamespace(rng_state=rng))


@pytest.mark.parametrize(
    "change", [torch.Tensor.to_sparse, torch.Tensor.to_mkldnn, lambda x: x.to("meta")]
)
def test_tensors_without_a_kernel_are_refused_by_name(change):
    inputs = tensors()
    on_node(inputs)
    for at in range(3):
        given = [change(x.detach()) if i == at else x for i, x in enumerate(inputs)]
        with pytest.raises(ordo.Error, match=r"[qkv]\.(layout|device) .*: expected "):
            flash(*given)


def test_gradients_in_batches():
    inputs = tensors()
    o = on_node(inputs)
    douts = torch.randn(3, *o.shape)
    one = [torch.autograd.grad(o, inputs, dout, retain_graph=True) for dout in douts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a loop that it takes
        found = torch.autograd.grad(o, inputs, douts, is_grads_batched=True)
    assert all(same(x, torch.stack(y)) for x, y in zip(found, zip(*one)))


class Wrapped(torch.Tensor):
    pass


def test_only_plain_tensors():
    inputs = tensors()
    on_node(inputs)
    o = flash(inputs[0].as_subclass(Wrapped), *inputs[1:])
    assert not is_node(o)
    assert is_node(flash(torch.nn.Parameter(inputs[0].detach()), *inputs[1:]))
    with torch.no_grad():
        assert flash(*inputs).grad_fn is None


@pytest.mark.parametrize("view", [torch._neg_view, lambda x: torch.complex(x, x).conj().imag])
def test_negative_views(monkeypatch, view):
    inputs = [x.detach() for x in tensors()]
    views = [view(x).requires_grad_() for x in inputs]
    dense = [x.resolve_neg().detach().contiguous().requires_grad_() for x in views]
    flash(*dense)
    for _ in range(2):
        o = flash(*views)
        found = [o, *torch.autograd.grad(o, views, torch.ones_like(o))]
        assert all(same(x, y) for x, y in zip(found, wanted(monkeypatch, dense)))


def test_what_is_declined_takes_the_function():
    """A last axis that is strided, which the front leaves to Python; it draws once."""
    inputs = tensors()
    o = on_node(inputs, dropout_p=0.3)
    strided = [x.detach().transpose(2, 3).contiguous().transpose(2, 3) for x in inputs]
    strided = [x.requires_grad_() for x in strided]
    flash(*strided, dropout_p=0.3)
    torch.manual_seed(5)
    other = flash(*strided, dropout_p=0.3)
    assert not is_node(other) and same(o, other)
    (dq,), (dq_other,) = (
        torch.autograd.grad(x.sum(), of[0]) for x, of in ((o, inputs), (other, strided))
    )
    assert same(dq, dq_other)


def test_more_rules_than_the_mark_has_room_for(monkeypatch):
    inputs = tensors()
    on_node(inputs)
    monkeypatch.setattr(_quick, "MARKED_RULES", 1)
    assert not is_node(flash(*inputs))


# ---- hooks of saved tensors ----


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.1])
def test_checkpoint(monkeypatch, reentrant, p):
    """The first call, whose plan is made, saves in the same order as the one that runs again."""
    inputs = tensors(rows=11 + 2 * reentrant + (p > 0), kv_heads=4)
    for _ in range(2):
        torch.manual_seed(5)
        o = checkpoint(flash, *inputs, p, use_reentrant=reentrant)
        assert not is_node(o)
        for x in inputs:
            x.grad = None
        o.backward(torch.ones_like(o))
        found = [o, *[x.grad for x in inputs]]
        assert all_same(found, wanted(monkeypatch, inputs, dropout_p=p))


def test_hooks_of_saved_tensors_keep_the_function(monkeypatch):
    inputs = tensors()
    on_node(inputs)
    other = wanted(monkeypatch, inputs)
    for hooks in (save_on_cpu(), saved_tensors_hooks(lambda x: x.clone(), lambda x: x)):
        with hooks:
            o = flash(*inputs)
        assert not is_node(o)
        assert all_same([o, *torch.autograd.grad(o, inputs, torch.ones_like(o))], other)
    assert is_node(flash(*inputs))


SAVED = dict(query="q", key="k", value="v", output="o", logsumexp="lse", philox_seed="rng")
CHANGES = {
    "dtype": lambda x: x.half() if x.is_floating_point() else x.to(torch.int16),
    "wider": lambda x: x.double() if x.is_floating_point() else x.to(torch.complex128),
    "shape": lambda x: torch.cat((x, x)),
    "shorter": lambda x: x[:1].clone(),
    "axes": lambda x: x[None],
    "flat": lambda x: x.reshape(1, -1),
    "number": lambda x: x.reshape(-1)[0],
    "device": lambda x: x.to("meta"),
}


def hooked(o, name, unpack):
    getattr(o.grad_fn, f"_raw_saved_{name}").register_hooks(lambda x: x, unpack)


@pytest.mark.parametrize("name", SAVED)
def test_a_hook_of_one_tensor_may_change_its_strides(monkeypatch, name):
    inputs = tensors()
    o = on_node(inputs, dropout_p=0.1)
    hooked(o, name, lambda x: torch.stack((x, x), -1)[..., 0])
    found = [o, *torch.autograd.grad(o, inputs, torch.ones_like(o))]
    assert all_same(found, wanted(monkeypatch, inputs, dropout_p=0.1))


@pytest.mark.parametrize("heads_first", [False, True])
def test_a_hook_of_an_expanded_tensor_may_make_it_dense(heads_first):
    """Of other strides than the plan's, to which nothing can be copied."""
    inputs = [x.detach() for x in tensors(kv_heads=1)]
    if heads_first:
        inputs = [x.transpose(1, 2).contiguous() for x in inputs]
    q, k, v = (x.requires_grad_() for x in inputs)
    heads = (-1, 2, -1, -1) if heads_first else (-1, -1, 2, -1)
    given = [q, k.expand(heads), v.expand(heads)]
    call = Repeated(Arguments()).call if heads_first else flash
    found = []
    for change in (lambda x: x, torch.Tensor.contiguous, lambda x: torch.stack((x, x), -1)[..., 0]):
        o = on_node(given, call)
        for name in ("query", "key", "value"):
            hooked(o, name, change)
        found.append(torch.autograd.grad(o, (q, k, v), torch.ones_like(o)))
    assert all_same(found[0], found[1]) and all_same(found[0], found[2])


@pytest.mark.parametrize("name", SAVED)
def test_a_hook_of_one_tensor_may_set_its_negative_bit(monkeypatch, name):
    inputs = tensors()
    o = on_node(inputs, dropout_p=0.1)
    hooked(o, name, lambda x: torch._neg_view(-x))
    found = [o, *torch.autograd.grad(o, inputs, torch.ones_like(o))]
    assert all_same(found, wanted(monkeypatch, inputs, dropout_p=0.1))


def refusal(o, inputs):
    with pytest.raises(RuntimeError) as error:
        torch.autograd.grad(o, inputs, torch.ones_like(o))
    return str(error.value)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SAVED)
def test_a_hook_of_one_tensor_may_change_nothing_else(monkeypatch, name, change):
    """The words are those of the autograd.Function."""
    inputs = tensors()
    o = on_node(inputs, dropout_p=0.1)
    hooked(o, name, CHANGES[change])
    found = refusal(o, inputs)
    monkeypatch.setattr(front, "node", None)
    o = flash(*inputs, dropout_p=0.1)
    at = list(SAVED).index(name)
    o.grad_fn._raw_saved_tensors[at].register_hooks(lambda x: x, CHANGES[change])
    assert found == refusal(o, inputs)
    assert found.startswith(f"{SAVED[name]}.")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SAVED)
def test_a_hook_of_one_tensor_with_heads_first(name, change):
    inputs = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors()]
    o = on_node(inputs, Repeated(Arguments(dropout_p=0.1)).call)
    hooked(o, name, CHANGES[change])
    expected = r"(shape \(.*|dtype torch\.\w+|device meta): expected (\(|torch\.|cpu)"
    assert re.match(rf"{SAVED[name]}\.{expected}", refusal(o, inputs))


def test_types_are_named():
    """In the words of PyTorch, whose numbers the front knows."""
    q, k, v = tensors()
    inputs = [q, k.detach(), v]  # integers have no gradient
    on_node(inputs)
    for dtype in (
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
        torch.float64, torch.bfloat16, torch.bool, torch.complex64, torch.complex128,
        torch.float8_e5m2, torch.float8_e4m3fn,
    ):  # fmt: skip
        o = flash(*inputs)
        hooked(o, "key", lambda x, dtype=dtype: x.to(dtype))
        assert refusal(o, [q]) == f"k.dtype {dtype}: expected torch.float32"
    o = flash(*inputs)
    hooked(o, "key", lambda x: x.to(torch.float8_e5m2fnuz))
    assert re.match(r"k.dtype \d+ .*: expected torch.float32", refusal(o, [q]))


@pytest.mark.parametrize("change", ["dtype", "wider", "shorter"])
def test_all_tensors_replaced_alike(change):
    """Together they would be a call with a plan of its own."""
    inputs = tensors()
    o = on_node(inputs)
    for name in list(SAVED)[:5]:
        hooked(o, name, CHANGES[change])
    assert re.match(r"q\.(shape|dtype) .*: expected ", refusal(o, inputs))


def test_other_data_behind_an_input():
    for data in (torch.zeros(2, 37, 4, 16).half(), torch.zeros(1, 1, 4, 16)):
        inputs = tensors()
        o = on_node(inputs)
        inputs[0].data = data
        assert re.match(r"q\.(shape|dtype) .*: expected ", refusal(o, inputs))


# ---- other people's calls ----


def test_calls_of_others_are_refused():
    inputs = tensors()
    q, k, v = inputs
    o = on_node(inputs)
    refused = pytest.raises(RuntimeError, match="serves calls of ordo.torch only")
    mark = -float(_compiled.MARK)
    for dropout_p in (0.0, 0.1, -1.0, mark, mark - 0.5, mark - 2**22, float("nan"), -float("inf")):
        with refused:
            operator(q, k, v, None, dropout_p)
    with refused:
        operator(q, k, v, torch.ones(37, 37), mark - 1)
    with refused:
        operator(q, k, v, None, mark - 1, scale=1.0)
    given = arguments_of(o.grad_fn, torch.ones_like(o))
    dropout_p, max_k = 12, 11
    for at, value in ((dropout_p, 0.0), (dropout_p, given[dropout_p] - 1), (max_k, 37), (max_k, 0),
                      (max_k, -(2**40)), (max_k, given[max_k] + 4000)):  # fmt: skip
        with refused:
            backward_operator(*[value if i == at else x for i, x in enumerate(given)])
    with refused:
        backward_operator(*given, scale=1.0)
    given = [x.to("meta") if isinstance(x, torch.Tensor) else x for x in given]
    given[dropout_p] = 0.1
    with pytest.raises(NotImplementedError, match="serves calls of ordo.torch only"):
        backward_operator(*given)


def test_calls_that_are_refused_hold_nothing():
    inputs = tensors()
    on_node(inputs)
    bias = torch.ones(2, 4, 37, 37)
    storages = [x.untyped_storage() for x in (*inputs, bias)]
    uses = [torch._C._storage_Use_Count(x._cdata) for x in storages]
    for _ in range(3):
        with pytest.raises(RuntimeError):
            operator(*inputs, bias)
        o = flash(*inputs)
        hooked(o, "output", lambda x: x.half())
        with pytest.raises(RuntimeError):
            torch.autograd.grad(o, inputs, torch.ones_like(o))
        o = flash(*inputs)
        torch.autograd.grad(o.sum(), inputs)
        del o
    assert uses == [torch._C._storage_Use_Count(x._cdata) for x in storages]


def test_rules_of_another_schema_are_not_taken(monkeypatch):
    assert "has a kernel for CPU" in _compiled.node_misfit()  # now it has ours
    name = f"{_compiled._NODE}_backward"
    monkeypatch.setitem(_compiled._SCHEMAS, name, "another")
    monkeypatch.setattr(_compiled, "_KEYS", ())
    assert f"{name} has another schema" in _compiled.node_misfit()


def run_python(program):
    paths = [os.path.dirname(os.path.dirname(ordo.__file__)), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


THEIRS = """
import torch
name = "_scaled_dot_product_fused_attention_overrideable"
library = torch.library.Library("aten", "IMPL", "CPU")

def theirs(q, k, v, *rest, **more):
    CHECK
    none = torch.empty(0)
    return torch.full_like(q, 7), none, none, none, q.shape[2], k.shape[2], none, none, none

EARLY
import ordo.torch
from ordo.torch._compiled import front
LATE
print(front.nodeless)
q = torch.randn(1, 8, 2, 8, requires_grad=True)
for _ in range(2):
    o = ordo.torch.flash_attn_func(q, q, q)
print(torch.equal(o, ordo.torch.attention(q, q, q)[0]), type(o.grad_fn).__name__)
"""


@pytest.mark.parametrize("check", ["", "assert rest[1] >= 0, 'no probability'"])
@pytest.mark.parametrize("early", [True, False])
def test_a_kernel_of_others(early, check):
    """One that was there before, and one that comes later."""
    register = "library.impl(name, theirs)"
    late = f"import warnings; warnings.simplefilter('ignore'); {register}"
    program = THEIRS.replace("EARLY", register if early else "").replace("CHECK", check)
    done = run_python(program.replace("LATE", "" if early else late))
    said = done.stdout.split("\n")
    assert ("has a kernel for CPU" in said[0]) == early, done.stderr
    assert said[1] in ("True _PlainBackward", "True _AttentionBackward"), done.stderr


def test_a_meta_kernel_of_others():
    """A package with a device of its own may register one, whatever was imported first."""
    program = """
import torch, ordo.torch
from ordo.torch._compiled import _NODE
library = torch.library.Library("aten", "IMPL")
library.impl(f"{_NODE}_backward", lambda *given, **more: given[1:4] + (None,), "Meta")
q = torch.randn(1, 8, 2, 8, requires_grad=True)
for _ in range(2):
    o = ordo.torch.flash_attn_func(q, q, q)
o.sum().backward()
print(type(o.grad_fn).__name__)
"""
    done = run_python(program)
    assert done.stdout.strip() == NODE, done.stderr


def test_memory_that_runs_out():
    """PyTorch's own error of an allocation, which callers recognise; on_cuda.py has that of CUDA."""
    program = """
import resource, torch, ordo.torch
rows = 1 << 20  # 64 MiB per gradient: malloc() keeps nothing so large
inputs = [torch.ones(1, rows, 1, 16).requires_grad_() for _ in range(3)]
few = [x.detach()[:, :2].clone().requires_grad_() for x in inputs]
ordo.torch.flash_attn_func(*few, window_size=(0, 0))
few_o = ordo.torch.flash_attn_func(*few, window_size=(0, 0))
torch.autograd.grad(few_o, few, torch.ones_like(few_o))  # what is imported late is there then
with torch.no_grad():
    ordo.torch.flash_attn_func(*inputs, window_size=(0, 0))
o = ordo.torch.flash_attn_func(*inputs, window_size=(0, 0))
print(type(o.grad_fn).__name__)
dout = torch.ones_like(o)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 25), resource.RLIM_INFINITY))
try:
    torch.autograd.grad(o, inputs, dout)
except RuntimeError as error:
    print(str(error).replace(chr(10), " "))
"""
    done = run_python(program)
    said = done.stdout.split("\n")
    assert said[0] == NODE, done.stderr
    assert "DefaultCPUAllocator: can't allocate memory" in said[1], done.stderr


BEYOND = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_ops.h>
#include <type_traits>
template <typename T> using maybe = std::optional<T>;
static_assert(std::is_same_v<
    decltype(&at::_ops::empty_memory_format::call),
    at::Tensor (*)(c10::SymIntArrayRef, maybe<at::ScalarType>, maybe<at::Layout>,
                   maybe<at::Device>, maybe<bool>, maybe<at::MemoryFormat>)>);
template <typename T, size_t bytes> constexpr bool by_value =
    std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && sizeof(T) == bytes;
static_assert(by_value<c10::SymIntArrayRef, 16> && by_value<maybe<at::ScalarType>, 2> &&
              by_value<maybe<at::Layout>, 2> && by_value<maybe<at::Device>, 3> &&
              by_value<maybe<bool>, 2> && by_value<maybe<at::MemoryFormat>, 2>);
static_assert(sizeof(c10::SymInt) == 8 && sizeof(at::Tensor) == sizeof(void *));
static_assert(!std::is_trivially_destructible_v<at::Tensor>);  // so it is returned in memory
static_assert(static_cast<int>(at::ScalarType::Byte) == 0);
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_function_beyond_the_abi_has_the_parameters_that_it_is_given(tmp_path):
    include = Path(torch.__file__).parent / "include"
    if not (include / "ATen" / "ops" / "empty_ops.h").exists():
        pytest.skip("PyTorch without headers")
    source = tmp_path / "beyond.cpp"
    source.write_text(BEYOND)
    command = ["c++", "-std=c++17", "-fsyntax-only", "-I", include, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
