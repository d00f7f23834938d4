"""The PyTorch front on a CUDA device, in one script: no pytest, no network.

PYTHONPATH=python python3 tests/python/torch_front/on_cuda.py [--device cuda] [--steps 50] [NAME...]

Prints one line a check: "ok", "refused" with the library's words (a feature the CUDA backend
does not have), or "FAIL"; then step times of two transformers models. Exit status 1 if any failed.
With --device cpu it checks itself, on small shapes.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
import traceback

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import math64  # noqa: E402
import ordo  # noqa: E402
import ordo.torch  # noqa: E402
import overhead as bare  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from math64 import same  # noqa: E402
from ordo._problem import dropout_of  # noqa: E402
from ordo.torch._attention import Arguments, run  # noqa: E402
from ordo.torch._mask import keep_mask, signed_probabilities  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

CHECKS = {}
DEVICE = "cuda"
STEPS = 50


def check(function):
    CHECKS[function.__name__] = function
    return function


class Wrong(Exception):
    """A check that did not hold."""


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def cuda():
    return DEVICE == "cuda"


def wait():
    if cuda():
        torch.cuda.synchronize()


# ---- tensors ----


def tensors(batch=2, rows=384, heads=4, kv_heads=2, dim=64, dtype=torch.bfloat16, columns=None):
    """q, k, v and the gradient of o; the same numbers on every device."""
    drawn = torch.Generator().manual_seed(rows + dim)
    shapes = [
        (rows, heads),
        (columns or rows, kv_heads),
        (columns or rows, kv_heads),
        (rows, heads),
    ]
    made = [torch.randn(batch, *shape, dim, generator=drawn).to(dtype) for shape in shapes]
    *inputs, dout = (x.to(DEVICE) for x in made)
    return [x.requires_grad_() for x in inputs], dout


def both(inputs, dout, **rules):
    """o, lse, dq, dk, dv."""
    o, lse = ordo.torch.attention(*inputs, **rules)
    return [o.detach(), lse.detach(), *torch.autograd.grad(o, inputs, dout)]


def equal(one, other, what):
    for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), one, other):
        expect(same(x.cpu(), y.cpu()), f"{what}: {name} differs")


def against_math(inputs, dout, keywords, **expected_rules):
    """Largest error of each result, as a part of the largest element."""
    o, lse, seen = run(*inputs, Arguments(**keywords))
    grads = torch.autograd.grad(o, inputs, dout)
    wide = [x.detach().double().cpu().requires_grad_() for x in inputs]
    if keywords.get("dropout_p"):
        expected_rules.update(keep=host_mask(*seen), kept_scale=kept_scale(keywords))
    expected, expected_lse = math64.attention(*wide, **expected_rules)
    wanted = [expected, expected_lse, *torch.autograd.grad(expected, wide, dout.double().cpu())]
    return off(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads), wanted)


def host_mask(q, k, v, lists, rules):
    """The keep mask as the host makes it, whatever the device."""
    lists = type(lists)(*[None if x is None else x.cpu() for x in lists])
    return keep_mask(q.cpu(), k.cpu(), v.cpu(), lists, rules)


def kept_scale(keywords):
    """Of what dropout keeps."""
    made = dropout_of(keywords["dropout_p"], keywords.get("keying", "ordo"))
    return ordo.dropout.query(ordo.Problem(q_len=1, head_dim=1, dropout=made)).scale


def off(names, got, wanted):
    """The largest error, as a part of the largest element; at most 2e-2."""
    worst = 0.0
    for name, x, y in zip(names, got, wanted):
        error = ((x.detach().double().cpu() - y).abs().max() / y.abs().max()).item()
        expect(error < 2e-2, f"{name} is off by {error:.1e}")
        worst = max(worst, error)
    return f"{worst:.1e}"


# ---- checks ----


@check
def values():
    found = []
    for dim in (64, 128):
        for causal in (False, True):
            for heads, kv_heads in ((4, 4), (4, 1)):
                rules = dict(causal=causal)
                given = tensors(dim=dim, heads=heads, kv_heads=kv_heads)
                found.append(against_math(*given, rules, **rules))
    return f"largest error {max(found, key=float)} over {len(found)} shapes"


@check
def dropout():
    found = [against_math(*tensors(), dict(causal=c, dropout_p=p, seed=(3, 4)), causal=c)
             for c in (False, True) for p in (0.1, 0.17, 0.001)]  # fmt: skip
    return f"the mask is the host's; largest error {max(found, key=float)}"


@check
def dropout_modes():
    """Bits made inside the passes or before them: equal results, and what each costs the GPU."""
    if not cuda():
        return "no modes here"
    from ordo.torch import _attention, _plans

    inputs, dout = tensors(batch=8, rows=1024, heads=12, kv_heads=12)
    made, said = {}, []
    for mode, p in (("none", 0.0), ("fused", 0.1), ("sequential", 0.1)):
        os.environ["ORDO_DROPOUT_MODE"] = "fused" if mode == "none" else mode
        _plans._plans.clear()
        _attention._known.clear()
        rules = dict(causal=True, dropout_p=p, seed=(1, 2))
        made[mode] = both(inputs, dout, **rules)
        o = ordo.torch.attention(*inputs, **rules)[0]
        with torch.no_grad():
            forward = _device_us(lambda: ordo.torch.attention(*inputs, **rules))
        backward = _device_us(lambda: torch.autograd.grad(o, inputs, dout, retain_graph=True))
        said.append(f"{mode} {forward:.0f} + {backward:.0f}")
    del os.environ["ORDO_DROPOUT_MODE"]
    _plans._plans.clear()
    _attention._known.clear()
    equal(made["fused"], made["sequential"], "sequential")
    return f"equal bits; us of forward + backward, GPT-2's shape: {', '.join(said)}"


def _device_us(function, calls=20):
    """Median microseconds of the device, a call after the other."""
    for _ in range(3):
        function()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    for mark in marks[:-1]:
        mark.record()
        function()
    marks[-1].record()
    wait()
    times = sorted(x.elapsed_time(y) * 1e3 for x, y in zip(marks, marks[1:]))
    return times[len(times) // 2]


@check
def sequence_ids():
    """A sequence keeps its mask wherever it lies, if it keeps its id."""
    ids = torch.tensor([5, 9], device=DEVICE)
    inputs, dout = tensors()
    together = both(inputs, dout, causal=True, sequence_ids=ids, **DROPPED)
    turned = [x.detach().flip(0).requires_grad_() for x in inputs]
    other = both(turned, dout.flip(0), causal=True, sequence_ids=ids.flip(0), **DROPPED)
    equal(together, [x.flip(0) for x in other], "in another order")
    return "two sequences in either order"


@check
def unequal_lengths():
    given = tensors(rows=200, columns=456)
    return against_math(*given, dict(causal=True), causal=True)


@check
def repeats():
    given = tensors(batch=4, rows=1024, heads=8)
    p = _dropout_there()
    first = both(*given, causal=True, dropout_p=p, seed=1)
    side = torch.cuda.Stream() if cuda() else None
    noise = torch.randn(2048, 2048, device=DEVICE)
    for _ in range(20):
        if side is not None:
            with torch.cuda.stream(side):
                for _ in range(4):
                    noise = noise @ noise / 2048
        equal(first, both(*given, causal=True, dropout_p=p, seed=1), "a repeat under load")
    wait()
    return f"20 runs beside another stream's load, p {p}"


@check
def batch_invariance():
    (q, k, v), dout = tensors(batch=3, rows=512)
    whole = both([q, k, v], dout, causal=True)
    for b in range(3):
        one = [x.detach()[b : b + 1].requires_grad_() for x in (q, k, v)]
        equal([x[b : b + 1] for x in whole], both(one, dout[b : b + 1], causal=True), "one of 3")
    return "a sequence alone has the bits it has in a batch"


@functools.lru_cache(maxsize=None)
def _there(**rules):
    """Whether the backend has a feature."""
    inputs, _ = tensors(rows=128)
    try:
        o, lse = ordo.torch.attention(*inputs, **rules)
        torch.autograd.grad(o.float().sum() if rules else lse.sum(), inputs[0])
    except ordo.Error as error:
        if error.status != "unsupported":
            raise
        return False
    return True


def _dropout_there():
    """0.1, or 0 if the backend has none."""
    return 0.1 if _there(dropout_p=0.1, seed=1) else 0.0


@check
def streams():
    if not cuda():
        return "no streams here"
    given = tensors(rows=512)
    plain = both(*given, causal=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        other = both(*given, causal=True)
    torch.cuda.current_stream().wait_stream(side)
    equal(plain, other, "on another stream")
    return "same bits on a side stream"


@check
def graphs():
    if not cuda():
        return "no graphs here"
    p = _dropout_there()
    inputs, dout = tensors(rows=512)
    rng = torch.tensor([1, 2], device=DEVICE)

    def step():
        rules = dict(dropout_p=p, rng_state=rng) if p else {}
        return both(inputs, dout, causal=True, **rules)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = step()
    for seed in (1, 9, 1):
        rng[0] = seed
        graph.replay()
        wait()
        equal([x.clone() for x in held], step(), f"replayed with seed {seed}")
    return f"forward and backward replayed, seed read from the device, p {p}"


@check
def drawn_in_a_graph():
    if not cuda():
        return "no graphs here"
    inputs, _ = tensors(rows=256)
    with torch.no_grad():
        ordo.torch.attention(*inputs, dropout_p=0.5)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o, _ = ordo.torch.attention(*inputs, dropout_p=0.5)
        made = []
        for _ in range(2):
            graph.replay()
            wait()
            made.append(o.clone())
    expect(not same(*made), "two replays drew the same mask")
    return "each replay draws a mask of its own"


@check
def compiled():
    given = tensors(rows=256)
    plain = both(*given, causal=True)
    done = []
    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        whole = torch.compile(
            lambda q, k, v: ordo.torch.attention(q, k, v, causal=True)[0],
            fullgraph=True,
            backend=backend,
        )
        o = whole(*given[0])
        other = [o.detach(), plain[1], *torch.autograd.grad(o, given[0], given[1])]
        equal(plain, other, backend)
        done.append(backend)
    return "one graph: " + ", ".join(done)


@check
def checkpointed():
    inputs, dout = tensors(rows=256)
    p = _dropout_there()

    def block(q, k, v):
        return ordo.torch.attention(q, k, v, causal=True, dropout_p=p)[0]

    torch.manual_seed(3)
    plain = torch.autograd.grad(block(*inputs), inputs, dout)
    torch.manual_seed(3)
    again = torch.autograd.grad(checkpoint(block, *inputs, use_reentrant=False), inputs, dout)
    for x, y in zip(plain, again):
        expect(same(x, y), "recomputed gradients differ")
    return f"recomputed with the same mask, p {p}"


@check
def opcheck():
    from ordo.torch._plans import Lists, Rules

    inputs, _ = tensors(rows=128)
    rules = Rules(0, 0, 0.125, "causal", -1, -1, 0.0, 0.0, "ordo", ())
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if _there():  # the last one differentiates lse, too
        tests.append("test_aot_dispatch_dynamic")
    said = torch.library.opcheck(
        torch.ops.ordo.attention_forward.default, (*inputs, *Lists(), *rules), test_utils=tests
    )
    expect(set(said.values()) == {"SUCCESS"}, str(said))
    return ", ".join(said)


@check
def autocast():
    inputs, _ = tensors(rows=128, dtype=torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        o, _ = ordo.torch.attention(*inputs)
    expect(o.dtype == torch.bfloat16, f"o is {o.dtype}")
    return "float32 in, bfloat16 out"


@check
def layouts():
    inputs, dout = tensors(rows=256)
    plain = both(inputs, dout, causal=True)
    heads_first = [
        x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in inputs
    ]
    equal(plain, both(heads_first, dout, causal=True), "(batch, head, row, dim) in memory")
    qkv = torch.stack([x.detach() for x in (inputs[0][:, :, :2], *inputs[1:])], 2)
    packed = ordo.flash_attn_qkvpacked_func(qkv.requires_grad_(), causal=True)
    parts = ordo.flash_attn_func(*qkv.unbind(2), causal=True)
    expect(same(packed, parts), "packed qkv")
    return "heads first and packed qkv, without copies"


@check
def strides():
    """Queries, keys and values side by side in one tensor, as GPT-2 has them, beside copies."""
    heads, rows = (12, 1024) if cuda() else (2, 64)
    drawn = torch.Generator().manual_seed(5)
    qkv = torch.randn(2, rows, 3 * heads * 64, generator=drawn).to(DEVICE, torch.bfloat16)
    views = [x.unflatten(-1, (heads, 64)) for x in qkv.split(heads * 64, dim=-1)]
    copies = [x.contiguous().requires_grad_() for x in views]
    views = [x.detach().requires_grad_() for x in views]
    expect(not views[0].is_contiguous(), "views are contiguous")
    dout = torch.randn(2, rows, heads, 64, generator=drawn).to(DEVICE, torch.bfloat16)
    equal(both(copies, dout, causal=True), both(views, dout, causal=True), "strided inputs")
    wide = dout.new_zeros(2, rows, heads, 128)[..., :64].copy_(dout)
    equal(both(copies, dout, causal=True), both(copies, wide, causal=True), "strided dout")
    return "rows with gaps have the bits of copies"


def _feature(keywords, shape):
    """A check of one feature against float64, and that a repeat has the same bits."""

    def body():
        given = tensors(**shape)
        rules = {
            key: x for key, x in keywords.items() if key not in ("dropout_p", "seed", "keying")
        }
        said = against_math(*given, keywords, **rules)
        equal(both(*given, **keywords), both(*given, **keywords), "a repeat")
        return said

    return body


F16 = dict(dtype=torch.float16)
FEATURES = {
    "head_size_40": (dict(causal=True), dict(dim=40)),
    "head_size_77": (dict(causal=True), dict(dim=77)),
    "head_size_80": (dict(causal=True), dict(dim=80)),
    "head_size_96": (dict(causal=True), dict(dim=96)),
    "head_size_192": (dict(), dict(dim=192)),
    "head_size_256": (dict(causal=True), dict(dim=256)),
    "top_left": (dict(causal="top-left"), dict(rows=200, columns=456)),
    "window": (dict(causal=True, window=(100, 0)), {}),
    "window_both_sides": (dict(window=(70, 33)), dict(rows=300, columns=420)),
    "window_no_end": (dict(causal=True, window=(-1, 0)), {}),
    "softcap": (dict(softcap=5.0), {}),
    "float16": (dict(causal=True), F16),
    "float16_128": (dict(), dict(dim=128, **F16)),
}
DROPPED = dict(dropout_p=0.17, seed=(5, 6))
for _name, (_keywords, _shape) in FEATURES.items():
    CHECKS[_name] = _feature(_keywords, _shape)
CHECKS["keying_fa2"] = _feature(dict(causal=True, keying="fa2", **DROPPED), {})
for _name in ("head_size_96", "head_size_256", "window", "softcap", "float16"):
    _keywords, _shape = FEATURES[_name]
    CHECKS[_name + "_dropout"] = _feature({**_keywords, **DROPPED}, _shape)


@check
def float32():
    given = tensors(dtype=torch.float32)
    if not cuda():
        return against_math(*given, dict(causal=True), causal=True)
    try:
        both(*given, causal=True)
    except ordo.Error as error:
        expect(error.status == "unsupported" and "autocast" in str(error), f"refused by {error}")
        with torch.autocast("cuda", torch.bfloat16):
            both(given[0], given[1].to(torch.bfloat16), causal=True)
        return f"refused by name: {error}"
    raise Wrong("float32 was taken")


@check
def gradient_of_lse():
    inputs, dout = tensors(rows=128)
    weights = torch.linspace(-1, 1, 2 * 4 * 128, device=DEVICE).view(2, 4, 128)
    o, lse = ordo.torch.attention(*inputs, causal=True)
    got = torch.autograd.grad((o, lse), inputs, (dout, weights))
    wide = [x.detach().double().cpu().requires_grad_() for x in inputs]
    wanted = math64.attention(*wide, causal=True)
    wanted = torch.autograd.grad(wanted, wide, (dout.double().cpu(), weights.double().cpu()))
    return off(("dq", "dk", "dv"), got, wanted)


@check
def alibi():
    found = []
    for shape, causal in (((4,), False), ((2, 4), True)):
        slopes = torch.rand(*shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        keywords = dict(slopes=slopes, causal=causal)
        found.append(against_math(*tensors(), keywords, slopes=slopes.cpu(), causal=causal))
    return max(found, key=float)


# ---- sequences of their own lengths ----

ENDS = (0, 100, 100, 384, 700)  # the second one is empty
LONGEST = 316


def _ends(ends=ENDS):
    return torch.tensor(ends, dtype=torch.int32, device=DEVICE)


def _flat(dtype=torch.bfloat16, dim=64):
    """q, k, v and dout of sequences end to end."""
    inputs, dout = tensors(batch=1, rows=ENDS[-1], dtype=dtype, dim=dim)
    return [x.detach()[0].requires_grad_() for x in inputs], dout[0]


def _without_waiting(function):
    """The call, with every wait for the device an error."""
    if cuda():
        torch.cuda.set_sync_debug_mode("error")
    try:
        return function()
    finally:
        if cuda():
            torch.cuda.set_sync_debug_mode("default")


@check
def packed():
    ends = _ends()
    flat, dout = _flat()

    def step():
        o, lse = ordo.torch.attention(*flat, cu_q=ends, max_q=LONGEST, causal=True)
        return o, lse, *torch.autograd.grad(o, flat, dout)

    step()
    o, lse, *grads = _without_waiting(step)
    for first, end in zip(ENDS, ENDS[1:]):
        if first == end:
            continue
        one = [x.detach()[None, first:end].requires_grad_() for x in flat]
        alone = both(one, dout[None, first:end], causal=True)
        for x, y in zip((o, *grads), (alone[0], *alone[2:])):
            expect(same(x[first:end], y[0]), f"rows {first}..{end} differ from the sequence alone")
        expect(same(lse[:, first:end], alone[1][0]), f"lse of rows {first}..{end} differs")
    return "sequences have the bits they have alone, one empty; no wait for the device"


@check
def packed_gaps():
    """Used lengths (FlashAttention-3's seqused) at a head size that is filled up, rows behind the
    last end, and the switch that checks lengths."""
    from ordo.compat.flash_attn_3 import flash_attn_varlen_func

    flat, dout = _flat(dim=192)
    ends, used = _ends((0, 100, 100, 384, 600)), _ends((70, 0, 284, 0))
    lists = (ends, ends, LONGEST, LONGEST, used, used)

    def step():
        o, lse = flash_attn_varlen_func(*flat, *lists, causal=True, return_attn_probs=True)
        return o, lse, *torch.autograd.grad(o, flat, dout)

    step()
    o, lse, *grads = _without_waiting(step)
    for first, end in ((0, 70), (100, 384)):
        one = [x.detach()[None, first:end].requires_grad_() for x in flat]
        alone = both(one, dout[None, first:end], causal=True)
        for x, y in zip((o, *grads), (alone[0], *alone[2:])):
            expect(same(x[first:end], y[0]), f"rows {first}..{end} differ from the sequence alone")
    for first, end in ((70, 100), (384, 700)):
        empty = [x[first:end] for x in (o, *grads)]
        expect(not any(x.any() for x in empty), f"rows {first}..{end}: expected zeros")
        expect((lse[:, first:end] == -torch.inf).all(), f"lse of rows {first}..{end}")
    ordo.torch.check_lengths(True)
    try:
        ordo.torch.attention(*flat, cu_q=ends, max_q=100)
    except ordo.Error as error:
        expect("cu_q[3] 384: expected 100..200" in str(error), str(error))
    else:
        raise Wrong("a sequence longer than max_q was not found")
    finally:
        ordo.torch.check_lengths(False)
    return "used rows have the bits they have alone, the others zeros; no wait for the device"


@check
def no_rows():
    """Empty tensors."""
    for batch, rows, columns in ((0, 5, 7), (2, 0, 7), (2, 5, 0)):
        new = functools.partial(torch.ones, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        inputs = [new(batch, n, 2, 64) for n in (rows, columns, columns)]
        o, lse = ordo.torch.attention(*inputs, causal=True)
        grads = torch.autograd.grad(o.sum(), inputs)
        expect(not any(x.any() for x in (o, *grads)), "expected zeros")
        expect((lse == -torch.inf).all(), "expected lse -inf")
    return "zeros, lse -inf"


def _packed_feature(ends_kv=None, dtype=torch.bfloat16, dim=64, **keywords):
    """Packed sequences against float64, one by one, with the host's mask."""

    def body():
        flat, dout = _flat(dtype, dim)
        if ends_kv is not None:
            kv, _ = tensors(batch=1, rows=ends_kv[-1], dtype=dtype, dim=dim)
            flat[1:] = [x.detach()[0].requires_grad_() for x in kv[1:]]
        other = ends_kv or ENDS
        longest = max(y - x for x, y in zip(other, other[1:]))
        rules = dict(cu_q=_ends(), max_q=LONGEST, cu_kv=_ends(other), max_kv=longest, **keywords)
        o, lse, seen = run(*flat, Arguments(**rules))
        grads = torch.autograd.grad(o, flat, dout)
        p = keywords.get("dropout_p", 0)
        keep = host_mask(*seen) if p else None
        names = ("causal", "window", "softcap")
        math = {name: keywords[name] for name in names if name in keywords}
        worst = []
        for b, (first, end) in enumerate(zip(ENDS, ENDS[1:])):
            columns = slice(other[b], other[b + 1])
            rows = slice(first, end)
            if first == end or columns.start == columns.stop:
                expect(not o[rows].any(), f"sequence {b} sees nothing, and o is not 0")
                expect(not any(x[columns].any() for x in grads[1:]), f"sequence {b}: dk or dv")
                continue
            parts = [flat[0][rows], flat[1][columns], flat[2][columns]]
            wide = [x.detach()[None].double().cpu().requires_grad_() for x in parts]
            if p:
                size = end - first, columns.stop - columns.start
                kept = keep[b : b + 1, :, : size[0], : size[1]]
                math.update(keep=kept, kept_scale=kept_scale(keywords))
            expected, expected_lse = math64.attention(*wide, **math)
            wanted = torch.autograd.grad(expected, wide, dout[rows][None].double().cpu())
            got = o[rows], lse[:, rows], grads[0][rows], grads[1][columns], grads[2][columns]
            wanted = [x[0] for x in (expected, expected_lse, *wanted)]
            worst.append(off(("o", "lse", "dq", "dk", "dv"), got, wanted))
        return max(worst, key=float)

    return body


CHECKS["packed_dropout"] = _packed_feature(causal=True, **DROPPED)
CHECKS["packed_unequal"] = _packed_feature((0, 130, 130, 500, 1100), causal=True)
CHECKS["packed_window"] = _packed_feature(causal=True, window=(60, 0))
CHECKS["packed_all"] = _packed_feature(
    (0, 130, 200, 600, 1000), torch.float16, 96, window=(90, 40), softcap=8.0, **DROPPED
)


@check
def debug_mask():
    """S_dmask: made on the device without a wait, the sign the host's mask; in a graph."""
    flat, _ = _flat()
    rng = torch.tensor([3, 4], device=DEVICE)
    rules = dict(dropout_p=0.3, causal=True, rng_state=rng)
    lists = dict(cu_q=_ends(), cu_kv=_ends(), max_q=LONGEST, max_kv=LONGEST)
    for inputs, more in (([x[None] for x in flat], {}), (flat, lists)):
        with torch.no_grad():
            *_, seen = run(*inputs, Arguments(**rules, **more))
            signed = _without_waiting(lambda: signed_probabilities(*seen))
            keep = host_mask(*seen)
            rows, columns = keep.shape[2:]
            dropped = torch.signbit(signed).cpu()[:, :, :rows, :columns]
            own = [y - x for x, y in zip(ENDS, ENDS[1:])] if more else [rows]
            for b, size in enumerate(own):
                one = dropped[b, :, :size, :size]
                expect(torch.equal(one, ~keep[b, :, :size, :size]), f"sequence {b}: other signs")
            if not cuda():
                continue
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                held = signed_probabilities(*seen)
            for seed in (9, 3):
                rng[0] = seed
                graph.replay()
                wait()
                expect(same(held, signed) == (seed == 3), f"replayed with seed {seed}")
    return "signs are the host's mask; no wait; " + ("replayed" if cuda() else "no graphs here")


@check
def packed_in_a_graph():
    """The ends of the sequences are read on the device: a replay sees other ones."""
    if not cuda():
        return "no graphs here"
    ends = _ends()
    flat, dout = _flat()

    def step():
        o, _ = ordo.torch.attention(*flat, cu_q=ends, max_q=ENDS[-1], causal=True)
        return [o.detach(), *torch.autograd.grad(o, flat, dout)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = step()
    for given in (ENDS, (0, 1, 300, 301, 700)):
        ends.copy_(_ends(given))
        graph.replay()
        wait()
        made = [x.clone() for x in held]
        expect(all(same(x, y) for x, y in zip(made, step())), f"replayed with ends {given}")
    return "replayed with other ends"


@check
def padded():
    lens = torch.tensor([100, 384], dtype=torch.int32, device=DEVICE)
    inputs, dout = tensors()
    rules = dict(q_lens=lens, kv_lens=lens, causal=True)
    both(inputs, dout, **rules)
    whole = _without_waiting(lambda: both(inputs, dout, **rules))
    one = [x.detach()[:1, :100].requires_grad_() for x in inputs]
    alone = both(one, dout[:1, :100], causal=True)
    for name, x, y in zip(("o", "dq", "dk", "dv"), (whole[0], *whole[2:]), (alone[0], *alone[2:])):
        expect(same(x[:1, :100], y), f"{name} differs from the sequence alone")
        expect(not x[0, 100:].any(), f"{name} is not 0 past the end")
    expect(same(whole[1][:1, :, :100], alone[1]), "lse differs from the sequence alone")
    return "valid rows have the bits they have alone, the others are 0; no wait for the device"


@check
def padded_dropout():
    """Sequence 1 has the mask of its coordinates, whatever the padding."""
    lens = torch.tensor([100, 300], dtype=torch.int32, device=DEVICE)
    inputs, dout = tensors()
    padded = both(inputs, dout, q_lens=lens, kv_lens=lens, causal=True, **DROPPED)
    rows = [x.detach()[1:, :300].requires_grad_() for x in inputs]
    ids = ordo.Shard(batch0=1)
    alone = both(rows, dout[1:, :300], causal=True, shard=ids, **DROPPED)
    for name, x, y in zip(
        ("o", "dq", "dk", "dv"), (padded[0], *padded[2:]), (alone[0], *alone[2:])
    ):
        expect(same(x[1:, :300], y), f"{name} differs from the sequence alone")
    return "the bits of the sequence alone, mask included"


@check
def sdpa():
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

    dtype = torch.bfloat16
    inputs, dout = tensors(rows=512, heads=4, kv_heads=4, dtype=dtype)
    given = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs]
    dout = dout.transpose(1, 2)
    p = _dropout_there() if cuda() else 0.0
    ordo.torch.register()
    activate_flash_attention_impl("ORDO")
    torch.use_deterministic_algorithms(True)
    try:
        o = F.scaled_dot_product_attention(*given, is_causal=True)
        grads = torch.autograd.grad(o, given, dout)
        ours = both([x.transpose(1, 2) for x in given], dout.transpose(1, 2), causal=True)
        for x, y in zip((o, *grads), (ours[0], *ours[2:])):
            expect(same(x, y.transpose(1, 2)), "F.scaled_dot_product_attention has other bits")
        made = []
        for _ in range(2):
            torch.manual_seed(7)
            o = F.scaled_dot_product_attention(*given, is_causal=True, dropout_p=p)
            made.append([o, *torch.autograd.grad(o, given, dout)])
        expect(all(same(x, y) for x, y in zip(*made)), "with dropout: a repeat differs")
        if p:
            expect(not same(made[0][0], ours[0].transpose(1, 2)), "nothing was dropped")
        whole = torch.compile(F.scaled_dot_product_attention, fullgraph=True)
        o = whole(*given, is_causal=True)
        expect(same(o, ours[0].transpose(1, 2)), "compiled: other bits")
        torch.autograd.grad(o, given, dout)
    finally:
        restore_flash_attention_impl()
        torch.use_deterministic_algorithms(False)
    return f"strict determinism, dropout {p}, compiled"


@check
def sdpa_biases():
    """Causal masks of unequal lengths, by torch.nn.attention.bias."""
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    worst = 0.0
    ordo.torch.register()
    activate_flash_attention_impl("ORDO")
    try:
        for rows, columns in ((200, 456), (384, 384)):
            inputs, _ = tensors(rows=rows, columns=columns, kv_heads=4)
            given = [x.detach().transpose(1, 2).contiguous() for x in inputs]
            for bias, causal in ((causal_lower_right, True), (causal_upper_left, "top-left")):
                expected, _ = math64.attention(*(x.detach().cpu() for x in inputs), causal=causal)
                for sdpa in (F.scaled_dot_product_attention, _compiled_sdpa()):
                    o = sdpa(*given, bias(rows, columns)).transpose(1, 2)
                    worst = max(worst, float(off(("o",), (o,), (expected,))))
    finally:
        restore_flash_attention_impl()
    return f"largest error {worst:.1e}"


def _compiled_sdpa():
    return torch.compile(F.scaled_dot_product_attention, fullgraph=True, backend="aot_eager")


@check
def varlen_attn():
    """PyTorch's own function for packed sequences, on the same operators."""
    if not cuda():
        return "no CUDA operators here"
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
    from torch.nn.attention.varlen import varlen_attn as theirs

    inputs, dout = tensors(batch=1, rows=ENDS[-1], kv_heads=4)
    flat, dout = [x.detach()[0].requires_grad_() for x in inputs], dout[0]
    ends = _ends()
    ordo.torch.register()
    activate_flash_attention_impl("ORDO")
    try:
        for window in ((-1, 0), (60, 0)):
            o = theirs(*flat, ends, ends, LONGEST, LONGEST, window_size=window)
            grads = torch.autograd.grad(o, flat, dout)
            rules = dict(cu_q=ends, max_q=LONGEST, window=window)
            ours = both(flat, dout, **rules)
            for x, y in zip((o, *grads), (ours[0], *ours[2:])):
                expect(same(x, y), f"window {window}: other bits than ordo.torch.attention")
    finally:
        restore_flash_attention_impl()
    return "causal and windows, the bits of ordo.torch.attention"


@check
def overhead():
    """What a call adds on the host to a bare operator (overhead.py): at most 30 us."""
    rows, rest = bare.measure(DEVICE)
    said = ", ".join(f"{row['call']} {row['overhead']:.0f} of {row['whole']:.0f}" for row in rows)
    said += "; whole: " + ", ".join(f"{name} {time:.0f}" for name, time in rest.items())
    expect(not cuda() or all(row["overhead"] <= bare.BAR_US for row in rows), f"us: {said}")
    return f"us: {said}"


# ---- a real client ----


def _model(name, implementation, p):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    small = not cuda()
    torch.manual_seed(0)
    if name == "gpt2":
        size = dict(n_layer=2, n_head=2, n_embd=128) if small else {}
        config = GPT2Config(**size, attn_pdrop=p)
        kind = GPT2LMHeadModel
    else:
        config = LlamaConfig(
            hidden_size=256 if small else 4096, intermediate_size=512 if small else 14336,
            num_hidden_layers=2 if small else 4, num_attention_heads=2 if small else 32,
            num_key_value_heads=1 if small else 8, vocab_size=32000,
            attention_dropout=p, max_position_embeddings=4096,
        )  # fmt: skip
        kind = LlamaForCausalLM
    config._attn_implementation = implementation
    with torch.device(DEVICE):
        return kind(config).train()


def _batch(name, kind):
    """Tokens with a pattern to learn; padded on the right, or several texts in one row."""
    batch, rows = ((8, 1024) if name == "gpt2" else (2, 1024)) if cuda() else (2, 64)
    drawn = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 500, (batch, rows), generator=drawn).cumsum(1) % 1000
    if kind == "dense":
        return dict(input_ids=tokens, labels=tokens)
    if kind == "padded":
        mask = torch.ones_like(tokens)
        for b in range(batch):
            mask[b, rows - (b * rows) // (2 * batch) :] = 0
        return dict(
            input_ids=tokens, labels=tokens.masked_fill(mask == 0, -100), attention_mask=mask
        )
    tokens = tokens.view(1, -1)[:, : 2048 if name == "llama" else 8192]
    cut = rows * 3 // 4
    positions = torch.cat([torch.arange(n) for n in _cuts(tokens.shape[1], cut)])[None]
    return dict(input_ids=tokens, labels=tokens, position_ids=positions)


def _cuts(total, longest):
    while total > 0:
        yield min(total, longest)
        total -= longest


def train(name, implementation, kind, steps, strict, p, seed=2):
    """Losses, a digest of the parameters, seconds a step (median)."""
    torch.use_deterministic_algorithms(strict)
    model = _model(name, implementation, p)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=cuda())
    inputs = {key: x.to(DEVICE) for key, x in _batch(name, kind).items()}
    torch.manual_seed(seed)
    losses, times = [], []
    for _ in range(steps):
        wait()
        start = time.perf_counter()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(**inputs, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wait()
        times.append(time.perf_counter() - start)
        losses.append(loss.detach())
    torch.use_deterministic_algorithms(False)
    total = torch.stack([_fingerprint(p.detach()) for p in model.parameters()])
    digest = ordo.digest(torch.cat([torch.stack(losses).view(torch.int32).long(), total]))
    return [x.item() for x in losses], digest, sorted(times)[len(times) // 2]


def _fingerprint(tensor):
    """Of every bit and its place, made on the device: integers, so in any order the same."""
    bits = tensor.reshape(-1).view(torch.int32).long()
    return (bits * (2 * torch.arange(bits.numel(), device=bits.device) + 1)).sum()


@check
def gradients_in_a_model():
    """One step of each model without dropout: every gradient beside SDPA's and eager's."""
    import ordo.transformers

    ordo.transformers.register()
    said = []
    for name in ("gpt2", "llama"):
        grads, losses = {}, {}
        for implementation in ("eager", "sdpa", "ordo"):
            model = _model(name, implementation, 0.0)
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
            inputs = {key: x.to(DEVICE) for key, x in _batch(name, "dense").items()}
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = model(**inputs, use_cache=False).loss
            loss.backward()
            losses[implementation] = loss.item()
            grads[implementation] = {n: p.grad for n, p in model.named_parameters()}
            del model

        def apart(one, other):
            """The largest relative distance of a gradient, and whose it is."""
            found = (
                ((x - grads[other][n]).norm() / grads[other][n].norm().clamp_min(1e-20), n)
                for n, x in grads[one].items()
            )
            return max((x.item(), n) for x, n in found)

        ours, theirs = apart("ordo", "eager"), apart("sdpa", "eager")
        words = " ".join(f"{x:.4f}" for x in losses.values())
        said.append(f"{name} losses {words}, ordo {ours[0]:.1e} {ours[1]}, sdpa {theirs[0]:.1e}")
        expect(ours[0] < 2 * theirs[0] + 0.02, said[-1])
        grads.clear()
    return "; ".join(said)


def _gap(one, other):
    """Mean distance of two loss curves."""
    return sum(abs(x - y) for x, y in zip(one, other)) / len(one)


def _curve(losses):
    shown = sorted({0, 1, 2, 5, 10, 20, 30, 40, len(losses) - 1})
    return " ".join(f"{losses[i]:.2f}" for i in shown
                    if i < len(losses))  # fmt: skip


TIMES = []  # rows of the table: model, batch, dropout, then times and kernels


def _kernel(name, kind, strict, p):
    """Which of PyTorch's kernels SDPA takes in this model."""
    torch.use_deterministic_algorithms(strict)
    model = _model(name, "sdpa", p)
    inputs = {key: x.to(DEVICE) for key, x in _batch(name, kind).items()}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        with torch.autocast(DEVICE, torch.bfloat16):
            model(**inputs, use_cache=False)
    torch.use_deterministic_algorithms(False)
    names = {event.key for event in seen.key_averages()}
    kinds = {"cudnn_": "cuDNN", "flash_": "flash", "efficient_": "efficient"}
    for key, word in kinds.items():
        if any(x.startswith(f"aten::_scaled_dot_product_{key}attention") for x in names):
            return word
    return "math"


def client(name, kind):
    def body():
        import ordo.transformers

        ordo.transformers.register()
        p = _dropout_there()
        losses, digest, seconds = train(name, "ordo", kind, STEPS, True, p)
        _, again, _ = train(name, "ordo", kind, STEPS, True, p)
        expect(digest == again, "trained twice: losses or parameters differ")
        theirs, _, fast = train(name, "sdpa", kind, STEPS, False, p)
        others, _, strict = train(name, "sdpa", kind, STEPS, True, p, seed=3)
        more, _, _ = train(name, "sdpa", kind, STEPS, False, p, seed=4)
        mine, _, _ = train(name, "ordo", kind, STEPS, True, p, seed=3)
        gap = (_gap(losses, theirs) + _gap(mine, others)) / 2
        noise = max(_gap(others, theirs), _gap(more, theirs), _gap(more, others))
        expect(
            gap < 2 * noise + 0.1,
            f"{gap:.2f} from SDPA, whose masks differ by {noise:.2f}: ordo {_curve(losses)}; "
            f"sdpa {_curve(theirs)}; sdpa, others {_curve(others)}",
        )
        kernels = _kernel(name, kind, False, p), _kernel(name, kind, True, p)
        TIMES.append((name, kind, p, (seconds, fast, strict), kernels))
        said = f"twice equal {digest}; attention dropout {p}; loss {losses[0]:.3f} to "
        said += f"{losses[-1]:.3f}, SDPA {theirs[-1]:.3f} (mean gap {gap:.3f}, of other masks "
        return said + f"{noise:.3f}); ms a step: {_row(TIMES[-1])}"

    return body


def without_dropout(name):
    """Step times only: without dropout PyTorch can take its fastest kernel, cuDNN's."""

    def body():
        import ordo.transformers

        ordo.transformers.register()
        steps = min(STEPS, 15)
        ways = (("ordo", True), ("sdpa", False), ("sdpa", True))
        times = tuple(train(name, way, "dense", steps, strict, 0.0)[2] for way, strict in ways)
        kernels = _kernel(name, "dense", False, 0.0), _kernel(name, "dense", True, 0.0)
        TIMES.append((name, "dense", 0.0, times, kernels))
        return f"ms a step: {_row(TIMES[-1])}"

    return body


def _row(row):
    ordo_ms, fast, strict = (1e3 * x for x in row[3])
    return (
        f"ordo {ordo_ms:.1f}, sdpa ({row[4][0]}) {fast:.1f}, sdpa strict ({row[4][1]}) {strict:.1f}"
    )


def table():
    """Median milliseconds a step, and ordo's as a part of theirs."""
    print("\nms a step     batch   dropout   ordo      sdpa              sdpa, strict determinism")
    for name, kind, p, (ours, fast, strict), kernels in TIMES:
        cells = [
            f"{1e3 * x:7.1f} {kernel:9} {ours / x:5.2f}"
            for x, kernel in zip((fast, strict), kernels)
        ]
        print(f"{name:14}{kind:8}{p:<8}{1e3 * ours:7.1f}   " + "   ".join(cells))


for _name in ("gpt2", "llama"):
    for _kind in ("dense", "padded", "packed"):
        CHECKS[f"{_name}_{_kind}"] = client(_name, _kind)
    CHECKS[f"{_name}_no_dropout"] = without_dropout(_name)


# ---- the run ----


def one(name):
    start = time.perf_counter()
    try:
        word, said = "ok", CHECKS[name]()
    except ordo.Error as error:
        word, said = ("refused" if error.status == "unsupported" else "FAIL"), str(error)
    except Wrong as error:
        word, said = "FAIL", str(error)
    except Exception as error:
        known = isinstance(error.__cause__, ordo.Error) and error.__cause__.status == "unsupported"
        word, said = ("refused" if known else "FAIL"), f"{type(error).__name__}: {error}"
        if not known:
            traceback.print_exc(limit=-3)
    said = " ".join(str(said).split())[: 400 if word != "FAIL" else 600]
    print(f"{word:8}{name:18}{time.perf_counter() - start:6.1f} s  {said}", flush=True)
    return word


def main():
    global DEVICE, STEPS
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("names", nargs="*", metavar="NAME")
    given = options.parse_args()
    DEVICE, STEPS = given.device, given.steps
    if cuda() and not torch.cuda.is_available():
        print("skip: PyTorch sees no CUDA device")
        return 0
    title = torch.cuda.get_device_name() if cuda() else "CPU"
    print(
        f"torch {torch.__version__}, {title}, libordo {ordo.build().version} {ordo.build().target}"
    )
    if cuda() and not ordo.backend_available("cuda"):
        print(f"FAIL: {ordo.backend_why_not('cuda')}")
        return 1
    start = time.perf_counter()
    words = [one(name) for name in given.names or CHECKS]
    if TIMES:
        table()
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("ok", "refused", "FAIL"))
    print(f"torch on {DEVICE}: {counts}; {time.perf_counter() - start:.0f} s")
    return 1 if "FAIL" in words else 0


if __name__ == "__main__":
    sys.exit(main())
