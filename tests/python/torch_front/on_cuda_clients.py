"""The PyTorch front with PyTorch around it, on a CUDA device: streams, graphs, torch.compile,
checkpoints, autocast, F.scaled_dot_product_attention, the recorder. A part of on_cuda.py, which also
runs alone.

PYTHONPATH=python python3 tests/python/torch_front/on_cuda_clients.py [--device cuda] [NAME...]
"""

from __future__ import annotations

import sys
import tempfile

import math64
import on_cuda_kit as kit
import ordo
import ordo.torch
import torch
import torch.nn.functional as F
from math64 import same
from on_cuda_kit import (
    both, captured, check, cuda, dropout_there, equal, expect, off, tensors, there, wait,
)  # fmt: skip
from torch.utils.checkpoint import checkpoint


@check
def streams():
    if not cuda():
        return "no streams here"
    given = tensors(rows=512)
    plain = both(*given, causal=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        other = both(*given, causal=True)
    torch.cuda.current_stream().wait_stream(side)
    equal(plain, other, "on another stream")
    return "same bits on a side stream"


@check
def graphs():
    if not cuda():
        return "no graphs here"
    p = dropout_there()
    inputs, dout = tensors(rows=512)
    rng = torch.tensor([1, 2], device=kit.DEVICE)

    def step():
        rules = dict(dropout_p=p, rng_state=rng) if p else {}
        return both(inputs, dout, causal=True, **rules)

    graph, held = captured(step)
    for seed in (1, 9, 1):
        rng[0] = seed
        graph.replay()
        wait()
        equal([x.clone() for x in held], step(), f"replayed with seed {seed}")
    return f"forward and backward replayed, seed read from the device, p {p}"


@check
def drawn_in_a_graph():
    if not cuda():
        return "no graphs here"
    inputs, _ = tensors(rows=256)
    with torch.no_grad():
        ordo.torch.attention(*inputs, dropout_p=0.5)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o, _ = ordo.torch.attention(*inputs, dropout_p=0.5)
        made = []
        for _ in range(2):
            graph.replay()
            wait()
            made.append(o.clone())
    expect(not same(*made), "two replays drew the same mask")
    return "each replay draws a mask of its own"


@check
def compiled():
    given = tensors(rows=256)
    plain = both(*given, causal=True)
    done = []
    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        whole = torch.compile(
            lambda q, k, v: ordo.torch.attention(q, k, v, causal=True)[0],
            fullgraph=True,
            backend=backend,
        )
        o = whole(*given[0])
        other = [o.detach(), plain[1], *torch.autograd.grad(o, given[0], given[1])]
        equal(plain, other, backend)
        done.append(backend)
    return "one graph: " + ", ".join(done)


@check
def graphs():
    """Forward and backward passes in a CUDA graph: equal bits, with dropout and without."""
    if not cuda():
        return "no graphs here"
    given, rng = tensors(rows=256), torch.tensor([1, 2], device=kit.DEVICE)
    for rules in (dict(causal=True), dict(causal=True, dropout_p=dropout_there(), rng_state=rng)):
        both(*given, **rules)  # makes the plan
        equal(both(*given, **rules), graphed(*given, **rules), "in a graph")
    return "equal bits"


def graphed(inputs, dout, **rules):
    """(o, lse, dq, dk, dv) of a forward and a backward pass that are captured and replayed."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]

    def step():
        o, lse = ordo.torch.attention(*leaves, **rules)
        return [o, lse, *torch.autograd.grad(o, leaves, dout)]

    graph, made = captured(step)
    graph.replay()
    torch.cuda.synchronize()
    return [x.detach().clone() for x in made]


@check
def memory_that_runs_out():
    """PyTorch's own error, and the call works when there is memory again."""
    return _out_of_memory() if cuda() else "no memory to limit here"


def _out_of_memory():
    """A backward pass with no memory left; then with it."""
    inputs, dout = tensors(batch=8, rows=4096, heads=16, kv_heads=16)  # 64 MiB per gradient
    ordo.flash_attn_func(*inputs)
    o = ordo.flash_attn_func(*inputs)
    wait()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        torch.autograd.grad(o, inputs, dout, retain_graph=True)
        raised = None
    except RuntimeError as error:
        raised = error
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    expect(isinstance(raised, torch.OutOfMemoryError), f"out of memory: {raised!r}")
    torch.autograd.grad(o, inputs, dout)
    return "out of memory is torch.OutOfMemoryError"


@check
def checkpointed():
    inputs, dout = tensors(rows=256)
    p = dropout_there()

    def block(q, k, v):
        return ordo.torch.attention(q, k, v, causal=True, dropout_p=p)[0]

    torch.manual_seed(3)
    plain = torch.autograd.grad(block(*inputs), inputs, dout)
    torch.manual_seed(3)
    again = torch.autograd.grad(checkpoint(block, *inputs, use_reentrant=False), inputs, dout)
    for x, y in zip(plain, again):
        expect(same(x, y), "recomputed gradients differ")
    return f"recomputed with the same mask, p {p}"


@check
def opcheck():
    from ordo.torch._inputs import Lists, Rules, call_of

    inputs, _ = tensors(rows=128)
    rules = Rules(0, 0, 0.125, "causal", -1, -1, 0.0, 0.0, "ordo", ())
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if there():  # the last one differentiates lse, too
        tests.append("test_aot_dispatch_dynamic")
    given = (*inputs, *call_of(Lists(), rules))
    said = torch.library.opcheck(torch.ops.ordo.forward.default, given, test_utils=tests)
    expect(set(said.values()) == {"SUCCESS"}, str(said))
    return ", ".join(said)


@check
def autocast():
    inputs, _ = tensors(rows=128, dtype=torch.float32)
    with torch.autocast(kit.DEVICE, torch.bfloat16):
        o, _ = ordo.torch.attention(*inputs)
    expect(o.dtype == torch.bfloat16, f"o is {o.dtype}")
    return "float32 in, bfloat16 out"


@check
def sdpa():
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

    dtype = torch.bfloat16
    inputs, dout = tensors(rows=512, heads=4, kv_heads=4, dtype=dtype)
    given = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs]
    dout = dout.transpose(1, 2)
    p = dropout_there() if cuda() else 0.0
    ordo.torch.register()
    activate_flash_attention_impl("ORDO")
    torch.use_deterministic_algorithms(True)
    try:
        o = F.scaled_dot_product_attention(*given, is_causal=True)
        grads = torch.autograd.grad(o, given, dout)
        ours = both([x.transpose(1, 2) for x in given], dout.transpose(1, 2), causal=True)
        for x, y in zip((o, *grads), (ours[0], *ours[2:])):
            expect(same(x, y.transpose(1, 2)), "F.scaled_dot_product_attention has other bits")
        made = []
        for _ in range(2):
            torch.manual_seed(7)
            o = F.scaled_dot_product_attention(*given, is_causal=True, dropout_p=p)
            made.append([o, *torch.autograd.grad(o, given, dout)])
        expect(all(same(x, y) for x, y in zip(*made)), "with dropout: a repeat differs")
        if p:
            expect(not same(made[0][0], ours[0].transpose(1, 2)), "nothing was dropped")
        whole = torch.compile(F.scaled_dot_product_attention, fullgraph=True)
        o = whole(*given, is_causal=True)
        expect(same(o, ours[0].transpose(1, 2)), "compiled: other bits")
        torch.autograd.grad(o, given, dout)
    finally:
        restore_flash_attention_impl()
        torch.use_deterministic_algorithms(False)
    return f"strict determinism, dropout {p}, compiled"


