"""The PyTorch front on a CUDA device, in one script: no pytest, no network.

PYTHONPATH=python python3 tests/python/torch_front/on_cuda.py [--device cuda] [--steps 5] [--draws 0] [NAME...]

Prints one line per check: "ok", "refused" with the library's words (a feature the CUDA backend does
not have), or "FAIL". Exit status 1 if any failed. The checks are the situations of the drawn table
(test_grid.py), each call against attention() itself by bits and against NumPy's front by values; then
what a table of single calls does not have: what a call costs, streams and CUDA graphs with masks,
programs that a device must stop, memory that runs out, models that are trained. --device cpu runs
those that need no GPU.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import weakref
from pathlib import Path

import cases
import models
import ordo
import ordo.torch
import situations
import torch
import torch.nn.functional as F
from bits import same
from ordo.compat import flash_attn
from ordo.run._reproducible import needs_cublas_variable
from ordo.torch import _front, _node
from situations import captured, on_another_stream
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
from torch.nn.attention.flex_attention import create_block_mask

try:
    import triton
    from triton import language as tl
except ImportError:
    add = None
else:

    @triton.jit
    def add(x, y):
        """x[i] += y[i] in program i."""
        i = tl.program_id(0)
        tl.store(x + i, tl.load(x + i) + tl.load(y + i))


if needs_cublas_variable():  # which slows every product down where it is not needed
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

attention = ordo.torch.attention
CHECKS = {}
STEPS, DRAWS, SEED = 5, 0, 1
DROPPED = dict(dropout_p=0.17, seed=(5, 6))


class Wrong(Exception):
    """A check that did not hold."""


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def check(function):
    CHECKS[function.__name__] = function
    return function


def on_gpu(function):
    @functools.wraps(function)
    def body():
        return function() if cuda() else "needs a GPU"

    return check(body)


def cuda():
    return cases.DEVICE == "cuda"


def tensors(batch=2, rows=384, heads=4, kv_heads=2, dim=64, dtype=torch.bfloat16):
    """q, k, v and the gradient of o; the same numbers on every device."""
    drawn = torch.Generator().manual_seed(rows + dim)
    made = [torch.randn(batch, rows, h, dim, generator=drawn).to(dtype) for h in (heads, kv_heads, kv_heads, heads)]
    *inputs, dout = (x.to(cases.DEVICE) for x in made)
    return [x.requires_grad_() for x in inputs], dout


def ints(*values):
    return torch.tensor(values, dtype=torch.int32, device=cases.DEVICE)


def both(inputs, dout, call=attention, **rules):
    """o, lse, dq, dk, dv."""
    o, lse = call(*inputs, **rules)
    return [o.detach(), lse.detach(), *torch.autograd.grad(o, inputs, dout)]


def equal(one, other, what):
    for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), one, other):
        expect(same(x.cpu(), y.cpu()), f"{what}: {name} differs")


def chosen(mode):
    """Keep bits are made so from now on."""
    os.environ.pop("ORDO_DROPOUT_MODE", None)
    if mode:
        os.environ["ORDO_DROPOUT_MODE"] = mode
    _front.forget_plans()


# ---- the table, and what a call costs ----


@check
def overhead():
    """Host time by SDPA's, and the kernels that a call starts."""
    program = Path(__file__).parents[3] / "bench" / "cpu" / "torch_overhead"
    done = subprocess.run([sys.executable, program, "--json", "--device", cases.DEVICE], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr[-500:])
    rows = json.loads(done.stdout)["results"]
    said = ", ".join(f"{name} {row['ratio']:.2f}" for name, row in rows.items())
    for name in ("attention", "flash_attn_func") if cuda() else ():
        plain, dropped = rows[name]["launches"], rows[name + " p"]["launches"]
        few = plain[0] <= 3 and plain[1] <= 4 and dropped[0] <= 4 and dropped[1] <= 4
        expect(few, f"launches of {name}: {plain} {dropped}")
        said += f"; launches {plain} {dropped}"
    return f"by SDPA: {said}"


def drawn(situation):
    def body():
        if situation in situations.CUDA and not cuda():
            return "needs a GPU"
        dear = situation in (*situations.DEAR, "reduce-overhead")
        found = situations.table(situation, DRAWS or (3 if dear else 10), SEED, pairs=cuda() and situation == "eager")
        expect(not found.wrong, f"{len(found.wrong)} of {found.count} calls: " + " | ".join(found.wrong[:6]))
        return f"{found.count} drawn calls, {found.refused} of them refused by name"

    return body


for _name in (*situations.CHEAP, *situations.DEAR, *situations.CUDA):
    CHECKS[_name] = drawn(_name)


# ---- sequences alone, and calls that come again ----


