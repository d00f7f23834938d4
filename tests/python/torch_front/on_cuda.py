"""The PyTorch front on a CUDA device, in one script: no pytest, no network.

PYTHONPATH=python python3 tests/python/torch_front/on_cuda.py [--device cuda] [--steps 50] [NAME...]

Prints one line per check: "ok", "refused" with the library's words (a feature the CUDA backend
does not have), or "FAIL"; then step times of two transformers models. Exit status 1 if any failed.
With --device cpu it checks itself, on small shapes.

This file has the features of attention on dense tensors. What surrounds it in PyTorch is in
on_cuda_clients.py, packed and padded sequences in on_cuda_lengths.py, the trained models in
on_cuda_training.py: this script runs them too, and each can be run alone, with the same command line.
"""

from __future__ import annotations

import os
import sys

import math64
import on_cuda_kit as kit
import ordo
import ordo.torch
import overhead as bare
import torch
from math64 import same
from on_cuda_kit import (
    CHECKS, DROPPED, Wrong, against_math, both, check, cuda, dropout_there, equal, expect, off,
    tensors, wait,
)  # fmt: skip
from torch.nn.attention.flex_attention import create_block_mask


@check
def overhead():
    """Host time by SDPA's (overhead.py). It comes first: after hundreds of other calls the host's
    times vary by more than that. The bars are those of bench/cpu/torch_overhead."""
    rows = bare.measure(kit.DEVICE)
    said = ", ".join(f"{name} {row['ratio']:.2f}" for name, row in rows.items())
    if cuda():
        said += f"; launches {[row['launches'] for row in rows.values()]}"
        for name in ("attention", "flash_attn_func"):
            plain, dropped = rows[name]["launches"], rows[name + " p"]["launches"]
            few = plain[0] <= 3 and plain[1] <= 4 and dropped[0] <= 4 and dropped[1] <= 4
            expect(few, f"launches of {name}: {plain} {dropped}")
    return f"by SDPA: {said}"


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
    from ordo.torch import _attention

    inputs, dout = tensors(batch=8, rows=1024, heads=12, kv_heads=12)
    made, said = {}, []
    for mode, p in (("none", 0.0), ("fused", 0.1), ("sequential", 0.1), ("auto", 0.1)):
        os.environ["ORDO_DROPOUT_MODE"] = "fused" if mode == "none" else mode
        _attention.forget()
        rules = dict(causal=True, dropout_p=p, seed=(1, 2))
        made[mode] = both(inputs, dout, **rules)
        o = ordo.torch.attention(*inputs, **rules)[0]
        with torch.no_grad():
            forward = _device_us(lambda: ordo.torch.attention(*inputs, **rules))
        backward = _device_us(lambda: torch.autograd.grad(o, inputs, dout, retain_graph=True))
        said.append(f"{mode} {forward:.0f} + {backward:.0f}")
    del os.environ["ORDO_DROPOUT_MODE"]
    _attention.forget()
    equal(made["fused"], made["sequential"], "sequential")
    equal(made["fused"], made["auto"], "auto")
    return f"equal bits; us of forward + backward, GPT-2's shape: {', '.join(said)}"


