"""attn_implementation="ordo": the attention and its mask, on small models with random weights."""

from __future__ import annotations

import copy

import ordo
import pytest
import torch
from bits import same

transformers = pytest.importorskip("transformers")

import ordo.transformers  # noqa: E402
from test_transformers_models import registered, small  # noqa: E402, F401
from transformers import masking_utils  # noqa: E402
from transformers.masking_utils import create_causal_mask, create_chunked_causal_mask  # noqa: E402

CLASSES = {
    "gpt2": ("GPT2LMHeadModel", {}),
    "llama": ("LlamaForCausalLM", dict(attention_dropout=0.1)),
    "mistral": ("MistralForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", dict(attn_logit_softcapping=5.0)),
    "bert": ("BertModel", {}),
}
TOKENS = torch.arange(2 * 14).view(2, 14) % 97
PADDING = torch.ones(2, 14, dtype=torch.long)
PADDING[0, 9:] = 0  # on the right
PADDING[1, :4] = 0  # on the left
RESTARTS = torch.cat([torch.arange(5), torch.arange(9)])[None]


def make(name, implementation):
    kind = getattr(transformers, CLASSES[name][0])
    torch.manual_seed(0)
    model = kind(small(kind.config_class, **CLASSES[name][1], attn_implementation=implementation))
    assert model.config._attn_implementation == implementation
    return model


def test_the_longest_sequence_is_waited_for_once(monkeypatch):
    ends = torch.tensor([0, 5, 14], dtype=torch.int32)
    waits, diff = [], torch.Tensor.diff
    monkeypatch.setattr(torch.Tensor, "diff", lambda *x, **y: waits.append(x[0]) or diff(*x, **y))
    module, q = torch.nn.Identity(), torch.randn(1, 2, 14, 16)

    def layer(**longest):
        lengths = dict(cu_seq_lens_q=ends, cu_seq_lens_k=ends, **longest)
        return ordo.transformers.attention_forward(module, q, q, q, None, **lengths)[0]

    one, two = layer(), layer()
    assert len(waits) == 1
    assert same(one, two) and same(one, layer(max_length_q=9, max_length_k=9))


POSITIONS = {
    "restarts": RESTARTS,
    "jumps": torch.cat([torch.arange(5), torch.arange(10, 19)])[None],
    "repeats": torch.arange(14)[None] // 2,
}
BESIDE = {
    "nothing": {},
    "ones": dict(attention_mask=torch.ones(2, 14, dtype=torch.long)),
    "padding": dict(attention_mask=PADDING),
}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", CLASSES)
def test_positions_mean_what_they_mean_in_eager_attention(name, beside, cached):
    """They pack a decoder's sequences beside no attention_mask and no cache, in any batch size."""
    if name == "bert" and cached:
        pytest.skip("an encoder has no cache")
    models = [make(name, x).eval() for x in ("ordo", "eager")]
    for positions in POSITIONS.values():
        for batch in (slice(0, 1), slice(1, 2), slice(0, 2)):
            inputs = {x: y[batch] for x, y in BESIDE[beside].items()}
            valid = inputs.get("attention_mask", torch.ones_like(TOKENS[batch])).bool()
            inputs |= dict(position_ids=positions.expand(len(valid), -1))
            if name != "bert":
                inputs |= dict(use_cache=cached)
            if cached and beside == "nothing" and len(valid) == 1:  # paths of transformers disagree
                with pytest.raises(ordo.Error, match="position_ids that do not run on by 1, beside"):
                    models[0](TOKENS[batch], **inputs)
                continue
            with torch.no_grad():
                ours, theirs = (model(TOKENS[batch], **inputs)[0] for model in models)
            torch.testing.assert_close(ours[valid], theirs[valid], rtol=0, atol=2e-5)


def test_a_batch_does_not_wait_for_positions_of_one_row(monkeypatch):
    """Models make position_ids of shape (1, row) for any batch: nothing must be read from them."""
    read = []
    monkeypatch.setattr(ordo.transformers, "once", lambda *x: read.append(x))
    model = make("llama", "ordo").eval()
    model(TOKENS, use_cache=True)
    assert not read
    model(TOKENS[:1], use_cache=True)
    assert read


def test_eval_means_no_dropout():
    class Careless(torch.nn.Module):
        is_causal = True

    module = Careless().eval()
    q = torch.randn(2, 4, 9, 16)
    plain, _ = ordo.transformers.attention_forward(module, q, q, q, None)
    dropped, _ = ordo.transformers.attention_forward(module, q, q, q, None, dropout=0.5)
    assert same(plain, dropped)
    module.train()
    dropped, _ = ordo.transformers.attention_forward(module, q, q, q, None, dropout=0.5)
    assert not same(plain, dropped)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("one", ["query", "key"])