@check
def alone():
    """A sequence has the bits that it has alone: in a batch, packed, with gaps, padded."""
    inputs, dout = tensors(batch=1, rows=700)
    flat, dout = [x.detach()[0].requires_grad_() for x in inputs], dout[0]
    ends = (0, 100, 100, 384, 700)
    packed = [x.detach().clone() for x in both(flat, dout, cu_q=ints(*ends), max_q=316, causal=True, **DROPPED)]
    used = dict(q_lens=ints(70, 0, 284, 0), kv_lens=ints(70, 0, 284, 0))
    gaps = both(flat, dout, cu_q=ints(*ends), max_q=316, causal=True, **used, **DROPPED)
    for b, (first, end, count) in enumerate(((0, 100, 70), (100, 100, 0), (100, 384, 284), (384, 700, 0))):
        for found, last in ((packed, end), (gaps, first + count)):
            rows = slice(first, last)
            o, lse, *grads = [found[0][first:end], found[1][:, first:end], *(x[first:end] for x in found[2:])]
            expect(not any(x[last - first :].any() for x in (o, *grads)), f"rows {last}..{end}: expected zeros")
            if first == last:
                continue
            one = [x.detach()[None, rows].requires_grad_() for x in flat]
            right = both(one, dout[None, rows], causal=True, shard=ordo.Shard(batch0=b), **DROPPED)
            found_here = [o[: last - first], lse[:, : last - first], *(x[: last - first] for x in grads)]
            equal(found_here, [x[0] for x in right], f"rows {first}..{last}")
    inputs, dout = tensors()
    lens = ints(100, 384)
    padded = both(inputs, dout, q_lens=lens, kv_lens=lens, causal=True, **DROPPED)
    one = [x.detach()[:1, :100].requires_grad_() for x in inputs]
    right = both(one, dout[:1, :100], causal=True, **DROPPED)
    equal([padded[0][:1, :100], padded[1][:1, :, :100], *(x[:1, :100] for x in padded[2:])], right, "padded")
    second = [x.detach()[1:].requires_grad_() for x in inputs]
    right = both(second, dout[1:], causal=True, shard=ordo.Shard(batch0=1), **DROPPED)
    equal([x[1:] for x in both(inputs, dout, causal=True, **DROPPED)], right, "one of a batch")
    return "in a batch, packed, with gaps, padded"


@on_gpu
def repeats():
    """Beside another stream's load."""
    given = tensors(batch=4, rows=1024, heads=8)
    first, side = both(*given, causal=True, **DROPPED), torch.cuda.Stream()
    noise = torch.randn(2048, 2048, device="cuda")
    for _ in range(20):
        with torch.cuda.stream(side):
            for _ in range(4):
                noise = noise @ noise / 2048
        equal(first, both(*given, causal=True, **DROPPED), "a repeat under load")
    return "20 runs"


def _huge_rows(dtype, dim, scale, rule):
    """How many of 200 rows with one logit far above the others are wrong, and how many NaN."""
    rows, device = 200, cases.DEVICE
    q, k, v = (torch.zeros(1, rows, 1, dim, dtype=dtype, device=device) for _ in "qkv")
    q[..., 0] = 3
    k[0, :, 0, 0] = torch.arange(rows, device=device) - 230  # whole: scores are exact
    v[0, :, 0] = torch.arange(rows * dim, device=device).view(rows, dim) % 97 - 50
    o, lse = attention(q, k, v, scale=scale, **rule)
    last = torch.arange(rows) if rule["causal"] else torch.full((rows,), rows - 1)
    exact = 3.0 * (last - 230).double() * scale
    seen, value = o[0, :, 0].cpu().double(), v[0, last.to(v.device), 0].cpu().double()
    right = ((seen - value).abs() <= 0.01 * value.abs()).all(-1)
    right &= (lse[0, 0].cpu().double() - exact).abs() <= 1e-6 * exact.abs()
    nan = seen.isnan().any(-1)
    return int((~right & ~nan).sum()), int(nan.sum())


@check
def huge_logits():
    """Logits of 2^13 to 2^110: the largest has all the probability, so that o is its v. Dense kernels,
    with a window those for one score rule, varlen ones at 256, and phases at 320."""
    rules = (dict(causal=False), dict(causal=True), dict(causal=True, window=(150, 0)))
    scales = (100.0, 1.6e4, 1.7e6, 1.3e7, 1.1e8, 1.7e9, 3.3e12, 1.9e30)
    for dtype in (torch.bfloat16, torch.float16):
        found = [_huge_rows(dtype, dim, scale, rule)
                 for dim in (64, 128, 256, 320) for scale in scales for rule in rules]  # fmt: skip
        wrong, broken = (sum(x) for x in zip(*found))
        expect(wrong + broken == 0, f"{dtype}: {wrong} wrong and {broken} NaN of {200 * len(found)} rows")
    return f"{400 * len(found)} rows"


@check
def infinite_logit():
    """A row whose logits overflow leaves the other rows their bits."""
    said = []
    for dtype, factor in ((torch.bfloat16, 1e38), (torch.float16, 3e4)):
        q, k, v = (x.detach() for x in tensors(rows=200, dtype=dtype)[0])
        scale = 0.125 if dtype is torch.bfloat16 else 1e34
        wanted = attention(q, k, v, causal=True, scale=scale)
        other = q.clone()
        other[1, 150, 2] = q[1, 150, 2].sign() * factor
        o, lse = attention(other, k, v, causal=True, scale=scale)
        said.append(f"{str(dtype)[6:]}: lse {lse[1, 2, 150].item():.3g}")
        o[1, 150, 2], lse[1, 2, 150] = wanted[0][1, 150, 2], wanted[1][1, 2, 150]
        equal((o, lse), wanted, f"{said[-1]}: another row")
    return "; ".join(said)


