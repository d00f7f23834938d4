"""bench/gpu/block_h200 without a GPU: its groups on a command that only pretends."""

import json
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
import pretend

block = pretend.load("block_h200")
COMMAND = sys.argv[1]
MS = {"none": 10.0, "fused": 12.0, "sequential": 11.0, "overlapped": 10.5, "overlapped-qkv": 10.8}
MS["pipelined"] = 11.5
asked = []


def ordo(*words, timeout=300):
    asked.append(words)
    if words[0] == "model":
        part = 4 if "qkv" in words else 2
        return {f"{mode}_ms": ms / part for mode, ms in MS.items()}
    if "12288" in map(str, words):
        return {"refused": "not enough memory"}
    modes = [{"mode": mode, "ms": ms} for mode, ms in MS.items()]
    beside = {"mask_ms": 0.4, "product_ms": 1.0, "product_slowdown": 0.04, "mask_slowdown": 0.5}
    beside |= {"hidden": 0.5, "dropping_alone": 0.12, "algorithm": "algorithm 1"}
    return {"modes": modes, "interference": beside, "trace": {"inside": 0.1}}


def different(*words, timeout=300):
    if "--generator" in words:
        raise block.Wrong("the digests depend on the dropout mode")
    return ordo(*words)


def killed(*words, timeout=300):
    if "--precision" in words and "8192" in map(str, words):
        raise KeyboardInterrupt
    return ordo(*words)


def test_groups(folder: Path) -> None:
    out, rows = folder / "out.json", folder / "rows.json"
    places = ("--no-build", "--json", str(out), "--rows", str(rows))
    code, text = pretend.run(block, *groups, *places)
    assert code == 0, code
    said = json.loads(out.read_text())
    measured = json.loads(rows.read_text())["results"]
    full = said["results"]["target"][0]
    assert abs(full["dropout"]["overlapped"] - 0.05) < 1e-9, full["dropout"]
    assert abs(full["generation"]["sequential"] - 0.04) < 1e-9, full["generation"]
    assert abs(full["generation"]["overlapped"] + 0.01) < 1e-9, full["generation"]
    assert len(said["results"]["figure"]) == 2 * len(block.SHAPES) >= 24
    refused = [r for r in said["results"]["figure"] if "refused" in r["said"]]
    assert len(refused) == 2 and not refused[0]["ms"]
    assert {r["rounds"] for r in said["results"]["paper"]} == {3, 5, 7, 10}
    blocks = [r for r in measured if r["kernel"] == "block"]
    of_figure = 5 * (2 * len(block.SHAPES) - 2)
    assert len(blocks) == of_figure + 5 * len(said["results"]["paper"]), len(blocks)
    assert {r["mode"] for r in blocks} == set(MS) - {"pipelined"}
    steps = [r for r in measured if r["kernel"] == "training"]
    assert len(steps) == 2 * 4 and {r["causal"] for r in steps} == {False, True}, steps
    assert len(measured) == len(blocks) + len(steps)
    gain = said["results"]["figure"][0]["modelled"]["overlapped-qkv"]
    assert abs(gain - (5.5 - (11.0 - 10.5) / 4)) < 1e-9, gain
    for word in ("seq/over", "1.048 (1.048)", "not enough memory", "+50.0 %", "small tiles"):
        assert word in text, word
    assert f"rows for the model in {rows}" in text and "--figure 10 --measured" in text, text
    code, again = pretend.run(block, "--replay", str(out))
    assert code == 0 and text[: text.index("rows for the model") - 4] in again, again
    assert "| bf16 | small tiles |" in pretend.run(block, "--replay", str(out), "--markdown")[1]


