"""The structs, functions and words of the package against the headers and the C compiler."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from typing import get_args

import pytest
from ordo import _library, _structs, _words
from ordo.lab import _library as lab_library

STRUCTS = {kind.__name__: kind for kind in _structs.Struct.__subclasses__()}


@pytest.fixture(scope="module")
def headers(root):
    folders = ("include/ordo", "lab/include/ordo", "lab/include/ordo/lab")
    return "".join(declared(root / folder) for folder in folders)


def declared(folder):
    """The public headers of a folder as one text, without comments."""
    text = "".join(path.read_text() for path in sorted(folder.glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


@pytest.fixture(scope="module")
def compiled(root, tmp_path_factory):
    """What the C compiler says: lines of "struct.field offset size"."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    lines = []
    for name, kind in STRUCTS.items():
        lines.append(f'    printf("{name} 0 %zu\\n", sizeof({name}));')
        for field, *_ in kind._fields_:
            lines.append(
                f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                f"sizeof((({name} *)0)->{field}));"
            )
    folder = tmp_path_factory.mktemp("layout")
    source = folder / "layout.c"
    source.write_text(
        "#include <ordo/lab.h>\n#include <ordo/ordo.h>\n#include <stdio.h>\nint main(void)\n{\n"
        + "\n".join(lines)
        + "\n    return 0;\n}\n"
    )
    program = folder / "layout"
    build = [compiler, "-std=c17", str(source), "-o", str(program)]
    build[2:2] = [f"-I{root / folder}" for folder in ("include", "lab/include")]
    subprocess.run(build, check=True, timeout=600)
    said = subprocess.run([program], check=True, timeout=600, capture_output=True, text=True)
    lines = map(str.split, said.stdout.splitlines())
    return {name: (int(at), int(size)) for name, at, size in lines}


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_is_what_the_compiler_makes_of_it(name, compiled):
    kind = STRUCTS[name]
    assert ctypes.sizeof(kind) == compiled[name][1]
    for field, *_ in kind._fields_:
        member = getattr(kind, field)
        assert (member.offset, member.size) == compiled[f"{name}.{field}"], field


def test_every_public_struct_is_here(headers):
    assert set(re.findall(r"typedef struct (ordo_\w+) \{", headers)) == set(STRUCTS)


def test_every_field_is_here(headers):
    for name, body in re.findall(r"typedef struct (ordo_\w+) \{(.*?)\n\} ", headers, re.S):
        body = re.sub(r"union \{([^;]*);[^}]*\}", r"\1", body)  # two names of one field
        count = sum(line.count(",") + 1 for line in body.split(";")[:-1])
        assert count == len(STRUCTS[name]._fields_), name


@pytest.mark.parametrize(
    "folder, library", [("include/ordo", _library), ("lab/include/ordo/lab", lab_library)]
)
def test_every_function_is_declared_with_its_arguments(root, folder, library):
    found = re.findall(r"ORDO_API [^;(]*?(ordo_\w+)\(([^;]*)\);", declared(root / folder))
    arguments = {name: 0 if a.strip() == "void" else a.count(",") + 1 for name, a in found}
    assert arguments == {name: len(a) for name, (_, a) in library.PROTOTYPES.items()}


@pytest.mark.parametrize("noun", _words.TABLES)
def test_words_for_type_checkers_are_the_libraries(noun):
    literal = {"dtype": "DType", "dropout_mode": "DropoutMode"}.get(noun, noun.capitalize())
    assert list(get_args(getattr(_words, literal))) == _words.TABLES[noun].words


def test_levels_of_the_promise():
    assert _words.promises(0x3F) == get_args(_words.Promise)
