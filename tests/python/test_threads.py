"""Threads of the library, threads of Python, and interrupts: none of them changes a bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import ordo
import pytest

PROBLEM = ordo.Problem(
    batch=2, heads=4, kv_heads=2, q_len=129, head_dim=32, mask="causal", dropout=0.1
)


def arrays(p, seed=0):
    rng = np.random.default_rng(seed)
    counts = p.heads, p.kv_heads, p.kv_heads, p.heads
    shapes = [(p.batch, p.q_len, heads, p.head_dim) for heads in counts]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def digests(plan, q, k, v, dout, threads=0):
    o, lse = ordo.forward(plan, q, k, v, seed=1, threads=threads)
    grads = ordo.backward(plan, q, k, v, o, lse, dout, seed=1, threads=threads)
    return [ordo.digest(x) for x in (o, lse, *grads)]


def test_one_plan_from_many_python_threads():
    """Each pass in flight has its own workspace; errors belong to the thread that made them."""
    plan = ordo.Plan(PROBLEM, backend="cpu")
    data = [arrays(PROBLEM, seed) for seed in range(4)]
    expected = [digests(plan, *x) for x in data]
    wrong: list[str] = []

    def work(number):
        for turn in range(5):
            if digests(plan, *data[number], threads=1 + turn % 3) != expected[number]:
                wrong.append(f"thread {number}, turn {turn}: other bits")
            try:
                ordo.forward(plan, *data[number][:3], threads=-1 - number)
            except ordo.Error as error:
                if not str(error).startswith(f"threads {-1 - number}:"):
                    wrong.append(str(error))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []
    assert 1 <= len(plan._idle) <= 4
    assert len({space.address for space in plan._idle}) == len(plan._idle)
    assert all(space.address % 256 == 0 for space in plan._idle)


def test_other_threads_run_during_a_call():
    plan = ordo.Plan(ordo.Problem(heads=2, q_len=700, head_dim=64), backend="ref")
    q, k, v, _ = arrays(plan.problem)
    done, beats = threading.Event(), []

    def beat():
        while not done.is_set():
            beats.append(time.monotonic())
            time.sleep(0.002)

    watcher = threading.Thread(target=beat)
    watcher.start()
    during = 0
    for _ in range(100):  # on a busy machine the watcher may miss a call
        start = time.monotonic()
        ordo.forward(plan, q, k, v)
        end = time.monotonic()
        during = sum(start < t < end for t in list(beats))
        if during >= 2:
            break
    done.set()
    watcher.join()
    assert during >= 2


def test_after_fork():
    if not hasattr(os, "fork"):
        pytest.skip("no fork")
    plan = ordo.Plan(PROBLEM, backend="cpu")
    data = arrays(PROBLEM)
    expected = digests(plan, *data)
    script = """
        import os, sys
        sys.path[:0] = {path!r}
        import test_threads as t, ordo
        plan, data = ordo.Plan.parse({line!r}), t.arrays(t.PROBLEM)
        t.digests(plan, *data)
        child = os.fork()
        if child == 0:
            os._exit(0 if t.digests(plan, *data) == {expected!r} else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    text = textwrap.dedent(script).format(path=sys.path, line=plan.line, expected=expected)
    assert subprocess.run([sys.executable, "-c", text], timeout=600).returncode == 0


def test_interrupt_waits_for_the_call_and_harms_nothing():
    """Ctrl-C during a pass: the pass ends, KeyboardInterrupt follows, the next pass is right."""
    script = """
        import sys
        sys.path[:0] = {path!r}
        import signal, test_threads as t, ordo
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent has
        plan, data = ordo.Plan(t.PROBLEM, backend="cpu"), t.arrays(t.PROBLEM)
        before = t.digests(plan, *data)
        long = ordo.Plan(ordo.Problem(heads=8, q_len=1200, head_dim=64), backend="ref")
        q, k, v, _ = t.arrays(long.problem)
        print("ready", flush=True)
        try:
            while True:
                ordo.forward(long, q, k, v)
        except KeyboardInterrupt:
            assert len(plan._idle) == 1
            assert t.digests(plan, *data) == before
            ordo.forward(long, q, k, v)
            print("interrupted", flush=True)
    """
    text = textwrap.dedent(script).format(path=sys.path)
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=600)
    finally:
        child.kill()
    assert (said, child.returncode) == ("interrupted\n", 0)
