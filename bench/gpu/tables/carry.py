"""The backward pass of one long sequence in parts of its rows, which carry the f32 sums of dk and dv
from one to the next, and one call: ms, and the time of all parts over that of the call.

16k rows and keys, 2048 channels. The gradients of all cuts must have the bits of the call. With
dropout 0.1 keep bits are given (any words, as many as there are) or made inside. Rows of the group
one are one of 8 parts, in the middle, that neither takes nor leaves sums, leaves them, takes them, and
both.
"""

from __future__ import annotations

import ctypes
from functools import partial

import shapes
from show import time_over

ROWS, COUNTS = 16384, (2, 4, 8, 16)
KEPT = {"none": 0.0, "given": 0.1, "made": 0.1}
CARRIES = {"none": 0, "out": 2, "in": 1, "in out": 3}
TITLES = {"one": "ms of one of 8 parts"}
COLUMNS = {
    "": [time_over(f"{n} parts / call", f"parts {n}", "call", must=1.03) for n in COUNTS],
    "one": [time_over(f"{name} / none", name, "none") for name in ("out", "in", "in out")],
}


def rows() -> list[dict]:
    masks = [(dim, mask) for dim in (64, 128, 256) for mask in ("causal", "full")]
    made = [
        shapes.row("", f"{dim} {mask}, dropout {keep}", ROWS, dim, mask, keep=keep)
        for dim, mask in masks for keep in KEPT
    ]  # fmt: skip
    return made + [
        shapes.row("one", f"{dim} {mask}", ROWS, dim, mask, keep="none") for dim, mask in masks
    ]


class Parts:
    """The backward pass of a whole, `count` parts one after the other; each sees the whole's tensors
    through strides."""

    def __init__(self, gpu, whole, count: int) -> None:
        self.gpu, self.whole, self.names = gpu, whole, ("dq", "dk", "dv")
        self.sums = [gpu.torch.full_like(whole.tensors[x], float("nan"), dtype=gpu.torch.float32)
                     for x in ("dk", "dv")]  # fmt: skip
        tile = whole.plan.info.backward_tile.q
        rows = -(-ROWS // tile // count) * tile
        firsts = range(0, ROWS, rows)
        if whole.plan.info.order == "descending":
            firsts = firsts[::-1]
        self.calls = [self.part(first, min(first + rows, ROWS)) for first in firsts]
        for place, (_, call, _) in enumerate(self.calls):
            self.carry(
                call, CARRIES["in"] * (place > 0) + CARRIES["out"] * (place + 1 < len(self.calls))
            )

    def carry(self, call, carry: int) -> None:
        call.carry = carry
        call.dk_sums, call.dv_sums = (x.data_ptr() if carry else None for x in self.sums)

    def part(self, first: int, end: int):
        gpu, whole = self.gpu, self.whole
        shard = gpu.ordo.Shard(row0=first, q_total=ROWS, kv_total=ROWS)
        problem = gpu.problem_of(whole.shape).replace(q_len=end - first, shard=shard)
        plan = gpu.ordo.Plan(problem, "h200", backend="cuda", order=whole.plan.info.order)
        call = type(whole.call)()
        ctypes.pointer(call)[0] = whole.call
        for name in ("q", "o", "dout", "dq"):
            field, rows = getattr(call, name), whole.tensors[name][:, first:end]
            field.data = rows.data_ptr()
            field.stride[:] = rows.stride()
        kept = [whole.lse[:, :, first:end].contiguous()]
        call.lse = kept[0].data_ptr()
        if whole.bits is not None:  # by head, then by sixteen rows
            words = whole.bits.words.view(whole.shape.heads, -1)
            row_bytes = words.shape[1] // ROWS
            kept.append(words[:, first * row_bytes : end * row_bytes].contiguous())
            call.keep_bits = kept[1].data_ptr()
        kept.append(gpu.torch.empty(plan.workspace_bytes, dtype=gpu.torch.uint8, device=gpu.DEVICE))
        call.workspace, call.workspace_bytes = kept[-1].data_ptr(), kept[-1].numel()
        return plan, call, kept

    def run(self, which: int) -> None:
        plan, call, _ = self.calls[which]
        self.gpu.lib.ordo_attention_backward(plan._handle, ctypes.byref(call))

    def backward(self) -> None:
        for which in range(len(self.calls)):
            self.run(which)

    def results(self) -> dict:
        return {name: self.whole.tensors[name] for name in self.names}


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu

    shape = shapes.shape_of(row, p=KEPT[row["keep"]])
    bits = None
    if row["keep"] == "given":  # real ones would say no more of the time
        bits = gpu.Bits(gpu.problem_of(shape), shape)
        bits.words.random_(generator=gpu.torch.Generator(gpu.DEVICE).manual_seed(5))
    whole = contest.attempt("call", lambda: gpu.Ours(shape, gpu.inputs(shape), bits))
    if whole is None:
        return
    whole.forward()
    if row["group"] == "one":
        parts = Parts(gpu, whole, 8)
        middle = len(parts.calls) // 2
        for name, carry in CARRIES.items():

            def run(carry=carry) -> None:
                parts.carry(parts.calls[middle][1], carry)
                parts.run(middle)

            parts.sums[0].zero_(), parts.sums[1].zero_()
            contest.add(name, run)
        return
    whole.backward()
    contest.expected = {name: whole.tensors[name].clone() for name in ("dq", "dk", "dv")}
    contest.close = 0.0
    contest.add("call", whole.backward)
    for count in COUNTS:
        parts = contest.attempt(f"parts {count}", partial(Parts, gpu, whole, count))
        for name in ("dq", "dk", "dv"):
            whole.tensors[name].fill_(float("nan"))  # what nobody writes is seen
        if parts and contest.same(f"parts {count}", parts):
            contest.add(f"parts {count}", parts.backward)
