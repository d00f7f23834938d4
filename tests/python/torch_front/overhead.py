"""What a call of the PyTorch front costs on the host, beside PyTorch's own SDPA.

whole      the call: forward as a user makes it, backward as torch.autograd.grad() runs it
SDPA       the same pass of F.scaled_dot_product_attention, on CUDA with dropout where ours has it
ratio      of forward and backward together, whole by SDPA
launches   on CUDA: kernels and copies that the call starts
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ordo.torch
import torch

BARS = {False: 1.15, True: 1.25}  # of forward and backward together by SDPA's; with dropout
BARRED = ("attention", "flash_attn_func")


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


def measure(device="cpu"):
    """({call: {forward, backward, ratio, launches}}, SDPA's the same), times in microseconds."""
    cuda = device == "cuda"
    shape, dtype = ((1, 128, 2, 64), torch.bfloat16) if cuda else ((1, 2, 2, 16), torch.float32)
    q, k, v = (torch.ones(shape, device=device, dtype=dtype).requires_grad_() for _ in range(3))
    heads_first = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
    flat = [x.detach()[0].requires_grad_() for x in (q, k, v)]
    ends = torch.tensor([0, shape[1]], dtype=torch.int32, device=device)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    varlen, longest = ordo.torch.flash_attn_varlen_func, (shape[1], shape[1])
    calls: dict[str, tuple[Callable[[], Any], Any]] = {}
    for p, tail in ((0.0, ""), (0.1, " p")):
        calls["attention" + tail] = (lambda p=p: ordo.torch.attention(q, k, v, dropout_p=p)[0]), (q, k, v)
        calls["flash_attn_func" + tail] = (lambda p=p: ordo.torch.flash_attn_func(q, k, v, p)), (q, k, v)
        calls["flash_attn_varlen_func" + tail] = (
            lambda p=p: varlen(*flat, ends, ends, *longest, p)
        ), flat
        calls["SDPA" + tail] = (lambda p=p: sdpa(*heads_first, dropout_p=p)), heads_first
    if not cuda:  # there SDPA with dropout is another kernel
        del calls["SDPA p"]
    functions: dict[str, Callable[[], Any]] = {}
    for name, (forward, inputs) in calls.items():
        forward()  # the first call makes the plan
        o = forward()
        dout = torch.ones_like(o)
        functions["forward " + name] = forward
        functions["backward " + name] = lambda o=o, inputs=inputs, dout=dout: torch.autograd.grad(
            o, inputs, dout, retain_graph=True
        )
    least = micros(functions, cuda)
    made = {}
    for name in calls:
        theirs = "SDPA p" if name.endswith(" p") and cuda else "SDPA"
        pair = least["forward " + name], least["backward " + name]
        both = least["forward " + theirs] + least["backward " + theirs]
        count = [launches(functions[way + name]) for way in ("forward ", "backward ")] if cuda else None
        made[name] = dict(forward=pair[0], backward=pair[1], ratio=sum(pair) / both, launches=count)
    return made


def over(made):
    """The calls above their bar."""
    return [
        name for name, row in made.items()
        if name.split(" ")[0] in BARRED and row["ratio"] > BARS[name.endswith(" p")]
    ]  # fmt: skip
