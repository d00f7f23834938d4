"""Where the tests find things. `pythonpath` in pyproject.toml puts python/ in front."""

from __future__ import annotations

import os
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