def test_one_sequence_beside_many_is_broadcast(one, masked):
    """Learned queries of all sequences, as Granite Speech has them: results and gradients."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    module = torch.nn.Identity()
    module.is_causal = False
    batch = dict(query=1, key=3, value=3) if one == "query" else dict(query=3, key=1, value=1)
    given = [torch.randn(n, 4, 5, 16, requires_grad=True) for n in batch.values()]
    padding = torch.arange(5) < torch.tensor([[5], [3], [1]])
    made = []
    for forward in (ordo.transformers.attention_forward, sdpa_attention_forward):
        mask = padding if masked else None
        if masked and forward is sdpa_attention_forward:
            mask = padding[:, None, None]
        o, _ = forward(module, *given, mask)
        made.append([o, *torch.autograd.grad((o * o).sum(), given)])
    for ours, theirs in zip(*made):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    two, three = torch.randn(2, 4, 5, 16), torch.randn(3, 4, 5, 16)
    with pytest.raises(RuntimeError, match="expanded size"):
        ordo.transformers.attention_forward(module, two, three, three, None)


MASKS = {
    "padded": dict(attention_mask=PADDING[1:]),
    "chunked": dict(),
    **{name: dict(position_ids=x) for name, x in POSITIONS.items()},
    **{f"{name}, masked": dict(position_ids=x, attention_mask=torch.ones(1, 14)) for name, x in POSITIONS.items()},
}


@pytest.mark.parametrize("kind", MASKS)
def test_bits_do_not_depend_on_the_batch(kind):
    """Nor on whether the mask is one for all sequences or has one for each."""
    q, made, one = torch.randn(3, 4, 14, 16), [], MASKS[kind]
    config = copy.copy(LLAMA)
    make_mask = create_causal_mask
    if kind == "chunked":
        config.attention_chunk_size, make_mask = 5, create_chunked_causal_mask
    for batch in (1, 3):
        given = {name: None if x is None else x.expand(batch, -1) for name, x in one.items()}
        given = dict(attention_mask=None, past_key_values=None) | given
        mask = make_mask(config=config, inputs_embeds=torch.zeros(batch, 14, 32), **given)
        for x in (q, q[:1])[: 4 - batch]:  # the mask of three serves three alone
            rest = dict(position_ids=one["position_ids"].expand(len(x), -1)) if "position_ids" in one else {}
            made.append(ordo.transformers.attention_forward(torch.nn.Identity(), x, x, x, mask, **rest)[0])
    whole, alone, each = made
    assert same(whole, each) and same(whole[:1], alone)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_a_graph_takes_positions_beside_an_attention_mask(name):
    model = make(name, "ordo").eval()
    whole = torch.compile(model, backend="aot_eager")
    ones = torch.ones_like(TOKENS[:1])
    inputs = dict(position_ids=RESTARTS, use_cache=False)
    with torch.no_grad():
        one, other = (x(TOKENS[:1], attention_mask=ones, **inputs).logits for x in (whole, model))
        assert same(one, other)
        with pytest.raises(RuntimeError, match="packed sequences under torch.compile"):
            whole(TOKENS[:1], **inputs)
        ends = torch.tensor([0, 5, 14], dtype=torch.int32)
        inputs |= dict(cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=9, max_length_k=9)
        assert same(whole(TOKENS[:1], **inputs).logits, model(TOKENS[:1], **inputs).logits)


def forward(q=torch.randn(1, 2, 5, 16), mask=None, **keywords):
    return ordo.transformers.attention_forward(torch.nn.Identity(), q, q, q, mask, **keywords)


def recorded(kind, step):
    """What torch.jit.trace, make_fx and torch.export record beside a mask without padding."""
    from torch.fx.experimental.proxy_tensor import make_fx

    given = TOKENS, torch.ones_like(PADDING)
    if kind == "jit":
        return torch.jit.trace(step, given, check_trace=False)
    return make_fx(step)(*given) if kind == "make_fx" else torch.export.export(step, given).module()


@pytest.mark.parametrize("kind", ["jit", "make_fx", "export"])
@pytest.mark.parametrize("name", ["llama", "bert"])
def test_what_is_recorded_beside_one_mask_holds_for_others(name, kind):
    class Step(torch.nn.Module):
        def __init__(self, implementation):
            super().__init__()
            self.model = make(name, implementation).eval()
            self.rest = {} if name == "bert" else dict(use_cache=False)

        def forward(self, tokens, mask):
            return self.model(tokens, attention_mask=mask, **self.rest)[0]

    with torch.no_grad():
        found = recorded(kind, Step("ordo"))(TOKENS, PADDING)
        expected = Step("eager")(TOKENS, PADDING)
    valid = PADDING.bool()
    torch.testing.assert_close(found[valid], expected[valid], rtol=1e-4, atol=1e-5)


def compiled(call):
    return torch.compile(call, backend="aot_eager")


LLAMA = small(transformers.LlamaConfig, attn_implementation="ordo")
CHUNKS = masking_utils.chunked_overlay(4, torch.zeros(1, dtype=torch.long))
WINDOW, CAUSAL = masking_utils.sliding_window_causal_mask_function(3), masking_utils.causal_mask_function
SPLIT = masking_utils.packed_sequence_mask_function(torch.tensor([[0, 0, 1, 1, 0, 0]]))
BOTH, EITHER = masking_utils.and_masks, masking_utils.or_masks
REFUSED = (
    (lambda: forward(position_bias=torch.ones(1)), r"position_bias.shape \(1,\): expected"),
    (lambda: forward(attn_bias=torch.ones(1)), "attn_bias given: a bias"),
    (lambda: forward(mask=torch.ones(1, 1, 5, 5, dtype=torch.int32)), r"attention_mask.shape .*, dtype torch.int32"),
    (lambda: forward(mask=torch.zeros(1, 1, 5, 5), indices=torch.zeros(1, 5, 1)), "indices beside a mask of single"),
    (lambda: forward(output_attentions=True), "output_attentions True"),
    (lambda: forward(mask=torch.ones(1, 1, 5, 4, dtype=torch.bool)), r"attention_mask.shape \(1, 1, 5, 4\)"),
    (lambda: compiled(make("llama", "ordo").eval())(TOKENS, position_ids=RESTARTS.expand(2, -1), use_cache=False),
     "packed sequences under torch.compile"),
)  # fmt: skip


def test_what_is_not_there_is_refused_by_name():
    for call, words in REFUSED:
        with pytest.raises(RuntimeError, match=words):
            call()


FUNCTIONS = {
    "either of two windows": EITHER(BOTH(WINDOW, CAUSAL), CHUNKS),
    "chunks without a causal mask": CHUNKS,
    "chunks of a window": BOTH(CHUNKS, WINDOW),
    "sequences that come back": BOTH(CAUSAL, SPLIT),
    "a function of its own": lambda b, h, q, k: (q + k) % 3 == 0,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_mask_functions_of_all_kinds_are_element_masks_on_the_cpu(kind):
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    sizes = dict(batch_size=1, q_length=6, kv_length=6, mask_function=FUNCTIONS[kind])
    ours = ordo.transformers.attention_mask(**sizes)
    theirs = masking_utils.sdpa_mask(**sizes, allow_is_causal_skip=False)
    q = torch.randn(1, 4, 6, 16, requires_grad=True)
    made = []
    for function, mask in ((ordo.transformers.attention_forward, ours), (sdpa_attention_forward, theirs)):
        for _ in range(2):  # layers
            o, _ = function(torch.nn.Identity(), q, q, q, mask)
        made.append([o, *torch.autograd.grad((o * o).sum(), q)])
    for x, y in zip(*made):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


def test_transformers_own_flash_path_takes_our_functions(monkeypatch):
    """What a package named flash_attn would be: found by signature, called by keyword."""
    from ordo.compat import flash_attn
    from ordo.compat.flash_attn import bert_padding
    from transformers import modeling_flash_attention_utils as utils
    from transformers.integrations.flash_attention import flash_attention_forward

    process = utils._lazy_define_process_function(flash_attn.flash_attn_varlen_func)
    found = process.keywords["supports_mapping"]
    for name in ("dropout_p", "window_size", "softcap", "deterministic", "max_seqlen_q"):
        assert found[name], name
    for name, value in (
        ("_loaded_implementation", "flash_attention_2"),
        ("_flash_fn", flash_attn.flash_attn_func),
        ("_flash_varlen_fn", flash_attn.flash_attn_varlen_func),
        ("_pad_fn", bert_padding.pad_input),
        ("_unpad_fn", bert_padding.unpad_input),
        ("_process_flash_kwargs_fn", process),
    ):
        monkeypatch.setattr(utils, name, value)
    model = make("llama", "ordo")
    module = model.model.layers[0].self_attn.train()
    module.config._attn_implementation_internal = "flash_attention_2"
    q, k, v = (torch.randn(2, heads, 14, 8) for heads in (4, 2, 2))
    for mask, window in ((None, None), (PADDING.bool(), None), (None, 5)):
        results = []
        for forward in (flash_attention_forward, ordo.transformers.attention_forward):
            torch.manual_seed(3)
            results.append(forward(module, q, k, v, mask, dropout=0.2, sliding_window=window)[0])
        assert same(*results)
