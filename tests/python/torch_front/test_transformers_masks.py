"""The mask of attn_implementation="ordo": it decides what is seen, and has elements on request."""

from __future__ import annotations

import ordo
import pytest
import torch
from bits import same

transformers = pytest.importorskip("transformers")

import ordo.transformers  # noqa: E402
from ordo.transformers import attention_forward, attention_mask  # noqa: E402
from test_transformers_models import TOKENS, agree, pair, registered, small  # noqa: E402, F401
from transformers import masking_utils  # noqa: E402
from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: E402

HOLES = torch.ones(3, 10, dtype=torch.long)
HOLES[0, 7:] = 0
HOLES[1, :3] = 0
HOLES[2, 3:6] = 0


def llama(implementation="ordo", **extra):
    config = small(transformers.MistralConfig, **dict(sliding_window=None) | extra)
    config._attn_implementation = implementation
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(config).eval()


def masks(make=masking_utils.create_causal_mask, padding=None, rows=10, **settings):
    """The same mask as transformers makes it for us and for eager attention."""
    made = []
    for implementation in ("ordo", "eager"):
        config = small(transformers.LlamaConfig)
        config._attn_implementation, config.sliding_window = implementation, 4
        given = dict(config=config, inputs_embeds=torch.zeros(3, rows, 32), past_key_values=None)
        made.append(make(attention_mask=padding, **given, **settings))
    return made


