"""attn_implementation="ordo" on many architectures of transformers, beside eager attention.

Each row of the tables is a model of 2 layers with random weights: `ordo` either gives what `eager`
gives (logits, gradients, generated tokens), twice with the same bits, or raises ordo.Error.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import ordo
import pytest
import torch
from bits import equal, same

transformers = pytest.importorskip("transformers")

import ordo.transformers  # noqa: E402
from transformers.models.auto import modeling_auto as auto  # noqa: E402

# Sizes by all the names that configurations have for them.
SMALL = dict(
    num_hidden_layers=2, n_layer=2, n_layers=2, num_layers=2, encoder_layers=2, decoder_layers=2,
    num_decoder_layers=2, num_attention_heads=4, n_head=4, n_heads=4, num_heads=4,
    encoder_attention_heads=4, decoder_attention_heads=4, num_key_value_heads=2, hidden_size=32,
    n_embd=32, d_model=32, emb_dim=32, embedding_size=32, dim=32, hidden_dim=48, rotary_dim=8,
    intermediate_size=48, n_inner=48, ffn_dim=48, encoder_ffn_dim=48, decoder_ffn_dim=48, d_ff=48,
    ffn_hidden_size=48, vocab_size=97, head_dim=8, d_kv=8, max_position_embeddings=64,
    n_positions=64, n_ctx=64, max_sequence_length=64, max_seq_len=64, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, sliding_window=6,
    num_experts=4, n_routed_experts=4, num_local_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=16, n_group=1, topk_group=1,
)  # fmt: skip
MLA = dict(
    num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
    v_head_dim=16,
)  # fmt: skip
DECODER = dict(is_decoder=True)

CAUSAL: dict[str, dict] = {
    name: {}
    for name in (
        "afmoe apertus arcee bart biogpt bitnet bloom codegen cohere cohere2 ctrl cwm diffllama "
        "ernie4_5 exaone4 falcon gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox gptj "
        "gpt_neox_japanese gpt_oss granite helium jetmoe lfm2 llama ministral3 mistral mixtral "
        "modernbert-decoder mpt nanochat olmo olmo2 olmo3 olmoe openai-gpt opt persimmon phi phi3 "
        "qwen2 qwen3 qwen3_moe seed_oss smollm3 stablelm starcoder2 trocr xglm"
    ).split()
} | {
    name: DECODER
    for name in "bert big_bird electra megatron-bert rembert roberta roformer xlm-roberta".split()
} | {"gpt_neo": dict(attention_types=[[["global", "local"], 1]]), "deepseek_v4": dict(layer_types=["compressed_sparse_attention"] * 2), "doge": {}, "llama4_text": dict(attention_chunk_size=4), "deepseek_v3": MLA, "deepseek_v32": MLA, "glm_moe_dsa": MLA, "minicpm3": MLA}
# They never call an attention of the AttentionInterface, or not in every layer. Those with sparse
# attention compute with the mask to choose keys.
OWN = set(
    "big_bird bigbird_pegasus bloom codegen falcon fsmt gpt_neo gpt_neox_japanese gptj ibert led megatron-bert mpnet "
    "mpt mvp nystromformer openai-gpt rembert roformer squeezebert trocr xglm".split()
)
SPARSE = {"deepseek_v32", "glm_moe_dsa"}
# They compute with the mask, too, and ordo gets what comes out: single elements, or numbers.
COMPUTED = {"deepseek_v4", "doge"}
# Biases, which CUDA does not have, and masks of single elements, which it has in part.
SINGLE = COMPUTED | set("layoutlm longt5 markuplm mt5 switch_transformers t5 umt5".split())
# Their code makes no causal mask: eager attention sees later tokens, too.
NOT_CAUSAL = {"big_bird", "megatron-bert", "rembert", "roformer"}
SEQ2SEQ: dict[str, dict] = {
    name: {}
    for name in (
        "bart bigbird_pegasus blenderbot blenderbot-small fsmt longt5 m2m_100 marian mbart mt5 mvp nllb-moe "
        "pegasus plbart switch_transformers t5 umt5"
    ).split()
} | {
    "led": dict(
        attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64
    )
}
ENCODER: dict[str, dict] = {
    name: {}
    for name in (
        "albert bert distilbert electra ibert layoutlm markuplm mpnet nystromformer roberta roformer "
        "squeezebert xlm-roberta"
    ).split()
} | {"modernbert": dict(local_attention=6, global_attn_every_n_layers=2)}
TOKENS = torch.arange(30).view(3, 10) * 7 % 90 + 3
PADDING = torch.ones(3, 10, dtype=torch.long)
PADDING[0, 7:] = 0  # on the right
PADDING[1, :3] = 0  # on the left
TARGETS = TOKENS.flip(1).repeat(1, 2)[:, :13].contiguous()  # more than the encoder's tokens


@pytest.fixture(scope="module", autouse=True)
def registered():
    ordo.transformers.register()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small models
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def own_code_is_said(request):
    """A warning if and only if the model runs attention code of its own."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    name = request.node.callspec.params["name"] if hasattr(request.node, "callspec") else None
    if name in {*CAUSAL, *SEQ2SEQ, *ENCODER}:
        own = any("attention code of its own" in str(x.message) for x in said)
        assert own == (name in OWN | SPARSE | COMPUTED)


