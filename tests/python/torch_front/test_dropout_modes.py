"""Where keep bits are made: the same results in every mode, and limits of their memory."""

from __future__ import annotations

import ctypes
import functools
import math

import numpy as np
import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import _attention, _bits, _call, _compiled, _memory, _plans
from test_attention import gradients, tensors
from torch.utils.checkpoint import checkpoint

SQUARE = (2, 33, 33, 4, 2, 16, 16)
PACKED = dict(cu_q=torch.tensor([0, 20, 33], dtype=torch.int32), max_q=20)


@pytest.fixture
def fills(monkeypatch):
    """The masks that are made before a pass."""
    made, make = [], _bits.make_bits

    def count(*call):
        made.append(call)
        return make(*call)

    for module in ("_call", "_kept"):
        monkeypatch.setattr(f"ordo.torch.{module}.make_bits", count)
    return made


def choose(monkeypatch, mode):
    monkeypatch.setenv("ORDO_DROPOUT_MODE", mode)
    _attention.forget()


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    yield
    monkeypatch.undo()
    _attention.forget()


def results(inputs, dout, attend=ordo.torch.attention, **rules):
    o, lse = attend(*inputs, dropout_p=0.2, seed=(5, 6), causal=True, **rules)
    return [o, lse, *gradients(o, inputs, dout)]


@pytest.mark.parametrize("rules", [{}, PACKED, dict(keying="fa2")], ids=["dense", "packed", "fa2"])
def test_every_mode_gives_the_same_bits(monkeypatch, fills, rules):
    inputs, dout = tensors(SQUARE)
    if "cu_q" in rules:
        inputs, dout = [x.detach()[0].requires_grad_() for x in inputs], dout[0]
    made, times = {}, {}
    for mode in ("auto", "fused", "sequential", "overlapped"):
        choose(monkeypatch, mode)
        fills.clear()
        made[mode] = results(inputs, dout, **rules)
        times[mode] = len(fills)
    for mode in ("auto", "sequential", "overlapped"):
        assert all(same(x, y) for x, y in zip(made[mode], made["fused"])), mode
    assert times == {"auto": 0, "fused": 0, "sequential": 1, "overlapped": 1}


