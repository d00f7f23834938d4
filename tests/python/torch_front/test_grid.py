"""The drawn table of calls: every entry and feature in every situation has the bits of NumPy's front.

Each run draws the same cases; ORDO_TEST_SEED=n others, ORDO_TEST_DRAWS=n more in each situation,
ORDO_TEST_DEVICE=cuda runs them on a GPU, and ORDO_TEST_CASE="situation, seed" finds one again.
"""

from __future__ import annotations

import contextlib
import os

import ordo.torch
import pytest
import torch
from cases import AXES, Case, draw
from oracle import Results, differences, expected, reference_on
from situations import CHEAP, DEAR, one_rank
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

DEVICE = os.environ.get("ORDO_TEST_DEVICE", "cpu")
SEED = int(os.environ.get("ORDO_TEST_SEED", "1"))
DRAWS = int(os.environ.get("ORDO_TEST_DRAWS", "0"))
CHEAP_DRAWS, DEAR_DRAWS = 12, 3
MODES = {"auto": "auto", "little memory": "sequential"}


@pytest.fixture
def surroundings():
    """What some entries and situations need."""
    ordo.torch.register()
    with one_rank():
        yield


def run(case: Case, patch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong with a case."""
    mode = case.values["mode"]
    patch.setenv("ORDO_DROPOUT_MODE", MODES.get(mode, mode))
    ordo.torch.set_keep_bits_memory(4096 if mode == "little memory" else None)
    ordo.torch._attention.forget()
    with contextlib.ExitStack() as stack:
        if case.values["entry"] == "sdpa":
            activate_flash_attention_impl("ORDO")
            stack.callback(restore_flash_attention_impl)
        case.build()
        case.start()
        found = {**CHEAP, **DEAR}[case.situation](case)
    right = expected(case) if case.device == "cpu" else reference_on(case, case.device)
    if case.situation == "fake":
        right = Results(*(None if x is None else torch.empty_like(x) for x in right[:2]))
        pairs = [(x.shape, x.dtype) == (y.shape, y.dtype) for x, y in zip(found, right) if x is not None]
        return [] if all(pairs) else [f"shapes {[x.shape for x in found if x is not None]}"]
    return differences(case, found, right)


@pytest.mark.parametrize("situation", [*CHEAP, *DEAR])
def test_bits(situation, surroundings, monkeypatch):
    count = DRAWS or (CHEAP_DRAWS if situation in CHEAP else DEAR_DRAWS)
    cases = draw(situation, count, SEED, pairs=situation == "eager")
    wrong = []
    for case in cases:
        case.device = DEVICE
        if DEVICE != "cpu" and case.values["dtype"] == "f32":  # which CUDA's kernels do not have
            case.values["dtype"] = "bf16"
        try:
            said = run(case, monkeypatch)
        except Exception as error:  # of any kind: a case that is allowed does not raise
            said = [f"{type(error).__name__}: {str(error)[:300]}"]
        if said:
            wrong.append(f"{case}\n      {'; '.join(said)}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases, ORDO_TEST_SEED={SEED}:\n" + "\n".join(wrong[:8])


def test_each_value_comes_in_each_situation():
    """The axes are covered: with enough draws, no value is left out for good."""
    seen = {(axis, x) for case in draw("eager", 0, SEED, pairs=True) for axis, x in case.values.items()}
    assert {(axis, x) for axis, values in AXES.items() for x in values} <= seen
