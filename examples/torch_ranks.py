"""Attention inside PyTorch's context_parallel(), with the bits of one process.

PYTHONPATH=python torchrun --standalone --nproc-per-node 4 examples/torch_ranks.py

context_parallel() divides the buffers given to it in place: zigzag, as its load balancer does by
default. Its ring would be called through F.scaled_dot_product_attention; ordo is called by name.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

import ordo
import ordo.torch
from ordo.torch.distributed import context_parallel_attention, unshard_sequence

cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if cuda else "cpu"
mesh = init_device_mesh("cuda" if cuda else "cpu", (dist.get_world_size(),))
torch.manual_seed(0)
rows = 64 * dist.get_world_size()
q, k, v, dout = (torch.randn(1, rows, 8, 64, device=device).bfloat16() for _ in range(4))


def step(attention, q, k, v, dout):
    """o and the gradients of q, k and v."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    o, _ = attention(q, k, v, causal=True, dropout_p=0.1, seed=(7, 0))
    return [o.detach(), *torch.autograd.grad(o, (q, k, v), dout)]


def over_ranks(q, k, v, **options):
    return context_parallel_attention(q, k, v, group=mesh.get_group(), layout="zigzag", **options)


one = step(ordo.torch.attention, q, k, v, dout)
with context_parallel(mesh, buffers=[q, k, v, dout], buffer_seq_dims=[1, 1, 1, 1]):
    many = step(over_ranks, q, k, v, dout)  # q has rows / ranks rows here
many = [unshard_sequence(x, 1, group=mesh.get_group(), layout="zigzag") for x in many]
if dist.get_rank() == 0:
    for name, x, y in zip(("o", "dq", "dk", "dv"), one, many):
        same = "equal" if torch.equal(x, y) else "DIFFERENT"
        print(f"{name:2} of one call {ordo.digest(x)}, over {dist.get_world_size()} ranks "
              f"{ordo.digest(y)}: {same}")
if not cuda:  # gloo's threads release their last tensors before Python ends
    dist.monitored_barrier()
dist.destroy_process_group()
