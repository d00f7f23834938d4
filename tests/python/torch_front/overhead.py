"""What a call of the PyTorch front costs on the host, by parts: docs/guide/torch.md explains them.

whole      the call: forward as a user makes it, backward as torch.autograd.grad() runs it; by the
           compiled front where there is one
ctypes     the same call without the compiled front, as with ORDO_TORCH_FRONT=ctypes
bare       an operator of the same signature with everything prepared: an autograd.Function that
           allocates, saves and returns the same tensors, with dropout draws seed and offset, and
           hands the C function an ordo_call that was packed before
overhead   whole - bare: what the front adds to PyTorch and to the library
pass       for information: the C function alone, given that ordo_call
launches   on CUDA: kernels and copies that the call starts
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import ordo.torch
import torch
from ordo.torch import _bits, _call
from ordo.torch._compiled import front

BAR_US = 30


class Bare(torch.autograd.Function):
    """An operator of the front's signature with everything prepared; lists are a tuple."""

    @staticmethod
    def forward(ctx, q, k, v, rng, lists, forward, backward):
        o, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
        forward()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, lse, *(() if rng is None else (rng,)), *lists)
        ctx.run = backward
        return o, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        q, k, v, *_ = ctx.saved_tensors
        grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        ctx.run()
        return (*grads, None, None, None, None)


def micros(functions, cuda, calls=100, samples=100):
    """Microseconds a call of each; they take turns. The least time, which a loaded machine only
    adds to: of the thread on the CPU; on CUDA, where backward has a thread of its own, of the
    clock, the queue emptied between samples."""
    clock = time.perf_counter if cuda else time.thread_time
    if cuda:
        calls, samples = 50, 40
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(samples):
        for name, function in functions.items():
            if cuda:
                torch.cuda.synchronize()
            start = clock()
            for _ in range(calls):
                function()
            times[name].append((clock() - start) / calls * 1e6)
    return {name: min(x) for name, x in times.items()}


def recorded(run: Callable[[], Any], cuda: bool) -> Callable[[], Any]:
    """The C calls that run() makes, to be repeated: their bytes, with what they point to kept."""
    seen: list[tuple[Any, ...]] = []
    held: list[Any] = []

    def spy(real):
        def record(*arguments):
            seen.append((real, arguments))
            return real(*arguments)

        return record

    with patches() as patch:
        patch(front, "on", False)  # whose C calls cannot be seen from here
        for at, name in ((_bits, "_fill_device"), (_call, "_forward"), (_call, "_backward")):
            patch(at, name, spy(getattr(at, name)))
        if cuda:
            patch(torch._C, "_cuda_cudaCachingAllocator_raw_delete", held.append)
        held.append(run())

    def again():
        assert held
        for real, arguments in seen:
            real(*arguments)

    return again


def with_front(function: Callable[[], Any], name: str, value: Any) -> Callable[[], Any]:
    """The same with another value of an attribute of the compiled front."""

    def call():
        was = getattr(front, name)
        setattr(front, name, value)
        try:
            return function()
        finally:
            setattr(front, name, was)

    return call


def by_ctypes(function: Callable[[], Any]) -> Callable[[], Any]:
    """The same without the compiled front."""
    return with_front(function, "on", False)


def without_node(function: Callable[[], Any]) -> Callable[[], Any]:
    """The same without PyTorch's node of autograd."""
    return with_front(function, "node", None)


_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaMemset", "cudaMemcpy")


