"""Sums over ranks: one digest for 1, 2, 3, 4 and 8 processes, plain, under DDP and under FSDP2.

Each group of processes starts once and does everything (sums_work.py).
"""

from __future__ import annotations

import json
import math
import random

import ordo
import pytest
import torch
import torch.distributed as dist
from ordo.torch import tree_sum
from ordo.torch.distributed import _ordered_norm, _tree, ordered_clip_grad_norm_
from ordo.torch.distributed._ordered import _share
from ordo.torch.distributed._ordered_norm import _norm, _root, _Shard, _squares
from reference import tree
from test_ranks import run
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

RANKS = (1, 2, 3, 4, 8)


def found(folder, name, ranks):
    """What each rank answered."""
    return [json.loads((folder / f"{name}-{ranks}-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("sums")
    run("sums_work.py", str(made))
    return made


@pytest.fixture(scope="module")
def answers(folder):
    return {ranks: found(folder, "everything", ranks) for ranks in RANKS}


@pytest.mark.parametrize("ranks", RANKS)
def test_digests_do_not_depend_on_the_ranks(answers, ranks):
    assert len(answers[ranks]) == ranks
    for answer in answers[ranks]:
        assert answer == answers[1][0]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_ddp_and_fsdp_give_the_bits_of_plain_gradients(answers, dtype):
    answer = answers[3][2]
    assert answer[f"ddp, {dtype}"] == answer[f"gradients, {dtype}"] == answer[f"fsdp, {dtype}"]


def test_the_order_of_ownership_does_not_matter(answers):
    assert answers[3][0]["interleaved"] == answers[1][0]["sum of 8, bf16"]


# ---- mistakes: one clear error on every rank, and no rank that waits for another ----

# what rank 0, which is right, and rank 1 are told
MESSAGES = {
    "shape": ("shape: rank 0 has (37, 11), rank 1 has (5, 11)",) * 2,
    "dtype": ("dtype: rank 0 has torch.float32, rank 1 has torch.bfloat16",) * 2,
    "type": ("rank 1 refused its arguments", "leaves[0].dtype torch.int64: expected float32"),
    "list": ("rank 1 refused its arguments", "leaves[1].shape torch.Size([11]): expected torch.Size([37"),
    "number": ("rank 1 refused its arguments", "'float' object has no attribute 'dtype'"),
    "mean": ("mean: rank 0 has False, rank 1 has True",) * 2,
    "nothing": ("micro_batches 0: expected at least 1",) * 2,
    "owned twice": ("ranks 0 and 1 both own micro-batch 1",) * 2,
    "not owned": ("rank 1 owns micro-batch 3: expected 0 to 1",) * 2,
    "owned by some": ("owned given: rank 0 has False, rank 1 has True",) * 2,
    "descending": ("rank 1 owns micro-batches [3, 2]: expected ascending ones",) * 2,
    "micro_batches": ("micro_batches: rank 0 has 4, rank 1 has 8",) * 2,
    "no micro_batches": ("micro_batches 0: expected at least 1",) * 2,
    "parameters": ("parameters: rank 0 has 8, rank 1 has 2",) * 2,
    "parameter": ("parameter 0: rank 0 has float32 (3, 9), rank 1 has float32 (4, 9)",) * 2,
    "too few": ("rank 1 refused its arguments", "1 of this rank's 2 micro-batches were taken"),
    "other": ("micro-batch 1: expected 0", "micro-batch 3: expected 2, the next of"),
    "gradient left": ("parameter 1 has a gradient already",) * 2,
    "one too many": ("micro-batch 9: all 2 micro-batches of this rank were taken",) * 2,
    "ddp": ("rank 1 owns no micro-batch of 1",) * 2,
    "fsdp, two axes": ("one mesh of one axis",) * 2,
    "not fsdp": ("expected a module under fully_shard()",) * 2,
    "ddp, outside": ("outside OrderedDDP.micro_batch()",) * 2,
    "fsdp, outside": ("outside OrderedFSDP.micro_batch()",) * 2,
    "fsdp, other": ("micro-batch 3: expected 0", "micro-batch 3: expected 2"),
}


def test_ranks_that_disagree_are_told_so(folder):
    right, wrong = found(folder, "mistakes", 2)
    assert right.pop("works on") == wrong.pop("works on")
    assert set(right) == set(wrong) == set(MESSAGES)
    for name, messages in MESSAGES.items():
        assert messages[0] in right[name] and messages[1] in wrong[name], name


# ---- the tree, without processes ----


def test_any_cut_of_the_tree_gives_its_root():
    made = torch.Generator().manual_seed(3)
    for leaves in range(1, 30):
        given = list(torch.randn((leaves, 9), generator=made))
        for ranks in range(1, 9):
            nodes, sums = [], []
            for rank in range(ranks):
                counter = _tree.Counter(_tree.add_tensors)
                for leaf in _share(leaves, ranks, rank):
                    counter.push(_tree.Node(0, leaf), [given[leaf]])
                nodes += counter.nodes
                sums += [each[0].clone() for each in counter.sums]
            assert torch.equal(_tree.fold(nodes[::-1], sums[::-1], leaves), tree_sum(given))


def test_an_aligned_block_needs_few_sums():
    for log in range(8):
        counter = _tree.Counter(lambda level, a, b: None)
        most = 0
        for leaf in range(1 << log):
            counter.push(_tree.Node(0, leaf), None)
            most = max(most, len(counter.sums))
        assert most <= log + 1 and counter.nodes == [_tree.Node(log, 0)]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 4 make a few elements a tree of many blocks and levels."""
    monkeypatch.setattr(_ordered_norm, "_LEVELS", 2)
    monkeypatch.setattr(_ordered_norm, "_BLOCK", 4)
    monkeypatch.setattr(_ordered_norm, "_PIECE", {"cpu": 4})


def test_shards_of_any_cut_give_one_norm(small_blocks):
    draw = random.Random(4)
    for elements in [*range(1, 40), 255, 256, 257, 1023, 3000]:
        x = torch.randn(elements, generator=torch.Generator().manual_seed(elements))
        x[draw.randrange(elements)] = 1e30  # in float64 alone a finite square
        expected = tree(x.double().square().tolist())
        for count in (0, 0, 1, 1, 3, 3):
            cuts = sorted([0, elements, *(draw.randrange(elements + 1) for _ in range(count))])
            shards = [_Shard(x[a:b], a, elements, None) for a, b in zip(cuts, cuts[1:])]
            nodes = [pair for shard in shards for pair in _squares([shard])[0]]
            assert _root(nodes, elements) == expected, (elements, cuts)


def test_norms_of_many_gradients_are_those_of_each():
    """Gradients of all lengths and types share blocks and pieces, and stay apart."""
    draw = torch.Generator().manual_seed(5)
    lengths = [1, 255, 256, 257, 70_000, 3, 0, 300_000, 66_000, 512]
    types = [torch.float32, torch.bfloat16, torch.float16]
    gradients = [torch.randn(n, generator=draw).to(types[x % 3]) for x, n in enumerate(lengths)]
    squares = [tree(x.double().square().tolist()) for x in gradients if len(x)]
    for each, square in zip((x for x in gradients if len(x)), squares):
        assert _norm([each]) == math.sqrt(square)
    assert _norm(gradients) == math.sqrt(tree(squares))
    gradients[4][7] = math.nan
    assert math.isnan(_norm(gradients))
    assert _norm([]) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_clipped_gradients_are_products_of_their_elements(dtype):
    """Rounded once, however many are multiplied in one call."""
    drawn = torch.Generator().manual_seed(4)
    parameters = [torch.nn.Parameter(torch.empty(n, dtype=dtype)) for n in (1, 7, 300)]
    for x in parameters:
        x.grad = torch.randn(x.shape, generator=drawn).to(dtype)
    wanted = [x.grad.clone() for x in parameters]
    norm = ordered_clip_grad_norm_(parameters, 0.37)
    factor = torch.tensor(0.37 / (_norm(wanted) + 1e-6), dtype=torch.float32)
    assert norm == torch.tensor(_norm(wanted), dtype=torch.float32)
    for x, y in zip(parameters, wanted):
        assert torch.equal(x.grad, (y.float() * factor).to(dtype))


def test_sharded_and_whole_gradients_are_clipped_together():
    """As a model has them that is sharded in part."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        parameters = [torch.nn.Parameter(torch.zeros(6)) for _ in range(3)]
        for x in parameters:
            x.grad = torch.arange(6.0)
        whole = distribute_tensor(torch.zeros(6), mesh, [Shard(0)])
        sharded = torch.nn.Parameter(whole)
        sharded.grad = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
        alone = [x.grad.clone() for x in parameters] + [torch.arange(6.0)]
        norm = ordered_clip_grad_norm_([*parameters, sharded], 0.5)
        factor = torch.tensor(0.5 / (_norm(alone) + 1e-6), dtype=torch.float32)
        assert norm == torch.tensor(_norm(alone), dtype=torch.float32)
        for x in (*(x.grad for x in parameters), sharded.grad.full_tensor()):
            assert torch.equal(x, torch.arange(6.0) * factor)
    finally:
        dist.destroy_process_group()


def test_a_norm_above_float32_is_infinite():
    x = torch.nn.Parameter(torch.empty(4))
    x.grad = torch.full((4,), 3e38)
    assert ordered_clip_grad_norm_([x], 1.0) == math.inf
    assert x.grad.abs().max() < 1.1


def test_gradients_that_do_not_fit_are_refused():
    with pytest.raises(ordo.Error, match="expected torch.float32"):
        _tree.add_tensors(0, [torch.ones(3)], [torch.ones(3, dtype=torch.bfloat16)])
    with pytest.raises(ordo.Error, match="shape"):
        _tree.add_tensors(0, [torch.ones(3)], [torch.ones(4)])
