"""What a tile costs in the varlen backward kernels, feature by feature: live tiles per time (tiles that the mask
does not hide) over those of the same mask in the dense kernel, each in the planner's order. The rows
and the problems are those of forward_varlen.
"""

from __future__ import annotations

from functools import partial

import forward_varlen

PASSES = ("bwd",)
COLUMNS, rows = forward_varlen.COLUMNS, forward_varlen.rows
enter = partial(forward_varlen.enter, passes=PASSES)
