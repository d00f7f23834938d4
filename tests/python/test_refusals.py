"""What must never reach the kernels: arrays that are too small, of another type, or in the way."""

from __future__ import annotations

import numpy as np
import ordo
import pytest

PLAN = ordo.Plan(ordo.Problem(batch=2, heads=4, kv_heads=2, q_len=8, kv_len=12, head_dim=16))
PACKED = ordo.Plan(
    ordo.Problem(batch=2, heads=1, q_len=5, head_dim=4, layout="packed", total_q=8, total_kv=8)
)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


@pytest.fixture
def arrays():
    return dict(q=zeros(2, 8, 4, 16), k=zeros(2, 12, 2, 16), v=zeros(2, 12, 2, 16))


def refused(function, *arguments, **rest):
    with pytest.raises(ordo.Error) as caught:
        function(*arguments, **rest)
    return caught.value.status, str(caught.value)


def test_shapes(arrays):
    status, text = refused(ordo.forward, PLAN, **{**arrays, "k": zeros(2, 8, 2, 16)})
    assert (status, text) == ("shape", "k.shape (2, 8, 2, 16): expected (2, 12, 2, 16)")
    assert refused(ordo.forward, PLAN, **arrays, lse=zeros(2, 4, 7))[0] == "shape"
    assert refused(ordo.forward, PLAN, **arrays, o=zeros(2, 8, 4, 15))[0] == "shape"


def test_types(arrays):
    for name, value, words in (
        ("v", zeros(2, 12, 2, 16, dtype="f8"), "v.dtype float64: expected float32"),
        ("q", arrays["q"].astype(">f4"), "q.dtype >f4: expected float32"),
        ("q", [1], "q list: expected a numpy array"),
        ("lse", zeros(2, 4, 8, dtype="f8"), "lse.dtype float64: expected float32"),
    ):
        assert refused(ordo.forward, PLAN, **{**arrays, name: value}) == ("argument", words)


def test_last_axis_must_be_contiguous(arrays):
    wide = zeros(2, 8, 4, 32)
    status, text = refused(ordo.forward, PLAN, **{**arrays, "q": wide[..., ::2]})
    assert status == "align" and text.startswith("q.strides") and "ascontiguousarray(q)" in text
    assert refused(ordo.forward, PLAN, **{**arrays, "q": arrays["q"][..., ::-1]})[0] == "align"
    everywhere_the_same = np.broadcast_to(np.float32(1), (2, 8, 4, 16))  # all strides 0
    assert refused(ordo.forward, PLAN, **{**arrays, "q": everywhere_the_same})[0] == "align"


def test_strides_backwards_or_between_elements(arrays):
    status, text = refused(ordo.forward, PLAN, **arrays, o=zeros(2, 8, 4, 16)[:, ::-1])
    assert (status, text) == ("align", "o.stride[1] -64: expected 0 or more")
    raw = np.zeros(2 * 8 * 4 * 66, np.uint8)
    odd = np.lib.stride_tricks.as_strided(raw.view(np.float32), (2, 8, 4, 16), (2112, 264, 66, 4))
    assert refused(ordo.forward, PLAN, **{**arrays, "q": odd}) == (
        "align", "q.strides (2112, 264, 66, 4): expected multiples of 4"
    )  # fmt: skip
    off = np.zeros(4 * arrays["q"].size + 1, np.uint8)[1:].view(np.float32).reshape(2, 8, 4, 16)
    assert refused(ordo.forward, PLAN, **{**arrays, "q": off})[0] == "align"


MASKED = np.ma.masked_array(zeros(2, 8, 4, 16), mask=True)


def test_masks_of_arrays_are_not_ignored(arrays):
    whole = ordo.dropout.fill(PLAN.problem.replace(dropout=0.5))
    for name, value in (
        ("q", MASKED),
        ("o", MASKED),
        ("lse", np.ma.masked_array(zeros(2, 4, 8))),
        ("q_lens", np.ma.masked_array([8, 8])),
        ("slopes", np.ma.masked_array([1.0, 1.0, 1.0, 1.0])),
        ("keep_bits", np.ma.masked_array(whole)),
    ):
        words = f"{name} MaskedArray: expected a numpy array without a mask"
        status, text = refused(ordo.forward, PLAN, **{**arrays, name: value})
        assert status == "argument" and text.startswith(words)
    assert "q MaskedArray" in refused(ordo.attention, MASKED, MASKED, MASKED)[1]


@pytest.mark.parametrize(
    "rest, words",
    [
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
    ],
)
def test_words_and_kinds_of_numbers(rest, words):
    x = zeros(2, 8, 4, 16)
    assert words in refused(ordo.attention, x, x, x, **rest)[1]


def test_kinds_of_arrays():
    x = zeros(2, 8, 4, 16)
    for kind in ("complex64", "object", "bool"):
        words = f"dtype {kind}: expected float32, float16 or bfloat16"
        assert refused(ordo.attention, x.astype(kind), x, x)[1] == words
        words = f"k.dtype {kind}: expected float32"
        assert refused(ordo.attention, x, x.astype(kind), x)[1] == words


