"""ordo.lab: the laboratory, on libordo_lab. Nothing else in the package needs it.

    ordo.lab.timeline(mask="causal", key_tiles=8, heads=4, order="ascending").info.makespan

A schedule is replayed on workers, in integer time. The C headers in lab/include/ordo/lab also have a
performance model and an I/O model.
"""

from ._sim import Critical, Schedule, Timeline, TimelineInfo, timeline
from ._verify import verify as _verify_structs

__all__ = ["Critical", "Schedule", "Timeline", "TimelineInfo", "timeline"]

_verify_structs()