@check
def prepared_dropout():
    """Bits made on another stream while products run: equal results, many times under load, from a
    graph, and with streams of the caller's; a stream of another device is refused."""
    if not cuda():
        return "no streams here"
    from ordo.torch import _attention

    inputs, dout = tensors(batch=2, rows=2048, heads=16, kv_heads=16)
    shapes = inputs[0].shape, inputs[1].shape
    rules = dict(causal=True, dropout_p=0.1)
    wanted = both(inputs, dout, seed=(1, 2), **rules)
    rng = torch.tensor([1, 2], device="cuda")
    load = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
    os.environ["ORDO_DROPOUT_MODE"] = "overlapped"
    _attention.forget()
    own = torch.cuda.Stream()
    for turn in range(20):
        made = ordo.torch.prepare_dropout(
            *shapes, device="cuda", rng_state=rng, stream=own if turn % 2 else None, **rules
        )
        expect(made._bits is not None, "no bits were made ahead")
        load @ load
        equal(wanted, both(inputs, dout, prepared=made, **rules), f"turn {turn}")
        if turn == 9:  # never used: its memory goes back when the stream is done with it
            ordo.torch.prepare_dropout(*shapes, device="cuda", rng_state=rng, **rules)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        made = ordo.torch.prepare_dropout(*shapes, device="cuda", rng_state=rng, **rules)
        load @ load
        o = ordo.torch.attention(*inputs, prepared=made, **rules)[0]
    for offset in (2, 3):
        rng.copy_(torch.tensor([1, offset]))
        graph.replay()
        torch.cuda.synchronize()
        plain = ordo.torch.attention(*inputs, seed=(1, offset), **rules)[0]
        expect(same(o.cpu(), plain.detach().cpu()), f"replay with offset {offset}")
    del os.environ["ORDO_DROPOUT_MODE"]
    _attention.forget()
    try:
        ordo.torch.prepare_dropout(*shapes, device="cpu", stream=own, dtype=torch.bfloat16, **rules)
        expect(False, "a stream of another device was taken")
    except ordo.Error as error:
        expect("stream.device" in str(error), f"refused by {error}")
    return "equal bits in 20 turns and 2 replays"


@check
def keep_bits_memory():
    """Bits kept, made again and made inside by the limit of their memory: equal results, also from
    a graph; kept bits are released."""
    if not cuda():
        return "no memory to limit here"
    from ordo.torch import _attention, _front, _node

    inputs, dout = tensors(batch=1, rows=16384, heads=16, kv_heads=16)
    rules = dict(causal=True, dropout_p=0.1, seed=(1, 2))
    _attention.forget()
    held, real = [], _front.hold
    _node.f.hold = lambda device, size: held.append(size) or real(device, size)
    made, said, one = {}, [], 16 * 16384 * 16384 // 8
    for name, limit in (("kept", None), ("again", one + one // 2), ("inside", 1)):
        ordo.torch.set_keep_bits_memory(limit)
        o = ordo.torch.attention(*inputs, **rules)[0]
        said.append(f"{name} {sum(held)} B")
        del o
        made[name] = both(inputs, dout, **rules)
        expect(sum(held) == 0, f"{name}: bits are still held")
    ordo.torch.set_keep_bits_memory(None)
    equal(made["kept"], made["again"], "made again")
    equal(made["kept"], made["inside"], "made inside")
    torch.cuda.empty_cache()
    ordo.torch.set_keep_bits_memory(1 << 50)
    left = one - (64 << 20)  # too little for the bits, enough for all the rest
    full = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device="cuda")
    equal(made["kept"], both(inputs, dout, **rules), "on a full device")
    del full
    ordo.torch.set_keep_bits_memory(None)
    _node.f.hold = real
    return "equal bits; " + ", ".join(said)


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
    ids = torch.tensor([5, 9], device=kit.DEVICE)
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
    p = dropout_there()
    first = both(*given, causal=True, dropout_p=p, seed=1)
    side = torch.cuda.Stream() if cuda() else None
    noise = torch.randn(2048, 2048, device=kit.DEVICE)
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
    qkv = torch.randn(2, rows, 3 * heads * 64, generator=drawn).to(kit.DEVICE, torch.bfloat16)
    views = [x.unflatten(-1, (heads, 64)) for x in qkv.split(heads * 64, dim=-1)]
    copies = [x.contiguous().requires_grad_() for x in views]
    views = [x.detach().requires_grad_() for x in views]
    expect(not views[0].is_contiguous(), "views are contiguous")
    dout = torch.randn(2, rows, heads, 64, generator=drawn).to(kit.DEVICE, torch.bfloat16)
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
    "head_size_300": (dict(causal=True), dict(dim=300)),
    "head_size_512": (dict(causal=True), dict(dim=512)),
    "top_left": (dict(causal="top-left"), dict(rows=200, columns=456)),
    "window": (dict(causal=True, window=(100, 0)), {}),
    "window_both_sides": (dict(window=(70, 33)), dict(rows=300, columns=420)),
    "window_no_end": (dict(causal=True, window=(-1, 0)), {}),
    "softcap": (dict(softcap=5.0), {}),
    "float16": (dict(causal=True), F16),
    "float16_128": (dict(), dict(dim=128, **F16)),
}
for _name, (_keywords, _shape) in FEATURES.items():
    CHECKS[_name] = _feature(_keywords, _shape)