def test_empty_arrays_are_checked_too():
    x, none, row = zeros(2, 8, 4, 16), zeros(2, 0, 4, 16), zeros(8, 4, 16)
    for arguments, rest, words in (
        ((x, none, x), {}, "v.shape (2, 8, 4, 16): expected (2, 0, 4, 16)"),
        ((none, x.astype("f2"), x), {}, "k.dtype float16: expected float32"),
        ((zeros(0, 8, 4, 16), x, x), {}, "k.shape (2, 8, 4, 16): expected (0, 8, 4, 16)"),
        ((none, none, none), dict(softcap=-1), "softcap -1"),
        ((row, row[:0], row[:0]), dict(cu_q=[0, 8], cu_kv=[0, 8]), "cu_kv[1] 8"),
        ((row, row[:0], row[:0]), dict(cu_q=[0, 8], cu_kv=[0]), "cu_kv.shape (1,): expected (2,)"),
        ((row[:0],) * 3, dict(cu_q=[]), "cu_q without a number: expected batch + 1 ends"),
    ):
        assert words in refused(ordo.attention, *arguments, **rest)[1]


def test_inputs_may_repeat_an_element(arrays):
    row = np.random.default_rng(0).standard_normal((2, 8, 1, 16), np.float32)
    shared = {**arrays, "q": np.broadcast_to(row, (2, 8, 4, 16))}
    o, _ = ordo.forward(PLAN, **shared)
    assert np.array_equal(o, ordo.forward(PLAN, **{**shared, "q": shared["q"].copy()})[0])


def test_outputs_overlap_nothing(arrays):
    status, text = refused(ordo.forward, PLAN, **arrays, o=arrays["q"])
    assert (status, text[:27]) == ("argument", "q and o overlap in memory: ")
    o, lse = ordo.forward(PLAN, **arrays)
    both = zeros(2, 12, 2, 16)
    assert (
        "dk and dv overlap"
        in refused(ordo.backward, PLAN, **arrays, o=o, lse=lse, dout=o, dk=both, dv=both)[1]
    )
    line = zeros(2, 8, 1, 16)
    folded = np.lib.stride_tricks.as_strided(line, (2, 8, 4, 16), (512, 64, 0, 4))
    assert refused(ordo.forward, PLAN, **arrays, o=folded)[0] == "align"


def test_outputs_are_writable_and_contiguous_where_they_must(arrays):
    fixed = zeros(2, 8, 4, 16)
    fixed.flags.writeable = False
    assert refused(ordo.forward, PLAN, **arrays, o=fixed)[1].startswith("o read-only")
    assert refused(ordo.forward, PLAN, **arrays, lse=zeros(2, 8, 4).swapaxes(1, 2))[0] == "align"
    for x in arrays.values():
        x.flags.writeable = False
    ordo.forward(PLAN, **arrays)  # inputs need not be writable


def test_numbers(arrays):
    for rest, words in (
        (dict(seed=-1), "seed -1: expected 0..18446744073709551615"),
        (dict(seed=2**64), "seed 18446744073709551616"),
        (dict(offset=1.5), "offset 1.5: expected an integer"),
        (dict(threads=-1), "threads -1: expected 0 or more"),
        (dict(threads=2**31), "threads 2147483648"),
        (dict(cu_q=[0, 8, 16]), "cu_q given: expected NULL in dense layout"),
        (dict(q_lens=[8]), "q_lens.shape (1,): expected (2,)"),
        (dict(slopes=[1, 1, 1, 1]), "slopes given: expected NULL without alibi"),
        (dict(keep_bits=np.zeros(10, np.uint32)), "keep_bits"),
    ):
        assert words in refused(ordo.forward, PLAN, **arrays, **rest)[1]


def test_ends_of_packed_sequences():
    x = zeros(8, 1, 4)
    ordo.forward(PACKED, x, x, x, cu_q=[0, 3, 8], cu_kv=np.int64([0, 5, 8]))
    for ends, words in (
        ([0, 3], "cu_q.shape (2,): expected (3,)"),
        ([0, 2**40, 8], "that fit int32"),
        ([0.0, 3.0, 8.0], "expected integers"),
        ([0, 3, 9], "cu_q[2] 9"),
        ([0, 4, 3], "cu_q[2] 3: expected 4.."),
        ([1, 3, 8], "cu_q[0] 1: expected 0"),
        ([0, 8, 8], "cu_q[1] 8"),
    ):
        assert words in refused(ordo.forward, PACKED, x, x, x, cu_q=ends, cu_kv=[0, 3, 8])[1]
    assert "cu_q NULL" in refused(ordo.forward, PACKED, x, x, x)[1]


def test_cuda_plans_do_not_take_host_arrays(arrays):
    plan = ordo.Plan(ordo.Problem(q_len=8, head_dim=64, dtype="f16"), "h200")
    x = zeros(1, 8, 1, 64, dtype=np.float16)
    status, text = refused(ordo.forward, plan, x, x, x)
    assert status == "unsupported" and text.startswith("backend cuda: numpy arrays")


def test_a_failed_call_harms_no_later_one(arrays):
    o, lse = ordo.forward(PLAN, **arrays)
    before = ordo.backward(PLAN, **arrays, o=o, lse=lse, dout=o)
    for _ in range(3):
        refused(ordo.backward, PLAN, **arrays, o=o, lse=lse, dout=o, threads=-1)
    assert len(PLAN._idle) == 1
    after = ordo.backward(PLAN, **arrays, o=o, lse=lse, dout=o)
    assert all(np.array_equal(a, b) for a, b in zip(before, after))
