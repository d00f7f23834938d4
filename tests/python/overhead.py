"""What a call costs on top of the pass itself: the smallest problem, through the package and bare.

PYTHONPATH=python build/python/bin/python tests/python/overhead.py
"""

from __future__ import annotations

import time
from ctypes import byref

import numpy as np
import ordo
from ordo import _library, _structs


def micros(function, calls=1000, repeats=9):
    """Median over repeats of the mean over calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return sorted(times)[repeats // 2]


def bare(plan, arrays, lse):
    """The same passes by ctypes alone, everything prepared."""
    call, space = _structs.sized(_structs.ordo_call), plan._take()
    for name, array in arrays.items():
        getattr(call, name).data = array.ctypes.data
    call.lse, call.threads = lse.ctypes.data, 1
    call.workspace, call.workspace_bytes = space.address, space.size
    lib, handle = _library.lib, plan._handle
    return (
        micros(lambda: lib.ordo_attention_forward(handle, byref(call))),
        micros(lambda: lib.ordo_attention_backward(handle, byref(call))),
    )


problem = ordo.Problem(heads=2, q_len=2, head_dim=16)
plan = ordo.Plan(problem, backend="cpu")
q, k, v = (np.ones((1, 2, 2, 16), np.float32) for _ in range(3))
o, lse = ordo.forward(plan, q, k, v)
dq, dk, dv = ordo.backward(plan, q, k, v, o, lse, q)
pointed = dict(q=q, k=k, v=v, o=o, dout=q, dq=dq, dk=dk, dv=dv)
forward, backward = bare(plan, pointed, lse)
views = [x.swapaxes(1, 2) for x in (q, k, v)]
assert not views[0].flags.c_contiguous

rows = {
    "forward": micros(lambda: ordo.forward(plan, q, k, v, threads=1)) - forward,
    "forward, strided inputs": micros(lambda: ordo.forward(plan, *views, threads=1)) - forward,
    "backward": micros(lambda: ordo.backward(plan, q, k, v, o, lse, q, threads=1)) - backward,
    "attention": micros(lambda: ordo.attention(q, k, v, threads=1)) - forward,
    "Plan(problem)": micros(lambda: ordo.Plan(problem), 100),
}
print(f"bare calls: forward {forward:.1f} us, backward {backward:.1f} us; on top of them:")
for name, cost in rows.items():
    print(f"  {name:24} {cost:7.1f} us")
