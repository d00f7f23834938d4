"""A transformers model trained twice with dropout on padded batches: equal bits.

PYTHONPATH=python python3 examples/torch_transformers.py        (CPU or GPU; see docs/guide/torch.md)
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import ordo
import ordo.torch
import ordo.transformers

ordo.torch.reproducible()  # everything around the attention
ordo.transformers.register()
device = "cuda" if torch.cuda.is_available() else "cpu"
config = GPT2Config(n_layer=2, n_head=4, n_embd=256, attn_implementation="ordo")
tokens = torch.arange(4 * 128, device=device).view(4, 128) % 100
mask = torch.ones_like(tokens)
mask[0, 90:] = mask[2, 40:] = 0  # two shorter texts
labels = tokens.masked_fill(mask == 0, -100)


def train(steps):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        with torch.autocast(device, torch.bfloat16):
            loss = model(tokens, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = torch.cat([p.detach().flatten() for p in model.transformer.h.parameters()])
    return f"{loss.item():.6f}", ordo.digest(weights)


first, again = train(5), train(5)
print("loss and digest of the weights:", *first)
print("equal" if first == again else "DIFFERENT")
