"""ordo.save_call() with tensors of PyTorch: the same file as of arrays."""

from __future__ import annotations

import numpy as np
import torch

import ordo


def test_tensors(tmp_path):
    problem = ordo.Problem(q_len=70, head_dim=64, heads=2, kv_heads=1, mask="causal", dtype="bf16")
    plan = ordo.Plan(problem, "h200", backend="emulator")
    torch.manual_seed(3)
    given = {
        name: torch.randn(plan._shapes[name]).to(torch.bfloat16) for name in ("q", "k", "v", "dout")
    }
    arrays = {name: x.view(torch.int16).numpy().view(np.uint16) for name, x in given.items()}
    q, k, v, dout = arrays.values()
    o, lse = ordo.forward(plan, q, k, v)
    dq, dk, dv = ordo.backward(plan, q, k, v, o, lse, dout)
    made = {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
    tensors = {
        name: torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if name != "lse" else torch.from_numpy(x)
        for name, x in made.items()
    }
    spread = {name: x.transpose(1, 2).contiguous().transpose(1, 2) for name, x in given.items()}
    ordo.save_call(tmp_path / "a.safetensors", plan, {**arrays, **made})
    ordo.save_call(tmp_path / "t.safetensors", plan, {**spread, **tensors})
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "t.safetensors").read_bytes()
    assert ordo.audit(tmp_path / "t.safetensors")