def class_of(name, mapping):
    found = mapping[name]
    return getattr(transformers, found if isinstance(found, str) else found[0])


def small(make, sizes=SMALL, **extra):
    """A configuration of small sizes."""
    known = make()
    fixed = {name for kind in make.__mro__ for name, x in vars(kind).items() if isinstance(x, property) and x.fset is None}
    asked = {k for k in sizes.keys() - fixed if getattr(known, k, None) is not None or "_token_id" in k}
    return make(**{k: sizes[k] for k in asked} | {k: x for k, x in extra.items() if k not in fixed})


def pair(kind, other="eager", **extra):
    """The same model twice: ours and theirs."""
    made = []
    for implementation in ("ordo", other):
        config = small(kind.config_class, **extra)
        config._attn_implementation = implementation
        torch.manual_seed(0)
        made.append(kind(config).eval())
    return made


def agree(ours, theirs, what=""):
    error = (ours - theirs).abs().max() / theirs.abs().max()
    assert error < 1e-4, f"{what}: {error}"


def backward(model, result):
    """Gradients of all parameters."""
    weight = torch.linspace(-1, 1, result.numel()).view_as(result)
    learned = [x for x in model.parameters() if x.requires_grad]
    gradients = torch.autograd.grad(
        (result * weight).sum(), learned, allow_unused=True, materialize_grads=True
    )
    return torch.cat([x.flatten() for x in gradients])


def generated(model, **settings):
    return model.generate(
        **settings, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0
    )


