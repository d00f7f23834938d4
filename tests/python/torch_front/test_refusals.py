"""What cannot be done raises Error, with the argument, its value and what was expected."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

Q = torch.zeros(2, 8, 4, 16)
KV = torch.zeros(2, 8, 2, 16)
ENDS = torch.tensor([0, 3, 8], dtype=torch.int32)
FLAT = torch.zeros(8, 4, 16)
NESTED = torch.nested.nested_tensor([FLAT[:3], FLAT[3:]])
JAGGED = torch.nested.nested_tensor([FLAT[:3], FLAT[3:]], layout=torch.jagged)

CASES = {
    "dtype": ((Q.double(),) * 3, {}, "argument", "q.dtype torch.float64: expected"),
    "mixed devices": ((Q, KV.to("meta"), KV), {}, "argument", "k.device meta: expected that of q"),
    "heads": ((Q, KV[:, :, [0, 0, 0]], KV[:, :, [0, 0, 0]]), {}, None, "kv_heads 3"),
    "NaN p": ((Q, KV, KV), dict(dropout_p=float("nan")), None, "dropout.p"),
    "no p, with a seed": ((Q, KV, KV), dict(dropout_p=None, seed=1), None, "dropout"),
    "p of 1": ((Q, KV, KV), dict(dropout_p=1.0, seed=1), None, "dropout.p"),
    "negative p": ((Q, KV, KV), dict(dropout_p=-0.1), None, "dropout.p"),
    "NaN scale": ((Q, KV, KV), dict(scale=float("nan")), None, "scale"),
    "softcap": ((Q, KV, KV), dict(softcap=-1.0), None, "softcap"),
    "window of floats": ((Q, KV, KV), dict(window=(2.0, 1)), "argument", "window"),
    "max_q between integers": ((FLAT,) * 3, dict(cu_q=ENDS, max_q=5.5), "argument", "max_q 5.5"),
    "rng": (
        (Q, KV, KV),
        dict(dropout_p=0.1, rng_state=torch.tensor([1, 2], dtype=torch.int32)),
        "argument",
        "rng.dtype torch.int32",
    ),
    "rng stride": (
        (Q, KV, KV),
        dict(dropout_p=0.1, rng_state=torch.tensor([1, 2, 3, 4])[::2]),
        "align",
        r"rng.stride \(2,\): expected a contiguous tensor",
    ),
    "ends stride": (
        (FLAT,) * 3,
        dict(cu_q=torch.tensor([0, 0, 3, 3, 8, 8], dtype=torch.int32)[::2], max_q=5),
        "align",
        r"cu_q.stride \(2,\): expected a contiguous tensor",
    ),
    "rng device": (
        (Q, KV, KV),
        dict(dropout_p=0.1, rng_state=torch.tensor([1, 2], device="meta")),
        "argument",
        "rng.device meta: expected that of q, cpu",
    ),
    "offset": ((Q, KV, KV), dict(dropout_p=0.1, seed=(1, 2**32)), "argument", "offset 4294967296"),
    "seeds": ((Q, KV, KV), dict(dropout_p=0.1, seed=-1), "argument", "seed -1: expected"),
    "keying": ((Q, KV, KV), dict(dropout_p=0.1, seed=1, keying="x"), "argument", "keying 'x'"),
    "max_kv alone": (
        (Q, KV, KV),
        dict(max_kv=8, q_lens=torch.tensor([8, 8])),
        "argument",
        "max_kv given, cu_q None: expected cu_q beside max_kv",
    ),
    "ends": ((FLAT,) * 3, dict(cu_q=ENDS + 1, max_q=5), "shape", r"cu_q\[0\] 1: expected 0"),
    "no head size": (
        (Q[..., :0], KV[..., :0], KV[..., :0]),
        {},
        "argument",
        "head_dim 0: expected 1..",
    ),
    "no tensor": (([0.0], KV, KV), {}, "argument", r"q \[0.0\]: expected a tensor"),
    "NumPy array": ((Q.numpy(), KV, KV), {}, "argument", "q of type ndarray: expected a tensor$"),
    "no k": ((Q, None, KV), {}, "argument", "k None: expected a tensor"),
    "list of ends": ((FLAT,) * 3, dict(cu_q=[0, 3, 8]), "argument", r"cu_q \[0, 3, 8\]: expected"),
    "NumPy lengths": (
        (FLAT,) * 3,
        dict(cu_q=ENDS, q_lens=ENDS.diff().numpy()),
        "argument",
        "q_lens array.*: expected a tensor",
    ),
    "list of slopes": ((Q, KV, KV), dict(slopes=[0.5] * 4), "argument", "slopes .* a tensor"),
    "list as rng": (
        (Q, KV, KV),
        dict(dropout_p=0.1, rng_state=[1, 2]),
        "argument",
        r"rng_state \[1, 2\]: expected a tensor",
    ),
    "jagged": ((JAGGED,) * 3, {}, "unsupported", "q.is_nested True: expected .* cu_q and cu_kv"),
    "sparse queries": ((Q.to_sparse(), KV, KV), {}, "unsupported", "q.layout.*: expected torch.strided"),
    "sparse keys": (
        (Q, KV.to_sparse(), KV),
        {},
        "unsupported",
        "k.layout.*: expected torch.strided",
    ),
    "mkldnn values": ((Q, KV, KV.to_mkldnn()), {}, "unsupported", "v.layout.*: expected torch.strided"),
    "sparse slopes": (
        (Q, KV, KV),
        dict(slopes=torch.ones(4).to_sparse()),
        "unsupported",
        "slopes.layout torch.sparse_coo",
    ),
    "ids": (
        (Q, KV, KV),
        dict(dropout_p=0.1, seed=1, sequence_ids=torch.tensor([0, -1])),
        "argument",
        r"sequence_ids\[1\] -1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    tensors, keywords, status, message = CASES[case]
    with pytest.raises(ordo.Error, match=message) as caught:
        ordo.torch.attention(*tensors, **keywords)
    assert status is None or caught.value.status == status


def test_refused_however_often_a_call_like_it_was_made():
    for _ in range(2):
        ordo.torch.attention(Q, KV, KV, dropout_p=0.1, seed=1)
    for case in ("rng", "rng stride", "rng device", "offset", "seeds"):
        test_refused(case)


def test_a_window_of_floats_is_refused_after_one_of_integers():
    import numpy as np

    lengths = dict(q_lens=torch.tensor([8, 8], dtype=torch.int32))
    lengths["kv_lens"] = lengths["q_lens"]
    for rest in (dict(), lengths, dict(slopes=torch.ones(4))):
        for _ in range(2):
            ordo.torch.attention(Q, KV, KV, window=(2, 1), **rest)
        for window in ((2.0, 1), (np.float32(2), 1), (2, 1.0)):
            with pytest.raises(ordo.Error, match="window"):
                ordo.torch.attention(Q, KV, KV, window=window, **rest)


def test_no_head_size_of_sdpa_is_refused_by_name():
    from ordo.torch._sdpa import _cpu_forward

    q = torch.zeros(2, 4, 8, 0)
    with pytest.raises(RuntimeError, match="head_dim 0: expected"):
        _cpu_forward(q, q, q)


def test_sparse_tensors_are_refused_where_a_dense_call_like_it_was_made(capfd):
    for _ in range(2):
        ordo.torch.attention(Q, KV, KV)
    for case in ("sparse queries", "sparse keys", "mkldnn values"):
        test_refused(case)
    assert "aoti_torch" not in capfd.readouterr().err  # what PyTorch says of a tensor without address


def test_refused_in_a_graph():
    whole = torch.compile(ordo.torch.attention, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="head size of q"):
        whole(Q, KV[..., :8], KV)


def test_float32_on_cuda_says_what_to_do():
    with FakeTensorMode():
        q = torch.empty(2, 8, 4, 16, device="cuda")
        with pytest.raises(ordo.Error, match="float32 on CUDA: .*autocast.*to.torch.bfloat16"):
            ordo.torch.attention(q, q, q)
        half = q.to(torch.bfloat16)
        assert ordo.torch.attention(half, half, half)[0].shape == q.shape


def test_gradients_of_another_shape_are_refused():
    o, lse = ordo.torch.attention(Q, KV, KV)
    for dout, dlse, message in (
        (o[:1], None, r"q.shape .*: expected"),
        (o.half(), None, "q.dtype"),
        (o, lse[:1], "dlse.shape"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.ordo.backward(dout, dlse, Q, KV, KV, o, lse, 0, 0.25, [])


def test_a_machine_for_a_device(monkeypatch):
    from ordo.torch._plans import machine_of

    machine_of.cache_clear()
    monkeypatch.setenv("ORDO_MACHINE", "h800")
    assert machine_of(0).name == "h800"
    machine_of.cache_clear()
    monkeypatch.delenv("ORDO_MACHINE")
    if not ordo.backend_available("cuda"):
        with pytest.raises(ordo.Error, match="CUDA"):
            machine_of(0)
