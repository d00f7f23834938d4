"""What must never reach the kernels: arrays that are too small, of another type, or in the way."""

from __future__ import annotations

import numpy as np
import ordo
import pytest

PLAN = ordo.Plan(ordo.Problem(batch=2, heads=4, kv_heads=2, q_len=8, kv_len=12, head_dim=16))
PACKED = ordo.Plan(
    ordo.Problem(batch=2, heads=1, q_len=5, head_dim=4, layout="packed", total_q=8, total_kv=8)
)
ON_CUDA = ordo.Plan(ordo.Problem(q_len=8, head_dim=64, dtype="f16"), "h200")


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def arrays():
    return dict(q=zeros(2, 8, 4, 16), k=zeros(2, 12, 2, 16), v=zeros(2, 12, 2, 16))


def refused(function, *arguments, **rest):
    with pytest.raises(ordo.Error) as caught:
        function(*arguments, **rest)
    return caught.value.status, str(caught.value)


def odd(step):
    """Queries whose elements are `step` bytes from a multiple of 4."""
    raw = np.zeros(2 * 8 * 4 * 66, np.uint8)
    if step == 2:
        return np.lib.stride_tricks.as_strided(raw.view(np.float32), (2, 8, 4, 16), (2112, 264, 66, 4))
    return raw[1 : 1 + 4 * 2 * 8 * 4 * 16].view(np.float32).reshape(2, 8, 4, 16)


Q, X, NONE, ROW = zeros(2, 8, 4, 16), zeros(2, 8, 4, 16), zeros(2, 0, 4, 16), zeros(8, 4, 16)
MASKED, TINY, HALF = np.ma.masked_array(X, mask=True), zeros(8, 1, 4), zeros(1, 8, 1, 64, dtype=np.float16)
MASK = "{} MaskedArray: expected a numpy array without a mask"

# What forward(PLAN, ...) is given, the kind of error, and words of it.
OF_A_PLAN = [
    (dict(k=X[:, :, :2]), "shape", "k.shape (2, 8, 2, 16): expected (2, 12, 2, 16)"),
    (dict(lse=zeros(2, 4, 7)), "shape", "lse"),
    (dict(o=zeros(2, 8, 4, 15)), "shape", "o"),
    (dict(v=zeros(2, 12, 2, 16, dtype="f8")), "argument", "v.dtype float64: expected float32"),
    (dict(q=Q.astype(">f4")), "argument", "q.dtype >f4: expected float32"),
    (dict(q=[1]), "argument", "q list: expected a numpy array"),
    (dict(lse=zeros(2, 4, 8, dtype="f8")), "argument", "lse.dtype float64: expected float32"),
    (dict(q=zeros(2, 8, 4, 32)[..., ::2]), "align", "ascontiguousarray(q)"),
    (dict(q=Q[..., ::-1]), "align", "q.strides"),
    (dict(q=np.broadcast_to(np.float32(1), (2, 8, 4, 16))), "align", "q.strides"),  # all of them 0
    (dict(o=X[:, ::-1]), "align", "o.stride[1] -64: expected 0 or more"),
    (dict(q=odd(2)), "align", "q.strides (2112, 264, 66, 4): expected multiples of 4"),
    (dict(q=odd(1)), "align", "q"),
    (dict(q=MASKED), "argument", MASK.format("q")),
    (dict(o=MASKED), "argument", MASK.format("o")),
    (dict(lse=np.ma.masked_array(zeros(2, 4, 8))), "argument", MASK.format("lse")),
    (dict(q_lens=np.ma.masked_array([8, 8])), "argument", MASK.format("q_lens")),
    (dict(slopes=np.ma.masked_array([1.0] * 4)), "argument", MASK.format("slopes")),
    (dict(keep_bits=np.ma.masked_array(ordo.dropout.fill(PLAN.problem.replace(dropout=0.5)))), "argument", MASK.format("keep_bits")),
    (dict(seed=-1), None, "seed -1: expected 0..18446744073709551615"),
    (dict(seed=2**64), None, "seed 18446744073709551616"),
    (dict(offset=1.5), None, "offset 1.5: expected an integer"),
    (dict(threads=-1), None, "threads -1: expected 0 or more"),
    (dict(threads=2**31), None, "threads 2147483648"),
    (dict(cu_q=[0, 8, 16]), None, "cu_q given: expected NULL in dense layout"),
    (dict(q_lens=[8]), None, "q_lens.shape (1,): expected (2,)"),
    (dict(slopes=[1, 1, 1, 1]), None, "slopes given: expected NULL without alibi"),
    (dict(keep_bits=np.zeros(10, np.uint32)), None, "keep_bits"),
]  # fmt: skip

