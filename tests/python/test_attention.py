"""Forward and backward against float64 in NumPy; layouts, strides and types."""

from __future__ import annotations

import numpy as np
import ordo
import pytest
import reference

# Errors in units of the largest element: f32 sums of some hundred terms; halves round once more.
TOLERANCE = {"f32": 2e-5, "f16": 2e-3, "bf16": 2e-2}


def normal(shape, seed, dtype="f32"):
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    if dtype == "bf16":
        return pytest.importorskip("ml_dtypes").bfloat16(values)
    return values.astype({"f32": np.float32, "f16": np.float16}[dtype])


def inputs(p, seed=0):
    q_rows, kv_rows = (p.batch, p.q_len), (p.batch, p.kv_len)
    if p.layout == "packed":
        q_rows, kv_rows = (p.total_q,), (p.total_kv,)
    q = normal((*q_rows, p.heads, p.head_dim), seed, p.dtype)
    k = normal((*kv_rows, p.kv_heads, p.head_dim), seed + 1, p.dtype)
    v = normal((*kv_rows, p.kv_heads, p.v_head_dim), seed + 2, p.dtype)
    dout = normal((*q_rows, p.heads, p.v_head_dim), seed + 3, p.dtype)
    return q, k, v, dout


def both(plan, q, k, v, dout, **rest):
    dlse = rest.pop("dlse", None)
    o, lse = ordo.forward(plan, q, k, v, **rest)
    return o, lse, *ordo.backward(plan, q, k, v, o, lse, dout, dlse=dlse, **rest)


def same_bits(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "causal, mask",
    [
        (False, "full"), (np.False_, "full"), (None, "full"), (True, "causal"),
        (np.True_, "causal"), (1, "causal"), ("bottom-right", "causal"), ("top-left", "causal-top-left"),
    ],
)  # fmt: skip
def test_words_of_causal(causal, mask):
    """And numbers of other kinds: attention() is forward() with the plan that its words say."""
    q, k = normal((1, 5, 2, 8), 0), normal((1, 9, 1, 8), 1)
    rules = dict(softcap=3.0, scale=0.5, window=(2, -1) if causal else None)
    shape = dict(q_len=5, kv_len=9, heads=2, kv_heads=1, head_dim=8)
    plan = ordo.Plan(ordo.Problem(**shape, **rules, mask=mask, dropout=0.2))
    mine = dict(rules, softcap=np.array(3.0), scale=np.array(0.5), dropout_p=0.2, seed=3, offset=4)
    same_bits([ordo.attention(q, k, k, causal=causal, **mine)], [ordo.forward(plan, q, k, k, seed=3, offset=4)[0]])


def test_negative_strides_are_copied():
    """Every input, one axis at a time, and lse in any order."""
    p = ordo.Problem(batch=2, q_len=12, kv_len=9, heads=4, kv_heads=2, head_dim=8, v_head_dim=16,
                     alibi=True, layout="padded")  # fmt: skip
    plan, rest = ordo.Plan(p), dict(q_lens=np.int32([7, 12]), kv_lens=np.int32([9, 5]))
    q, k, v, dout = inputs(p.replace(v_head_dim=16))
    slopes = np.float32([0.5, 0.25, 0.125, 1.0])
    o, lse = ordo.forward(plan, q, k, v, slopes=slopes, **rest)
    dlse = normal(lse.shape, 5)
    given = dict(q=q, k=k, v=v, o=o, lse=lse, dout=dout, dlse=dlse, slopes=slopes, **rest)
    expected = ordo.backward(plan, **given)
    for name, array in given.items():
        for axis in range(max(1, array.ndim - 1)):
            back = np.flip(np.flip(array, axis).copy(), axis)
            assert back.strides[axis] < 0 and np.array_equal(back, array)
            same_bits(ordo.backward(plan, **{**given, name: back}), expected)
            if name in ("q", "k", "v", "slopes", "q_lens", "kv_lens"):
                some = {n: given[n] for n in ("q", "k", "v", "slopes", "q_lens", "kv_lens")}
                same_bits(ordo.forward(plan, **{**some, name: back}), (o, lse))
    transposed = lse.swapaxes(1, 2).copy().swapaxes(1, 2)
    same_bits(ordo.backward(plan, **{**given, "lse": transposed}), expected)
    same_bits(ordo.combine(plan, [(np.flip(o, 0)[::-1], transposed)]), (o, lse))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_without_sequences_rows_or_keys(dtype):
    x, y = normal((2, 8, 4, 16), 0, dtype), normal((2, 8, 2, 16), 0, dtype)
    row = x[0]
    for q, k, rest in (
        (x[:0], y[:0], dict(causal=True)),
        (x[:, :0], y, {}),
        (x, y[:, :0], dict(dropout_p=0.5)),
        (x, y[:, :0], dict(kv_lens=[0, 0])),
        (x[:0], y[:0], dict(q_lens=[], kv_lens=[])),
        (row[:0], row[:0], dict(cu_q=[0])),
        (row[:0], row[:0], dict(cu_q=[0, 0, 0])),
        (row[:0], row, dict(cu_q=[0, 0, 0], cu_kv=[0, 5, 8])),
        (row, row[:0], dict(cu_q=[0, 8], cu_kv=[0, 0])),
    ):
        o = ordo.attention(q, k, k[..., :5], **rest)
        assert o.shape == (*q.shape[:-1], 5) and o.dtype == q.dtype and not o.view("u1").any()


