"""bench/gpu/block_h200 without a GPU: its groups on a command that only pretends."""

import json
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
import pretend

block = pretend.load("block_h200")
MS = {"none": 10.0, "fused": 12.0, "sequential": 11.0, "overlapped": 10.5, "overlapped-qkv": 10.8}
MS["pipelined"] = 11.5
asked = []


def ordo(*words):
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


def different(*words):
    if "--generator" in words:
        raise block.Wrong("the digests depend on the dropout mode")
    return ordo(*words)


block.ordo = ordo
block.h200.smi = lambda fields: "pretended"
groups = ("target", "interference", "figure", "paper")
with tempfile.TemporaryDirectory() as folder:
    out, rows = Path(folder) / "out.json", Path(folder) / "rows.json"
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
    of_figure = 4 * (2 * len(block.SHAPES) - 2)
    assert len(measured) == of_figure + 4 * len(said["results"]["paper"]), len(measured)
    assert {r["mode"] for r in measured} == {"none", "fused", "sequential", "overlapped"}
    gain = said["results"]["figure"][0]["modelled"]["overlapped-qkv"]
    assert abs(gain - (5.5 - (11.0 - 10.5) / 4)) < 1e-9, gain
    for word in ("seq/over", "1.048 (1.048)", "not enough memory", "+50.0 %", "small tiles"):
        assert word in text, word
    block.ordo = different
    code, text = pretend.run(block, "paper", "--quick", *places)
    assert code == 1 and "depend" in json.loads(out.read_text())["different"]
    block.ordo = lambda *words: {"refused": "no CUDA module"}
    code, text = pretend.run(block, "--no-build")
    assert code == 77 and "no CUDA module" in text, (code, text)
    code, text = pretend.run(block, "nonsense")
    assert code == 2
print("passed")
