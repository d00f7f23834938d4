"""The node of PyTorch's own: hooks that replace what it saved."""

from __future__ import annotations

import re

import pytest
import torch
from node_kit import all_same, flash, hooked, is_node, needed, on_node, tensors, wanted
from ordo.torch._attention import Arguments
from ordo.torch._compiled import front
from ordo.torch._repeated import Repeated
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

pytestmark = needed


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
