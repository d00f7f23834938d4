"""Layers of transformers: padded batches have the bits of gathered rows, and the calls that layers repeat."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from bits import same

transformers = pytest.importorskip("transformers")

import ordo.transformers  # noqa: E402
from ordo import _transformers_padding as padding  # noqa: E402
from ordo.transformers import attention_forward, attention_mask  # noqa: E402
from transformers import masking_utils  # noqa: E402

ROWS = 20
MASKS = {
    "right": [(0, 20), (0, 7), (0, 1)],
    "left": [(13, 20), (0, 20), (19, 20)],
    "both sides": [(4, 9), (0, 3), (17, 20)],
    "a sequence of none": [(0, 6), (0, 0), (0, 20)],
    "none, and one on the left": [(0, 0), (5, 20), (0, 0)],
}
RULES = {
    "causal": dict(is_causal=True),
    "full": dict(is_causal=False),
    "window": dict(is_causal=True, sliding_window=4),
    "window of both sides": dict(is_causal=False, sliding_window=4),
    "dropout": dict(is_causal=True, dropout=0.2),
    "full, dropout": dict(is_causal=False, dropout=0.2),
}
MODULE = torch.nn.Module()


def mask_of(runs):
    place = torch.arange(ROWS)
    return torch.stack([(place >= begin) & (place < end) for begin, end in runs])


def theirs(valid, rows=ROWS):
    """The causal mask that a model makes of valid tokens."""
    causal = masking_utils.causal_mask_function
    return attention_mask(batch_size=3, q_length=rows, kv_length=rows, mask_function=causal, attention_mask=valid)


def inputs(rows=ROWS):
    drawn = torch.Generator().manual_seed(1)
    shapes = (3, 4, rows, 16), (3, 2, ROWS, 16), (3, 2, ROWS, 16)
    return [torch.randn(x, generator=drawn).requires_grad_() for x in shapes]


def results(function, given, *rest, **rules):
    torch.manual_seed(5)
    o = function(*given, *rest, **rules)
    dout = torch.randn(o.shape, generator=torch.Generator().manual_seed(2))
    return [o, *torch.autograd.grad(o, given, dout)]


def padded(q, k, v, mask, **rules):
    return attention_forward(MODULE, q, k, v, mask, **rules)[0]


def gathered(q, k, v, mask, is_causal, sliding_window=None, dropout=0.0):
    """The valid rows, packed; beside neither a causal mask nor a window all queries and the valid keys."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    queries = mask if is_causal or sliding_window else torch.ones(q.shape[:2], dtype=torch.bool)
    ends = [torch.nn.functional.pad(x.sum(1).cumsum(0), (1, 0)) for x in (queries, mask)]
    window = (-1, -1) if sliding_window is None else (sliding_window - 1, -1 if is_causal else sliding_window - 1)
    rules = dict(causal=is_causal, window=window, dropout_p=dropout, cu_q=ends[0], cu_kv=ends[1])
    o, _ = ordo.torch.attention(q[queries], k[mask], v[mask], **rules)
    return q.new_zeros(q.shape).masked_scatter(queries[..., None, None], o)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("kind", MASKS)
def test_the_bits_of_gathered_rows(kind, rules):
    mask, given = mask_of(MASKS[kind]), inputs()
    found = results(padded, given, mask, **RULES[rules])
    wanted = results(gathered, given, mask, **RULES[rules])
    assert all(torch.equal(x, y) for x, y in zip(wanted, found))


@pytest.mark.parametrize("rows", [1, 5, 33])
@pytest.mark.parametrize("kind", MASKS)
def test_other_keys_than_queries(kind, rows):
    """Cross attention: every query sees the valid keys."""
    given, mask = inputs(rows=rows), mask_of(MASKS[kind])
    wanted = results(gathered, given, mask, is_causal=False)
    assert all(torch.equal(x, y) for x, y in zip(wanted, results(padded, given, mask, is_causal=False)))


def test_what_padding_holds_does_not_matter():
    mask, given = mask_of(MASKS["both sides"]), inputs()
    wanted = results(padded, given, mask)
    assert not any(x[~mask].any() for x in (wanted[0], *(x.transpose(1, 2) for x in wanted[1:])))
    with torch.no_grad():
        for x in given:
            x.transpose(1, 2)[~mask] = 1e4
    assert all(same(x, y) for x, y in zip(wanted, results(padded, given, mask)))


