"""tests/bench/attention_h200_test.sh: bench/gpu/attention_h200 without PyTorch, without a GPU."""

import json
import sys
import tempfile
import types
from pathlib import Path

import pretend
from pretend import run

bench = pretend.load("attention_h200")
bench.UNORDERED = Path("/nowhere")
bench.host_ms = lambda run: run() * 0  # a busy machine is not bound by the host
MS = {"ours": 2.0, "fa3": 1.0, "fa3_det": 4.0, "cudnn": 5.0, "flash": 8.0, "flash_det": 10.0}
called: list = []  # contestants in the order in which they were timed


class Pass(pretend.Pass):
    """A contestant with results; those of `wrong` are not ours."""

    wrong = ""

    def __init__(self, name: str) -> None:
        super().__init__(MS[name])
        self.name = name

    def forward(self):
        called.append(self.name)
        return self.ms

    def results(self) -> dict:
        return {name: Number(0.5 if self.name == self.wrong else 0.0) for name in ("o", "dq")}


class Number(float):
    def double(self) -> float:
        return float(self)


def flash(shape, given, module, deterministic=False):
    if shape.dim == 64:
        raise RuntimeError("head size 64 was not built\nand more")
    return Pass("fa3_det" if deterministic else "fa3")


def torch_pass(shape, given, backend, deterministic=False):
    return Pass("cudnn" if "CUDNN" in backend else "flash_det" if deterministic else "flash")


def measured(*arguments: str) -> tuple[int, dict]:
    code, text = run(bench, "--no-build", "--no-check", "--json", *arguments)
    return code, json.loads(text)


# ---- tests ----


def test_rows():
    rows = bench.h200.rows()
    assert len(rows) == 28 and len({bench.h200.row_name(row) for row in rows}) == 28
    assert all(row["batch"] * row["seq"] in (16384, 32768, 8192) for row in rows)
    count = {
        arguments: len(run(bench, "--list", *arguments)[1].splitlines())
        for arguments in ((), ("--long",), ("--quick",), ("--rows", "^8192 128 .*causal"))
    }
    assert list(count.values()) == [26, 28, 10, 2], count


def test_arguments():
    assert run(bench, "--rounds", "0")[0] == 2
    assert run(bench, "--rows", "(")[0] == 2


def test_ratios():
    """Of this run only: who is divided by is who was measured beside us."""
    ms = {"ours": [2.0, 4.0], "fa3": [6.0, 6.0], "fa3_det": [9.0, 9.0], "flash": [1.5, 1.5]}
    made = bench.judge("bwd", ms, dict.fromkeys(ms, 0.1) | {"flash": 1.6}, 3e9)
    assert made["tflops"] == {"ours": 1.0, "fa3": 0.5, "fa3_det": 3 / 9, "flash": 2.0}, made
    assert made["best"] is None and made["host_bound"] == ["flash"]  # it may be faster than it seems
    ratios = {"fa3": 2.0, "best": None, "fa3_det": 3.0, "flash_det": None, "unordered": None}
    assert made["ratios"] == ratios, made
    free = bench.judge("bwd", ms, dict.fromkeys(ms, 0.1), 3e9)
    assert free["best"] == "flash" and free["ratios"]["best"] == 0.5
    alone = bench.judge("fwd", {"ours": [1.0]}, {"ours": 0.1}, 1e9)
    assert alone["ratios"] == {"fa3": None, "best": None} and alone["best"] is None


