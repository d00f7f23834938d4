"""ordo.save_call(): files that an audit takes, whole passes and single key heads. The emulator
computes them with the bits of a GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ordo

PROBLEM = dict(q_len=150, head_dim=64, heads=4, kv_heads=2, mask="causal")
FEATURES = {
    "dense": dict(batch=2, dropout=0.1, dtype="bf16"),
    "padded": dict(batch=2, layout="padded", softcap=20.0, dtype="f16"),
    "packed": dict(batch=2, layout="packed", total_q=210, total_kv=210, alibi=True, dtype="bf16"),
    "shard": dict(dropout=0.2, dtype="f16", shard=ordo.Shard(head0=4, heads_total=12)),
    "by heads": dict(batch=2, dtype="f16"),
}
ORDERS = {"by heads": "symmetric"}  # chains whose walk depends on the head


def run(kind):
    """A plan, what a pass of it read and computed, and the keywords of save_call()."""
    problem = ordo.Problem(**PROBLEM, **FEATURES[kind])
    plan = ordo.Plan(problem, "h200", backend="emulator", order=ORDERS.get(kind, "default"))
    p = plan.problem
    random = np.random.default_rng(7)

    def made(name):
        x = random.standard_normal(plan._shapes[name]).astype(np.float32)
        return (x.view(np.uint32) >> 16).astype(np.uint16) if p.dtype == "bf16" else x.astype(np.float16)

    words = {"seed": 5, "offset": 3}
    lengths = {"padded": {"q_lens": [150, 70], "kv_lens": [150, 90]},
               "packed": {"cu_q": [0, 150, 205], "cu_kv": [0, 150, 205]}}.get(p.layout, {})  # fmt: skip
    heads = {"slopes": np.array([0.5, 0.25, 0.125, 0.0625], np.float32)} if p.alibi else {}
    heads["sink"] = random.standard_normal(4).astype(np.float32)
    q, k, v, dout = made("q"), made("k"), made("v"), made("dout")
    dlse = random.standard_normal(plan._shapes["lse"]).astype(np.float32)
    parts = np.empty((p.batch, 4), np.float32)
    o, lse = ordo.forward(plan, q, k, v, **heads, **lengths, **words)
    dq, dk, dv = ordo.backward(
        plan, q, k, v, o, lse, dout, dlse=dlse, dsink_parts=parts, **heads, **lengths, **words
    )
    tensors = dict(q=q, k=k, v=v, o=o, lse=lse, dout=dout, dlse=dlse, dq=dq, dk=dk, dv=dv, dsink=parts)
    return plan, {**tensors, **heads}, {**lengths, **words}


@pytest.mark.parametrize("kind", FEATURES)
def test_an_audit_takes_it(kind, tmp_path, command):
    plan, tensors, words = run(kind)
    path = tmp_path / "call.safetensors"
    ordo.save_call(path, plan, tensors, **words)
    found = ordo.audit(path)
    assert found and found.key == plan.info.numeric_key
    wrong = tensors["dk"].copy()
    wrong.reshape(-1).view(np.uint16)[12345] ^= 1
    ordo.save_call(path, plan, {**tensors, "dk": wrong}, **words)
    assert ordo.audit(path).first.tensor == "dk"


@pytest.mark.parametrize("kind", FEATURES)
def test_one_key_head(kind, tmp_path, command):
    """A part has the bits of the whole; what is wrong in it is found, and what is beside it is not."""
    plan, tensors, words = run(kind)
    path = tmp_path / "part.safetensors"
    whole = tmp_path / "whole.safetensors"
    ordo.save_call(whole, plan, tensors, **words)
    for head in range(2):
        ordo.save_call(path, plan, tensors, key_head=head, **words)
        found = ordo.audit(path)
        assert found and found.key == plan.info.numeric_key
        assert found.units < ordo.audit(whole).units
    wrong = tensors["dv"].copy()
    wrong[..., 5, 1, 9] = wrong[..., 5, 1, 9] * 0 + 1
    for head, equal in ((0, True), (1, False)):
        ordo.save_call(path, plan, {**tensors, "dv": wrong}, key_head=head, **words)
        assert ordo.audit(path).equal is equal


def test_the_forward_pass_alone(tmp_path, command):
    plan, tensors, words = run("dense")
    some = {name: tensors[name] for name in ("q", "k", "v", "o", "lse", "sink")}
    ordo.save_call(tmp_path / "o.safetensors", plan, some, **words)
    assert ordo.audit(tmp_path / "o.safetensors").units == 2 * 4 * 3


def test_what_is_in_the_file(tmp_path):
    plan, tensors, words = run("packed")
    path = tmp_path / "call.safetensors"
    ordo.save_call(path, plan, tensors, **words)
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    assert header.pop("__metadata__") == {
        "ordo.plan": plan.line,
        "ordo.inputs": "seed=5 offset=3 cu-seqlens=0,150,205 cu-seqlens-kv=0,150,205",
    }
    assert list(header) == list(tensors)
    for name, x in tensors.items():
        first, end = header[name]["data_offsets"]
        assert header[name]["shape"] == list(x.shape)
        assert data[start + first : start + end] == x.tobytes()
    assert [x.name for x in tmp_path.iterdir()] == ["call.safetensors"]


def test_what_it_refuses(tmp_path):
    plan, tensors, words = run("dense")
    path = tmp_path / "x.safetensors"

    def refused(status, text, plan=plan, change=None, **more):
        with pytest.raises(ordo.Error, match=text) as error:
            ordo.save_call(path, plan, {**tensors, **(change or {})}, **{**words, **more})
        assert error.value.status == status
        assert not path.exists()

    cpu = ordo.Plan(plan.problem.replace(dtype="bf16"), backend="cpu")
    refused("unsupported", "backend cpu: an audit expects", plan=cpu)
    refused("argument", "expected the names q o dout", change={"dQ": tensors["dq"]})
    refused("shape", "dq.shape", change={"dq": tensors["dq"][:1]})
    refused("argument", "lse.dtype float64", change={"lse": tensors["lse"].astype(np.float64)})
    refused("argument", "q.dtype float32", change={"q": tensors["q"].astype(np.float32)})
    refused("argument", "key_head 2: expected 0..1", key_head=2)
    refused("argument", "seed -1", seed=-1)
    refused("argument", "expected none but those of layout dense", q_lens=[1, 2])
    blocks = plan.problem.replace(blocks=ordo.BlockLimits(entries=9), dropout=0.0)
    refused("unsupported", "block mask", plan=ordo.Plan(blocks, "h200", backend="emulator"))
    sizes = {"layout": "padded", "paging": ordo.Paging(page_rows=16, pages=99, table_columns=99), "dropout": 0.0}
    pages = ordo.Plan(plan.problem.replace(**sizes), "h200", backend="emulator")
    refused("unsupported", "a plan with pages: the file has no place", plan=pages)
    with pytest.raises(ordo.Error, match="no lse"):
        ordo.save_call(path, plan, {name: tensors[name] for name in "qkvo"}, **words)
    with pytest.raises(ordo.Error, match="No such file") as error:
        ordo.save_call(tmp_path / "none" / "x.safetensors", plan, tensors, **words)
    assert error.value.status == "file"
    padded, other, _ = run("padded")
    with pytest.raises(ordo.Error, match="q-lens None"):
        ordo.save_call(path, padded, other)
