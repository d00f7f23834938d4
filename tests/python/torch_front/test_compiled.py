"""The compiled front: the same bits as by ctypes and torch.compile, and no tie to one PyTorch."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import _attention, _compiled, _passes, _plans
from ordo.torch._compiled import Front, front

SOURCES = Path(__file__).resolve().parents[3] / "python" / "front"
LIBRARY = Path(_compiled.path).with_name("libordo_torch.so")

needed = pytest.mark.skipif(
    not front.on and (front.missing.startswith("ORDO") or torch.__version__ < "2.10"),
    reason=front.missing,
)


@pytest.fixture
def counted(monkeypatch):
    """How often the operators ran a pass."""
    ran = {"forward": 0, "backward": 0}

    def spy(name, counts):
        real = getattr(front, name)

        def call(*arguments):
            results = real(*arguments)
            ran[counts] += results[-1] > 0
            return results

        monkeypatch.setattr(front, name, call)

    spy("forward", "forward")
    spy("lengths", "forward")
    spy("plain", "forward")
    spy("backward", "backward")
    spy("lengths_backward", "backward")
    spy("plain_backward", "backward")
    return ran


def tensors(batch=2, rows=37, keys=37, heads=4, kv_heads=2, dim=16, dtype=torch.float32):
    drawn = torch.Generator().manual_seed(7)
    shapes = (batch, rows, heads, dim), (batch, keys, kv_heads, dim), (batch, keys, kv_heads, dim)
    return [torch.randn(x, generator=drawn).to(dtype).requires_grad_() for x in shapes]


def results(function, inputs, **rules):
    """(o, lse, dq, dk, dv) and what the generator draws next; the seed is set before."""
    torch.manual_seed(5)
    o, lse = function(*inputs, **rules)
    grads = torch.autograd.grad((o, lse), inputs, (torch.ones_like(o), torch.ones_like(lse)))
    return [o, lse, *grads, torch.rand(1)]


def heads_first(x):
    return x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()


CASES = {
    "full": dict(),
    "causal": dict(causal=True),
    "window": dict(causal=True, window=(5, 0)),
    "dropout": dict(causal=True, dropout_p=0.1),
    "softcap": dict(softcap=3.0, dropout_p=0.25),
}


@needed
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_by_ctypes_and_in_a_graph(counted, monkeypatch, case, dtype):
    rules, inputs = CASES[case], tensors(dtype=dtype)
    for given in (inputs, [heads_first(x) for x in inputs]):
        first = results(ordo.torch.attention, given, **rules)  # makes the plan
        counted.update(forward=0, backward=0)
        quick = results(ordo.torch.attention, given, **rules)
        assert counted == {"forward": 1, "backward": 1}
        monkeypatch.setattr(front, "on", False)
        plain = results(ordo.torch.attention, given, **rules)
        assert counted == {"forward": 1, "backward": 1}
        monkeypatch.setattr(front, "on", True)
        for other in (first, plain):
            assert all(same(x, y) for x, y in zip(quick, other))
    graph = torch.compile(ordo.torch.attention, backend="aot_eager", fullgraph=True)
    compiled = results(graph, inputs, **rules)
    assert all(same(x, y) for x, y in zip(results(ordo.torch.attention, inputs, **rules), compiled))
    torch._dynamo.reset()


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


LISTS = {
    "packed": dict(cu_q=ints(0, 11, 40), max_q=29, causal=True),
    "packed, keys of their own": dict(
        cu_q=ints(0, 11, 40), cu_kv=ints(0, 20, 37), max_q=29, max_kv=20, dropout_p=0.1
    ),
    "packed, ids": dict(
        cu_q=ints(0, 11, 40), max_q=29, dropout_p=0.1, sequence_ids=ints(7, 3, dtype=torch.int64)
    ),
    "padded": dict(q_lens=ints(40, 13), kv_lens=ints(40, 13), causal=True),
    "padded, dropout": dict(q_lens=ints(40, 13), kv_lens=ints(5, 40), dropout_p=0.1),
    "padded, ids": dict(
        q_lens=ints(40, 13), kv_lens=ints(40, 13), causal=True, dropout_p=0.25,
        sequence_ids=ints(7, 3, dtype=torch.int64),
    ),
}  # fmt: skip


@needed
@pytest.mark.parametrize("case", LISTS)
def test_lengths_take_the_short_way(counted, monkeypatch, case):
    """One operator finds the plan and runs the pass; the bits of ctypes and of torch.compile."""
    rules = LISTS[case]
    inputs = tensors(rows=40, keys=40)
    if "cu_q" in rules:
        inputs = [x.detach()[0].requires_grad_() for x in inputs]
    first = results(ordo.torch.attention, inputs, **rules)
    monkeypatch.setattr(_attention, "_planned", None)  # the way on which Python finds the plan
    counted.update(forward=0, backward=0)
    quick = results(ordo.torch.attention, inputs, **rules)
    ordo.torch.attention(*inputs, **rules)[0].sum().backward()  # without a gradient of lse
    assert counted == {"forward": 2, "backward": 2}
    with torch.no_grad():
        torch.manual_seed(5)
        assert same(ordo.torch.attention(*inputs, **rules)[0], quick[0])
    monkeypatch.undo()
    monkeypatch.setattr(front, "on", False)
    plain = results(ordo.torch.attention, inputs, **rules)
    monkeypatch.setattr(front, "on", True)
    graph = torch.compile(ordo.torch.attention, backend="aot_eager", fullgraph=True)
    compiled = results(graph, inputs, **rules)
    for other in (first, plain, compiled):
        assert all(same(x, y) for x, y in zip(quick, other))
    torch._dynamo.reset()


@needed
def test_lists_of_another_kind_have_plans_of_their_own():
    """What a plan is found by includes the number of sequences and the longest of them."""
    q, k, v = (x.detach()[0].requires_grad_() for x in tensors(rows=40, keys=40))

    def both(**rules):
        for _ in range(2):
            found = results(ordo.torch.attention, (q, k, v), dropout_p=0.1, **rules)
        front.on = False
        plain = results(ordo.torch.attention, (q, k, v), dropout_p=0.1, **rules)
        front.on = True
        assert all(same(x, y) for x, y in zip(found, plain))

    both(cu_q=ints(0, 11, 40), max_q=29)
    both(cu_q=ints(0, 11, 20, 40), max_q=29)
    both(cu_q=ints(0, 11, 20, 40), max_q=20)
    both(cu_q=ints(0, 11, 20, 40, dtype=torch.int64), max_q=20)
    both(cu_q=ints(0, 20, 40), max_q=20, cu_kv=ints(0, 1, 40), max_kv=39)
    both(cu_q=ints(0, 20, 40), max_q=torch.tensor(20))
    with pytest.raises(ordo.Error, match=r"cu_q\[2\] 40: expected 11..31"):
        ordo.torch.attention(q, k, v, dropout_p=0.1, cu_q=ints(0, 11, 40), max_q=20)


@needed
def test_lists_that_do_not_fit_are_refused_on_the_short_way_too():
    q, k, v = (x.detach()[0] for x in tensors(rows=40, keys=30))
    ends, keys = ints(0, 11, 40), ints(0, 11, 30)
    given = dict(cu_q=ends, cu_kv=keys, max_q=29, max_kv=29)
    for _ in range(2):
        ordo.torch.attention(q, k, v, **given)
    for changed, message in (
        (dict(cu_kv=None), "cu_kv None"),
        (dict(cu_kv=ints(0, 30)), "cu_kv.shape"),
        (dict(cu_kv=[0, 11, 30]), "cu_kv .*expected a tensor"),
        (dict(cu_kv=keys.to("meta")), "cu_kv.device"),
        (dict(cu_kv=ints(0, 1, 11, 1, 30)[::2]), "cu_kv.stride"),
        (dict(sequence_ids=ints(1, 2)), "sequence_ids.dtype"),
        (dict(q_lens=ints(1, 2, 3)), "q_lens.shape"),
    ):
        with pytest.raises(ordo.Error, match=message):
            ordo.torch.attention(q, k, v, **{**given, **changed})
    ordo.torch.check_lengths(True)
    try:
        with pytest.raises(ordo.Error, match=r"cu_kv\[1\] 40"):
            ordo.torch.attention(q, k, v, **{**given, "cu_kv": ints(0, 40, 30)})
    finally:
        ordo.torch.check_lengths(False)


@needed
def test_lists_go_the_same_way(counted, monkeypatch):
    q, k, v = (x.detach()[0].requires_grad_() for x in tensors(rows=40, keys=40))
    ends = torch.tensor([0, 11, 40], dtype=torch.int32)
    rules = dict(cu_q=ends, max_q=29, causal=True, dropout_p=0.1, slopes=torch.rand(2, 4))
    results(ordo.torch.attention, (q, k, v), **rules)
    counted.update(forward=0, backward=0)
    quick = results(ordo.torch.attention, (q, k, v), **rules)
    assert counted == {"forward": 1, "backward": 1}
    monkeypatch.setattr(front, "on", False)
    plain = results(ordo.torch.attention, (q, k, v), **rules)
    assert all(same(x, y) for x, y in zip(quick, plain))
    monkeypatch.setattr(front, "on", True)
    ends[1] = 5  # then 35 rows remain, more than max_q: the library refuses, the front says so
    with pytest.raises(ordo.Error, match="cu_q"):
        ordo.torch.attention(q, k, v, **rules)


@needed
def test_autocast_goes_the_same_way(counted):
    inputs = tensors(rows=29)
    halves = [x.detach().bfloat16().requires_grad_() for x in inputs]
    made = []
    for given in (inputs, halves):
        for _ in range(2):
            counted.update(forward=0, backward=0)
            with torch.autocast("cpu", torch.bfloat16):
                found = results(ordo.torch.attention, given, causal=True)
        assert counted == {"forward": 1, "backward": 1}
        made.append(found)
    made.append(results(ordo.torch.attention, halves, causal=True))
    for found in made[:2]:
        assert all(same(x.to(y.dtype), y) for x, y in zip(found, made[2]))


@needed
def test_a_call_that_is_declined_draws_once(counted):
    """A last axis that is strided is copied first, which the compiled front leaves to Python."""
    inputs = tensors()
    strided = [x.detach().transpose(2, 3).contiguous().transpose(2, 3) for x in inputs]
    strided = [x.requires_grad_() for x in strided]
    results(ordo.torch.attention, inputs, dropout_p=0.3)
    wanted = results(ordo.torch.attention, inputs, dropout_p=0.3)
    for _ in range(3):
        counted.update(forward=0)
        seen = results(ordo.torch.attention, strided, dropout_p=0.3)
        assert all(same(x, y) for x, y in zip(wanted, seen))
    drawn, again = (torch.Generator().manual_seed(3) for _ in range(2))
    for given in (inputs, strided):  # of a generator that is given, too
        o, _ = ordo.torch.attention(*given, dropout_p=0.3, generator=drawn)
        rng = torch.randint(2**32, (2,), generator=again)
        assert same(o, ordo.torch.attention(*inputs, dropout_p=0.3, rng_state=rng)[0])


@needed
@pytest.mark.parametrize("p", [0.0, 0.2])
def test_a_call_that_is_declined_leaves_the_short_way_to_others(monkeypatch, p):
    """The same rules: what is declined is declined by its strides."""
    inputs = [x.detach() for x in tensors(rows=29, keys=29)]
    strided = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in inputs]
    long_way, ways = _attention._planned, []

    def spy(*arguments):
        ways.append("long")
        return long_way(*arguments)

    monkeypatch.setattr(_attention, "_planned", spy)
    for given in (inputs, strided, strided, inputs):
        ways.append("call")
        ordo.torch.attention(*given, causal=True, softcap=9.0, dropout_p=p)
    assert ways == ["call", "long"] * 3 + ["call"]


@needed
@pytest.mark.parametrize("case", CASES)
def test_gradients_without_that_of_lse(counted, monkeypatch, case):
    """As training asks for them: by the operator of fewer arguments where there is no dropout."""
    inputs, made = tensors(), []
    for on in (True, True, False):
        monkeypatch.setattr(front, "on", on)
        counted.update(forward=0, backward=0)
        torch.manual_seed(5)
        o, _ = ordo.torch.attention(*inputs, **CASES[case])
        made.append(torch.autograd.grad(o, inputs, torch.ones_like(o)))
        assert counted == {"forward": int(on), "backward": int(on)}
    for found in made[:2]:
        assert all(same(x, y) for x, y in zip(found, made[2]))


@needed
def test_other_shapes_types_and_rules_have_plans_of_their_own(counted):
    for rows, dtype, causal in ((3, torch.float32, True), (4, torch.float32, True),
                                (4, torch.float16, True), (4, torch.float16, False)):  # fmt: skip
        q, k, v = (x.detach() for x in tensors(rows=rows, keys=9, dtype=dtype))
        for _ in range(2):
            o, lse = ordo.torch.attention(q, k, v, causal=causal)
            assert o.shape == q.shape and o.dtype == dtype and lse.shape == (2, 4, rows)
        front.on = False
        plain = ordo.torch.attention(q, k, v, causal=causal)
        front.on = True
        assert same(o, plain[0]) and same(lse, plain[1])
    assert counted["forward"] >= 4


@needed
def test_calls_on_the_other_way_leave_the_short_one_open(monkeypatch):
    """A call by ctypes or with a watcher does not stop the front from finding plans by itself."""
    inputs, seen, real = tensors(rows=31, keys=31), [], front.plain

    def spy(*arguments):
        seen.append(arguments[3])
        return real(*arguments)

    def call():
        results(ordo.torch.attention, inputs, causal=True)

    def by_ctypes():
        front.on = False
        call()
        front.on = True

    def watched():
        _passes.watchers.append(lambda *_: None)
        call()
        _passes.watchers.pop()

    monkeypatch.setattr(front, "plain", spy)
    call()
    for other in (by_ctypes, watched):
        other()
        seen.clear()
        call()
        assert len(seen) == 1 and seen[0] > 0  # by the rules, not by the number of a plan


@needed
def test_threads_share_the_front():
    inputs = tensors(rows=65, keys=65)
    wanted = results(ordo.torch.attention, inputs, causal=True)[:5]

    def work(turn):
        mine = [x.detach().clone().requires_grad_() for x in inputs]
        o, lse = ordo.torch.attention(*mine, causal=True)
        grads = torch.autograd.grad((o, lse), mine, (torch.ones_like(o), torch.ones_like(lse)))
        return all(same(x, y) for x, y in zip(wanted, (o, lse, *grads)))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


@needed
def test_it_refuses_second_derivatives():
    inputs = tensors()
    o, _ = ordo.torch.attention(*inputs)
    grad = torch.autograd.grad(o.sum(), inputs[0], create_graph=True)[0]
    with pytest.raises(ordo.Error, match="second derivatives"):
        torch.autograd.grad(grad.sum(), inputs[0])


def test_the_variable_chooses(monkeypatch):
    monkeypatch.setenv("ORDO_TORCH_FRONT", "ctypes")
    other = Front()
    other.open()
    assert not other.on and "ctypes" in other.missing
    monkeypatch.setenv("ORDO_TORCH_FRONT", "fast")
    with pytest.raises(ordo.Error, match="ORDO_TORCH_FRONT 'fast': expected auto, compiled"):
        Front().open()
    monkeypatch.setattr(_compiled, "path", "/nowhere/libordo.so")
    monkeypatch.setenv("ORDO_TORCH_FRONT", "compiled")
    with pytest.raises(ImportError, match="there is no /nowhere/libordo_torch.so"):
        Front().open()
    monkeypatch.setenv("ORDO_TORCH_FRONT", "auto")
    other = Front()
    other.open()
    assert not other.on and "/nowhere" in other.missing


@needed
def test_a_library_of_another_version_is_not_taken(monkeypatch):
    """Its operators may take other arguments, or read them otherwise."""
    monkeypatch.setattr(_compiled, "_REVISION", 1)
    other = Front()
    other.open()
    assert not other.on and "another version" in other.missing


@needed
def test_tensors_in_the_type_of_autocast_are_taken_as_they_are():
    inputs = tensors(dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        ordo.torch.attention(*inputs)
        with torch.profiler.profile() as seen:
            ordo.torch.attention(*inputs)
    assert "aten::to" not in {x.name for x in seen.events()}


@needed
def test_plans_are_made_anew_after_forget(counted):
    inputs = tensors(rows=21, keys=21)
    for _ in range(2):
        _attention.forget()
        counted.update(forward=0)
        for _ in range(2):
            ordo.torch.attention(*inputs, causal=True)
        assert counted["forward"] >= 1


def test_the_machine_is_read_anew_after_forget(monkeypatch):
    for name in ("h100", "h200"):
        monkeypatch.setenv("ORDO_MACHINE", name)
        _attention.forget()
        assert _plans.machine_of(0).name == name
    monkeypatch.undo()
    _attention.forget()


# ---- no tie to one PyTorch ----


@needed
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
TORCH_NODE_FUNCTIONS(SAME)
TORCH_CUDA_FUNCTIONS(SAME)
static_assert(TORCH_2_10 == TORCH_VERSION_2_10_0);
static_assert(TORCH_DONE == AOTI_TORCH_SUCCESS);
"""


