"""Keep bits: one by one, packed, as a matrix, and as the kernels use them."""

from __future__ import annotations

import numpy as np
import ordo
import pytest
from ordo import dropout

PROBLEM = ordo.Problem(batch=2, heads=3, q_len=40, kv_len=150, head_dim=16, dropout=0.3)


def test_forms_agree():
    whole = [[dropout.export(PROBLEM, sequence=b, head=h, seed=7, offset=2) for h in range(3)]
             for b in range(2)]  # fmt: skip
    words = dropout.fill(PROBLEM, seed=7, offset=2)
    for b in range(2):
        for h in range(3):
            place = dict(sequence=b, head=h)
            assert whole[b][h].shape == (40, 150) and whole[b][h].dtype == np.bool_
            assert np.array_equal(dropout.export(PROBLEM, **place, words=words), whole[b][h])
            bits = dropout.export(PROBLEM, **place, words=words, bits=True)
            unpacked = np.unpackbits(bits, axis=1, count=150, bitorder="little")
            assert np.array_equal(unpacked, whole[b][h])
            for row, column in ((0, 0), (39, 149), (17, 128)):
                kept = dropout.keep(PROBLEM, b, h, row, column, seed=7, offset=2)
                assert kept == whole[b][h][row, column]
    part = dropout.export(
        PROBLEM, sequence=1, head=2, rows=(5, 9), cols=(100, 131), seed=7, offset=2
    )
    assert np.array_equal(part, whole[1][2][5:9, 100:131])
    assert dropout.export(PROBLEM, rows=(3, 3)).shape == (0, 150)


def test_filled_in_pieces_and_by_threads():
    info = dropout.query(PROBLEM)
    assert info.bytes == 256 * info.blocks and info.elements == 2 * 3 * 40 * 150
    words = dropout.fill(PROBLEM, seed=1, threads=1)
    assert words.nbytes == info.bytes
    assert np.array_equal(words, dropout.fill(PROBLEM, seed=1, threads=3))
    pieces = [dropout.fill(PROBLEM, seed=1, first=i, count=7) for i in range(0, info.blocks - 6, 7)]
    joined = np.concatenate(pieces)
    assert np.array_equal(words[: len(joined)], joined)
    out = np.empty_like(words)
    assert dropout.fill(PROBLEM, seed=1, out=out) is out and np.array_equal(out, words)


@pytest.mark.parametrize("backend", ["ref", "cpu"])
@pytest.mark.parametrize("keying", ["ordo", "fa2"])
def test_kernels_keep_what_the_mask_says(backend, keying):
    """v is the identity, so o shows each element of P * keep."""
    drop = ordo.Dropout(p=0.3, keying=keying)
    fields = dict(batch=2, heads=2, q_len=48, head_dim=8, v_head_dim=48)
    plan = ordo.Plan(ordo.Problem(**fields, dropout=drop), backend=backend)
    q = np.random.default_rng(0).standard_normal((2, 48, 2, 8), np.float32)
    v = np.broadcast_to(np.eye(48, dtype=np.float32)[:, None], (2, 48, 2, 48))
    o, _ = ordo.forward(plan, q, q, v, seed=9, offset=4)
    for b in range(2):
        for h in range(2):
            mask = dropout.export(plan, sequence=b, head=h, seed=9, offset=4)
            assert np.array_equal(o[b, :, h] != 0, mask)
    bits = dropout.fill(plan, seed=9, offset=4)
    given, _ = ordo.forward(plan, q, q, v, keep_bits=bits)
    assert np.array_equal(o.view(np.uint32), given.view(np.uint32))
    with pytest.warns(FutureWarning, match="mask_bits is keep_bits now"):
        given, _ = ordo.forward(plan, q, q, v, mask_bits=bits)
    assert np.array_equal(o.view(np.uint32), given.view(np.uint32))
    with pytest.raises(ordo.Error, match="mask_bits: expected None with keep_bits"):
        ordo.forward(plan, q, q, v, keep_bits=bits, mask_bits=bits)


def test_refusals():
    words = dropout.fill(PROBLEM)
    for call, text in (
        (lambda: dropout.keep(PROBLEM, 0, 0, 40, 0), "row 40"),
        (lambda: dropout.keep(PROBLEM, 0, 3, 0, 0), "head 3"),
        (lambda: dropout.export(PROBLEM, sequence=2), "sequence 2: expected 0..1"),
        (lambda: dropout.export(PROBLEM, rows=(0, 41)), "rows (0, 41)"),
        (lambda: dropout.export(PROBLEM, words=words[:-1]), "keep_bits"),
        (lambda: dropout.export(PROBLEM, words=words.astype(np.int64)), "uint32"),
        (lambda: dropout.fill(PROBLEM, first=1, count=10**6), "first 1"),
        (lambda: dropout.fill(PROBLEM, out=words[: len(words) // 2].copy()), "bytes"),
        (lambda: dropout.query(PROBLEM, offset=2**32), "offset 4294967296"),
    ):
        with pytest.raises(ordo.Error) as caught:
            call()
        assert text in str(caught.value)


@pytest.mark.parametrize("p, bits", [(0.001, 16), (0.003, 16), (0.999, 16), (1 / 256, 8), (0.1, 8)])
def test_enough_bits_for_any_p(p, bits):
    info = ordo.dropout.query(ordo.Problem(q_len=1, head_dim=1, dropout=p))
    assert info.bits == bits and abs(info.p_used - p) <= 2.0 ** -(bits + 1)
    q = np.ones((1, 64, 1, 8), np.float32)
    o = ordo.attention(q, q, q, dropout_p=p, seed=1)
    kept = ordo.dropout.export(ordo.Problem(q_len=64, head_dim=8, dropout=p), seed=1).sum(1)
    assert np.allclose(o[0, :, 0, 0], kept / 64 * info.scale, rtol=1e-5)


def test_few_bits_are_refused_where_they_are_given():
    for drop in (ordo.Dropout(p=0.001), ordo.Dropout(p=0.001, bits=8)):
        with pytest.raises(ordo.Error, match="keeps 256 of 256 with 8 bits"):
            ordo.Problem(q_len=1, head_dim=1, dropout=drop).check()


def test_a_known_answer_of_philox():
    """From the tests of Random123; tests/base has the others."""
    ones = 2**32 - 1
    made = dropout.philox4x32([ones] * 4, [ones] * 2, 10)
    assert made == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
