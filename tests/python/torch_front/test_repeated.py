"""Calls that layers repeat: tensors (batch, head, row, dim), without views."""

from __future__ import annotations

import ordo
import pytest
import torch
from math64 import same

transformers = pytest.importorskip("transformers")

import ordo.transformers  # noqa: E402
from ordo._transformers_mask import Pattern  # noqa: E402
from ordo.torch._attention import call  # noqa: E402
from ordo.torch._call import Arguments  # noqa: E402
from ordo.torch._node import eager  # noqa: E402


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


CASES = {
    "plain": {},
    "causal": dict(causal=True),
    "window and softcap": dict(window=(5, 2), softcap=2.0),
    "dropout": dict(causal=True, dropout_p=0.3),
    "padded": dict(q_lens=ints(40, 17), kv_lens=ints(40, 20)),
    "padded, dropout": dict(q_lens=ints(40, 17), kv_lens=ints(40, 20), dropout_p=0.3),
    "packed": dict(causal=True, cu_q=ints(0, 13, 40), max_q=27),
    "packed, dropout": dict(cu_q=ints(0, 13, 40), max_q=27, dropout_p=0.3),
    "packed, keys of their own": dict(
        cu_q=ints(0, 13, 40), cu_kv=ints(0, 30, 37), max_q=27, max_kv=30
    ),
}


def tensors(batch, rows, keys, stored):
    """(batch, head, row, dim), as views of (batch, row, head, dim) or stored so."""
    drawn, made = torch.Generator().manual_seed(7), []
    for heads, length in ((4, rows), (2, keys), (2, keys)):
        x = torch.randn(batch, length, heads, 16, generator=drawn).transpose(1, 2)
        made.append((x.contiguous() if stored else x).requires_grad_())
    return made


def by_views(inputs, arguments):
    """o by the way without the flag."""
    q, k, v = (x.transpose(1, 2) for x in inputs)
    if arguments.cu_q is None:
        return call(q, k, v, arguments)[0]
    o, _ = call(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), arguments)
    return o.unflatten(0, q.shape[:2])


def repeated(inputs, a):
    """The call of tensors (batch, head, row, dim) as they are."""
    q, k, v = (x.transpose(1, 2) for x in inputs)
    if a.cu_q is not None:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    return ordo.transformers._repeated(None, Pattern(False), q, k, v, a).call


def results(function, inputs, dout):
    """o, the gradients, and what the generator draws next."""
    torch.manual_seed(5)
    o = function()
    return [o, *torch.autograd.grad(o, inputs, dout(o)), torch.rand(1)]


DOUTS = {
    "whole": torch.ones_like,
    "one number": lambda o: torch.ones(()).expand(o.shape),
    "every second": lambda o: torch.ones(*o.shape[:-1], 2 * o.shape[-1])[..., ::2],
}
KEYS = {"packed, keys of their own": 37}  # of 40 rows; others have as many


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stored", [False, True])
def test_the_bits_of_calls_with_views(case, stored):
    arguments = Arguments(**CASES[case])
    packed = arguments.cu_q is not None
    keys = KEYS.get(case, 40)
    for batch in (1, 2) if packed and keys == 40 else (1,) if packed else (2,):
        rows = 40 // batch if packed else 40
        inputs = tensors(batch, rows, keys // batch if packed else keys, stored)
        for dout in DOUTS.values():
            expected = results(lambda: by_views(inputs, arguments), inputs, dout)
            again = repeated(inputs, arguments)
            found = results(lambda: eager(*inputs, again)[0], inputs, dout)
            assert found[0].is_contiguous() and found[1].shape == inputs[0].shape
            assert all(same(x, y) for x, y in zip(found, expected))


def test_second_derivatives_are_refused():
    inputs, arguments = tensors(2, 9, 9, False), Arguments(causal=True)
    o, _ = eager(*inputs, repeated(inputs, arguments))
    (dq,) = torch.autograd.grad(o.sum(), inputs[:1], create_graph=True)
    with pytest.raises(ordo.Error, match="second derivatives"):
        dq.sum().backward()


# ---- the layers of transformers ----


def model_of(**options):
    ordo.transformers.register()
    torch.manual_seed(2)
    sizes = dict(vocab_size=64, n_positions=64, n_embd=32, n_layer=3, n_head=2)
    ends = dict(bos_token_id=1, eos_token_id=1)
    config = transformers.GPT2Config(**sizes, **ends, attn_implementation="ordo", **options)
    return transformers.GPT2LMHeadModel(config).train()


def batch_of(kind):
    tokens = torch.randint(64, (2, 24), generator=torch.Generator().manual_seed(3))
    if kind == "packed":
        positions = torch.cat([torch.arange(n) for n in (11, 20, 17)])[None]
        return dict(input_ids=tokens.view(1, -1), position_ids=positions)
    if kind == "dense":
        return dict(input_ids=tokens)
    mask = torch.ones_like(tokens)
    mask[1, 15:] = 0
    return dict(input_ids=tokens, attention_mask=mask if kind == "right" else mask.flip(1))


@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["dense", "right", "left", "packed"])
def test_layers_repeat_the_call_of_the_first(monkeypatch, kind, p):
    model, inputs = model_of(attn_pdrop=p), batch_of(kind)

    def step():
        torch.manual_seed(4)
        model.zero_grad()
        out = model(**inputs, labels=inputs["input_ids"], use_cache=False)
        out.loss.backward()
        return [out.logits, *[x.grad.clone() for x in model.parameters()]]

    taken, real = [], ordo.transformers._repeated
    monkeypatch.setattr(ordo.transformers, "_repeated", lambda *x: taken.append(1) or real(*x))
    found = step()
    assert len(taken) == (kind != "left")  # in the first of three layers
    monkeypatch.setattr(ordo.transformers, "checked", lambda: True)
    assert all(same(x, y) for x, y in zip(found, step()))


def test_a_call_unlike_the_last_is_not_repeated(monkeypatch):
    """Other rules, other tensors, and a mask of valid tokens that was written to in between."""
    from transformers.masking_utils import causal_mask_function

    module = torch.nn.Module()
    module.eval()
    q, k, v = (x.detach() for x in tensors(2, 8, 8, False))
    valid = torch.ones(2, 8, dtype=torch.bool)
    valid[1, 6:] = False

    def mask(valid):
        return ordo.transformers.attention_mask(
            batch_size=2, mask_function=causal_mask_function, q_length=8, kv_length=8,
            attention_mask=valid,
        )  # fmt: skip

    def run(mask, x=(q, k, v), **options):
        return ordo.transformers.attention_forward(module, *x, mask, **options)[0]

    kept, calls, real = mask(valid), [], ordo.transformers._pattern
    monkeypatch.setattr(ordo.transformers, "_pattern", lambda *x: calls.append(1) or real(*x))
    first = run(kept)
    assert same(run(kept), first) and len(calls) == 1
    for options in (dict(scaling=0.5), dict(softcap=2.0), dict(s_aux=torch.zeros(4))):
        calls.clear()
        assert same(run(kept, **options), run(mask(valid), **options)) and len(calls) == 2
        run(kept)
    longer = [x.repeat(1, 1, 2, 1) for x in (q, k, v)]
    with pytest.raises(ordo.Error, match="attention_mask.shape"):
        run(kept, longer)
    run(kept)
    valid[1, 4:] = False
    assert not same(run(kept), first) and same(run(kept), run(mask(valid)))
    run(kept)
    kept += 0.0  # its elements, which may be others now
    with pytest.raises(ordo.Error, match="attention_mask"):
        run(kept)
