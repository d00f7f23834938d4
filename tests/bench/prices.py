"""bench/gpu/prices_h200 without a GPU: passes that pretend to take what the model says, by a factor
that depends on the kind. `ordo model validate --hold-out` must find the factors."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pretend
from pretend import Error, Pass, run

bench = pretend.load("prices_h200")
ORDO = sys.argv[1]
FACTORS = {"none": 1.25, "given": 1.5, "made": 0.8}


class Ours(Pass):
    def __init__(self, shape, given, bits=None) -> None:
        if shape.dim == 96 and shape.p and not bits:
            raise Error("head_dim 96: no keep bits are made inside")
        if shape.dim == 256:
            raise RuntimeError("an illegal memory access\nand more")
        super().__init__(1.0)


class Bits(Pass):
    def __init__(self, problem, shape) -> None:
        super().__init__(1.0)

    def make(self):
        return 0.25


def validate(file, *words):
    command = [ORDO, "model", "validate", str(file), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_fit(folder: Path) -> None:
    out = folder / "rows.json"
    code, text = run(bench, "--no-build", "--out", str(out), "--dims", "64", "96", "128", "192")
    made = json.loads(out.read_text())
    rows = made["results"]
    assert code == 0 and made["refused"] == {
        "head size 96, keep made": "head_dim 96: no keep bits are made inside"
    }, text
    assert len(rows) == 10 * (4 * 6 - 2) + 5, len(rows)  # and keep bits by themselves
    assert "refused: head size 96, keep made" in text
    bits = [row for row in rows if row["kernel"] == "rng"]
    assert [row["batch"] * row["seq"] for row in bits] == [bench.TOKENS] * 5, bits
    assert len(pretend.settled) == 4 * 10 + 5, len(pretend.settled)  # each shape, and keep bits
    code, said, _ = validate(out)
    assert code == 0 and len(said["rows"]) == len(rows)
    for row, predicted in zip(rows, said["rows"]):
        factor = FACTORS[row["keep"]] if row["kernel"] != "rng" else 1
        row["seconds"] = factor * predicted["predicted_seconds"]
    out.write_text(json.dumps(made))
    code, said, errors = validate(out, "--hold-out", "--most", "1")
    assert code == 0, errors
    kinds = {each["kind"]: each for each in said["hold_out"]}
    command = [ORDO, "model", "constants", "--machine", "h200", "--json"]
    stated = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    now = {each["name"]: each["value"] for each in stated["constants"]}
    assert len(kinds) == 4 * 6 - 2 + 1, sorted(kinds)
    for name, kind in kinds.items():
        expected = FACTORS.get(name.split("_")[-1].replace("plain", "none"))
        assert name == "rng" or abs(kind["constant"] / expected / now[name] - 1) < 0.01, kind
        if name != "rng" and now[f"{name}_start"] > 0:
            assert abs(kind["start_ns"] / expected / now[f"{name}_start"] - 1) < 0.05, kind
        assert kind["mean"] < 0.01 and kind["fitted"] + kind["held_out"] == (5 if name == "rng" else 10)
    assert kinds["forward_192_given"]["mean_before"] > 0.3


def test_faults_and_limits(folder: Path) -> None:
    out = folder / "rows.json"
    code, text = run(bench, "--no-build", "--out", str(out), "--dims", "128", "256", "--seqs", "1024")
    assert code == 1 and "FAULT" in text and "illegal memory access" in text, text
    assert {row.get("head_dim", 128) for row in json.loads(out.read_text())["results"]} == {128}
    code, text = run(bench, "--no-build", "--out", str(out), "--limit", "0")
    assert code == 1 and "60 shapes were not begun" in text, text
    begun = 0

    def limited(case, *rest):  # the clock stops after eleven shapes: every kind has been measured
        nonlocal begun
        begun += 1
        return [{"kernel": "attention", **case}]

    real, clock = bench.measure, bench.time.monotonic
    bench.measure, bench.time.monotonic = limited, lambda: 10.0 * begun
    code, text = run(bench, "--no-build", "--out", str(out), "--limit", "115")
    bench.measure, bench.time.monotonic = real, clock
    assert code == 0 and "48 shapes were not begun" in text, text
    rows = json.loads(out.read_text())["results"]
    assert {(row["head_dim"], row["causal"]) for row in rows} == {
        (dim, causal) for dim in bench.DIMS for causal in (False, True)
    }
    assert run(bench, "--rounds", "0")[0] == 2 and run(bench, "--dims", "80")[0] == 2


pretend.start(bench.h200, Ours=Ours, Bits=Bits, problem_of=lambda shape: shape)
with tempfile.TemporaryDirectory() as name:
    test_fit(Path(name))
    test_faults_and_limits(Path(name))
print("passed")
