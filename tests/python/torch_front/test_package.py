"""The package: its files, libordo_torch.so with no tie to one PyTorch, examples and pages."""

from __future__ import annotations

import ast
import os
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
from ordo.torch import _call, _front, _inputs

SOURCES = Path(__file__).resolve().parents[3] / "python" / "front"
LIBRARY = Path(path).with_name("libordo_torch.so")
FOLDER = Path(ordo.__file__).parent

# Lowest first.
ORDER = [
    "_front", "_inputs", "_blocks", "_call", "_dropout", "_node", "_parts", "_kept", "_pages", "_attention", "_flash",
    "_scores", "_sdpa", "_sum", "_linear", "_invariant",
    "__init__",
]  # fmt: skip


def imported(path):
    """Names of the modules beside `path` that it imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module] if node.module else [x.name for x in node.names]


def test_imports_go_one_way_down():
    files = {path.stem: path for path in (FOLDER / "torch").glob("*.py")}
    assert sorted(files) == sorted(ORDER)
    for at, name in enumerate(ORDER):
        for other in imported(files[name]):
            assert other in ORDER[:at], f"{name} imports {other}"


@pytest.mark.parametrize(
    "dim, v_dim, width", [(64, 64, 0), (72, 72, 0), (60, 60, 64), (1, 1, 8), (64, 128, 0),
                          (20, 36, 40), (128, 64, 0), (255, 256, 256)]
)  # fmt: skip
def test_head_sizes_are_filled_up_to_what_cuda_takes(dim, v_dim, width):
    assert _call.fill_width(dim, v_dim) == width


# ---- the library ----


def test_without_it_the_import_says_what_is_missing(tmp_path):
    shutil.copy(path, tmp_path / "libordo.so")
    program = "import ordo.torch"
    env = {"ORDO_LIBRARY": str(tmp_path / "libordo.so"), "PYTHONPATH": str(SOURCES.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode and f"there is no {tmp_path}/libordo_torch.so" in done.stderr
    assert "`make`" in done.stderr


def test_a_library_of_another_version_is_not_taken():
    why_not = _front._compiled.ordo_torch_start(1)
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


def test_the_machine_is_read_anew_after_forget(monkeypatch):
    x = torch.zeros(1, 8, 2, 64, dtype=torch.bfloat16)
    assert _inputs.plan_of(x, x, x, (0, 0.125, [])).info.backend == "cpu"
    monkeypatch.setenv("ORDO_EMULATE", "h200")
    assert _inputs.plan_of(x, x, x, (0, 0.125, [])).info.backend == "cpu"
    _front.forget_plans()
    assert _inputs.plan_of(x, x, x, (0, 0.125, [])).info.backend == "emulator"
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
    assert libraries and not [x for x in libraries if re.search("torch|c10|stdc", x)]
    undefined = re.findall(r" UND (\S+)", said)
    assert undefined and not [x for x in undefined if re.search("torch|_ZN", x)]


COMPARED = """
#define USE_CUDA
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/stable/c/shim.h>
#include <type_traits>
#include "torch_abi.h"
#define SAME(result, name, parameters) \\
    static_assert(std::is_same_v<decltype(&name), result (*) parameters>, #name);
TORCH_FUNCTIONS(SAME)
TORCH_CUDA_FUNCTIONS(SAME)
static_assert(TORCH_2_10 == TORCH_VERSION_2_10_0);
static_assert(TORCH_DONE == AOTI_TORCH_SUCCESS);
#define EQUAL(number, theirs) static_assert(number == (int)c10::theirs);
EQUAL(U8, kByte) EQUAL(I8, kChar) EQUAL(I16, kShort) EQUAL(I32, kInt) EQUAL(I64, kLong)
EQUAL(F16, kHalf) EQUAL(F32, kFloat) EQUAL(F64, kDouble) EQUAL(BF16, kBFloat16)
EQUAL(CPU, kCPU) EQUAL(CUDA, kCUDA) EQUAL(META, kMeta) EQUAL(STRIDED, kStrided)
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_functions_and_numbers_are_those_of_pytorchs_headers(tmp_path):
    include = Path(torch.__file__).parent / "include"
    if not (include / "torch" / "csrc" / "stable" / "c" / "shim.h").exists():
        pytest.skip("PyTorch without headers")
    source = tmp_path / "compared.cpp"
    source.write_text(COMPARED)
    command = ["c++", "-std=c++17", "-fsyntax-only", "-I", include, "-I", SOURCES, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- examples and pages ----


def run(root, *command):
    settings = {**os.environ, "PYTHONPATH": str(root / "python"), "PYTHONWARNINGS": "ignore"}
    rest = dict(cwd=root, env=settings, timeout=600, capture_output=True, text=True)
    done = subprocess.run([sys.executable, *command], **rest)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["torch_flash", "torch_sdpa", "torch_transformers", "decode", "rollout"])
def test_examples_see_equal_bits(root, name):
    if name == "torch_transformers":
        pytest.importorskip("transformers")
    said = run(root, f"examples/{name}.py")
    assert "\nequal\n" in said and "DIFFERENT" not in said


def test_the_recorder_and_the_audit_find_the_flipped_bit(root):
    said = run(root, "examples/torch_recorder.py")
    assert said.startswith("equal: 20 steps") and "\nDIFFERENT at step 17: weight qkv.weight\n" in said
    said = run(root, "examples/audit.py")
    assert "\nequal: every bit of " in said and "\nDIFFERENT: 1 of " in said
    assert f"/{said.splitlines()[2]}, backward unit " in said
    assert "dv, sequence 1, row 196, head 0, column 27: found 0x" in said
    assert "; the file has changed since it was recorded: dv\n" in said


def test_the_generated_page_is_up_to_date(root):
    pytest.importorskip("transformers")
    run(root, "tools/torch-paths", "--check")


def test_numpy_alone_does_not_load_pytorch(root):
    run(root, "-c", "import ordo, sys; sys.exit('torch' in sys.modules)")


def test_the_script_for_cuda_checks_itself_on_the_cpu(root):
    names = ["alone", "flex_masks", "debug_mask", "sdpa_by_ordo", "recorder", "row_beside_others", "hidden_nan"]
    said = run(root, "tests/python/torch_front/on_cuda.py", "--device", "cpu", *names)
    assert f"{len(names)} ok, 0 refused, 0 FAIL" in said
