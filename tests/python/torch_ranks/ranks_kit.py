"""Groups of gloo processes on one machine, and what each of them answers.

run("module", "function", ranks, ...) calls function(...) of a module beside this one on every rank
and returns the answers in order of rank; an answer is a dict, or the Failed that a rank raised.
Processes are forked from a server that has imported torch, with what DDP loads later, and has run
nothing.
"""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import os
import sys
import tempfile
import traceback
from pathlib import Path

SECONDS = 600  # a group that waits longer has hung

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch._dynamo", "torch.distributed.fsdp", "ordo.torch"])


class Failed(Exception):
    """What a rank raised: the name of the type, the message, the traceback."""

    def __init__(self, kind, message, where):
        super().__init__(f"{kind}: {message}\n{where}")
        self.kind, self.message = kind, message


def _rank(pipe, module, function, rank, ranks, store, args):
    import torch
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    try:
        sys.path.insert(0, str(Path(__file__).parent))
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks,
            timeout=datetime.timedelta(seconds=SECONDS),
        )  # fmt: skip
        answer = (getattr(importlib.import_module(module), function)(*args), None)
    except BaseException as error:
        answer = (None, (type(error).__name__, str(error), traceback.format_exc()))
    pipe.send(answer)
    pipe.close()
    os._exit(0)  # at once: an orderly end would wait for ranks that have failed


def run(module, function, ranks, *args):
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(ranks):
            ours, theirs = _context.Pipe(duplex=False)
            process = _context.Process(
                target=_rank, args=(theirs, module, function, rank, ranks, f"{folder}/store", args)
            )
            process.start()
            theirs.close()
            started.append((process, ours))
        answers = []
        for process, pipe in started:
            try:
                value, failed = pipe.recv() if pipe.poll(SECONDS + 30) else (None, ("Hung", "", ""))
            except EOFError:
                value, failed = None, ("Died", f"exit code {process.exitcode}", "")
            answers.append(value if failed is None else Failed(*failed))
        for process, _ in started:
            process.kill()
            process.join()
    return answers


def values(answers):
    """The answers, none of which may be a Failed."""
    for answer in answers:
        if isinstance(answer, Failed):
            raise answer
    return answers
