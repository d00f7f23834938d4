"""bench/gpu/block_h200 without a GPU: its rows, budget and files on blocks that only pretend."""

import json
import sys
import tempfile
import types
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
import pretend

block = pretend.load("block_h200")
MS = {"none": 10.0, "fused": 12.0, "sequential": 11.0, "overlapped": 10.5, "overlapped-qkv": 10.8}
MS["pipelined"] = 11.5
FIGURE = 2 * len(block.SHAPES)


class Board:
    """A device on which a row takes `start` seconds and, for its modes, `extra` times what
    block_h200 expects. `stop(what)` may end the run or refuse a row."""

    def __init__(self, start: float = 0.0, extra: float = 0.0, stop=lambda what: None) -> None:
        self.now, self.start, self.extra, self.stop = 1000.0, start, extra, stop
        self.measured: list[dict] = []

    def block(self, what: dict, device: str):
        self.stop(what)
        self.now += self.start
        self.measured.append(what)
        return Block(self, what)


class Block:
    def __init__(self, board: Board, what: dict) -> None:
        self.board, self.what = board, what

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def digests(self):
        return [{"mode": mode, "digest_o": "1"} for mode in self.what["modes"]]

    def times(self, seconds: float):
        modes = self.what["modes"]
        self.board.now += self.board.extra * len(modes) * block.sampling(self.what, seconds)
        return {mode: {"ms": MS[mode], "samples": 2} for mode in modes}

    def interference(self, seconds: float):
        self.board.now += self.board.extra * seconds
        beside = {"bits_ms": 0.4, "product_ms": 1.0, "product_slowdown": 0.04}
        beside |= {"bits_slowdown": 0.5, "hidden": 0.5, "dropping_alone": 0.12}
        return beside | {"then_ms": 1.4, "both_ms": 1.3, "algorithm": "algorithm 1"}

    def trace(self):
        return {"inside": 0.1}


class Peer:
    def ask(self, seq, embed, dropout, seconds):
        return {"ms": 14.0 if dropout else 10.0}

    def close(self) -> None:
        pass


def run(board: Board, *words: str):
    """The program on a pretended board: its exit status and what it prints."""
    real = block.time.monotonic
    block.block_run.Block, block.time.monotonic = board.block, lambda: board.now
    try:
        return pretend.run(block, "--no-build", *words)
    finally:
        block.time.monotonic = real


def ordo(*words):
    part = 4 if "qkv" in words else 2
    return {f"{mode}_ms": ms / part for mode, ms in MS.items()}


def files(folder: Path) -> tuple[Path, Path, list[str]]:
    out, rows = folder / "out.json", folder / "rows.json"
    for path in (out, rows):
        path.unlink(missing_ok=True)
    return out, rows, ["--json", str(out), "--rows", str(rows)]


def refuse(what: dict) -> None:
    if what["embed"] == 12288:
        raise RuntimeError("not enough memory")


def test_parts(folder: Path) -> None:
    out, rows, places = files(folder)
    code, text = run(Board(stop=refuse), *places)
    assert code == 0, text
    said, measured = json.loads(out.read_text()), json.loads(rows.read_text())["results"]
    results = said["results"]
    assert list(results) == list(block.PARTS), list(results)
    causal, full = results["targets"]
    assert causal["what"]["causal"] and not full["what"]["causal"]
    assert abs(full["dropout"]["overlapped"] - 0.05) < 1e-9, full["dropout"]
    assert abs(full["generation"]["sequential"] - 0.04) < 1e-9, full["generation"]
    assert abs(full["generation"]["overlapped"] + 0.01) < 1e-9, full["generation"]
    assert len(full["bits_ms"]) == block.TURNS > 2
    assert len(results["figure"]) == FIGURE >= 24
    shapes = {(r["what"]["seq"], r["what"]["embed"]) for r in results["figure"]}
    assert len(shapes) >= 12 and max(shapes)[0] == 32768 and max(e for s, e in shapes) == 16384
    refused = [r for r in results["more"] if "refused" in r["said"]]
    assert len(refused) == 2 and not refused[0]["ms"]
    assert {r["what"]["rounds"] for r in results["paper"]} == {3, 5, 7, 10}
    assert all("fused" not in r["ms"] for r in results["paper"])
    blocks = [r for r in measured if r["kernel"] == "block"]
    compared = len(results["paper"]) + FIGURE - 2
    assert len(blocks) == 5 * (FIGURE + 2) + 4 * compared, len(blocks)
    assert {r["mode"] for r in blocks} == set(MS) - {"pipelined"}
    assert {(r["bits"], r["generator"]) for r in blocks} == {(8, "sliced"), (32, "compare")}
    steps = [r for r in measured if r["kernel"] == "training"]
    assert len(steps) == 2 * 4 and {r["causal"] for r in steps} == {False, True}, steps
    gain = results["figure"][0]["modelled"]["overlapped-qkv"]
    assert abs(gain - (5.5 - (11.0 - 10.5) / 4)) < 1e-9, gain
    assert abs(results["peer"][0]["over_cudnn"]["overlapped"] - 1.05) < 1e-9, results["peer"]
    for word in ("seq/all", "1.048 (1.048)", "not enough memory", "+50.0 %", "small tiles"):
        assert word in text, word
    code, again = pretend.run(block, "--replay", str(out))
    assert code == 0 and again == text, again
    assert "| bf16 | small tiles |" in pretend.run(block, "--replay", str(out), "--markdown")[1]


