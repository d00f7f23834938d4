"""Block masks on tensors, and FlexAttention's."""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
import ordo
import ordo.torch
import pytest
import torch
from ordo.torch import _attention, _blocks_kept
from ordo.torch._blocks_kept import Kept
from torch.nn.attention.flex_attention import BlockMask as FlexMask
from torch.nn.attention.flex_attention import (
    and_masks,
    create_block_mask,
    noop_mask,
    or_masks,
)
from torch.utils.checkpoint import checkpoint

IDS = torch.arange(400) // 150


def tensors(dtype=torch.float32, rows=400):
    torch.manual_seed(0)
    return [torch.randn(2, rows, heads, 16).to(dtype).requires_grad_() for heads in (4, 2, 2)]


def results(q, k, v, **keywords):
    o, lse = ordo.torch.attention(q, k, v, **keywords)
    weight = torch.linspace(-1, 1, o.numel()).view_as(o)
    loss = (o.float() * weight).sum() + lse.nan_to_num(neginf=0).sum()
    return o, lse, *torch.autograd.grad(loss, (q, k, v))


def same_bits(one, other):
    for a, b in zip(one, other):
        assert a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_causal_mask_has_the_bits_of_causal(dtype):
    given = tensors(dtype)
    mask = ordo.BlockMask.from_band(400, 400, causal=True)
    for rest in ({}, dict(dropout_p=0.1, seed=(3, 4))):
        one = results(*given, causal=True, **rest)
        same_bits(one, results(*given, block_mask=mask, **rest))


def causal(b, h, i, j):
    return j <= i


def documents(b, h, i, j):
    return (IDS[i] == IDS[j]) & (j <= i)


def window(b, h, i, j):
    return (j <= i) & (i - j < 100)


@pytest.mark.parametrize("rule", [causal, documents, window])
def test_masks_of_flex_attention(rule):
    q, k, v = tensors()
    mask = create_block_mask(rule, None, None, 400, 400, device="cpu")
    o, lse, *grads = results(q, k, v, block_mask=mask)
    swapped = [x.transpose(1, 2) for x in (q, k, v)]
    i, j = torch.arange(400).view(-1, 1), torch.arange(400).view(1, -1)
    scores = swapped[0] @ swapped[1].repeat_interleave(2, 1).transpose(2, 3) / 4
    scores = scores.masked_fill(~rule(0, 0, i, j), -torch.inf)
    expected = (scores.softmax(-1) @ swapped[2].repeat_interleave(2, 1)).transpose(1, 2)
    assert torch.allclose(o, expected, atol=2e-6)
    weight = torch.linspace(-1, 1, o.numel()).view_as(o)
    theirs = torch.autograd.grad((expected * weight).sum() + scores.logsumexp(-1).sum(), (q, k, v))
    for a, b in zip(grads, theirs):
        assert torch.allclose(a, b, atol=5e-5)


def test_heads_and_sequences_of_flex_attention():
    def rule(b, h, i, j):
        return (j <= i) & (i - j < 50 * (h + 1)) & (j >= 20 * b)

    mask = create_block_mask(rule, 2, 4, 400, 400, device="cpu")
    made = ordo.torch.block_mask(mask)
    b, h, i, j = torch.meshgrid(*map(torch.arange, (2, 4, 400, 400)), indexing="ij")
    assert torch.equal(torch.from_numpy(made.dense()), rule(b, h, i, j))


REACH = torch.tensor([20, 40, 60, 80])


def by_head(b, h, i, j):
    return (j <= i) & (i - j < 20 * (h + 1))


def by_table_of_heads(b, h, i, j):
    return (j <= i) & (i - j < REACH[h])


def by_sequence(b, h, i, j):
    return (j <= i) & (j >= 20 * b)


def by_both(b, h, i, j):
    return by_head(b, h, i, j) & by_sequence(b, h, i, j)


