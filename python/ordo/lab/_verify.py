"""At import: does the library at hand lay out its structs as _structs.py does? See .._verify."""

from __future__ import annotations

from ctypes import byref, c_void_p

from .._library import Error
from .._structs import sized
from .._verify import Mismatch, expect, written
from . import _structs as s
from ._library import lib, path


def _timelines() -> None:
    schedule, timeline = sized(s.ordo_schedule), c_void_p()
    schedule.mask, schedule.key_tiles, schedule.heads, schedule.workers = 1, 2, 3, 2
    schedule.order, schedule.compute, schedule.reduce, schedule.record = 1, 5, 2, True
    lib.ordo_timeline_create(byref(timeline), byref(schedule))
    try:
        info = written(s.ordo_timeline_info, lib.ordo_timeline_query, timeline)
        expect("ordo_timeline_info", (info.tasks, 9), (info.valid, True), (info.workers, 2))
        step = written(s.ordo_timeline_step, lib.ordo_timeline_step_at, timeline, 0)
        expect("ordo_timeline_step", (step.ready, 5), (step.waited_for, -1))
        written(s.ordo_critical, lib.ordo_timeline_critical_at, timeline, 0)
    finally:
        lib.ordo_timeline_destroy(timeline)


def verify() -> None:
    """Raise ImportError if a struct is not what the library takes it for."""
    try:
        _timelines()
    except (Mismatch, Error, IndexError) as error:
        raise ImportError(f"{path}: a libordo_lab of another version? {error}") from error