def test_faults(folder: Path) -> None:
    out, rows = folder / "out.json", folder / "rows.json"
    places = ("--no-build", "--json", str(out), "--rows", str(rows))
    block.ordo = different
    code, text = pretend.run(block, "paper", "--quick", *places)
    assert code == 1 and "depend" in json.loads(out.read_text())["different"]
    block.ordo = killed  # at the first shape of 8192 rows: what was measured before is there
    try:
        pretend.run(block, "figure", *places)
        raise AssertionError("not killed")
    except KeyboardInterrupt:
        pass
    kept = json.loads(out.read_text())["results"]["figure"]
    first = block.SHAPES.index((2048, 8192))
    assert len(kept) == 2 * first > 0, kept
    assert len(json.loads(rows.read_text())["results"]) == 5 * len(kept)
    block.ordo = lambda *words, timeout: {"refused": "no CUDA module"}
    code, text = pretend.run(block, "--no-build")
    assert code == 77 and "no CUDA module" in text, (code, text)
    for words in (("nonsense",), ("--seconds", "0"), ("--budget", "-1")):
        assert pretend.run(block, *words)[0] == 2, words
    block.ordo = ordo


class Board:
    """A device on which a row takes as long as its modes ask for and what it adds to that."""

    def __init__(self, start: float, extra: float) -> None:
        self.now, self.start, self.extra = 1000.0, start, extra

    def ordo(self, *words, timeout=300):
        if words[0] == "block":
            asked = float(words[words.index("--time") + 1])
            modes = 1 if "--dropout-mode" in words else 4 if "--generator" in words else 6
            modes += 1 if "--interference" in words else 0
            self.now += self.start + modes * asked * self.extra
        return ordo(*words)


def test_budget(folder: Path) -> None:
    out, rows = folder / "out.json", folder / "rows.json"
    places = ("--no-build", "--json", str(out), "--rows", str(rows), "--budget", "220")
    real = block.time.monotonic

    def run(board):
        block.ordo, block.time.monotonic = board.ordo, lambda: board.now
        try:
            code, text = pretend.run(block, *groups, *places)
        finally:
            block.ordo, block.time.monotonic = ordo, real
        assert code == 0, text
        return board.now - 1000, text, json.loads(out.read_text())

    took, text, said = run(Board(start=1.0, extra=1.25))
    assert took < 220 and not said["left_out"], (took, said["left_out"])
    assert took > 120, took  # and the time is used
    assert len(said["results"]["figure"]) == 2 * len(block.SHAPES)
    assert min(r["seconds"] for r in said["results"]["figure"]) > 0.25
    assert said["results"]["target"][0]["seconds"] == 1
    took, text, said = run(Board(start=6.0, extra=2.0))  # slower than thought: nothing is overrun
    assert took < 220 + 12, took
    assert len(said["left_out"]) == 1 and "left out: figure after" in text, said["left_out"]
    assert len(said["results"]["target"]) == 2 and len(said["results"]["paper"]) == 8


def test_rehearsal(folder: Path) -> None:
    """On the CPU, by the real command: its JSON has what the groups read."""
    out = folder / "cpu.json"
    block.ordo, block.ORDO, block.QUICK = real_ordo, [COMMAND], [(2048, 4096)]
    words = ("--device", "cpu", "--no-build", "--seconds", "0.002", "--quick", "--json", str(out))
    code, text = pretend.run(block, "target", "figure", *words)
    assert code == 0, text
    said = json.loads(out.read_text())["results"]
    assert all(set(row["ms"]) == set(MS) for row in said["target"]), said["target"]
    bf16 = [row for row in said["figure"] if row["precision"] == "bf16"]
    assert len(bf16) == len(block.QUICK) and all(set(row["ms"]) == set(MS) for row in bf16)
    assert all(set(row["modelled"]) == set(MS) - {"pipelined"} for row in bf16)


real_ordo, block.ordo = block.ordo, ordo
block.h200.smi = lambda fields: "pretended"
groups = ("target", "interference", "figure", "paper")
with tempfile.TemporaryDirectory() as name:
    test_groups(Path(name))
    test_faults(Path(name))
    test_budget(Path(name))
    test_rehearsal(Path(name))
print("passed")
