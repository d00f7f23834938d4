"""Calls of attention that a recorder saves: audits find them equal, whatever the call; what is drawn, and what is
not saved. CPU tensors have the bits of a GPU here."""

from __future__ import annotations

import json

import ordo
import pytest
import torch
from ordo import _pieces
from ordo.torch import _front as f
from test_recorder import WIDTH, Block
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setenv("ORDO_EMULATE", "h200")
    f.forget_plans()
    yield
    monkeypatch.undo()
    f.forget_plans()


def train(folder, first=0, steps=5, calls_every=2, **options):
    """Steps of a small model, the same whichever was the first."""
    torch.manual_seed(4)
    model = torch.nn.Sequential(Block(), Block(), Block()).bfloat16()
    options = dict(calls=folder / "calls", calls_every=calls_every, first=first, **options)
    with ordo.Recorder(folder / "run.jsonl", model, **options) as recorder:
        for step in range(first, steps):
            torch.manual_seed(step)
            loss = model(torch.randn(2, 70, WIDTH).bfloat16()).float().square().mean()
            model.zero_grad()
            loss.backward()
            recorder.step(step, loss)
    return {x.name: x.read_bytes() for x in (folder / "calls").iterdir()}


def lines(folder):
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()][1:]


def test_a_run_is_saved_and_audited(tmp_path, command):
    files = train(tmp_path)
    found = ordo.audit(tmp_path / "calls")
    assert found and found.units == 3 * 2 * (2 + 1 + 1), str(found)
    assert ordo.audit(tmp_path / "calls", sample=2).checked == 3 * 2
    saved = [x.get("call") for x in lines(tmp_path)]
    assert [x is not None for x in saved] == [True, False, True, False, True]
    assert sorted(files) == [x["file"] for x in saved if x]
    for call in filter(None, saved):
        data = files[call["file"]]
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        texts = header.pop("__metadata__")
        assert texts["ordo.inputs"] == "seed={} offset={}".format(*call["seed"])
        assert texts["ordo.digests"] == " ".join("=".join(pair) for pair in call["digests"].items())
        assert call["calls"] == 3 and 0 <= call["call"] < 3 and 0 <= call["key_head"] < 2
        assert list(header) == list(call["digests"])
        for name, digest in call["digests"].items():
            begin, end = header[name]["data_offsets"]
            tensor = torch.frombuffer(bytearray(data[start + begin : start + end]), dtype=torch.uint8)
            assert digest == f"{_pieces.of_arrays([tensor.numpy()])[0]:016x}", name


def test_a_wrong_result_is_no_damaged_file(tmp_path, command, monkeypatch):
    """A bit that was wrong on the device has its digest; one that changed later has not."""
    from ordo.run import _calls

    whole = _calls.Calls._saw

    def wrong(self, tensors, *more):
        tensors["dk"].view(torch.int16)[1, 40, 0, 3] ^= 1
        tensors["dk"].view(torch.int16)[1, 40, 1, 3] ^= 1
        whole(self, tensors, *more)

    monkeypatch.setattr(_calls.Calls, "_saw", wrong)
    files = train(tmp_path, steps=1)
    first = ordo.audit(tmp_path / "calls").first
    assert (first.tensor, first.sequence, first.row, first.column, first.damaged) == ("dk", 1, 40, 3, ())
    file = tmp_path / "calls" / next(iter(files))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert ordo.audit(tmp_path / "calls").first.damaged == ("dv",)


def test_what_is_drawn_is_a_function_of_seed_and_step(tmp_path):
    runs = {}
    for name, options in (("a", {}), ("b", {}), ("late", {"first": 8}), ("other", {"seed": 1})):
        (tmp_path / name).mkdir()
        runs[name] = train(tmp_path / name, steps=16, calls_every=1, **options)
    assert runs["a"] == runs["b"] and len(runs["a"]) == 16
    assert runs["late"] == {name: x for name, x in runs["a"].items() if name >= "step-000000008"}
    assert set(runs["other"]) != set(runs["a"])
    places = {name.partition("rank-0-")[2] for name in runs["a"]}
    assert len(places) == 6, "16 draws of 3 calls with 2 heads each"


def tensors(*shapes):
    return [torch.randn(shape).bfloat16().requires_grad_() for shape in shapes]


def packed():
    q, k, v = tensors((150, 4, 32), (150, 2, 32), (150, 2, 32))
    ends = torch.tensor([0, 100, 140], dtype=torch.int32)
    return ordo.flash_attn_varlen_func(q, k, v, ends, ends, 100, 100, causal=True)


