"""How the library is found, and what is said when it is not or is another's."""

from __future__ import annotations

import copy
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ordo
import pytest

PACKAGE = Path(ordo.__file__).parent


def run(folder, code="import ordo; print(ordo.build().path)", **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ORDO", "PYTHONPATH"))}
    return subprocess.run(
        [sys.executable, "-c", code], env={**environment, "PYTHONPATH": str(folder), **variables},
        capture_output=True, text=True, timeout=600, cwd="/",
    )  # fmt: skip


@pytest.fixture
def clone(tmp_path):
    """A clone with the package and nothing built."""
    ignored = shutil.ignore_patterns("*.so*", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "python" / "ordo", ignore=ignored)
    return tmp_path


def test_places_in_order(clone):
    library = Path(ordo.build().path)
    built = clone / "build" / "lib" / "libordo.so"
    built.parent.mkdir(parents=True)
    shutil.copy(library, built)
    assert run(clone / "python").stdout.strip() == str(built)
    beside = clone / "python" / "ordo" / "libordo.so"
    shutil.copy(library, beside)
    assert run(clone / "python").stdout.strip() == str(beside)
    named = clone / "mine.so"
    shutil.copy(library, named)
    assert run(clone / "python", ORDO_LIBRARY=str(named)).stdout.strip() == str(named)


def test_system_loader(clone):
    folder = clone / "system"
    folder.mkdir()
    shutil.copy(ordo.build().path, folder / "libordo.so.0")
    said = run(clone / "python", LD_LIBRARY_PATH=str(folder))
    assert said.stdout.strip() == "libordo.so.0"


def test_not_found_or_another_library(clone):
    said = run(clone / "python")
    assert said.returncode != 0
    last = said.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: libordo not found") and "ORDO_LIBRARY" in last
    said = run(clone / "python", ORDO_LIBRARY="/nowhere/libordo.so")
    assert "ImportError: libordo cannot be loaded: /nowhere/libordo.so" in said.stderr
    said = run(clone / "python", ORDO_LIBRARY="libm.so.6")
    assert "libm.so.6: a libordo of another version? no ordo_status_name()" in said.stderr


@pytest.mark.parametrize(
    "old, new",
    [
        ('("note", c_char * 256)', '("note", c_char * 128)'),
        ('        ("softcap", c_double),\n', ""),
        ('("q_len", c_int64),\n        ("kv_len"', '("kv_len", c_int64),\n        ("q_len"'),
        ('("k", ordo_tensor),\n        ("v"', '("v", ordo_tensor),\n        ("k"'),
        ('        ("stream", c_void_p),\n', ""),
        ('("p_used", c_double),\n        ("scale"', '("scale", c_double),\n        ("p_used"'),
    ],
)
def test_another_layout_is_refused(clone, old, new):
    said = with_structs(clone, "_structs.py", old, new, "import ordo")
    assert "ImportError" in said.stderr and "another version?" in said.stderr


def with_structs(clone, file, old, new, code):
    structs = clone / "python" / "ordo" / file
    text = structs.read_text()
    assert old in text
    structs.write_text(text.replace(old, new))
    return run(clone / "python", code, ORDO_LIBRARY=str(Path(ordo.build().path).resolve()))


def test_another_layout_of_the_laboratory_is_refused(clone):
    said = with_structs(clone, "lab/_structs.py", '        ("exact", c_bool),\n', "", "import ordo.lab")
    assert "ImportError" in said.stderr and "a libordo_lab of another version?" in said.stderr


def test_laboratory_is_loaded_when_first_asked_for(clone):
    """libordo alone serves the package; ordo.lab says which library it lacks."""
    library = clone / "alone" / "libordo.so"
    library.parent.mkdir()
    shutil.copy(ordo.build().path, library)
    code = "import ordo; print(ordo.Plan(ordo.Problem(q_len=4, head_dim=4)).line); ordo.lab"
    said = run(clone / "python", code, ORDO_LIBRARY=str(library))
    assert said.stdout.startswith("ordo-plan/1 "), said.stderr
    assert f"ImportError: libordo_lab not found: expected {library.parent}" in said.stderr
    shutil.copy(Path(ordo.build().path).parent / "libordo_lab.so", library.parent)
    said = run(clone / "python", code, ORDO_LIBRARY=str(library))
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("name", ["Critical", "Schedule", "Timeline", "TimelineInfo", "timeline"])
def test_what_moved_to_the_laboratory_is_named(name):
    with pytest.raises(AttributeError, match=f"it is ordo.lab.{name}$"):
        getattr(ordo, name)
    assert hasattr(ordo.lab, name)


def test_types_are_complete(root):
    pytest.importorskip("mypy")
    if PACKAGE != root / "python" / "ordo":
        pytest.skip("an installed package")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(PACKAGE)],
        capture_output=True, text=True, timeout=600, cwd=root,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    "call, status, wrong",
    [
        (lambda: ordo.Problem(q_len=4, head_dim=-1).check(), "argument", True),
        (lambda: ordo.Plan.parse("no plan"), "parse", True),
        (lambda: ordo.Plan(ordo.Problem(q_len=4, head_dim=4, extras=ordo.Extra.BIAS)),
         "unsupported", False),
        (lambda: ordo.Machine("/nowhere.machine"), "file", False),
    ],
)  # fmt: skip
def test_errors_are_runtime_errors_and_wrong_arguments_value_errors(call, status, wrong):
    with pytest.raises(RuntimeError) as caught:
        call()
    error = caught.value
    assert isinstance(error, ordo.Error) and error.status == status
    assert isinstance(error, ValueError) == wrong
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (other.status, str(other), other.args) == (status, error.message, error.args)


def test_nothing_decides_by_the_text_of_a_message():
    """Programs decide by the status; messages are for people, and their wording may change."""
    decides = re.compile(r"\bin str\(\w*(error|failure)\)|\.message\b")
    lines = [
        f"{file.name}: {line.strip()}"
        for file in PACKAGE.rglob("*.py")
        for line in file.read_text().splitlines()
        if decides.search(line) and file.name != "_library.py"  # which defines it
    ]
    assert lines == []
