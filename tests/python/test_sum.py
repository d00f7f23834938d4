"""ordo.tree_sum against the tree as its documentation says it."""

from __future__ import annotations

import numpy as np
import ordo
import pytest
from reference import tree


def draw(count, shape=(7, 31), kind=np.float32):
    rng = np.random.default_rng(count)
    scales = 2.0 ** rng.integers(-9, 9, count)
    return [(rng.standard_normal(shape) * scale).astype(kind) for scale in scales]


@pytest.mark.parametrize("count", [1, 2, 3, 6, 8, 29, 256, 257, 700])
def test_sum_is_the_tree(count):
    inputs = draw(count)
    assert ordo.tree_sum(inputs).tobytes() == tree(inputs).tobytes()


@pytest.mark.parametrize("count", [2, 300])
def test_halves_are_widened_first(count):
    inputs = draw(count, kind=np.float16)
    assert ordo.tree_sum(inputs).tobytes() == tree([x.astype(np.float32) for x in inputs]).tobytes()
    bits = [np.full(5, 0x3F80 + x, np.uint16) for x in range(count % 100 + 1)]
    exact = [(x.astype(np.uint32) << 16).view(np.float32) for x in bits]
    assert ordo.tree_sum(bits, dtype="bf16").tobytes() == tree(exact).tobytes()
    brains = [x.view(pytest.importorskip("ml_dtypes").bfloat16) for x in bits]
    assert ordo.tree_sum(brains, dtype="bf16").tobytes() == tree(exact).tobytes()


def test_out_may_be_an_input_and_inputs_may_be_views():
    inputs = [x[::2, ::-1] for x in draw(5)]
    expected = tree(inputs)
    out = np.ascontiguousarray(inputs[0])
    made = ordo.tree_sum([out, *inputs[1:]], out=out)
    assert made is out and out.tobytes() == expected.tobytes()


def test_bad_inputs_are_refused():
    a, b = draw(2)
    for inputs, options, message in (
        ([], {}, "inputs []"),
        ([a, b[:3]], {}, "inputs[1].shape (3, 31): expected (7, 31)"),
        ([a, b.astype(np.float16)], {}, "inputs[1].dtype float16"),
        ([a.astype(np.float64)], {}, "float64"),
        ([a], {"dtype": "bf16"}, "inputs[0].dtype float32: expected bf16"),
        ([a], {"out": np.empty((3, 31), np.float32)}, "out.shape (3, 31)"),
        ([a], {"threads": -1}, "threads -1"),
        ([a, [1.0]], {}, "inputs[1] list"),
        ([a, None], {}, "inputs[1] NoneType"),
        (None, {}, "inputs NoneType: expected a sequence of arrays"),
        ([np.array([None])], {}, "dtype object"),
        ([np.ma.masked_array(a)], {}, "inputs[0] MaskedArray"),
        ([a], {"dtype": "f64"}, "dtype 'f64': expected f32"),
    ):
        with pytest.raises(ordo.Error) as error:
            ordo.tree_sum(inputs, **options)
        assert message in str(error.value)
