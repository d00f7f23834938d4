"""Train a GPT so that every bit repeats: on any number of ranks, through any interruption.

    PYTHONPATH=python build/python-torch/bin/python examples/train/train.py --ranks 2

Trains on a text file (--text; by default this repository's sources), writes checkpoints and a
loss curve to --out, and goes on from the newest checkpoint there. The last line has a digest of all
weights and losses: equal for every number of ranks, DDP or FSDP2, interrupted or not. Also runs
under torchrun. docs/guide/training.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import checkpoint
import data
import ordo.torch
import torch
import torch.distributed as dist
from checkpoint import Refused
from curve import draw
from model import GPT, PRESETS
from ordo.torch import distributed as ordered
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def read_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ranks", type=int, default=1, help="processes to start, unless torchrun did (1)")
    add("--parallel", choices=("ddp", "fsdp"), default="ddp", help="DDP or FSDP2")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--threads", type=int, default=1, help="of the CPU in each process: decides bits (1)")
    add("--preset", choices=PRESETS, default="small", help="the size of the model (small)")
    add("--attention", choices=("ordo", "sdpa", "sdpa-deterministic"), default="ordo")
    add("--dtype", choices=("f32", "bf16"), default="f32", help="of products; weights are f32")
    add("--dropout", type=float, default=0.1)
    add("--text", help="a file to learn (this repository's sources)")
    add("--out", type=Path, default=Path("build/train"), help="checkpoints and loss curve")
    add("--steps", type=int, default=200)
    add("--micro-batches", type=int, default=8, help="of a step, over all ranks (8)")
    add("--rows", type=int, default=4, help="sequences of a micro-batch (4)")
    add("--lr", type=float, default=3e-3, help="the highest learning rate (3e-3)")
    add("--clip", type=float, default=1.0, help="the largest norm of the gradient (1)")
    add("--seed", type=int, default=0)
    add("--save-every", type=int, default=20, help="steps between checkpoints; 0: none (20)")
    add("--keep", type=int, default=2, help="checkpoints to keep (2)")
    add("--json", action="store_true", help="end with one JSON object: times of all steps")
    args = parser.parse_args(argv)
    for name in ("ranks", "threads", "steps", "micro_batches", "rows", "keep", "save_every"):
        if (value := getattr(args, name)) < (least := int(name != "save_every")):
            parser.error(f"--{name.replace('_', '-')} {value}: expected {least} or more")
    if not 0 <= args.dropout < 1:
        parser.error(f"--dropout {args.dropout}: expected 0 or more, below 1")
    if args.out.exists() and not args.out.is_dir():
        parser.error(f"--out {args.out}: expected a folder")
    if args.text and not os.path.isfile(args.text):
        parser.error(f"--text {args.text}: expected a file")
    if args.device == "cuda" and args.ranks > 1:
        parser.error(f"--ranks {args.ranks}: expected 1, or torchrun, for --device cuda")
    if args.ranks > args.micro_batches:
        parser.error(f"--ranks {args.ranks}: expected at most {args.micro_batches} micro-batches")
    return args


# What decides the bits of a run. A checkpoint holds these, and goes on with equal ones only.
DECIDES = ("threads", "attention", "dtype", "dropout", "steps", "micro_batches", "rows", "lr",
           "clip", "seed", "device")  # fmt: skip


class Run:
    """One rank of a training run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rank = args, dist.get_rank()
        self.shape, self.text = PRESETS[args.preset], data.read(args.text)
        self.settings = {name: getattr(args, name) for name in DECIDES} | asdict(self.shape)
        self.settings["text"] = hashlib.sha256(self.text.numpy()).hexdigest()[:16]
        self.settings |= {"torch": torch.__version__, "ordo": ordo.version()}
        self.settings["processor"] = processor(args.device)
        fused = args.device == "cuda"  # on the CPU it rounds an element by its place in a tensor
        self.settings["optimizer"] = "AdamW, fused" if fused else "AdamW"
        checkpoint.together(self.enter)
        newest = checkpoint.newest(args.out)
        name = newest.name if newest else None
        others = {"parallel": args.parallel, "save_every": args.save_every, "keep": args.keep}
        checkpoint.agree({**self.settings, **others, "newest checkpoint": name})
        if len(self.text) <= self.shape.context:
            raise Refused(f"--text of {len(self.text)} bytes: expected over {self.shape.context}")
        torch.manual_seed(data.key(args.seed))
        self.model = GPT(self.shape, args.dropout, args.attention).to(args.device)
        self.runner: Any = self.model  # what computes the loss
        self.sums: Any = None  # takes the gradients of micro-batches and adds them in one order
        if args.parallel == "ddp":
            self.runner = DistributedDataParallel(self.model)
            self.sums = ordered.OrderedDDP(self.runner, args.micro_batches)
        else:
            mesh = init_device_mesh(args.device, (dist.get_world_size(),))
            for block in self.model.blocks:
                fully_shard(block, mesh=mesh)
            self.sums = ordered.OrderedFSDP(fully_shard(self.model, mesh=mesh), args.micro_batches)
        matrices = [x for x in self.model.parameters() if x.dim() == 2]
        others = [x for x in self.model.parameters() if x.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            betas=(0.9, 0.95), foreach=not fused, fused=fused,
        )  # fmt: skip
        self.state = checkpoint.state_of(self.model, self.optimizer)
        self.losses = self.state["losses"] = torch.zeros(args.steps)
        self.step = 0
        if newest:
            self.step, notes = checkpoint.load(newest, self.state, self.settings)
            for note in notes:
                self.say(f"note: {note}: bits may be others from here on")
            self.say(f"resumed {newest} on {dist.get_world_size()} ranks")

    def enter(self) -> None:
        """On rank 0: make the folder, and keep other runs out of it while this one lives."""
        self.args.out.mkdir(parents=True, exist_ok=True)
        self.lock = checkpoint.lock(self.args.out)

    def say(self, line: str) -> None:
        if self.rank == 0:
            print(line, flush=True)

    def rate(self) -> float:
        """Linear warm-up, then half a cosine down to a tenth."""
        warm = max(1, self.args.steps // 20)
        part = (self.step - warm) / max(1, self.args.steps - warm)
        cosine = 0.55 + 0.45 * math.cos(math.pi * max(0.0, part))
        return float(self.args.lr * min(1.0, (self.step + 1) / warm) * cosine)

    def loss(self, number: int) -> torch.Tensor:
        """The loss of one global micro-batch: tokens and dropout depend on (seed, step, number) alone."""
        args, seed = self.args, data.key(self.args.seed, self.step, number)
        tokens, targets = data.batch(
            self.text, args.rows, self.shape.context, args.seed, self.step, number, args.device
        )
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
            return self.runner(tokens, targets, seed)

    def update(self) -> tuple[float, float]:
        """One step: (mean loss, norm of the gradient). All sums over ranks have one order."""
        losses = []
        rounds = self.sums.owned if self.args.parallel == "ddp" else self.sums.rounds
        for number in rounds:
            with self.sums.micro_batch(number):
                loss = self.loss(number or 0)  # None: FSDP2 needs this rank, not its gradient
                loss.backward()
            if number is not None:
                losses.append(loss.detach())
        mean = ordered.ordered_mean(losses, owned=list(self.sums.owned))
        norm = ordered.ordered_clip_grad_norm_(self.model.parameters(), self.args.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return mean.item(), norm.item()

    def train(self) -> list[float]:
        """Run to the last step; the seconds of each."""
        args, times = self.args, []
        tokens = args.micro_batches * args.rows * self.shape.context
        while self.step < args.steps:
            start = time.perf_counter()
            loss, norm = self.update()
            times.append(time.perf_counter() - start)
            if not math.isfinite(loss):
                raise Refused(f"step {self.step}: the loss is {loss}")
            self.losses[self.step - 1] = loss
            self.say(f"step {self.step:4}/{args.steps}  loss {loss:.4f}  norm {norm:.3f}  "
                     f"{tokens / times[-1]:,.0f} tokens/s")  # fmt: skip
            if args.save_every and (self.step % args.save_every == 0 or self.step == args.steps):
                self.save()
        path, picture = args.out / "loss.svg", draw(self.losses.tolist())
        checkpoint.together(lambda: path.write_text(picture))
        return times

    def save(self) -> None:
        args = self.args
        if args.parallel == "ddp":  # every rank has all weights
            checkpoint.agree({f"the digest of the weights of step {self.step}": self.digest()})
        checkpoint.save(args.out, self.state, self.settings, self.step, args.keep)

    def digest(self) -> str:
        """The digest of all weights and losses."""
        made = hashlib.sha256(self.losses.numpy())
        for _, x in sorted(self.model.state_dict().items()):
            whole = x.full_tensor() if hasattr(x, "full_tensor") else x
            made.update(whole.cpu().contiguous().numpy())
        return made.hexdigest()[:16]


def processor(device: str) -> str:
    cuda = device == "cuda"
    return torch.cuda.get_device_name() if cuda else torch.backends.cpu.get_cpu_capability()


def rank_main(args: argparse.Namespace, rank: int, ranks: int, rendezvous: str) -> None:
    if args.attention == "sdpa":  # the fastest way, which need not repeat
        torch.set_num_threads(args.threads)
        problem = ""
    else:
        report = ordo.torch.reproducible(threads=args.threads, fill_memory=False)
        problem = "" if report else f"this run would not repeat:\n{report}"
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if args.device == "cuda" else "gloo", init_method=rendezvous,
        rank=rank, world_size=ranks, timeout=timedelta(minutes=5),
    )  # fmt: skip
    try:
        if problem:
            raise Refused(problem)
        run = Run(args)
        times = run.train()
        loss, digest = run.losses[-1].item(), run.digest()
        run.say(f"weights {digest}  step {run.step}  loss {loss:.4f}  {args.out}/loss.svg")
        if args.json and rank == 0:
            print(json.dumps({**timing(run, times), "weights": digest}))
    except (Refused, ordo.Error) as error:  # which every rank raises
        if rank == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    finally:
        dist.destroy_process_group()


def timing(run: Run, times: list[float]) -> dict[str, Any]:
    """Step times without the first five, which warm up."""
    args, steady = run.args, times[5:] or times
    median = statistics.median(steady or [math.nan])
    return {
        **run.settings, "preset": args.preset, "parallel": args.parallel, "median_ms": median * 1e3,
        "ranks": dist.get_world_size(), "steps_ms": [x * 1e3 for x in times],
        "tokens_per_s": args.micro_batches * args.rows * run.shape.context / median,
    }  # fmt: skip


def main() -> int:
    args = read_arguments()
    if "RANK" in os.environ:  # torchrun
        rank_main(args, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
        return 0
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:  # where the ranks find each other
        store = f"file://{folder}/ranks"
        if args.ranks == 1:
            rank_main(args, 0, 1, store)
            return 0
        context = multiprocessing.get_context("fork")
        ranks = [
            context.Process(target=rank_main, args=(args, rank, args.ranks, store))
            for rank in range(args.ranks)
        ]
        for process in ranks:
            process.start()
        while any([process.join(0.05) or process.is_alive() for process in ranks]):
            if any(process.exitcode for process in ranks):  # one is lost: no step can end
                for process in ranks:
                    process.join(10)  # to say why, if it knows
                    process.kill()
        lost = [(at, process.exitcode) for at, process in enumerate(ranks) if process.exitcode]
    if any(code < 0 for _, code in lost):
        print(f"error: ranks ended by a signal: {lost}; run again to resume", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
