"""`bench/gpu/run counters_h200` without a GPU, a profiler or NVML."""

import json
import os
import sys
import tempfile
import types
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "tests" / "bench")]
import pretend  # noqa: E402
from pretend import driver, run  # noqa: E402

bench = driver.table_of("counters_h200")
COMMAND = bench.COMMAND = Path(os.environ["ORDO"])
GIB = 2**30

# Nsight Compute's page of raw values: lines of its own, what the program prints, a header, units.
PAGE = """==PROF== Connected to process 7 (traffic)
==PROF== Profiling "scores_kernel" - 0: 0%....50%....100% - 4 passes
"ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","l1tex__m_xbar2l1tex_read_bytes.sum","l1tex__m_l1tex2xbar_write_bytes.sum","launch__grid_size"
"","","","byte","byte","byte","byte",""
"0","7","scores_kernel(args)","1,000","2000","{bytes:,}","50","132"
"1","7","product_kernel(args)","3000","0","10","40","132"
==PROF== Disconnected from process 7
"""


class Driver:
    """Counters of a memory that moves 5e9 bytes per millisecond at 100 %."""

    def over(self, seconds):
        return {"10": {"value": 40.0, "name": "DRAM", "unit": "%"}}


def program(said: str, code: int = 0):
    lines = iter(said.splitlines(keepends=True))
    return lambda *words, **more: types.SimpleNamespace(stdout=lines, wait=lambda: code)


def profiled(moved: int):
    page = PAGE.format(bytes=moved)
    return lambda *words, **more: types.SimpleNamespace(stdout=page, stderr="")


def with_pretended(names: dict, of, do):
    kept = {name: getattr(of, name) for name in names}
    for name, value in names.items():
        setattr(of, name, value)
    try:
        return do()
    finally:
        for name, value in kept.items():
            setattr(of, name, value)


def passes() -> list[dict]:
    return [row for row in bench.rows() if not row["group"]]


# ---- tests ----


def test_page_of_the_profiler():
    kernels = bench.parse_ncu(PAGE.format(bytes=1234567))
    assert [x["kernel"] for x in kernels] == ["scores_kernel", "product_kernel"]
    assert bench.total(kernels, bench.READ) == 4000 and bench.total(kernels, bench.WRITE) == 2000
    assert bench.total(kernels, bench.IN) == 1234577 and bench.total(kernels, bench.OUT) == 90
    assert bench.total(kernels, "lts__t_bytes") is None


def test_reasons():
    for text, why in (
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "does not permit"),
        ("skipped: no device of compute capability 9.0: no CUDA-capable device", "no CUDA-capable"),
        ("==ERROR== Failed to find metric x", "Failed to find metric x"),
        ("nothing of use", "no kernels: nothing of use"),
    ):
        try:
            bench.parse_ncu(text)
            raise AssertionError("no reason")
        except OSError as error:
            assert why in str(error), error


def zeros(dim):
    """Bytes per score of Q's columns beyond the head size, which chains up to 192 copy."""
    return 2 * (192 - dim) / 64 if dim < 192 else 0


def test_count_is_that_of_the_model():
    """The parts that grow with the scores, with the model's tiles, are what the command prints."""
    model, once = bench.model_of(), 1 / bench.SEQ
    flash = bench.own("flash", "backward", 128) - 8 / 128 - 18 * 128 * once
    assert flash == model[128]["flash"]
    phase = bench.own("phase", "backward", 512) - 10 * 512 * once
    assert abs(phase + 2 - model[512]["phase"]) < 1e-9  # kernels keep P in registers: 2 bytes less
    for dim in (128, 192, 256):  # in chains, with row statistics
        phase = bench.own("phase", "backward", dim) - 8 / 64 - 14 * dim * once - zeros(dim)
        assert abs(phase - model[dim]["phase"]) < 1e-9
    tiles = 4 * 256 / 80 + 4 * 256 / 128  # apart's tiles that fit best; the kernel has 64 for 80
    assert abs(tiles - model[256]["apart"]) < 1e-9
    assert bench.phase_product(384) == 2 * 2 + 6 and bench.phase_product(448) == 2 * 2 + 7


def test_rows_are_replayed():
    """Every row has a count of HBM; without L2 it would be that of the multiprocessors, less row
    statistics, which the replay leaves out."""
    rows = passes()
    replays = {row["name"]: bench.replayed(row) for row in rows}
    counted = {name: made["bytes_per_score"] for name, made in replays.items()}
    assert len(counted) == len(bench.ROWS)
    assert counted["flash backward 128"] < 1 and counted["phase backward 512"] > 10
    for row in rows:
        own = bench.own_of(row)
        assert counted[row["name"]] < own
        if row["form"] == "phase" and row["pass"] == "backward":
            most = replays[row["name"]]["most_bytes"] / row["scores"]
            statistics = 8 / 64 if row["dim"] <= bench.CHAIN_MOST else 0
            beyond = zeros(row["dim"])
            assert abs(own - statistics - beyond - most) < 1e-9, row["name"]
    assert "phase backward 192/128" in counted
    assert bench.words_of(rows[-1]) == ["phase", "backward", "192/128"]


