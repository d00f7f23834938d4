"""A training run whose recorder saves calls of attention; one bit of one saved result is damaged, and
an audit finds it: every bit is computed again on a CPU.

PYTHONPATH=python python3 examples/audit.py     (GPU, or the emulator of one; see docs/guide/audit.md)
"""

import os
import tempfile
from pathlib import Path

import torch

import ordo

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["ORDO_EMULATE"] = "h200"


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192)
        self.attention = ordo.Attention(dropout=0.1, causal=True)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 32).unbind(2)
        return x + self.attention(q, k, v).flatten(2)


torch.manual_seed(0)
model = torch.nn.Sequential(*[Layer() for _ in range(4)]).to(device, torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = torch.randn(8, 2, 200, 64).to(device, torch.bfloat16)
folder = Path(tempfile.mkdtemp())
calls = folder / "calls"
with ordo.Recorder(folder / "run.jsonl", model, calls=calls, calls_every=2) as recorder:
    for step, x in enumerate(data):
        loss = (model(x) - x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        recorder.step(step, loss)
        optimizer.step()

for file in sorted(calls.iterdir()):
    print(file.name)
print(ordo.audit(calls), end="\n\n")

file = sorted(calls.iterdir())[2]
with open(file, "r+b") as damaged:  # the last tensor of a file is dv: two bytes an element
    damaged.seek(-2 * 100 - 2, os.SEEK_END)
    byte = damaged.read(1)[0]
    damaged.seek(-1, os.SEEK_CUR)
    damaged.write(bytes([byte ^ 1]))
print(ordo.audit(calls))
