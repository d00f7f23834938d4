"""Problems, machines, plans: made, printed, read back, refused."""

from __future__ import annotations

import copy
import pickle
import subprocess

import ordo
import pytest

PROBLEM = ordo.Problem(
    dtype="bf16", batch=2, heads=8, kv_heads=2, q_len=300, head_dim=64, mask="causal", dropout=0.1
)  # fmt: skip


def test_defaults_are_filled_in():
    p = ordo.Plan(ordo.Problem(q_len=5, head_dim=4), backend="ref").problem
    assert (p.kv_heads, p.kv_len, p.v_head_dim, p.scale) == (1, 5, 4, 0.5)
    assert p.window is None and p.shard.heads_total == 1


def test_a_limit_of_the_workspace_changes_no_bit():
    wide = ordo.Problem(dtype="bf16", heads=4, q_len=8192, head_dim=512, mask="causal")
    whole, less = ordo.Plan(wide, "h200"), ordo.Plan(wide, "h200", workspace_limit=1 << 27)
    assert 1 << 27 < whole.workspace_bytes <= 5 << 28
    assert less.workspace_bytes <= 1 << 27
    assert less.info.numeric_key == whole.info.numeric_key
    assert ordo.Plan.parse(less.line).workspace_bytes == less.workspace_bytes
    chained = ordo.Plan(wide.replace(head_dim=256), "h200")  # P is not stored
    assert 1 << 29 < chained.workspace_bytes < 5 << 27
    assert "; room for dS of 64 query tiles of 4 key heads" in chained.info.note
    assert "; P and dS of 64 query tiles of 4 key heads at a time" in whole.info.note
    assert ordo.backend_limits("cuda").head_dim_max == 576
    dropped = ordo.Plan(wide.replace(dropout=0.1), "h200")
    assert dropped.info.dropout_mode != "fused"  # no pass makes bits above this size
    assert ordo.backend_limits("cuda").made_bits_head_dim_max == 256


def test_the_form_of_the_backward_pass():
    def form(head_dim, machine="h200", dropout=0.0, **options):
        p = ordo.Problem(dtype="bf16", heads=4, q_len=512, head_dim=head_dim, dropout=dropout)
        return ordo.Plan(p, machine, **options).info.backward_form

    assert [form(d) for d in (64, 128, 136, 184, 192, 256, 264, 576)] == [
        "flash", "flash", "chain", "chain", "chain", "chain", "phase", "phase",
    ]  # fmt: skip
    assert form(184, dropout=0.1) == form(256, dropout=0.1) == "chain"
    with pytest.raises(ordo.Error, match="backward_tile 64x64: backend cuda expects 128x256"):
        form(256, backward_tile=(64, 64))
    assert form(256, None, backend="cpu") == form(256, None, backend="ref") == "flash"


@pytest.mark.parametrize("backend", ["ref", "cpu"])
def test_line_reads_back(backend):
    plan = ordo.Plan(PROBLEM, backend=backend)
    again = ordo.Plan.parse(plan.line)
    assert again.line == str(plan)
    assert again == plan and hash(again) == hash(plan)
    assert again.info == plan.info
    assert again.problem == plan.problem
    assert ordo.Plan(plan.problem, backend=backend) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert copy.deepcopy(plan) == plan