# ---- dropout ----


@on_gpu
def prepared_dropout():
    """Bits made on another stream while products run: equal results, many times under load, and from a
    graph, with streams of the caller's; a stream of another device is refused."""
    inputs, dout = tensors(batch=2, rows=2048, heads=16, kv_heads=16)
    shapes, rules = (inputs[0].shape, inputs[1].shape), dict(causal=True, dropout_p=0.1)
    wanted = both(inputs, dout, seed=(1, 2), **rules)
    rng = torch.tensor([1, 2], device="cuda")
    load = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
    chosen("overlapped")
    own = torch.cuda.Stream()
    for turn in range(20):
        stream = own if turn % 2 else None
        made = ordo.torch.prepare_dropout(*shapes, device="cuda", rng_state=rng, stream=stream, **rules)
        expect(made._bits is not None, "no bits were made ahead")
        load @ load
        equal(wanted, both(inputs, dout, prepared=made, **rules), f"turn {turn}")
        if turn == 9:  # never used: its memory goes back when the stream is done with it
            ordo.torch.prepare_dropout(*shapes, device="cuda", rng_state=rng, **rules)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        made = ordo.torch.prepare_dropout(*shapes, device="cuda", rng_state=rng, **rules)
        load @ load
        o = attention(*inputs, prepared=made, **rules)[0]
    for offset in (2, 3):
        rng.copy_(torch.tensor([1, offset]))
        graph.replay()
        torch.cuda.synchronize()
        expect(same(o, attention(*inputs, seed=(1, offset), **rules)[0]), f"replay with offset {offset}")
    try:
        ordo.torch.prepare_dropout(*shapes, device="cpu", stream=own, dtype=torch.bfloat16, **rules)
        expect(False, "a stream of another device was taken")
    except ordo.Error as error:
        expect("stream.device" in str(error), f"refused by {error}")
    chosen(None)
    return "equal bits in 20 turns and 2 replays"


