"""Tests of the PyTorch front. `make python-torch-test` runs them where there is PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import ordo.torch  # noqa: E402


@pytest.fixture(autouse=True)
def as_it_was():
    """Each test begins with the same seeds and leaves no switch turned."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    ordo.torch.set_keep_bits_memory(None)
