"""Where keep bits are made: the same results in every mode, ahead of the call, in segments, within limits of memory."""

from __future__ import annotations

import math

import ordo
import ordo.torch
import pytest
import torch
from bits import equal, same
from ordo.torch import _dropout, _front, _node, prepare_dropout
from test_attention import tensors
from torch.utils.checkpoint import checkpoint

SQUARE = tensors(rows=33, kv_heads=2)
LONG = tensors(1, 700, 700, 4, 2)  # 11 tiles
PACKED = dict(cu_q=torch.tensor([0, 20, 33], dtype=torch.int32), max_q=20)
MODES = ("fused", "auto", "sequential", "overlapped")


class Counts:
    """The keep bits that were made before a pass, and the passes in segments."""

    def clear(self):
        self._from = tuple(_front.front.counts)

    def __call__(self):
        return tuple(x - y for x, y in zip(_front.front.counts, self._from))


@pytest.fixture
def counts():
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
    _front.forget_plans()


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    yield
    monkeypatch.undo()
    _front.forget_plans()


def results(given, attend=ordo.torch.attention, **rules):
    inputs, dout = given
    if "cu_q" in rules:
        inputs, dout = [x.detach()[0].requires_grad_() for x in inputs], dout[0]
    source = {} if "prepared" in rules else dict(seed=(5, 6))
    o, lse = attend(*inputs, dropout_p=0.2, causal=True, **source, **rules)
    return [o, lse, *torch.autograd.grad(o, inputs, dout)]


def ahead(given=SQUARE, **rules):
    """Bits of results(), made ahead."""
    q, k, _ = given[0]
    if "cu_q" in rules:
        q, k = q[0], k[0]
    return prepare_dropout(q.shape, k.shape, dropout_p=0.2, device="cpu", causal=True, **{"seed": (5, 6), **rules})


@pytest.mark.parametrize("rules", [{}, PACKED, dict(keying="fa2")], ids=["dense", "packed", "fa2"])
def test_every_mode_gives_the_same_bits(monkeypatch, counts, rules):
    wanted = results(SQUARE, **rules)
    for mode in MODES:
        choose(monkeypatch, mode)
        first = mode in ("sequential", "overlapped")
        counts.clear()
        assert equal(results(SQUARE, **rules), wanted), mode
        assert counts() == (first, 0), mode
        made = ahead(**rules)
        for _ in range(2):  # the second call makes its own
            assert equal(results(SQUARE, prepared=made, **rules), wanted), mode
        assert counts() == (3 * first, 0), mode


def test_bits_that_are_kept_are_released(monkeypatch, counts, kept):
    choose(monkeypatch, "sequential")
    inputs, dout = SQUARE
    o, _ = ordo.torch.attention(*inputs, dropout_p=0.2)
    assert sum(kept) > 0
    o.backward(dout)
    assert sum(kept) == 0
    with torch.no_grad():  # nothing to keep them for
        ordo.torch.attention(*inputs, dropout_p=0.2)
    assert sum(kept) == 0 and counts() == (2, 0)


def recomputed(*given, **rules):
    return checkpoint(lambda *x: ordo.torch.attention(*x, **rules), *given, use_reentrant=False)


def test_a_recomputation_makes_the_bits_again(monkeypatch, counts, kept):
    """What is saved does not depend on the memory at hand, which checkpointing checks."""
    wanted = results(SQUARE)
    choose(monkeypatch, "sequential")
    assert equal(results(SQUARE, recomputed), wanted)
    assert counts() == (3, 0) and sum(kept) == 0  # forward, forward again, backward
    assert equal(results(SQUARE, recomputed, prepared=ahead()), wanted)


def test_bits_ahead_in_a_graph(monkeypatch):
    wanted, rng = results(SQUARE), torch.tensor([5, 6])
    choose(monkeypatch, "overlapped")

    @torch.compile(backend="aot_eager", fullgraph=True)
    def whole(q, k, v, prepared, **rules):
        made = prepare_dropout(q.shape, k.shape, dropout_p=0.2, device="cpu", rng_state=rng)
        return ordo.torch.attention(q, k, v, prepared=made, **rules)

    assert equal(results(SQUARE, whole, prepared=None), wanted)


