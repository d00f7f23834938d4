"""The backward pass compares what was saved with its plan before it writes: hooks of saved tensors,
and an assignment to .data, may have replaced any of it."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch._call import Arguments
from ordo.torch._repeated import Repeated


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


NAMES = ["q", "k", "v", "o", "lse"]
LENGTHS = dict(q_lens=ints(9, 4), kv_lens=ints(9, 5))
IDS = dict(dropout_p=0.25, sequence_ids=ints(3, 7, dtype=torch.int64))
ROUTES = {  # the keywords, and the names of the lists in the order in which they are saved
    "plain": (dict(causal=True), []),
    "dropout": (dict(dropout_p=0.25), ["rng"]),
    "given seed": (dict(dropout_p=0.25, seed=(1, 2)), ["rng"]),
    "padded": (LENGTHS, ["q_lens", "kv_lens"]),
    "padded, ids": (dict(LENGTHS, **IDS), ["rng", "q_lens", "kv_lens", "sequence_ids"]),
    "packed": (dict(cu_q=ints(0, 4, 18), max_q=14), ["cu_q", "cu_kv"]),
    "slopes": (dict(slopes=torch.ones(4)), ["slopes"]),
    "wide slopes": (dict(LENGTHS, slopes=torch.ones(2, 4)), ["q_lens", "kv_lens", "slopes"]),
}

CHANGES = {
    "dtype": lambda x: x.half() if x.is_floating_point() else x.to(torch.int16),
    "wider": lambda x: x.double() if x.is_floating_point() else x.to(torch.complex128),
    "shorter": lambda x: x[:1].clone(),
    "flat": lambda x: x.reshape(1, -1),
    "device": lambda x: x.to("meta"),
}




def tensors(packed=False):
    sizes = (18,) if packed else (2, 9)
    return [torch.randn(*sizes, heads, 16).requires_grad_() for heads in (4, 2, 2)]


class Replace:
    """A hook that changes the saved tensor of one number when it is read."""

    def __init__(self, at, change):
        self.at, self.change, self.saved = at, change, 0

    def __enter__(self):
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self._hooks.__enter__()

    def __exit__(self, *rest):
        self._hooks.__exit__(*rest)

    def _pack(self, x):
        self.saved += 1
        return self.saved - 1, x

    def _unpack(self, kept):
        at, x = kept
        return self.change(x) if at == self.at else x


def refused(name, run, at, change, uses_lse=False):
    hook = Replace(at, change)
    with hook:
        o, lse = run()
    used = o.sum() + lse.sum() if uses_lse else o.sum()
    named = "cu_kv" if name == "cu_q" else name  # the two are compared with each other
    with pytest.raises(ordo.Error, match=rf"^({name}|{named})\.(shape|dtype|device) .*: expected "):
        used.backward()
    return hook.saved


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("route", ROUTES)
def test_replaced_tensors_are_refused_by_name(route, change):
    keywords, lists = ROUTES[route]
    names = NAMES + lists
    inputs = tensors("cu_q" in keywords)

    def run():
        return ordo.torch.attention(*inputs, **keywords)

    for _ in range(2):  # the second call finds its plan
        torch.autograd.grad(run()[0].sum(), inputs)
    for at, name in enumerate(names):
        saved = refused(name, run, at, CHANGES[change], uses_lse=at % 2 == 1)
        assert saved == len(names)
    assert all(x.grad is None for x in inputs)


@pytest.mark.parametrize("keywords", [dict(), LENGTHS, dict(cu_q=ints(0, 4, 18), max_q=14)])
def test_replaced_tensors_of_repeated_calls(keywords):
    inputs = [x.detach().transpose(1, 2).requires_grad_() for x in tensors()]
    again = Repeated(Arguments(**keywords))
    again.call(*inputs)
    for at, name in enumerate(NAMES):
        for change in CHANGES.values():
            with Replace(at, change):
                o = again.call(*inputs)
            with pytest.raises(ordo.Error, match=rf"^{name}\.(shape|dtype|device) .*: expected "):
                o.sum().backward()


def test_all_tensors_replaced_alike():
    """Together they would be a call with a plan of its own."""
    inputs = tensors()
    for change in (torch.Tensor.half, torch.Tensor.double, lambda x: x[:1].clone()):
        with torch.autograd.graph.saved_tensors_hooks(change, lambda x: x):
            o, _ = ordo.torch.attention(*inputs, causal=True)
        with pytest.raises(ordo.Error, match=r"^[qk]\.(shape|dtype) "):
            o.sum().backward()


def test_other_data_behind_an_input():
    for data in (torch.zeros(2, 9, 4, 16).half(), torch.zeros(1, 1, 4, 16)):
        q, k, v = tensors()
        o, _ = ordo.torch.attention(q, k, v)
        q.data = data
        with pytest.raises(ordo.Error, match=r"^q\.(shape|dtype) "):
            o.sum().backward()


def test_kept_bits_are_compared(monkeypatch):
    monkeypatch.setenv("ORDO_DROPOUT_MODE", "sequential")
    inputs = tensors()
    ordo.torch._attention.forget()
    o, _ = ordo.torch.attention(*inputs, dropout_p=0.25)
    bits = o.grad_fn._raw_saved_tensors[6]  # behind rng
    bits.register_hooks(lambda x: x, lambda x: x[:4].clone())
    with pytest.raises(ordo.Error, match=r"^bits\.shape \(4,\): expected"):
        o.sum().backward()
    ordo.torch._attention.forget()


def test_a_hook_that_gives_back_the_same_changes_nothing():
    inputs = tensors()
    keywords = dict(LENGTHS, **IDS, seed=3)
    expected = torch.autograd.grad(ordo.torch.attention(*inputs, **keywords)[0].sum(), inputs)
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, torch.Tensor.clone):
            o, _ = ordo.torch.attention(*inputs, **keywords)
        found = torch.autograd.grad(o.sum(), inputs)
        assert all(same(x, y) for x, y in zip(expected, found))
