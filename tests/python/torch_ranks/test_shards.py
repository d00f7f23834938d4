"""The parts of ordo.torch.distributed that need no processes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ordo
import pytest
import torch
from ordo.torch.distributed import context_parallel_attention
from ordo.torch.distributed._context import choose
from ordo.torch.distributed._exchange import Ranks
from ordo.torch.distributed._job import KEY_TILE, Document, Job
from ordo.torch.distributed._relay import chain_of, timetable
from ordo.torch.distributed._shards import even, rows_of


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
@pytest.mark.parametrize("total", [0, 1, 7, 23])
def test_even_shards_are_those_of_tensor_split(layout, total):
    chunks = torch.arange(total).tensor_split(6 if layout == "zigzag" else 3)
    for rank in range(3):
        mine = [chunks[rank], *([chunks[5 - rank]] if layout == "zigzag" else [])]
        found = [x for s in even(total, 3, layout).of(rank) for x in range(s.start, s.end)]
        assert found == torch.cat(mine).tolist()


@pytest.mark.parametrize("head_dim", [64, 128, 192, 256, 512])
@pytest.mark.parametrize("machine", ["host", "h200"])
def test_key_gradients_are_computed_for_whole_tiles(machine, head_dim):
    problem = ordo.Problem(dtype="bf16", q_len=4096, head_dim=head_dim, mask="causal")
    tile = ordo.Plan(problem, machine=ordo.Machine(machine)).info.backward_tile
    assert KEY_TILE % tile.q == 0 and KEY_TILE % tile.k == 0


def test_a_tile_belongs_to_the_rank_that_holds_its_first_row():
    rows = rows_of([10, 50, 3, 80], "contiguous")
    whole = Document(0, 1, 0, (0, 143), (0, 143))
    chain = chain_of(whole, rows, rows, 64, True)
    assert [(s.rank, s.first, s.last) for s in chain.stages] == [(3, 64, 143), (0, 0, 64)]
    assert sum(held.length for _, held in chain.pieces) == 143
    chain = chain_of(whole, rows, rows, 16, False)
    assert [(s.rank, s.first, s.last) for s in chain.stages] == [
        (0, 0, 16), (1, 16, 64), (3, 64, 143)
    ]  # fmt: skip


@pytest.mark.parametrize("layout, most", [("contiguous", 1), ("zigzag", 2)])
def test_a_rank_computes_as_many_stages_at_a_time_as_it_has_of_a_chain(layout, most):
    rows = even(211, 4, layout)
    documents = [(0, 211), (0, 20), (20, 211)]
    chains = [chain_of(Document(i, 1, 0, x, x), rows, rows, 16, True) for i, x in enumerate(documents)]
    table = timetable(chains, 6)
    for items in table:
        ranks = Counter(chains[c].stages[s].rank for c, _, s in items if s >= 0)
        assert max(ranks.values(), default=0) <= most
    for c, chain in enumerate(chains):
        for h in range(6):
            stages = [(time, s) for time, items in enumerate(table) for x, y, s in items if (x, y) == (c, h)]
            assert [s for _, s in stages] == list(range(-1, len(chain.stages)))
            assert [time - stages[0][0] for time, _ in stages] == list(range(len(stages)))
    whole = timetable(chains[:1], 32)
    assert len(whole) == 32 + len(chains[0].stages)  # no gaps: a pipe that fills once


@pytest.mark.parametrize(
    "device, ranks, kv_heads, sequences, columns, method",
    [
        ("cuda", 4, 8, 1, 100, "heads"),
        ("cuda", 3, 8, 1, 8192, "relay"),
        ("cuda", 3, 8, 1, 8191, "gather"),  # packets that leave a GPU idle
        ("cpu", 3, 8, 1, 100, "relay"),
        ("cpu", 8, 4, 1, 8192, "gather"),  # a pipe that never fills
        ("cpu", 8, 4, 3, 8192, "relay"),
    ],
)
def test_auto_follows_heads_ranks_and_columns(device, ranks, kv_heads, sequences, columns, method):
    shards, document = even(columns, ranks, "zigzag"), Document(0, sequences, 0, (0, columns), (0, columns))
    job: Any = Job(Ranks(None, 0, ranks), shards, shards, (document,), None, kv_heads, kv_heads, None)
    assert choose(job, device) == method


def test_without_a_group_the_error_says_what_is_missing():
    x = torch.ones(1, 4, 1, 8)
    with pytest.raises(ordo.Error, match="init_process_group"):
        context_parallel_attention(x, x, x)
