"""Padded batches of transformers: the bits of gathered rows, and none is gathered that is padded on the right."""

from __future__ import annotations

import ordo
import pytest
import torch
from math64 import same

pytest.importorskip("transformers")

from ordo import _transformers_padding as padding  # noqa: E402
from ordo.torch._attention import call  # noqa: E402
from ordo.torch._call import Arguments  # noqa: E402

ROWS = 20
MASKS = {
    "right": [(0, 20), (0, 7), (0, 1)],
    "left": [(13, 20), (0, 20), (19, 20)],
    "both sides": [(4, 9), (0, 3), (17, 20)],
    "a sequence of none": [(0, 6), (0, 0), (0, 20)],
    "none, and one on the left": [(0, 0), (5, 20), (0, 0)],
}
RULES = {
    "causal": dict(causal=True),
    "full": dict(),
    "window": dict(causal=True, window=(3, -1)),
    "window of both sides": dict(window=(2, 4)),
    "dropout": dict(causal=True, dropout_p=0.2, seed=(3, 4)),
    "full, dropout": dict(dropout_p=0.2, seed=(3, 4)),
}


def mask_of(runs):
    place = torch.arange(ROWS)
    return torch.stack([(place >= begin) & (place < end) for begin, end in runs])


def inputs(heads=4, rows=ROWS):
    drawn = torch.Generator().manual_seed(1)
    shapes = (3, rows, heads, 16), (3, ROWS, 2, 16), (3, ROWS, 2, 16)
    return [torch.randn(x, generator=drawn).requires_grad_() for x in shapes]


def results(function, given, *rest):
    o = function(*given, *rest)
    dout = torch.randn(o.shape, generator=torch.Generator().manual_seed(2))
    return [o, *torch.autograd.grad(o, given, dout)]


def gathered(q, k, v, mask, arguments):
    *given, ends, rows = padding.gathered(q, k, v, mask, arguments)
    ends = dict(zip(("cu_q", "cu_kv", "max_q", "max_kv"), ends))
    o, _ = call(*given, arguments._replace(**ends))
    if rows is not None:
        o = o.new_zeros(q.shape[0] * q.shape[1], *o.shape[1:]).index_copy(0, rows, o)
    return o.unflatten(0, q.shape[:2])


def padded(q, k, v, mask, arguments):
    """As attention_forward() does it."""
    right = padding.right_padded(q.shape[1], mask, arguments)
    return gathered(q, k, v, mask, arguments) if right is None else call(q, k, v, right)[0]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("kind", MASKS)
def test_the_bits_of_gathered_rows(kind, rules):
    mask, arguments, given = mask_of(MASKS[kind]), Arguments(**RULES[rules]), inputs()
    right = padding.right_padded(ROWS, mask, arguments)
    assert (right is not None) == all(begin == 0 for begin, _ in MASKS[kind])
    found = results(padded, given, mask, arguments)
    assert all(same(x, y) for x, y in zip(results(gathered, given, mask, arguments), found))


def test_more_keys_than_queries():
    """Cross attention: every query sees the valid keys."""
    given, mask = inputs(rows=5), mask_of(MASKS["right"])
    found = results(padded, given, mask, Arguments())
    assert all(same(x, y) for x, y in zip(results(gathered, given, mask, Arguments()), found))


def test_what_padding_holds_does_not_matter():
    mask, arguments = mask_of(MASKS["both sides"]), Arguments(causal=True)
    given = inputs()
    wanted = results(padded, given, mask, arguments)
    assert all((x[~mask] == 0).all() for x in wanted)
    with torch.no_grad():
        for x in given:
            x[~mask] = 1e4
    found = results(padded, given, mask, arguments)
    assert all(same(x, y) for x, y in zip(wanted, found))


def test_a_mask_is_read_once_and_again_when_it_changes(monkeypatch):
    reads, real = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: reads.append(1) or real(x))
    given, mask = inputs(), mask_of(MASKS["right"])
    for _ in range(3):  # layers
        before = padded(*given, mask, Arguments(causal=True))
    assert len(reads) == 1
    mask[0, 3] = False  # a hole: no longer what was read
    after = padded(*given, mask, Arguments(causal=True))
    assert len(reads) == 2
    assert not padding.padding_of(mask).runs and (after[0, 3] == 0).all()
    assert not same(before[0, 5], after[0, 5]) and same(before[1], after[1])


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


def test_the_views_of_a_layer():
    """Of keys that are all used no part is taken: a view in each layer, and a node of autograd. The
    compiled front needs no view of the second layer at all."""
    from ordo.transformers import attention_forward
    from ordo._transformers_mask import Mask, Pattern

    given = [x.detach().transpose(1, 2).requires_grad_() for x in inputs()]
    sizes = dict(batch_size=3, q_length=ROWS, kv_length=ROWS)
    mask = Mask.make(Pattern(True, (-1, -1), ROWS, mask_of(MASKS["right"])), sizes)
    module = torch.nn.Module()

    def layer():
        return attention_forward(module, *given, mask)[0]

    wanted = layer()
    with torch.profiler.profile() as seen:
        found = layer()
    names = [x.name for x in seen.events() if x.name.startswith("aten::")]
    assert [x for x in names if "empty" not in x] == []
    assert same(wanted, found)


def test_padding_between_tokens_under_a_window():
    mask = mask_of(MASKS["right"])
    mask[0, 3] = False
    with pytest.raises(ordo.Error, match="padding between valid tokens"):
        padded(*inputs(), mask, Arguments(causal=True, window=(3, -1)))


def test_a_mask_is_read_by_few_operations():
    """Each is a launch on CUDA, once per forward pass of a model; a copy, which is waited for, comes
    last."""
    mask = mask_of(MASKS["right"])
    with torch.profiler.profile() as seen:
        padding.padding_of(mask)
    names = [x.name for x in seen.events() if x.cpu_parent is None and x.name.startswith("aten::")]
    views = {"aten::view", "aten::resolve_conj", "aten::resolve_neg"}
    assert len([x for x in names if x not in views]) <= 7, names  # of 16 before


@pytest.mark.parametrize(
    "mask, none, right, runs",
    [
        ([[1, 1], [1, 1]], True, True, True),
        ([[1, 1], [1, 0]], False, True, True),
        ([[1, 1], [0, 0]], False, True, True),
        ([[1, 1], [0, 1]], False, False, True),
        ([[1, 1, 1], [1, 0, 1]], False, False, False),
        ([[0, 1, 0, 1], [1, 1, 1, 1]], False, False, False),
        ([[], []], True, True, True),
    ],
)
def test_what_a_mask_says(mask, none, right, runs):
    said = padding.padding_of(torch.tensor(mask, dtype=torch.bool))
    assert (said.none, said.right, said.runs) == (none, right, runs)
    assert said.lengths.tolist() == [sum(x) for x in mask]


def test_a_mask_that_was_used_in_inference_trains():
    mask, arguments, given = mask_of(MASKS["right"]), Arguments(causal=True), inputs()
    with torch.inference_mode():
        padded(*given, mask, arguments)
    assert len(results(padded, given, mask, arguments)) == 4
