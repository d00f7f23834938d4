"""The tables of bench/gpu/run without a GPU: their rows, ratios and bars, on passes that pretend."""

import json
import os
import subprocess
import sys
import tempfile
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pretend
from pretend import Board, Error, Pass, driver, run


def measured(name: str, *arguments: str, on=None) -> tuple[int, dict, str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        code, text = run(name, "--json", file, *arguments, on=on)
        made = json.loads(file.read_text())
        code_again, again = run(name, "--replay", file)
        assert code_again == 0 and again.strip() in text, again
    return code, {driver.full_name(row): row for row in made["rows"]}, text


def value(table: str, row: dict, head: str, suffix: str = ""):
    """The value and the verdict of a column of a row."""
    columns = driver.show.columns_of(driver.table_of(table), row.get("group", ""))
    column = next(x for x in columns if x.head == head)
    got = column.of(row, suffix)
    return round(got, 9) if isinstance(got, float) else got, column.verdict(row, suffix)


# ---- attention_h200 ----

ATTENTION = {"ours": 2.0, "fa3": 1.0, "fa3_det": 4.0, "cudnn": 5.0, "flash": 8.0, "flash_det": 10.0}
wrong: set = set()  # whose results are not ours


def attention_pass(name: str) -> Pass:
    return Pass(ATTENTION[name], 0.5 if name in wrong else 0.0)


def flash(shape, given, module, deterministic=False):
    if shape.dim == 64:
        raise RuntimeError("head size 64 was not built\nand more")
    return attention_pass("fa3_det" if deterministic else "fa3")


def add_torch(contest, shape, given) -> None:
    for name, passes in (
        ("cudnn", ("fwd", "bwd")),
        ("flash", ("fwd", "bwd")),
        ("flash_det", ("bwd",)),
    ):
        contest.both(name, lambda name=name: attention_pass(name), shape.both_flop, passes)


def start_attention() -> None:
    pretend.attention(
        Ours=lambda shape, given: attention_pass("ours"), Flash=flash, add_torch=add_torch
    )
    module = types.ModuleType("flash_attn_interface")
    sys.modules["flash_attn_interface"] = module
    sys.modules["flash_attn"] = None  # an import of it fails, whatever is installed
    driver.table_of("attention_h200").UNORDERED = Path("/nowhere")


def test_attention():
    """FlashAttention-3 stands in the same rounds; what it refuses and where we lose is said."""
    start_attention()
    assert len(driver.table_of("attention_h200").rows()) == 28
    code, rows, text = measured("attention_h200", "--rounds", "2", "--rows", "^8192 ")
    assert code == 0 and len(rows) == 6, text
    row = rows["8192 128 16/16 full"]
    assert row["rounds"]["fa3_det_bwd"] == [4.0] * 2 and "fa3_det_fwd" not in row["rounds"]
    assert value("attention_h200", row, "÷ FA3", "_fwd") == (0.5, "")
    assert value("attention_h200", row, "÷ FA3 det", "_bwd")[0] == 2.0
    assert value("attention_h200", row, "÷ best unordered", "_bwd")[0] == 0.5
    assert value("attention_h200", row, "÷ unordered", "_bwd")[0] is None
    flop = 4.0 * 2 * 16 * 8192**2 * 128
    assert row["flop"]["ours_fwd"] == flop and row["flop"]["cudnn_bwd"] == 2.5 * flop
    assert rows["8192 64 32/32 full"]["refused"] == {
        x: "head size 64 was not built" for x in ("fa3", "fa3_det")
    }
    assert "absent: fa2: flash_attn: ModuleNotFoundError" in text and "| unordered" not in text
    assert "Backward:" in text and "| fa3 det |" in text, text


def test_a_peer_with_other_results():
    start_attention()
    wrong.add("cudnn")
    code, rows, text = measured("attention_h200", "--rows", "^2048 128 .*full")
    wrong.clear()
    assert code == 1 and "wrong: cudnn: o differs by 0.5 of its norm; dq" in text, text
    assert "cudnn_fwd" not in rows["2048 128 16/16 full"]["figures"]


# ---- features_h200 ----


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
        return self.took


class Bits:
    def __init__(self, problem, shape) -> None:
        pass

    def make(self):
        return 0.25


def features_torch(contest, shape, given) -> None:
    def cudnn():
        if shape.dim > 128:
            raise RuntimeError("cuDNN takes no such head\nand more")
        return Pass(300.0)

    contest.both("cudnn", cudnn, shape.both_flop)
    contest.both("flash", lambda: Pass(300.0), shape.both_flop)
    contest.both("flash_det", lambda: Pass(150.0), shape.both_flop, ("bwd",))


def block_masks(seq):
    names = ("documents", 1024), ("sparse", 512), ("causal", 2080)
    return {name: types.SimpleNamespace(key=range(live)) for name, live in names}


def start_features() -> None:
    pretend.attention(
        Ours=Ours, Bits=Bits, add_torch=features_torch, block_masks=block_masks,
        problem_of=lambda shape: types.SimpleNamespace(replace=lambda dropout: dropout),
    )  # fmt: skip


def test_pairs_and_tiles():
    table = driver.table_of("features_h200").shapes
    for length, window in ((1, None), (7, None), (300, 10), (300, 299), (300, 300), (5, 1024)):
        span = length if window is None else window
        seen = [(i, j) for i in range(length) for j in range(length) if 0 <= i - j <= span]
        assert table.visible_pairs(length, window) == len(seen), (length, window)
        for rows, columns in ((64, 128), (128, 64), (16, 16)):
            live = {(i // rows, j // columns) for i, j in seen}
            got = table.live_tiles(length, rows, columns, window)
            assert got == len(live), (length, window, rows, columns, got, len(live))
    assert sum(driver.table_of("features_h200").MIXED) == table.TOKENS


def test_features():
    """Milliseconds are what a pass says, so figures are flops over them; refusals are told."""
    start_features()
    table = driver.table_of("features_h200")
    on = Board()
    code, rows, text = measured("features_h200", "--rounds", "3", on=on)
    assert code == 0 and len(rows) == len(table.rows()) and len(on.settled) == 3 * len(rows)
    assert {row["seq"] for row in rows.values() if row["group"] == "dropout"} == {
        2048,
        4096,
        8192,
        16384,
    }
    row = rows["dropout: 8192 128 16/16 causal"]
    assert value("features_h200", row, "p / 0", "_fwd") == (round(500 / 450, 9), "aim")
    got, verdict = value("features_h200", row, "÷ flash det", "_bwd")
    assert abs(got - 150 / 450) < 1e-9 and verdict == "SHORT"
    assert row["rounds"]["flash_det_bwd"] == [150.0] * 3 and "flash_det_fwd" not in row["rounds"]
    assert value("features_h200", rows["rng: rounds 7, 8 bits, p 0.1"], "bar") == (0.25, "met")
    tiles = rows["tiles: 16384 128"]
    dense = table.shapes.live_tiles(16384, 128, 128)
    packed = sum(table.shapes.live_tiles(x, 128, 128) for x in table.MIXED)
    assert abs(value("features_h200", tiles, "packed / dense", "_fwd")[0] - packed / dense) < 1e-9
    assert value("features_h200", tiles, "window / dense", "_bwd")[0] is None
    assert tiles["refused"] == {"window_bwd": "window 1024,0: not here"}
    sparse = value("features_h200", rows["blocks: 8192 64"], "sparse / dense", "_bwd")
    assert abs(sparse[0] - 512 / 4096) < 1e-9 and sparse[1] == "SHORT"  # in the time of 4096 blocks
    assert rows["heads: 8192 256 causal"]["refused"] == {"cudnn": "cuDNN takes no such head"}
    mla = rows["heads: 8192 192,128 full"]  # 320 columns forward, 832 backward
    flop = 2.0 * 2 * 16 * 8192 * 8192 / 500.0 * 1e-9
    assert abs(mla["figures"]["ours_fwd"] / (320 * flop) - 1) < 1e-9
    assert abs(mla["figures"]["ours_bwd"] / (832 * flop) - 1) < 1e-9
    assert abs(table.head_bar(mla, "_bwd") * table.MATMUL - 445.0) < 1e-9  # a product of 1 TFLOP/s
    assert value("features_h200", rows["f16: 8192 64 full"], "f16 / bf16", "_fwd") == (1.0, "met")
    assert "refused: window_bwd: window 1024,0: not here (2 rows" in text, text


# ---- orders_h200 ----

ORDERS = {
    "default": 1.0,
    "ascending": 2.0,
    "descending": 1.25,
    "shift": 1.5,
    "spt": 1.6,
    "twin": 1.7,
}


class Ordered(Pass):
    """Backward passes of ORDERS; symmetric runs as spt, spt+tail is refused."""

    def __init__(self, shape, given, order="default", group=None, **choices) -> None:
        if group:
            raise Error("waves: refused here")
        if order == "spt+tail":
            raise Error("order spt+tail: refused here")
        runs = "spt" if order == "symmetric" else order
        super().__init__(ORDERS[runs], 0.5 if order in wrong else 0.0)
        info = types.SimpleNamespace(order=runs)
        self.plan = types.SimpleNamespace(info=info, ms=1.1 * ORDERS[runs])


def start_orders():
    pretend.attention(Ours=Ordered)
    table = driver.table_of("orders_h200")
    table.predicted = lambda plan: {"ms": plan.ms}
    return table


def test_agreement():
    table = driver.table_of("orders_h200")
    assert table.ranks_of([3.0, 1.0, 3.0]) == [2.5, 1, 2.5]
    assert table.agreement([1, 2, 3], [10, 20, 30]) == 1
    assert table.agreement([1, 2, 3], [3, 2, 1]) == -1
    assert table.agreement([1, 2], [1, 2]) is table.agreement([1, 1, 1], [1, 2, 3]) is None


def test_orders():
    table = start_orders()
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "out.svg"
        code, rows, text = measured("orders_h200", "--plot", str(picture))
        names = {x.tag.split("}")[1] for x in ElementTree.parse(picture).iter()}
    assert code == 0 and len(rows) == 24 and {"svg", "polyline", "circle", "text"} <= names, names
    for row in rows.values():
        assert table.fastest(row) == table.chosen(row) == "descending" and table.ranks(row) == 1
        assert abs(table.loss(row) - 0.375) < 1e-9 and table.excess(row) == 0
        assert all(abs(x - 0.1) < 1e-9 for x in table.errors(row))
    assert "refused: symmetric: runs as spt (24 rows" in text and "refused here (24 rows" in text
    assert "ascending loses up to 37.5%" in text and "predicted in 12 of 12 rows" in text, text
    row = {
        "model": {"ascending": {"ms": 1.0}, "spt": {"ms": 2.0}},
        "ms": {"ascending": 2.0, "spt": 1.0},
    }
    assert table.fastest(row) == "spt" and table.chosen(row) == "ascending"
    assert table.loss(row) == 0.5 and table.errors(row) == [-0.5, 1.0]


def test_orders_with_other_gradients():
    start_orders()
    wrong.add("shift")
    code, rows, text = measured("orders_h200", "--rows", "^512 64 .*full")
    wrong.clear()
    assert code == 1 and "wrong: shift: o differs by 0.5" in text and "shift" not in rows, text


# ---- prices_h200 ----

FACTORS = {"none": 1.25, "given": 1.5, "made": 0.8}


class Priced(Pass):
    def __init__(self, shape, given, bits=None) -> None:
        if shape.dim == 96 and shape.p and not bits:
            raise Error("head_dim 96: no keep bits are made inside")
        super().__init__(1.0)


def validate(file, *words):
    command = [os.environ["ORDO"], "model", "validate", str(file), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_prices():
    """Rows feed the model's fit: of passes that take what the model says, by a factor that depends on
    the kind, `ordo model validate --hold-out` must find the factors."""
    pretend.attention(Ours=Priced, Bits=Bits, problem_of=lambda shape: shape)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        code, text = run("prices_h200", "--model", out, "--rows", "^[0-9]* (64|96|128|192|keep)")
        made = json.loads(out.read_text())
        rows = made["results"]
        assert code == 0 and "refused: made: head_dim 96: no keep bits are made inside" in text, (
            text
        )
        assert len(rows) == 10 * (4 * 6 - 2) + 5, len(rows)  # and keep bits by themselves
        code, said, _ = validate(out)
        assert code == 0 and len(said["rows"]) == len(rows)
        for row, predicted in zip(rows, said["rows"]):
            factor = FACTORS[row["keep"]] if row["kernel"] != "rng" else 1
            row["seconds"] = factor * predicted["predicted_seconds"]
        out.write_text(json.dumps(made))
        code, said, errors = validate(out, "--hold-out", "--most", "1")
    assert code == 0, errors
    kinds = {each["kind"]: each for each in said["hold_out"]}
    command = [os.environ["ORDO"], "model", "constants", "--machine", "h200", "--json"]
    stated = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    now = {each["name"]: each["value"] for each in stated["constants"]}
    assert len(kinds) == 4 * 6 - 2 + 1, sorted(kinds)
    for name, kind in kinds.items():
        expected = FACTORS.get(name.split("_")[-1].replace("plain", "none"))
        assert name == "rng" or abs(kind["constant"] / expected / now[name] - 1) < 0.01, kind
        if name != "rng" and now[f"{name}_start"] > 0:
            assert abs(kind["start_ns"] / expected / now[f"{name}_start"] - 1) < 0.05, kind
        assert kind["mean"] < 0.01 and kind["fitted"] + kind["held_out"] == (
            5 if name == "rng" else 10
        )
    assert kinds["forward_192_given"]["mean_before"] > 0.3


# ---- phase_h200 ----


def phase_torch(shape, given, backend, deterministic):
    assert deterministic
    if backend == "FLASH_ATTENTION":
        raise RuntimeError("flash takes no such head\nand more")
    return Pass(90.0 if backend == "MATH" else 50.0)


def test_phases():
    pretend.attention(Ours=lambda shape, given: Pass(20.0), Torch=phase_torch)
    table = driver.table_of("phase_h200")
    code, rows, text = measured("phase_h200", "--rows", "^[0-9]")
    assert code == 0 and "flash takes no such head (12 rows" in text, text
    row = rows["8192 512 full"]
    flop = 4.0 * 8192**2 * 512 * 4 * 2
    assert row["flop"]["ours_fwd"] == flop and row["flop"]["math_bwd"] == 2.5 * flop
    assert value("phase_h200", row, "÷ best", "_bwd") == (2.5, "met")  # over efficient
    for product, got, word in (
        (690.0, 479.0, "SHORT"),
        (690.0, 480.0, "met"),
        (345.0, 270.0, "aim"),
    ):
        made = row | {"matmul": product, "figures": {"ours_bwd": got}}
        assert value("phase_h200", made, "bar", "_bwd") == (got, word)
    assert value("phase_h200", rows["4096 512 full"], "bar", "_bwd")[1] == ""
    assert set(rows["131072 512 causal"]["figures"]) == {"ours_fwd", "ours_bwd"}
    assert all(row["dim"] > 256 for row in table.rows() if not row["group"])


def test_crossover():
    """Head sizes 128 to 576 without others; at 128 the rates of build/bench/phases, as the I/O model
    reads them."""
    pretend.attention(Ours=lambda shape, given: Pass(20.0))
    table = driver.table_of("phase_h200")
    lines = (
        "| dim |   seq | mask   | forward | phases | backward | phases | bits   |\n"
        "|----:|------:|--------|--------:|-------:|---------:|-------:|--------|\n"
        "| 128 |  2048 | full   |     500 |    200 |      440 |    301 | differ |\n"
        "| 128 |  8192 | full   |     600 |    300 |      540 |    401 | differ |\n"
    )
    real = table.subprocess
    table.subprocess = types.SimpleNamespace(
        run=lambda *words, **more: types.SimpleNamespace(stdout=lines, stderr="")
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "forms.json"
            code, text = run("phase_h200", "--rows", "crossover", "--json", file)
            rows = {row["dim"]: row["figures"] for row in json.loads(file.read_text())["rows"]}
            words = [os.environ["ORDO"], "io", "--crossover", "--measured", str(file), "--json"]
            shown = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)
    finally:
        table.subprocess = real
    assert code == 0 and min(rows) == 128 and max(rows) == 576 and len(rows) >= 8, text
    assert rows[128]["phase_bwd"] == 401.0 and rows[128]["flash_bwd"] == 540.0, rows[128]
    assert all(set(rows[dim]) == {"ours_fwd", "ours_bwd"} for dim in rows if dim > 128), rows
    by_dim = {row["head_dim"]: row["measured_flops"] for row in shown["rows"]}
    assert by_dim[128]["phase"] == 401e12 and by_dim[128]["flash"] == 540e12  # in turns
    assert by_dim[512]["phase"] == rows[512]["ours_bwd"] * 1e12 and by_dim[512]["flash"] is None


# ---- block_h200 ----

BLOCK = {
    "none": 10.0,
    "fused": 12.0,
    "sequential": 11.0,
    "overlapped": 10.5,
    "overlapped-qkv": 10.8,
}
BLOCK["pipelined"] = 11.5


class Block:
    def __init__(self, what: dict, device: str) -> None:
        if what["embed"] == 12288:
            raise Error("not enough memory")
        self.what = what

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def digests(self):
        if self.what["rng_rounds"] in wrong:
            raise driver.table_of("block_h200").block_run.Wrong(
                "the digests depend on the dropout mode"
            )
        return [{"mode": mode, "digest_o": "1"} for mode in self.what["modes"]]

    def times(self, seconds: float, modes: tuple):
        assert seconds == 0.3
        return {mode: {"ms": BLOCK[mode], "samples": 2} for mode in modes}

    def interference(self, seconds: float):
        beside = {"bits_ms": 0.4, "product_ms": 1.0, "product_slowdown": 0.04}
        beside |= {"bits_slowdown": 0.5, "hidden": 0.5, "dropping_alone": 0.12}
        return beside | {"then_ms": 1.4, "both_ms": 1.3, "algorithm": "algorithm 1"}

    def trace(self):
        return {"inside": 0.1}


def start_block():
    table = driver.table_of("block_h200")
    table.load = lambda args: Board()
    table.block_run.Block = Block
    ask = lambda seq, embed, dropout, seconds: [14.0 if dropout else 10.0]  # noqa: E731
    table.peer = lambda: types.SimpleNamespace(ask=ask)
    table.ordo = lambda *words: {
        f"{mode}_ms": ms / (4 if "qkv" in words else 2) for mode, ms in BLOCK.items()
    }
    return table


def test_block():
    table = start_block()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "rows.json"
        code, rows, text = measured("block_h200", "--model", str(model))
        rows_for_model = json.loads(model.read_text())["results"]
    assert code == 0, text
    of = {group: [row for row in rows.values() if row["group"] == group] for group in table.TITLES}
    causal, full = of["targets"]
    dropout, generation = table.costs(full)["overlapped"]
    assert causal["causal"] and abs(dropout - 0.05) < 1e-9 and abs(generation + 0.01) < 1e-9
    assert abs(table.costs(full)["sequential"][1] - 0.04) < 1e-9
    shapes = {(row["seq"], row["embed"]) for row in of["figure"]}
    assert (
        len(of["figure"]) == 24 and max(shapes)[0] == 32768 and max(e for s, e in shapes) == 16384
    )
    refused = [row for row in of["more"] if row["refused"]]
    assert len(refused) == 2 and not refused[0]["ms"] and "not enough memory (2 rows" in text
    assert {row["rng_rounds"] for row in of["paper"]} == {3, 5, 7, 10}
    assert all("fused" not in row["ms"] for row in of["paper"])
    gain = of["figure"][0]["modelled"]["overlapped-qkv"]
    assert abs(gain - (5.5 - (11.0 - 10.5) / 4)) < 1e-9, gain
    assert value("block_h200", of["figure"][0], "sequential / overlapped") == (
        round(11 / 10.5, 9),
        "",
    )
    assert value("block_h200", of["peer"][0], "overlapped / cudnn") == (1.05, "SHORT")
    assert "| +50.0 % " in text and "overlapped: dropout +5.0 %, generation -1.0 %" in text, text
    blocks = [row for row in rows_for_model if row["kernel"] == "block"]
    compared = len(of["paper"]) + 24 - 2
    assert len(blocks) == 5 * (24 + 2) + 4 * (compared + 2), len(blocks)
    divided = [row["causal"] for row in blocks if row["mode"] == "pipelined"]
    assert {row["mode"] for row in blocks} == set(BLOCK) and divided == [True, False], divided
    assert {(row["bits"], row["generator"]) for row in blocks} == {(8, "sliced"), (32, "compare")}
    steps = [row for row in rows_for_model if row["kernel"] == "training"]
    assert len(steps) == 2 * 4 and {row["causal"] for row in steps} == {False, True}, steps


def test_block_with_other_digests():
    start_block()
    wrong.add(10)
    code, rows, text = measured("block_h200", "--rows", "^paper")
    wrong.clear()
    assert code == 1 and "wrong: digests: the digests depend on the dropout mode (2 rows" in text, (
        text
    )
    assert sum(bool(row["ms"]) for row in rows.values()) == 6


if __name__ == "__main__":
    sys.exit(pretend.main(globals()))
