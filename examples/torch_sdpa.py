"""PyTorch's own F.scaled_dot_product_attention, run by ordo: the same bits every time.

PYTHONPATH=python python3 examples/torch_sdpa.py        (CPU or GPU; see docs/guide/torch.md)
"""

import torch
import torch.nn.functional as F
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

import ordo
import ordo.torch

ordo.torch.register()  # makes the name known
activate_flash_attention_impl("ORDO")  # from here on, the flash path is ordo
torch.use_deterministic_algorithms(True)  # on a GPU: PyTorch then takes the flash path

device = "cuda" if torch.cuda.is_available() else "cpu"
dropout_p = 0.1 if device == "cuda" else 0.0  # on the CPU PyTorch sends dropout elsewhere
torch.manual_seed(0)
q, k, v = (
    torch.randn(2, 8, 256, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    for _ in range(3)
)


def step():
    torch.manual_seed(7)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    return [out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))]


names = ("out", "dq", "dk", "dv")
first = {name: ordo.digest(x) for name, x in zip(names, step())}
again = {name: ordo.digest(x) for name, x in zip(names, step())}
print(*(f"{name:4} {digest}" for name, digest in first.items()), sep="\n")
print("equal" if first == again else "DIFFERENT")
restore_flash_attention_impl()
