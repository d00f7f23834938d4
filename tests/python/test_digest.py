"""Digests: XXH64 against known values, and tensors against the command's own digests."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import ordo
import pytest
from ordo import _digest


@pytest.mark.parametrize(
    "data, value",
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_known_answers(data, value):
    assert _digest.xxh64(data) == value
    assert ordo.digest(np.frombuffer(data, np.uint8)) == f"{value:016x}"


def test_every_length_against_another_implementation():
    xxhash = pytest.importorskip("xxhash")
    data = np.random.default_rng(0).bytes((1 << 20) + 77)
    for size in (*range(100), len(data) - 1, len(data)):
        assert _digest.xxh64(data[:size]) == xxhash.xxh64_intdigest(data[:size])


def test_order_is_sequence_head_row_column(monkeypatch):
    tensor = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    flat = np.ascontiguousarray(tensor.swapaxes(1, 2)).reshape(-1)
    assert ordo.digest(tensor) == ordo.digest(flat)
    assert ordo.digest(tensor, sequence=1) == ordo.digest(flat[60:])
    assert ordo.digest(tensor[::-1]) != ordo.digest(tensor)
    assert ordo.digest(tensor.astype(">f4")) == ordo.digest(tensor)
    shorter = np.append(flat[:60], tensor[1, :2].swapaxes(0, 1))
    assert ordo.digest(tensor, lens=[3, 2]) == ordo.digest(shorter)
    monkeypatch.setattr(_digest, "xxhash", None)
    assert ordo.digest(tensor) == ordo.digest(flat)
    with pytest.raises(ordo.Error, match="sequence 2"):
        ordo.digest(tensor, sequence=2)


class Opaque:
    pass


FLAT = np.zeros(6, np.float32)
PACKED, PADDED = np.zeros((6, 2, 4), np.float32), np.zeros((2, 3, 2, 4), np.float32)

REFUSED = {
    "None": (None, {}, "array NoneType: expected an array or tensor of numbers"),
    "dict": ({"q": FLAT}, {}, "array dict: expected"),
    "object": (Opaque(), {}, "array Opaque: expected"),
    "text": ("abc", {}, "array str: expected"),
    "list with None": ([FLAT, None], {}, "array list: expected"),
    "ragged": ([[1.0], [1.0, 2.0]], {}, "array list: expected"),
    "too large": ([2**70], {}, "array list: expected"),
    "objects": (np.array([None, 1]), {}, "array.dtype object: expected"),
    "texts": (np.array(["a"]), {}, "array.dtype <U1: expected"),
    "records": (np.zeros(3, "f4,i4"), {}, "array.dtype [("),
    "void": (np.zeros(3, "V4"), {}, "array.dtype |V4: expected"),
    "dates": (np.zeros(3, "M8[s]"), {}, "array.dtype datetime64[s]: expected"),
    "long": (np.zeros(3, np.longdouble), {}, "expected numbers without padding bytes"),
    "masked": (np.ma.masked_array(FLAT, FLAT == 0), {}, "array MaskedArray: expected"),
    "negative": (PADDED, dict(lens=[-1, 3]), "lens[0] -1: expected 0..3"),
    "long lens": (PADDED, dict(lens=[3, 9]), "lens[1] 9: expected 0..3"),
    "lens of lse": (PACKED, dict(lens=[2] * 5 + [5]), "lens[5] 5: expected 0..4"),
    "one length": (PADDED, dict(lens=[3]), "lens.shape (1,): expected (2,)"),
    "real lens": (PADDED, dict(lens=[3.0, 3.0]), "lens.dtype float64: expected integers"),
    "masked lens": (PADDED, dict(lens=np.ma.masked_array([3, 3])), "lens MaskedArray"),
    "past the end": (PACKED, dict(cu=[0, 3, 100]), "cu[2] 100: expected 3..6"),
    "lse": (FLAT.reshape(2, 3), dict(cu=[0, 4]), "cu[1] 4: expected 0..3"),
    "late begin": (PACKED, dict(cu=[3, 1, 6]), "cu[0] 3: expected 0"),
    "decreasing": (PACKED, dict(cu=[0, 6, 3]), "cu[2] 3: expected 6..6"),
    "negative end": (PACKED, dict(cu=[0, -1, 6]), "cu[1] -1: expected 0..6"),
    "no ends": (PACKED, dict(cu=np.zeros(0, np.int32)), "cu.shape (0,): expected (1,)"),
    "one end": (PACKED, dict(cu=6), "cu.shape (): expected (1,)"),
    "wide end": (PACKED, dict(cu=[0, 2**32 + 3]), "expected numbers that fit int32"),
    "both": (PACKED, dict(cu=[0, 6], lens=[6]), "lens with cu: expected one"),
    "real sequence": (PADDED, dict(sequence=0.5), "sequence 0.5: expected an integer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_digest_is_refused(case):
    array, options, message = REFUSED[case]
    with pytest.raises(ordo.Error) as error:
        ordo.digest(array, **options)
    assert message in str(error.value)


def test_numbers_of_any_kind_and_ends_within_the_rows():
    for kind in "?bBhHiIlLefdFD":
        ones = np.ones(2, kind)
        assert ordo.digest(ones) == ordo.digest(np.frombuffer(ones.tobytes(), np.uint8))
    assert ordo.digest([1.5, 2.0]) == ordo.digest(np.array([1.5, 2.0]))
    packed = np.arange(48, dtype=np.float32).reshape(6, 2, 4)
    assert ordo.digest(packed, cu=[0, 2, 2, 5]) == ordo.digest(packed[:5], cu=[0, 2, 5])
    assert ordo.digest(packed[:0], cu=[0]) == ordo.digest(FLAT[:0])


# ---- and what the command prints ----


def run_command(command, options):
    call = [command, "run", *options.split(), "--json"]
    said = subprocess.run(call, capture_output=True, text=True, timeout=600)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


RUNS = {
    "dense": "--batch 2 --seq 70 --heads 4 --kv-heads 2 --mask causal",
    "packed": "--cu-seqlens 0,20,75 --heads 2 --sequences",
    "padded": "--batch 2 --seq 60 --q-lens 60,33 --kv-lens 60,41 --heads 2",
    "f16": "--seq 50 --heads 2 --dtype f16",
    "bf16": "--seq 50 --heads 2 --dtype bf16",
}


@pytest.mark.parametrize("device", ["ref", "cpu"])
@pytest.mark.parametrize("name", RUNS)
def test_bits_are_the_commands(name, device, command, tmp_path):
    """The command reads what numpy.save() wrote; its results and their digests are ours, bit for bit."""
    call = f"{RUNS[name]} --device {device} --dropout 0.1 --seed 7 --offset 1"
    p = ordo.Plan.parse(run_command(command, f"{call} --dim 32")["line"]).problem
    plan, rng, arrays = ordo.Plan(p, backend=device), np.random.default_rng(1), {}
    for name_of in ("q", "k", "v", "dout"):
        values = rng.standard_normal(plan._shapes[name_of], np.float32)
        arrays[name_of] = values.astype(np.float16 if p.dtype == "f16" else np.float32)
        if p.dtype == "bf16":
            arrays[name_of] = (values.view(np.uint32) >> 16).astype(np.uint16)
        np.save(tmp_path / f"{name_of}.npy", arrays[name_of])
    files = " ".join(f"--{x} {tmp_path / x}.npy" for x in arrays)
    said = run_command(command, f"{call} {files} --out-dir {tmp_path / 'out'}")
    cu = [0, 20, 75] if name == "packed" else None
    lens = ([60, 33], [60, 41]) if name == "padded" else (None, None)
    q, k, v, dout = arrays.values()
    rest = dict(cu_q=cu, cu_kv=cu, q_lens=lens[0], kv_lens=lens[1], seed=7, offset=1)
    o, lse = ordo.forward(plan, q, k, v, **rest)
    dq, dk, dv = ordo.backward(plan, q, k, v, o, lse, dout, **rest)

    results = dict(o=o, lse=lse, dq=dq, dk=dk, dv=dv)
    valid = {x: lens[x in ("dk", "dv")] for x in results}
    assert {x: ordo.digest(y, cu=cu, lens=valid[x]) for x, y in results.items()} == said["digests"]
    for b, expected in enumerate(said.get("sequences", [])):
        assert {x: ordo.digest(y, cu=cu, sequence=b) for x, y in results.items()} == expected
    for x, mine in results.items():
        theirs = np.load(tmp_path / "out" / f"{x}.npy")
        assert theirs.dtype == mine.dtype and theirs.shape == mine.shape
        assert theirs.tobytes() == mine.tobytes(), x
