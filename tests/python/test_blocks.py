"""Block masks: what they see, and attention under them."""

from __future__ import annotations

import numpy as np
import ordo
import pytest
from ordo._blocks import WHOLE
from test_attention import both, inputs, same_bits


def elements(q_len, kv_len, rule):
    rows, columns = np.arange(q_len)[:, None], np.arange(kv_len)[None, :]
    return np.broadcast_to(rule(rows, columns), (q_len, kv_len))


IDS = np.repeat([3, 5, 4, -1], [100, 156, 30, 14])
MASKS = {
    "documents": (
        lambda: ordo.BlockMask.from_documents(IDS),
        lambda i, j: (IDS[i] == IDS[j]) & (IDS[i] >= 0),
    ),
    "chunks": (
        lambda: ordo.BlockMask.from_chunks(300, 300, 70, 20),
        lambda i, j: np.where(i < 20, -1, (i - 20) // 70) == np.where(j < 20, -1, (j - 20) // 70),
    ),
    "band": (
        lambda: ordo.BlockMask.from_band(300, 300, causal=True, window=(40, 0)),
        lambda i, j: (j <= i) & (j >= i - 40),
    ),
    "function": (
        lambda: ordo.BlockMask.from_function(300, 300, lambda i, j: j <= i or j < 10),
        lambda i, j: (j <= i) | (j < 10),
    ),
    "intervals": (
        lambda: ordo.BlockMask.from_intervals(
            np.arange(300) // 2, np.minimum(np.arange(300) + 3, 299), 300
        ),
        lambda i, j: (j >= i // 2) & (j <= i + 3),
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_see_what_they_say(name):
    make, rule = MASKS[name]
    mask = make()
    assert np.array_equal(mask.dense()[0, 0], elements(300, 300, rule))
    # a function that sees the same makes the same lists
    seen = mask.dense()[0, 0]
    again = ordo.BlockMask.from_function(300, 300, lambda i, j: seen[i, j])
    assert np.array_equal(again.start, mask.start) and np.array_equal(again.key, mask.key)


def attend(seen, q, k, v):
    """o in float64 of (batch, row, head, dim) under (batch, head, row, column)."""
    q, k, v = (np.asarray(x, np.float64).swapaxes(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = np.where(seen, q @ k.swapaxes(2, 3) / q.shape[-1] ** 0.5, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    return (weights @ v / np.maximum(weights.sum(-1, keepdims=True), 1e-300)).swapaxes(1, 2)


def test_attention_against_elements():
    sizes = dict(batch=2, q_len=300, kv_len=300, heads=4, kv_heads=2, head_dim=16, v_head_dim=16)
    p = ordo.Problem(**sizes)
    q, k, v, _ = inputs(p)
    shared = MASKS["chunks"][0]()
    masks = [make() for make, _ in MASKS.values()]
    own = ordo.BlockMask.join([masks[:4], masks[1:]])
    for mask in (shared, own):
        seen = np.broadcast_to(mask.dense(), (2, 4, 300, 300))
        o = ordo.attention(q, k, v, block_mask=mask)
        assert np.abs(o - attend(seen, q, k, v)).max() < 2e-6
        below = elements(300, 300, lambda i, j: j <= i)
        o = ordo.attention(q, k, v, block_mask=mask, causal=True)
        assert np.abs(o - attend(seen & below, q, k, v)).max() < 2e-6


def test_documents_of_a_batch():
    ids = np.stack([IDS, IDS[::-1]])
    mask = ordo.BlockMask.from_documents(ids)
    own = ids[1]
    seen = elements(300, 300, lambda i, j: (own[i] == own[j]) & (own[i] >= 0))
    assert np.array_equal(mask.dense()[1, 0], seen)


def test_a_causal_mask_has_the_bits_of_causal():
    sizes = dict(batch=2, q_len=300, kv_len=300, heads=4, kv_heads=2, head_dim=16, v_head_dim=16)
    p = ordo.Problem(**sizes, mask="causal", dropout=0.1)
    q, k, v, dout = inputs(p)
    mask = ordo.BlockMask.from_band(300, 300, causal=True)
    plan = ordo.Plan(p.replace(mask="full", blocks=mask.limits))
    same_bits(
        both(ordo.Plan(p), q, k, v, dout, seed=3),
        both(plan, q, k, v, dout, seed=3, block_mask=mask),
    )
    assert ordo.Plan.parse(plan.line).problem == plan.problem


def test_refusals():
    p = ordo.Problem(q_len=300, kv_heads=1, head_dim=16, kv_len=300, v_head_dim=16)
    q, k, v, _ = inputs(p)
    good = MASKS["chunks"][0]()

    def refused(text, run):
        with pytest.raises(ordo.Error, match=text):
            run()

    wrong, arrays = good.key.copy(), dict(start=good.start, key=good.key, first=good.first, last=good.last)
    wrong[0] = 3
    for name, array, words in (
        ("key", wrong, r"\[0\] 3"), ("start", good.start.astype(np.int64), ": expected an int32"),
        ("last", None, " NULL"), ("start", good.start[:, :, :-1], r".shape .*: expected \("),
        ("start", good.start[0], r".shape .*: expected \("), ("first", good.first[:, :, :9], r".shape .*: expected \("),
        ("last", good.last[0], r".shape .*: expected \("), ("key", good.key.reshape(1, -1), r".shape .*: expected \("),
    ):  # fmt: skip
        given = arrays | {name: array}
        refused(f"block_mask.{name}{words}", lambda: ordo.BlockMask(300, 300, **given))
    for start, key, at in (  # rows of one mask may begin inside rows of another
        ([[0, 3, 4], [1, 4, 4]], [2, 0, 1, 3], 1), ([[0, 0, 4], [0, 2, 4]], [0, 1, 0, 1], 2),
        ([[0, 2, 4], [0, 4, 4]], [0, 1, 1, 2], 2), ([[0, 2, 4], [2, 4, 4]], [0, 1, 0, 9], 3),
    ):  # fmt: skip
        lists = np.array([start], np.int32), np.array(key, np.int32)
        refused(rf"block_mask.key\[{at}\]", lambda: ordo.BlockMask(256, 512, *lists))  # noqa: B023
    for start, key in (([[0, 2, 4], [0, 2, 2]], [0, 1, 0, 1]), ([[1, 3, 4], [1, 2, 3]], [-9, 0, 1, 0])):
        ordo.BlockMask(256, 512, np.array([start], np.int32), np.array(key, np.int32))
    longer = ordo.BlockMask.from_chunks(310, 300, 5)
    refused("block_mask.q_len 310: expected", lambda: ordo.attention(q, k, v, block_mask=longer))
    refused("block_mask.q_len", lambda: ordo.BlockMask(2.5, 300, good.start, good.key))
    refused("block_mask given", lambda: ordo.forward(ordo.Plan(p), q, k, v, block_mask=good))
    refused("block mask", lambda: ordo.Plan(p.replace(blocks=good.limits), order="twin"))
    refused("row 0: sees columns 1 and 3, but not 2",
            lambda: ordo.BlockMask.from_function(5, 5, lambda i, j: j % 2 == 1))  # fmt: skip
    refused("ids", lambda: ordo.BlockMask.from_documents([1, 2, 1]))
    refused("one list per sequence", lambda: ordo.BlockMask.join([[good], []]))
    with pytest.raises(ZeroDivisionError):
        ordo.BlockMask.from_function(5, 5, lambda i, j: 1 // 0)


def test_whole_blocks_are_marked():
    mask = ordo.BlockMask.from_chunks(512, 512, 256)
    assert mask.key.tolist() == [j | WHOLE for j in (0, 1, 0, 1, 2, 3, 2, 3)]
