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
    "both": (PACKED, dict(cu=[0, 6], lens=[6]), "lens beside cu: expected one"),
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


# ---- the command's inputs, as cli/ makes them from a seed ----


def mix(x):
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def seeded(seed, tensor, sequence, rows, heads, dim):
    """Elements of one sequence: (rows, heads, dim) in float64."""
    with np.errstate(over="ignore"):
        key = mix(np.uint64(seed) ^ mix(np.uint64(tensor)))
        place = mix(key + np.uint64(sequence))
        for count in (rows, heads, dim):
            place = mix(place[..., None] + np.arange(count, dtype=np.uint64))
    total = sum((place >> np.uint64(16 * i) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
    return (total - 2 * 65535) * float.fromhex("0x1.bb67ae8584caap-16")


def run_command(command, options):
    said = subprocess.run(
        [command, "run", *options.split(), "--json"],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
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
def test_bits_are_the_commands(name, device, command):
    """The command and this package compute the same bits from the same seed."""
    options = f"{RUNS[name]} --device {device} --dim 32 --dropout 0.1 --seed 7 --offset 1"
    said = run_command(command, options)
    plan = ordo.Plan.parse(said["line"])
    p = plan.problem
    cu = [0, 20, 75] if name == "packed" else None
    lens = ([60, 33], [60, 41]) if name == "padded" else (None, None)

    def make(tensor, length, heads, dim):
        lengths = np.diff(cu) if cu else [length] * p.batch
        parts = [seeded(7, tensor, b, rows, heads, dim) for b, rows in enumerate(lengths)]
        values = np.concatenate(parts) if cu else np.stack(parts)
        if p.dtype == "bf16":
            return pytest.importorskip("ml_dtypes").bfloat16(values.astype(np.float32))
        return values.astype(np.float16 if p.dtype == "f16" else np.float32)

    q, k = make(1, p.q_len, p.heads, p.head_dim), make(2, p.kv_len, p.kv_heads, p.head_dim)
    v, dout = make(3, p.kv_len, p.kv_heads, p.v_head_dim), make(4, p.q_len, p.heads, p.v_head_dim)
    rest = dict(cu_q=cu, cu_kv=cu, q_lens=lens[0], kv_lens=lens[1], seed=7, offset=1)
    o, lse = ordo.forward(plan, q, k, v, **rest)
    dq, dk, dv = ordo.backward(plan, q, k, v, o, lse, dout, **rest)

    results = dict(o=o, lse=lse, dq=dq, dk=dk, dv=dv)
    valid = {name: lens[name in ("dk", "dv")] for name in results}
    mine = {name: ordo.digest(x, cu=cu, lens=valid[name]) for name, x in results.items()}
    assert mine == said["digests"]
    for b, expected in enumerate(said.get("sequences", [])):
        mine = {name: ordo.digest(x, cu=cu, sequence=b) for name, x in results.items()}
        assert mine == expected


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_files_to_the_command_and_back(dtype, command, tmp_path):
    """The command reads what numpy.save() wrote, and its results are ours, bit for bit."""
    usage = subprocess.run([command, "run", "--help"], capture_output=True, text=True, timeout=600)
    if "--out-dir" not in usage.stdout:
        pytest.skip("this command reads no files")
    fields = dict(batch=2, heads=4, kv_heads=2, q_len=60, head_dim=32, mask="causal", dropout=0.1)
    plan = ordo.Plan(ordo.Problem(**fields, dtype=dtype), backend="cpu")
    rng, arrays = np.random.default_rng(1), {}
    for name in ("q", "k", "v", "dout"):
        values = rng.standard_normal(plan._shapes[name], np.float32)
        arrays[name] = values.astype(np.float16 if dtype == "f16" else np.float32)
        if dtype == "bf16":
            arrays[name] = (values.view(np.uint32) >> 16).astype(np.uint16)
        np.save(tmp_path / f"{name}.npy", arrays[name])
    files = " ".join(f"--{name} {tmp_path / name}.npy" for name in arrays)
    rules = f"--dtype {dtype} --mask causal --dropout 0.1 --seed 3 --device cpu"
    run_command(command, f"{files} {rules} --out-dir {tmp_path / 'out'}")

    q, k, v, dout = arrays.values()
    o, lse = ordo.forward(plan, q, k, v, seed=3)
    grads = ordo.backward(plan, q, k, v, o, lse, dout, seed=3)
    for name, mine in zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads)):
        theirs = np.load(tmp_path / "out" / f"{name}.npy")
        assert theirs.dtype == mine.dtype and theirs.shape == mine.shape
        assert theirs.tobytes() == mine.tobytes(), name