def test_streams_calibrate_the_driver():
    streams = {
        name: {"nvml": {"counters": Driver().over(1), "ms": 2.0, "bytes": 4 * GIB}}
        for name in ("read", "write")
    }
    assert bench.full_rate(streams) == 4 * GIB / 2.0 / 0.4
    row = passes()[3]
    row["nvml"] = {"counters": Driver().over(1), "ms": 8.0}
    got = bench.figures(row, streams)
    assert got["hbm_driver"] == 16 * GIB / row["scores"] and got["sm"] is None
    assert bench.full_rate({"read": {}, "write": {}}) is None


def test_a_pass_that_runs_on():
    said = "bytes 4294967296\nready\npasses 100 ms 1.25\n"
    read, real, bench.counters = {"name": "read"}, bench.counters, Driver
    bench.SECONDS = 0.1
    try:
        popen = {"Popen": program(said)}
        made = with_pretended(popen, bench.subprocess, lambda: bench.steady(read))
        assert made["ms"] == 1.25 and made["bytes"] == 4 * GIB
        try:
            popen = {"Popen": program("skipped: no device\n", 77)}
            with_pretended(popen, bench.subprocess, lambda: bench.steady(read))
            raise AssertionError("a program that failed was taken")
        except OSError as error:
            assert "no device" in str(error)
    finally:
        bench.counters = real


def test_a_row_by_the_profiler():
    row = passes()[3]
    own = bench.own_of(row)
    names = {"profiler": lambda: ["ncu"], "known_metrics": lambda ncu: ["x"]}
    row["ncu"] = with_pretended(
        {"run": profiled(round(own * row["scores"]))}, bench.subprocess,
        lambda: with_pretended(names, bench, lambda: bench.profile(row)),
    )  # fmt: skip
    assert bench.ratio(bench.figures(row, {})["sm"], own) == "1.000"
    assert bench.ratio(0.85 * own, own) == "0.850 OFF" and bench.ratio(1.0, None) is None


def measured(**names) -> tuple[int, str, list]:
    names = {"load": lambda args: pretend.Board(), **names}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counters.json"
        code, text = with_pretended(names, bench, lambda: run("counters_h200", "--json", out))
        rows = json.loads(out.read_text())["rows"] if out.exists() else []
    return code, text, rows


def refuse(row):
    raise OSError("ERR_NVGPUCTRPERM: not permitted")


def test_a_run():
    """Both instruments on every row; the driver's counter is calibrated by the streams before."""
    kernels = [{"kernel": "x", "values": {bench.READ: 3e9, bench.WRITE: 1e9}}]
    run_on = {"counters": Driver().over(1), "ms": 2.0, "bytes": 4 * GIB}
    both = {"profile": lambda row: kernels, "steady": lambda row: run_on}
    code, text, rows = measured(**both)
    assert code == 0 and len(rows) == len(bench.ROWS) + len(bench.STREAMS), text
    assert rows[3]["figures"]["hbm_driver"] == 4 * GIB / rows[3]["scores"]
    assert text.count("HBM read") == len(bench.ROWS) and "TB/s known; DRAM 40 %" in text, text
    code, text, rows = measured(**both | {"profile": refuse})
    assert code == 0 and "refused: ncu: ERR_NVGPUCTRPERM: not permitted (14 rows" in text, text
    code, text, rows = measured(profile=refuse, steady=refuse)
    assert code == 77 and "skipped: ERR_NVGPUCTRPERM" in text, text


def test_count_is_what_was_measured():
    """On an H200: bytes of the multiprocessors are the count with the kernels' tiles within 0.5 %,
    bytes of HBM the replay within 10 %, by both instruments."""
    measured = pretend.ROOT / "lab" / "bench" / "measured" / "h200-counters.json"
    rows = json.loads(measured.read_text())["rows"]
    names = [row["name"] for row in passes()]
    streams, rows = bench.streams_of(rows), [row for row in rows if row["name"] in names]
    assert [row["name"] for row in rows] == names
    for row in rows:
        got, hbm = bench.figures(row, streams), bench.replayed(row)["bytes_per_score"]
        assert abs(got["sm"] / bench.own_of(row) - 1) < 0.005, row["name"]
        assert abs(got["hbm"] / got["hbm_driver"] - 1) < 0.08, row["name"]  # two instruments
        for counted in (got["hbm"], got["hbm_driver"]):
            assert abs(counted / hbm - 1) < 0.1, (row["name"], counted, hbm)
        assert row["figures"] == got
    for name, way in (("read", bench.READ), ("write", bench.WRITE)):
        moved = bench.total(streams[name]["ncu"], way)
        assert abs(moved / streams[name]["nvml"]["bytes"] - 1) < 0.01, name
    crossed = bench.total(streams["l2"]["ncu"], "lts__t_sectors_srcunit_ltcfabric")
    asked = bench.total(streams["l2"]["ncu"], bench.L2)
    assert crossed < 0.01 * asked  # a half of L2 keeps what it reads of the other
    code, text = run("counters_h200", "--replay", measured)
    assert (
        code == 0 and "| phase backward 512 " in text and "phase backward 512: phase_scores" in text
    ), text


if __name__ == "__main__":
    sys.exit(pretend.main(globals()))