@on_gpu
def keep_bits_memory():
    """Bits kept, made again and made inside by the limit of their memory: equal results, also on a full
    device; kept bits are released."""
    inputs, dout = tensors(batch=1, rows=16384, heads=16, kv_heads=16)
    rules = dict(causal=True, dropout_p=0.1, seed=(1, 2))
    _front.forget_plans()
    held, real = [], _front.hold
    _node.f.hold = lambda device, size: held.append(size) or real(device, size)
    made, said, one = {}, [], 16 * 16384 * 16384 // 8
    for name, limit in (("kept", None), ("again", one + one // 2), ("inside", 1)):
        ordo.torch.set_keep_bits_memory(limit)
        o = attention(*inputs, **rules)[0]
        said.append(f"{name} {sum(held)} B")
        del o
        made[name] = both(inputs, dout, **rules)
        expect(sum(held) == 0, f"{name}: bits are still held")
    torch.cuda.empty_cache()
    ordo.torch.set_keep_bits_memory(1 << 50)
    left = one - (64 << 20)  # too little for the bits, enough for all the rest
    full = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device="cuda")
    made["full"] = both(inputs, dout, **rules)
    del full
    ordo.torch.set_keep_bits_memory(None)
    _node.f.hold = real
    for name in ("again", "inside", "full"):
        equal(made["kept"], made[name], name)
    return "equal bits; " + ", ".join(said)


@on_gpu
def drawn_in_a_graph():
    inputs, _ = tensors(rows=256)
    with torch.no_grad():
        replay, (o, _) = captured(lambda: attention(*inputs, dropout_p=0.5))
        made = []
        for _ in range(2):
            replay()
            made.append(o.clone())
    expect(not same(*made), "two replays drew the same mask")
    return "each replay draws keep bits of its own"


@check
def debug_mask():
    """S_dmask: made on the device without a wait, the sign the host's mask; in a graph."""
    flat = [x.detach()[0] for x in tensors(batch=1, rows=700)[0]]
    rng, ends = torch.tensor([3, 4], device=cases.DEVICE), ints(0, 100, 100, 384, 700)
    rules = dict(causal=True, return_attn_probs=True)
    for call, given in (
        (flash_attn.flash_attn_func, [x[None] for x in flat]),
        (flash_attn.flash_attn_varlen_func, [*flat, ends, ends, 316, 316]),
    ):
        signed = call(*given, 0.3, rng_state=rng, **rules)[2]
        there = [x.cpu() if torch.is_tensor(x) else x for x in given]
        host = call(*there, 0.3, rng_state=torch.tensor([3, 4]), **rules)[2]
        expect(torch.equal(signed.signbit().cpu(), host.signbit()), "other signs")
        if cuda():
            replay, (held,) = captured(lambda: (call(*given, 0.3, rng_state=rng, **rules)[2],))  # noqa: B023
            for seed in (9, 3):
                rng[0] = seed
                replay()
                expect(same(held, signed) == (seed == 3), f"replayed with seed {seed}")
    return "signs are the host's mask"


# ---- CUDA graphs and block masks ----


@on_gpu
def packed_in_a_graph():
    """The ends of the sequences are read on the device: a replay sees other ones."""
    inputs, dout = tensors(batch=1, rows=700)
    flat, ends = [x.detach()[0].requires_grad_() for x in inputs], ints(0, 100, 100, 384, 700)
    step = functools.partial(both, flat, dout[0], cu_q=ends, max_q=700, causal=True)
    replay, held = captured(step)
    for given in ((0, 100, 100, 384, 700), (0, 1, 300, 301, 700)):
        ends.copy_(ints(*given))
        replay()
        equal([x.clone() for x in held], step(), f"replayed with ends {given}")
    return "replayed with other ends"


@check
def pages():
    """Rows over pages, read in place or gathered, and few rows over dense keys have the bits of training; a
    row that sees what is not there is NaN on a device. A replay finds other lengths and pages."""
    (q, k, v), _ = tensors(heads=8)
    few, all_lens = q[:, -3:], ints(384, 384)
    with torch.no_grad():
        o, lse = attention(q, k, v, causal=True)
        expected = o[:, -3:], lse[:, :, -3:]
        equal(attention(few, k, v, causal=True), expected, "few rows")
        for size in (1, 16, 64):
            table = torch.randperm(2 * 384 // size, generator=torch.Generator().manual_seed(size))
            order = table.argsort().to(cases.DEVICE)
            paged = [x.reshape(-1, size, 2, 64)[order].contiguous() for x in (k, v)]
            given = {"causal": True, "page_table": table.view(2, -1).to(cases.DEVICE, torch.int32)}
            equal(attention(few, *paged, kv_lens=all_lens, **given), expected, f"pages of {size}")
            strange = [x.transpose(1, 3).contiguous().transpose(1, 3) for x in paged]  # are gathered
            equal(attention(few, *strange, kv_lens=all_lens, **given), expected, f"gathered from {size}")
        if not cuda():
            return "in tensors and in pages of 1, 16 and 64 rows"
        lens = ints(384, 384)
        replay, held = captured(lambda: attention(few, *paged, kv_lens=lens, **given))
        for each in ((384, 384), (3, 200), (77, 384)):
            lens.copy_(ints(*each))
            given["page_table"].copy_(given["page_table"].flip(0))
            replay()
            again = attention(few, *paged, kv_lens=lens, **given)
            equal([x.clone() for x in held], again, f"replayed with lengths {each}")
        starts = ints(340, 0)  # the rows are 381 .. 383: the first of them sees column 339
        seen = attention(few, *paged, kv_lens=all_lens, kv_starts=starts, window=(42, 0), **given)[0]
        expect(seen[0, 0].isnan().all() and not seen[0, 1:].isnan().any() and not seen[1].isnan().any(), "a dropped key")
        for x in (paged, strange):  # all that the rows see is dropped: theirs alone
            seen = attention(few, *x, kv_lens=all_lens, kv_starts=ints(384, 0), window=(0, 0), **given)
            expect(all(y[0].isnan().all() and not y[1].isnan().any() for y in seen), "no key")
        given["page_table"][0, 5] = -1  # columns 320 .. 383
        lost = attention(few, *paged, kv_lens=ints(322, 384), **given)[0]
        expect(lost[0, 1:].isnan().all() and not lost[0, 0].isnan().any() and not lost[1].isnan().any(), "no page")
    return "in tensors and in pages of 1, 16 and 64 rows; what is not there is NaN; in a graph"


@check
def row_beside_others():
    """A row over 19,802 keys in pages of 16 has the bits of training, alone, or beside a prompt of 9 tokens or of
    10, before or after it: the case of vllm#51902."""
    keys, size = 19802, 16
    (q, k, v), _ = tensors(1, keys, 14)
    last = keys if cuda() else 64  # so many rows of the training pass are computed
    o, lse = attention(q[:, -last:], k, v, causal=True)
    expected = o[0, -1:], lse[0, :, -1:]
    pages = -(-keys // size) + 1  # the last one is the neighbour's
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(1)).to(cases.DEVICE)
    pool = [x.new_full((pages, size, 2, 64), torch.nan) for x in (k, v)]
    with torch.no_grad():
        for stored, x in zip(pool, (k, v)):
            rows = torch.nn.functional.pad(x[0], (0, 0, 0, 0, 0, (pages - 1) * size - keys), value=torch.nan)
            stored[order[:-1]] = rows.view(-1, size, 2, 64)
            stored[order[-1], :10] = x[0, :10]
        tables = [order[:-1].int(), order[-1:].int().expand(pages - 1)]
        for count in (0, 9, 10):
            prompt = [x[0] for x in attention(q[:, :count], k[:, :count], v[:, :count], causal=True)] if count else []
            for turned in (False, True) if count else (False,):
                of_each = [(q[0, -1:], keys, tables[0])] + ([(q[0, :count], count, tables[1])] if count else [])
                given, lens, table = zip(*of_each[::-1] if turned else of_each)
                counts = [len(x) for x in given]
                o, lse = attention(
                    torch.cat(given), *pool, causal=True, page_table=torch.stack(table), kv_lens=ints(*lens),
                    cu_q=ints(0, *counts).cumsum(0, dtype=torch.int32), max_q=max(counts),
                )  # fmt: skip
                found = list(zip(o.split(counts), lse.split(counts, dim=1)))
                equal(found[-1 if turned else 0], expected, f"beside {count} tokens")
                if count:
                    equal(found[0 if turned else -1], prompt, f"a prompt of {count} tokens")
    return f"alone and beside 9 and 10 tokens: the bits of {last} rows in one pass"


@check
def hidden_nan():
    """A NaN in a value that only later rows see: training computes rows of its tile again, whose numbers are
    right and whose bits may be others; a sampler, whose cache does not have it yet, has those without it."""
    (q, k, v), _ = tensors()
    with torch.no_grad():
        expected = attention(q, k, v, causal=True)
        v[:, 300] = torch.nan
        o, lse = attention(q, k, v, causal=True)
        expect(o[:, 300:].isnan().all() and not o[:, :300].isnan().any(), "rows that see it are NaN, and no others")
        equal((o[:, :128], lse[..., :128]), (expected[0][:, :128], expected[1][..., :128]), "tiles without it")
        expect((o - expected[0])[:, :300].abs().max() < 0.02 and (lse - expected[1]).abs().max() < 1e-4, "its tile")
        sampled = attention(q[:, 280:300], k[:, :300], v[:, :300], causal=True)
        equal(sampled, (expected[0][:, 280:300], expected[1][:, :, 280:300]), "a sampler")
    differ = int((o != expected[0])[:, :300].any(-1).any(-1).sum())
    return f"finite rows with other bits than without it: {differ} of 600"


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
        if add is not None:
            yield "a Triton kernel", lambda: add[(len(x),)](x, later[3])


@check
def flex_masks():
    """A mask of FlexAttention is what its rule says at each call, however its tensors were written to."""
    (q, k, v), dout = tensors(rows=600 if cuda() else 200)
    rows, said = q.shape[1], []
    results = functools.partial(both, (q, k, v), dout)
    lower = create_block_mask(lambda b, h, i, j: i >= j, None, None, rows, rows, device=q.device)
    equal(results(causal=True), results(block_mask=lower), "causal")
    texts = torch.arange(rows, device=q.device) // 150
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (texts[i] == texts[j]), None, None, rows, rows, device=q.device)
    for what, write in unseen_writes(texts):
        version, before = texts._version, results(block_mask=mask)
        write()  # moves the ends of the texts
        expect(texts._version == version, f"{what}: PyTorch has counted the write")
        after, ends = results(block_mask=mask), ordo.BlockMask.from_documents(texts.cpu().numpy())
        expect(not same(before[0], after[0]), f"{what}: the write is not seen")
        equal(after, results(causal=True, block_mask=ends), what)
        said.append(what)
    return "writes by " + ", ".join(said)


def chunks(rows, size):
    return ordo.torch.block_mask(ordo.BlockMask.from_chunks(rows, rows, size), device=cases.DEVICE)


@on_gpu
def masks_in_graphs():
    """A CUDA graph keeps the lists of its mask, which may be gone, and takes none that are not there."""
    inputs, dout = tensors(rows=600)
    mask = chunks(600, 77)
    right = both(inputs, dout, block_mask=mask)
    replay, found = captured(lambda: both(inputs, dout, block_mask=mask))
    del mask
    gc.collect()
    torch.cuda.empty_cache()
    spoil = [torch.full((600,), -1, dtype=torch.int32, device="cuda") for _ in range(64)]
    replay()
    equal(found, right, "the mask deleted, then replayed")
    del spoil
    there, graph = chunks(600, 78), torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        o, lse = attention(*inputs, block_mask=there)
        try:
            attention(*inputs, block_mask=ordo.BlockMask.from_chunks(600, 600, 79))
            raise Wrong("lists that are not there: not refused")
        except ordo.Error as error:
            expect("not on cuda" in str(error), str(error))
    graph.replay()
    equal((o, lse), attention(*inputs, block_mask=there), "as its first use")
    return "replayed without its mask; as its first use"


@on_gpu
def masks_compiled():
    """One mask on two streams under torch.compile, and masks in turns under mode="reduce-overhead"."""
    inputs, dout = tensors(rows=600)
    masks = [chunks(600, size) for size in (77, 150, 600)]
    right = [both(inputs, dout, causal=True, block_mask=x) for x in masks]
    torch._dynamo.reset()
    whole = torch.compile(attention, fullgraph=True)
    for turn in range(3):
        equal(both(inputs, dout, whole, causal=True, block_mask=masks[0]), right[0], f"one stream, turn {turn}")
        with on_another_stream():
            found = both(inputs, dout, whole, causal=True, block_mask=masks[0])
        equal(found, right[0], f"another stream, turn {turn}")
    for call in (attention, whole):  # a fresh mask, used where it was not made
        fresh, side = chunks(600, 150), torch.cuda.Stream()
        gone = weakref.ref(fresh)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(2 * 10**9)  # clocks, about a second: what follows has not begun when the mask is deleted
            found = both(inputs, dout, call, causal=True, block_mask=fresh)
        del fresh
        gc.collect()
        expect(gone() is None, "the mask was not deleted")
        busy = not side.query()
        spoil = [torch.full((count,), -1, dtype=torch.int32, device="cuda") for count in (5, 6, 13, 600) for _ in range(99)]
        others = [chunks(600, size) for size in range(100, 140)]
        torch.cuda.current_stream().wait_stream(side)
        equal(found, right[1], "a mask that was deleted while kernels ran on another stream")
        expect(busy, "no kernel ran while the mask was deleted")
        del spoil, others
    torch._dynamo.reset()
    whole = torch.compile(attention, fullgraph=True, mode="reduce-overhead")
    for turn in range(4):
        for at, mask in enumerate(masks):
            torch.compiler.cudagraph_mark_step_begin()
            found = [x.clone() for x in both(inputs, dout, whole, causal=True, block_mask=mask)]
            equal(found, right[at], f"reduce-overhead, mask {at}, turn {turn}")
    return "two streams, deleted on one; three masks in four turns"


# ---- programs of their own ----

CACHE = """
import torch
from ordo.compat.flash_attn import flash_attn_with_kvcache
from bits import same
q, k, v = (torch.randn(3, 40, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
caches = [torch.randn(5, 90, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in "kv"]
at = torch.tensor({entries}, device="cuda", dtype=torch.int32)
lengths = torch.tensor([7, 20, 50], device="cuda", dtype=torch.int32)
given = dict(k=k[:, :4], v=v[:, :4]) if {new} else {{}}
parts = [x[at.long().clamp(0, 4)].clone() for x in caches]
rest = dict(cache_seqlens=lengths, causal=True, **given)
out = flash_attn_with_kvcache(q[:, :4], *caches, cache_batch_idx=at, **rest)
torch.cuda.synchronize()
right = flash_attn_with_kvcache(q[:, :4], *parts, **rest)
assert same(out, right), "other bits than without cache_batch_idx"
assert all(same(x[at.long()], y) for x, y in zip(caches, parts)), "other keys"
print("right")
"""
PROGRAMS = {  # the program, and what it must say: "right", or an assertion that stops it
    "valid entries": (CACHE.format(entries=[3, 0, 4], new=True), "right"),
    "valid entries, no keys": (CACHE.format(entries=[3, 3, 4], new=False), "right"),
    "entry -1": (CACHE.format(entries=[3, -1, 4], new=True), "negative"),
    "entry -1, no keys": (CACHE.format(entries=[3, -1, 4], new=False), "negative"),
    "entry too large": (CACHE.format(entries=[3, 0, 5], new=True), "none beyond"),
    "equal entries": (CACHE.format(entries=[3, 0, 3], new=True), "each once"),
}


@on_gpu
def programs():
    """Each of PROGRAMS is right, or is stopped by an assertion on the device."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *sys.path])}
    runs = {
        name: subprocess.Popen([sys.executable, "-c", text], env=here, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        for name, (text, _) in PROGRAMS.items()
    }  # fmt: skip
    wrong = []
    for name, run in runs.items():
        said, word = run.communicate(timeout=120)[0], PROGRAMS[name][1]
        stopped = run.returncode != 0 and "assert" in said.lower()
        right = run.returncode == 0 and said.endswith("right\n") if word == "right" else stopped
        if not right:
            wrong.append(f"{name}: status {run.returncode}: {said[-300:]}")
        elif word != "right" and word not in said:
            print(f"        {name}: stopped without the words {word!r}")
    expect(not wrong, " | ".join(wrong))
    return f"{len(runs)} programs are right or stopped"


@on_gpu
def memory_that_runs_out():
    """PyTorch's own error, and the call works when there is memory again."""
    inputs, dout = tensors(batch=8, rows=4096, heads=16, kv_heads=16)  # 64 MiB per gradient
    ordo.flash_attn_func(*inputs)
    o = ordo.flash_attn_func(*inputs)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        torch.autograd.grad(o, inputs, dout, retain_graph=True)
        raised = None
    except RuntimeError as error:
        raised = error
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    expect(isinstance(raised, torch.OutOfMemoryError), f"out of memory: {raised!r}")
    torch.autograd.grad(o, inputs, dout)
    return "torch.OutOfMemoryError, then right"


@on_gpu
def float32():
    """Refused, with what to do instead."""
    q = torch.zeros(1, 8, 2, 64, device="cuda")
    try:
        attention(q, q, q)
    except ordo.Error as error:
        expect("torch.autocast" in str(error), str(error))
        return "refused by name"
    raise Wrong("it ran")


# ---- PyTorch's own functions ----


@check
def sdpa_by_ordo():
    """With dropout under strict determinism; causal biases of unequal lengths; varlen_attn()."""
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    inputs, dout = tensors(rows=512, kv_heads=4)
    given, dout = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs], dout.transpose(1, 2)
    activate_flash_attention_impl("ORDO")
    try:
        torch.use_deterministic_algorithms(True)
        plain, made = F.scaled_dot_product_attention(*given, is_causal=True), []
        expect(same(plain, attention(*inputs, causal=True)[0].transpose(1, 2)), "other bits than attention()")
        for _ in range(2):
            torch.manual_seed(7)
            o = F.scaled_dot_product_attention(*given, is_causal=True, dropout_p=0.1 if cuda() else 0.0)
            made.append([o, *torch.autograd.grad(o, given, dout)])
        expect(all(same(x, y) for x, y in zip(*made)), "a repeat differs")
        expect(not cuda() or not same(made[0][0], plain), "nothing was dropped")
        torch.use_deterministic_algorithms(False)
        if not cuda():
            return "equal bits"
        for bias, causal in ((causal_lower_right, True), (causal_upper_left, "top-left")):
            for sdpa in (F.scaled_dot_product_attention, torch.compile(F.scaled_dot_product_attention, backend="aot_eager")):
                o = sdpa(given[0][:, :, :200].contiguous(), *given[1:], bias(200, 512))
                right = attention(inputs[0][:, :200], *inputs[1:], causal=causal)[0]
                expect(torch.allclose(o.transpose(1, 2), right, atol=0.02), f"{bias.__name__}: another mask")
        from torch.nn.attention.varlen import varlen_attn

        flat, ends = [x.detach().flatten(0, 1).requires_grad_() for x in inputs], ints(0, 100, 100, 384, 1024)
        dout = torch.randn_like(flat[0])
        for window in ((-1, 0), (60, 0)):
            o = varlen_attn(*flat, ends, ends, 640, 640, window_size=window)
            right = both(flat, dout, cu_q=ends, max_q=640, window=window)
            equal((o, right[1], *torch.autograd.grad(o, flat, dout)), right, f"varlen_attn, window {window}")
    finally:
        torch.use_deterministic_algorithms(False)
        restore_flash_attention_impl()
    return "dropout, biases, varlen_attn"


