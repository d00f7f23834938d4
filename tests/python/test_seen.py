"""Element masks: arrays of bool, and the ordinary masks that hide the same."""

import numpy as np
import ordo
import pytest
from test_blocks import attend


@pytest.fixture
def arrays():
    generator = np.random.default_rng(5)
    return [generator.standard_normal((2, 150, 4, 16)).astype(np.float32) for _ in "qkvg"]


@pytest.mark.parametrize("shape", [(2, 4), (1, 4), (2, 1), (1, 1), (1,), ()])
def test_against_a_textbook(arrays, shape):
    q, k, v, _ = arrays
    seen = np.random.default_rng(6).random((*shape, 150, 150)) < 0.1
    seen[..., 7, :] = False
    o = ordo.attention(q, k, v, seen=seen)
    assert np.abs(o - attend(seen, q, k, v)).max() < 2e-6
    assert not o[:, 7].any()
    columns_first = np.ascontiguousarray(seen.swapaxes(-1, -2)).swapaxes(-1, -2)
    again = ordo.attention(q, k, v, seen=columns_first)
    assert o.tobytes() == again.tobytes()
    wide = ordo.attention(q, k, v, seen=np.broadcast_to(seen, (2, 4, 150, 150)))
    assert o.tobytes() == wide.tobytes()


def test_bits_of_a_causal_mask(arrays):
    q, k, v, g = arrays
    seen = ordo.Seen(np.tri(150, dtype=bool))
    assert (
        ordo.attention(q, k, v, causal=True).tobytes()
        == ordo.attention(q, k, v, seen=seen).tobytes()
    )
    causal = ordo.Problem(batch=2, heads=4, q_len=150, head_dim=16, mask="causal")
    results = []
    for problem, mask in (causal, None), (causal.replace(mask="full", seen=seen.limits), seen):
        plan = ordo.Plan(problem, order="descending")
        o, lse = ordo.forward(plan, q, k, v, seen=mask)
        results.append((o, lse, *ordo.backward(plan, q, k, v, o, lse, g, seen=mask)))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True))


def test_kinds():
    problem = ordo.Problem(batch=2, heads=4, q_len=150, head_dim=16)
    rows = np.arange(150)
    causal = rows <= rows[:, None]
    found, *lengths = ordo.Seen(causal).kind(problem)
    assert (found.mask, found.seen.on, lengths) == ("causal", False, [None, None])
    valid = rows < np.array([150, 90])[:, None, None, None]
    found, q_lens, kv_lens = ordo.Seen(valid & np.ones((150, 1), bool)).kind(problem)
    assert found.layout == "padded"
    assert list(q_lens) == [150, 150] and list(kv_lens) == [150, 90]


@pytest.mark.parametrize(
    "seen, says",
    [
        (np.ones((150, 150), np.uint8), "seen.dtype uint8: expected bool"),
        (np.ones(150, bool), "seen.shape"),
        (np.ones((3, 1, 150, 150), bool), "seen.sequences 3: expected 2"),
        (np.ones((150, 149), bool), "seen.kv_len 149: expected 150"),
        ([[True]], "expected a numpy array"),
    ],
)
def test_refusals(arrays, seen, says):
    with pytest.raises(ordo.Error, match=says):
        ordo.attention(*arrays[:3], seen=seen)