@pytest.mark.parametrize("name", CAUSAL)
def test_causal(name):
    kind = class_of(name, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    ours, theirs = pair(kind, use_cache=False, **CAUSAL[name])
    one, two = (model(TOKENS).logits for model in (ours, theirs))
    agree(one, two, "logits")
    agree(backward(ours, one), backward(theirs, two), "gradients")
    later = TOKENS.clone()
    later[:, 6:] = 5
    with torch.no_grad():
        seen = (ours(later).logits[:, :6] - one[:, :6]).abs().max() > 1e-4 * one.abs().max()
        assert seen == (name in NOT_CAUSAL), "later tokens"
        valid = PADDING.bool()
        one, two = (m(TOKENS, attention_mask=PADDING).logits[valid] for m in (ours, theirs))
        agree(one, two, "padded")
    prompt = dict(input_ids=TOKENS[1:, :6], attention_mask=PADDING[1:, :6], use_cache=True)
    assert torch.equal(generated(ours, **prompt), generated(theirs, **prompt))


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_encoder_and_decoder(name):
    kind = class_of(name, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    ours, theirs = pair(kind, **SEQ2SEQ[name])
    inputs = dict(input_ids=TOKENS, attention_mask=PADDING, decoder_input_ids=TARGETS)
    one, two = (model(**inputs, use_cache=False).logits for model in (ours, theirs))
    agree(one, two, "logits")
    agree(backward(ours, one), backward(theirs, two), "gradients")
    inputs["decoder_input_ids"] = TARGETS[:, :1]
    with torch.no_grad():
        agree(ours(**inputs).logits, theirs(**inputs).logits, "one query")
    prompt = dict(input_ids=TOKENS, attention_mask=PADDING)
    for beams in (1, 2):
        one, two = (generated(model, **prompt, num_beams=beams) for model in (ours, theirs))
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", ENCODER)
def test_encoder(name):
    kind = class_of(name, auto.MODEL_MAPPING_NAMES)
    ours, theirs = pair(kind, **ENCODER[name])
    for padding in (None, PADDING):
        one, two = (m(TOKENS, attention_mask=padding).last_hidden_state for m in (ours, theirs))
        if padding is not None:
            one, two = one[PADDING.bool()], two[PADDING.bool()]
        agree(one, two)
    agree(backward(ours, one), backward(theirs, two), "gradients")


def test_a_decoder_that_denies_to_be_causal():
    """Moonshine passes is_causal=False beside its causal mask."""
    sound = torch.linspace(-1, 1, 3 * 3000).view(3, 3000).sin()
    inputs = dict(input_values=sound, decoder_input_ids=TOKENS, decoder_attention_mask=PADDING)
    agree(*(model(**inputs).logits[PADDING.bool()] for model in pair(transformers.MoonshineForConditionalGeneration)))


def test_attention_code_of_a_models_own_gets_what_eager_attention_gets():
    """Autoformer takes no mask of the usual shape; without padding eager attention has none."""
    sizes = dict(prediction_length=4, context_length=8, label_length=4, lags_sequence=[1, 2], num_time_features=1)
    past, future = torch.linspace(0, 3, 20).view(2, 10).sin(), torch.ones(2, 4)
    inputs = dict(
        past_values=past, past_time_features=past[..., None], future_values=future,
        past_observed_mask=torch.ones(2, 10), future_time_features=future[..., None],
    )  # fmt: skip
    losses = [model(**inputs).loss for model in pair(transformers.AutoformerForPrediction, **sizes)]
    assert torch.equal(*losses)


# ---- dropout and repeats ----

ATTENTION_DROPOUT = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout_rate")
NO_DROPOUT = {"ctrl", "diffllama", "ernie4_5", "falcon", "lfm2", "mpt", "nystromformer"}  # in attention
KINDS = {
    "decoder": (CAUSAL, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    "both": (SEQ2SEQ, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
    "encoder": (ENCODER, auto.MODEL_MAPPING_NAMES),
}


def dropping(kind, p, **extra):
    """A model with attention dropout p and no other."""
    config = small(kind.config_class, **extra)
    for name, x in config.to_dict().items():
        if "drop" in name and type(x) in (int, float):
            setattr(config, name, p if name in ATTENTION_DROPOUT else 0.0)
    config._attn_implementation = "ordo"
    torch.manual_seed(0)
    return kind(config)


def step(model, role, seed, train):
    """Logits and gradients of a padded batch."""
    transformers.set_seed(seed)
    inputs = dict(input_ids=TOKENS, attention_mask=PADDING)
    if role != "encoder":
        inputs["use_cache"] = False
    if role == "both":
        inputs["decoder_input_ids"] = TARGETS
    made = model.train(train)(**inputs)
    made = made.last_hidden_state if role == "encoder" else made.logits
    return made.detach(), backward(model, made)


@pytest.mark.parametrize("role, name", [(role, name) for role in KINDS for name in KINDS[role][0]])
def test_dropout_and_repeats(role, name):
    """Equal bits of logits and gradients twice, without dropout and, from the same seed, with it;
    another seed drops others."""
    table, mapping = KINDS[role]
    dropped = name not in NO_DROPOUT
    model = dropping(class_of(name, mapping), 0.5 if dropped else 0.0, **table[name])
    plain = step(model, role, 1, train=False)
    assert equal(plain, step(model, role, 1, train=False)), "without dropout"
    one = step(model, role, 1, train=True)
    assert equal(one, step(model, role, 1, train=True)), "with dropout"
    for other in (plain, step(model, role, 2, train=True)):
        assert same(one[0], other[0]) == same(one[1], other[1]) == (not dropped)


@pytest.mark.parametrize("name", sorted(SPARSE))
def test_chosen_keys_are_refused(name):
    """Where the model chooses fewer keys than there are."""
    kind = class_of(name, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    with pytest.raises(ordo.Error, match="the query sees key .*, which is not chosen: expected all"):
        pair(kind, **MLA, index_topk=3)[0](TOKENS)


# ---- docs/guide/transformers.md ----


TRIED = Path(__file__).resolve().parents[2] / "data" / "transformers.txt"


def listed(found):
    """One row for all names that share their other cells."""
    groups = {}
    for name, *cells in found:
        groups.setdefault(tuple(cells), []).append(name)
    return "".join(f"| {' | '.join(cells)} | {', '.join(names)} |\n" for cells, names in groups.items())


def tables():
    """The tables of the models above, and of those that architectures.py tried."""
    found = []
    for kind, (names, _) in KINDS.items():
        own = dict.fromkeys(names, "ordo") | dict.fromkeys(OWN, "its own, as with `eager`")
        own |= dict.fromkeys(SPARSE, "ordo up to `index_topk` keys, else refused")
        own |= dict.fromkeys(SINGLE, "ordo, on the CPU")
        drop = dict.fromkeys(names, "ordo") | dict.fromkeys(OWN, "its own")
        drop |= dict.fromkeys(NO_DROPOUT, "it has none")
        found += [(name, kind, own[name], drop[name]) for name in sorted(names)]
    known = {*CAUSAL, *SEQ2SEQ, *ENCODER}
    said = {"ordo": "ordo", "cpu": "ordo, on the CPU", "part": "ordo, its own in some layers", "own": "its own, or none", "refused": "refused"}
    tried = (line.split() for line in TRIED.read_text().splitlines()[1:])
    return listed(found), listed((name, "other", said[result], "") for name, result in tried if name not in known)


def test_the_page_is_up_to_date(root):
    page = (root / "docs/guide/transformers.md").read_text()
    assert all(f"|---|---|---|---|\n{x}" in page for x in tables()), "run this file for its tables"
    assert f"make no causal mask in `eager` either: {', '.join(sorted(NOT_CAUSAL))}." in page


if __name__ == "__main__":
    print(*tables(), sep="\n", end="")
