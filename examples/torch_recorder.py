"""Two runs of one training script, recorded and compared: where does the second one go astray?

PYTHONPATH=python python3 examples/torch_recorder.py     (CPU or GPU; see docs/guide/recorder.md)
"""

import tempfile
from pathlib import Path

import torch

import ordo

device = "cuda" if torch.cuda.is_available() else "cpu"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192)
        self.attention = ordo.Attention(dropout=0.1, causal=True)
        self.out = torch.nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 16).unbind(2)
        return self.out(self.attention(q, k, v).flatten(2))


def train(path, flip_at=None):
    torch.manual_seed(0)
    model = Model().to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = torch.randn(64, 128, 64).to(device, torch.bfloat16)
    with ordo.Recorder(path, model) as recorder:
        for step in range(20):
            if step == flip_at:  # what a fault in memory would do
                with torch.no_grad():
                    model.qkv.weight.view(torch.int16)[5, 7] ^= 1
            ids = [(4 * step + place) % 64 for place in range(4)]
            loss = (model(data[ids]) - data[ids]).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            recorder.step(step, loss, batch=ids)
            optimizer.step()


folder = Path(tempfile.mkdtemp())
for name, flip_at in (("first", None), ("second", None), ("third", 17)):
    train(folder / name, flip_at)
print(ordo.compare(folder / "first", folder / "second"), end="\n\n")
print(ordo.compare(folder / "first", folder / "third"))
print(f"\nordo compare {folder}/first {folder}/third --html difference.html")