# What attention() is given: arrays, keywords, words of the error.
OF_A_CALL = [
    *(((X, X, X), rest, words) for rest, words in (
        (dict(causal="top_left"), "causal 'top_left': expected True, False, 'bottom-right' or"),
        (dict(causal="full"), "causal 'full': expected"),
        (dict(causal=2), "causal 2: expected"),
        (dict(causal=np.ones(3)), "causal array([1., 1., 1.]): expected"),
        (dict(window=5), "window 5: expected a pair (left, right)"),
        (dict(window=(1, 2, 3)), "window (1, 2, 3): expected a pair"),
        (dict(window=(1, None)), "window.right None: expected an integer"),
        (dict(scale=np.ones(2)), "scale array([1., 1.]): expected a number"),
        (dict(scale="1"), "scale '1': expected a number"),
        (dict(softcap=b"2"), "softcap b'2': expected a number"),
        (dict(scale=10**400), "scale of 1329 bits: expected a number that a float holds"),
        (dict(window=(10**5000, 0)), "window.left of 16610 bits: expected -92233720368547"),
        (dict(slopes=np.ones(4, complex)), "slopes.dtype complex128: expected real numbers"),
        (dict(slopes=[1, 2, 3, None]), "slopes.dtype object: expected real numbers"),
        (dict(slopes=[[1], [1, 2]]), "slopes [[1], [1, 2]]: expected an array of numbers"),
        (dict(q_lens=np.array([1, 2], object)), "q_lens.dtype object: expected integers"),
    )),
    *(((X.astype(x), X, X), {}, f"dtype {x}: expected float32, float16 or bfloat16") for x in ("complex64", "object", "bool", "float64")),
    ((X, X, X), dict(scale=0), "scale 0"),
    ((X, X, X), dict(backend="tpu"), "backend 'tpu'"),
    ((X, X, X), dict(slopes=[1.0]), "slopes.shape (1,): expected (4,) or (2, 4)"),
    ((X, X, X), dict(cu_q=[0, 8]), "with cu_q"),
    ((ROW, ROW[:4], ROW[:4]), dict(cu_q=[0, 8]), "cu_kv None"),
    ((ROW, X, X), {}, "q.shape"),
    ((X, [1.0], X), {}, "k list"),
    ((X.view(np.uint32).astype(np.uint16), X, X), {}, 'dtype="bf16"'),
    *(((X, X.astype(x), X), {}, f"k.dtype {x}: expected float32") for x in ("complex64", "object", "bool")),
    ((MASKED, MASKED, MASKED), {}, "q MaskedArray"),
    ((X, NONE, X), {}, "v.shape (2, 8, 4, 16): expected (2, 0, 4, 16)"),
    ((NONE, X.astype("f2"), X), {}, "k.dtype float16: expected float32"),
    ((zeros(0, 8, 4, 16), X, X), {}, "k.shape (2, 8, 4, 16): expected (0, 8, 4, 16)"),
    ((NONE, NONE, NONE), dict(softcap=-1), "softcap -1"),
    ((ROW, ROW[:0], ROW[:0]), dict(cu_q=[0, 8], cu_kv=[0, 8]), "cu_kv[1] 8"),
    ((ROW, ROW[:0], ROW[:0]), dict(cu_q=[0, 8], cu_kv=[0]), "cu_kv.shape (1,): expected (2,)"),
    ((ROW[:0],) * 3, dict(cu_q=[]), "cu_q without a number: expected batch + 1 ends"),
]  # fmt: skip