CHECKS["keying_fa2"] = _feature(dict(causal=True, keying="fa2", **DROPPED), {})
for _name in ("head_size_96", "head_size_256", "window", "softcap", "float16"):
    _keywords, _shape = FEATURES[_name]
    CHECKS[_name + "_dropout"] = _feature({**_keywords, **DROPPED}, _shape)


def _huge_rows(dtype, dim, scale, rule):
    """Of 200 rows with one logit far above the others: how many are wrong, and how many NaN."""
    rows = 200
    q, k, v = (torch.zeros(1, rows, 1, dim, dtype=dtype, device=kit.DEVICE) for _ in "qkv")
    q[..., 0] = 3
    k[0, :, 0, 0] = torch.arange(rows, device=kit.DEVICE) - 230  # whole: scores are exact
    v[0, :, 0] = torch.arange(rows * dim, device=kit.DEVICE).view(rows, dim) % 97 - 50
    o, lse = ordo.torch.attention(q, k, v, scale=scale, **rule)
    last = torch.arange(rows) if rule["causal"] else torch.full((rows,), rows - 1)
    exact = 3.0 * (last - 230).double() * scale
    seen, value = o[0, :, 0].cpu().double(), v[0, last.to(v.device), 0].cpu().double()
    right = ((seen - value).abs() <= 0.01 * value.abs()).all(-1)
    right &= (lse[0, 0].cpu().double() - exact).abs() <= 1e-6 * exact.abs()
    nan = seen.isnan().any(-1)
    return int((~right & ~nan).sum()), int(nan.sum())


@check
def huge_logits():
    """Logits of 2^13 to 2^110: the largest has all the probability, so that o is its v. Plain kernels,
    with a window those for one rule, general ones at 256, and phases at 320."""
    rules = (dict(causal=False), dict(causal=True), dict(causal=True, window=(150, 0)))
    scales = (100.0, 1.6e4, 1.7e6, 1.3e7, 1.1e8, 1.7e9, 3.3e12, 1.9e30)
    said = []
    for dtype in (torch.bfloat16, torch.float16):
        found = [
            _huge_rows(dtype, dim, scale, rule)
            for dim in (64, 128, 256, 320)
            for scale in scales
            for rule in rules
        ]
        wrong, broken = (sum(x) for x in zip(*found))
        said.append(f"{str(dtype)[6:]}: {wrong} wrong and {broken} NaN of {200 * len(found)} rows")
        expect(wrong + broken == 0, said[-1])
    return "; ".join(said)


@check
def infinite_logit():
    """A row whose logits overflow leaves the other rows their bits."""
    said = []
    for dtype, factor in ((torch.bfloat16, 1e38), (torch.float16, 3e4)):
        (q, k, v), _ = tensors(rows=200, dtype=dtype)
        q, k, v = q.detach(), k.detach(), v.detach()
        scale = 0.125 if dtype is torch.bfloat16 else 1e34
        wanted = ordo.torch.attention(q, k, v, causal=True, scale=scale)
        other = q.clone()
        other[1, 150, 2] = q[1, 150, 2].sign() * factor
        o, lse = ordo.torch.attention(other, k, v, causal=True, scale=scale)
        row, sums = o[1, 150, 2], lse[1, 2, 150]
        kind = "NaN" if row.isnan().all() else "finite" if row.isfinite().all() else "mixed"
        said.append(f"{str(dtype)[6:]}: o is {kind}, lse {sums.item():.3g}")
        o[1, 150, 2], lse[1, 2, 150] = wanted[0][1, 150, 2], wanted[1][1, 2, 150]
        equal((o, lse), wanted, f"{said[-1]}: another row")
        expect(cuda() or kind == "NaN", said[-1])
    return "; ".join(said)


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
    weights = torch.linspace(-1, 1, 2 * 4 * 128, device=kit.DEVICE).view(2, 4, 128)
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
        slopes = torch.rand(*shape, generator=torch.Generator().manual_seed(1)).to(kit.DEVICE)
        keywords = dict(slopes=slopes, causal=causal)
        found.append(against_math(*tensors(), keywords, slopes=slopes.cpu(), causal=causal))
    return max(found, key=float)


