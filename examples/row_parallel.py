"""A row-parallel linear layer over 1, 2, 4 or 8 ranks, with the bits of one device.

PYTHONPATH=python torchrun --standalone --nproc-per-node 4 examples/row_parallel.py

Every rank holds a part of the input features: some columns of x and of the weight. It multiplies them
in whole sections of 8, into float32; the partial sums travel in float32, and the rest of the tree over
the sections is tree_sum(). After the bias a model rounds the result, once: y.bfloat16().
"""

import torch
import torch.distributed as dist

import ordo
import ordo.torch
from ordo.torch import linear

SECTIONS, ROWS, K, N = 8, 37, 512, 96

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x, weight = torch.randn(ROWS, K).bfloat16(), torch.randn(N, K).bfloat16()
bias = torch.randn(N)


part = slice(rank * K // ranks, (rank + 1) * K // ranks)
mine = linear(x[:, part], weight[:, part], sections=SECTIONS // ranks, wide=True)
parts = [torch.empty_like(mine) for _ in range(ranks)]
dist.all_gather(parts, mine)
y = ordo.torch.tree_sum(parts) + bias

one = linear(x, weight, bias, sections=SECTIONS, wide=True)
if rank == 0:
    same = "equal" if torch.equal(y, one) else "DIFFERENT"
    print(f"y of one device {ordo.digest(one)}, over {ranks} ranks {ordo.digest(y)}: {same}")
dist.monitored_barrier()  # gloo's threads release their last tensors before Python ends
dist.destroy_process_group()