def padded():
    q, k, v = tensors((2, 80, 4, 32), (2, 80, 2, 32), (2, 80, 2, 32))
    lengths = torch.tensor([80, 33], dtype=torch.int32)
    return ordo.torch.attention(q, k, v, q_lens=lengths, kv_lens=lengths, dropout_p=0.2, seed=2**63 + 1)[0]


def heads_first():
    q, k, v = (x.transpose(1, 2) for x in tensors((2, 90, 4, 32), (2, 90, 2, 32), (2, 90, 2, 32)))
    return torch.ops.ordo.forward(q, k, v, f.HEADS_FIRST | f.CAUSAL, 0.2, [])[0]


def sdpa():
    q, k, v = tensors((2, 4, 90, 32), (2, 4, 90, 32), (2, 4, 90, 32))
    ordo.torch.register()
    torch.nn.attention.activate_flash_attention_impl("ORDO")
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        o.square().sum().backward()
    finally:
        torch.nn.attention.restore_flash_attention_impl()
    return torch.zeros(1, requires_grad=True)


def rules():
    q, k, v = tensors((1, 90, 4, 32), (1, 90, 2, 32), (1, 90, 2, 32))
    (sink,) = tensors(4)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    o, lse = ordo.torch.attention(q, k, v, slopes=slopes, sink=sink.detach().float(), softcap=20.0)
    return o + lse.transpose(1, 2).unsqueeze(-1)  # a gradient of lse, too


def compiled():
    call = torch.compile(ordo.torch.attention, backend="aot_eager", fullgraph=True)
    return call(*tensors(*[(1, 90, 2, 32)] * 3), causal=True, dropout_p=0.2)[0]


def checkpointed():
    call = lambda *x: ordo.torch.attention(*x, dropout_p=0.2)[0]  # noqa: E731
    return checkpoint(call, *tensors(*[(1, 90, 2, 32)] * 3), use_reentrant=False)


CALLS = [packed, padded, heads_first, sdpa, rules, compiled, checkpointed]


@pytest.mark.parametrize("call", CALLS)
def test_every_kind_of_call(call, tmp_path, command):
    torch.manual_seed(6)
    with ordo.Recorder(tmp_path / "run.jsonl", calls=tmp_path / "calls", calls_every=1) as recorder:
        for step in range(2):
            (call().float() - 1).square().sum().backward()
            recorder.step(step)
    found = ordo.audit(tmp_path / "calls")
    assert found and len(list((tmp_path / "calls").iterdir())) == 2, str(found)
    names = next(x["call"]["digests"] for x in lines(tmp_path))
    assert {"q", "k", "v", "o", "lse", "dout", "dq", "dk", "dv"} <= set(names)
    assert ({"dlse", "slopes", "sink"} <= set(names)) is (call is rules)


def test_what_is_not_saved(tmp_path, monkeypatch):
    q, k, v = tensors((2, 8, 2, 16), (2, 8, 2, 16), (2, 8, 2, 16))
    ids = torch.tensor([5, 6])
    with ordo.Recorder(tmp_path / "run.jsonl", calls=tmp_path / "calls", calls_every=2) as recorder:
        with pytest.warns(UserWarning, match="with sequence_ids are not saved") as said:
            for _ in range(2):
                ordo.torch.attention(q, k, v, dropout_p=0.5, seed=1, sequence_ids=ids)[0].sum().backward()
        assert len(said) == 1
        recorder.step(0)
        ordo.torch.attention(q, k, v)[0].sum().backward()  # no step to be saved
        recorder.step(1)
        ordo.torch.attention(q, k, v)[0].sum().backward()
        recorder.step(4)  # another one than was expected
        monkeypatch.delenv("ORDO_EMULATE")
        f.forget_plans()
        recorder.step(5)
        with pytest.warns(UserWarning, match="of backend cpu are not saved"):
            ordo.torch.attention(q, k, v)[0].sum().backward()
        recorder.step(6)
    assert not any((tmp_path / "calls").iterdir()) and not any("call" in x for x in lines(tmp_path))


def test_what_it_refuses(tmp_path):
    path = tmp_path / "run.jsonl"
    for every, calls_every in ((2, 7), (1, 0)):
        with pytest.raises(ordo.Error, match=f"calls_every {calls_every}: expected a multiple of every, {every}"):
            ordo.Recorder(path, every=every, calls=tmp_path / "calls", calls_every=calls_every)
    assert not path.exists()
    with pytest.raises(ordo.Error, match="calls .*run.jsonl: File exists"):
        ordo.Recorder(path, calls=path)
    with pytest.raises(ordo.Error, match="expected a folder with .safetensors files"):
        ordo.audit(tmp_path)
