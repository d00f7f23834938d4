"""Transformers models of three families and batches for them: for on_cuda.py and `bench/gpu/run training_steps`.

On a CPU they are small."""

from __future__ import annotations

import torch


def make(name, implementation, p, device):
    """gpt2 (124M), llama (four layers of Llama-3 8B's size) or deepseek, whose heads have 192 columns and
    values of 128, in training; p of attention's dropout. The same weights each time."""
    from transformers import (
        DeepseekV3Config, DeepseekV3ForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig,
        LlamaForCausalLM,
    )  # fmt: skip

    small = device == "cpu"
    torch.manual_seed(0)
    if name == "gpt2":
        config = GPT2Config(**dict(n_layer=2, n_head=2, n_embd=128) if small else {}, attn_pdrop=p)
        kind = GPT2LMHeadModel
    elif name == "deepseek":  # no experts: which are chosen may depend on the last bit
        heads = 2 if small else 16
        config = DeepseekV3Config(
            hidden_size=128 if small else 1024, intermediate_size=256 if small else 2048,
            num_hidden_layers=2, first_k_dense_replace=2, num_attention_heads=heads,
            num_key_value_heads=heads, q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128, vocab_size=1024, max_position_embeddings=4096,
            attention_dropout=p,
        )  # fmt: skip
        kind = DeepseekV3ForCausalLM
    else:
        config = LlamaConfig(
            hidden_size=256 if small else 4096, intermediate_size=512 if small else 14336,
            num_hidden_layers=2 if small else 4, num_attention_heads=2 if small else 32,
            num_key_value_heads=1 if small else 8, vocab_size=32000,
            attention_dropout=p, max_position_embeddings=4096,
        )  # fmt: skip
        kind = LlamaForCausalLM
    config._attn_implementation = implementation
    with torch.device(device):
        return kind(config).train()


def batch(name, kind, device):
    """Tokens with a pattern to learn: dense, padded on the right, or packed (several texts in one row)."""
    small = device == "cpu"
    count, rows = (2, 64) if small else ((8, 1024) if name == "gpt2" else (2, 1024))
    drawn = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 500, (count, rows), generator=drawn).cumsum(1) % 1000
    made = dict(input_ids=tokens, labels=tokens)
    if kind == "padded":
        mask = torch.ones_like(tokens)
        for b in range(count):
            mask[b, rows - (b * rows) // (2 * count) :] = 0
        made.update(labels=tokens.masked_fill(mask == 0, -100), attention_mask=mask)
    if kind == "packed":
        tokens = tokens.view(1, -1)[:, : 2048 if name == "llama" else 8192]
        made.update(input_ids=tokens, labels=tokens)
        made["position_ids"] = torch.arange(tokens.shape[1])[None] % (rows * 3 // 4)
    return {key: x.to(device) for key, x in made.items()}