@pytest.mark.parametrize("limit", [0, -1, 0.0, -0.5, 1.5, math.nan, math.inf, True, "1 GB", [1]])
def test_wrong_limits_are_refused(limit):
    with pytest.raises(ordo.Error, match="memory of keep bits .*: expected bytes") as error:
        ordo.torch.set_keep_bits_memory(limit)
    assert error.value.status == "argument" and repr(limit) in str(error.value)
    assert _dropout._limit == _dropout._SHARE


def test_limits_are_bytes_or_a_share():
    here = torch.device("cpu")
    for limit in (1, 10**9):
        ordo.torch.set_keep_bits_memory(limit)
        assert _dropout._limit_of(here) == limit
    with pytest.warns(FutureWarning, match="set_mask_memory is set_keep_bits_memory now"):
        ordo.torch.set_mask_memory(1.0)
    whole = _dropout._limit_of(here)
    ordo.torch.set_keep_bits_memory(0.25)
    assert 0.1 < _dropout._limit_of(here) / whole < 0.4
    ordo.torch.set_keep_bits_memory(None)
    assert 0.05 < _dropout._limit_of(here) / whole < 0.2


# ---- segments of rows ----


@pytest.mark.parametrize("rules", [{}, dict(keying="fa2")], ids=["ordo", "fa2"])
def test_segments_give_the_same_bits(monkeypatch, counts, rules):
    choose(monkeypatch, "fused")
    inside = results(LONG, **rules)
    assert counts() == (0, 0)
    choose(monkeypatch, "pipelined")
    assert equal(results(LONG, **rules), inside)
    assert counts() == (0, 2)


def test_bits_that_do_not_fit_are_made_in_segments_or_inside(monkeypatch, counts):
    choose(monkeypatch, "sequential")
    wanted, whole = results(LONG), 4 * 44 * 6 * 256
    assert counts() == (1, 0)
    for limit, segmented in ((whole - 1, 2), (whole // 2, 2), (whole // 8, 0), (1, 0)):
        counts.clear()
        ordo.torch.set_keep_bits_memory(limit)
        assert equal(results(LONG), wanted)
        assert counts() == (0, segmented)


def test_sequences_without_segments_make_their_bits_inside(monkeypatch, counts):
    choose(monkeypatch, "pipelined")
    results(SQUARE)  # one tile
    results(SQUARE, **PACKED)
    assert counts() == (0, 0)


def test_sinks_make_their_bits_inside_instead(monkeypatch, counts):
    """The gradient of a sink is a sum over all rows, which segments do not have."""
    sink, found = torch.randn(4, requires_grad=True), []
    for mode in ("fused", "pipelined"):
        choose(monkeypatch, mode)
        inputs, dout = LONG
        o, lse = ordo.torch.attention(*inputs, dropout_p=0.3, seed=(5, 6), sink=sink)
        found.append([o, lse, *torch.autograd.grad(o, [*inputs, sink], dout)])
    assert equal(*found) and counts() == (0, 0)


# ---- ahead of the call ----


@pytest.mark.parametrize(
    "rules",
    [
        dict(causal=True, q_lens=torch.tensor([100, 260]), kv_lens=torch.tensor([200, 300])),
        dict(causal=False),
        dict(causal="top-left"),
    ],
    ids=["lengths", "full", "top-left"],
)
def test_prepared_for_another_mask(monkeypatch, rules):
    """Lengths are no argument of prepare_dropout(), and a call may have another mask: all bits are
    there, not only those that the mask named first shows."""
    given = tensors(2, 260, 300, 2, 1)
    choose(monkeypatch, "sequential")
    wanted = ordo.torch.attention(*given[0], dropout_p=0.2, seed=(5, 6), **rules)[0]
    assert same(ordo.torch.attention(*given[0], dropout_p=0.2, prepared=ahead(given), **rules)[0], wanted)


def test_the_draw_is_that_of_attention(monkeypatch):
    """One draw from the generator, at the time of prepare_dropout()."""
    choose(monkeypatch, "overlapped")
    torch.manual_seed(7)
    wanted = ordo.torch.attention(*SQUARE[0], dropout_p=0.2)[0]
    after = torch.rand(1)
    torch.manual_seed(7)
    made = ahead(seed=None)
    assert same(ordo.torch.attention(*SQUARE[0], dropout_p=0.2, prepared=made)[0], wanted)
    assert same(torch.rand(1), after)
