"""A small GPT trained over ranks that divide each sequence: the same bits on 1, 2 and 4 of them.

PYTHONPATH=python torchrun --standalone --nproc-per-node 4 examples/torch_ranks_gpt.py

Attention has the bits of one process whatever the number of ranks. The rest of the model does too,
because a sequence consists of 8 chunks wherever they are: matrix products see one chunk at a time,
and the gradients of the chunks are added in their order. See docs/guide/ranks.md.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F

import ordo
from ordo.torch.distributed import context_parallel_attention, unshard_sequence

CHUNKS, ROWS, WIDTH, HEADS, LAYERS, WORDS = 8, 24, 64, 4, 2, 101


def parameters():
    torch.manual_seed(0)
    shapes = {"words": (WORDS, WIDTH), "places": (CHUNKS * ROWS, WIDTH)}
    for layer in range(LAYERS):
        shapes |= {f"{layer}.in": (WIDTH, 3 * WIDTH), f"{layer}.out": (WIDTH, WIDTH),
                   f"{layer}.up": (WIDTH, 4 * WIDTH), f"{layer}.down": (4 * WIDTH, WIDTH)}
    return {name: torch.randn(shape) * 0.05 for name, shape in shapes.items()}


def attend(chunks, seed, group, seen):
    """Attention of this rank's chunks with the whole sequence; notes q, k, v and o in `seen`."""
    joined = torch.cat(chunks, 1).unflatten(-1, (3, HEADS, WIDTH // HEADS))
    q, k, v = (x.contiguous() for x in joined.unbind(2))
    o, _ = context_parallel_attention(q, k, v, group=group, causal=True, dropout_p=0.1, seed=seed)
    for x in (q, k, v, o):
        if x.requires_grad:
            x.retain_grad()
    seen.append((q, k, v, o))
    return o.flatten(2).split(ROWS, 1)


def loss_of(copies, mine, tokens, step, group, seen):
    """The loss of this rank's chunks. Each has its own copy of the parameters."""
    rows = [slice(c * ROWS, (c + 1) * ROWS) for c in mine]
    xs = [F.embedding(tokens[:, r], p["words"]) + p["places"][r] for p, r in zip(copies, rows)]
    for layer in range(LAYERS):
        inward = [F.layer_norm(x, (WIDTH,)) @ p[f"{layer}.in"] for p, x in zip(copies, xs)]
        outward = attend(inward, (step, layer), group, seen)
        xs = [x + o @ p[f"{layer}.out"] for p, x, o in zip(copies, xs, outward)]
        xs = [x + F.gelu(F.layer_norm(x, (WIDTH,)) @ p[f"{layer}.up"]) @ p[f"{layer}.down"]
              for p, x in zip(copies, xs)]
    following = tokens.roll(-1, 1)
    return [F.cross_entropy((x @ p["words"].T).flatten(0, 1), following[:, r].flatten())
            for p, x, r in zip(copies, xs, rows)]


def train(steps, group=None):
    """Lines of (step, loss, digest of what attention computed, forward and backward)."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mine = range(CHUNKS // size * rank, CHUNKS // size * (rank + 1))
    model, lines = parameters(), []
    for step in range(steps):
        start = torch.randint(WORDS, (2, 1), generator=torch.manual_seed(step))
        tokens = (start + torch.arange(CHUNKS * ROWS)) % WORDS
        copies = [{n: p.clone().requires_grad_() for n, p in model.items()} for _ in mine]
        seen = []
        losses = loss_of(copies, mine, tokens, step, group, seen)
        torch.stack(losses).sum().backward()
        with torch.no_grad():
            found = [torch.stack([p[n].grad for p in copies]) for n in model]
            for name, grads in zip(model, found):
                for grad in unshard_sequence(grads, 0, group=group):  # in the order of the chunks
                    model[name] -= 0.5 / CHUNKS * grad
            loss = unshard_sequence(torch.stack(losses), 0, group=group)
            bits = [unshard_sequence(x, 1, group=group) for q, k, v, o in seen
                    for x in (o.detach(), q.grad, k.grad, v.grad)]
        digest = ordo.digest(torch.cat([x.flatten() for x in bits]))
        lines.append(f"step {step:2}  loss {sum(loss.tolist()) / CHUNKS:.6f}  attention {digest}")
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for line in train(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        if dist.get_rank() == 0:
            print(line)
    dist.destroy_process_group()