@pytest.mark.parametrize(
    "rule, names", [(by_head, "h"), (by_table_of_heads, "h"), (by_sequence, "b"), (by_both, "bh")]
)
def test_rules_that_differ_need_lists_of_their_own(rule, names):
    """Lists made with B=None or H=None are those of sequence 0 and head 0."""
    q, k, v = (torch.randn(2, 300, 4, 16) for _ in range(3))
    shared = create_block_mask(rule, None, None, 300, 300, device="cpu")
    for refused in (
        lambda: ordo.torch.attention(q, k, v, block_mask=shared),
        lambda: ordo.torch.block_mask(shared),
    ):
        with pytest.raises(ordo.Error, match=f"mask_mod: depends on {names[0]}, and .* with"):
            refused()
    one = [x[:1, :, :1] for x in (q, k, v)]
    assert torch.isfinite(ordo.torch.attention(*one, block_mask=shared)[0]).all()
    counts = 2 if "b" in names else None, 4 if "h" in names else None
    own = create_block_mask(rule, *counts, 300, 300, device="cpu")
    b, h, i, j = torch.meshgrid(*map(torch.arange, (2, 4, 300, 300)), indexing="ij")
    x = [y.transpose(1, 2) for y in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*x, attn_mask=rule(b, h, i, j))
    o, _ = ordo.torch.attention(q, k, v, block_mask=own)
    seen = rule(b, h, i, j).any(-1).transpose(1, 2)
    torch.testing.assert_close(o[seen], expected.transpose(1, 2)[seen], rtol=0, atol=3e-6)


def test_rules_that_pass_sequence_and_head_on_hold_for_all():
    q = torch.randn(2, 300, 4, 16)
    either = or_masks(and_masks(causal, window), window)
    for rule, same in ((either, (99, 0)), (noop_mask, None)):
        mask = create_block_mask(rule, None, None, 300, 300, device="cpu")
        made = ordo.torch.attention(q, q, q, block_mask=mask)
        same_bits(made, ordo.torch.attention(q, q, q, causal=same is not None, window=same))


def test_a_rule_of_sequences_beside_packed_ones_is_refused():
    q, ends = torch.randn(600, 2, 16), torch.tensor([0, 300, 600], dtype=torch.int32)
    mask = create_block_mask(by_sequence, None, None, 300, 300, device="cpu")
    with pytest.raises(ordo.Error, match="mask_mod: depends on b"):
        ordo.torch.attention(q, q, q, cu_q=ends, cu_kv=ends, block_mask=mask)


@pytest.mark.parametrize("rule", [None, lambda b, h, i, j: i >= 5, lambda b, h, i, j: j >= 130])
def test_lists_of_blocks_of_flex_attention(rule):
    counts = torch.tensor([[[2, 1, 0, 2]]], dtype=torch.int32)
    columns = torch.zeros(1, 1, 4, 4, dtype=torch.int32)
    columns[0, 0, 0, :2] = torch.tensor([0, 3])
    columns[0, 0, 1, :1] = 2
    columns[0, 0, 3, :2] = torch.tensor([3, 1])  # in any order
    mask = FlexMask.from_kv_blocks(counts, columns, mask_mod=rule, seq_lengths=(400, 400))
    seen = torch.zeros(400, 400, dtype=torch.bool)
    for row, blocks in enumerate(([0, 3], [2], [], [3, 1])):
        for j in blocks:
            seen[row * 128 : row * 128 + 128, j * 128 : j * 128 + 128] = True
    if rule is not None:
        seen &= rule(0, 0, torch.arange(400).view(-1, 1), torch.arange(400).view(1, -1))
    made = ordo.torch.block_mask(mask)
    assert torch.equal(torch.from_numpy(made.dense())[0, 0], seen)
    o, lse = ordo.torch.attention(*tensors(), block_mask=mask)
    assert torch.equal(lse[0, 0].isfinite(), seen.any(1)) and not o[0, ~seen.any(1)].any()


def test_sinks():
    q, k, v = tensors()
    sink = torch.tensor([0.5, -1.0, 2.0, 0.0], requires_grad=True)
    mask = ordo.BlockMask.from_band(400, 400, causal=True)
    made = []
    for rest in (dict(causal=True), dict(block_mask=mask)):
        o, lse = ordo.torch.attention(q, k, v, sink=sink, **rest)
        made.append([o, lse, *torch.autograd.grad((o * o).sum() + lse.sum(), (q, k, v, sink))])
    same_bits(*made)
    for wrong in (sink[:3], [0.0] * 4):
        with pytest.raises(ordo.Error, match="sink.*expected a tensor of shape"):
            ordo.torch.attention(q, k, v, sink=wrong, block_mask=mask)


def test_the_backward_pass_has_the_lists_of_the_forward_pass():
    q, k, v = [x.detach().flatten(0, 1).requires_grad_() for x in tensors()]
    mask = ordo.BlockMask.from_chunks(400, 400, 90)
    rest = dict(max_q=400, max_kv=400, causal=True, block_mask=mask)
    ends = torch.tensor([0, 400, 800], dtype=torch.int32)
    expected = results(q, k, v, cu_q=ends, **rest)
    o, lse = ordo.torch.attention(q, k, v, cu_q=ends, **rest)
    ends[1] = 300
    weight = torch.linspace(-1, 1, o.numel()).view_as(o)
    loss = (o * weight).sum() + lse.sum()
    same_bits(expected[2:], torch.autograd.grad(loss, (q, k, v)))