# What backward(PLAN, ...) is given of sinks, and words of the error.
OF_SINKS = [
    (dict(sink=[1.0]), "sink.shape (1,): expected (4,)"),
    (dict(sink=[1, None, 1, 1]), "sink.dtype object: expected real numbers"),
    (dict(dsink=zeros(4)), "dsink given, sink NULL"),
    (dict(sink=[1] * 4, dsink=zeros(4, dtype="f8")), "dsink.dtype float64: expected float32"),
    (dict(sink=[1] * 4, dsink_parts=zeros(4)), "dsink_parts.shape (4,)"),
]

# Ends of queries beside cu_kv [0, 3, 8]
ENDS = [
    ([0, 3], "cu_q.shape (2,): expected (3,)"),
    ([0, 2**40, 8], "that fit int32"),
    ([0.0, 3.0, 8.0], "expected integers"),
    ([0, 3, 9], "cu_q[2] 9"),
    ([0, 4, 3], "cu_q[2] 3: expected 4.."),
    ([1, 3, 8], "cu_q[0] 1: expected 0"),
    ([0, 8, 8], "cu_q[1] 8"),
    (None, "cu_q NULL"),
]


def test_refused():
    for given, status, words in OF_A_PLAN:
        found = refused(ordo.forward, PLAN, **arrays() | given)
        assert words in found[1] and status in (None, found[0]), (given, found)
    for given, rest, words in OF_A_CALL:
        assert words in refused(ordo.attention, *given, **rest)[1], words
    o, lse = ordo.forward(PLAN, **arrays())
    for given, words in OF_SINKS:
        assert words in refused(ordo.backward, PLAN, **arrays(), o=o, lse=lse, dout=o, **given)[1], words
    for ends, words in ENDS:
        assert words in refused(ordo.forward, PACKED, TINY, TINY, TINY, cu_q=ends, cu_kv=[0, 3, 8])[1]
    ordo.forward(PACKED, TINY, TINY, TINY, cu_q=[0, 3, 8], cu_kv=np.int64([0, 5, 8]))
    status, text = refused(ordo.forward, ON_CUDA, HALF, HALF, HALF)
    assert status == "unsupported" and text.startswith("backend cuda: numpy arrays")


def test_inputs_may_repeat_an_element():
    row = np.random.default_rng(0).standard_normal((2, 8, 1, 16), np.float32)
    shared = {**arrays(), "q": np.broadcast_to(row, (2, 8, 4, 16))}
    o, _ = ordo.forward(PLAN, **shared)
    assert np.array_equal(o, ordo.forward(PLAN, **{**shared, "q": shared["q"].copy()})[0])


def test_outputs_overlap_nothing():
    given = arrays()
    status, text = refused(ordo.forward, PLAN, **given, o=given["q"])
    assert (status, text[:27]) == ("argument", "q and o overlap in memory: ")
    o, lse = ordo.forward(PLAN, **arrays())
    both = zeros(2, 12, 2, 16)
    assert (
        "dk and dv overlap"
        in refused(ordo.backward, PLAN, **arrays(), o=o, lse=lse, dout=o, dk=both, dv=both)[1]
    )
    line = zeros(2, 8, 1, 16)
    folded = np.lib.stride_tricks.as_strided(line, (2, 8, 4, 16), (512, 64, 0, 4))
    assert refused(ordo.forward, PLAN, **arrays(), o=folded)[0] == "align"


def test_outputs_are_writable_and_contiguous_where_they_must():
    fixed = zeros(2, 8, 4, 16)
    fixed.flags.writeable = False
    assert refused(ordo.forward, PLAN, **arrays(), o=fixed)[1].startswith("o read-only")
    assert refused(ordo.forward, PLAN, **arrays(), lse=zeros(2, 8, 4).swapaxes(1, 2))[0] == "align"
    given = arrays()
    for x in given.values():
        x.flags.writeable = False
    ordo.forward(PLAN, **given)  # inputs need not be writable


def test_a_failed_call_harms_no_later_one():
    o, lse = ordo.forward(PLAN, **arrays())
    before = ordo.backward(PLAN, **arrays(), o=o, lse=lse, dout=o)
    for _ in range(3):
        refused(ordo.backward, PLAN, **arrays(), o=o, lse=lse, dout=o, threads=-1)
    assert len(PLAN._idle) == 1
    after = ordo.backward(PLAN, **arrays(), o=o, lse=lse, dout=o)
    assert all(np.array_equal(a, b) for a, b in zip(before, after))
