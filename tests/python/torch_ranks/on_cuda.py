"""Virtual ranks in one process: what each rank computes, one after the other, on one device.

PYTHONPATH=python python3 tests/python/torch_ranks/on_cuda.py [--device cuda] [--rows 16384]
    [--ranks 2,4,8] [--dims 64,128,256] [--heads 16] [--kv-heads 4] [--repeats 5]
    [--also 32,8,128]

Methods gather and relay without their messages, against one call on the whole: o, lse, dq, dk and
dv must have its bits. Prints the kernel time of all ranks together, divided by that of one call; a
relay with packets of one key head, as it runs over ranks, and of all key heads. Kernel time is the
time in which the device runs a kernel of ordo: ranks would launch them, and copy, beside each other.
--also HEADS,KV_HEADS,DIM adds a shape, of the most ranks with contiguous shards and no dropout.
Exits with 1 if a bit differs, with 77 if there is no such device.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import ordo.torch
import torch
from kit import differing
from ordo.torch import _front as f
from ordo.torch import _parts
from ordo.torch._inputs import Lists, Rules, call_of, plan_of
from ordo.torch._parts import Saved, Sums
from ordo.torch.distributed import _job, _relay
from ordo.torch.distributed._exchange import Ranks
from ordo.torch.distributed._job import Document, Heads, Job
from ordo.torch.distributed._shards import even, part_of, whole_of
from torch.profiler import ProfilerActivity, profile

Results = list[torch.Tensor]  # o, lse, dq, dk, dv
Form = tuple[int, int, int]  # heads, key heads, head size
NAMES = ("o", "lse", "dq", "dk", "dv")
LAYOUTS = ("contiguous", "zigzag")


class Case:
    """A problem and its tensors, whole."""

    def __init__(self, args: Any, form: Form, causal: bool, p: float) -> None:
        heads, kv_heads, dim = form
        generator = torch.Generator().manual_seed(dim)
        shapes = [heads, kv_heads, kv_heads, heads]
        made = [torch.randn(1, args.rows, h, dim, generator=generator) for h in shapes]
        self.q, self.k, self.v, self.dout = (x.to(args.device, torch.bfloat16) for x in made)
        self.dlse = torch.zeros(1, heads, args.rows, device=args.device)
        self.rng = torch.tensor([5, 7], device=args.device) if p else None
        self.rules = Rules(
            0, 0, dim**-0.5, "causal" if causal else "full", -1, -1, 0.0, p, "ordo", ()
        )

    def job(self, rank: int, ranks: int, layout: str) -> Job:
        n = self.q.shape[1]
        rows = even(n, ranks, layout)
        document = Document(0, 1, 0, (0, n), (0, n))
        return Job(Ranks(None, rank, ranks), rows, rows, (document,), self.rules, self.q.shape[2],
                   self.k.shape[2], Lists(self.rng))  # fmt: skip

    def once(self) -> Results:
        lists = Lists(rng=self.rng)
        o, lse = _parts.forward(self.q, self.k, self.v, lists, self.rules)
        rows = Saved(self.q, o, lse, self.dout, self.dlse)
        grads = _parts.backward(rows, self.k, self.v, lists, self.rules)
        return [o, lse, *grads]


def rows_of(x: torch.Tensor, job: Job, axis: int = 1) -> torch.Tensor:
    return part_of(x, axis, job.rows.of(job.ranks.rank)).contiguous()


def joined(parts: list[Results], job: Job) -> Results:
    return [whole_of([x[i] for x in parts], 2 if i == 1 else 1, job.rows) for i in range(5)]


def gather(case: Case, ranks: int, layout: str) -> Results:
    """Forward passes of all ranks, then their backward passes."""
    jobs = [case.job(r, ranks, layout) for r in range(ranks)]
    heads = Heads(0, jobs[0].kv_heads)
    found = []
    for job in jobs:
        q = rows_of(case.q, job)
        o, lse = _job.new_results(q, case.v)
        _job.forward(job, heads, q, case.k, case.v, o, lse)
        found.append([o, lse])
    o = whole_of([x[0] for x in found], 1, jobs[0].rows)
    lse = whole_of([x[1] for x in found], 2, jobs[0].rows)
    whole = Saved(case.q, o, lse, case.dout, case.dlse)
    for job, results in zip(jobs, found):
        here = Saved(*(rows_of(x, job, axis) for x, axis in zip(whole, (1, 1, 2, 1, 2))))
        dq = torch.zeros_like(here.q)
        dk, dv = (torch.zeros_like(rows_of(x, job)) for x in (case.k, case.v))
        _job.backward_rows(job, heads, here, case.k, case.v, dq)
        _job.backward_columns(job, heads, whole, case.k, case.v, dk, dv)
        results += [dq, dk, dv]
    return joined(found, jobs[0])


def relay(case: Case, ranks: int, layout: str, block: int) -> Results:
    """The forward pass as in gather; packets of `block` key heads pass the stages."""
    job = case.job(0, ranks, layout)
    o, lse = _job.new_results(case.q, case.v)
    n, group = case.q.shape[1], job.heads // job.kv_heads
    dq, dk, dv = (torch.empty_like(x) for x in (case.q, case.k, case.v))
    plan = plan_of(case.q, case.k, case.v, call_of(job.lists, case.rules))
    chain = _relay.chains_of(job, plan)[0]
    last = len(chain.stages) - 1
    for first in range(0, job.kv_heads, block):
        heads, own = Heads(first, block), slice(first * group, (first + block) * group)
        k, v = (x[:, :, first : first + block] for x in (case.k, case.v))
        sums = [torch.empty(x.shape, dtype=torch.float32, device=x.device) for x in (k, v)]
        for s in chain.stages:  # forward
            q = case.q[:, s.first : s.last, own]
            lists, rules = _job.part_call(job, heads, chain.document, (s.first, 0))
            some = _parts.forward(q, k, v, lists, rules)
            o[:, s.first : s.last, own], lse[:, own, s.first : s.last] = some
        for at, s in enumerate(chain.stages):
            here, place = slice(s.first, s.last), (s.first, 0)
            rows = Saved(case.q[:, here, own], o[:, here, own], lse[:, own, here],
                         case.dout[:, here, own], case.dlse[:, own, here])  # fmt: skip
            lists, rules = _job.part_call(job, heads, chain.document, place)
            carry = (1 if at > 0 else 0) | (2 if at < last else 0)
            found = _parts.backward(rows, k, v, lists, rules, 0 if at == last else f.NO_DKV,
                                    Sums(*sums, carry) if carry else None)  # fmt: skip
            dq[:, here, own] = found[0]
        dk[:, :, first : first + block], dv[:, :, first : first + block] = found[1:]
    assert n == chain.stages[0].last or n == chain.stages[last].last
    return [o, lse, dq, dk, dv]


def kernel_ms(run: Callable[[], Results]) -> float:
    """The time in which one of our kernels is on the device; those of PyTorch copy."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    spans = sorted(
        (e.time_range.start, e.time_range.end)
        for e in profiler.events()
        if e.device_type == torch.autograd.DeviceType.CUDA
        and not e.name.startswith(("void at::", "Mem", "void (anonymous"))
    )
    assert spans, "no kernel was seen"
    total, until = 0.0, spans[0][0]
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 1e3