def test_line_is_the_commands(command):
    options = (
        "--machine h200 --dtype bf16 --batch 2 --heads 32 --kv-heads 8 --seq 8k --dim 128 "
        "--mask causal --dropout 0.1 --window 1000,0"
    )
    said = subprocess.run(
        [command, "plan", *options.split(), "--line"],
        check=True, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    problem = ordo.Problem(
        dtype="bf16", batch=2, heads=32, kv_heads=8, q_len=8192, head_dim=128, mask="causal",
        dropout=0.1, window=(1000, 0),
    )  # fmt: skip
    assert ordo.Plan(problem, "h200").line == said.stdout.strip()
    assert ordo.Plan(problem, ordo.Machine("h200")).info.backend == "cuda"


def test_choices_reach_the_plan():
    plan = ordo.Plan(
        PROBLEM, "host", backend="cpu", order="descending", forward_tile=(64, 128),
        backward_tile=(128, 64), issue="key", section=2, assign="first-free", workers=3,
    )  # fmt: skip
    info = plan.info
    with pytest.warns(FutureWarning, match="split is 1 in every plan"):
        assert info.split == 1
    assert (info.order, info.issue, info.section) == ("descending", "key", 2)
    assert info.forward_tile == (64, 128) and info.backward_tile == ordo.Tile(128, 64)
    assert (info.assign, info.workers) == ("first-free", 3)
    assert info.kept == ("repeat", "portable", "batch", "split", "keep-bits", "cut")
    assert info.not_kept == ()
    assert plan.check() > 0


def test_info_says_what_was_lost():
    problem = ordo.Problem(heads=4, q_len=1024, head_dim=64, dtype="bf16")
    info = ordo.Plan(problem, "h200", order="shift", group="waves").info
    assert info.group == "waves"
    assert "portable" in info.not_kept
    assert info.note


@pytest.mark.parametrize(
    "changes, status, words",
    [
        (dict(head_dim=0), "argument", "head_dim 0"),
        (dict(heads=3), "shape", "heads"),
        (dict(dropout=1.5), "argument", "dropout"),
        (dict(batch=2**63), "argument", "batch 9223372036854775808: expected"),
        (dict(batch=2.5), "argument", "batch 2.5: expected an integer"),
        (dict(scale="x"), "argument", "scale 'x': expected a number"),
        (dict(mask="diagonal"), "argument", "mask 'diagonal': expected full, causal or"),
        (dict(dtype="f64"), "argument", "dtype 'f64': expected f32, bf16 or f16"),
        (dict(extras=ordo.Extra.SINKS), "unsupported", "sinks"),
    ],
)
def test_refusals_name_the_field(changes, status, words):
    with pytest.raises(ordo.Error) as caught:
        PROBLEM.replace(**changes).check()
    assert caught.value.status == status
    assert words in str(caught.value) == caught.value.message


def test_refusals_of_plans():
    for call, words in (
        (lambda: ordo.Plan(PROBLEM, order="sideways"), "order 'sideways': expected default, ascending"),
        (lambda: ordo.Plan(PROBLEM, "h200", split=2), "split 2: backend cuda expects 1"),
        (lambda: ordo.Plan(PROBLEM, forward_tile=3), "forward_tile 3: expected"),
        (lambda: ordo.Plan.parse("ordo-plan/1 backend=cpu"), ""),
        (lambda: ordo.Plan.parse("ordo\0plan"), "without NUL"),
        (lambda: ordo.Plan(PROBLEM, "no-such-machine"), "no-such-machine"),
    ):
        with pytest.raises(ordo.Error, match=words) as caught:
            call()
    assert pickle.loads(pickle.dumps(caught.value)).status == caught.value.status


def test_machines():
    assert {"h200", "host"} <= set(ordo.Machine.builtin())
    h200 = ordo.Machine("h200")
    assert (h200.name, h200.family) == ("h200", "cuda")
    assert h200["workers"] == 132 and "workers" in list(h200)
    assert h200.source("workers")
    assert any(key.name == "workers" for key in ordo.Machine.key_table())
    with pytest.raises(ordo.Error):
        h200["no_such_key"]
    with pytest.raises(ordo.Error) as caught:
        ordo.Machine.parse("workers = many\n", "mine.machine")
    assert str(caught.value).startswith("mine.machine:")
    with pytest.raises(ordo.Error):
        ordo.Machine.of_device(1000)


def test_backends():
    assert ordo.backend_available("ref") and ordo.backend_why_not("ref") == ""
    if not ordo.backend_available("cuda"):
        assert "cuda" in ordo.backend_why_not("cuda")


def test_version():
    assert ordo.version() == ordo.__version__ == ordo.build().version
    assert ordo.build().path.startswith(("/", "libordo"))