@check
def sdpa_biases():
    """Causal masks of unequal lengths, by torch.nn.attention.bias."""
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    worst = 0.0
    ordo.torch.register()
    activate_flash_attention_impl("ORDO")
    try:
        for rows, columns in ((200, 456), (384, 384)):
            inputs, _ = tensors(rows=rows, columns=columns, kv_heads=4)
            given = [x.detach().transpose(1, 2).contiguous() for x in inputs]
            for bias, causal in ((causal_lower_right, True), (causal_upper_left, "top-left")):
                expected, _ = math64.attention(*(x.detach().cpu() for x in inputs), causal=causal)
                for sdpa in (F.scaled_dot_product_attention, _compiled_sdpa()):
                    o = sdpa(*given, bias(rows, columns)).transpose(1, 2)
                    worst = max(worst, float(off(("o",), (o,), (expected,))))
    finally:
        restore_flash_attention_impl()
    return f"largest error {worst:.1e}"


def _compiled_sdpa():
    return torch.compile(F.scaled_dot_product_attention, fullgraph=True, backend="aot_eager")


@check
def recorder():
    """Digests that the device computes are those of the CPU."""
    made = [torch.randn(n).to(kind) for n in (1, 77, 40000, 3000000)
            for kind in (torch.float32, torch.bfloat16)]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name, device in (("a", "cpu"), ("b", kit.DEVICE)):
            with ordo.Recorder(f"{folder}/{name}") as recorder:
                there = {str(at): x.to(device) for at, x in enumerate(made)}
                shifted = torch.arange(9.0, device=device)[1:]  # copied: it is not aligned
                recorder.step(
                    0, torch.tensor(1.5, device=device), batch=torch.arange(5, device=device),
                    weights={"shifted": shifted}, gradients=there,
                    seeds=[torch.tensor([3, 4], device=device)],
                )  # fmt: skip
        found = ordo.compare(f"{folder}/a", f"{folder}/b")
        expect(found.equal and found.steps == 1, str(found))
    return str(found)


if __name__ == "__main__":
    sys.exit(kit.main(__doc__))
