"""A transformers model whose sequences are divided over ranks.

PYTHONPATH=python torchrun --standalone --nproc-per-node 2 examples/torch_ranks_transformers.py

Each rank gives the model its tokens and their positions. The attention function sees its rows of q,
k and v, and the mask function makes no mask: the call says what is visible. For each layer the
program feeds what the ranks saw to one call on one process, and compares the bits.
"""

import torch
import torch.distributed as dist
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM

import ordo.torch
from ordo.torch.distributed import context_parallel_attention, shard_sequence, unshard_sequence

calls = []


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """Called by every layer with tensors (batch, head, row, dim)."""
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    o, _ = context_parallel_attention(
        q, k, v, layout="zigzag", causal=True, scale=scaling, dropout_p=dropout, seed=3
    )
    calls.append((q.detach(), k.detach(), v.detach(), o.detach(), scaling))
    return o, None


AttentionInterface.register("ordo_ranks", attend)
AttentionMaskInterface.register("ordo_ranks", lambda *_, **__: None)

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=100, attention_dropout=0.1, attn_implementation="ordo_ranks",
)).train()
tokens = torch.randint(100, (2, 90))
places = torch.arange(90).expand(2, -1)
mine, positions, following = (
    shard_sequence(x, 1, layout="zigzag") for x in (tokens, places, tokens.roll(-1, 1))
)
logits = model(mine, position_ids=positions, use_cache=False).logits
loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
loss.backward()  # gradients of the weights are of this rank's rows: DDP or FSDP2 add them
for layer, (*tensors, scaling) in enumerate(calls):
    q, k, v, o = (unshard_sequence(x, 1, layout="zigzag") for x in tensors)
    one, _ = ordo.torch.attention(q, k, v, causal=True, scale=scaling, dropout_p=0.1, seed=3)
    if dist.get_rank() == 0:
        print(f"layer {layer}: attention of one call is",
              "equal" if torch.equal(one, o) else "DIFFERENT")
dist.monitored_barrier()  # gloo's threads release their last tensors before Python ends
dist.destroy_process_group()