@check
def recorder():
    """Digests that the device computes are those of the CPU."""
    made = [torch.randn(n).to(kind) for n in (1, 77, 40000, 3000000) for kind in (torch.float32, torch.bfloat16)]
    with tempfile.TemporaryDirectory() as folder:
        for name, device in (("a", "cpu"), ("b", cases.DEVICE)):
            with ordo.Recorder(f"{folder}/{name}") as recorder:
                shifted = torch.arange(9.0, device=device)[1:]  # copied: it is not aligned
                recorder.step(
                    0, torch.tensor(1.5, device=device), batch=torch.arange(5, device=device),
                    weights={"shifted": shifted}, gradients={str(at): x.to(device) for at, x in enumerate(made)},
                    seeds=[torch.tensor([3, 4], device=device)],
                )  # fmt: skip
        found = ordo.compare(f"{folder}/a", f"{folder}/b")
        expect(found.equal and found.steps == 1, str(found))
    return str(found)


# ---- models ----


def _fingerprint(tensor):
    """A sum over every bit and its place, on the device: integers, so in any order the same."""
    bits = tensor.detach().reshape(-1).view(torch.int32).long()
    return (bits * (2 * torch.arange(bits.numel(), device=bits.device) + 1)).sum()


def _loss(model, inputs):
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        return model(**inputs, use_cache=False).loss


