"""ordo.digest and ordo.Recorder of tensors: any type and view, and refusals by name."""

from __future__ import annotations

import numpy as np
import ordo
import pytest
import torch

ONES = torch.ones(4)


def nested():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def quantized():
    return torch.quantize_per_tensor(ONES, 0.1, 0, torch.qint8)


REFUSED = {
    "sparse": (torch.eye(2).to_sparse_csr, "layout torch.sparse_csr: expected torch.strided"),
    "mkldnn": (ONES.to_mkldnn, "layout torch._mkldnn: expected torch.strided"),
    "meta": (lambda: ONES.to("meta"), "device meta: expected a device with memory"),
    "quantized": (quantized, "dtype torch.qint8: expected one that is not quantized"),
    "nested": (nested, "nested tensor: expected a dense one"),
}


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of formats that are to go
@pytest.mark.parametrize("case", REFUSED)
def test_tensors_without_elements_are_refused(case, tmp_path):
    make, message = REFUSED[case]
    with pytest.raises(ordo.Error, match=message):
        ordo.digest(make())
    with ordo.Recorder(tmp_path / "run.jsonl") as recorder:
        with pytest.raises(ordo.Error, match=r"gradients\['a'\].*" + message):
            recorder.step(0, gradients={"a": make()})


def test_sparse_gradients_have_no_digest():
    with pytest.raises(ordo.Error, match=r"array.layout torch.sparse_coo: .*array.to_dense\(\)"):
        ordo.digest(torch.eye(2).to_sparse())


def test_a_tensor_inside_vmap_is_refused():
    with pytest.raises(ordo.Error, match="array Tensor: expected a tensor that NumPy can read"):
        torch.vmap(lambda x: (ordo.digest(x), x)[1])(torch.ones(3, 2))


TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "complex32", "complex64", "complex128")


@pytest.mark.filterwarnings("ignore")  # complex32 is experimental
@pytest.mark.parametrize("name", TYPES)
def test_types_that_numpy_lacks(name):
    x = torch.arange(-3.0, 3.0).to(getattr(torch, name))
    expected = np.frombuffer(bytes(x.contiguous().untyped_storage()), np.uint8)
    assert ordo.digest(x) == ordo.digest(expected)


def test_views_that_leave_signs_to_be_done(tmp_path):
    x = torch.arange(1.0, 7.0)
    z = torch.complex(x, x)
    views = {"negative": torch._neg_view(x), "bf16": torch._neg_view(x.bfloat16()),
             "conjugate": z.conj(), "imaginary": z.conj().imag}  # fmt: skip
    plain = {"negative": -x, "bf16": -x.bfloat16(), "conjugate": torch.complex(x, -x),
             "imaginary": -x}  # fmt: skip
    for name in views:
        assert ordo.digest(views[name]) == ordo.digest(plain[name]), name
    with ordo.Recorder(tmp_path / "run.jsonl") as recorder:
        recorder.step(0, gradients=views)
    with ordo.Recorder(tmp_path / "plain.jsonl") as recorder:
        recorder.step(0, gradients=plain)
    assert ordo.compare(tmp_path / "run.jsonl", tmp_path / "plain.jsonl")


def test_arrays_beside_tensors(tmp_path):
    """Byte order does not count, whatever else is recorded in the step."""
    for name, kind in (("a", "<f4"), ("b", ">f4")):
        with ordo.Recorder(tmp_path / name) as recorder:
            arrays = {"array": np.arange(5).astype(kind), "tensor": ONES}
            recorder.step(0, gradients=arrays)
    assert ordo.compare(tmp_path / "a", tmp_path / "b")


def test_lengths_may_be_tensors():
    packed = torch.randn(6, 2, 4)
    ends, lens = torch.tensor([0, 2, 5]), torch.tensor([3, 1], dtype=torch.int32)
    assert ordo.digest(packed, cu=ends) == ordo.digest(packed.numpy(), cu=[0, 2, 5])
    padded = torch.randn(2, 3, 2, 4)
    assert ordo.digest(padded, lens=lens) == ordo.digest(padded.numpy(), lens=[3, 1])

