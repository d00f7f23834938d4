"""`bench/gpu/run block_h200` with real blocks: small ones on the CPU, by the functions that an H200
runs."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "bench")]
import pretend  # noqa: E402


@pytest.fixture
def bench(monkeypatch):
    made = pretend.driver.table_of("block_h200")
    made.block_run.load()
    monkeypatch.setattr(made, "SHAPES", [(2048, 4096)])
    monkeypatch.setitem(made.block_run.SIZES, "cpu", (256, 16))
    return made


def test_rehearsal(bench, tmp_path):
    out = tmp_path / "cpu.json"
    words = ("--device", "cpu", "--no-build", "--json", str(out), "--rounds", "1", "--rep", "2")
    code, text = pretend.run("block_h200", *words, "--rows", "^(figure|targets|interference)")
    assert code == 0, text
    rows = json.loads(out.read_text())["rows"]
    of = {group: [row for row in rows if row["group"] == group] for group in ("figure", "targets")}
    bf16, fp8 = of["figure"]
    assert set(bf16["ms"]) == set(bench.FUSING) and all(ms > 0 for ms in bf16["ms"].values())
    digests = {mode["mode"]: mode["digest_o"] for mode in bf16["digests"]}
    assert len(set(digests.values())) == 2 and digests["none"] != digests["fused"], digests
    assert "fp8" in fp8["refused"]["block"] and not fp8["ms"]
    for row in of["targets"]:
        assert set(row["ms"]) == set(bench.block_run.MODES), row
        assert set(row["digests"][0]) == {"mode", "digest_o", "digest_dx", "digest_dw"}
    others = [row for row in rows if row["group"] == "interference"]
    assert others and all(row["refused"] for row in others)  # cuda alone has it
    code, text = pretend.run(
        "block_h200", "--device", "cpu", "--model", str(tmp_path / "rows.json")
    )
    assert code == 2 and "times of a CPU are none of a GPU" in text, text


ON_FAKES = """
import sys
sys.path[:0] = [sys.argv[1]]
import pretend
bench = pretend.driver.table_of("block_h200")
bench.SHAPES = [(4096, 4096)] if sys.argv[4] == "16" else [(512, 4096)]
bench.block_run.SIZES["cuda"] = (4096 // int(sys.argv[4]), int(sys.argv[4]))
pretend.driver.need_device = lambda: None
code, text = pretend.run("block_h200", "--no-build", "--rounds", "1", "--rep", "1", "--json", sys.argv[2],
                         "--model", sys.argv[3], "--rows", sys.argv[5])
print(text)
sys.exit(code)
"""


PRETENDED = [  # attention makes bits of the paper's generator inside at head size 128 alone
    ("16", "^(figure:|figure13:.*sliced|targets|pipelined|interference)", {"bf16", "fp8"}),
    ("128", "^(figure13:.*compare|paper: .*bf16 compare 3)", {"bf16"}),
]


@pytest.mark.parametrize("dim, wanted, precisions", PRETENDED)
def test_groups_on_modules_that_pretend(tmp_path, dim, wanted, precisions):
    """All that an H200 runs but its kernels: tests/api/fake_module.c computes on the host."""
    modules = {"api/fake_module.so": "libordo_cuda.so"}
    modules |= {"lab/block/block_module.so": "libordo_lab_cuda.so"}
    for made, name in modules.items():
        if not (ROOT / "build" / "tests" / made).exists():
            pytest.skip(f"no build/tests/{made}")
        shutil.copy(ROOT / "build" / "tests" / made, tmp_path / name)
    out, rows = tmp_path / "out.json", tmp_path / "rows.json"
    env = {"ORDO_CUDA_MODULE": str(tmp_path / "libordo_cuda.so"), "FAKE_ATTENTION": "1"}
    words = [str(ROOT / "tests" / "bench"), str(out), str(rows), dim, wanted]
    done = subprocess.run(
        [sys.executable, "-c", ON_FAKES, *words],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    bench = pretend.driver.table_of("block_h200")
    for row in json.loads(out.read_text())["rows"]:
        assert not row["refused"], row
        if row["group"] == "targets":
            assert all(
                each[1] > 0 for mode, each in bench.costs(row).items() if mode == "sequential"
            )
        if row["group"] == "figure13":
            assert row["figures"]["fused"] > 0 and row["figures"]["overlapped"] > 0
        if row["group"] == "interference":
            assert "inside" in row["trace"] and row["figures"]["product"] > 0
    measured = json.loads(rows.read_text())["results"]
    assert {row["precision"] for row in measured} == precisions
    assert {row["generator"] for row in measured} == {"sliced" if dim == "16" else "compare"}
    part = [row for row in measured if row["kernel"] == "part"]
    assert {row["placement"] for row in part} == set(bench.PLACEMENTS)


def test_joules_follow_from_the_steps_of_the_counter(bench):
    """A board of 200 W, whose counter steps every 20 ms."""
    energy = bench.board.Energy.__new__(bench.board.Energy)
    energy.joules = lambda: int(time.monotonic() * 50) * 4.0
    with bench.block_run.Block(bench.row("joules", 2048, 4096), "cpu") as block:
        said = block.joules(0.3, "fused", energy)
    assert 180 < said["watts"] < 220, said
    assert said["joules"] == said["watts"] * said["ms"] * 1e-3
    energy.joules = lambda: 1.0
    with pytest.raises(RuntimeError, match="fewer than two steps"):
        energy.watts(lambda: None)


def test_digests_that_differ_are_found(bench):
    """The mode fused, pretended by one without dropout."""
    run = bench.block_run
    what = bench.row("figure", 2048, 4096, modes=["none", "sequential", "fused"])
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
    with run.Block(bench.row("figure", 2048, 4096), "cpu") as block:
        beside = block.interference(1.0)
        assert beside["product_ms"] == 1 and beside["backward_dropping_ms"] == 11
        assert beside["bits_slowdown"] == 1 and beside["hidden"] == (5 - 6) / 2, beside
        assert beside["algorithm"] == "algorithm 1"
        same = True
        assert block.trace()["inside"] == 0.25 and block.trace()["active_warps"][3] == 7
        same = False
        with pytest.raises(run.Wrong, match="other keep bits"):
            block.trace()