def _steps(model, inputs, count):
    """Losses of training steps. At larger steps without a warm-up losses jump, SDPA's too."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=cuda()), []
    for _ in range(count):
        loss = _loss(model, inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def _train(name, kind):
    """Losses, and a digest of them and of the weights."""
    model, inputs = models.make(name, "ordo", 0.1, cases.DEVICE), models.batch(name, kind, cases.DEVICE)
    torch.manual_seed(2)
    losses = _steps(model, inputs, STEPS)
    marks = torch.stack([_fingerprint(p) for p in model.parameters()])
    return [x.item() for x in losses], ordo.digest(torch.cat([torch.stack(losses).view(torch.int32).long(), marks]))


def _beside(name, kinds):
    """The gradients of the last of a few steps without dropout are as near to eager attention's as SDPA's are."""
    said = []
    for kind in kinds:
        made, inputs = {}, models.batch(name, kind, cases.DEVICE)
        for way in ("eager", "sdpa", "ordo"):
            model = models.make(name, way, 0.0, cases.DEVICE)
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
            _steps(model, inputs, STEPS - 1)
            _loss(model, inputs).backward()
            made[way] = [p.grad for p in model.parameters() if p.grad is not None]
        gaps = [
            max(((x - y).norm() / y.norm().clamp_min(1e-20)).item() for x, y in zip(made[way], made["eager"]))
            for way in ("ordo", "sdpa")
        ]
        said.append(f"{kind} {gaps[0]:.1e} (SDPA {gaps[1]:.1e})")
        expect(len(made["ordo"]) == len(made["eager"]) and gaps[0] < 2 * gaps[1] + 0.02, said[-1])
    return "from eager: " + ", ".join(said)


def trained(name, kinds):
    """Twice with dropout under strict determinism: equal losses and weights, which learn; and _beside()."""

    def body():
        import ordo.transformers

        ordo.transformers.register()
        torch.utils.deterministic.fill_uninitialized_memory = False  # costs time, changes no bit
        said = []
        for kind in kinds:
            torch.use_deterministic_algorithms(True)
            (losses, digest), (_, again) = _train(name, kind), _train(name, kind)
            torch.use_deterministic_algorithms(False)
            expect(digest == again, f"{kind}: trained twice, losses or weights differ")
            expect(losses[-1] < losses[0] and max(losses) < losses[0] + 0.05, f"{kind}: losses {losses}")
            said.append(f"{kind} {losses[0]:.3f} to {losses[-1]:.3f}")
        return f"twice equal, loss {', '.join(said)}; {_beside(name, kinds)}"

    return body


CHECKS["gpt2"] = trained("gpt2", ("dense", "padded", "packed"))
CHECKS["llama"] = trained("llama", ("dense", "padded", "packed"))
CHECKS["deepseek"] = trained("deepseek", ("dense",))


class _Block(torch.nn.Module):
    def __init__(self, width, heads, p):
        super().__init__()
        self.heads, self.norm = heads, torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.attention = ordo.Attention(p, causal=True)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return x + self.out(self.attention(q, k, v).flatten(-2))


def _graph_run(p, graphed):
    """(losses, fingerprints of the weights) of four steps that are run one by one, or captured whole
    (forward, backward, optimizer) and replayed."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[_Block(256, 4, p) for _ in range(3)]).to(cases.DEVICE).train()
    state = {key: x.clone() for key, x in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=cuda())
    x, wanted = torch.randn(2, 4, 256, 256, device=cases.DEVICE).unbind(0)
    loss = torch.zeros((), device=cases.DEVICE)

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(cases.DEVICE, torch.bfloat16, cache_enabled=False):
            found = (model(x).float() - wanted).square().mean()
        found.backward()
        optimizer.step()
        loss.copy_(found.detach())

    run = step
    if graphed:
        run, _ = captured(lambda: step() or [])
    else:
        step()
    with torch.no_grad():  # begin again: weights, moments and generator, all in place
        for key, value in model.state_dict().items():
            value.copy_(state[key])
        for kept in optimizer.state.values():
            for value in kept.values():
                value.zero_()
    torch.manual_seed(3)
    losses = []
    for _ in range(4):
        run()
        losses.append(loss.clone())
    return torch.stack(losses), torch.stack([_fingerprint(x) for x in model.parameters()])


