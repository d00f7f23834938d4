"""The drawn table of calls: every entry and feature in every situation has the bits of NumPy's front.

Each run draws the same cases; ORDO_TEST_SEED=n others, ORDO_TEST_DRAWS=n as many in each situation.
on_cuda.py runs the table on a GPU.
"""

from __future__ import annotations

import os

import ordo.torch
import pytest
from cases import AXES, draw
from situations import CHEAP, DEAR, one_rank, table

SEED = int(os.environ.get("ORDO_TEST_SEED", "1"))
DRAWS = int(os.environ.get("ORDO_TEST_DRAWS", "0"))


@pytest.fixture
def surroundings():
    """What some entries and situations need."""
    ordo.torch.register()
    with one_rank():
        yield


@pytest.mark.parametrize("situation", [*CHEAP, *DEAR])
def test_bits(situation, surroundings):
    found = table(situation, DRAWS or (20 if situation in CHEAP else 3), SEED, pairs=situation == "eager")
    wrong = found.wrong
    assert not wrong, f"{len(wrong)} of {found.count} cases, ORDO_TEST_SEED={SEED}:\n" + "\n".join(wrong[:8])


def test_each_value_comes_in_each_situation():
    """The axes are covered: with enough draws, no value is left out for good."""
    seen = {(axis, x) for case in draw("eager", 0, SEED, pairs=True) for axis, x in case.values.items()}
    assert {(axis, x) for axis, values in AXES.items() for x in values} <= seen
