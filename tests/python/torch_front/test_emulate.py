"""ORDO_EMULATE: attention of CPU tensors gets the bits of a GPU, which an audit finds equal."""

from __future__ import annotations

import ordo
import pytest
import torch
from ordo.torch import _attention

SIZES = dict(q_len=150, head_dim=64, heads=4, kv_heads=2, dtype="bf16")


@pytest.fixture(autouse=True)
def forget():
    yield
    _attention.forget()


def inputs(dtype=torch.bfloat16):
    torch.manual_seed(3)
    q, k, v, dout = (torch.randn(1, 150, heads, 64).to(dtype) for heads in (4, 2, 2, 4))
    return [x.requires_grad_() for x in (q, k, v)], dout


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_bits_of_an_h200(dropout, tmp_path, monkeypatch, command):
    monkeypatch.setenv("ORDO_EMULATE", "h200")
    _attention.forget()
    (q, k, v), dout = inputs()
    o, lse = ordo.torch.attention(q, k, v, causal=True, dropout_p=dropout, seed=5)
    dq, dk, dv = torch.autograd.grad(o, (q, k, v), dout)
    problem = ordo.Problem(**SIZES, mask="causal", dropout=dropout)
    plan = ordo.Plan(problem, "h200", backend="emulator")
    tensors = dict(q=q, k=k, v=v, o=o, lse=lse, dout=dout, dq=dq, dk=dk, dv=dv)
    ordo.save_call(tmp_path / "call.safetensors", plan, tensors, seed=5)
    found = ordo.audit(tmp_path / "call.safetensors")
    assert found and found.units == 24, str(found)
    monkeypatch.delenv("ORDO_EMULATE")
    _attention.forget()
    assert not torch.equal(ordo.torch.attention(q, k, v, causal=True, dropout_p=dropout, seed=5)[1], lse)


def test_what_it_refuses(monkeypatch):
    for name, dtype, text in (
        ("h300", torch.bfloat16, 'ORDO_EMULATE: machine "h300" is unknown'),
        ("zen4", torch.bfloat16, "machine zen4 is a CPU; expected a GPU"),
        ("h200", torch.float32, "dtype f32"),
    ):
        monkeypatch.setenv("ORDO_EMULATE", name)
        _attention.forget()
        with pytest.raises(ordo.Error, match=text):
            ordo.torch.attention(*inputs(dtype)[0])
