"""libordo_torch.so: no tie to one PyTorch, and what is said where it cannot be loaded."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ordo
import ordo.torch
import pytest
import torch
from bits import same
from ordo._library import path
from ordo.torch import _front
from ordo.torch._inputs import plan_of

SOURCES = Path(__file__).resolve().parents[3] / "python" / "front"
LIBRARY = Path(path).with_name("libordo_torch.so")


def test_without_it_the_import_says_what_is_missing(tmp_path):
    shutil.copy(path, tmp_path / "libordo.so")
    program = "import ordo.torch"
    env = {"ORDO_LIBRARY": str(tmp_path / "libordo.so"), "PYTHONPATH": str(SOURCES.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode and f"there is no {tmp_path}/libordo_torch.so" in done.stderr
    assert "`make`" in done.stderr


def test_a_library_of_another_version_is_not_taken():
    why_not = _front._compiled.ordo_torch_start(1, path.encode())
    assert b"another version" in why_not


def test_memory_that_runs_out_is_pytorchs_error(monkeypatch):
    real = RuntimeError("memory: 99999999999999999 bytes on cpu: not enough memory")
    found = _front.error_of(real)
    assert isinstance(found, RuntimeError) and not isinstance(found, ordo.Error)
    found = _front.error_of(RuntimeError("shape: q.shape (1,): expected (2,)"))
    assert isinstance(found, ordo.Error) and found.status == "shape"
    other = RuntimeError("something else: of PyTorch's own")
    assert _front.error_of(other) is other


def test_threads_share_plans_while_these_are_forgotten():
    """A plan that is taken out of the table while a call runs lives until the call ends."""
    q, k, v = (torch.randn(1, 33, 2, 8, requires_grad=True) for _ in range(3))
    o, _ = ordo.torch.attention(q, k, v, causal=True)
    wanted = [o, *torch.autograd.grad(o.sum(), (q, k, v))]

    def work(turn):
        if turn % 3 == 0:
            _front.forget_plans()
        o, _ = ordo.torch.attention(q, k, v, causal=True)
        found = [o, *torch.autograd.grad(o.sum(), (q, k, v))]
        return all(same(x, y) for x, y in zip(wanted, found))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(200)))


def test_plans_are_kept_but_not_for_ever():
    """More plans than there is room for: the first ones are made anew."""
    q = torch.ones(1, 1, 1, 4)
    for number in range(4200):
        ordo.torch.attention(q, q, q, scale=1 + number / 8192)
    assert ordo.torch.attention(q, q, q, scale=1.0)[1].item() == 4.0


def test_threads_that_make_the_first_call_together_keep_one_plan():
    q, k, v = (torch.randn(1, 8, 2, 8, requires_grad=True) for _ in range(3))
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            scale = 0.1 + number / 1e6
            call = lambda: ordo.torch.attention(q, k, v, scale=scale)  # noqa: B023, E731
            results = [x.result() for x in [pool.submit(call) for _ in range(8)]]
            assert all(torch.equal(o, results[0][0]) for o, _ in results)


def test_the_machine_is_read_anew_after_forget(monkeypatch):
    x = torch.zeros(1, 8, 2, 64, dtype=torch.bfloat16)
    assert plan_of(x, x, x, (0, 0.125, [])).info.backend == "cpu"
    monkeypatch.setenv("ORDO_EMULATE", "h200")
    assert plan_of(x, x, x, (0, 0.125, [])).info.backend == "cpu"
    _front.forget_plans()
    assert plan_of(x, x, x, (0, 0.125, [])).info.backend == "emulator"
    monkeypatch.undo()
    _front.forget_plans()


# ---- no tie to one PyTorch ----


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")
def test_it_links_to_no_library_of_pytorch():
    said = subprocess.run(
        ["readelf", "--wide", "--dynamic", "--dyn-syms", LIBRARY], capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    libraries = re.findall(r"NEEDED.*\[(.*)\]", said)
    assert libraries and not [x for x in libraries if re.search("torch|c10|stdc|ordo", x)]
    undefined = re.findall(r" UND (\S+)", said)
    assert undefined and not [x for x in undefined if re.search("torch|_ZN|ordo", x)]


COMPARED = """
#define USE_CUDA
#include <torch/csrc/stable/c/shim.h>
#include <type_traits>
#include "torch_abi.h"
#define SAME(result, name, parameters) \\
    static_assert(std::is_same_v<decltype(&name), result (*) parameters>, #name);
TORCH_FUNCTIONS(SAME)
TORCH_CUDA_FUNCTIONS(SAME)
static_assert(TORCH_2_10 == TORCH_VERSION_2_10_0);
static_assert(TORCH_DONE == AOTI_TORCH_SUCCESS);
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_functions_are_declared_as_in_pytorchs_headers(tmp_path):
    include = Path(torch.__file__).parent / "include"
    if not (include / "torch" / "csrc" / "stable" / "c" / "shim.h").exists():
        pytest.skip("PyTorch without headers")
    source = tmp_path / "compared.cpp"
    source.write_text(COMPARED)
    command = ["c++", "-std=c++17", "-fsyntax-only", "-I", include, "-I", SOURCES, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
