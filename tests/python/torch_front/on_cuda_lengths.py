"""Packed and padded sequences on a CUDA device: a part of on_cuda.py, which also runs alone.

PYTHONPATH=python python3 tests/python/torch_front/on_cuda_lengths.py [--device cuda] [NAME...]
"""

from __future__ import annotations

import functools
import sys

import math64
import on_cuda_kit as kit
import ordo
import ordo.torch
import torch
from math64 import same
from on_cuda_kit import (
    CHECKS, DROPPED, Wrong, both, captured, check, cuda, expect, host_mask, kept_scale, off, tensors,
    wait, without_waiting,
)  # fmt: skip
from ordo.torch._attention import run_inputs
from ordo.torch._call import Arguments
from ordo.torch._mask import signed_probabilities

ENDS = (0, 100, 100, 384, 700)  # the second one is empty
LONGEST = 316


def _ends(ends=ENDS):
    return torch.tensor(ends, dtype=torch.int32, device=kit.DEVICE)


def _flat(dtype=torch.bfloat16, dim=64):
    """q, k, v and dout of sequences end to end."""
    inputs, dout = tensors(batch=1, rows=ENDS[-1], dtype=dtype, dim=dim)
    return [x.detach()[0].requires_grad_() for x in inputs], dout[0]


@check
def packed():
    ends = _ends()
    flat, dout = _flat()

    def step():
        o, lse = ordo.torch.attention(*flat, cu_q=ends, max_q=LONGEST, causal=True)
        return o, lse, *torch.autograd.grad(o, flat, dout)

    step()
    o, lse, *grads = without_waiting(step)
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
    o, lse, *grads = without_waiting(step)
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
        new = functools.partial(torch.ones, device=kit.DEVICE, dtype=torch.bfloat16)
        inputs = [new(batch, n, 2, 64).requires_grad_() for n in (rows, columns, columns)]
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
        o, lse, seen = run_inputs(*flat, Arguments(**rules))
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
    rng = torch.tensor([3, 4], device=kit.DEVICE)
    rules = dict(dropout_p=0.3, causal=True, rng_state=rng)
    lists = dict(cu_q=_ends(), cu_kv=_ends(), max_q=LONGEST, max_kv=LONGEST)
    for inputs, more in (([x[None] for x in flat], {}), (flat, lists)):
        with torch.no_grad():
            *_, seen = run_inputs(*inputs, Arguments(**rules, **more))
            signed = without_waiting(lambda: signed_probabilities(*seen))
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

    graph, held = captured(step)
    for given in (ENDS, (0, 1, 300, 301, 700)):
        ends.copy_(_ends(given))
        graph.replay()
        wait()
        made = [x.clone() for x in held]
        expect(all(same(x, y) for x, y in zip(made, step())), f"replayed with ends {given}")
    return "replayed with other ends"


@check
def padded():
    lens = torch.tensor([100, 384], dtype=torch.int32, device=kit.DEVICE)
    inputs, dout = tensors()
    rules = dict(q_lens=lens, kv_lens=lens, causal=True)
    both(inputs, dout, **rules)
    whole = without_waiting(lambda: both(inputs, dout, **rules))
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
    lens = torch.tensor([100, 300], dtype=torch.int32, device=kit.DEVICE)
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


if __name__ == "__main__":
    sys.exit(kit.main(__doc__))
