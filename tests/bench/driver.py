"""bench/gpu/run without a GPU: turns, budget, files, peers and refusals, on a table that pretends."""

import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pretend
from pretend import Board, Pass, driver, run
from show import Column, speed

MS = {"ours": 2.0, "fa3": 1.0, "slow": 3.0}


def table(rows: int = 3, **more):
    """A table `pretended` of so many rows, with three contestants of which each has one pass."""
    made = types.ModuleType("pretended")
    made.__doc__ = "What pretends."
    made.entered = []
    made.rows = lambda: [{"group": "g", "name": f"row {x}", "dim": x} for x in range(rows)]

    def enter(contest, row) -> None:
        made.entered.append(row["name"])
        for name, ms in MS.items():
            contest.add(f"{name}_fwd", lambda ms=ms: ms, flop=6e9)

    made.enter = enter
    made.COLUMNS = [speed("÷ FA3", "ours", "fa3", must=0.4)]
    for name, value in more.items():
        setattr(made, name, value)
    return made


def measured(made, *arguments, on=None) -> tuple[int, str, dict]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        code, text = run(made, "--json", file, *arguments, on=on)
        return code, text, json.loads(file.read_text())


def test_turns():
    """Who begins a round changes; a round begins with a fifth of a second of its first."""
    on = Board()
    code, _, made = measured(table(1), "--rounds", "3", on=on)
    assert code == 0 and on.log == [2, 1, 3, 1, 3, 2, 3, 2, 1], on.log
    assert on.settled == [2, 1, 3], on.settled
    assert made["rows"][0]["rounds"] == {f"{name}_fwd": [ms] * 3 for name, ms in MS.items()}
    on = Board()
    measured(table(1), "--rounds", "1", on=on)
    assert on.log == [2, 1, 3] and on.settled == [2]


def test_figures_and_tables():
    code, text, made = measured(table(2))
    assert made["rows"][0]["figures"] == {"ours_fwd": 3.0, "fa3_fwd": 6.0, "slow_fwd": 2.0}
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert (
        len(lines) == 2 + 2 and lines[2].split() == "| row 0 | 3 | 6 | 2 | 0.500 met |".split()
    ), text
    assert "Forward:" in text and "g forward ÷ FA3: 0.500 to 0.500; 2 of 2 met" in text, text
    assert "product of 8192³: 1 TFLOP/s before, 1 after" in text and "no clock" in text
    assert "0.0% apart in the middle" in text, text


def test_rows_are_chosen_by_name():
    code, text = run(table(3), "--list", "--rows", "^g: row [02]")
    assert code == 0 and text.splitlines() == ["g: row 0", "g: row 2"], text
    code, text = run(table(3), "--rows", "nothing")
    assert code == 1 and "no row of pretended matches" in text, text


def test_budget():
    """Rows have their share of the time: fewer rounds, and at last rows that are left out."""
    on = Board(cost=1.0)  # three seconds a round
    code, text, made = measured(table(4), "--rounds", "5", "--budget", "30", on=on)
    rounds = [len(row["rounds"]["ours_fwd"]) for row in made["rows"]]
    assert code == 0 and on.now - 1000 <= 30 and rounds == [2, 2, 3, 3] and not made["left_out"], (
        rounds
    )
    on = Board(cost=1.0)
    code, text, made = measured(table(4), "--budget", "8", on=on)
    assert code == 0 and on.now - 1000 <= 8 and len(made["rows"]) == 2
    assert made["left_out"] == ["g: row 2", "g: row 3"]
    assert "left out for lack of time: g: row 2; g: row 3" in text, text
    assert measured(table(4))[2]["left_out"] == []


def test_resume():
    """Rows of the file are not measured again, and stay in it."""
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder) / "out.json", table(4)
        run(made, "--json", file, "--resume", "--budget", "8", on=Board(cost=1.0))
        assert made.entered == ["row 0", "row 1"]
        code, text = run(made, "--json", file, "--resume")
        said = json.loads(file.read_text())
        assert code == 0 and made.entered == [f"row {x}" for x in range(4)], made.entered
        assert [row["dim"] for row in said["rows"]] == [0, 1, 2, 3] and len(said["states"]) == 2
        assert not said["left_out"] and text.count("| row ") == 5, text
        code, again = run(made, "--replay", file)
        assert code == 0 and again.strip() == text[text.index("g\n") :].strip(), again
        other = Board()
        other.state = lambda: {"gpu": "another", "smi": ""}
        code, text = run(made, "--json", file, "--resume", on=other)
        assert code == 2 and "rows of pretended, this is another" in text, text
        made.__name__ = "renamed"
        code, text = run(made, "--json", file, "--resume")
        assert code == 2 and "rows of pretended: expected those of renamed" in text, text


