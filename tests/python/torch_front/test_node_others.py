"""The node of PyTorch's own: calls and kernels of others, and memory that runs out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ordo
import ordo.torch
import pytest
import torch
from node_kit import (
    NODE, arguments_of, backward_operator, flash, hooked, needed, on_node, operator, tensors,
)  # fmt: skip
from ordo.torch import _compiled

pytestmark = needed


def test_calls_of_others_are_refused():
    inputs = tensors()
    q, k, v = inputs
    o = on_node(inputs)
    refused = pytest.raises(RuntimeError, match="serves calls of ordo.torch only")
    mark = -float(_compiled.MARK)
    for dropout_p in (0.0, 0.1, -1.0, mark, mark - 0.5, mark - 2**22, float("nan"), -float("inf")):
        with refused:
            operator(q, k, v, None, dropout_p)
    with refused:
        operator(q, k, v, torch.ones(37, 37), mark - 1)
    with refused:
        operator(q, k, v, None, mark - 1, scale=1.0)
    given = arguments_of(o.grad_fn, torch.ones_like(o))
    dropout_p, max_k = 12, 11
    for at, value in ((dropout_p, 0.0), (dropout_p, given[dropout_p] - 1), (max_k, 37), (max_k, 0),
                      (max_k, -(2**40)), (max_k, given[max_k] + 4000)):  # fmt: skip
        with refused:
            backward_operator(*[value if i == at else x for i, x in enumerate(given)])
    with refused:
        backward_operator(*given, scale=1.0)
    given = [x.to("meta") if isinstance(x, torch.Tensor) else x for x in given]
    given[dropout_p] = 0.1
    with pytest.raises(NotImplementedError, match="serves calls of ordo.torch only"):
        backward_operator(*given)


def test_calls_that_are_refused_hold_nothing():
    inputs = tensors()
    on_node(inputs)
    bias = torch.ones(2, 4, 37, 37)
    storages = [x.untyped_storage() for x in (*inputs, bias)]
    uses = [torch._C._storage_Use_Count(x._cdata) for x in storages]
    for _ in range(3):
        with pytest.raises(RuntimeError):
            operator(*inputs, bias)
        o = flash(*inputs)
        hooked(o, "output", lambda x: x.half())
        with pytest.raises(RuntimeError):
            torch.autograd.grad(o, inputs, torch.ones_like(o))
        o = flash(*inputs)
        torch.autograd.grad(o.sum(), inputs)
        del o
    assert uses == [torch._C._storage_Use_Count(x._cdata) for x in storages]


def test_rules_of_another_schema_are_not_taken(monkeypatch):
    assert "has a kernel for CPU" in _compiled.node_misfit()  # now it has ours
    name = f"{_compiled._NODE}_backward"
    monkeypatch.setitem(_compiled._SCHEMAS, name, "another")
    monkeypatch.setattr(_compiled, "_KEYS", ())
    assert f"{name} has another schema" in _compiled.node_misfit()


def run_python(program):
    paths = [os.path.dirname(os.path.dirname(ordo.__file__)), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


THEIRS = """
import torch
name = "_scaled_dot_product_fused_attention_overrideable"
library = torch.library.Library("aten", "IMPL", "CPU")

def theirs(q, k, v, *rest, **more):
    CHECK
    none = torch.empty(0)
    return torch.full_like(q, 7), none, none, none, q.shape[2], k.shape[2], none, none, none

EARLY
import ordo.torch
from ordo.torch._compiled import front
LATE
print(front.nodeless)
q = torch.randn(1, 8, 2, 8, requires_grad=True)
for _ in range(2):
    o = ordo.torch.flash_attn_func(q, q, q)