@pytest.mark.parametrize(
    "sizes",
    [
        dict(batch=0, q_len=3),
        dict(batch=2, q_len=0, kv_len=3),
        dict(batch=2, q_len=3, kv_len=ordo.NO_KEYS),
        dict(batch=0, q_len=3, layout="packed"),
        dict(batch=2, q_len=3, kv_len=ordo.NO_KEYS, layout="packed", total_q=5),
    ],
)
def test_plans_of_nothing(sizes):
    plan = ordo.Plan(ordo.Problem(heads=4, kv_heads=2, head_dim=8, **sizes))
    assert ordo.Plan.parse(plan.line) == plan
    ends = [0] * (sizes["batch"] + 1)
    rest = dict(cu_q=ends, cu_kv=ends) if plan.problem.layout == "packed" else {}
    q, k, v, dout = (np.ones(plan._shapes[x], np.float32) for x in ("q", "k", "v", "dout"))
    assert 0 in (sizes["batch"], q.size, k.size)
    o, lse, *grads = both(plan, q, k, v, dout, **rest)
    assert o.shape == q.shape and not o.any() and (lse == -np.inf).all()
    for x, y in zip(grads, (q, k, v)):
        assert x.shape == y.shape and not x.any()


CASES = {
    "full": dict(),
    "causal": dict(mask="causal"),
    "causal-rectangle": dict(mask="causal", kv_len=150),
    "top-left": dict(mask="causal-top-left", kv_len=60),
    "blind-rows": dict(mask="causal", kv_len=70),
    "window": dict(window=(20, 5)),
    "causal-window": dict(mask="causal", window=(33, -1)),
    "gqa": dict(heads=6, kv_heads=2, mask="causal"),
    "mqa": dict(heads=4, kv_heads=1),
    "v-dim": dict(head_dim=48, v_head_dim=16),
    "scale": dict(scale=0.3),
    "softcap": dict(softcap=2.0, mask="causal"),
    "alibi": dict(alibi=True, mask="causal"),
    "dropout": dict(dropout=0.2, mask="causal"),
    "f16": dict(dtype="f16", mask="causal"),
    "bf16": dict(dtype="bf16", mask="causal", heads=4, kv_heads=2),
}


@pytest.mark.parametrize("backend", ["ref", "cpu", "emulator"])
@pytest.mark.parametrize("case", CASES)
def test_against_float64(case, backend):
    fields = {**dict(batch=2, heads=2, q_len=97, head_dim=32), **CASES[case]}
    if backend == "emulator":  # which has no f32
        fields["dtype"] = fields.get("dtype", "f16")
    plan = ordo.Plan(ordo.Problem(**fields), backend=backend)
    p = plan.problem
    q, k, v, dout = inputs(p)
    dlse = normal((p.batch, p.heads, p.q_len), 9)
    slopes = np.float32([2.0**-i for i in range(1, p.heads + 1)]) if p.alibi else None
    got = both(plan, q, k, v, dout, slopes=slopes, seed=5, offset=3, dlse=dlse)

    scale = ordo.dropout.query(plan).scale if p.dropout.p else 1.0
    tolerance = TOLERANCE[p.dtype]
    for b in range(p.batch):
        keep = None
        if p.dropout.p:
            keep = [ordo.dropout.export(plan, sequence=b, head=h, seed=5, offset=3)
                    for h in range(p.heads)]  # fmt: skip
        expected = reference.sequence(
            p, q[b], k[b], v[b], dout[b], slopes=slopes, keep=keep, keep_scale=scale, dlse=dlse[b]
        )
        reference.close(got[1][b], expected.lse, 1e-5)
        for name, array in zip(("o", "dq", "dk", "dv"), (got[0], *got[2:])):
            reference.close(array[b], getattr(expected, name), tolerance)


