"""ordo.audit(): what an H200 computed, a damaged copy of it, and what cannot be audited."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import ordo

KEY = "sm90.r3/f192x128/b128x128/descending/k1/philox7x8"


@pytest.fixture
def record(root, command):
    return root / "tests" / "data" / "emulator" / "h200.safetensors"


def damaged(record, path, back):
    """A copy with the lowest bit of the byte `back` from the end changed; the last tensor is dv."""
    data = bytearray(record.read_bytes())
    data[-back] ^= 1
    path.write_bytes(data)
    return path


def test_what_an_h200_computed(record):
    found = ordo.audit(record)
    assert found and found.equal and found.first is None
    assert (found.key, found.units, found.checked, found.different) == (KEY, 12, 12, 0)
    assert str(found) == f"equal: every bit of 12 of 12 units of {KEY}"
    assert ordo.audit(str(record), part="forward", threads=1).units == 6


def test_a_sample_finds_what_it_draws(record, tmp_path):
    bad = damaged(record, tmp_path / "bad.safetensors", 2)
    found = [bool(ordo.audit(bad, sample=4, seed=seed)) for seed in range(12)]
    assert found == [bool(ordo.audit(bad, sample=4, seed=seed)) for seed in range(12)]
    assert set(found) == {True, False}
    assert ordo.audit(bad, sample=4).checked == 4


def test_the_first_difference(record, tmp_path):
    bad = damaged(record, tmp_path / "-bad.safetensors", 2)
    found = ordo.audit(bad)
    assert not found and (found.different, found.unknown) == (1, 0)
    x = found.first
    assert x.unit == "backward unit 5, sequence 0, key head 0, keys 128 to 129"
    assert (x.tensor, x.sequence, x.row, x.head, x.column) == ("dv", 0, 129, 0, 63)
    assert x.found_bits ^ x.expected_bits == 1 and x.elements == 1
    assert x.found != x.expected and x.file == str(bad) and x.damaged == ()
    assert "dv, sequence 0, row 129, head 0, column 63: found 0x" in str(found)


def test_what_it_refuses(record, tmp_path, command):
    def refused(status, text, *args, **words):
        with pytest.raises(ordo.Error, match=text) as error:
            ordo.audit(*args, **words)
        assert error.value.status == status

    refused("file", "No such file", tmp_path / "missing.safetensors")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(record.read_bytes()[:1000])
    refused("file", "bytes in a file of 1000", cut)
    refused("argument", "sample", record, sample=-1)
    refused("argument", "sample 1.5", record, sample=1.5)
    refused("argument", "seed -1", record, seed=-1)
    refused("argument", "forward", record, part="sideways")
    refused("argument", "record 7: expected paths", 7)
    refused("argument", "record None: expected paths", [None])
    refused("argument", "expected a file", [])
    copy = tmp_path / "copy.safetensors"
    shutil.copy(record, copy)
    with pytest.raises(ordo.Error, match="expected one"):
        ordo.audit([record, copy])
    assert ordo.audit([record])
    here = tmp_path / "here.safetensors"
    run = [command, "run", "--seq", "20", "--dtype", "bf16", "--save", here]
    subprocess.run(run, check=True, capture_output=True)
    refused("unsupported", "backend cpu", here)

