"""What the ranks of test_ordered_sums.py do. Digests are hexadecimal texts.

PYTHONPATH=python:tests/python python3 tests/python/torch_ranks/sums_work.py FOLDER

Writes what each rank found to FOLDER/FUNCTION-RANKS-RANK.json.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import ordo
import torch
import torch._dynamo  # DDP loads it: here for all ranks
import torch.distributed as dist
from kit import launch
from ordo.torch import distributed as od
from reference import tree
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def digest(tensors):
    made = hashlib.sha256()
    for x in tensors:
        made.update(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return made.hexdigest()[:16]


def leaf(index, dtype, shape=(37, 11)):
    """Values whose sum depends on the order; some zeros of either sign."""
    made = torch.Generator().manual_seed(1000 + index)
    x = torch.randn(shape, generator=made) * 2.0 ** torch.randint(-13, 14, shape, generator=made)
    x[0, :4] = torch.tensor([0.0, -0.0, -0.0, 0.0])
    return x.to(DTYPES[dtype])


# ---- plain functions ----


def functions(count, dtype):
    owned = od.owned_micro_batches(count)
    leaves = [leaf(x, dtype) for x in owned]
    kept = [x.clone() for x in leaves]
    whole = od.ordered_all_reduce(leaves)
    piece = od.ordered_reduce_scatter(leaves)
    assert all(torch.equal(a, b) for a, b in zip(leaves, kept))  # inputs are left alone
    ranks, rank = dist.get_world_size(), dist.get_rank()
    width = -(-whole.numel() // ranks)
    assert torch.equal(piece, whole.view(-1)[rank * width : (rank + 1) * width])
    mean = od.ordered_mean([float(x.float().sum()) for x in leaves])
    expected = tree([leaf(x, dtype).float() for x in range(count)])
    arrival = sum(leaf(x, dtype).float() for x in range(count))
    assert count == 1 or not torch.equal(arrival, expected)  # the order can be seen in the bits
    return {
        "sum": digest([whole]),
        "plain": digest([expected]),
        "averaged": digest([od.ordered_all_reduce(leaves, mean=True)]),
        "mean": digest([mean]),
    }


def interleaved(count):
    """Rank r owns r, r + ranks, ...: no aligned blocks at all."""
    owned = range(dist.get_rank(), count, dist.get_world_size())
    return digest([od.ordered_all_reduce([leaf(x, "bf16") for x in owned], owned=list(owned))])


# ---- gradients ----


class Zero(torch.autograd.Function):
    """0, with the gradient -0."""

    @staticmethod
    def forward(ctx, x):
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, dy):
        return torch.full((5,), -0.0, dtype=dy.dtype)


class Net(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(9, 21), nn.Linear(21, 7)
        self.norm = nn.LayerNorm(21)
        self.unused = nn.Parameter(torch.ones(3))
        self.zero = nn.Parameter(torch.ones(5))  # its gradient is -0 in every micro-batch
        self.to(DTYPES[dtype])

    def forward(self, x):
        return self.second(torch.tanh(self.norm(self.first(x)))) + Zero.apply(self.zero)


def loss_of(model, index, dtype):
    made = torch.Generator().manual_seed(77 + index)
    x = torch.randn((5, 9), generator=made).mul(2.0 ** (index % 5)).to(DTYPES[dtype])
    return model(x).float().square().mean()


def result(parameters, dtype):
    """Digests of the gradients, of their norm, and of the clipped gradients."""
    norm = od.ordered_grad_norm(parameters)
    whole = [gathered(p.grad) for p in parameters]
    assert any(x.shape == (5,) and torch.signbit(x).all() for x in whole)
    again = od.ordered_clip_grad_norm_(parameters, 0.01)
    assert torch.equal(norm, again)
    exact = torch.cat([x.double().reshape(-1) for x in whole]).norm()
    assert abs(float(norm) - float(exact)) <= 1e-6 * float(exact)
    clipped = [gathered(p.grad) for p in parameters]
    assert torch.cat([x.double().reshape(-1) for x in clipped]).norm() < 0.0101
    return {"gradients": digest(whole), "norm": digest([norm]), "clipped": digest(clipped)}


def gathered(x):
    return (x.full_tensor() if hasattr(x, "full_tensor") else x).clone()


def expected_gradients(count, dtype):
    """Each micro-batch alone, then the tree; used parameters only."""
    model, leaves = Net(dtype), []
    parameters = [p for p in model.parameters() if p is not model.unused]
    for index in range(count):
        leaves.append(torch.autograd.grad(loss_of(model, index, dtype), parameters))
        (loss_of(model, index, dtype) / count).backward()
    sums = [(tree([x.float() for x in each]) / count).to(DTYPES[dtype]) for each in zip(*leaves)]
    assert digest(sums) != digest([p.grad for p in parameters])  # added in the order of arrival
    return sums


def gradients(count, dtype):
    """OrderedGradients, two steps: the second must not see anything of the first."""
    model = Net(dtype)
    ordered = od.OrderedGradients(model.parameters(), count)
    for _ in range(2):
        model.zero_grad()
        a_step(ordered, model, ordered.owned, dtype)
    assert model.unused.grad is None
    used = [p for p in model.parameters() if p is not model.unused]
    assert digest([p.grad for p in used]) == digest(expected_gradients(count, dtype))
    return result(used, dtype)


def ddp(count, dtype, view):
    model = Net(dtype)
    del model.unused
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=view, bucket_cap_mb=0.001)
    ordered = od.OrderedDDP(wrapped, count)
    for _ in range(3):  # DDP makes its buckets anew after the first
        wrapped.zero_grad()
        a_step(ordered, wrapped, ordered.owned, dtype)
    return result(list(model.parameters()), dtype)


def fsdp(count, dtype, reduce_dtype):
    model = Net("f32" if reduce_dtype else dtype)
    del model.unused
    policy = MixedPrecisionPolicy()
    if reduce_dtype:
        policy = MixedPrecisionPolicy(param_dtype=DTYPES[dtype], reduce_dtype=DTYPES[reduce_dtype])
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.second, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    ordered = od.OrderedFSDP(model, count)
    for _ in range(2):
        model.zero_grad()
        a_step(ordered, model, ordered.rounds, dtype)
    return result(list(model.parameters()), dtype)


# ---- all of it, in one group ----


def everything():
    """Digests by name; the same for any number of ranks."""
    made = {}
    for dtype in DTYPES:
        for count in (8, 6, 1):
            each = functions(count, dtype)
            assert each["sum"] == each["plain"], (count, dtype)
            made |= {f"{name} of {count}, {dtype}": x for name, x in each.items()}
        made[f"gradients, {dtype}"] = gradients(8, dtype)
        made[f"ddp, {dtype}"] = ddp(8, dtype, view=dtype == "bf16")
        made[f"fsdp, {dtype}"] = fsdp(8, dtype, None)
    made["interleaved"] = interleaved(8)
    made["fsdp, bf16 reduced in f32"] = fsdp(8, "bf16", "f32")
    return made


# ---- mistakes ----


def refused(function, *args, **options):
    """The message that this rank gets."""
    try:
        function(*args, **options)
    except (ordo.Error, AttributeError) as error:
        return str(error)
    return "accepted"


def a_step(ordered, model, indices, dtype="f32"):
    for index in indices:
        with ordered.micro_batch(index):
            loss_of(model, index or 0, dtype).backward()
    if isinstance(ordered, od.OrderedGradients):  # the others do it by themselves
        ordered.reduce()


def sharded(shape):
    model = nn.Linear(4, 4)
    names = ("replicate", "shard")[-len(shape) :]
    mesh = dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)
    fully_shard(model, mesh=mesh)
    return model


def outside(model):
    od.OrderedFSDP(model, 2)
    model(torch.ones(3, 4)).sum().backward()


def mistakes():
    """Two ranks, of which rank 1 is wrong; the group works on after each of them."""
    wrong, model = dist.get_rank() == 1, Net("f32")
    x, parameters = leaf(0, "f32"), list(model.parameters())
    reduce = od.ordered_all_reduce
    made = {
        "shape": refused(reduce, [x[:5] if wrong else x]),
        "dtype": refused(reduce, [x.bfloat16() if wrong else x]),
        "type": refused(reduce, [x.long() if wrong else x]),
        "list": refused(reduce, [x, x[0]] if wrong else [x, x]),
        "number": refused(od.ordered_reduce_scatter, [1.0] if wrong else [x]),
        "mean": refused(reduce, [x], mean=wrong),
        "nothing": refused(reduce, []),
        "owned twice": refused(reduce, [x, x], owned=[1, 2] if wrong else [0, 1]),
        "not owned": refused(reduce, [x], owned=[3] if wrong else [0]),
        "owned by some": refused(reduce, [x], owned=[1] if wrong else None),
        "descending": refused(reduce, [x, x], owned=[3, 2] if wrong else [0, 1]),
        "micro_batches": refused(od.OrderedGradients, parameters, 8 if wrong else 4),
        "no micro_batches": refused(od.OrderedGradients, parameters, 0),
        "parameters": refused(od.OrderedGradients, parameters[:2] if wrong else parameters, 4),
        "parameter": refused(od.OrderedGradients, (nn.Linear(9, 3 + wrong)).parameters(), 4),
    }
    ordered = od.OrderedGradients(parameters, 4)
    made["too few"] = refused(a_step, ordered, model, ordered.owned[: 1 if wrong else 2])
    ordered = od.OrderedGradients(parameters, 4)
    made["other"] = refused(a_step, ordered, model, [3, 2] if wrong else [1, 0])
    loss_of(model, 0, "f32").backward()
    made["gradient left"] = refused(a_step, ordered, model, ordered.owned)
    model.zero_grad()
    a_step(ordered, model, ordered.owned)
    model.zero_grad()
    made["one too many"] = refused(a_step, ordered, model, [*ordered.owned, 9])
    del model.unused
    wrapped = DistributedDataParallel(model)
    made["ddp"] = refused(od.OrderedDDP, wrapped, 1)
    made["fsdp, two axes"] = refused(od.OrderedFSDP, sharded((2, 1)), 4)
    made["not fsdp"] = refused(od.OrderedFSDP, model, 4)
    plain = od.OrderedFSDP(sharded((2,)), 4)
    made["fsdp, other"] = refused(plain.micro_batch(3).__enter__)
    made["works on"] = digest([reduce([x])])
    ordered, loss = od.OrderedDDP(wrapped, 4), loss_of(wrapped, 0, "f32")
    made["ddp, outside"] = refused(loss.backward)
    made["fsdp, outside"] = refused(outside, sharded((2,)))
    return made


def work(rank, report, name, folder):
    found = {"everything": everything, "mistakes": mistakes}[name]()
    (folder / f"{name}-{dist.get_world_size()}-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    runs = [("everything", ranks) for ranks in (1, 2, 3, 4, 8)] + [("mistakes", 2)]
    sys.exit(any([launch(work, ranks, name, Path(sys.argv[1])) for name, ranks in runs]))