@pytest.mark.parametrize("backend", ["ref", "cpu"])
def test_packed_padded_and_dense_agree_bit_for_bit(backend):
    lengths = [30, 77, 1]
    ends = np.cumsum([0, *lengths])
    fields = dict(heads=4, kv_heads=2, head_dim=32, mask="causal", dropout=0.1)
    packed = ordo.Plan(
        ordo.Problem(batch=3, q_len=77, layout="packed", total_q=108, total_kv=108, **fields),
        backend=backend,
    )
    padded = ordo.Plan(ordo.Problem(batch=3, q_len=77, layout="padded", **fields), backend=backend)
    arrays = inputs(packed.problem)
    whole = both(packed, *arrays, cu_q=ends, cu_kv=list(ends), seed=11)

    spread = [np.full((3, 77, *x.shape[1:]), np.nan, np.float32) for x in arrays]
    for b in range(3):
        for x, y in zip(spread, arrays):
            x[b, : lengths[b]] = y[ends[b] : ends[b + 1]]
    wide = both(padded, *spread, q_lens=lengths, kv_lens=lengths, seed=11)

    for b in range(3):
        here, rows = slice(ends[b], ends[b + 1]), lengths[b]
        one = ordo.Plan(ordo.Problem(q_len=rows, **fields), backend=backend)
        alone = both(one, *(x[None, here] for x in arrays), sequence_ids=[b], seed=11)
        for number, name in enumerate(("o", "lse", "dq", "dk", "dv")):
            mine = whole[number][:, here] if name == "lse" else whole[number][here]
            theirs = wide[number][b, :, :rows] if name == "lse" else wide[number][b, :rows]
            same_bits([alone[number][0]], [np.ascontiguousarray(mine)])
            same_bits([alone[number][0]], [np.ascontiguousarray(theirs)])
    assert not wide[0][0, 30:].any() and not wide[3][0, 30:].any()  # past the end: 0
    assert np.isneginf(wide[1][0, :, 30:]).all()


def test_lengths_of_one_side_alone():
    """The other side has all the rows of its own array."""
    rng = np.random.default_rng(4)
    q = rng.standard_normal((2, 5, 2, 8), np.float32)
    k, v = (rng.standard_normal((2, 9, 2, 8), np.float32) for _ in range(2))
    for given, whole in (
        (dict(q_lens=[3, 5]), dict(q_lens=[3, 5], kv_lens=[9, 9])),
        (dict(kv_lens=[4, 9]), dict(q_lens=[5, 5], kv_lens=[4, 9])),
    ):
        same_bits([ordo.attention(q, k, v, **given)], [ordo.attention(q, k, v, **whole)])
    with pytest.raises(ordo.Error, match="kv_lens"):
        ordo.attention(q, k, v, kv_lens=[4, 10])


@pytest.mark.parametrize("backend", ["ref", "cpu"])
def test_strides_change_no_bit(backend):
    fields = dict(batch=2, heads=4, kv_heads=2, q_len=50, head_dim=16, mask="causal")
    plan = ordo.Plan(ordo.Problem(**fields), backend=backend)
    q, k, v, dout = inputs(plan.problem)
    plain = both(plan, q, k, v, dout)

    # (batch, head, row, dim) in memory, as PyTorch's attention has it
    swapped = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v, dout)]
    assert not swapped[0].flags.c_contiguous
    same_bits(plain, both(plan, *swapped))

    # q, k and v side by side in one projection; every other row of a longer array
    joint = np.full((2, 50, 4 + 2 + 2, 16 + 3), np.nan, np.float32)
    parts = joint[:, :, :4, :16], joint[:, :, 4:6, 1:17], joint[:, :, 6:, 3:]
    for part, x in zip(parts, (q, k, v)):
        part[:] = x
    longer = np.full((2, 100, 4, 16), np.nan, np.float32)
    longer[:, ::2] = dout
    same_bits(plain, both(plan, *parts, longer[:, ::2]))

    # outputs are written in place
    o = np.full((2, 4, 50, 16), np.nan, np.float32).swapaxes(1, 2)
    lse = np.full((2, 4, 50), np.nan, np.float32)
    gave = ordo.forward(plan, q, k, v, o=o, lse=lse)
    assert gave[0] is o and gave[1] is lse
    qkv = np.full((2, 50, 8, 18), np.nan, np.float32)
    dq, dk, dv = qkv[:, :, :4, 1:17], qkv[:, :, 4:6, 1:17], qkv[:, :, 6:, 1:17]
    gave = ordo.backward(plan, q, k, v, o, lse, dout, dq=dq, dk=dk, dv=dv)
    assert gave[0] is dq and gave[1] is dk and gave[2] is dv
    same_bits(plain, [np.ascontiguousarray(x) for x in (o, lse, dq, dk, dv)])
    assert np.isnan(qkv[..., 0]).all() and np.isnan(qkv[..., 17]).all()  # nothing beside them


def test_axes_of_one_element_have_any_stride():
    plan = ordo.Plan(ordo.Problem(q_len=1, head_dim=1))
    one = np.float32([[3.0]])
    view = np.lib.stride_tricks.as_strided(one, (1, 1, 1, 1), (7, -13, 0, 5))
    o, _ = ordo.forward(plan, view, view, view)
    assert o.item() == 3