def test_whole_run():
    """FlashAttention-3 stands in the same rounds; what it refuses and where we lose is said."""
    called.clear()
    code, made = measured("--rounds", "2", "--rows", "^8192 ")
    assert code == 0 and len(made["rows"]) == 6 and made["checks"] == "not run"
    by = {bench.h200.row_name(row): row for row in made["rows"]}
    row = by["8192 128 16/16 full"]
    names = ("ours", "fa3", "cudnn", "flash")
    assert row["fwd"]["ms"] == {name: [MS[name]] * 2 for name in names}
    assert row["fwd"]["ratios"] == {"fa3": 0.5, "best": 0.5} and row["fwd"]["best"] == "fa3"
    assert row["bwd"]["ratios"]["fa3_det"] == 2.0 and row["bwd"]["ratios"]["unordered"] is None
    assert by["8192 64 32/32 full"]["refused"] == {
        x: "head size 64 was not built" for x in ("fa3", "fa3_det")
    }
    assert made["state"]["absent"].keys() == {"fa2"}

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(made, file)
        file.flush()
        text = run(bench, "--replay", file.name)[1]
        assert "forward: 0 of 4 rows at or above FA3; least ratio 0.500" in text, text
        assert "  below: 0.500 8192 128 16/16 causal; 0.500 8192 128 16/16 full" in text
        assert "backward: 4 of 4 rows at or above FA3 deterministic; least ratio 2.000" in text
        assert "refused: fa3: head size 64 was not built (2 rows" in text
        assert "absent: fa2: flash_attn: ModuleNotFoundError" in text and "unordered |" not in text
        text = run(bench, "--replay", file.name, "--markdown")[1]
        assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 * (6 + 2)


def test_turns():
    """An odd round runs backwards."""
    called.clear()
    runs = {name: Pass(name).forward for name in ("ours", "fa3", "cudnn")}
    bench.time_pass(runs, types.SimpleNamespace(rounds=3))
    assert called == ["ours", "fa3", "cudnn", "cudnn", "fa3", "ours", "ours", "fa3", "cudnn"]


def test_peer_with_other_results():
    """It is not timed, and the run fails."""
    Pass.wrong = "cudnn"
    code, made = measured("--rounds", "1", "--rows", "^2048 128 .*full")
    Pass.wrong = ""
    assert code == 1 and made["checks"] == "FAILED"
    assert made["rows"][0]["wrong"] == {"cudnn": "o differs from ours by 0.5 of its norm"}
    assert "cudnn" not in made["rows"][0]["fwd"]["tflops"]


def test_no_time_left():
    code, made = measured("--seconds-limit", "0", "--rows", "^2048 128")
    assert code == 0 and made["rows"] == [] and len(made["state"]["left_out"]) == 2
    code, text = run(bench, "--no-build", "--no-check", "--seconds-limit", "0", "--rows", "^512 64")
    assert code == 0 and "for lack of time: 512 64 32/32 full; 512 64 32/32 causal" in text, text


def test_fault():
    """A kernel that faults ends the run; what was measured before is kept."""
    real, rows = bench.measure, []

    def faulty(row, modules, args):
        if rows:
            raise RuntimeError("illegal access\nsomewhere")
        rows.append(row)
        return real(row, modules, args)

    bench.measure = faulty
    code, made = measured("--rounds", "1", "--rows", "^2048 128")
    bench.measure = real
    assert code == 1 and len(made["rows"]) == 1
    assert made["state"]["fault"] == "2048 128 16/16 causal: illegal access", made["state"]


def test_json_file_beside_tables():
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        few = ("--no-build", "--no-check", "--rows", "^2048 128 .*full")
        code, text = run(bench, *few, "--json", file.name)
        assert code == 0 and "at or above FA3" in text
        assert len(json.loads(Path(file.name).read_text())["rows"]) == 1


if __name__ == "__main__":
    module = types.ModuleType("flash_attn_interface")
    module.flash_attn_func = None
    sys.modules["flash_attn_interface"] = module
    sys.modules["flash_attn"] = None  # an import of it fails, whatever is installed
    pretend.start(
        bench.h200,
        Ours=lambda shape, given: Pass("ours"),
        Flash=flash,
        Torch=torch_pass,
        error=lambda got, expected: abs(got - expected),
    )
    sys.exit(pretend.main(globals()))
