"""Generation with a cache has the bits of training: decode = prefill = teacher forcing.

PYTHONPATH=python python3 examples/decode.py        (CPU or GPU; see docs/guide/torch.md)

A small transformer generates greedily, token by token, with keys and values in a cache. Then the
whole text goes through the same model at once, as in training. Attention over one row and a cache
gives the bits of attention over all rows. PyTorch's linear layers do not: their sums depend on how
many rows they get, so that here they get one row at a time.
"""

import torch
import torch.nn.functional as F
from ordo.compat.flash_attn import flash_attn_with_kvcache
from ordo.torch import attention
from torch import nn

VOCABULARY, HEADS, KV_HEADS, DIM, LAYERS, ROOM = 97, 4, 2, 16, 2, 128
WIDTH = HEADS * DIM


def each_row(layer, x):
    """layer(x), one row at a time: its bits do not depend on how many rows there are."""
    return torch.cat([layer(row) for row in x.split(1, dim=1)], dim=1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        kv = KV_HEADS * DIM
        self.before = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH + 2 * kv))
        self.after = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x, cache, length, seen):
        q, k, v = each_row(self.before, x).unflatten(2, (-1, DIM)).split(
            (HEADS, KV_HEADS, KV_HEADS), dim=2
        )
        if cache is None:
            o, _ = attention(q, k, v, causal=True)
        else:
            o = flash_attn_with_kvcache(q, *cache, k, v, cache_seqlens=length, causal=True)
        seen.append(o)
        x = x + each_row(self.after, o.flatten(2))
        return x + each_row(self.mlp, x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(ROOM, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens, caches=(None,) * LAYERS, length=0):
        """Log-probabilities of what follows each token, and the attention outputs of all layers."""
        seen: list[torch.Tensor] = []
        places = torch.arange(length, length + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, length, seen)
        return F.log_softmax(each_row(self.head, x), dim=-1), seen


@torch.no_grad()
def generate(model, tokens, count):
    """Greedy: the text, the log-probability of each new token, attention outputs by layer."""
    shape = (tokens.shape[0], ROOM, KV_HEADS, DIM)
    caches = [[torch.zeros(shape, device=tokens.device) for _ in "kv"] for _ in range(LAYERS)]
    if tokens.is_cuda:
        caches = [[x.bfloat16() for x in pair] for pair in caches]
    chosen, outputs, new, length = [], [], tokens, 0
    for _ in range(count):
        scores, seen = model(new, caches, length)
        length += new.shape[1]
        best = scores[:, -1].max(dim=-1)
        new = best.indices[:, None]
        tokens = torch.cat([tokens, new], dim=1)
        chosen.append(best.values)
        outputs.append(seen)
    joined = [torch.cat(layer, dim=1) for layer in zip(*outputs)]
    return tokens, torch.stack(chosen, dim=1), joined


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = Model().to(device)
if device == "cuda":
    model = model.bfloat16()
prompt = torch.randint(VOCABULARY, (2, 40), device=device)
text, chosen, decoded = generate(model, prompt, count=24)

scores, trained = model(text[:, :-1])  # all rows at once, with gradients
forced = scores[:, prompt.shape[1] - 1 :].gather(2, text[:, prompt.shape[1] :, None])[..., 0]
forced.sum().backward()

print("tokens", *text[0, -10:].tolist())
attention_equal = all(torch.equal(a, b) for a, b in zip(decoded, trained))
print("attention outputs", "equal" if attention_equal else "DIFFERENT")
print("log-probabilities", "equal" if torch.equal(chosen, forced) else "DIFFERENT")
print("equal" if attention_equal and torch.equal(chosen, forced) else "DIFFERENT")
