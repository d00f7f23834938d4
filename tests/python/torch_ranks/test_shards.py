"""The parts of ordo.torch.distributed that need no processes."""

from __future__ import annotations

import ordo
import pytest
import torch
from ordo.torch.distributed import context_parallel_attention
from ordo.torch._inputs import Lists, Rules
from ordo.torch.distributed import _auto
from ordo.torch.distributed._auto import Link, gather_time, relay_time
from ordo.torch.distributed._exchange import Ranks
from ordo.torch.distributed._job import KEY_TILE, Document, Job
from ordo.torch.distributed._relay import chain_of, messages, timetable
from ordo.torch.distributed._shards import even, rows_of


def test_zigzag_gives_rank_r_chunks_r_and_2n_minus_1_minus_r():
    rows = even(16, 2, "zigzag")
    assert [(c.rank, c.start, c.end, c.at) for c in rows.chunks] == [
        (0, 0, 4, 0), (1, 4, 8, 0), (1, 8, 12, 4), (0, 12, 16, 4)
    ]  # fmt: skip


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
    assert sum(p.held.length for p in chain.pieces) == 143
    chain = chain_of(whole, rows, rows, 16, False)
    assert [(s.rank, s.first, s.last) for s in chain.stages] == [
        (0, 0, 16), (1, 16, 64), (3, 64, 143)
    ]  # fmt: skip


def test_a_relay_cannot_deadlock():
    """Everything that a step waits for happens at an earlier place of the common order, and both
    sides of every pair see their messages in the same order."""
    rows = rows_of([40, 7, 64, 100], "zigzag")
    documents = [(0, 90), (90, 100), (100, 211)]
    chains = [chain_of(Document(i, 1, 0, x, x), rows, rows, 16, True)
              for i, x in enumerate(documents)]  # fmt: skip
    items = [chain for chain in chains for _ in range(3)]
    tables = [timetable(items, rank) for rank in range(4)]
    for a in range(4):
        assert [t[0] for t in tables[a]] == sorted(t[0] for t in tables[a])
        for b in range(a):
            pair = {a, b}
            seen = [[t[3] for t in tables[r] if t[3] and {t[3].source, t[3].target} == pair]
                    for r in (a, b)]  # fmt: skip
            assert seen[0] == seen[1]
    for item, chain in enumerate(items):
        for m in messages(item, chain):
            sent = item - 1 if m.kind == 0 else item + m.at if m.kind == 1 else (
                item + len(chain.stages) - 1
            )  # fmt: skip
            assert m.time == sent  # after the computation of that time, before the next one


def shape(ranks, kv_heads=4, heads=16, sequences=1, rows=16384, dim=128, p=0.0):
    """A job, a plan for an H200, and what the estimate knows of them."""
    document = Document(0, sequences, 0, (0, rows), (0, rows))
    rules = Rules(0, 0, 1.0, "full", -1, -1, 0.0, p, "ordo", ())
    shards = even(rows, ranks, "contiguous")
    job = Job(Ranks(None, 0, ranks), shards, shards, (document,), rules, heads, kv_heads, Lists())
    problem = ordo.Problem(
        dtype="bf16", batch=sequences, heads=heads, kv_heads=kv_heads, q_len=rows // ranks,
        kv_len=rows // ranks, head_dim=dim, dropout=p,
    )  # fmt: skip
    plan = ordo.Plan(problem, "h200", backend="cuda")
    return job, plan, _auto.shape_of(job, plan, 2, "contiguous")


def test_estimates_follow_the_link_and_the_number_of_heads():
    many, few = (shape(8, n, 32, rows=1 << 17)[2] for n in (32, 1))
    fast, slow = Link(4e11, 5e14), Link(1e9, 5e14)
    assert relay_time(many, 2, fast) < gather_time(many, fast)
    assert relay_time(few, 2, fast) > gather_time(few, fast)  # a pipe that never fills
    assert relay_time(many, 2, slow) > relay_time(many, 2, fast)


H200 = Link(4.5e11, 8e14, 132)


@pytest.mark.parametrize(
    "dim, p, gather",
    [  # docs/results/gpu.md, full masks: 2, 4 and 8 ranks over one call
        (64, 0.0, (1.628, 1.690, 2.363)),
        (128, 0.0, (1.508, 1.564, 2.175)),
        (256, 0.1, (1.063, 1.096, 1.119)),
    ],
)
def test_estimates_of_gather_are_those_measured(dim, p, gather):
    for ranks, measured in zip((2, 4, 8), gather):
        x = shape(ranks, dim=dim, p=p)[2]
        once = (9 if x.apart else 7) / H200.filled(128 * 4)
        assert _auto.gather_products(x, H200) / once == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize("dim, relay", [(64, (1.040, 1.095, 1.232)), (128, (1.034, 1.068, 1.134))])
def test_estimates_of_a_relay_are_those_measured(dim, relay):
    for ranks, measured in zip((2, 4, 8), relay):
        x = shape(ranks, dim=dim)[2]
        backward = _auto.relay_products(x, H200)[1] * H200.filled(128)
        assert (2 + backward) / 7 == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize("dim, p, apart", [(128, 0.1, False), (136, 0.0, False), (136, 0.1, True),
                                           (256, 0.1, True), (512, 0.1, False)])  # fmt: skip
def test_the_plan_says_whether_dq_is_computed_apart(dim, p, apart):
    assert shape(2, dim=dim, p=p)[2].apart == apart


def test_a_plan_with_tiles_of_its_own_is_asked_as_well():
    job, plan, _ = shape(2, dim=192)
    split = ordo.Plan(plan.problem, "h200", backend="cuda", backward_tile=(64, 64))
    assert _auto.shape_of(job, split, 2, "contiguous").apart


def test_auto_counts_what_passes_cost_beyond_their_products():
    def choice(ranks, link, **form):
        job, plan, _ = shape(ranks, **form)
        return _auto.choose(job, plan, 2, "contiguous", link)

    products = H200._replace(workers=0)
    assert choice(4, H200) == "heads"
    assert choice(8, H200) == "gather"  # four packets in a pipe of eight
    # dq alone, and dk and dv alone, run slower than a whole pass
    assert choice(3, products, rows=65536) == "gather"
    assert choice(3, H200, rows=65536) == "relay"
    # a packet of 64 key tiles leaves half of 132 multiprocessors idle
    assert choice(8, products, rows=8192, sequences=4) == "relay"
    assert choice(8, H200, rows=8192, sequences=4) == "gather"


def test_a_link_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("ORDO_LINK_GBS", "fast")
    with pytest.raises(ordo.Error, match="ORDO_LINK_GBS 'fast': expected a number above 0"):
        Link.of(torch.device("cpu"))


def test_without_a_group_the_error_says_what_is_missing():
    x = torch.ones(1, 4, 1, 8)
    with pytest.raises(ordo.Error, match="init_process_group"):
        context_parallel_attention(x, x, x)
