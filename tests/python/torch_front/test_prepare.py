"""Keep bits made ahead of attention: the same results, and what does not fit is refused."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.torch import prepare_dropout
from test_attention import gradients, tensors
from test_dropout_modes import PACKED, SQUARE, choose, fills, forget  # noqa: F401
from torch.utils.checkpoint import checkpoint


def given(inputs, prepared, dout, attend=ordo.torch.attention, **rules):
    o, lse = attend(*inputs, causal=True, dropout_p=0.2, prepared=prepared, **rules)
    return [o, lse, *gradients(o, inputs, dout)]


def plain(inputs, dout, **rules):
    o, lse = ordo.torch.attention(*inputs, causal=True, dropout_p=0.2, seed=(5, 6), **rules)
    return [o, lse, *gradients(o, inputs, dout)]


@pytest.mark.parametrize("mode", ["auto", "fused", "sequential", "overlapped"])
@pytest.mark.parametrize("rules", [{}, PACKED, dict(keying="fa2")], ids=["dense", "packed", "fa2"])
def test_prepared_bits_are_the_same(monkeypatch, fills, rules, mode):  # noqa: F811
    inputs, dout = tensors(SQUARE)
    if "cu_q" in rules:
        inputs, dout = [x.detach()[0].requires_grad_() for x in inputs], dout[0]
    wanted = plain(inputs, dout, **rules)
    choose(monkeypatch, mode)
    q, k, _ = inputs
    made = prepare_dropout(
        q.shape, k.shape, dropout_p=0.2, device="cpu", causal=True, seed=(5, 6), **rules
    )
    ahead = len(fills)
    for _ in range(2):  # the second call makes its own
        again = given(inputs, made, dout, **rules)
        assert all(same(x, y) for x, y in zip(again, wanted))
    assert (ahead, len(fills)) == ((1, 2) if mode in ("sequential", "overlapped") else (0, 0))


@pytest.mark.parametrize(
    "rules",
    [
        dict(causal=True, q_lens=torch.tensor([100, 260]), kv_lens=torch.tensor([200, 300])),
        dict(causal=False),
        dict(causal="top-left"),
    ],
    ids=["lengths", "full", "top-left"],
)
def test_prepared_for_another_mask(monkeypatch, rules):
    """Lengths are no argument of prepare_dropout(), and a call may have another mask: all bits are
    there, not only those that the mask named first shows."""
    inputs, _ = tensors((2, 260, 300, 2, 1, 16, 16))
    q, k, _ = inputs
    choose(monkeypatch, "sequential")
    wanted = ordo.torch.attention(*inputs, dropout_p=0.2, seed=(5, 6), **rules)[0]
    made = prepare_dropout(
        q.shape, k.shape, dropout_p=0.2, device="cpu", causal=True, seed=(5, 6)
    )
    assert same(ordo.torch.attention(*inputs, dropout_p=0.2, prepared=made, **rules)[0], wanted)


def test_the_draw_is_that_of_attention(monkeypatch):
    """One draw from the generator, at the time of prepare_dropout()."""
    choose(monkeypatch, "overlapped")
    inputs, dout = tensors(SQUARE)
    torch.manual_seed(7)
    wanted = ordo.torch.attention(*inputs, dropout_p=0.2)[0]
    after = torch.rand(1)
    torch.manual_seed(7)
    made = prepare_dropout(inputs[0].shape, inputs[1].shape, dropout_p=0.2, device="cpu")
    assert same(ordo.torch.attention(*inputs, dropout_p=0.2, prepared=made)[0], wanted)
    assert same(torch.rand(1), after)


def test_prepared_bits_in_a_recomputation_and_a_compiled_graph(monkeypatch):
    inputs, dout = tensors(SQUARE)
    wanted = plain(inputs, dout)
    choose(monkeypatch, "overlapped")
    shapes = inputs[0].shape, inputs[1].shape

    def recomputed(q, k, v, prepared, **rules):
        def step(*x):
            return ordo.torch.attention(*x, prepared=prepared, **rules)

        return checkpoint(step, q, k, v, use_reentrant=False)

    made = prepare_dropout(*shapes, dropout_p=0.2, device="cpu", seed=(5, 6))
    again = given(inputs, made, dout, recomputed)
    assert all(same(x, y) for x, y in zip(again, wanted))

    rng = torch.tensor([5, 6])

    @torch.compile(backend="aot_eager", fullgraph=True)
    def whole(q, k, v, prepared, **rules):
        made = prepare_dropout(q.shape, k.shape, dropout_p=0.2, device="cpu", rng_state=rng)
        return ordo.torch.attention(q, k, v, prepared=made, **rules)

    again = given(inputs, None, dout, whole)
    assert all(same(x, y) for x, y in zip(again, wanted))


def test_what_does_not_fit_is_refused(monkeypatch):
    choose(monkeypatch, "overlapped")
    inputs, _ = tensors(SQUARE)
    shapes = inputs[0].shape, inputs[1].shape
    made = prepare_dropout(*shapes, dropout_p=0.2, device="cpu")
    attention = ordo.torch.attention
    for rules, message in (
        (dict(dropout_p=0.5), "prepared for .*dropout_p 0.2.*: expected .*dropout_p 0.5"),
        (dict(dropout_p=0.2, keying="fa2"), "prepared for .*keying ordo: expected .*keying fa2"),
        (dict(dropout_p=0.2, seed=1), "seed, rng_state, generator: expected none beside prepared"),
        (dict(dropout_p=0.0), "dropout_p 0.0: expected more than 0 beside prepared"),
    ):
        with pytest.raises(ordo.Error, match=message):
            attention(*inputs, prepared=made, **rules)
    with pytest.raises(ordo.Error, match="prepared for .*33 x 33 rows.*: expected .*9 x 9 rows"):
        attention(*[x[:, :9] for x in inputs], prepared=made, dropout_p=0.2)
    with pytest.raises(ordo.Error, match="prepared 3: expected what prepare_dropout"):
        attention(*inputs, prepared=3, dropout_p=0.2)
    for arguments, message in (
        (dict(dropout_p=0.0, device="cpu"), "dropout_p 0.0: expected more than 0"),
        (dict(dropout_p=0.1, device="nowhere"), "device 'nowhere': expected a device"),
        (dict(dropout_p=0.1, device="meta"), "device meta: expected cpu or cuda"),
        (dict(dropout_p=0.1, device="cpu", stream=3), "stream 3: expected a torch.cuda.Stream"),
    ):
        with pytest.raises(ordo.Error, match=message):
            prepare_dropout(*shapes, **arguments)
    for shape in ((2, 3), 7, (2, -1, 4, 16)):
        with pytest.raises(ordo.Error, match="q_shape .*: expected"):
            prepare_dropout(shape, dropout_p=0.1, device="cpu")


def test_a_stream_of_another_device_is_refused(monkeypatch):
    from ordo.torch import _prepare

    class Stream:
        device = torch.device("cuda", 1)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    for device in ("cpu", "cuda:0"):
        with pytest.raises(ordo.Error, match=f"stream.device cuda:1: expected {device}"):
            _prepare._check_stream(Stream(), torch.device(device))
    _prepare._check_stream(Stream(), torch.device("cuda", 1))


def test_a_model_trains_to_the_same_bits_in_every_mode(monkeypatch, fills):  # noqa: F811
    transformers = pytest.importorskip("transformers")
    import ordo.transformers

    ordo.transformers.register()
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=2, attn_implementation="ordo"
    )
    tokens = torch.randint(64, (2, 40), generator=torch.Generator().manual_seed(3))
    made, times = {}, {}
    for mode in ("fused", "auto", "sequential", "overlapped"):
        choose(monkeypatch, mode)
        torch.manual_seed(2)
        model = transformers.GPT2LMHeadModel(config).train()
        fills.clear()
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        made[mode], times[mode] = [x.grad for x in model.parameters()], len(fills)
        assert all(same(x, y) for x, y in zip(made[mode], made["fused"])), mode
    assert times == {"fused": 0, "auto": 0, "sequential": 2, "overlapped": 2}
