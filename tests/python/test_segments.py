"""Passes in segments of rows: the bits of passes that make their keep bits inside, and less memory
than the mask."""

from __future__ import annotations

import numpy as np
import ordo
import pytest

ROWS, HEADS, DIM = 300, 4, 16


def problem(mask="causal", **more):
    fields = dict(batch=2, heads=HEADS, kv_heads=2, q_len=ROWS, head_dim=DIM, dtype="f32")
    return ordo.Problem(**fields, mask=mask, dropout=0.2, **more)


def run(plan):
    draw = np.random.default_rng(25).standard_normal
    q, dout = (draw((2, ROWS, HEADS, DIM), np.float32) for _ in range(2))
    k, v = (draw((2, ROWS, 2, DIM), np.float32) for _ in range(2))
    o, lse = ordo.forward(plan, q, k, v, seed=3)
    return o, lse, *ordo.backward(plan, q, k, v, o, lse, dout, seed=3)


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_results_do_not_depend_on_segments(mask):
    p = problem(mask)
    one = run(ordo.Plan(p, backend="cpu"))
    for segments in (1, 2, 3, 5):
        plan = ordo.Plan(p, backend="cpu", segments=segments)
        assert plan.info.segments == segments
        for a, b in zip(run(plan), one):
            assert np.array_equal(a, b)


def test_memory():
    p = ordo.Problem(
        dtype="bf16", batch=1, heads=32, q_len=131072, head_dim=128, mask="causal", dropout=0.1
    )
    for plan, segments, gib in (
        (ordo.Plan(p, "h200", segments=16), 16, 8),
        (ordo.Plan(p, "h200", keep_bits_memory=2**32), 32, 4),
    ):
        info = plan.info
        assert (info.segments, info.segment_bytes) == (segments, gib * 2**30)
        assert info.keep_bits_bytes == 64 * 2**30
        assert info.dropout_mode == "pipelined" and not info.keep_bits_reused
        assert ordo.Plan.parse(plan.line).info.segments == segments


def test_names_of_version_0_1_work_with_a_warning():
    with pytest.warns(FutureWarning, match="mask_memory is keep_bits_memory now"):
        info = ordo.Plan(problem(), backend="cpu", mask_memory=50000).info
    assert info == ordo.Plan(problem(), backend="cpu", keep_bits_memory=50000).info
    with pytest.warns(FutureWarning, match="dropout_mask_bytes is keep_bits_bytes now"):
        assert info.dropout_mask_bytes == info.keep_bits_bytes
    with pytest.warns(FutureWarning, match="dropout_keep_bits is keep_bits_reused now"):
        assert info.dropout_keep_bits == info.keep_bits_reused


def test_refusals():
    with pytest.raises(ordo.Error, match="segments 6: 300 rows in multiples of 64 are 5 segments"):
        ordo.Plan(problem(), backend="cpu", segments=6)
    with pytest.raises(ordo.Error, match="keep_bits_memory 1000: the keep bits of two segments"):
        ordo.Plan(problem(), backend="cpu", keep_bits_memory=1000)
