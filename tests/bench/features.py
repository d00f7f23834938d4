"""tests/bench/features_test.sh: bench/gpu/features_h200 without PyTorch, without a GPU."""

import json
import sys
import tempfile
import types

import pretend
from pretend import Error, Pass, run, settled

bench = pretend.load("features_h200")


class Ours(Pass):
    def __init__(self, shape, given, bits=None, blocks=None) -> None:
        tile = types.SimpleNamespace(q=128, k=128)
        info = types.SimpleNamespace(forward_tile=tile, backward_tile=tile)
        self.plan = types.SimpleNamespace(info=info)
        super().__init__(450.0 if shape.p and bits else 400.0 if shape.p else 500.0)
        self.shape = shape

    def backward(self):
        if self.shape.window:
            raise Error("window 1024,0: not here")
        return self.ms


def torch_pass(shape, given, backend, deterministic=False):
    if backend == "CUDNN_ATTENTION" and shape.dim > 128:
        raise RuntimeError("cuDNN takes no such head\nand more")
    return Pass(150.0 if deterministic else 300.0)


class Problem:
    def replace(self, dropout):
        return dropout


class Bits(Pass):
    def __init__(self, problem, shape) -> None:
        super().__init__(0.0)

    def make(self):
        return 0.25


def block_masks(seq):
    names = ("documents", 1024), ("sparse", 512), ("causal", 2080)
    return {name: types.SimpleNamespace(key=range(live)) for name, live in names}


# ---- tests ----


def test_pairs_and_tiles():
    for length, window in ((1, None), (7, None), (300, 10), (300, 299), (300, 300), (5, 1024)):
        span = length if window is None else window
        seen = [(i, j) for i in range(length) for j in range(length) if 0 <= i - j <= span]
        assert bench.visible_pairs(length, "causal", window) == len(seen), (length, window)
        for rows, columns in ((64, 128), (128, 64), (16, 16)):
            live = {(i // rows, j // columns) for i, j in seen}
            got = bench.live_tiles(length, rows, columns, window)
            assert got == len(live), (length, window, rows, columns, got, len(live))
    assert bench.visible_pairs(9, "full") == 81
    assert sum(bench.MIXED) == bench.TOKENS


def test_bars():
    verdicts = [bench.bar("x", v, 0.85, 0.92)["verdict"] for v in (0.84, 0.85, 0.92, None)]
    assert verdicts == ["SHORT", "met", "aim", "-"], verdicts
    verdicts = [bench.bar("x", v, 0.26, 0.20, False)["verdict"] for v in (0.27, 0.25, 0.2)]
    assert verdicts == ["SHORT", "met", "aim"], verdicts
    assert bench.bar("x", 1.0)["verdict"] == ""
    assert bench.bar("x", 2.4, 2.3)["verdict"] == "met"


def test_rows():
    for quick in (False, True):
        for group in bench.GROUPS:
            rows = bench.cases(group, quick)
            assert rows and all(row["group"] == group for row in rows)
    dropout = bench.cases("dropout", False)
    assert {row["seq"] for row in dropout} == {2048, 4096, 8192, 16384}
    heads = bench.cases("heads", True)
    assert {row["dim"] for row in heads} == {256, 192, 96}
    assert [row["mask"] for row in heads if row.get("v_dim") == 128] == ["causal", "full"]


def test_arguments():
    assert run(bench, "--only", "x")[0] == 2
    assert run(bench, "--rounds", "0")[0] == 2
    code, text = run(bench, "--only", "rng,f16", "--list", "--quick")
    assert code == 0 and text.splitlines()[0] == "rng: rounds 7, 8 bits", text
    assert len(text.splitlines()) == 4


def test_whole_run():
    """Milliseconds are what a pass says, so figures are flops over them; refusals are told."""
    settled.clear()
    code, text = run(bench, "--no-build", "--json", "--rounds", "3")
    made = json.loads(text)
    assert code == 0 and len(made["rows"]) == sum(len(bench.cases(g, False)) for g in bench.GROUPS)
    assert len(settled) == 3 * len(made["rows"])  # every round of every row
    by = {(row["group"], row["name"]): row for row in made["rows"]}
    row = by["dropout", "8192 128 16/16 causal"]
    bars = {x["name"]: x for x in row["bars"]}
    assert abs(bars["fwd p/0"]["value"] - 500 / 450) < 1e-9 and bars["fwd p/0"]["verdict"] == "aim"
    det = bars["bwd/det"]
    assert abs(det["value"] - 150 / 450) < 1e-9 and det["verdict"] == "SHORT"
    assert row["rounds"]["det_bwd"] == [150.0] * 3 and "det_fwd" not in row["rounds"]
    rng = by["rng", "rounds 7, 8 bits"]
    assert rng["figures"]["ms"] == 0.25 and rng["bars"][0]["verdict"] == "met"
    tiles = by["tiles", "16384 128"]
    bars = {x["name"]: x for x in tiles["bars"]}
    dense = bench.live_tiles(16384, 128, 128)
    packed = sum(bench.live_tiles(x, 128, 128) for x in bench.MIXED)
    assert abs(bars["packed fwd"]["value"] - packed / dense) < 1e-9
    assert bars["window bwd"]["verdict"] == "-" and tiles["refused"] == {
        "window_bwd": "window 1024,0: not here"
    }
    bars = {x["name"]: x for x in by["blocks", "8192 64"]["bars"]}
    assert abs(bars["sparse bwd"]["value"] - 512 / 4096) < 1e-9  # in the time of 4096 blocks
    wide = by["heads", "8192 256"]
    assert wide["refused"] == {"cudnn": "cuDNN takes no such head"}
    assert wide["figures"]["cudnn_fwd"] is None
    mla = by["heads", "8192 192,128 full"]  # 320 columns forward, 832 backward
    flop = 2.0 * 2 * 16 * 8192 * 8192 / 500.0 * 1e-9
    assert abs(mla["figures"]["ours_fwd"] / (320 * flop) - 1) < 1e-9
    assert abs(mla["figures"]["ours_bwd"] / (832 * flop) - 1) < 1e-9
    bars = {x["name"]: x for x in mla["bars"]}
    assert abs(bars["bwd"]["must"] * bench.MATMUL - 445.0) < 1e-9  # a matmul of 1 TFLOP/s

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        code, again = run(bench, "--replay", file.name)
        assert code == 0 and "refused: window_bwd (2 rows): window 1024,0: not here" in again
        assert "SHORT" in again and "bars:" in again
        code, again = run(bench, "--replay", file.name, "--markdown")
        lines = [line for line in again.splitlines() if line.startswith("|")]
        assert code == 0 and len(lines) == len(made["rows"]) + 2 * len(bench.GROUPS)


def test_fault():
    """A kernel that faults ends the run; what was measured before is printed."""
    real = bench.measured
    rows: list = []

    def faulty(row, args):
        if rows:
            raise RuntimeError("illegal access\nsomewhere")
        rows.append(row)
        return real(row, args)

    bench.measured = faulty
    code, text = run(bench, "--no-build", "--only", "rng")
    bench.measured = real
    assert code == 1 and "FAULT rng: rounds 7, 4 bits: illegal access" in text, text
    assert "rounds 7, 8 bits" in text


if __name__ == "__main__":
    pretend.start(
        bench.h200, Ours=Ours, Torch=torch_pass, Bits=Bits, problem_of=lambda shape: Problem(),
        block_masks=block_masks,
    )  # fmt: skip
    sys.exit(pretend.main(globals()))