@check
def whole_step_graph():
    """A training step in one CUDA graph, optimizer and dropout included: replays repeat, and what
    they learn is what steps one by one learn."""
    torch.use_deterministic_algorithms(True)
    for p in (0.0, 0.1):
        runs = [_graph_run(p, graphed) for graphed in ((True, True, False) if cuda() else (False,) * 2)]
        losses, weights = zip(*runs)
        expect(torch.equal(losses[0], losses[1]), f"p {p}: losses of two runs differ")
        expect(torch.equal(weights[0], weights[1]), f"p {p}: weights of two runs differ")
        expect(losses[0][-1] < losses[0][0], f"p {p}: loss {losses[0].tolist()}")
        apart = (losses[0] - losses[-1]).abs().max().item()
        expect(apart < 0.02, f"p {p}: losses are {apart} from those of steps one by one")
    torch.use_deterministic_algorithms(False)
    return f"within {apart:.1e} of steps one by one"


# ---- the run ----


def one(name):
    start = time.perf_counter()
    try:
        word, said = "ok", CHECKS[name]()
    except Wrong as error:
        word, said = "FAIL", str(error)
    except Exception as error:
        known = isinstance(error, ordo.Error) and error.status == "unsupported"
        word, said = ("refused" if known else "FAIL"), f"{type(error).__name__}: {error}"
        if not known:
            traceback.print_exc(limit=-3)
    said = " ".join(str(said).split())[: 400 if word != "FAIL" else 2500]
    print(f"{word:8}{name:20}{time.perf_counter() - start:6.1f} s  {said}", flush=True)
    return word


