"""What the scripts for a CUDA device share: on_cuda.py and those that it names.

A registry of checks, tensors and comparisons, and the command line: no pytest, no network.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
import traceback

import math64
import ordo
import ordo.torch
import torch
from math64 import same
from ordo._problem import dropout_of
from ordo.torch._attention import run_inputs
from ordo.torch._call import Arguments
from ordo.torch._mask import keep_mask
from ordo.run._reproducible import needs_cublas_variable

try:
    import triton
    from triton import language as tl
except ImportError:
    add = None
else:

    @triton.jit
    def add(x, y):
        """x[i] += y[i] in program i."""
        i = tl.program_id(0)
        tl.store(x + i, tl.load(x + i) + tl.load(y + i))


if needs_cublas_variable():  # which slows every product down where it is not needed
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

CHECKS = {}
DEVICE = "cuda"
STEPS = 50
DROPPED = dict(dropout_p=0.17, seed=(5, 6))


def check(function):
    CHECKS[function.__name__] = function
    return function


class Wrong(Exception):
    """A check that did not hold."""


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def cuda():
    return DEVICE == "cuda"


def wait():
    if cuda():
        torch.cuda.synchronize()


# ---- tensors ----


def tensors(batch=2, rows=384, heads=4, kv_heads=2, dim=64, dtype=torch.bfloat16, columns=None):
    """q, k, v and the gradient of o; the same numbers on every device."""
    drawn = torch.Generator().manual_seed(rows + dim)
    shapes = [
        (rows, heads),
        (columns or rows, kv_heads),
        (columns or rows, kv_heads),
        (rows, heads),
    ]
    made = [torch.randn(batch, *shape, dim, generator=drawn).to(dtype) for shape in shapes]
    *inputs, dout = (x.to(DEVICE) for x in made)
    return [x.requires_grad_() for x in inputs], dout


def both(inputs, dout, **rules):
    """o, lse, dq, dk, dv."""
    o, lse = ordo.torch.attention(*inputs, **rules)
    return [o.detach(), lse.detach(), *torch.autograd.grad(o, inputs, dout)]


def equal(one, other, what):
    for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), one, other):
        expect(same(x.cpu(), y.cpu()), f"{what}: {name} differs")


def against_math(inputs, dout, keywords, **expected_rules):
    """Largest error of each result, as a part of the largest element."""
    o, lse, seen = run_inputs(*inputs, Arguments(**keywords))
    grads = torch.autograd.grad(o, inputs, dout)
    wide = [x.detach().double().cpu().requires_grad_() for x in inputs]
    if keywords.get("dropout_p"):
        expected_rules.update(keep=host_mask(*seen), kept_scale=kept_scale(keywords))
    expected, expected_lse = math64.attention(*wide, **expected_rules)
    wanted = [expected, expected_lse, *torch.autograd.grad(expected, wide, dout.double().cpu())]
    return off(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads), wanted)


def host_mask(q, k, v, lists, rules):
    """The keep mask as the host makes it, whatever the device."""
    lists = type(lists)(*[None if x is None else x.cpu() for x in lists])
    return keep_mask(q.cpu(), k.cpu(), v.cpu(), lists, rules)


def kept_scale(keywords):
    """Of what dropout keeps."""
    made = dropout_of(keywords["dropout_p"], keywords.get("keying", "ordo"))
    return ordo.dropout.query(ordo.Problem(q_len=1, head_dim=1, dropout=made)).scale


def off(names, got, wanted):
    """The largest error, as a part of the largest element; at most 2e-2."""
    worst = 0.0
    for name, x, y in zip(names, got, wanted):
        error = ((x.detach().double().cpu() - y).abs().max() / y.abs().max()).item()
        expect(error < 2e-2, f"{name} is off by {error:.1e}")
        worst = max(worst, error)
    return f"{worst:.1e}"


@functools.lru_cache(maxsize=None)
def there(**rules):
    """Whether the backend has a feature."""
    inputs, _ = tensors(rows=128)
    try:
        o, lse = ordo.torch.attention(*inputs, **rules)
        torch.autograd.grad(o.float().sum() if rules else lse.sum(), inputs[0])
    except ordo.Error as error:
        if error.status != "unsupported":
            raise
        return False
    return True


def dropout_there():
    """0.1, or 0 if the backend has none."""
    return 0.1 if there(dropout_p=0.1, seed=1) else 0.0


def without_waiting(function):
    """The call, with every wait for the device an error."""
    if cuda():
        torch.cuda.set_sync_debug_mode("error")
    try:
        return function()
    finally:
        if cuda():
            torch.cuda.set_sync_debug_mode("default")


def captured(step):
    """(a CUDA graph of `step`, which has run once before it, and what a replay writes)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = step()
    return graph, held


# ---- the run ----


def one(name):
    start = time.perf_counter()
    try:
        word, said = "ok", CHECKS[name]()
    except ordo.Error as error:
        word, said = ("refused" if error.status == "unsupported" else "FAIL"), str(error)
    except Wrong as error:
        word, said = "FAIL", str(error)
    except Exception as error:
        known = isinstance(error.__cause__, ordo.Error) and error.__cause__.status == "unsupported"
        word, said = ("refused" if known else "FAIL"), f"{type(error).__name__}: {error}"
        if not known:
            traceback.print_exc(limit=-3)
    said = " ".join(str(said).split())[: 400 if word != "FAIL" else 600]
    print(f"{word:8}{name:18}{time.perf_counter() - start:6.1f} s  {said}", flush=True)
    return word


def main(doc, at_the_end=lambda: None):
    """Run the checks that the command line names, or all; the exit status."""
    global DEVICE, STEPS
    options = argparse.ArgumentParser(description=doc.splitlines()[0])
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("names", nargs="*", metavar="NAME")
    given = options.parse_args()
    DEVICE, STEPS = given.device, given.steps
    if cuda() and not torch.cuda.is_available():
        print("skip: PyTorch sees no CUDA device")
        return 0
    title = torch.cuda.get_device_name() if cuda() else "CPU"
    print(
        f"torch {torch.__version__}, {title}, libordo {ordo.build().version} {ordo.build().target}"
    )
    if cuda() and not ordo.backend_available("cuda"):
        print(f"FAIL: {ordo.backend_why_not('cuda')}")
        return 1
    start = time.perf_counter()
    words = [one(name) for name in given.names or CHECKS]
    at_the_end()
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("ok", "refused", "FAIL"))
    print(f"torch on {DEVICE}: {counts}; {time.perf_counter() - start:.0f} s")
    return 1 if "FAIL" in words else 0
