"""tests/bench/phase_long.sh: bench/gpu/phase_h200 without PyTorch, without a GPU."""

import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pretend
from pretend import Pass, run

bench = pretend.load("phase_h200")
COMMAND = sys.argv[1]


def torch_pass(shape, given, backend, deterministic):
    assert deterministic
    if backend == "FLASH_ATTENTION":
        raise RuntimeError("flash takes no such head\nand more")
    return Pass(90.0 if backend == "MATH" else 50.0)


# ---- tests ----


def test_rows():
    rows = bench.cases(False)
    assert all(row["dim"] > 256 for row in rows)
    assert {row["seq"] for row in rows if row["dim"] == 512} == {4096, 8192, 16384, 131072}
    assert [row["name"] for row in bench.cases(True)] == ["8192 512 full", "8192 512 causal"]


def test_bars_are_scaled_by_the_product():
    row = {**bench.cases(True)[0], "figures": {"ours_fwd": 380.0, "ours_bwd": 479.0}}
    assert bench.verdicts(row, 690.0) == ["-", "met", "-", "SHORT"]
    assert bench.verdicts(row, 500.0) == ["-", "aim", "-", "aim"]
    row["figures"] |= {"math_bwd": 100.0, "efficient_bwd": 300.0}
    assert bench.verdicts(row, 690.0)[2] == "1.60 SHORT"
    row["figures"]["efficient_bwd"] = 200.0
    assert bench.verdicts(row, 690.0)[2] == "2.40"


def test_a_run():
    code, text = run(bench)
    assert code == 0 and text.count("flash takes no such head") == 12, text
    line = next(x for x in text.splitlines() if x.startswith("8192 512 full")).split()
    flop = 4.0 * 8192**2 * 512 * 4 * 2
    assert line[3] == f"{flop / 20.0 * 1e-9:.0f}", line  # ours takes 20 ms
    assert line[7] == f"{2.5 * flop / 20.0 * 1e-9:.0f}", line
    assert "2.50" in line  # over the memory-efficient one, the faster of the two
    code, text = run(bench, "--json", "--quick")
    assert code == 0 and len(json.loads(text)["rows"]) == 2
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write(text)
        file.flush()
        code, again = run(bench, "--replay", file.name, "--markdown")
    assert code == 0 and "| 8192 512 causal |" in again


def test_a_run_that_is_cut_short():
    """What has been measured is said and in the file at once; a slow peer is measured once."""
    with tempfile.TemporaryDirectory() as folder:
        out, seen = Path(folder) / "rows.json", []
        real = bench.measured

        def measured(row, args):
            if out.exists():
                seen.append(len(json.loads(out.read_text())["rows"]))
            return real(row, args)

        bench.measured = measured
        try:
            code, _ = run(bench, "--slow", "60", "--out", str(out), "--json")
        finally:
            bench.measured = real
        assert code == 0 and seen == list(range(1, 13)), seen
        done = json.loads(out.read_text())
        rounds = done["rows"][0]["rounds"]
        assert len(rounds["math_bwd"]) == 1 and len(rounds["efficient_bwd"]) == 3, rounds
        assert rounds["math_bwd"] == [90.0] and len(rounds["ours_fwd"]) == 3
        assert {x["seq"] for x in done["rows"][:6]} == {4096, 8192, 16384}, "the bars come first"
        assert all(x["dim"] == 512 for x in done["rows"][:6])
        code, text = run(bench, "--limit", "1e-9")
        assert code == 0 and "left out" in text and text.count("4096 512 full") == 1, text
        del done["state"]["smi_after"]  # as a killed run leaves it
        out.write_text(json.dumps(done))
        code, text = run(bench, "--replay", str(out))
        assert code == 0 and "did not end" in text, text


def test_crossover():
    """Head sizes 128 to 576 without peers; up to 256 the rates of build/bench/phases beside."""
    table = (
        "| dim |   seq | mask   | forward | phases | backward | phases | bits   |\n"
        "|----:|------:|--------|--------:|-------:|---------:|-------:|--------|\n"
        "| 128 |  8192 | full   |     600 |    300 |      540 |    401 | differ |\n"
        "| 256 |  8192 | full   |     699 |    368 |      444 |    537 | differ |\n"
        "| 256 |  8192 | causal |     654 |    271 |      460 |    350 | differ |\n"
    )
    said = types.SimpleNamespace(stdout=table)
    real, bench.subprocess.run = bench.subprocess.run, lambda *words, **more: said
    code, text = run(bench, "--crossover", "--json")
    bench.subprocess.run = real
    rows = {row["dim"]: row["figures"] for row in json.loads(text)["rows"]}
    assert code == 0 and min(rows) == 128 and max(rows) == 576 and len(rows) >= 8, text
    assert rows[256]["phase_bwd"] == 537.0 and rows[128]["phase_bwd"] == 401.0
    assert rows[256]["apart_bwd"] == 444.0 and rows[128]["flash_bwd"] == 540.0
    assert all(set(rows[dim]) == {"ours_fwd", "ours_bwd"} for dim in rows if dim > 256), rows
    with tempfile.NamedTemporaryFile("w+") as file:  # as the I/O model reads it
        file.write(text)
        file.flush()
        words = [COMMAND, "io", "--crossover", "--measured", file.name, "--json"]
        shown = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)
    by_dim = {row["head_dim"]: row["measured_flops"] for row in shown["rows"]}
    assert by_dim[256]["phase"] == 537e12 and by_dim[256]["apart"] == 444e12  # in turns
    assert by_dim[192]["phase"] == rows[192]["ours_bwd"] * 1e12
    assert by_dim[512]["phase"] == rows[512]["ours_bwd"] * 1e12 and by_dim[512]["flash"] is None


def test_refusals():
    assert run(bench, "--rounds", "0")[0] == 2
    code, text = run(bench, "--list")
    assert code == 0 and len(text.splitlines()) == 13


if __name__ == "__main__":
    pretend.start(bench.h200, Ours=lambda shape, given: Pass(20.0), Torch=torch_pass)
    sys.exit(pretend.main(globals()))
