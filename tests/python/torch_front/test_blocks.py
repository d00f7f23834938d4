"""Block masks on tensors, and FlexAttention's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import ordo
import ordo.torch
import pytest
import torch
from bits import equal
from ordo.torch._front import forget_plans as forget
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask as FlexMask
from torch.nn.attention.flex_attention import and_masks, create_block_mask, noop_mask, or_masks
from torch.utils.flop_counter import FlopCounterMode

IDS = torch.arange(400) // 150


def tensors(dtype=torch.float32, rows=400):
    torch.manual_seed(0)
    return [torch.randn(2, rows, heads, 16).to(dtype).requires_grad_() for heads in (4, 2, 2)]


def results(q, k, v, **keywords):
    o, lse = ordo.torch.attention(q, k, v, **keywords)
    weight = torch.linspace(-1, 1, o.numel()).view_as(o)
    loss = (o.float() * weight).sum() + lse.nan_to_num(neginf=0).sum()
    return o, lse, *torch.autograd.grad(loss, (q, k, v))


def flex_of(rule):
    return create_block_mask(rule, None, None, 400, 400, device="cpu")


def causal(b, h, i, j):
    return j <= i


def documents(b, h, i, j):
    return (IDS[i] == IDS[j]) & (j <= i)


def window(b, h, i, j):
    return (j <= i) & (i - j < 100)


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
    "rule, same_as",
    [
        (causal, dict(causal=True)),
        (window, dict(causal=True, window=(99, 0))),
        (documents, dict(causal=True, block_mask=ordo.BlockMask.from_documents(IDS.numpy()))),
        (or_masks(and_masks(causal, window), window), dict(causal=True, window=(99, 0))),
        (noop_mask, dict(block_mask=ordo.BlockMask.from_band(400, 400))),
        # a reduction inside a rule is over what the rule made, never over a block
        (lambda b, h, i, j: torch.stack([i >= j, i - j < 40]).all(), dict(causal=True, window=(39, 0))),
    ],
)
def test_masks_of_flex_attention(rule, same_as):
    given = tensors()
    assert equal(results(*given, block_mask=flex_of(rule)), results(*given, **same_as))


@pytest.mark.parametrize(
    "rule, sequences, heads",
    [(by_head, None, 4), (by_table_of_heads, None, 4), (by_sequence, 2, None), (by_both, 2, 4)],
)
def test_rules_that_differ_have_lists_of_their_own(rule, sequences, heads):
    """Lists made with B=None or H=None are those of sequence 0 and head 0."""
    shared = flex_of(rule)
    with pytest.raises(ordo.Error, match="mask_mod: depends on [bh], and .* with"):
        ordo.torch.block_mask(shared) if sequences is None else ordo.torch.attention(*tensors(), block_mask=shared)
    one = [x[:1, :, :1] for x in tensors()]
    assert torch.isfinite(ordo.torch.attention(*one, block_mask=shared)[0]).all()
    own = ordo.torch.block_mask(create_block_mask(rule, sequences, heads, 400, 400, device="cpu"))
    b, h, i, j = torch.meshgrid(*map(torch.arange, (2, 4, 400, 400)), indexing="ij")
    seen = rule(b, h, i, j)
    assert torch.equal(torch.from_numpy(own.dense()).expand(2, 4, -1, -1), seen)
    _, lse = ordo.torch.attention(*tensors(), block_mask=own)
    assert torch.equal(lse.isfinite(), seen.any(-1))


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


@pytest.mark.parametrize("heads", [None, 4])
@pytest.mark.parametrize("rule", [
    lambda b, h, i, j: (j < 20) | (i - j < 100) & (j <= i),  # tokens that all see, beside a window
    lambda b, h, i, j: (i - j) % 3 == 0,
    lambda b, h, i, j: (j <= i) & ((i < 256) | (j % 2 == 0)),  # whole blocks, too
])  # fmt: skip
def test_rows_of_several_intervals_are_element_masks(rule, heads):
    """Blocks that are not listed are hidden, whatever the rule says."""
    given, at = tensors(), torch.arange(400)
    mask = create_block_mask(rule, None, heads, 400, 400, device="cpu")
    seen = torch.as_tensor(rule(0, 0, at[:, None], at))[None, None]
    for _ in range(2):
        assert equal(results(*given, block_mask=mask), results(*given, seen=seen.expand(1, heads or 1, -1, -1)))
        mask.kv_num_blocks[:, :, 3] = 0
        mask.full_kv_num_blocks[:, :, 3] = 0
        seen[:, :, 384:] = False


# ---- lists are those of a mask, and cannot change ----


@pytest.mark.parametrize(
    "again", [lambda x: x, copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_mask_cannot_be_written_to(again):
    """Neither through its own arrays nor through those that it was made of."""
    first, last = np.zeros((1, 1, 400), np.int32), np.full((1, 1, 400), 30, np.int32)
    one = ordo.BlockMask.from_intervals(first[0, 0], last[0, 0], 400)
    mask = again(ordo.BlockMask(400, 400, one.start, one.key, first, last))
    expected = results(*tensors(), block_mask=mask)
    for made in (one, mask):
        for name in ("start", "key", "first", "last"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(made, name)[...] = 0
    last[:] = 399
    assert mask.last.max() == 30
    forget()
    assert equal(expected, results(*tensors(), block_mask=mask))


# ---- masks that come again ----


def test_lists_go_to_a_device_once():
    given, mask = tensors(), ordo.BlockMask.from_band(400, 400, causal=True)
    with torch.inference_mode():
        first = ordo.torch.attention(*given, block_mask=mask)
    there = mask.held[torch.device("cpu")]
    assert equal(first, results(*given, block_mask=mask)[:2])
    assert mask.held[torch.device("cpu")] is there
    assert ordo.torch.block_mask(mask, device="cpu") is mask


@pytest.mark.parametrize("mode", [lambda: FlopCounterMode(display=False), lambda: FakeTensorMode(allow_non_fake_inputs=True)])
def test_what_a_mode_makes_of_the_lists_is_not_kept(mode):
    given, mask = tensors(), ordo.BlockMask.from_band(400, 400, causal=True)
    with mode():
        o, _ = ordo.torch.attention(*[x.detach() for x in given], block_mask=mask)
    assert o.shape == given[0].shape and not mask.held
    assert equal(results(*given, block_mask=mask), results(*given, causal=True))


def test_lists_of_the_graph_are_refused_if_they_change():
    """They are tensors that autograd knows."""
    given, mask = tensors(), ordo.BlockMask.from_band(400, 400, causal=True)
    o, _ = ordo.torch.attention(*given, block_mask=mask)
    mask.held[torch.device("cpu")].last.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(o.sum(), given)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_one_graph_serves_all_masks(backend):
    torch._dynamo.reset()
    given, seen = tensors(), []

    def count(graph, inputs):
        seen.append(1)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    attend = torch.compile(ordo.torch.attention, fullgraph=True, backend=count)
    for chunk in (90, 7, 399, 130, 33, 20, 250, 3, 200, 128, 5):
        mask = ordo.torch.block_mask(ordo.BlockMask.from_chunks(400, 400, chunk), device="cpu")
        o, lse = attend(*given, block_mask=mask)
        grads = torch.autograd.grad(o.sum() + lse.sum(), given)
        right, also = ordo.torch.attention(*given, block_mask=mask)
        assert equal((o, lse, *grads), (right, also, *torch.autograd.grad(right.sum() + also.sum(), given)))
    assert len(seen) <= 3


def test_a_graph_needs_a_mask_that_is_there():
    torch._dynamo.reset()
    given, own = tensors(), ordo.BlockMask.from_chunks(400, 400, 90)
    attend = torch.compile(ordo.torch.attention, fullgraph=True, backend="eager")
    for mask in (own, flex_of(causal)):
        with pytest.raises(Exception, match="block_mask in torch.compile.*ordo.torch.block_mask"):
            attend(*given, block_mask=mask)


def test_operators_refuse_lists_that_do_not_fit():
    """The words of C, which every caller of the operator gets."""
    q, k, v = (x.detach() for x in tensors())
    mask = ordo.torch.block_mask(ordo.BlockMask.from_chunks(400, 400, 90), device="cpu")
    start, key, first, last = mask.held[torch.device("cpu")]
    for flags, more, says in (
        (0xF00, (start[..., :-1], key, first, last), r"start.shape \(1, 1, 4\): expected \(1, 1, 5\)"),
        (0xF00, (start, key[None], first, last), "block_mask.key"),
        (0xF00, (start, key, first[..., :9], last), r"first.shape .*expected \(1, 1, 400\)"),
        (0xF00, (start, key, first, last.long()), "last.dtype"),
        (0xF00, (start.expand(3, 1, 5), key, first, last), r"start.shape .*expected \(2, 1, 5\)"),
        (0xF00, (start, key, first, last.expand(1, 4, 400)), r"last.shape .*expected \(1, 1, 400\)"),
        (0xF00, (start, key, first, torch.stack((last, last), -1)[..., 0]), "expected a contiguous tensor"),
        (0x700, (start, key, first), "first, block_mask.last: expected both or none"),
        (0x100, (start,), "start, block_mask.key: expected both or none"),
        (0xC00, (first, last), "block_mask.start None"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=says):
            torch.ops.ordo.forward(q, k, v, flags, 0.25, more)


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
    assert equal(changed, results(*given, block_mask=flex_of(rule)))
    assert not torch.equal(first[0], changed[0])
    reach = 30
    narrow = results(*given, block_mask=mask)
    assert equal(narrow, results(*given, block_mask=flex_of(rule)))
    assert not torch.equal(narrow[0], changed[0])
    WRITES[name](mask.kv_num_blocks)[:] = 1
    assert not torch.equal(results(*given, block_mask=mask)[0], narrow[0])
    assert equal(first, results(*given, block_mask=own))  # the mask as it was
