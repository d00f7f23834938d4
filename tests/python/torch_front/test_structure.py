"""The files of ordo.torch: each imports only those below it; what CUDA takes is asked of ordo."""

from __future__ import annotations

import ast
from pathlib import Path

import ordo
import pytest
from ordo.torch import _inputs

FOLDER = Path(ordo.__file__).parent

# Lowest first.
ORDER = [
    "_front", "_inputs", "_blocks", "_call", "_dropout", "_node", "_parts", "_kept", "_pages", "_attention",
    "_flash", "_sdpa", "_sum", "_linear", "_invariant",
    "__init__",
]  # fmt: skip


def imported(path):
    """Names of the modules beside `path` that it imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module] if node.module else [x.name for x in node.names]


def test_imports_go_one_way_down():
    files = {path.stem: path for path in (FOLDER / "torch").glob("*.py")}
    assert sorted(files) == sorted(ORDER)
    for at, name in enumerate(ORDER):
        for other in imported(files[name]):
            assert other in ORDER[:at], f"{name} imports {other}"


def test_nothing_reads_the_text_of_an_error():
    for path in FOLDER.rglob("*.py"):
        if path.name != "_library.py":  # which defines it
            names = [x.attr for x in ast.walk(ast.parse(path.read_text()))
                     if isinstance(x, ast.Attribute)]  # fmt: skip
            assert "message" not in names, path


@pytest.mark.parametrize(
    "dim, v_dim, width", [(64, 64, 0), (72, 72, 0), (60, 60, 64), (1, 1, 8), (64, 128, 0),
                          (20, 36, 40), (128, 64, 0), (255, 256, 256)]
)  # fmt: skip
def test_head_sizes_are_filled_up_to_what_cuda_takes(dim, v_dim, width):
    assert _inputs.fill_width(dim, v_dim) == width


def test_limits_are_those_of_plans():
    for backend, machine in (("cpu", "host"), ("cuda", "h200")):
        limits = ordo.backend_limits(backend)
        problem = ordo.Problem(heads=1, q_len=1, dtype="bf16", head_dim=limits.head_dim_max)
        assert "bf16" in limits.dtypes and ("f32" in limits.dtypes) == (backend == "cpu")
        ordo.Plan(problem, machine)
        with pytest.raises(ordo.Error, match="head_dim"):
            ordo.Plan(problem.replace(head_dim=limits.head_dim_max + 1), machine)
