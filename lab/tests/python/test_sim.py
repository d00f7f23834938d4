"""Schedules and timelines."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import ordo
import pytest
from ordo import lab


def test_timeline_is_the_commands():
    command = os.environ.get("ORDO", Path(__file__).resolve().parents[3] / "build" / "bin" / "ordo")
    options = (
        "--mask causal --tiles 8 --heads 4 --workers 8 --order symmetric --compute 2 --reduce 2"
    )
    said = subprocess.run(
        [command, "schedule", *options.split(), "--json"],
        check=True, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    schedule = lab.Schedule(
        mask="causal", key_tiles=8, heads=4, workers=8, order="symmetric", compute=2, reduce=2
    )
    info = lab.timeline(schedule).info
    assert info.order == "symmetric" and info.valid and info.exact
    assert f'"makespan": {info.makespan}' in json.dumps(json.loads(said.stdout))


def test_steps_and_critical_path():
    line = lab.timeline(mask="causal", key_tiles=4, heads=2, order="ascending", record=True)
    steps = line.steps
    assert len(steps) == line.info.tasks == 20
    assert steps["end"].max() == line.info.makespan
    assert (steps["ready"] - steps["begin"] == 10).all()
    assert (steps["end"] - steps["start"] == 5).all()
    assert steps["end"][line.critical[0].step] == line.info.makespan
    assert line.critical[-1].edge == "start"
    assert sorted(x.step for x in line.critical) == list(steps["critical"].nonzero()[0])
    assert line.info.makespan >= line.info.lower_bound


def test_auto_is_the_best_order():
    schedule = lab.Schedule(mask="causal", key_tiles=8, heads=4)
    line = lab.timeline(schedule)
    best = line.info
    assert len(line.steps) == 0 and line.critical == []  # nothing was recorded
    assert best.order_asked == schedule.auto()
    for order in ("ascending", "descending", "spt", "twin"):
        assert lab.timeline(schedule, order=order).info.makespan >= best.makespan


def test_refusals():
    with pytest.raises(ordo.Error, match="key_tiles 0"):
        lab.timeline(key_tiles=0, workers=1)
    with pytest.raises(ordo.Error, match="order 'up'"):
        lab.timeline(key_tiles=3, order="up")