@pytest.mark.parametrize("poison", [0x00, 0xFF])
def test_bits_that_the_mask_hides_are_not_made(monkeypatch, poison):
    """Under a causal mask half of the work; whatever lies there, no pass reads it."""
    inputs, dout = tensors((1, 260, 260, 2, 1, 16, 16))
    choose(monkeypatch, "fused")
    expected = results(inputs, dout)
    make, hidden = _bits.make_bits, []

    def poisoned(cuda, problem, lists, bits, size, *rest):
        ctypes.memset(bits, poison, size)
        status = make(cuda, problem, lists, bits, size, *rest)
        words = (ctypes.c_uint32 * (size // 4)).from_address(bits)
        hidden.append(set(words[64:192]))  # columns 128 to 383 of the first 16 rows
        return status

    for module in ("_call", "_kept"):
        monkeypatch.setattr(f"ordo.torch.{module}.make_bits", poisoned)
    choose(monkeypatch, "sequential")
    made = results(inputs, dout)
    assert all(same(x, y) for x, y in zip(made, expected))
    assert hidden == [{poison * 0x01010101}]


def test_bits_that_are_kept_are_released(monkeypatch, fills):
    choose(monkeypatch, "sequential")
    inputs, dout = tensors(SQUARE)
    o, _ = ordo.torch.attention(*inputs, dropout_p=0.2)
    assert sum(_memory._kept.values()) > 0
    o.backward(dout)
    assert not any(_memory._kept.values())
    with torch.no_grad():  # nothing to keep them for
        ordo.torch.attention(*inputs, dropout_p=0.2)
    assert not any(_memory._kept.values()) and len(fills) == 2


def test_a_recomputation_makes_the_bits_again(monkeypatch, fills):
    """What is saved does not depend on the memory at hand, which checkpointing checks."""
    inputs, dout = tensors(SQUARE)
    wanted = results(inputs, dout)
    choose(monkeypatch, "sequential")

    def attend(*given, **rules):
        step = functools.partial(ordo.torch.attention, **rules)
        return checkpoint(step, *given, use_reentrant=False)

    assert all(same(x, y) for x, y in zip(results(inputs, dout, attend), wanted))
    assert len(fills) == 3  # forward, forward again, backward
    assert not any(_memory._kept.values())


def test_a_compiled_graph_has_the_same_bits(monkeypatch, fills):
    inputs, dout = tensors(SQUARE)
    wanted = results(inputs, dout)
    choose(monkeypatch, "sequential")
    attend = torch.compile(ordo.torch.attention, backend="aot_eager", fullgraph=True)
    rng = torch.tensor([5, 6])

    def compiled(*given, seed, **rules):
        return attend(*given, rng_state=rng, **rules)

    assert all(same(x, y) for x, y in zip(results(inputs, dout, compiled), wanted))
    assert len(fills) == 2  # before each pass


@pytest.mark.parametrize("limit", [0, -1, 0.0, -0.5, 1.5, math.nan, math.inf, True, "1 GB", [1]])
def test_wrong_limits_are_refused(limit):
    with pytest.raises(ordo.Error, match="mask memory .*: expected bytes") as error:
        ordo.torch.set_mask_memory(limit)
    assert error.value.status == "argument" and repr(limit) in str(error.value)
    assert _memory._limit == _memory._SHARE


def test_limits_are_bytes_or_a_share():
    here = torch.device("cpu")
    for limit in (1, 10**9, np.int64(77)):
        ordo.torch.set_mask_memory(limit)
        assert _memory.fits(here, int(limit), 1) and not _memory.fits(here, int(limit) + 1, 1)
    ordo.torch.set_mask_memory(1.0)
    whole = _memory._limit_of(here)
    ordo.torch.set_mask_memory(0.25)
    assert 0.1 < _memory._limit_of(here) / whole < 0.4
    ordo.torch.set_mask_memory(None)
    assert 0.05 < _memory._limit_of(here) / whole < 0.2


def test_a_mask_that_does_not_fit_is_made_inside(monkeypatch, fills):
    inputs, dout = tensors(SQUARE)
    wanted = results(inputs, dout)
    choose(monkeypatch, "sequential")
    ordo.torch.set_mask_memory(1)
    assert all(same(x, y) for x, y in zip(results(inputs, dout), wanted))
    assert not fills


# ---- segments of rows ----

LONG = (1, 700, 700, 4, 2, 16, 16)  # 11 tiles


@pytest.fixture
def handles(monkeypatch):
    """The plans of the passes that run, without and with segments, all by ctypes."""
    ran = []
    monkeypatch.setattr(_compiled.front, "on", False)
    for name in ("_forward", "_backward"):

        def watch(handle, call, real=getattr(_call, name)):
            info = ordo._structs.sized(ordo._structs.ordo_plan_info)
            ordo._library.lib.ordo_plan_query(handle, ctypes.byref(info))
            ran.append((info.segments, info.segment_bytes, info.numeric_key))
            return real(handle, call)

        monkeypatch.setattr(_call, name, watch)
    return ran


@pytest.mark.parametrize("rules", [{}, dict(keying="fa2")], ids=["ordo", "fa2"])
def test_segments_give_the_same_bits(monkeypatch, handles, fills, rules):
    inputs, dout = tensors(LONG)
    choose(monkeypatch, "fused")
    inside = results(inputs, dout, **rules)
    choose(monkeypatch, "pipelined")
    made = results(inputs, dout, **rules)
    assert all(same(x, y) for x, y in zip(made, inside))
    (_, _, key), _, forward, backward = handles
    assert forward == backward and forward[0] == 11 and forward[2] == key
    assert not fills


def test_a_mask_that_does_not_fit_is_made_in_segments(monkeypatch, handles, fills):
    inputs, dout = tensors(LONG)
    choose(monkeypatch, "sequential")
    kept = results(inputs, dout)
    whole = 4 * 44 * 6 * 256
    assert len(fills) == 1 and [x[0] for x in handles] == [0, 0]
    for limit, segments in ((whole - 1, 6), (whole // 2, 11), (whole // 8, 0)):
        handles.clear(), fills.clear()
        monkeypatch.setattr(_memory, "_limit", limit)
        _memory._limits.clear()
        made = results(inputs, dout)
        assert all(same(x, y) for x, y in zip(made, kept))
        assert [x[0] for x in handles] == [segments, segments] and not fills
        assert all(x[1] <= limit for x in handles)
    _memory._limits.clear()


def test_sequences_without_segments_make_their_bits_inside(monkeypatch, handles, fills):
    choose(monkeypatch, "pipelined")
    inputs, dout = tensors(SQUARE)  # one tile
    results(inputs, dout)
    rows = [x.detach()[0].requires_grad_() for x in inputs]
    results(rows, dout[0], **PACKED)
    assert [x[0] for x in handles] == [0] * 4 and not fills


def test_sinks_make_their_bits_inside_instead(monkeypatch, handles, fills):
    """The gradient of a sink is a sum over all rows, which segments do not have."""
    inputs, dout = tensors(LONG)
    sink = torch.randn(LONG[3], requires_grad=True)
    found = []
    for mode in ("fused", "pipelined"):
        choose(monkeypatch, mode)
        o, lse = ordo.torch.attention(*inputs, dropout_p=0.3, seed=(5, 6), sink=sink)
        found.append([o, lse, *torch.autograd.grad(o, [*inputs, sink], dout)])
    assert all(same(x, y) for x, y in zip(*found))
    assert [x[0] for x in handles] == [0] * 4 and not fills


def test_no_memory_for_segments(monkeypatch, handles):
    inputs, dout = tensors(LONG)
    choose(monkeypatch, "fused")
    inside = results(inputs, dout)
    choose(monkeypatch, "pipelined")
    real = torch.UntypedStorage

    def storage(size, *more, **named):
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch, "UntypedStorage", storage)
    monkeypatch.setattr(_call, "_pool", _call._Pool())
    monkeypatch.setattr(_call._pool, "take", lambda size: (0, 0, None) if not size else taken(size))

    def taken(size):
        room = real(size + 256)
        return -(-room.data_ptr() // 256) * 256, size, room

    made = results(inputs, dout)
    assert all(same(x, y) for x, y in zip(made, inside))
    assert [x[0] for x in handles[2:]] == [0, 0]