def test_bf16_bits_in_uint16():
    fields = dict(heads=2, q_len=33, head_dim=16, mask="causal", dtype="bf16")
    plan = ordo.Plan(ordo.Problem(**fields))
    arrays = inputs(plan.problem)
    typed = both(plan, *arrays)
    bits = both(plan, *(x.view(np.uint16) for x in arrays))
    assert typed[0].dtype.name == "bfloat16" and bits[0].dtype == np.uint16
    same_bits(typed, bits)
    raw = [x.view(np.uint16) for x in arrays[:3]]
    same_bits([ordo.attention(*raw, causal=True, dtype="bf16")], [bits[0]])
    assert ordo.digest(typed[0]) == ordo.digest(bits[0])


@pytest.mark.parametrize("backend", ["ref", "cpu"])
def test_combine_merges_disjoint_keys(backend):
    problem = ordo.Problem(batch=2, heads=2, q_len=20, kv_len=60, head_dim=16)
    plan = ordo.Plan(problem, backend=backend)
    part = ordo.Plan(problem.replace(kv_len=20), backend=backend)
    q, k, v, _ = inputs(plan.problem)
    o, lse = ordo.forward(plan, q, k, v)
    parts = [ordo.forward(part, q, k[:, i : i + 20], v[:, i : i + 20]) for i in (0, 20, 40)]
    merged = ordo.combine(plan, parts)
    reference.close(merged[0], np.float64(o), 1e-5)
    reference.close(merged[1], np.float64(lse), 1e-5)
    same_bits(merged, ordo.combine(plan, parts, threads=1))
    with pytest.raises(ordo.Error, match="parts 0"):
        ordo.combine(plan, [])
    with pytest.raises(ordo.Error, match=r"parts\[1\]\.o\.shape"):
        ordo.combine(plan, [parts[0], (parts[1][0][:1], parts[1][1])])
    with pytest.raises(ordo.Error, match="overlap"):
        ordo.combine(plan, parts, o=parts[0][0])


# ---- attention() ----


def test_attention_of_packed_sequences():
    q, k, v = (normal((100, 2, 16), seed) for seed in range(3))
    whole = ordo.attention(q, k, v, causal=True, cu_q=[0, 30, 100])
    for first, end in ((0, 30), (30, 100)):
        alone = ordo.attention(*(x[None, first:end] for x in (q, k, v)), causal=True)
        same_bits([alone[0]], [whole[first:end]])


def test_sinks():
    """One more column of the softmax, dropped afterwards; its gradient, and that of each sequence."""
    rng = np.random.default_rng(3)
    q, k, v, dout = (rng.standard_normal((2, 150, 3, 8)).astype(np.float32) for _ in range(4))
    dlse = rng.standard_normal((2, 3, 150)).astype(np.float32)
    sink = np.float32([-1.5, 0.0, 2.0])
    plan = ordo.Plan(ordo.Problem(batch=2, heads=3, q_len=150, head_dim=8))
    o, lse = ordo.forward(plan, q, k, v, sink=sink)
    dsink, parts = np.empty(3, np.float32), np.empty((2, 3), np.float32)
    dq, dk, dv = ordo.backward(
        plan, q, k, v, o, lse, dout, dlse=dlse, sink=sink, dsink=dsink, dsink_parts=parts
    )
    scores = np.einsum("bihd,bjhd->bhij", q.astype(float), k) / np.sqrt(8)
    total = np.exp(scores).sum(-1) + np.exp(sink.astype(float))[:, None]
    p = np.exp(scores) / total[..., None]
    np.testing.assert_allclose(lse, np.log(total), rtol=1e-5)
    np.testing.assert_allclose(o, np.einsum("bhij,bjhd->bihd", p, v), atol=1e-5)
    delta = np.einsum("bihd,bihd->bhi", o.astype(float), dout) - dlse
    share = np.exp(sink.astype(float))[:, None] / total
    np.testing.assert_allclose(parts, -(share * delta).sum(-1), atol=1e-5)
    ds = p * (np.einsum("bihd,bjhd->bhij", dout.astype(float), v) - delta[..., None])
    np.testing.assert_allclose(dq, np.einsum("bhij,bjhd->bihd", ds, k) / np.sqrt(8), atol=1e-5)
    np.testing.assert_allclose(dv, np.einsum("bhij,bihd->bjhd", p, dout), atol=1e-5)
    assert np.array_equal(dsink, parts.astype(np.float64).sum(0).astype(np.float32))
    assert np.array_equal(ordo.attention(q, k, v, sink=sink.tolist()), o)
    assert np.array_equal(ordo.attention(q, k, v, sink=[-np.inf] * 3), ordo.attention(q, k, v))