def test_the_backward_pass_has_the_block_mask_of_the_forward_pass():
    given = tensors()
    mask = ordo.BlockMask.from_chunks(400, 400, 90)
    expected = results(*given, block_mask=mask)
    o, lse = ordo.torch.attention(*given, block_mask=mask)
    mask.first[:], mask.last[:] = 0, 399
    weight = torch.linspace(-1, 1, o.numel()).view_as(o)
    same_bits(expected[2:], torch.autograd.grad((o * weight).sum() + lse.sum(), given))


@pytest.fixture
def passes(monkeypatch):
    """The lists of the passes on a device, which are not run."""
    made = []

    def run(direction, plan, lists, mask, given):
        made.append(ordo.torch._inputs.Lists(*[None if x is None else x.clone() for x in lists]))
        for name in ("o", "lse") if direction == "forward" else ("dq", "dk", "dv"):
            given[name].zero_()

    monkeypatch.setattr("ordo.torch._blocks_device.run", run)
    return made


def attend_there(q, k, v, lists):
    return ordo.torch._blocks._AttendThere.apply(q, k, v, None, None, lists, None)[0].sum()


LISTS = ordo.torch._inputs.Lists(
    rng=torch.tensor([3, 4]),
    q_lens=torch.tensor([400, 300], dtype=torch.int32),
    kv_lens=torch.tensor([400, 300], dtype=torch.int32),
    sequence_ids=torch.tensor([7, 8]),
    slopes=torch.linspace(0, 1, 4),
)


@pytest.mark.parametrize("again", [False, True])
def test_backward_passes_on_a_device_have_the_lists_of_the_forward_pass(passes, again):
    given = tensors()
    attend = functools.partial(checkpoint, attend_there, use_reentrant=False)
    torch.autograd.grad((attend if again else attend_there)(*given, LISTS), given)
    assert len(passes) == 2 + again
    for made in passes:
        assert all(x is y or torch.equal(x, y) for x, y in zip(made, LISTS))


@pytest.mark.parametrize("name", ["rng", "q_lens", "kv_lens", "sequence_ids", "slopes"])
def test_lists_on_a_device_that_change_between_the_passes_are_refused(passes, name):
    given = tensors()
    lists = LISTS._replace(**{name: getattr(LISTS, name).clone()})
    loss = attend_there(*given, lists)
    getattr(lists, name).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, given)


def test_recorder_sees_the_calls():
    q, k, v = tensors()
    model = ordo.torch._record.Model(torch.nn.Linear(1, 1))
    try:
        mask = ordo.BlockMask.from_chunks(400, 400, 90)
        ordo.torch.attention(q, k, v, block_mask=mask, dropout_p=0.1, seed=(3, 4))
        assert model._seeds == [[3, 4]] and len(model._plans) == 1
    finally:
        model.release()


def test_plans_are_kept_until_they_are_forgotten(monkeypatch):
    made, plan = [], ordo.torch._blocks.Plan

    def count(*call, **rest):
        made.append(plan(*call, **rest))
        return made[-1]

    monkeypatch.setattr("ordo.torch._blocks.Plan", count)
    _attention.forget()
    for plans in (1, 1, 2):
        if plans == 2:
            _attention.forget()
        ordo.torch.attention(*tensors(), block_mask=ordo.BlockMask.from_chunks(400, 400, 7))
        assert len(made) == plans


def wrong_key():
    mask = ordo.BlockMask.from_chunks(400, 400, 7)
    mask.key[0] = 99
    return mask


def per(sequences, heads):
    one = ordo.BlockMask.from_chunks(400, 400, 7)
    return ordo.BlockMask.join([[one] * heads] * sequences)


