"""lab/bench/fit_prices: it writes the constants that rows were made with, and the committed table is
that of the committed rows."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ORDO = sys.argv[1]
ROWS = ROOT / "lab" / "bench" / "measured" / "h200-prices.json"
CONSTANTS = ROOT / "lab" / "src" / "price" / "price_constants.c"


def run(file: Path, *words: str) -> subprocess.CompletedProcess:
    program = [sys.executable, str(ROOT / "lab" / "bench" / "fit_prices"), str(file)]
    return subprocess.run([*program, "--ordo", ORDO, *words], capture_output=True, text=True)


def test_committed() -> None:
    done = run(ROWS, "--check", "--most", "5")
    assert done.returncode == 0, done.stderr
    kept = next(line for line in done.stdout.splitlines() if line.startswith("no rows, constants kept: "))
    newer = [f"backward_{size}_{keep}" for size in (192, 256) for keep in ("given", "made")]
    names = kept.removeprefix("no rows, constants kept: ").split(", ")
    assert names == ["forward_576_made", *newer, "backward_576_made"], kept
    done = run(ROWS, "--check", "--most", "0.5")
    assert done.returncode == 1 and "at most 0.5 % allowed" in done.stderr, done.stderr


def test_fit(folder: Path) -> None:
    """Rows that the model made with other constants, of one kind and of keep bits."""
    file, table = folder / "rows.json", folder / "constants.c"
    made = json.loads(ROWS.read_text())
    made["results"] = [
        row for row in made["results"]
        if row["kernel"] == "rng" or (row["head_dim"], row["keep"]) == (128, "given")
    ]  # fmt: skip
    file.write_text(json.dumps(made))
    table.write_text(CONSTANTS.read_text())
    sets = {"forward_128_given": 1.125, "forward_128_given_start": 7.5, "rng_start": 12000}
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    command = [ORDO, "model", "validate", str(file), "--json", *words]
    said = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["rows"]
    for row, predicted in zip(made["results"], said):
        row["seconds"] = predicted["predicted_seconds"]
    file.write_text(json.dumps(made))
    done = run(file, "--constants", str(table), "--check")
    assert done.returncode == 1 and "not the constants of" in done.stderr, done.stderr
    assert table.read_text() == CONSTANTS.read_text()
    done = run(file, "--constants", str(table))
    assert done.returncode == 0 and "forward_64_plain" in done.stdout, done.stdout
    old, new = CONSTANTS.read_text().splitlines(), table.read_text().splitlines()
    changed = [line.strip() for line, before in zip(new, old) if line != before]
    assert len(old) == len(new) and len(changed) == 3, changed
    times, starts, bits = changed
    assert times.startswith('TIMES("forward", "128", 2,') and times.split(", ")[4] == "1.125", times
    assert starts.split(", ")[:3] == ['STARTS("forward"', '"128"', "2"], starts
    assert abs(float(starts.split(", ")[4]) - 7.5) < 0.2, starts  # a launch has no factor
    assert bits == "IS(12000, FITTED,", bits
    assert run(file, "--constants", str(table), "--check").returncode == 0


def test_faults(folder: Path) -> None:
    done = run(folder / "nowhere.json")
    assert done.returncode == 2 and "no such file" in done.stderr, done.stderr
    done = run(ROWS, "--most", "-1")
    assert done.returncode == 2 and "--most -1: expected 0 or more" in done.stderr, done.stderr


with tempfile.TemporaryDirectory() as name:
    test_committed()
    test_fit(Path(name))
    test_faults(Path(name))
print("passed")