@needed
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


@needed
def test_threads_that_make_the_first_call_together_keep_one_plan():
    """The operators point to the plan that came first: it must be the one that lives."""
    q, k, v = (torch.randn(1, 8, 2, 8, requires_grad=True) for _ in range(3))
    with ThreadPoolExecutor(8) as pool:
        for number in range(150):
            scale = 0.1 + number / 1e6
            call = lambda: ordo.torch.attention(q, k, v, scale=scale)  # noqa: B023, E731
            results = [x.result() for x in [pool.submit(call) for _ in range(8)]]
            assert all(torch.equal(o, results[0][0]) for o, _ in results)


@needed
def test_an_operator_waits_for_the_plan_of_another_thread():
    """A number that an operator returns while its plan is still being kept."""
    fresh = Front()
    fresh._lock.acquire()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(fresh.plan, 3)
        fresh.plans[3] = "the plan"
        fresh._lock.release()
        assert asked.result(timeout=600) == "the plan"


@needed
def test_nested_keys_are_refused_where_a_plan_is_known():
    q, k, v = (torch.randn(2, 8, 2, 8) for _ in range(3))
    ordo.torch.attention(q, k, v)
    nested = torch.nested.nested_tensor([torch.randn(8, 2, 8), torch.randn(5, 2, 8)])
    with pytest.raises(ordo.Error, match="k.is_nested True"):
        ordo.torch.attention(q, nested, v)


def test_a_seed_lies_where_the_queries_are():
    q, k, v = (torch.randn(1, 8, 2, 8) for _ in range(3))
    o, _ = ordo.torch.attention(q, k, v, dropout_p=0.5, seed=77)
    with torch.device("meta"):
        again, _ = ordo.torch.attention(q, k, v, dropout_p=0.5, seed=77)
    assert torch.equal(o, again)
