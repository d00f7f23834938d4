"""What a case must give: the bits of NumPy's ordo.forward() and ordo.backward() under one plan.

On a GPU, whose bits NumPy's functions do not have, attention() itself without any situation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import ordo
import torch
from bits import same
from cases import Case
from entries import ENTRIES
from ordo._problem import NO_KEYS, dropout_of
from ordo._words import mask_of
from torch import Tensor


class Results(NamedTuple):
    """Each None where the case does not have it."""

    o: Tensor
    lse: Tensor | None
    dq: Any = None
    dk: Any = None
    dv: Any = None
    dsink: Any = None
    dbias: Any = None


def expected(case: Case) -> Results:
    """By NumPy on the CPU: gradients of what case.upstream() gives."""
    q, k, v = (x.detach().resolve_neg().to(case.dtype).cpu() for x in (case.q, case.k, case.v))
    given = {name: _plain(x) if isinstance(x, Tensor) else x for name, x in case.keywords.items()}
    if "cu_q" in given and ("q_lens" in given or "kv_lens" in given):
        return _with_gaps(case, q, k, v, given)
    return _one(case, q, k, v, given)


def _plain(x: Tensor) -> Tensor:
    x = x.detach().resolve_neg().cpu()
    return x.int() if x.dtype == torch.int64 and x.dim() == 1 else x


def _with_gaps(case: Case, q: Tensor, k: Tensor, v: Tensor, given: dict[str, Any]) -> Results:
    """Results of the used rows alone, put back to their places."""
    places = []  # the used rows, then the others
    for ends, used, count in (("cu_q", "q_lens", len(q)), ("cu_kv", "kv_lens", len(k))):
        starts, counts = given[ends].tolist(), given.pop(used, given[ends].diff()).tolist()
        first = [s + i for s, n in zip(starts, counts) for i in range(n)]
        places.append(first + sorted(set(range(count)) - set(first)))
        sums = [sum(counts[:b]) for b in range(len(counts) + 1)]
        given[ends] = torch.tensor(sums, dtype=torch.int32)
    (rows, columns), (back, _) = places, ([x.index(i) for i in range(len(x))] for x in places)
    dout, dlse = case.upstream(*_outputs(q, v))
    ends = None if dout is None else dout[rows], None if dlse is None else dlse[:, rows]
    part = _one(case, q[rows], k[columns], v[columns], given, ends)
    dk, dv = torch.empty_like(part.dk), torch.empty_like(part.dv)
    dk[columns], dv[columns] = part.dk, part.dv
    return Results(part.o[back], part.lse[:, back], part.dq[back], dk, dv, part.dsink)


def _outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    o = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    return o, torch.full((*q.shape[:-3], q.shape[-2], q.shape[-3]), -torch.inf)


def _one(
    case: Case, q: Tensor, k: Tensor, v: Tensor, given: dict[str, Any], ends: Any = None
) -> Results:
    packed, heads = "cu_q" in given, q.shape[-2]
    batch = len(given["cu_q"]) - 1 if packed else q.shape[0]
    o, lse = _outputs(q, v)
    dout, dlse = case.upstream(o, lse) if ends is None else ends
    if 0 in (q.shape[-3], k.shape[-3], batch):
        grads = (torch.zeros_like(x) for x in (q, k, v))
        dsink = None
        if case.sink is not None:
            lse[:] = _plain(case.sink)[:, None]
            dsink = torch.zeros(heads) if dlse is None else dlse.double().sum(2).float().double().sum(0).float()
        return Results(o, lse, *grads, dsink, None if case.bias is None else torch.zeros(case.bias.shape))
    plan = ordo.Plan(_problem(case, q, k, v, given, batch), backend="cpu")
    rest = {
        x: given[x].numpy() for x in ("cu_q", "cu_kv", "q_lens", "kv_lens", "sequence_ids", "slopes")
        if x in given
    }  # fmt: skip
    rest["seed"], rest["offset"] = case.rng
    if case.sink is not None:
        rest["sink"] = _plain(case.sink).numpy()
    if "block_mask" in given:
        rest["block_mask"] = given["block_mask"]
    if "seen" in given:
        rest["seen"] = ordo.Seen(given["seen"].numpy())
    if case.bias is not None:
        rest["bias"] = _array(_plain(case.bias))
    arrays = [_array(x) for x in (q, k, v)]
    ordo.forward(plan, *arrays, o=_array(o), lse=lse.numpy(), **rest)
    if dout is None:
        dout = torch.zeros_like(o)
    more: dict[str, Any] = dict(rest, dlse=None if dlse is None else dlse.contiguous().numpy())
    dsink = None
    if case.sink is not None:
        dsink = torch.empty(heads)
        more["dsink"] = dsink.numpy()
    dbias = None
    if case.bias is not None:
        dbias = torch.empty(case.bias.shape)
        more["dbias"] = dbias.numpy()
    grads = [torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v)]
    names = dict(zip(("dq", "dk", "dv"), map(_array, grads)))
    upstream = _array(dout.resolve_neg().contiguous())
    ordo.backward(plan, *arrays, _array(o), lse.numpy(), upstream, **names, **more)
    return Results(o, lse, *grads, dsink, dbias)


def _problem(case: Case, q: Tensor, k: Tensor, v: Tensor, given: Any, batch: int) -> ordo.Problem:
    packed = "cu_q" in given
    left, right = given["window"]
    mask = mask_of(given["causal"])
    hides = left >= 0 or (right >= 0 and mask == "full")
    rest: dict[str, Any] = {}
    if "block_mask" in given:
        rest["blocks"] = given["block_mask"].limits
    if "seen" in given:
        rest["seen"] = ordo.Seen(given["seen"].numpy()).limits
    if case.bias is not None:
        of_q = "f32" if case.bias.dtype == torch.float32 else case.values["dtype"]
        own = {name: size > 1 for name, size in zip(("per_sequence", "per_head"), case.bias.shape)}
        rest["bias"] = ordo.Bias(on=True, **own, dtype=of_q)
    return ordo.Problem(
        dtype=case.values["dtype"], layout="packed" if packed else "padded" if "q_lens" in given else "dense",
        batch=batch, heads=q.shape[-2], kv_heads=k.shape[-2], head_dim=q.shape[-1],
        v_head_dim=v.shape[-1], q_len=_longest(given, "q") if packed else q.shape[1],
        kv_len=_longest(given, "kv") if packed else k.shape[1] or NO_KEYS,
        total_q=len(q) if packed else 0, total_kv=len(k) if packed else 0,
        scale=given["scale"] or 0.0, mask=mask, window=(left, right) if hides else None,
        softcap=given["softcap"], alibi="slopes" in given,
        dropout=dropout_of(given.get("dropout_p", 0.0), given.get("keying", "ordo")),
        shard=given.get("shard", ordo.Shard()), **rest,
    )  # fmt: skip


def _longest(given: Any, which: str) -> int:
    return int(given.get(f"max_{which}") or max(1, given[f"cu_{which}"].diff().max()))


def _array(x: Tensor) -> Any:
    x = x.contiguous() if not x.is_contiguous() else x
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()


def differences(case: Case, found: Results, right: Results) -> list[str]:
    """The results whose bits differ, in words."""
    said = []
    for name, x, y in zip(Results._fields, found, right):
        if x is None or y is None:
            continue
        x, y = x.detach().cpu(), y.detach().cpu()
        if case.values["layout"] == "gaps":  # autograd may add rows to zeros: -0 becomes 0
            x, y = x + 0, y + 0
        if name[0] == "d" and x.dtype != y.dtype:  # autocast: gradients of the wider inputs
            y = y.to(x.dtype)
        if x.shape != y.shape or x.dtype != y.dtype:
            said.append(f"{name} is {x.dtype} {tuple(x.shape)}, expected {y.dtype} {tuple(y.shape)}")
        elif case.situation != "fake" and not same(x, y):
            worst = (x.double() - y.double()).abs().nan_to_num().max().item()
            said.append(f"{name} differs by up to {worst:.3g}")
    return said


def far(found: Results, right: Results) -> list[str]:
    """The results of a GPU that are not those of NumPy's front but for roundings, in words.

    Only what another rule or another place would be: tests/cuda has bounds that are derived."""
    said = []
    for name, x, y in zip(Results._fields, found, right):
        if x is None or y is None:
            continue
        x, y = x.detach().cpu().double(), y.double()
        finite = y.isfinite()
        if x.shape != y.shape or not torch.equal(x.isfinite(), finite):
            said.append(f"{name} is not finite, or of another shape")
        elif finite.any() and (error := (x - y)[finite].abs().max().item()) > 0.03 * y[finite].abs().max().item() + 0.06:
            said.append(f"{name} is {error:.3g} from NumPy's, whose largest is {y[finite].abs().max():.3g}")
    return said


def reference(case: Case) -> Results:
    """attention() itself, eagerly: what a GPU's bits are compared with."""
    from situations import eager  # which uses Results

    plain = dataclasses.replace(case, situation="eager")
    plain.build()  # as its entry has it: the lengths of some are not any
    plain.values = dict(case.values, entry="attention")
    plain.function = ENTRIES["attention"].make(plain)
    plain.start()
    case.rng = plain.rng
    return eager(plain)