def main():
    """Run the checks that the command line names, or all; the exit status."""
    global STEPS, DRAWS, SEED
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options.add_argument("--steps", type=int, default=STEPS)
    options.add_argument("--draws", type=int, default=0, help="calls of each situation; 0: 3 or 10")
    options.add_argument("--seed", type=int, default=SEED, help="of the drawn calls")
    options.add_argument("names", nargs="*", metavar="NAME")
    given = options.parse_args()
    cases.DEVICE, STEPS, DRAWS, SEED = given.device, given.steps, given.draws, given.seed
    if cuda() and not torch.cuda.is_available():
        print("skip: PyTorch sees no CUDA device")
        return 0
    title = torch.cuda.get_device_name() if cuda() else "CPU"
    print(f"torch {torch.__version__}, {title}, libordo {ordo.build().version} {ordo.build().target}")
    if cuda() and not ordo.backend_available("cuda"):
        print(f"FAIL: {ordo.backend_why_not('cuda')}")
        return 1
    start = time.perf_counter()
    ordo.torch.register()
    with situations.one_rank():
        words = [one(name) for name in given.names or CHECKS]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("ok", "refused", "FAIL"))
    print(f"torch on {cases.DEVICE}: {counts}; {time.perf_counter() - start:.0f} s")
    return 1 if "FAIL" in words else 0


if __name__ == "__main__":
    sys.exit(main())
