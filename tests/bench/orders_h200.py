"""tests/bench/orders_h200_test.sh: bench/gpu/orders_h200 without PyTorch, without a GPU."""

import json
import sys
import tempfile
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pretend
from pretend import run

bench = pretend.load("orders_h200")
MS = {"default": 1.0, "ascending": 2.0, "descending": 1.25, "shift": 1.5, "spt": 1.6, "twin": 1.7}
wrong: set = set()  # orders whose gradients are others


class Lse:
    def data_ptr(self) -> int:
        return 1


class Number(float):
    def double(self) -> float:
        return float(self)


class Ours(pretend.Pass):
    """Backward passes of MS; symmetric runs as spt, spt+tail is refused."""

    def __init__(self, shape, given, order="default", group=None, **choices) -> None:
        if group:
            raise pretend.Error("waves: refused here")
        if order == "spt+tail":
            raise pretend.Error("order spt+tail: refused here")
        runs = "spt" if order == "symmetric" else order
        super().__init__(MS[runs])
        self.order, self.lse, self.call = order, Lse(), types.SimpleNamespace()
        self.plan = types.SimpleNamespace(
            info=types.SimpleNamespace(order=runs), ms=1.1 * MS[runs]
        )

    def results(self) -> dict:
        return {"dq": Number(0.5 if self.order in wrong else 0.0)}


def start() -> None:
    bench.predicted = lambda plan: {"ms": plan.ms}
    pretend.torch.zeros_like = lambda x: x
    pretend.start(bench.h200, Ours=Ours, error=lambda got, expected: abs(got - expected))


def test_rows():
    assert len(run(bench, "--list")[1].splitlines()) == 24
    assert run(bench, "--rounds", "0")[0] == 2 and run(bench, "--rows", "(")[0] == 2


def test_ranks():
    assert bench.ranks_of([3.0, 1.0, 3.0]) == [2.5, 1, 2.5]
    assert bench.agreement([1, 2, 3], [10, 20, 30]) == 1
    assert bench.agreement([1, 2, 3], [3, 2, 1]) == -1
    assert bench.agreement([1, 2], [1, 2]) is None and bench.agreement([1, 1, 1], [1, 2, 3]) is None


def test_judge():
    made = bench.judge({"plain": 1.0, "ascending": 2.0, "spt": 1.0}, {"ascending": 1.0, "spt": 2.0})
    assert made["fastest"] == "spt" and made["predicted_fastest"] == "ascending", made
    assert made["ascending_loss"] == 0.5 and made["errors"] == {"ascending": -0.5, "spt": 1.0}


def test_a_run():
    start()
    pretend.settled.clear()
    with tempfile.TemporaryDirectory() as folder:
        out, picture = Path(folder) / "out.json", Path(folder) / "out.svg"
        code, text = run(bench, "--no-build", "--json", str(out), "--plot", str(picture))
        rows = json.loads(out.read_text())["rows"]
        assert code == 0 and len(rows) == 24
        assert len(pretend.settled) == 3 * 24  # every round begins under load
        assert all(row["fastest"] == "descending" and row["ranks"] == 1 for row in rows)
        assert all(abs(row["ascending_loss"] - 0.375) < 1e-9 for row in rows)
        assert "symmetric: runs as spt (24 rows" in text and "refused here (24 rows" in text, text
        assert "ascending loses up to 37.5%" in text and "predicted in 12 of 12 rows" in text, text
        names = {x.tag.split("}")[1] for x in ElementTree.parse(picture).iter()}
        assert {"svg", "polyline", "circle", "text"} <= names, names
        again = run(bench, "--replay", str(out))[1]
        assert again == text, again


def test_a_killed_run_keeps_its_rows():
    start()
    measured, real = [], bench.measure

    def killed(row, args):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(row)
        return real(row, args)

    bench.measure = killed
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        try:
            run(bench, "--no-build", "--json", str(out))
            raise AssertionError("not killed")
        except KeyboardInterrupt:
            pass
        bench.measure = real
        assert len(json.loads(out.read_text())["rows"]) == 2
        code, text = run(bench, "--replay", str(out))
        assert code == 0 and "ascending loses up to 37.5%" in text, text


def test_wrong_gradients():
    start()
    wrong.add("shift")
    code, text = run(bench, "--no-build", "--rows", "^512 64 .*full")
    wrong.clear()
    assert code == 1 and "WRONG shift: dq differs by 0.5 of its norm (1 rows" in text, text


if __name__ == "__main__":
    sys.exit(pretend.main(globals()))