def test_chosen_parts(folder: Path) -> None:
    out, rows, places = files(folder)
    board = Board()
    assert run(board, "--only", "peer", "--only", "interference", *places)[0] == 0
    assert list(json.loads(out.read_text())["results"]) == ["peer", "interference"]
    help_text = pretend.run(block, "--help")[1]
    for part, seconds in block.predicted().items():
        assert f"    {part:12}  {seconds:4.0f}" in help_text, part
    for words in (("--only", "nonsense"), ("--budget", "-1"), ("--replay", "/nowhere.json")):
        assert pretend.run(block, *words)[0] == 2, words


def test_faults(folder: Path) -> None:
    out, rows, places = files(folder)

    def differ(what: dict) -> None:
        if what["generator"] == "compare":
            raise block.block_run.Wrong("the digests depend on the dropout mode")

    code, text = run(Board(stop=differ), "--only", "paper", *places)
    assert code == 1 and "depend" in json.loads(out.read_text())["different"]
    block.block_run.why_not = lambda device: "no CUDA module"
    code, text = run(Board(), *places)
    block.block_run.why_not = lambda device: ""
    assert code == 77 and "no CUDA module" in text, (code, text)


def test_killed_and_resumed(folder: Path) -> None:
    """What was measured before a kill is there; the next run measures the rest, and no row twice."""
    out, rows, places = files(folder)

    def kill(what: dict) -> None:
        if what["seq"] == 8192:
            raise KeyboardInterrupt

    try:
        run(Board(stop=kill), "--only", "figure", *places)
        raise AssertionError("not killed")
    except KeyboardInterrupt:
        pass
    kept = json.loads(out.read_text())["results"]["figure"]
    kept = [made for made in kept if "refused" not in made["said"]]
    assert len(kept) == 2 * block.SHAPES.index((8192, 4096)) > 0, kept
    assert len(json.loads(rows.read_text())["results"]) == 5 * len(kept)
    first = folder / "first.json"
    out.rename(first)
    board = Board()
    assert run(board, "--only", "figure", "--resume", str(first), *places)[0] == 0
    assert len(board.measured) == 1 + FIGURE - len(kept), len(board.measured)  # one to warm up
    document = json.loads(out.read_text())
    assert len(document["results"]["figure"]) == FIGURE and len(document["states"]) == 2


def test_merge(folder: Path) -> None:
    """Files of two parts become one; a row that was refused does not replace a measured one."""

    def file(name: str, part: str, **said: object) -> str:
        what = block.rows_of(part)[0]
        made = {"what": what, "said": {}, "ms": {"none": 1.0}} | said
        state = {"command": name, "date": "", "smi": "", "device": "cuda"}
        document = {"states": [state], "results": {part: [made]}, "left_out": []}
        path = folder / f"{name}.json"
        path.write_text(json.dumps(document | {"different": None}))
        return str(path)

    paths = [file("first", "figure", ms={"none": 1.0}), file("second", "figure", ms={"none": 2.0})]
    paths += [file("third", "figure", said={"refused": "no memory"}, ms={}), file("a", "paper")]
    out, rows, places = files(folder)
    assert pretend.run(block, *places, "--replay", *paths)[0] == 0
    results = json.loads(out.read_text())["results"]
    assert [made["ms"] for made in results["figure"]] == [{"none": 2.0}], results["figure"]
    assert len(results["paper"]) == 1
    measured = json.loads(rows.read_text())
    assert len(measured["results"]) == 2 and len(measured["source"]) == 4, measured


def test_budget(folder: Path) -> None:
    out, rows, places = files(folder)
    important = [part for part in block.PARTS if part != "more"]

    def spend(board: Board, budget: int):
        code, text = run(board, "--budget", str(budget), *places)
        assert code == 0, text
        return board.now - 1000, json.loads(out.read_text())

    took, said = spend(Board(start=0.6, extra=1.0), 200)  # as expected
    assert took < 200 and not any(x.split()[0] != "more" for x in said["left_out"]), said["left_out"]
    assert took > 150, took  # and the time is used
    assert len(said["results"]["figure"]) == FIGURE
    assert min(r["seconds"] for r in said["results"]["figure"]) >= 0.2
    assert min(r["seconds"] for r in said["results"]["targets"]) > 1
    took, said = spend(Board(start=0.2, extra=0.8), 600)  # enough for everything
    assert not said["left_out"]
    for part, made in ((part, r) for part, rs in said["results"].items() for r in rs):
        assert made["seconds"] == block.PARTS[part][0], made
    took, said = spend(Board(start=2.5, extra=1.5), 200)  # slower: the first parts are whole
    assert took < 200 + 12, took
    assert len(said["results"]["figure"]) == FIGURE and len(said["results"]["paper"]) == 8
    assert said["left_out"] and "more" in said["left_out"][-1]
    assert list(said["results"])[: len(important)][:2] == important[:2]


block.block_run.load = lambda: None
block.block_run.why_not = lambda device: ""
block.ordo, block.Peer = ordo, Peer
block.h200.smi = lambda fields: "pretended"
block.faulthandler = types.SimpleNamespace(
    dump_traceback_later=lambda seconds, exit: None, cancel_dump_traceback_later=lambda: None
)
with tempfile.TemporaryDirectory() as name:
    for made, test in list(globals().items()):
        if made.startswith("test_"):
            test(Path(name))
            print(f"ok   {made}")
print("passed")
