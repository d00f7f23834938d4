"""Rows of a sampler on one H200: the keys and values that a forward pass reads per time, over what a copy on the
device reads and writes; with other libraries beside.

    ours       ordo.torch.attention, q (batch, row, head, dim), keys dense ("contiguous") or in shuffled
               pages of 256, 64, 16 and 1 rows
    sdpa       PyTorch's scaled_dot_product_attention on dense keys, by whatever backend it takes
    fa3        flash_attn_with_kvcache of FlashAttention-3 on pages of 256 rows, if it can be imported;
               fa3_one with one split, whose sums have one order
    copy       of as many bytes as half of the keys and values

Results of others may differ by rounding; ours are compared with each other bit by bit.
"""

from __future__ import annotations

import driver
from show import Column, figure, over, tile_rate, time_over

PEERS = {"fa3": "flash_attn_interface"}
PAGES = (256, 64, 16, 1)
HEADS = ((32, 8, 128), (64, 8, 128), (16, 16, 128), (8, 1, 128), (32, 8, 64), (16, 8, 256))


def units(row: dict) -> int:
    return row["batch"] * row["kv_heads"]


def of_fa3(row: dict, suffix: str) -> float | None:
    if units(row) >= 64 and row["keys"] >= 4096:
        return 0.9
    return 0.6 if units(row) == 8 and row["keys"] >= 32768 else None


COLUMNS = [
    tile_rate("÷ copy", "contiguous", "copy"),
    Column("÷ FA3", lambda row, x: over(figure(row, "fa3"), figure(row, "contiguous")), must=of_fa3),
    Column("÷ FA3, one split", lambda row, x: over(figure(row, "fa3_one"), figure(row, "contiguous"))),
    Column("÷ sdpa", lambda row, x: over(figure(row, "sdpa"), figure(row, "contiguous"))),
    *(
        Column(
            f"page {page} ÷ contiguous",
            lambda row, x, page=page: over(figure(row, "contiguous"), figure(row, f"page_{page}")),
            must=bar,
        )
        for page, bar in zip(PAGES, (0.95, 0.95, 0.95, 0.80))
    ),
    time_over("ms ÷ the long one alone", "ragged", "long", must=1.15),
]


def load(args):
    return driver.use_torch(args, "product")


def rows() -> list[dict]:
    sizes = [(batch, keys) for batch in (1, 2, 8, 64) for keys in (8192, 32768, 65536)]
    sizes = [x for x in sizes if x != (64, 65536)]  # pages of all sizes are in memory at a time
    made = [(*HEADS[0], batch, keys, 1) for batch, keys in [*sizes, (16, 8192), (256, 1024)]]
    made += [(*heads, batch, 8192, 1) for heads in HEADS[1:] for batch in (8, 64)]
    made += [(*HEADS[0], batch, 32768, rows) for batch in (1, 8) for rows in (4, 8, 64, 512)]
    each = [
        {
            "name": f"{heads}/{kv_heads} {dim} batch {batch} keys {keys} rows {rows}",
            "heads": heads, "kv_heads": kv_heads, "dim": dim, "batch": batch, "keys": keys, "rows": rows,
        }
        for heads, kv_heads, dim, batch, keys, rows in made
    ]  # fmt: skip
    ragged = {**each[0], "name": "one of 64k keys and 63 of 1k", "batch": 64, "keys": 65536}
    return [*each, {**ragged, "ragged": True}]


def in_pages(torch, keys, values, page: int):
    """The same in shuffled pages, and their table."""
    batch, rows, heads, dim = keys.shape
    table = torch.randperm(batch * rows // page, device=keys.device, dtype=torch.int32)
    order = table.argsort()
    pages = [x.reshape(-1, page, heads, dim)[order].contiguous() for x in (keys, values)]
    return *pages, table.view(batch, rows // page)


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu
    import ordo.torch

    torch, batch, keys = gpu.torch, row["batch"], row["keys"]
    made = dict(dtype=torch.bfloat16, device=gpu.DEVICE)
    q = torch.randn(batch, row["rows"], row["heads"], row["dim"], **made)
    lengths = [keys] + [1024 if row.get("ragged") else keys] * (batch - 1)
    lens = torch.tensor(lengths, dtype=torch.int32, device=gpu.DEVICE)
    k, v = (torch.randn(batch, keys, row["kv_heads"], row["dim"], **made) for _ in range(2))
    moved = 4.0 * sum(lengths) * row["kv_heads"] * row["dim"]

    def run(page: int, sequences: int):
        paged = in_pages(torch, k[:sequences], v[:sequences], page)
        given = dict(causal=True, page_table=paged[2], kv_lens=lens[:sequences])
        return lambda: ordo.torch.attention(q[:sequences], *paged[:2], **given)

    with torch.no_grad():
        if row.get("ragged"):
            contest.add("ragged", run(256, batch), tiles=moved)
            contest.add("long", run(256, 1))
            return
        dense = lambda: ordo.torch.attention(q, k, v, causal=True)  # noqa: E731
        contest.add("contiguous", dense, tiles=moved)
        expected = dense()
        for page in PAGES:
            one = run(page, batch)
            same = all(torch.equal(a, b) for a, b in zip(one(), expected))
            if same:
                contest.add(f"page_{page}", one, tiles=moved)
            else:
                contest.wrong[f"page_{page}"] = "other bits than those of contiguous keys"
        heads_first = [x.transpose(1, 2) for x in (q, k, v)]
        if row["rows"] == 1:  # without a mask all rows see all keys
            sdpa = torch.nn.functional.scaled_dot_product_attention
            contest.add("sdpa", lambda: sdpa(*heads_first, enable_gqa=True))
        for name, module in contest.peers.modules.items():
            paged = in_pages(torch, k, v, 256)
            given = dict(cache_seqlens=lens, page_table=paged[2], causal=True)
            attend = module.flash_attn_with_kvcache
            contest.add(name, lambda: attend(q, *paged[:2], **given))
            contest.add(f"{name}_one", lambda: attend(q, *paged[:2], num_splits=1, **given))
        half = torch.empty(int(moved) // 4, **made)
        source = torch.empty_like(half)
        contest.add("copy", lambda: half.copy_(source), tiles=moved)
