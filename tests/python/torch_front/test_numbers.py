"""Numbers that come as tensors, NumPy scalars or lists."""

from __future__ import annotations

import numpy as np
import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.compat import flash_attn, flash_attn_3

INPUTS = [torch.randn(1, 20, 2, 8, generator=torch.Generator().manual_seed(x)) for x in range(3)]
FLAT = [x[0] for x in INPUTS]
ENDS = torch.tensor([0, 13, 20], dtype=torch.int32)

WINDOWS = {
    "tensor": torch.tensor([3, 0]),
    "int32": torch.tensor([3, 0], dtype=torch.int32),
    "list": [3, 0],
    "NumPy": np.array([3, 0]),
    "tensors": (torch.tensor(3), torch.tensor(0)),
    "NumPy integers": (np.int64(3), np.int32(0)),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_of_every_kind(kind):
    expected, _ = ordo.torch.attention(*INPUTS, window=(3, 0))
    for function in (flash_attn.flash_attn_func, flash_attn_3.flash_attn_func):
        assert same(function(*INPUTS, window_size=WINDOWS[kind]), expected)


def test_a_window_may_be_open():
    expected, _ = ordo.torch.attention(*INPUTS)
    for window in (None, (None, None), torch.tensor([-1, -1])):
        assert same(ordo.torch.attention(*INPUTS, window=window)[0], expected)
    half, _ = ordo.torch.attention(*INPUTS, window=(3, -1))
    assert same(ordo.torch.attention(*INPUTS, window=(3, None))[0], half)


def test_words_for_causal():
    q, k, v = INPUTS[0][:, :9], *INPUTS[1:]
    last, first = (ordo.torch.attention(q, k, v, causal=x)[0] for x in (True, "top-left"))
    assert same(ordo.torch.attention(q, k, v, causal="bottom-right")[0], last)
    assert not same(first, last)


def test_compiled():
    whole = torch.compile(flash_attn.flash_attn_func, backend="aot_eager")
    expected, _ = ordo.torch.attention(*INPUTS, window=(3, 0))
    for kind in ("tensor", "list", "NumPy integers"):
        assert same(whole(*INPUTS, window_size=WINDOWS[kind]), expected)


@pytest.mark.parametrize(
    "rules, message",
    [
        (dict(window=5), r"window 5: expected \(left, right\)"),
        (dict(window=(1, 2, 3)), r"window \(1, 2, 3\): expected \(left, right\)"),
        (dict(window=(1.5, 0)), "window 1.5: expected an integer"),
        (dict(window=torch.tensor([1.5, 0.0])), "window 1.5: expected an integer"),
        (dict(causal="top_left"), "causal 'top_left': expected True, False, 'bottom-right'"),
        (dict(scale="x"), "scale 'x': expected a number"),
        (dict(dropout_p=None), "dropout_p None: expected a number"),
        (dict(dropout_p="x"), "dropout_p 'x': expected a number"),
        (dict(scale=torch.ones(2)), "scale .*: expected a number"),
        (dict(cu_q=ENDS, max_q=torch.tensor(12.5)), r"max_q tensor\(12.5.*: expected an integer"),
    ],
)
def test_what_is_no_number(rules, message):
    given = FLAT if "cu_q" in rules else INPUTS
    for _ in range(2):
        with pytest.raises(ordo.Error, match=message):
            ordo.torch.attention(*given, **rules)


def test_a_negative_side_of_a_window_is_open():
    """Of any size, as with FlashAttention."""
    for window, same_as in (((-7, 2), (-1, 2)), ((3, -100), (3, -1)), ([-2, -2], (-1, -1))):
        for given in (window, torch.tensor(window), np.array(window)):
            o = flash_attn.flash_attn_func(*INPUTS, window_size=given)
            assert same(o, flash_attn.flash_attn_func(*INPUTS, window_size=same_as))


SEEDS = {
    "NumPy": (np.int64(5), (5, 0)),
    "tensor": (torch.tensor(5), (5, 0)),
    "pair": ([np.uint64(5), torch.tensor(6)], (5, 6)),
    "NumPy pair": (np.array([5, 6]), (5, 6)),
    "tensor pair": (torch.tensor([5, 6]), (5, 6)),
}


@pytest.mark.parametrize("kind", SEEDS)
def test_seeds_of_every_kind(kind):
    given, pair = SEEDS[kind]
    one, other = (ordo.torch.attention(*INPUTS, dropout_p=0.5, seed=x)[0] for x in (given, pair))
    assert same(one, other)


@pytest.mark.parametrize("seed", ["x", 1.5, (1, 2, 3), torch.tensor([1.0, 2.0]), torch.ones(3), ()])
def test_what_is_no_seed(seed):
    with pytest.raises(ordo.Error, match="seed .*: expected a number or"):
        ordo.torch.attention(*INPUTS, dropout_p=0.5, seed=seed)
