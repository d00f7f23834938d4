"""The node of PyTorch's own: the bits of the autograd.Function, and no other way to a wrong result."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from node_kit import (
    all_same, arguments_of, backward_operator, flash, is_node, needed, on_node, tensors, wanted,
)  # fmt: skip
from ordo.torch import _quick
from ordo.torch._attention import Arguments
from ordo.torch._compiled import front
from ordo.torch._repeated import Repeated
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = needed

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
