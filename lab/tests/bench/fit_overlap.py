"""lab/bench/fit_overlap: it finds the form and the share that rows were made with."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ORDO = sys.argv[1]


def rows(count: int) -> list[dict]:
    shapes = [(seq, embed) for seq in (2048, 8192, 16384) for embed in (4096, 8192)][:count]
    same = {"kernel": "block", "precision": "bf16", "rounds": 7, "bits": 32, "generator": "compare"}
    modes = ("sequential", "overlapped")
    return [
        {**same, "seq": seq, "embed": embed, "mode": mode, "seconds": 1.0}
        for seq, embed in shapes for mode in modes
    ]  # fmt: skip


def run(file: Path) -> subprocess.CompletedProcess:
    program = [sys.executable, str(ROOT / "lab" / "bench" / "fit_overlap"), str(file)]
    return subprocess.run([*program, "--ordo", ORDO], capture_output=True, text=True)


def write(file: Path, made: list[dict]) -> None:
    file.write_text(json.dumps({"machine": "h200", "results": made}))


with tempfile.TemporaryDirectory() as name:
    file = Path(name) / "rows.json"
    for sets, chosen in (
        (("gap_share=0.3",), "generation"),
        (("gap_share=0", "tail_share=0.5"), "tails"),
    ):
        made = rows(6)
        write(file, made)
        words = [word for each in sets for word in ("--set", each)]
        command = [ORDO, "model", "validate", str(file), "--json", *words]
        said = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["rows"]
        for row, predicted in zip(made, said):
            row["seconds"] = 1.1 * predicted["predicted_seconds"]  # a slow board: no ratio changes
        write(file, made)
        done = run(file)
        assert done.returncode == 0, done.stderr
        share = float(sets[-1].split("=")[1])
        assert f"chosen: {chosen}; held out: mean error 0." in done.stdout, done.stdout
        line = next(x for x in done.stdout.splitlines() if x.startswith(f"{chosen} "))
        assert abs(float(line.split()[-1]) - share) <= 0.02, line
    write(file, rows(2))
    done = run(file)
    assert done.returncode == 1 and "2 blocks in both modes: expected 5 or more" in done.stderr
    done = run(Path(name) / "nowhere.json")
    assert done.returncode == 2 and "no such file" in done.stderr, done.stderr
print("passed")
