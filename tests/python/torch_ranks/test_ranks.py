"""Attention over ranks: the programs beside this file, each a group of processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(
    program: str, *arguments: str, launcher: tuple[str, ...] = (), seconds: int = 2400
) -> str:
    path = os.pathsep.join([str(HERE.parents[2] / "python"), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *launcher, str(HERE / program), *arguments],
        env={**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_drawn_calls_have_the_bits_of_one_call():
    said = run("drawn.py", "--draws", os.environ.get("ORDO_TEST_DRAWS", "150"))
    for words in ("'heads'", "'gather'", "'relay'", "'1 ranks'", "'2 ranks'", "'3 ranks'", "'4 ranks'", "'8 ranks'",
                  "'zigzag'"):  # fmt: skip
        assert words in said


@pytest.mark.parametrize("fault", ["disagree", "dead", "slow"])
def test_errors_come_on_every_rank(fault):
    run("agreement.py", fault)


def test_programs_with_dtensors_ddp_fsdp2_and_checkpoints():
    run("programs.py")


def test_relay_holds_few_key_heads():
    run("memory.py")


def test_a_gpt_trains_with_the_same_bits_on_1_2_and_4_ranks():
    run("gpt.py")


@pytest.mark.parametrize("name, lines", [("torch_ranks", 4), ("torch_ranks_transformers", 2), ("row_parallel", 1)])
def test_examples_run_under_torchrun(name, lines):
    said = run("../../../examples/" + name + ".py", launcher=TORCHRUN)
    assert said.count("equal") == lines and "DIFFERENT" not in said


def test_virtual_ranks_have_the_bits_of_one_call():
    sizes = "--rows 300 --ranks 3 --dims 16 --heads 2 --kv-heads 2 --repeats 1 --also 4,2,8".split()
    assert "0 failed" in run("on_cuda.py", "--device", "cpu", *sizes)