def test_files_of_several_runs_are_one():
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in "ab"]
        for file, rows in zip(files, ("[01]", "[12]")):
            run(table(3), "--json", file, "--rows", rows)
        code, text = run(table(3), "--replay", *files)
        assert code == 0 and text.count("| row ") == 1 + 3, text
        files[0].write_text("[]")
        code, text = run(table(3), "--replay", *files)
        assert code == 2 and "expected a file that --json wrote" in text, text


def test_an_interrupted_run_prints_what_it_has():
    for way, code in ((KeyboardInterrupt, 130), (SystemExit, 130)):
        made = table(3)

        def enter(contest, row, real=made.enter, way=way):
            if row["dim"] == 2:
                raise way
            real(contest, row)

        made.enter = enter
        got, text, said = measured(made)
        assert got == code and len(said["rows"]) == 2 and "| row 1 " in text, text
        assert "ended: in g: row 2" in text, text


def test_an_interrupted_row_shows_its_rounds():
    """And is measured again by a run that resumes."""
    made, on = table(2), Board()

    def enter(contest, row):
        contest.add("ours", lambda: 2.0)
        contest.add("last", lambda: 3.0)

    def ms(run, warmup, rep):
        if len(on.log) == 6:  # in the second round of the second row
            raise KeyboardInterrupt
        on.log.append(run())
        return on.log[-1]

    made.enter, made.COLUMNS, on.ms = enter, [], ms
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        code, text = run(made, "--rounds", "2", "--json", file, on=on)
        rows = json.loads(file.read_text())["rows"]
        assert code == 130 and rows[1]["partial"] and "| row 1 | 2.000 | 3.000 |" in text, text
        code, text = run(made, "--rounds", "2", "--json", file, "--resume")
        rows = json.loads(file.read_text())["rows"]
        assert code == 0 and len(rows) == 2 and "partial" not in rows[1], rows


def test_a_fault_ends_the_run():
    """A kernel that faults is no refusal: what was measured before is kept."""
    made, on = table(3), Board()

    def sync() -> None:
        if len(made.entered) == 2:
            raise RuntimeError("an illegal memory access\nand more")

    on.sync = sync
    code, text, said = measured(made, on=on)
    assert code == 1 and len(said["rows"]) == 1
    assert "FAULT: g: row 1: an illegal memory access" in text, text


def test_refused_and_wrong():
    """Who refuses is named; who has other results is not timed, and the run fails."""

    def enter(contest, row) -> None:
        contest.ours(contest.both("ours", lambda: Pass(1.0), (1e9, 1e9)))
        contest.both("near", lambda: Pass(2.0, 0.01), (1e9, 1e9))
        contest.both("far", lambda: Pass(2.0, 0.5), (1e9, 1e9))

        def refuses():
            raise ValueError("head size 7: not built\nand more")

        contest.both("none", refuses, (1e9, 1e9))

    code, text, said = measured(table(1, enter=enter))
    assert code == 1 and "wrong: far: o differs by 0.5 of its norm" in text, text
    assert "refused: none: head size 7: not built (1 rows: row 0)" in text, text
    names = {f"{name}_{which}" for name in ("ours", "near") for which in ("fwd", "bwd")}
    assert set(said["rows"][0]["figures"]) == names, said


def test_peers():
    module = types.ModuleType("peer_of_a_test")
    sys.modules["peer_of_a_test"] = module
    seen = []
    made = table(1, PEERS={"fa3": "no_such_module"})
    real = made.enter
    made.enter = lambda contest, row: (seen.append(contest.peers.modules), real(contest, row))
    code, text = run(made, "--peer", "mine=peer_of_a_test")
    assert code == 0 and seen == [{"mine": module}], seen
    assert "absent: fa3: no_such_module: ModuleNotFoundError" in text, text
    code, text = run(made, "--peer", "fa3=peer_of_a_test")
    assert code == 0 and "absent" not in text
    code, text = run(made, "--peer", "mine=no_such_module")
    assert code == 2 and "--peer mine=no_such_module: ModuleNotFoundError" in text, text
    code, text = run(made, "--peer", "mine")
    assert code == 2 and "--peer: mine: expected NAME=MODULE" in text, text
    code, text = run(table(1), "--peer", "mine=json")
    assert code == 2 and "--peer mine: pretended takes no peers" in text, text