@check
def sinks():
    """Values and gradients against fp64, the bits of -inf, and those of repeats."""
    worst = 0.0
    for dim in (64, 128, 192):
        (q, k, v), dout = tensors(rows=256, dim=dim, heads=4, kv_heads=2)
        sink = torch.linspace(-2, 4, 4, device=q.device, requires_grad=True)
        inputs = (q, k, v, sink)
        o, lse = ordo.torch.attention(q, k, v, causal=True, sink=sink)
        ours = (o, *torch.autograd.grad(o, inputs, dout))
        wide = [x.detach().double().requires_grad_() for x in inputs]
        keys, values = (x.repeat_interleave(2, 2) for x in wide[1:3])
        scores = torch.einsum("bihd,bjhd->bhij", wide[0], keys) * dim**-0.5
        hidden = torch.ones(256, 256, device=q.device).triu(1).bool()
        scores = scores.masked_fill(hidden, -torch.inf)
        column = wide[3].view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        p = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        exact = torch.einsum("bhij,bjhd->bihd", p, values)
        theirs = (exact, *torch.autograd.grad(exact, wide, dout.double()))
        for x, y in zip(ours, theirs):
            worst = max(worst, ((x.double() - y).abs().max() / y.abs().max()).item())
        o, _ = ordo.torch.attention(q, k, v, causal=True, sink=sink)
        again = (o, *torch.autograd.grad(o, inputs, dout))
        expect(all(same(x, y) for x, y in zip(ours, again)), "a repeat has other bits")
        none = torch.full_like(sink, -torch.inf)
        one = ordo.torch.attention(q, k, v, causal=True, sink=none)
        two = ordo.torch.attention(q, k, v, causal=True)
        expect(all(same(x, y) for x, y in zip(one, two)), "-inf is not no sink")
    expect(worst < 0.02, f"relative error {worst:.3g}")
    return f"largest relative error {worst:.2g}"


def unseen_writes(x):
    """(name, function that writes to x past PyTorch's counter): each begins one more document."""
    places = torch.arange(len(x), device=x.device)
    later = [(places > at).long() for at in (70, 110, 180, 190)]
    alias = torch.from_dlpack(x.__dlpack__())
    yield "data", lambda: x.data.add_(later[0])
    yield "dlpack", lambda: alias.add_(later[1])
    if cuda():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            alias.add_(later[2])
        yield "a CUDA graph", graph.replay
        if kit.add is not None:
            yield "a Triton kernel", lambda: kit.add[(len(x),)](x, later[3])


def capture_with_masks(q, k, v, rows, equals):
    """A CUDA graph keeps the lists of its mask, and takes none that are not on the device."""
    q, k, v = (x.detach() for x in (q, k, v))
    mask = ordo.torch.block_mask(ordo.BlockMask.from_chunks(rows, rows, 77), device=q.device)
    right = ordo.torch.attention(q, k, v, block_mask=mask)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ordo.torch.attention(q, k, v, block_mask=mask)
        try:
            ordo.torch.attention(q, k, v, block_mask=ordo.BlockMask.from_chunks(rows, rows, 78))
            expect(False, "lists that are not there: not refused")
        except ordo.Error as error:
            expect("not on cuda" in str(error), str(error))
    del mask
    spoil = [torch.full((rows,), -1, dtype=torch.int32, device=q.device) for _ in range(64)]
    for x in found:
        x.zero_()
    graph.replay()
    wait()
    equals("a CUDA graph", right, found)
    del spoil