MAKERS = {
    "causal": masking_utils.create_causal_mask,
    "window": masking_utils.create_sliding_window_causal_mask,
    "full": masking_utils.create_bidirectional_mask,
    "full window": masking_utils.create_bidirectional_sliding_window_mask,
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_the_mask_decides(name, padded):
    """Whatever is_causal and sliding_window of the call say."""
    padding = None
    if padded:
        padding = torch.ones(3, 10, dtype=torch.bool)
        padding[0, 7:] = padding[1, :3] = False
    ours, elements = masks(MAKERS[name], padding)
    q, k, v = (torch.randn(3, heads, 10, 8) for heads in (4, 2, 2))
    module = torch.nn.Identity()
    module.num_key_value_groups = 2
    theirs = sdpa_attention_forward(module, q, k, v, elements, is_causal=False)[0]
    shown = slice(None) if padding is None or name == "full" else padding
    for is_causal in (False, True, None):
        for window in (None, 2):
            o, _ = attention_forward(module, q, k, v, ours, is_causal=is_causal, sliding_window=window)
            agree(o[shown], theirs[shown])


@pytest.mark.parametrize("name", MAKERS)
def test_a_graph_reads_the_same_mask(name):
    def pattern(x):
        settings = dict(attention_mask=None, past_key_values=None)
        return MAKERS[name](config=config, inputs_embeds=x, **settings).pattern[:3]

    config = small(transformers.LlamaConfig, attn_implementation="ordo")
    config.sliding_window = 4
    x = torch.zeros(3, 10, 32)
    assert torch.compile(pattern, backend="eager", fullgraph=True)(x) == pattern(x)


@pytest.mark.parametrize("name", MAKERS)
def test_elements_are_those_of_eager_attention(name):
    ours, elements = masks(MAKERS[name], HOLES)
    assert ours.untyped_storage().nbytes() == 4  # none so far
    with pytest.warns(UserWarning, match="attention code of its own"):
        assert same(ours + 0, elements)
    assert same(ours[:, :, 2:5], elements[:, :, 2:5]) and ours.shape == elements.shape
    assert torch.equal(ours == 0, elements == 0)
    half = ours.to(torch.bfloat16)
    assert half.pattern == ours.pattern and half.dtype == torch.bfloat16
    assert same(half * 1, elements.clamp(min=torch.finfo(torch.bfloat16).min).bfloat16())
    assert ours.to("cpu") is ours and ours.detach() is ours


def test_a_mask_of_keys_is_for_any_number_of_rows():
    """As LightGlue and BridgeTower make it; that of a causal row is not."""
    module, q, k = torch.nn.Identity(), torch.randn(3, 4, 5, 8), torch.randn(3, 4, 10, 8)
    sizes = dict(batch_size=3, q_length=1, kv_length=10, attention_mask=HOLES.bool())
    mask = attention_mask(mask_function=masking_utils.bidirectional_mask_function, **sizes)
    elements = HOLES.bool()[:, None, None].expand(3, 1, 5, 10)
    agree(attention_forward(module, q, k, k, mask)[0], sdpa_attention_forward(module, q, k, k, elements, is_causal=False)[0])
    mask = attention_mask(mask_function=masking_utils.causal_mask_function, q_offset=9, **sizes)
    with pytest.raises(ordo.Error, match=r"\(3, 1, 1, 10\): expected .* \(3, 1, 5, 10\)"):
        attention_forward(module, q, k, k, mask)


WRITES = (
    lambda mask: mask[:, :, :, 0].fill_(-1e9),
    lambda mask: mask[0].zero_(),
    lambda mask: mask.fill_(0),
)


@pytest.mark.parametrize("rows", [10, 1])
@pytest.mark.filterwarnings("ignore:.*attention code of its own")
def test_a_mask_written_to_is_taken_by_its_elements(rows):
    """What it says would no longer be what its elements are."""
    module = torch.nn.Identity()
    q, k = torch.randn(3, 4, rows, 8), torch.randn(3, 4, 10, 8)
    sizes = dict(batch_size=3, q_length=rows, kv_length=10, q_offset=10 - rows, allow_is_causal_skip=rows != 1)
    for write in WRITES:
        made = attention_mask(mask_function=masking_utils.causal_mask_function, **sizes)
        attention_forward(module, q, k, k, made)
        write(made)
        elements = made + 0.0
        expected = sdpa_attention_forward(module, q, k, k, elements, is_causal=False)[0]
        some = (elements == 0).any(-1)[:, 0]  # rows that see something
        agree(attention_forward(module, q, k, k, made)[0][some], expected[some])


ELEMENTS = {
    "bool": torch.rand(3, 1, 10, 10) < 0.7,
    "bool, of each key": torch.rand(1, 1, 1, 10) < 0.7,
    "of each head": torch.rand(1, 4, 10, 10) < 0.7,
    "0 and the least": torch.zeros(3, 1, 10, 10).masked_fill(torch.rand(3, 1, 10, 10) < 0.3, torch.finfo(torch.float32).min),
    "numbers": torch.randn(3, 4, 10, 10),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("kind", ELEMENTS)
def test_single_elements(kind, positions, compiled):
    """Masks of the caller's, beside biases of positions or not."""
    mask, module = ELEMENTS[kind].clone(), torch.nn.Identity()
    q = torch.randn(3, 4, 10, 8, requires_grad=True)
    bias = torch.randn(1, 4, 10, 10, requires_grad=True)
    rest, learned = (dict(position_bias=bias), [q, bias]) if positions else ({}, [q])
    run = torch.compile(attention_forward, backend="aot_eager") if compiled else attention_forward
    ours, theirs = (
        [o, *torch.autograd.grad((o * o).sum(), learned)]
        for o in (f(module, q, q, q, mask, is_causal=False, **rest)[0] for f in (run, sdpa_attention_forward))
    )
    for x, y in zip(ours, theirs):
        agree(x, y)
    if not compiled and not positions:  # the next layer, and a mask that was written to
        before = attention_forward(module, q, q, q, mask)[0]
        assert same(before, ours[0])
        mask[..., 3:] = 0
        assert not same(attention_forward(module, q, q, q, mask)[0], before)


@pytest.mark.parametrize("padding", [None, HOLES, HOLES[:, :1].expand(3, 10) * (torch.arange(10) < 7)])
def test_biases_of_positions_beside_a_mask(padding):
    ours, theirs = masks(padding=padding)
    module, q = torch.nn.Identity(), torch.randn(3, 4, 10, 8)
    module.num_key_value_groups = 1
    bias = torch.randn(1, 4, 10, 10)
    o = attention_forward(module, q, q, q, ours, position_bias=bias)[0]
    expected = sdpa_attention_forward(module, q, q, q, theirs, is_causal=True, position_bias=bias)[0]
    valid = slice(None) if padding is None else padding.bool()
    agree(o[valid], expected[valid])


def test_padding_between_tokens():
    ours, theirs = (llama(x)(TOKENS, attention_mask=HOLES).logits for x in ("ordo", "eager"))
    agree(ours[HOLES.bool()], theirs[HOLES.bool()])
    ours, theirs = (llama(x, sliding_window=4)(TOKENS, attention_mask=HOLES).logits for x in ("ordo", "eager"))
    agree(ours[HOLES.bool()], theirs[HOLES.bool()])


@pytest.mark.parametrize("window", [None, 4])
def test_static_cache_without_an_attention_mask(window):
    """It has room for more keys than there are tokens."""
    made = []
    for implementation in ("ordo", "eager"):
        model = llama(implementation, sliding_window=window)
        cache = transformers.StaticCache(config=model.config, max_cache_len=20)
        with torch.no_grad():
            first = model(TOKENS, past_key_values=cache).logits
            made.append(torch.cat([first, model(TOKENS[:, :2], past_key_values=cache).logits], 1))
    agree(*made)


def test_generation_with_a_static_cache():
    prompt = dict(
        input_ids=TOKENS[1:], attention_mask=HOLES[1:], max_new_tokens=4, do_sample=False,
        cache_implementation="static",
    )  # fmt: skip
    assert torch.equal(llama().generate(**prompt), llama("eager").generate(**prompt))


@pytest.mark.parametrize("padding", [None, HOLES])
def test_compiled(padding):
    """As a whole, or each layer, which takes the mask."""
    model, inputs = llama(), dict(input_ids=TOKENS, attention_mask=padding, use_cache=False)
    with torch.no_grad():
        expected = model(**inputs).logits
        assert same(torch.compile(model, backend="aot_eager")(**inputs).logits, expected)
        if padding is None:
            for layer in model.model.layers:
                layer.compile(backend="aot_eager", fullgraph=True)
            assert same(model(**inputs).logits, expected)


def test_own_attention_code_in_a_graph():
    config = transformers.BloomConfig(hidden_size=32, n_layer=1, n_head=4, vocab_size=97)
    config._attn_implementation = "ordo"
    model = transformers.BloomForCausalLM(config).eval()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        agree(compiled(TOKENS, use_cache=False).logits, model(TOKENS, use_cache=False).logits)


def test_one_wait_for_all_layers_of_a_step(monkeypatch):
    waits, nonzero, tolist = [], torch.Tensor.nonzero, torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "nonzero", lambda x: waits.append("rows") or nonzero(x))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: waits.append("mask") or tolist(x))
    model, tokens = llama(), TOKENS[:2]
    padding = torch.ones(2, 11, dtype=torch.long)
    padding[0, :3] = 0
    with torch.no_grad():
        cache = model(tokens, attention_mask=padding[:, :-1]).past_key_values
        assert waits == ["mask", "rows"]
        waits.clear()
        model(tokens[:, :1], attention_mask=padding, past_key_values=cache)
    assert waits == ["mask", "rows", "rows"]  # keys and queries


