"""Plans as Python sees them: what a call's plan says, for those who ask. C makes those that run."""

from __future__ import annotations

import functools
import os

from torch import Tensor

from .._machine import Machine
from .._plan import Plan
from .._problem import BlockLimits, Problem, Shard, dropout_of
from ._inputs import DTYPES, Lists, Rules, empty, sequences


def plan_of(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Plan:
    """The plan of a call, made with the problem and the machine of the one that runs."""
    return _made(problem_of(q, k, v, lists, rules), q.device.index if q.is_cuda else None)


@functools.lru_cache(maxsize=512)
def _made(problem: Problem, device: int | None) -> Plan:
    if device is None:
        emulated = os.environ.get("ORDO_EMULATE")
        return Plan(problem, emulated, backend="emulator") if emulated else Plan(problem, backend="cpu")
    return Plan(problem, machine_of(device), backend="cuda")


def forget_plans() -> None:
    _made.cache_clear()
    machine_of.cache_clear()


def problem_of(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Problem:
    """Of empty tensors, for which there is no plan, one row: the rules are checked, no more."""
    packed = lists.cu_q is not None
    padded = lists.q_lens is not None or lists.kv_lens is not None
    rows, columns = (1, 1) if empty(q, k, lists) else (q.shape[-3], k.shape[-3])
    return Problem(
        dtype=DTYPES[q.dtype],
        layout="packed" if packed else "padded" if padded else "dense",
        batch=max(sequences(q, lists), 1),
        heads=q.shape[-2],
        kv_heads=k.shape[-2],
        q_len=rules.max_q if packed else rows,
        kv_len=rules.max_kv if packed else columns,
        total_q=rows if packed else 0,
        total_kv=columns if packed else 0,
        head_dim=q.shape[-1],
        v_head_dim=v.shape[-1],
        scale=rules.scale,
        mask=rules.mask,  # type: ignore[arg-type]
        window=_window(rules),
        softcap=rules.softcap,
        alibi=lists.slopes is not None,
        dropout=dropout_of(rules.dropout_p, rules.keying),  # type: ignore[arg-type]
        blocks=_limits(q, k, lists),
        shard=Shard(**dict(zip(Shard.__dataclass_fields__, rules.shard))),
    )


def _limits(q: Tensor, k: Tensor, lists: Lists) -> BlockLimits:
    start, key = lists.block_start, lists.block_key
    if start is None or key is None or empty(q, k, lists):
        return BlockLimits()
    entries = 1 << max(0, key.shape[0] - 1).bit_length()
    return BlockLimits(entries=entries, per_sequence=start.shape[0] > 1, per_head=start.shape[1] > 1)


def _window(rules: Rules) -> tuple[int, int] | None:
    """None where it hides nothing: a causal mask ends every row already."""
    ends = rules.right >= 0 and rules.mask == "full"
    return (rules.left, rules.right) if rules.left >= 0 or ends else None


@functools.lru_cache(maxsize=None)
def machine_of(index: int) -> Machine:
    """A CUDA device as a machine to plan for; ORDO_MACHINE names another. Changes no bit."""
    named = os.environ.get("ORDO_MACHINE")
    return Machine(named) if named else Machine.of_device(index)