@check
def blocks():
    """Block masks: bits of the masks that they equal, FlexAttention's too; values against fp64."""
    worst = 0.0
    for dim in (64, 128):
        (q, k, v), dout = tensors(rows=600 if cuda() else 200, dim=dim, heads=4, kv_heads=2)
        rows = q.shape[1]

        def results(**rules):
            o, lse = ordo.torch.attention(q, k, v, **rules)
            return (o, lse, *torch.autograd.grad(o, (q, k, v), dout))

        def equals(what, one, two):
            wrong = f"{what}: other bits, head size {dim}"
            expect(all(same(x, y) for x, y in zip(one, two)), wrong)

        causal = results(causal=True)
        band = ordo.BlockMask.from_band(rows, rows, causal=True)
        equals("causal", causal, results(block_mask=band))
        chunks = ordo.BlockMask.from_chunks(rows, rows, rows + 9)
        equals("long chunks", causal, results(causal=True, block_mask=chunks))
        dropped = results(causal=True, dropout_p=0.25, seed=5)
        equals("dropout", dropped, results(causal=True, dropout_p=0.25, seed=5, block_mask=chunks))
        pair = torch.tensor([5, 0], device=q.device)
        given = dict(dropout_p=0.25, rng_state=pair, block_mask=chunks)
        o, _ = ordo.torch.attention(q, k, v, causal=True, **given)
        pair += 1
        try:
            torch.autograd.grad(o, (q, k, v), dout)
            expect(False, "a changed seed: not refused")
        except RuntimeError as error:
            expect("modified by an inplace operation" in str(error), str(error))
        lower = (lambda b, h, i, j: i >= j), None, None, rows, rows
        flex = create_block_mask(*lower, device=q.device)
        equals("FlexAttention", causal, results(block_mask=flex))
        texts = torch.arange(rows, device=q.device) // 150
        rule = (lambda b, h, i, j: (i >= j) & (texts[i] == texts[j])), *lower[1:]  # noqa: B023
        flex = create_block_mask(*rule, device=q.device)
        for what, write in unseen_writes(texts):
            version, before = texts._version, results(block_mask=flex)
            write()  # moves the ends of the texts
            expect(texts._version == version, f"{what}: PyTorch has counted the write")
            ends = ordo.BlockMask.from_documents(texts.cpu().numpy())
            after = results(block_mask=flex)
            expect(not same(before[0], after[0]), f"{what}: the write is not seen")
            equals(what, after, results(causal=True, block_mask=ends))
        short = ordo.BlockMask.from_chunks(rows, rows, 150)
        ours = results(causal=True, block_mask=short)
        equals("a repeat", ours, results(causal=True, block_mask=short))
        there = short.held[q.device]
        expect(there.start.device == q.device, f"lists on {there.start.device}")
        attend = torch.compile(ordo.torch.attention, fullgraph=True, backend="aot_eager")
        for mask in (short, chunks):
            o, lse = attend(q, k, v, causal=True, block_mask=mask)
            found = (o, lse, *torch.autograd.grad(o, (q, k, v), dout))
            equals("a graph of torch.compile", results(causal=True, block_mask=mask), found)
        if cuda():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                equals("a mask on another stream", ours, results(causal=True, block_mask=short))
            torch.cuda.current_stream().wait_stream(side)
            capture_with_masks(q, k, v, rows, equals)
        wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
        keys, values = (x.repeat_interleave(2, 2) for x in wide[1:])
        scores = torch.einsum("bihd,bjhd->bhij", wide[0], keys) * dim**-0.5
        seen = torch.from_numpy(short.dense()).to(q.device).tril()
        p = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        exact = torch.einsum("bhij,bjhd->bihd", p, values)
        theirs = (exact, *torch.autograd.grad(exact, wide, dout.double()))
        for x, y in zip((ours[0], *ours[2:]), theirs):
            worst = max(worst, ((x.double() - y).abs().max() / y.abs().max()).item())
    expect(worst < 0.02, f"relative error {worst:.3g}")
    return f"largest relative error {worst:.2g}"


if __name__ == "__main__":
    import on_cuda_clients  # noqa: F401  its checks follow
    import on_cuda_lengths  # noqa: F401
    import on_cuda_training

    sys.exit(kit.main(__doc__, on_cuda_training.table))
