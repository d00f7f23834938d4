"""bench/gpu/block_h200 with real blocks: small ones on the CPU, by the functions that an H200 runs."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]
import pretend  # noqa: E402


@pytest.fixture
def bench(monkeypatch):
    made = pretend.load("block_h200")
    made.block_run.load()
    monkeypatch.setattr(made, "SHAPES", [(2048, 4096)])
    monkeypatch.setattr(made, "PARTS", dict.fromkeys(made.PARTS, (0.002, 0.002)))
    monkeypatch.setattr(made.h200, "smi", lambda fields: "none")
    return made


def test_rehearsal(bench, tmp_path):
    out, rows = tmp_path / "cpu.json", tmp_path / "rows.json"
    words = ("--device", "cpu", "--no-build", "--json", str(out), "--rows", str(rows))
    parts = ("--only", "figure", "--only", "targets", "--only", "interference")
    code, text = pretend.run(bench, *words, *parts)
    assert code == 0, text
    results = json.loads(out.read_text())["results"]
    bf16, fp8 = results["figure"]
    assert set(bf16["ms"]) == set(bench.FUSING) and all(ms > 0 for ms in bf16["ms"].values())
    digests = {mode["mode"]: mode["digest_o"] for mode in bf16["said"]["modes"]}
    assert len(set(digests.values())) == 2 and digests["none"] != digests["fused"], digests
    assert "fp8" in fp8["said"]["refused"] and not fp8["ms"]
    for made in results["targets"]:
        assert set(made["ms"]) == set(bench.block_run.MODES), made
        assert set(made["said"]["modes"][0]) == {"mode", "digest_o", "digest_dx", "digest_dw"}
        assert len(made["turns"]) == bench.TURNS
    assert all("refused" in made["said"] for made in results["interference"])  # cuda alone has it
    assert not rows.exists()  # times of a CPU are no rows of an H200


def test_digests_that_differ_are_found(bench):
    """The mode fused, pretended by one without dropout."""
    run = bench.block_run
    what = bench.row(2048, 4096, modes=["none", "sequential", "fused"])
    with run.Block(what, "cpu") as block:
        assert [mode["mode"] for mode in block.digests()] == what["modes"]
        block.modes["fused"] = block.modes["none"]
        with pytest.raises(run.Wrong, match="depend on the dropout mode"):
            block.digests()


def test_interference_and_trace_have_the_names_of_the_command(bench, monkeypatch):
    """Only a device measures them: here the library's functions fill in numbers."""
    run = bench.block_run

    def interfere(runner, seconds, at):
        for place, (name, kind) in enumerate(at._obj._fields_[:-1]):
            setattr(at._obj, name, 1e-3 * (place + 1))
        at._obj.algorithm = b"algorithm 1"

    def trace(runner, at):
        at._obj.inside, at._obj.same_words = 0.25, same
        at._obj.active[3] = 7.0

    monkeypatch.setattr(run.lib, "ordo_block_interfere", interfere)
    monkeypatch.setattr(run.lib, "ordo_block_trace_run", trace)
    with run.Block(bench.row(2048, 4096), "cpu") as block:
        beside = block.interference(1.0)
        assert beside["product_ms"] == 1 and beside["backward_dropping_ms"] == 11
        assert beside["mask_slowdown"] == 1 and beside["hidden"] == (5 - 6) / 2, beside
        assert beside["algorithm"] == "algorithm 1"
        same = True
        assert block.trace()["inside"] == 0.25 and block.trace()["active_warps"][3] == 7
        same = False
        with pytest.raises(run.Wrong, match="other keep bits"):
            block.trace()
