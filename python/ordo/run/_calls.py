"""Calls of attention that a recorder saves: drawn, copied, and written as files for an audit."""

from __future__ import annotations

import random
import warnings
from typing import Any

import torch
from torch import Tensor

from .._plan import Plan
from .._save_call import part_line, part_of, save
from ..torch import _front as f
from ..torch._inputs import Call as Given
from ..torch._inputs import Lists, empty, lists_of, plan_of, rows_first
from ._watch import unwatch, watch

_LENGTHS = ("cu_q", "cu_kv", "q_lens", "kv_lens")


class Call:
    """One key head of a call, with the query heads that share it: copies of its tensors."""

    calls = 0  # all calls of the step

    def __init__(
        self, plan: Plan, key_head: int, tensors: dict[str, Tensor], lists: Lists, number: int
    ) -> None:
        self.plan, self.key_head, self.tensors = plan, key_head, tensors
        self._number = number  # backward passes of the step before it
        self.rng = None if lists.rng is None else lists.rng.clone()
        given = {name: getattr(lists, name) for name in _LENGTHS}
        self.lengths = {name: x.clone() for name, x in given.items() if x is not None}
        self._host: dict[str, Tensor] = {}

    @property
    def number(self) -> int:
        """Its place among the calls of the step, in the order of forward passes."""
        return self.calls - 1 - self._number

    def start(self) -> None:
        """Send the tensors home; nobody waits for it. An event on the current stream says when."""
        for name, x in self.tensors.items():
            self._host[name] = x
            if x.is_cuda:
                with torch.cuda.device(x.device):
                    self._host[name] = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
                    self._host[name].copy_(x, non_blocking=True)

    def write(self, path: str, entry: dict[str, Any]) -> None:
        seed, offset = entry.get("seed", (0, 0))
        lengths = {name: entry[name] for name in self.lengths}
        digests = entry["digests"]
        save(path, self.plan, self._host, digests, seed=seed, offset=offset, **lengths)


class Calls:
    """One call of each step that is due, each with the same probability; a function of the seed, the
    step and the number of calls."""

    def __init__(self, every: int, seed: int, first: int) -> None:
        self.every, self._seed = every, seed
        self._said: set[str] = set()
        self.begin(first)
        watch("backward", self._saw)

    def release(self) -> None:
        unwatch("backward", self._saw)

    def begin(self, step: int) -> None:
        self._step = step
        self._due = step % self.every == 0
        self._random = random.Random(f"{self._seed} {step}")
        self._count = 0
        self._chosen: Call | None = None

    def take(self, step: int) -> Call | None:
        """The call of this step; None if it has none, or is another one than was expected."""
        chosen = self._chosen
        if step != self._step or not self._due or chosen is None:
            return None
        chosen.calls = self._count
        return chosen

    def _saw(self, tensors: dict[str, Tensor | None], given: Given) -> None:
        if not self._due or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return  # a graph's tensors are those of its last replay
        (flags, _, more, *_), (q, k, v) = given, (tensors[x] for x in "qkv")
        lists = lists_of(flags, more)
        rows = {name: _rows_first(flags, name, x) for name, x in tensors.items() if x is not None}
        if empty(rows["q"], rows["k"], lists):
            return
        plan = plan_of(q, k, v, given)
        why_not = _why_not(plan, lists)
        if why_not:
            if why_not not in self._said:
                warnings.warn(f"calls of attention {why_not} are not saved: no audit takes them", stacklevel=2)
            self._said.add(why_not)
            return
        self._count += 1
        if self._random.randrange(self._count):  # each call replaces the one before it with 1 / count
            return
        key_head = self._random.randrange(plan.problem.kv_heads)
        heads = {"slopes": lists.slopes, "sink": lists.sink}
        rows.update({name: x for name, x in heads.items() if x is not None})
        made = {
            name: part_of(name, x.detach(), plan, key_head).clone(
                memory_format=torch.contiguous_format
            )
            for name, x in rows.items()
        }
        part = Plan.parse(part_line(plan, key_head))
        self._chosen = Call(part, key_head, made, lists, self._count - 1)


def _rows_first(flags: int, name: str, x: Tensor) -> Tensor:
    """A tensor of a backward pass, by its name, as attention() gives or takes it."""
    if name in ("lse", "dlse"):
        return x
    if name in ("o", "dout") and not flags & f.LIKE_Q:
        return x.flatten(0, 1) if flags & f.HEADS_FIRST and flags & f.CU_Q else x
    return rows_first(flags, x)[0]


def _why_not(plan: Plan, lists: Lists) -> str:
    """What of a call an audit does not take; "" if it takes it."""
    if plan.info.backend == "cpu":
        return "of backend cpu"
    if lists.block_start is not None:
        return "with a block mask"
    if lists.seen is not None or lists.bias is not None:
        return "with an element mask or a bias"
    if lists.sequence_ids is not None and lists.rng is not None:
        return "with sequence_ids"
    if lists.slopes is not None and lists.slopes.dim() > 1:
        return "with slopes of each sequence"
    return ""

