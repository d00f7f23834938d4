"""tests/bench/phase_test.sh: bench/gpu/phase_h200 without PyTorch, without a GPU."""

import json
import sys
import tempfile

import pretend
from pretend import Pass, run

bench = pretend.load("phase_h200")


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


def test_refusals():
    assert run(bench, "--rounds", "0")[0] == 2
    code, text = run(bench, "--list")
    assert code == 0 and len(text.splitlines()) == 13


if __name__ == "__main__":
    pretend.start(bench.h200, Ours=lambda shape, given: Pass(20.0), Torch=torch_pass)
    sys.exit(pretend.main(globals()))
