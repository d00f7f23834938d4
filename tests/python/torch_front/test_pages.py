"""The examples run and see equal bits; the generated page is what the code says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(root, *command):
    settings = {**os.environ, "PYTHONPATH": str(root / "python"), "PYTHONWARNINGS": "ignore"}
    rest = dict(cwd=root, env=settings, timeout=600, capture_output=True, text=True)
    done = subprocess.run([sys.executable, *command], **rest)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["torch_flash", "torch_sdpa", "torch_transformers", "decode"])
def test_examples_see_equal_bits(root, name):
    if name == "torch_transformers":
        pytest.importorskip("transformers")
    said = run(root, f"examples/{name}.py")
    assert "\nequal\n" in said and "DIFFERENT" not in said


def test_the_recorder_and_the_audit_find_the_flipped_bit(root):
    said = run(root, "examples/torch_recorder.py")
    assert said.startswith("equal: 20 steps") and "\nDIFFERENT at step 17: weight qkv.weight\n" in said
    said = run(root, "examples/audit.py")
    assert "\nequal: every bit of " in said and "\nDIFFERENT: 1 of " in said
    assert f"/{said.splitlines()[2]}, backward unit " in said
    assert "dv, sequence 1, row 196, head 0, column 27: found 0x" in said
    assert "; the file has changed since it was recorded: dv\n" in said


def test_the_generated_page_is_up_to_date(root):
    pytest.importorskip("transformers")
    run(root, "tools/torch-paths", "--check")


def test_numpy_alone_does_not_load_pytorch(root):
    run(root, "-c", "import ordo, sys; sys.exit('torch' in sys.modules)")


def test_the_script_for_cuda_checks_itself_on_the_cpu(root):
    names = ["alone", "flex_masks", "debug_mask", "sdpa_by_ordo", "recorder"]
    said = run(root, "tests/python/torch_front/on_cuda.py", "--device", "cpu", *names)
    assert f"{len(names)} ok, 0 refused, 0 FAIL" in said
