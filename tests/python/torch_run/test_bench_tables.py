"""Tables of bench/gpu/run on a module that pretends: tests/api/fake_module.c computes on the host, so
that all but kernels and times is real, on small problems."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULE = ROOT / "build" / "tests" / "api" / "fake_module.so"
ON_FAKES = """
import sys, types
sys.path[:0] = [sys.argv[1]]
import pretend
import torch
torch.cuda.synchronize = lambda: None
torch.cuda.current_stream = torch.cuda.Stream = lambda *at: types.SimpleNamespace(cuda_stream=0)
import attention_gpu as gpu
gpu.DEVICE = "cpu"
real_empty = torch.empty
def empty(*size, **more):  # aligned as on a device
    if more.get("dtype") is not torch.uint8:
        return real_empty(*size, **more)
    made = real_empty(size[0] + 256, **more)
    first = -made.data_ptr() % 256
    return made[first : first + size[0]]
torch.empty = empty
few = {"batch": 3, "q_len": 128, "kv_len": 128, "lengths": (128, 100, 28)}
varlen = pretend.driver.table_of("forward_varlen")
varlen.LONGEST.update(few)
for kinds in varlen.KINDS.values():
    for changes in kinds.values():
        changes.update(few if "batch" in changes else {"lengths": (256,)} if "lengths" in changes else {})
SMALL = {"carry": {"ROWS": 256}, "sum_device": {"ELEMENTS": 1 << 10}}
class Board(pretend.Board):
    def once_ms(self, run):
        run()
        return 1.0
    def settle(self, run):
        pass
    def ms(self, run, warmup, rep):
        return self.once_ms(run)
def smaller(rows):
    for row in rows:
        if "seq" in row:
            row["seq"], row["batch"] = min(row["seq"], 256), 1
            row["heads"] = row["kv_heads"] = max(1, min(row["heads"], 2))
    return rows
for name, rows, out in zip(*[iter(sys.argv[2:])] * 3):
    table = pretend.driver.table_of(name)
    vars(table).update(SMALL.get(name, {}))
    table.rows = lambda real=table.rows: smaller(real())
    words = ("--no-build", "--rounds", "1", "--rows", rows, "--json", out)
    code, text = pretend.run(name, *words, on=Board())
    print(text)
    if code:
        sys.exit(code)
"""
ROWS = {
    "attention_h200": ("^512 64 .*full", {"ours_fwd", "ours_bwd", "flash_fwd"}, {"cudnn"}),
    "orders_h200": ("^512 64 .*causal", {"plain", "descending", "spt", "symmetric"}, set()),
    "prices_h200": ("^1024 128 causal|^1024 keep", {"none_fwd", "given_bwd", "made_bwd", "rng"}, set()),
    "phase_h200": ("^4096 512 causal", {"ours_fwd", "ours_bwd", "math_bwd"}, {"efficient"}),
    "features_h200": (
        "^(dropout: 2048 128 .*causal|rng: rounds 7, 8|heads: 8192 96 |f16: 8192 64 full)",
        {"drop_bwd", "inside_fwd", "ms", "ours_fwd", "f16_bwd"}, {"cudnn"},
    ),
    "forward_varlen": (
        "^causal: 64", {"packed one_fwd", "padded_fwd", "window 256_fwd", "ALiBi_fwd", "bits given_fwd"}, set(),
    ),
    "backward_varlen": ("^full: 64", {"softcap, ALiBi_bwd", "packed_bwd"}, set()),
    "segments": ("^16384 causal", {"inside_fwd", "1_fwd", "4_bwd"}, set()),
    "carry": ("^(64|one: 128) causal", {"call", "parts 2", "parts 4", "none", "in out"}, set()),
    "sum_device": ("^(f32 2|bf16 4)", {"sum", "copy"}, set()),
    "accuracy_h200": ("^(plain|drift) .*S(129x65|512) D64 .*|nan in v .*D64 causal", {"o", "dq", "lse"}, set()),
}  # fmt: skip


@pytest.mark.skipif(not MODULE.exists(), reason="no build/tests/api/fake_module.so")
def test_tables(tmp_path):
    """Results are compared as on a GPU, so that a wrong call shows."""
    shutil.copy(MODULE, tmp_path / "libordo_cuda.so")
    env = {"ORDO_CUDA_MODULE": str(tmp_path / "libordo_cuda.so"), "FAKE_ATTENTION": "1"}
    env["PYTHONPATH"] = str(ROOT / "python")
    words = [str(ROOT / "tests" / "bench")]
    for name, (rows, _, _) in ROWS.items():
        words += [name, rows, str(tmp_path / name)]
    done = subprocess.run(
        [sys.executable, "-c", ON_FAKES, *words],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for name, (_, names, refused) in ROWS.items():
        made = json.loads((tmp_path / name).read_text())["rows"]
        seen = {x for row in made for x in row["figures"]}
        assert names <= seen, (name, names - seen, [row.get("refused") for row in made])
        assert refused <= {x for row in made for x in row.get("refused", ())}, (name, seen)