def test_a_mask_is_read_once_and_again_when_it_changes(monkeypatch):
    reads, real = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: reads.append(1) or real(x))
    given, mask = inputs(), mask_of(MASKS["right"])
    for _ in range(3):  # layers
        before = padded(*given, mask)
    assert len(reads) == 1
    mask[0, 3] = False  # a hole: no longer what was read
    after = padded(*given, mask)
    assert len(reads) == 2 and (after[0, 3] == 0).all()
    assert not same(before[0, 5], after[0, 5]) and same(before[1], after[1])
    place = torch.arange(ROWS)
    window = (place <= place[:, None]) & (place > place[:, None] - 4) & mask[:, None] & mask[:, :, None]
    assert torch.allclose(padded(*given, mask, sliding_window=4), padded(*given, window[:, None]), atol=1e-6)


def test_no_mask_is_taken_for_another():
    """Masks by turns, written to, and new ones where an old one was."""
    one, other = (mask_of(MASKS[kind]) for kind in ("right", "left"))
    for _ in range(2):
        assert padding.padding_of(one).lengths.tolist() == [20, 7, 1]
        assert padding.padding_of(other).lengths.tolist() == [7, 20, 1]
    one[1, 6] = False
    assert padding.padding_of(one).lengths.tolist() == [20, 6, 1]
    places = set()
    for length in range(1, 20):
        mask = mask_of([(0, length)] * 3)
        places.add(id(mask))
        assert padding.padding_of(mask).lengths.tolist() == 3 * [length]
        del mask
    assert len(places) < 19  # else no address came twice


def test_a_second_layer_and_a_mask_start_few_operations():
    """The second layer needs no view at all; of a mask each operation is a launch on CUDA."""
    given, valid = inputs(), mask_of(MASKS["right"])
    mask = theirs(valid)
    wanted = padded(*given, mask)
    with torch.profiler.profile() as seen:
        found = padded(*given, mask)
    assert [x.name for x in seen.events() if x.name.startswith("aten::") and "empty" not in x.name] == []
    assert same(wanted, found)
    other = mask_of(MASKS["left"])
    with torch.profiler.profile() as seen:
        padding.padding_of(other)
    names = [x.name for x in seen.events() if x.cpu_parent is None and x.name.startswith("aten::")]
    assert len([x for x in names if x not in {"aten::view", "aten::resolve_conj", "aten::resolve_neg"}]) <= 7, names


def test_a_mask_that_was_used_in_inference_trains():
    mask, given = mask_of(MASKS["right"]), inputs()
    with torch.inference_mode():
        padded(*given, mask)
    assert len(results(padded, given, mask)) == 4


# ---- calls that layers repeat ----


def test_a_call_unlike_the_last_is_not_repeated():
    """Other rules, other tensors, and a mask of valid tokens that was written to in between."""
    given, valid = [x.detach() for x in inputs()], mask_of(MASKS["right"])
    kept = theirs(valid)
    first = padded(*given, kept)
    assert same(padded(*given, kept), first)
    for options in (dict(scaling=0.5), dict(softcap=2.0), dict(s_aux=torch.zeros(4))):
        changed = padded(*given, kept, **options)
        assert same(changed, padded(*given, theirs(valid), **options)) and not same(changed, first)
        assert same(padded(*given, kept), first)
    half = [x.bfloat16() for x in given]
    assert same(padded(*half, kept), padded(*half, theirs(valid)))
    with pytest.raises(ordo.Error, match="attention_mask.shape"):
        padded(*(x.repeat(1, 1, 2, 1) for x in given), kept)
    assert same(padded(*given, kept), first)
    valid[1, 4:] = False
    assert not same(padded(*given, kept), first) and same(padded(*given, kept), padded(*given, theirs(valid)))
    kept[:, :, :, 0] = kept[0, 0, 0, 1]  # its elements, which hide the first key now
    hides = torch.ones(ROWS, ROWS, dtype=torch.bool).tril() & valid[:, None]
    hides[:, :, 0] = False
    assert same(padded(*given, kept), padded(*given, hides[:, None]))
