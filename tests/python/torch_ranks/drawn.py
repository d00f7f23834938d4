"""Drawn calls of context_parallel_attention against one call of ordo.torch.attention.

PYTHONPATH=python python3 tests/python/torch_ranks/drawn.py [--draws N] [--seed N] [--only N]
    [--ranks 1,2,3,4,8] [--seconds S] [--device cuda]

Starts as many processes as the largest number of ranks (gloo on the CPU), and takes a group of the
first n of them for each draw. With --device cuda each process has a GPU of its own, over nccl, and
--ranks is cut to the GPUs that there are; with fewer than two it says so and exits with 77. o, lse, dq, dk and dv must have the bits of the single call. A
failure prints the draw and the command that repeats it; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from typing import Any, NamedTuple

import ordo
import ordo.torch
import torch
import torch.distributed as dist
from kit import Reporter, differing, launch
from ordo.torch.distributed import context_parallel_attention, unshard_sequence

METHODS = ("heads", "gather", "relay", "relay", "auto")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SKIPPED = 77


class Case(NamedTuple):
    ranks: int
    method: str
    layout: str
    kind: str  # dense, padded, packed
    dtype: Any
    heads: tuple[int, int]
    dims: tuple[int, int]
    rows: tuple[int, ...]  # rows on each rank
    columns: tuple[int, ...]
    batch: int
    keywords: dict[str, Any]


# ---- drawing ----


def draw(seed: int, sizes: list[int]) -> Case:
    r = random.Random(seed)
    n = r.choice(sizes)
    method = r.choice(METHODS)
    kv_heads = n * r.choice((1, 1, 2)) if method == "heads" else r.choice((1, 2, 3, 4))
    heads = kv_heads * r.choice((1, 1, 2, 4)) if kv_heads <= 4 else kv_heads
    kind = r.choice(("dense", "dense", "padded", "packed", "packed"))
    rows = counts(r, n)
    same = r.random() < 0.7
    columns = rows if same else counts(r, n)
    batch = r.choice((1, 2)) if kind != "packed" else 1
    dim = r.choice((8, 16, 24, 64))
    v_dim = dim if r.random() < 0.7 else r.choice((8, 40))
    words = rules(r, heads)
    if kind == "packed":
        words.update(ends(r, sum(rows), sum(columns), same))
    elif kind == "padded":
        for name, total in (("q_lens", sum(rows)), ("kv_lens", sum(columns))):
            if r.random() < 0.8:
                lengths = [r.randint(0, total) for _ in range(batch)]
                words[name] = torch.tensor(lengths, dtype=torch.int32)
    for name in ("cu_q", "cu_kv", "q_lens", "kv_lens"):
        if name in words and r.random() < 0.2:  # lengths of the other type
            words[name] = words[name].long()
    sequences = len(words["cu_q"]) - 1 if kind == "packed" else batch
    if words.get("slopes") is not None and r.random() < 0.4:
        words["slopes"] = words["slopes"] * torch.linspace(0.5, 1, sequences)[:, None]
    if words.get("dropout_p") and r.random() < 0.3:
        words["sequence_ids"] = torch.randint(0, 1000, (sequences,), generator=torch.manual_seed(n))
    layout = r.choice(("contiguous", "zigzag"))
    return Case(n, method, layout, kind, r.choice(DTYPES), (heads, kv_heads), (dim, v_dim),
                tuple(rows), tuple(columns), batch, words)  # fmt: skip


def on_device(case: Case, device: str) -> Case:
    """What a CUDA device runs of it: no float32, no keying fa2; lists and slopes lie there."""
    if device == "cpu":
        return case
    words = {k: x.to(device) if torch.is_tensor(x) else x for k, x in case.keywords.items()}
    words.pop("keying", None)
    dtype = torch.bfloat16 if case.dtype == torch.float32 else case.dtype
    return case._replace(dtype=dtype, keywords=words)


def counts(r: random.Random, n: int) -> list[int]:
    """Rows of each rank: equal, or any number, some of them 0."""
    most = r.choice((40, 150, 300)) // (1 + n // 4)
    if r.random() < 0.3:
        return [r.randint(1, most)] * n
    return [r.choice((0, r.randint(1, most), r.randint(1, most))) for _ in range(n)]


def rules(r: random.Random, heads: int) -> dict[str, Any]:
    words: dict[str, Any] = {"causal": r.choice((False, True, "top-left"))}
    if r.random() < 0.3:
        words["window"] = r.choice(((30, -1), (10, 20), (-1, 15), (0, 0), (100, 100)))
    if r.random() < 0.2:
        words["softcap"] = r.choice((0.5, 20.0))
    if r.random() < 0.2:
        words["scale"] = r.choice((0.3, -0.2))
    if r.random() < 0.3:
        words["slopes"] = torch.linspace(0.01, 0.5, heads)
    if r.random() < 0.5:
        words["dropout_p"] = r.choice((0.1, 0.1, 0.5))
        words["seed"] = (r.getrandbits(60), r.getrandbits(30))
        if r.random() < 0.2:
            words["keying"] = "fa2"
    return words


def ends(r: random.Random, rows: int, columns: int, same: bool) -> dict[str, Any]:
    """Documents of any length, some of them empty, and perhaps rows of none."""
    documents = r.randint(1, 6)
    found: dict[str, Any] = {}
    for name, total in (("cu_q", rows), ("cu_kv", columns)):
        last = total if r.random() < 0.7 else r.randint(0, total)
        cuts = sorted(r.randint(0, last) for _ in range(documents - 1))
        found[name] = torch.tensor([0, *cuts, last], dtype=torch.int32)
    if same and r.random() < 0.7:
        del found["cu_kv"]
    else:
        for name, beside in (("q_lens", "cu_q"), ("kv_lens", "cu_kv")):
            if r.random() < 0.3:
                lengths = [r.randint(0, x) for x in found[beside].diff().tolist()]
                found[name] = torch.tensor(lengths, dtype=torch.int32)
    return found


def mine(x: torch.Tensor, axis: int, counts: tuple[int, ...], layout: str, rank: int) -> Any:
    """A rank's rows of the whole: as the documentation says, written again."""
    chunks = [(r, c) for r, c in enumerate(counts)]
    if layout == "zigzag":
        chunks = [(r, c - c // 2) for r, c in enumerate(counts)]
        chunks += [(r, c // 2) for r, c in reversed(list(enumerate(counts)))]
    pieces = x.split([length for _, length in chunks], axis)
    return torch.cat([piece for piece, (r, _) in zip(pieces, chunks) if r == rank], axis)


# ---- one case ----

Results = dict[str, torch.Tensor]


def inputs(case: Case, seed: int, device: str) -> list[torch.Tensor]:
    """q, k, v and the gradients of o and lse, of the whole."""
    generator = torch.Generator().manual_seed(seed)
    front = () if case.kind == "packed" else (case.batch,)
    rows, columns = sum(case.rows), sum(case.columns)
    (h, hk), (d, dv) = case.heads, case.dims
    shapes = [(rows, h, d), (columns, hk, d), (columns, hk, dv), (rows, h, dv)]
    made = [torch.randn(*front, *x, generator=generator).to(case.dtype) for x in shapes]
    made.append(torch.randn(*front, h, rows, generator=generator))
    return [x.to(device) for x in made]


def run(function: Any, tensors: list[torch.Tensor], keywords: dict[str, Any]) -> Results:
    *qkv, dout, dlse = tensors
    qkv = [x.clone().requires_grad_() for x in qkv]
    o, lse = function(*qkv, **keywords)
    grads = torch.autograd.grad((o, lse), qkv, (dout, dlse))
    return {"o": o.detach(), "lse": lse.detach(), **dict(zip(("dq", "dk", "dv"), grads))}


def faults_of(case: Case, seed: int, group: Any, device: str) -> str:
    """Names of the results that differ from those of the single call; on every rank."""
    rank = dist.get_rank(group)
    whole = inputs(case, seed, device)
    places = [(-3, case.rows), (-3, case.columns), (-3, case.columns), (-3, case.rows),
              (-1, case.rows)]  # fmt: skip
    shards = [mine(x, axis, counts, case.layout, rank) for x, (axis, counts) in zip(whole, places)]
    words = {**case.keywords, "group": group, "method": case.method, "layout": case.layout}
    found = run(context_parallel_attention, shards, words)
    axes = {"lse": -1}
    joined = {
        name: unshard_sequence(x, axes.get(name, -3), group=group, layout=case.layout)
        for name, x in found.items()
    }
    if rank != 0:
        return ""
    return differing(joined, run(ordo.torch.attention, whole, case.keywords))


# ---- all of them ----


def work(rank: int, report: Reporter, args: argparse.Namespace) -> None:
    groups = {n: dist.new_group(list(range(n))) for n in args.ranks}
    until = time.monotonic() + args.seconds
    drawn: collections.Counter[str] = collections.Counter()
    seeds = [args.only] if args.only is not None else range(args.seed, args.seed + args.draws)
    for seed in seeds:
        case = on_device(draw(seed, args.ranks), args.device)
        if stop_all(time.monotonic() > until, args.device):
            break
        drawn.update((case.method, f"{case.ranks} ranks", case.kind, case.layout))
        if rank >= case.ranks:
            continue
        try:
            faults = faults_of(case, seed, groups[case.ranks], args.device)
        except ordo.Error as error:
            faults = f"refused on rank {rank}: {error}"
        if faults:
            report(f"FAIL {faults}\n     {case}\n     drawn.py --ranks "
                   f"{','.join(map(str, args.ranks))} --only {seed}")  # fmt: skip
    if rank == 0:
        print(f"{drawn.total() // 4} draws: {dict(sorted(drawn.items()))}", flush=True)


def stop_all(stop: bool, device: str) -> bool:
    """Whether rank 0 says so: its clock decides."""
    said = torch.tensor([int(stop)], device=device)
    dist.broadcast(said, 0)
    return bool(said)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--ranks", type=lambda x: list(map(int, x.split(","))),
                        default=[1, 2, 3, 4, 8])  # fmt: skip
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    if args.device == "cuda":
        devices = torch.cuda.device_count()
        args.ranks = [n for n in args.ranks if n <= devices]
        if devices < 2:
            print(f"skip: {devices} GPU found, ranks over nccl need 2 or more")
            return SKIPPED
    return launch(work, max(args.ranks), args, device=args.device)


if __name__ == "__main__":
    sys.exit(main())