def timed(run: Callable[[], Results], device: str, repeats: int) -> tuple[Results, float]:
    """The results, and the median time in ms."""
    results, times = run(), []
    for _ in range(repeats):
        if device == "cuda":
            times.append(kernel_ms(run))
        else:
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
    return results, statistics.median(times)


def main() -> int:
    def numbers(text: str) -> list[int]:
        return list(map(int, text.split(",")))

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8])
    parser.add_argument("--dims", type=numbers, default=[64, 128, 256])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--also", type=numbers, default=[])
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("skip: no CUDA device")
        return 77
    drawn = list(itertools.product((True, False), (0.0, 0.1)))
    cuts = list(itertools.product(args.ranks, LAYOUTS))
    rows = [((args.heads, args.kv_heads, dim), *x, cuts) for dim in args.dims for x in drawn]
    if args.also:
        rows += [(tuple(args.also), x, 0.0, [(max(args.ranks), LAYOUTS[0])]) for x in (True, False)]
    print("heads     dim mask   p    ranks layout      one ms  gather  relay/1  relay/all  "
          "differing bits")  # fmt: skip
    failed = sum(compare(args, *row) for row in rows)
    print(f"{failed} failed")
    return int(failed > 0)


def compare(args: Any, form: Form, causal: bool, p: float, cuts: list[tuple[int, str]]) -> int:
    """A case in each of the cuts, one line each; how many had other bits."""
    heads, kv_heads, dim = form
    case, failed = Case(args, form, causal, p), 0
    expected, one = timed(case.once, args.device, args.repeats)
    for n, layout in cuts:
        ways: list[Callable[[], Results]] = [
            lambda: gather(case, n, layout),
            lambda: relay(case, n, layout, 1),
            lambda: relay(case, n, layout, kv_heads),
        ]
        found = [timed(way, args.device, args.repeats) for way in ways]
        faults = "; ".join(filter(None, (differing(dict(zip(NAMES, x)), dict(zip(NAMES, expected))) for x, _ in found)))
        failed += bool(faults)
        ratios = " ".join(f"{ms / one:8.3f}" for _, ms in found)
        print(f"{heads:3} {kv_heads:3} {dim:5} {'causal' if causal else 'full':6} {p:3} {n:6} "
              f"{layout:10} {one:8.3f} {ratios}   {faults or 0}", flush=True)  # fmt: skip
    return failed


if __name__ == "__main__":
    sys.exit(main())
