"""Where the tests find things. `pythonpath` in pyproject.toml puts python/ in front."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def command() -> str:
    """The `ordo` command of the build."""
    path = os.environ.get("ORDO", str(ROOT / "build" / "bin" / "ordo"))
    if not os.access(path, os.X_OK):
        pytest.skip(f"no command at {path}")
    return path


@pytest.fixture(autouse=True)
def as_it_was():
    """Where PyTorch is: each test begins with the same seeds and leaves no switch turned."""
    if "ordo.torch" not in sys.modules:
        yield
        return
    import ordo.torch
    import torch

    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    ordo.torch.set_keep_bits_memory(None)


def pytest_collection_modifyitems(items):
    """Select the tests of each file whose turn it is: ORDO_TEST_QUARTER is 0 to 3 (tests/python/run)."""
    quarter = os.environ.get("ORDO_TEST_QUARTER")
    if quarter:
        items[:] = items[int(quarter) :: 4]
