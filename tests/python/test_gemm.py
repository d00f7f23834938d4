"""ordo.gemm: rows alone and in batches, transpositions, sections, refusals."""

from __future__ import annotations

import numpy as np
import ordo
import pytest


def draw(seed, *shape, kind=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


def chain(a, b):
    """Products and sums of float32, each rounded, in ascending order of k."""
    sums = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        sums += a[:, k : k + 1].astype(np.float32) * b[k].astype(np.float32)
    return sums


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_an_element_is_one_chain(kind):
    a, b, bias = draw(1, 37, 53, kind=kind), draw(2, 53, 29, kind=kind), draw(3, 29)
    sums = chain(a, b)
    assert ordo.gemm(a, b).tobytes() == sums.astype(kind).tobytes()
    for x in (a, np.asfortranarray(a), np.pad(a, ((0, 0), (0, 3)))[:, :53], a[::-1][::-1]):
        for y in (b, np.ascontiguousarray(b.T).T, np.repeat(b, 2, axis=1)[:, ::2]):
            found = ordo.gemm(x, y, bias=bias, wide=True, threads=2)
            assert found.tobytes() == (sums + bias).tobytes()
    out = draw(4, 37, 29)
    expected = out + sums
    assert ordo.gemm(a, b, out=out, add=True) is out and out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("backend", ["cpu", "emulator"])
def test_rows_do_not_depend_on_the_batch(backend):
    a, b = draw(5, 70, 96, kind=np.float16), draw(6, 96, 40, kind=np.float16)
    whole = ordo.gemm(a, b, backend=backend)
    rng = np.random.default_rng(7)
    for count in (1, 1, 2, 63, 300):
        rows = rng.integers(0, 70, count)
        assert ordo.gemm(a[rows], b, backend=backend).tobytes() == whole[rows].tobytes()


@pytest.mark.parametrize("backend", ["cpu", "emulator"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_have_the_bits_of_sections(ranks, backend):
    a, b = draw(8, 5, 256, kind=np.float16), draw(9, 256, 7, kind=np.float16)
    whole = ordo.gemm(a, b, wide=True, sections=8, backend=backend)
    parts = [
        ordo.gemm(x, y, wide=True, sections=8 // ranks, backend=backend)
        for x, y in zip(np.split(a, ranks, axis=1), np.split(b, ranks))
    ]
    assert ordo.tree_sum(parts).tobytes() == whole.tobytes()
    assert whole.tobytes() != ordo.gemm(a, b, wide=True, backend=backend).tobytes()


def test_bits_of_bf16():
    one = np.full((2, 3), 0x3F80, np.uint16)
    assert (ordo.gemm(one, one.T, dtype="bf16", wide=True) == 3).all()
    assert (ordo.gemm(one, one.T, dtype="bf16") == 0x4040).all()


def test_bad_arrays_are_refused():
    a, b = draw(1, 4, 32), draw(2, 32, 6)
    for given, options, message in (
        ((a, b[:31]), {}, "b.shape (31, 6): expected (32, n)"),
        ((a[0], b), {}, "a.shape (32,): expected two axes"),
        ((a, b.astype(np.float16)), {}, "b.dtype float16: expected f32"),
        ((a.astype(np.float64), b), {}, "dtype float64"),
        ((a, b), {"sections": 3}, "sections 3: expected 1, 2, 4 or 8"),
        ((a, b), {"sections": 4}, "k 32: expected a multiple of 64"),
        ((a, b), {"add": True}, "out None: expected an array to add to"),
        ((a, b), {"out": np.empty((4, 5), np.float32)}, "out.shape (4, 5): expected (4, 6)"),
        ((a, b), {"out": a[:, :6]}, "out.strides"),
        ((a, b), {"bias": draw(3, 5)}, "bias.shape (5,): expected (6,)"),
        ((a, b), {"backend": "emulator"}, "dtype 0 (f32): backend emulator expects bf16 or f16"),
        ((a, b), {"backend": "cuda"}, "backend cuda: numpy arrays are in host memory"),
        ((a, b), {"threads": -1}, "threads -1"),
        ((a, b), {"dtype": "f64"}, "dtype 'f64'"),
        (([1.0], b), {}, "a list: expected a numpy array"),
    ):
        with pytest.raises(ordo.Error) as error:
            ordo.gemm(*given, **options)
        assert message in str(error.value)