# ---- chunks ----


def chunked(q, chunk, padding=None, cached=0):
    """attention_forward() under chunks; the mask of eager attention beside it."""
    config = small(transformers.LlamaConfig)
    config.attention_chunk_size = chunk
    made = []
    for config._attn_implementation in ("ordo", "eager"):
        left = torch.zeros(len(q), dtype=torch.long)
        if padding is not None:
            left = (padding.cumsum(-1) == 0).sum(-1)
        function = masking_utils.chunked_causal_mask_function(chunk, left)
        made.append(masking_utils.ALL_MASK_ATTENTION_FUNCTIONS[config._attn_implementation](
            batch_size=len(q), q_length=q.shape[2] - cached, kv_length=q.shape[2], q_offset=cached,
            mask_function=function, attention_mask=None if padding is None else padding.bool(),
            dtype=torch.float32,
        ))  # fmt: skip
    return made


@pytest.mark.parametrize("chunk", [3, 4, 9, 10, 64])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cached", [0, 6])
def test_chunks_against_elements(chunk, padded, cached):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4, 10, 8), torch.randn(3, 2, 10, 8), torch.randn(3, 2, 10, 8)
    padding = HOLES if padded else None
    ours, theirs = chunked(q, chunk, padding, cached)
    module = torch.nn.Module()
    module.eval()
    o, _ = attention_forward(module, q[:, :, cached:], k, v, ours)
    scores = q[:, :, cached:] @ k.repeat_interleave(2, 1).transpose(2, 3) / 8**0.5 + theirs
    expected = (scores.softmax(-1) @ v.repeat_interleave(2, 1)).transpose(1, 2)
    kept = torch.ones(3, 10).bool() if padding is None else padding.bool()
    agree(o[kept[:, cached:]], expected[kept[:, cached:]])


