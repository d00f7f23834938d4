"""The backward pass compares what was saved with its plan before it writes: hooks of saved tensors,
and an assignment to .data, may have replaced any of it."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from ordo.torch._call import Arguments
from ordo.torch._node import eager
from test_repeated import repeated


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


NAMES = ["q", "k", "v", "o", "lse"]
LENGTHS = dict(q_lens=ints(9, 4), kv_lens=ints(9, 5))

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


@pytest.mark.parametrize("keywords", [dict(), LENGTHS, dict(cu_q=ints(0, 4, 18), max_q=14)])
def test_replaced_tensors_of_calls_with_heads_first(keywords):
    inputs = [x.detach().transpose(1, 2).requires_grad_() for x in tensors()]
    call = repeated(inputs, Arguments(**keywords))
    for at, name in enumerate(NAMES):
        for change in CHANGES.values():
            with Replace(at, change):
                o, _ = eager(*inputs, call)
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