@pytest.mark.parametrize(
    "says, rest",
    [
        ("q.device meta: expected cpu or cuda", dict(device="meta")),
        ("block_mask.q_len 300: expected 400", dict(mask=ordo.BlockMask.from_chunks(300, 400, 7))),
        ("block_mask.kv_len 300: expected 400", dict(mask=ordo.BlockMask.from_chunks(400, 300, 7))),
        ("block_mask.sequences 3: expected 2", dict(mask=per(3, 4))),
        ("block_mask.heads 3: expected 4", dict(mask=per(1, 3))),
        (r"block_mask.key\[0\] 99: expected 0..3", dict(mask=wrong_key())),
        ("block_mask.last NULL", dict(mask=dataclasses.replace(per(1, 1), last=None))),
        ("sink.*expected a tensor of shape", dict(sink=torch.zeros(3))),
        ("scale", dict(scale=0.0)),
        ("softcap", dict(softcap=-1.0)),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_refusals_draw_no_seed(says, rest, own):
    rest = dict(rest)
    device = rest.pop("device", "cpu")
    given = [x.to(device) for x in tensors()]
    mask = rest.pop("mask", per(1, 1))
    generator = torch.Generator() if own else None
    drawn = torch.default_generator if generator is None else generator
    before = drawn.get_state()
    for _ in range(2):
        with pytest.raises(ordo.Error, match=says):
            ordo.torch.attention(
                *given, block_mask=mask, dropout_p=0.1, generator=generator, **rest
            )
        assert torch.equal(before, drawn.get_state())


def test_seeds_are_drawn_as_without_a_block_mask():
    q, k, v = tensors()
    mask = ordo.BlockMask.from_band(400, 400, causal=True)
    made = []
    for rest in (dict(causal=True), dict(block_mask=mask)):
        torch.manual_seed(5)
        made.append(results(q, k, v, dropout_p=0.1, **rest))
        own = torch.Generator().manual_seed(6)
        made[-1] += results(q, k, v, dropout_p=0.1, generator=own, **rest)
    same_bits(*made)


def test_refusals():
    q, k, v = tensors()

    def refused(text, **keywords):
        with pytest.raises(ordo.Error, match=text):
            ordo.torch.attention(q, k, v, **keywords)

    def thirds(b, h, i, j):
        return (j % 3 == 0) & (j <= i)

    odd = create_block_mask(thirds, None, None, 400, 400, device="cpu")
    refused("mask_mod: row 3 sees columns 0 and 3, but not 1", block_mask=odd)
    small = create_block_mask(causal, None, None, 400, 400, device="cpu", BLOCK_SIZE=64)
    refused("BLOCK_SIZE", block_mask=small)
    refused("block_mask", block_mask=5)
    refused("block_mask.q_len 300", block_mask=ordo.BlockMask.from_chunks(300, 400, 7))


def test_rules_of_flex_attention_see_one_element_at_a_time():
    """A reduction inside a rule is over what the rule made, never over a block."""
    given = tensors(rows=256)

    def both(b, h, i, j):
        return torch.stack([i >= j, i - j < 40]).all()

    flex = create_block_mask(both, None, None, 256, 256, device="cpu")
    same_bits(
        results(*given, block_mask=flex), results(*given, causal=True, window=(39, 0))
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_type_of_pytorch_does_not_matter(dtype):
    given = tensors()
    mask = ordo.BlockMask.from_band(400, 400, causal=True)
    one = results(*given, block_mask=mask)
    torch.set_default_dtype(dtype)
    try:
        o, lse = ordo.torch.attention(*given, block_mask=mask)
    finally:
        torch.set_default_dtype(torch.float32)
    same_bits(one[:2], (o, lse))


@pytest.mark.parametrize(
    "name, at, value, says",
    [
        ("start", (0, 0, 1), 999, r"start\[0\] 0, \[1\] 999: expected rows that do not decrease"),
        ("start", (0, 0, 2), 0, r"\[2\] 0"),
        ("key", 1, 77, r"key\[1\] 77: expected 1..5"),
        ("key", 1, 0, r"key\[1\] 0: expected 1..5, ascending"),
        ("key", 0, -3, r"key\[0\] -3"),
        ("first", (0, 0, 5), -1, r"first\[5\] -1: expected 0..700"),
        ("last", (1, 1, 5), 700, r"last\[2105\] 700: expected -1..699"),
    ],
)
def test_lists_for_a_device_are_checked_before_they_go_there(name, at, value, says):
    one = ordo.BlockMask.from_chunks(700, 700, 150)
    mask = ordo.BlockMask.join([[one, one], [one, one]])
    sizes = dict(batch=2, heads=2, q_len=700, kv_len=700, head_dim=16, dtype="bf16")
    plan = ordo.Plan(ordo.Problem(**sizes, blocks=mask.limits), "h200")
    Kept(mask).check(plan)
    wrong = getattr(mask, name).copy()
    wrong[at] = value
    with pytest.raises(ordo.Error, match=says):
        Kept(dataclasses.replace(mask, **{name: wrong})).check(plan)


def lists_of(start, key):
    arrays = (np.array(x, np.int32) for x in (start, key))
    return ordo.BlockMask(256, 512, *arrays)


@pytest.mark.parametrize(
    "start, key, at",
    [
        ([[[0, 3, 4], [1, 4, 4]]], [2, 0, 1, 3], 1),  # a row of the second mask begins at the fall
        ([[[0, 0, 4], [0, 2, 4]]], [0, 1, 0, 1], 2),
        ([[[0, 2, 4], [0, 4, 4]]], [0, 1, 1, 2], 2),
        ([[[0, 2, 4], [2, 4, 4]]], [0, 1, 0, 9], 3),
        ([[[0, 2, 4], [0, 2, 2]]], [0, 1, 0, 1], None),
        ([[[1, 3, 4], [1, 2, 3]]], [-9, 0, 1, 0], None),  # no row has entry 0
        ([[[4, 4, 4], [0, 0, 0]]], [3, 2, 1, 0], None),
        ([[[0, 0, 0], [0, 0, 0]]], [], None),
    ],
)
def test_lists_for_a_device_are_checked_as_those_of_the_cpu(start, key, at):
    """Rows of one mask may begin inside rows of another."""
    mask = lists_of(start, key)
    problem = ordo.Problem(heads=2, q_len=256, kv_len=512, head_dim=16, blocks=mask.limits)
    q, k = (np.zeros((1, rows, 2, 16), np.float32) for rows in (256, 512))
    for attend in (
        lambda: ordo.forward(ordo.Plan(problem), q, k, k, block_mask=mask),
        lambda: Kept(mask).check(ordo.Plan(problem)),
    ):
        if at is None:
            attend()
        else:
            with pytest.raises(ordo.Error, match=rf"block_mask.key\[{at}\]"):
                attend()


# ---- masks that come again ----


def test_a_mask_is_copied_and_checked_once(monkeypatch):
    """Until one of its arrays is written to: then the next call has the new lists, or refuses them."""
    given, checks, copies = tensors(), [], []
    check = _blocks_kept.lib.ordo_block_mask_check_lists
    spy = SimpleNamespace(ordo_block_mask_check_lists=lambda *x: checks.append(1) or check(*x))
    monkeypatch.setattr(_blocks_kept, "lib", spy)
    monkeypatch.setattr(Kept, "__init__", counting(Kept.__init__, copies))
    mask = ordo.BlockMask.from_band(400, 400, causal=True)
    first = results(*given, block_mask=mask)
    for _ in range(2):
        same_bits(first, results(*given, block_mask=mask))
    assert len(copies) == len(checks) == 1
    mask.last[:] = np.maximum(mask.last - 7, 0)
    again = results(*given, block_mask=mask)
    same_bits(again, results(*given, block_mask=dataclasses.replace(mask)))
    assert not torch.equal(first[0], again[0]) and len(checks) == 3
    mask.last[0, 0, 3] = 400
    with pytest.raises(ordo.Error, match=r"last\[3\] 400"):
        results(*given, block_mask=mask)


def counting(function, calls):
    def counted(*arguments):
        calls.append(1)
        return function(*arguments)

    return counted


def flex_of(rule):
    return create_block_mask(rule, None, None, 400, 400, device="cpu")


WRITES = {
    "array": lambda x: x.numpy(),
    "data": lambda x: x.data,
    "dlpack": lambda x: torch.from_dlpack(x.__dlpack__()),
    "the tensor": lambda x: x,
}


@pytest.mark.parametrize("name", WRITES)
def test_a_mask_of_flex_attention_is_read_at_each_call(name):
    """Its lists, its rule, and what the rule reads, however that was written to."""
    reach, texts = 50, torch.arange(400) // 150

    def rule(b, h, i, j):
        return (i >= j) & (i - j < reach) & (texts[i] == texts[j])

    given, mask = tensors(), flex_of(rule)
    own, first = ordo.torch.block_mask(mask), results(*given, block_mask=mask)
    WRITES[name](texts)[20:150] = 7
    changed = results(*given, block_mask=mask)
    same_bits(changed, results(*given, block_mask=flex_of(rule)))
    assert not torch.equal(first[0], changed[0])
    reach = 30
    narrow = results(*given, block_mask=mask)
    same_bits(narrow, results(*given, block_mask=flex_of(rule)))
    assert not torch.equal(narrow[0], changed[0])
    WRITES[name](mask.kv_num_blocks)[:] = 1
    assert not torch.equal(results(*given, block_mask=mask)[0], narrow[0])
    same_bits(first, results(*given, block_mask=own))  # the mask as it was