def test_chunks_have_the_bits_of_sequences_of_their_own():
    """And one chunk as long as the sequence those of the causal mask."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 300, 16) for _ in range(3))
    module = torch.nn.Module()
    module.eval()
    o, _ = attention_forward(module, q, k, v, chunked(q, 128)[0])
    for first in (0, 128, 256):
        part = slice(first, min(first + 128, 300))
        alone, _ = attention_forward(module, q[:, :, part], k[:, :, part], v[:, :, part], None)
        assert same(o[:, part], alone)
    whole, _ = attention_forward(module, q, k, v, chunked(q, 300)[0])
    assert same(whole, attention_forward(module, q, k, v, None)[0])


def test_chunks_of_a_mask_that_was_written_to():
    q = torch.randn(3, 4, 10, 8)
    mask, _ = chunked(q, 4, HOLES)
    before = attention_forward(torch.nn.Identity(), q, q, q, mask)[0]
    mask.pattern.valid[1, 7:] = False
    after = attention_forward(torch.nn.Identity(), q, q, q, mask)[0]
    assert not after[1, 7:].any() and same(after[1, :7], before[1, :7]) and same(after[0], before[0])


# ---- keys that the model chose ----


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_a_choice_of_all_that_is_seen_changes_nothing(name, padded):
    """What counts is what a choice names: -1 names nothing, and one visible key less is refused."""
    ours, elements = masks(MAKERS[name], HOLES if padded and "window" not in name else None)
    q = torch.randn(3, 4, 10, 8)
    seen = torch.ones(3, 10, 10, dtype=torch.bool) if elements is None else elements[:, 0] == 0
    chosen = torch.where(seen, torch.arange(10), -1)
    attend = lambda x: attention_forward(torch.nn.Identity(), q, q, q, ours, indices=x)[0]  # noqa: E731
    plain = attend(None)
    for order in (chosen, chosen.flip(-1), torch.cat([chosen, chosen], -1)):
        assert same(attend(order), plain)
    less = chosen.clone()
    less[2, 8, 8] = -1
    with pytest.raises(ordo.Error, match=r"indices\[2, 0, 8\]: the query sees key 8, which is not"):
        attend(less)


def test_choices_of_blocks_by_head():
    module = torch.nn.Identity()
    module.config = transformers.LlamaConfig(index_block_size=4)
    ours, _ = masks()
    q = torch.randn(3, 4, 10, 8)
    chosen = torch.tensor([2, 0, 1]).expand(3, 2, 10, 3).clone()
    chosen[:, :, :4, [0, 2]] = -1  # they see no key of these blocks
    o = attention_forward(module, q, q, q, ours, block_indices=chosen)[0]
    assert same(o, attention_forward(module, q, q, q, ours)[0])
    chosen[1, 1, 5, 1] = 7  # no block has this number
    with pytest.raises(ordo.Error, match=r"indices\[1, 1, 5\]: the query sees keys of block 0, 4"):
        attention_forward(module, q, q, q, ours, block_indices=chosen)
    graph = torch.compile(backend="aot_eager", fullgraph=True)(
        lambda q, x: attention_forward(module, q, q, q, None, block_indices=x)[0]
    )
    with pytest.raises(RuntimeError, match="expected all keys that the mask shows"):
        graph(q, chosen)


MINIMAX = dict(
    dense_intermediate_size=48, mlp_layer_types=["dense"] * 2, layer_types=["minimax_m3_sparse"] * 2,
    index_n_heads=2, index_head_dim=8, index_block_size=4,
)  # fmt: skip


def test_blocks_that_minimax_m3_chooses():
    """Its indexer compares position_ids with places of keys: padding on the left leaves blocks out."""
    kind, padding = transformers.MiniMaxM3VLTextModel, torch.ones(3, 10, dtype=torch.long)
    padding[1, :5] = 0
    positions = (padding.cumsum(-1) - 1).clamp(min=0)
    for inputs in ({}, dict(attention_mask=padding), dict(attention_mask=padding.flip(1))):
        valid = inputs.get("attention_mask", torch.ones(3, 10)).bool()
        ours, theirs = (x(TOKENS, **inputs)[0][valid] for x in pair(kind, "sdpa", index_topk_blocks=3, **MINIMAX))
        agree(ours, theirs)
    for topk, rest in ((3, dict(attention_mask=padding, position_ids=positions)), (2, {})):
        with pytest.raises(ordo.Error, match="block_indices.*not chosen: expected all keys"):
            pair(kind, "sdpa", index_topk_blocks=topk, **MINIMAX)[0](TOKENS, **rest)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", [transformers.DynamicCache, transformers.StaticCache])
def test_a_windows_cache_that_drops_keys_has_the_bits_of_training(kind, padded):
    """Tiles of keys begin where they begin in the whole sequence. Rows that see two tiles would show it."""
    model = llama("ordo", sliding_window=40)
    for x in model.model.layers.parameters():
        x.data.mul_(20 if x.dim() == 2 else 1)
    tokens = torch.randint(3, 50, (2, 180))
    mask = torch.ones_like(tokens)
    if padded:
        mask[1, :70] = 0  # the cache drops these, too
    places = (mask.cumsum(1) - 1).clamp(min=0)
    most = {"max_cache_len": 200} if kind is transformers.StaticCache else {}
    cache = kind(config=model.config, **most)
    with torch.no_grad(), ordo.torch.invariant():
        whole = model(tokens, attention_mask=mask, position_ids=places).logits
        for first, end in ((0, 60), (60, 64), *((n, n + 1) for n in range(64, 180))):
            here = slice(first, end)
            made = model(
                tokens[:, here], attention_mask=mask[:, :end], position_ids=places[:, here], past_key_values=cache
            ).logits  # fmt: skip
            valid = mask[:, here].bool()
            assert torch.equal(made[valid], whole[:, here][valid]), f"tokens {first} to {end}"
