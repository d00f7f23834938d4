"""The examples run and see equal bits; the generated page is what the code says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(root, *command):
    settings = {**os.environ, "PYTHONPATH": str(root / "python"), "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env=settings,
        timeout=600,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", ["torch_flash", "torch_sdpa", "torch_transformers", "decode"])
def test_examples_see_equal_bits(root, name):
    if name == "torch_transformers":
        pytest.importorskip("transformers")
    done = run(root, f"examples/{name}.py")
    assert done.returncode == 0, done.stderr
    assert "\nequal\n" in done.stdout and "DIFFERENT" not in done.stdout


def test_the_recorder_finds_the_flipped_bit(root):
    done = run(root, "examples/torch_recorder.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: 20 steps")
    assert "\nDIFFERENT at step 17: weight qkv.weight\n" in done.stdout


def test_the_audit_finds_the_damaged_bit(root):
    done = run(root, "examples/audit.py")
    assert done.returncode == 0, done.stderr
    assert "\nequal: every bit of " in done.stdout and "\nDIFFERENT: 1 of " in done.stdout
    file = done.stdout.splitlines()[2]
    assert f"/{file}, backward unit " in done.stdout
    assert "dv, sequence 1, row 196, head 0, column 27: found 0x" in done.stdout
    assert "; the file has changed since it was recorded: dv\n" in done.stdout


def test_the_generated_page_is_up_to_date(root):
    pytest.importorskip("transformers")
    done = run(root, "tools/torch-paths", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_numpy_alone_does_not_load_pytorch(root):
    done = run(root, "-c", "import ordo, sys; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0


def test_the_script_for_cuda_checks_itself_on_the_cpu(root):
    script = "tests/python/torch_front/on_cuda.py"
    names = ["alone", "flex_masks", "debug_mask", "sdpa_by_ordo", "opcheck", "recorder"]
    done = run(root, script, "--device", "cpu", *names)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(names)} ok, 0 refused, 0 FAIL" in done.stdout
