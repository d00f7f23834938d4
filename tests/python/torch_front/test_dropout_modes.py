"""Where keep bits are made: the same results in every mode, and limits of their memory."""

from __future__ import annotations

import functools
import math

import numpy as np
import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import _attention, _dropout, _front, _node
from test_attention import gradients, tensors
from torch.utils.checkpoint import checkpoint

SQUARE = (2, 33, 33, 4, 2, 16, 16)
PACKED = dict(cu_q=torch.tensor([0, 20, 33], dtype=torch.int32), max_q=20)


class Counts:
    """The keep bits that were made before a pass, and the passes in segments."""

    def clear(self):
        self._from = _front.counts()

    def __len__(self):
        return _front.counts()[0] - self._from[0]

    @property
    def segmented(self):
        return _front.counts()[1] - self._from[1]


@pytest.fixture
def fills():
    made = Counts()
    made.clear()
    return made


@pytest.fixture
def kept(monkeypatch):
    """Bytes of bits that wait for a backward pass."""
    held, real = [], _front.hold

    def hold(device, size):
        held.append(size)
        real(device, size)

    monkeypatch.setattr(_node.f, "hold", hold)
    return held


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


def test_bits_that_are_kept_are_released(monkeypatch, fills, kept):
    choose(monkeypatch, "sequential")
    inputs, dout = tensors(SQUARE)
    o, _ = ordo.torch.attention(*inputs, dropout_p=0.2)
    assert sum(kept) > 0
    o.backward(dout)
    assert sum(kept) == 0
    with torch.no_grad():  # nothing to keep them for
        ordo.torch.attention(*inputs, dropout_p=0.2)
    assert sum(kept) == 0 and len(fills) == 2


def test_a_recomputation_makes_the_bits_again(monkeypatch, fills, kept):
    """What is saved does not depend on the memory at hand, which checkpointing checks."""
    inputs, dout = tensors(SQUARE)
    wanted = results(inputs, dout)
    choose(monkeypatch, "sequential")

    def attend(*given, **rules):
        step = functools.partial(ordo.torch.attention, **rules)
        return checkpoint(step, *given, use_reentrant=False)

    assert all(same(x, y) for x, y in zip(results(inputs, dout, attend), wanted))
    assert len(fills) == 3  # forward, forward again, backward
    assert sum(kept) == 0


@pytest.mark.parametrize("limit", [0, -1, 0.0, -0.5, 1.5, math.nan, math.inf, True, "1 GB", [1]])
def test_wrong_limits_are_refused(limit):
    with pytest.raises(ordo.Error, match="memory of keep bits .*: expected bytes") as error:
        ordo.torch.set_keep_bits_memory(limit)
    assert error.value.status == "argument" and repr(limit) in str(error.value)
    assert _dropout._limit == _dropout._SHARE


def test_limits_are_bytes_or_a_share():
    here = torch.device("cpu")
    for limit in (1, 10**9, np.int64(77)):
        ordo.torch.set_keep_bits_memory(limit)
        assert _dropout._limit_of(here) == limit
    ordo.torch.set_keep_bits_memory(1.0)
    whole = _dropout._limit_of(here)
    ordo.torch.set_keep_bits_memory(0.25)
    assert 0.1 < _dropout._limit_of(here) / whole < 0.4
    ordo.torch.set_keep_bits_memory(None)
    assert 0.05 < _dropout._limit_of(here) / whole < 0.2


def test_bits_that_do_not_fit_are_made_inside(monkeypatch, fills):
    inputs, dout = tensors(SQUARE)
    wanted = results(inputs, dout)
    choose(monkeypatch, "sequential")
    ordo.torch.set_keep_bits_memory(1)
    assert all(same(x, y) for x, y in zip(results(inputs, dout), wanted))
    assert len(fills) == 0


# ---- segments of rows ----

LONG = (1, 700, 700, 4, 2, 16, 16)  # 11 tiles


@pytest.mark.parametrize("rules", [{}, dict(keying="fa2")], ids=["ordo", "fa2"])
def test_segments_give_the_same_bits(monkeypatch, fills, rules):
    inputs, dout = tensors(LONG)
    choose(monkeypatch, "fused")
    inside = results(inputs, dout, **rules)
    assert fills.segmented == 0
    choose(monkeypatch, "pipelined")
    made = results(inputs, dout, **rules)
    assert all(same(x, y) for x, y in zip(made, inside))
    assert fills.segmented == 2 and len(fills) == 0


def test_bits_that_do_not_fit_are_made_in_segments(monkeypatch, fills):
    inputs, dout = tensors(LONG)
    choose(monkeypatch, "sequential")
    kept = results(inputs, dout)
    whole = 4 * 44 * 6 * 256
    assert len(fills) == 1 and fills.segmented == 0
    for limit, segmented in ((whole - 1, 2), (whole // 2, 2), (whole // 8, 0)):
        fills.clear()
        ordo.torch.set_keep_bits_memory(limit)
        made = results(inputs, dout)
        assert all(same(x, y) for x, y in zip(made, kept))
        assert fills.segmented == segmented and len(fills) == 0


def test_sequences_without_segments_make_their_bits_inside(monkeypatch, fills):
    choose(monkeypatch, "pipelined")
    inputs, dout = tensors(SQUARE)  # one tile
    results(inputs, dout)
    rows = [x.detach()[0].requires_grad_() for x in inputs]
    results(rows, dout[0], **PACKED)
    assert fills.segmented == 0 and len(fills) == 0


def test_sinks_make_their_bits_inside_instead(monkeypatch, fills):
    """The gradient of a sink is a sum over all rows, which segments do not have."""
    inputs, dout = tensors(LONG)
    sink = torch.randn(LONG[3], requires_grad=True)
    found = []
    for mode in ("fused", "pipelined"):
        choose(monkeypatch, mode)
        o, lse = ordo.torch.attention(*inputs, dropout_p=0.3, seed=(5, 6), sink=sink)
        found.append([o, lse, *torch.autograd.grad(o, [*inputs, sink], dout)])
    assert all(same(x, y) for x, y in zip(*found))
    assert fills.segmented == 0 and len(fills) == 0
