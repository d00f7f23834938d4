"""What a tile costs in the backward pass under every rule: live tiles per time (tiles that the mask
does not hide) over those of the same mask in the dense kernel, each in the planner's order. The rows
and the problems are those of forward_general.
"""

from __future__ import annotations

from functools import partial

import forward_general

PASSES = ("bwd",)
COLUMNS, rows = forward_general.COLUMNS, forward_general.rows
enter = partial(forward_general.enter, passes=PASSES)