def test_a_run_that_clocks_itself():
    """All its times count, and it need not launch; slow ones are timed once."""

    def enter(contest, row) -> None:
        contest.clock("step", lambda: [10.0, 20.0, 30.0])
        contest.clock("slow", lambda: [2000.0])
        contest.add("launch", lambda: 1500.0)

    code, text, said = measured(table(1, enter=enter, COLUMNS=[]), "--rounds", "2")
    row = said["rows"][0]
    assert row["rounds"] == {"step": [10, 20, 30] * 2, "slow": [2000], "launch": [1500]}, row
    assert row["figures"] == {"step": 20.0, "slow": 2000.0, "launch": 1500.0}
    assert "20.000" in text and "| 2000 " in text, text


def test_a_figure_that_the_host_binds():
    on = Board()
    on.host_ms = lambda run: 1.5 if run() == 1.0 else 0.0
    code, text, said = measured(table(1), on=on)
    assert said["rows"][0]["host_bound"] == ["fa3_fwd"]
    assert "6*" in text and "÷ FA3" not in text, text


def test_energy():
    code, text, said = measured(table(2), "--energy", "row 1")
    assert "joules" not in said["rows"][0]
    assert said["rows"][1]["joules"] == {"ours_fwd": 4.0, "fa3_fwd": 2.0, "slow_fwd": 6.0}
    assert "Joules per run:" in text and "4.000 (666.667)" in text, text


def test_a_table_that_measures_itself():
    """With rows for the model, in a file of their own."""
    made = table(
        2, measure=lambda contest, row: {"figures": {"bytes": row["dim"] + 0.5}}, COLUMNS=[]
    )
    made.model_rows = lambda row: [{"kernel": "k", "seconds": row["figures"]["bytes"]}]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        code, text = run(made, "--model", file)
        said = json.loads(file.read_text())
    assert code == 0 and [x["seconds"] for x in said["results"]] == [0.5, 1.5] and "1.500" in text
    assert said["machine"] == "h200" and "bench/gpu/run pretended" in said["source"][0]


def test_verdicts():
    def words(value, **bars):
        return Column("x", lambda row, suffix: value, **bars).verdict({}, "")

    assert [words(x, must=0.85, aim=0.92) for x in (0.84, 0.85, 0.92)] == ["SHORT", "met", "aim"]
    assert [words(x, must=0.26, aim=0.2, most=True) for x in (0.27, 0.25, 0.2)] == [
        "SHORT",
        "met",
        "aim",
    ]
    assert words(1.0) == words(None, must=1.0) == words(0.5, aim=1.0) == ""
    assert words(2.0, must=lambda row, suffix: 3.0) == "SHORT"


def test_arguments():
    for words, said in (
        (("--rounds", "0"), "--rounds: 0: expected 1 or more"),
        (("--rows", "("), "--rows: (: expected a regular expression"),
        (("--budget", "0"), "--budget: 0: expected more than 0 seconds"),
        (("--resume",), "--resume: expected --json FILE"),
        (("--device", "cpu"), "--device cpu: pretended runs on a GPU only"),
        (("--model", "x"), "--model x: pretended makes none"),
        (("--replay", "/nowhere.json"), "/nowhere.json: expected a file that --json wrote"),
    ):
        code, text = run(table(1), *words)
        assert code == 2 and said in text, text


def test_tables_start():
    """Every table has rows of different names, and says what it measures; here none can run."""
    for name in driver.table_names():
        made = driver.table_of(name)
        names = [driver.full_name(row) for row in made.rows()]
        assert names and len(set(names)) == len(names), name
        assert made.__doc__.strip(), name
    command = [sys.executable, str(pretend.ROOT / "bench" / "gpu" / "run")]
    done = subprocess.run([*command, "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2 and "TABLE: invalid choice: 'nonsense'" in done.stderr, done.stderr
    done = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and ", ".join(driver.table_names()) in done.stdout.replace(
        "\n", " "
    )


if __name__ == "__main__":
    sys.exit(pretend.main(globals()))