print(torch.equal(o, ordo.torch.attention(q, q, q)[0]), type(o.grad_fn).__name__)
"""


@pytest.mark.parametrize("check", ["", "assert rest[1] >= 0, 'no probability'"])
@pytest.mark.parametrize("early", [True, False])
def test_a_kernel_of_others(early, check):
    """One that was there before, and one that comes later."""
    register = "library.impl(name, theirs)"
    late = f"import warnings; warnings.simplefilter('ignore'); {register}"
    program = THEIRS.replace("EARLY", register if early else "").replace("CHECK", check)
    done = run_python(program.replace("LATE", "" if early else late))
    said = done.stdout.split("\n")
    assert ("has a kernel for CPU" in said[0]) == early, done.stderr
    assert said[1] in ("True _PlainBackward", "True _AttentionBackward"), done.stderr


def test_a_meta_kernel_of_others():
    """A package with a device of its own may register one, whatever was imported first."""
    program = """
import torch, ordo.torch
from ordo.torch._compiled import _NODE
library = torch.library.Library("aten", "IMPL")
library.impl(f"{_NODE}_backward", lambda *given, **more: given[1:4] + (None,), "Meta")
q = torch.randn(1, 8, 2, 8, requires_grad=True)
for _ in range(2):
    o = ordo.torch.flash_attn_func(q, q, q)
o.sum().backward()
print(type(o.grad_fn).__name__)
"""
    done = run_python(program)
    assert done.stdout.strip() == NODE, done.stderr


def test_memory_that_runs_out():
    """PyTorch's own error of an allocation, which callers recognise; on_cuda.py has that of CUDA."""
    program = """
import resource, torch, ordo.torch
rows = 1 << 20  # 64 MiB per gradient: malloc() keeps nothing so large
inputs = [torch.ones(1, rows, 1, 16).requires_grad_() for _ in range(3)]
few = [x.detach()[:, :2].clone().requires_grad_() for x in inputs]
ordo.torch.flash_attn_func(*few, window_size=(0, 0))
few_o = ordo.torch.flash_attn_func(*few, window_size=(0, 0))
torch.autograd.grad(few_o, few, torch.ones_like(few_o))  # what is imported late is there then
with torch.no_grad():
    ordo.torch.flash_attn_func(*inputs, window_size=(0, 0))
o = ordo.torch.flash_attn_func(*inputs, window_size=(0, 0))
print(type(o.grad_fn).__name__)
dout = torch.ones_like(o)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 25), resource.RLIM_INFINITY))
try:
    torch.autograd.grad(o, inputs, dout)
except RuntimeError as error:
    print(str(error).replace(chr(10), " "))
"""
    done = run_python(program)
    said = done.stdout.split("\n")
    assert said[0] == NODE, done.stderr
    assert "DefaultCPUAllocator: can't allocate memory" in said[1], done.stderr


BEYOND = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_ops.h>
#include <type_traits>
template <typename T> using maybe = std::optional<T>;
static_assert(std::is_same_v<
    decltype(&at::_ops::empty_memory_format::call),
    at::Tensor (*)(c10::SymIntArrayRef, maybe<at::ScalarType>, maybe<at::Layout>,
                   maybe<at::Device>, maybe<bool>, maybe<at::MemoryFormat>)>);
template <typename T, size_t bytes> constexpr bool by_value =
    std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && sizeof(T) == bytes;
static_assert(by_value<c10::SymIntArrayRef, 16> && by_value<maybe<at::ScalarType>, 2> &&
              by_value<maybe<at::Layout>, 2> && by_value<maybe<at::Device>, 3> &&
              by_value<maybe<bool>, 2> && by_value<maybe<at::MemoryFormat>, 2>);
static_assert(sizeof(c10::SymInt) == 8 && sizeof(at::Tensor) == sizeof(void *));
static_assert(!std::is_trivially_destructible_v<at::Tensor>);  // so it is returned in memory
static_assert(static_cast<int>(at::ScalarType::Byte) == 0);
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_function_beyond_the_abi_has_the_parameters_that_it_is_given(tmp_path):
    include = Path(torch.__file__).parent / "include"
    if not (include / "ATen" / "ops" / "empty_ops.h").exists():
        pytest.skip("PyTorch without headers")
    source = tmp_path / "beyond.cpp"
    source.write_text(BEYOND)
    command = ["c++", "-std=c++17", "-fsyntax-only", "-I", include, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