def launches(function: Callable[[], Any]) -> int:
    """How many kernels and copies a call starts, as the profiler counts them."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    function()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=kinds) as seen:
        function()
        torch.cuda.synchronize()
    return sum(event.name.startswith(_LAUNCHES) for event in seen.events())


@contextlib.contextmanager
def patches():
    """A function that sets attributes until the end of the block."""
    undo = []

    def patch(where, name, value):
        undo.append((where, name, getattr(where, name)))
        setattr(where, name, value)

    try:
        yield patch
    finally:
        for where, name, value in undo:
            setattr(where, name, value)


def measure(device="cpu"):
    """Rows of {call, whole, ctypes, bare, overhead, pass, launches}, times in microseconds, then
    whole calls by the autograd.Function where PyTorch's node is the rule, and SDPA's."""
    cuda = device == "cuda"
    shape, dtype = ((1, 128, 2, 64), torch.bfloat16) if cuda else ((1, 2, 2, 16), torch.float32)
    q, k, v = (torch.ones(shape, device=device, dtype=dtype).requires_grad_() for _ in range(3))
    heads_first = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
    views = [x.detach().transpose(1, 2).requires_grad_() for x in heads_first]
    dout = torch.ones(shape, device=device, dtype=dtype)
    attention, flash = ordo.torch.attention, ordo.torch.flash_attn_func
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def backward(o, of, dout):
        return lambda: torch.autograd.grad(o, of, dout, retain_graph=True)

    def draw():
        return torch.randint(2**32, (2,), device=device)

    rows: dict[str, tuple[Callable[[], Any], str]] = {}
    parts: dict[str, Callable[[], Any]] = {}
    slower: dict[str, Callable[[], Any]] = {}  # graphs that were made by ctypes
    for p, tail in ((0.0, ""), (0.1, " p")):

        def forward(p=p):
            return attention(q, k, v, dropout_p=p)

        forward()  # the first call makes the plan, and its backward pass takes the long way
        gradient = backward(forward()[0], (q, k, v), dout)
        slow = slower["backward" + tail] = backward(by_ctypes(forward)()[0], (q, k, v), dout)
        passes = recorded(forward, cuda), recorded(slow, cuda)

        def bare(p=p, passes=passes):
            return Bare.apply(q, k, v, draw() if p else None, (), *passes)

        parts["pass forward" + tail], parts["pass backward" + tail] = passes
        parts["bare forward" + tail] = bare
        parts["bare backward" + tail] = backward(bare()[0], (q, k, v), dout)
        rows["forward" + tail] = forward, "forward" + tail
        rows["backward" + tail] = gradient, "backward" + tail
    beside: dict[str, Callable[[], Any]] = {}  # the autograd.Function in place of PyTorch's node
    for p, tail in ((0.0, ""), (0.1, " p")):

        def forward(p=p):
            return flash(q, k, v, p)

        forward()
        name = f"{tail}, flash_attn_func"
        rows["forward" + name] = forward, "forward" + tail
        rows["backward" + name] = backward(forward(), (q, k, v), dout), "backward" + tail
        slower["backward" + name] = backward(by_ctypes(forward)(), (q, k, v), dout)
        beside["Function forward" + name] = without_node(forward)
        beside["Function backward" + name] = backward(without_node(forward)(), (q, k, v), dout)
    rows["forward, (batch, head, row, dim)"] = (lambda: attention(*views)), "forward"
    flat = [x.detach()[0].requires_grad_() for x in (q, k, v)]
    ends = torch.tensor([0, shape[1]], dtype=torch.int32, device=device)

    def packed():
        longest = shape[1], shape[1]
        return ordo.torch.flash_attn_varlen_func(*flat, ends, ends, *longest, 0.1)

    packed()
    gradient, slow = (backward(f(), flat, dout[0]) for f in (packed, by_ctypes(packed)))
    packed_passes = recorded(packed, cuda), recorded(slow, cuda)

    def bare_packed():
        return Bare.apply(*flat, draw(), (ends, ends), *packed_passes)

    tail = " p, flash_attn_varlen_func"
    parts["pass forward" + tail], parts["pass backward" + tail] = packed_passes
    parts["bare forward" + tail] = bare_packed
    parts["bare backward" + tail] = backward(bare_packed()[0], flat, dout[0])
    rows["forward" + tail] = packed, "forward" + tail
    rows["backward" + tail], slower["backward" + tail] = (gradient, "backward" + tail), slow
    theirs = sdpa(*heads_first)
    rest = {
        **beside,
        "SDPA forward": lambda: sdpa(*heads_first),
        "SDPA backward": backward(theirs, heads_first, dout.transpose(1, 2).contiguous()),
    }
    if cuda:
        dropped = sdpa(*heads_first, dropout_p=0.1)
        rest["SDPA forward p"] = lambda: sdpa(*heads_first, dropout_p=0.1)
        rest["SDPA backward p"] = backward(
            dropped, heads_first, dout.transpose(1, 2).contiguous()
        )
    wholes = {name: row[0] for name, row in rows.items()}
    others = {"ctypes " + x: by_ctypes(slower.get(x, function)) for x, function in wholes.items()}
    least = micros({**wholes, **others, **parts, **rest}, cuda)
    made = []
    for name, (function, which) in rows.items():
        whole, bare_us = least[name], least["bare " + which]
        made.append({"call": name, "whole": whole, "ctypes": least["ctypes " + name],
                     "bare": bare_us, "overhead": whole - bare_us, "pass": least["pass " + which],
                     "launches": launches(function) if cuda else None})  # fmt: skip
    return made, {name: least[name] for name in rest}
