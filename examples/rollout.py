"""A sampler with pages of keys has the bits of training.

PYTHONPATH=python python3 examples/rollout.py        (CPU or GPU; see docs/guide/sampling.md)

Requests arrive at random and are computed in chunks and batches of any size. Their keys lie in pages
that are shared between requests with one prefix, forked, taken away and computed again, shuffled, and
full of NaN where nothing is. One layer has a window, and its cache forgets the keys before it. Then
each text goes through the same model at once, as in training: no bit of attention differs. The
control, in which the window's cache does not say how many keys it forgot, has to fail.
"""

import argparse
import random
import sys

import torch
import torch.nn.functional as F
from ordo.torch import attention, invariant
from torch import nn

VOCABULARY, HEADS, KV_HEADS, DIM, PAGE, PAGES = 61, 4, 2, 16, 16, 80
WIDTH, WINDOWS, LONGEST = HEADS * DIM, (None, 140), 240  # the second layer sees 140 keys back


class Layer(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = (-1, -1) if window is None else (window, 0)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.qkv = nn.Linear(WIDTH, WIDTH + 2 * KV_HEADS * DIM)
        self.sink = nn.Parameter(torch.randn(HEADS))

    def heads(self, x):
        parts = self.qkv(self.norm(x)).unflatten(-1, (-1, DIM))
        return parts.split((HEADS, KV_HEADS, KV_HEADS), dim=-2)

    def attend(self, q, k, v, **where):
        return attention(q, k, v, causal=True, window=self.window, sink=self.sink, **where)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer(window) for window in WINDOWS)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens, places, attend):
        """Log-probabilities of what follows each token; attend(layer, q, k, v) is the cache's."""
        x = self.tokens(tokens) + self.places(places)
        for layer in self.layers:
            x = x + layer.out(attend(layer, *layer.heads(x)).flatten(-2))
        return F.log_softmax(F.linear(self.norm(x), self.tokens.weight).float(), dim=-1)


class Pool:
    """The pages of one layer, and who uses them."""

    def __init__(self, like):
        self.k, self.v = (like.new_full((PAGES, PAGE, KV_HEADS, DIM), torch.nan) for _ in "kv")
        self.users, self.free = [0] * PAGES, list(range(PAGES))

    def take(self):
        page = self.free.pop(random.randrange(len(self.free)))
        self.users[page] = 1
        return page

    def drop(self, page):
        self.users[page] -= 1
        if self.users[page] == 0:
            self.k[page] = self.v[page] = torch.nan
            self.free.append(page)


class Request:
    def __init__(self, tokens, length):
        self.tokens, self.length = tokens, length  # the prompt, and the final length
        self.done = 0  # tokens whose keys are in the cache
        self.tables = [[] for _ in WINDOWS]  # pages; None: forgotten
        self.seen = [{} for _ in WINDOWS]  # o and lse of each place
        self.scores = {}

    def fork(self, pools):
        """Another request that begins as this one: whole pages are shared, the last one is copied."""
        other = Request(self.tokens[: self.done + 1], random.randint(self.done + 1, LONGEST))
        other.done = self.done
        for pool, table, mine in zip(pools, other.tables, self.tables):
            for x, page in enumerate(mine):
                if page is not None and (x + 1) * PAGE > self.done:
                    copy = pool.take()
                    pool.k[copy], pool.v[copy] = pool.k[page], pool.v[page]
                    page = copy
                elif page is not None:
                    pool.users[page] += 1
                table.append(page)
        return other

    def evict(self, pools):
        for pool, table in zip(pools, self.tables):
            for page in table:
                if page is not None:
                    pool.drop(page)
            table.clear()
        self.done = 0


class Cache:
    """What some requests in one batch store and read."""

    def __init__(self, model, pools, batch, says_starts):
        self.model, self.pools, self.batch, self.says_starts = model, pools, batch, says_starts
        self.device = pools[0].k.device

    def ints(self, numbers):
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)

    def __call__(self, layer, q, k, v):
        at = list(self.model.layers).index(layer)
        pool, row, starts, pages, rows = self.pools[at], 0, [], [], []
        for request, count in self.batch:
            table = request.tables[at]
            for place in range(request.done, request.done + count):
                if place // PAGE == len(table):
                    table.append(pool.take())
                pages.append(table[-1])
                rows.append(place % PAGE)
            first = request.done - layer.window[0] if layer.window[0] >= 0 else 0
            for x in range(max(first, 0) // PAGE):  # no row sees these pages any more
                if table[x] is not None:
                    pool.drop(table[x])
                    table[x] = None
            starts.append(sum(page is None for page in table) * PAGE)
        pool.k[pages, rows], pool.v[pages, rows] = k, v
        ends = [request.done + count for request, count in self.batch]
        tables = [request.tables[at] for request, _ in self.batch]
        if not self.says_starts:  # the control: as if the sequence began with what is stored
            ends = [end - start for end, start in zip(ends, starts)]
            tables = [table[start // PAGE :] for table, start in zip(tables, starts)]
            starts = [0] * len(starts)
        longest = max(map(len, tables))
        table = [[-1 if p is None else p for p in x] + [-1] * (longest - len(x)) for x in tables]
        counts = [count for _, count in self.batch]
        o, lse = layer.attend(
            q, pool.k, pool.v, cu_q=self.ints([0, *counts]).cumsum(0, dtype=torch.int32),
            max_q=max(counts), page_table=self.ints(table), kv_lens=self.ints(ends),
            kv_starts=self.ints(starts),
        )  # fmt: skip
        row = 0
        for request, count in self.batch:
            for place in range(request.done, request.done + count):
                request.seen[at][place] = o[row], lse[:, row]
                row += 1
        return o


@torch.no_grad()
def rollout(model, says_starts):
    """Generate some texts greedily; returns the requests."""
    pools = [Pool(model.tokens.weight) for _ in WINDOWS]
    prefix = [random.randrange(VOCABULARY) for _ in range(40)]
    waiting = [
        Request(prefix + [random.randrange(VOCABULARY) for _ in range(n)], LONGEST)
        for n in (150, 3, 90)
    ]
    running, ended, steps = [], [], 0
    while waiting or running:
        if waiting and (not running or random.random() < 0.3):
            running.append(waiting.pop())
        steps += 1
        if steps in (20, 40):  # one sequence becomes two
            running.append(random.choice([x for x in running if x.done]).fork(pools))
        if steps == 60:  # its pages go to others; it is computed again
            running[0].evict(pools)
        batch = [
            (x, min(random.choice((1, 7, 64)), len(x.tokens) - x.done))
            for x in running
            if random.random() < 0.8
        ]
        if not batch:
            continue
        device = model.tokens.weight.device
        tokens = [t for x, n in batch for t in x.tokens[x.done : x.done + n]]
        places = [p for x, n in batch for p in range(x.done, x.done + n)]
        cache = Cache(model, pools, batch, says_starts)
        scores = model(
            torch.tensor(tokens, device=device), torch.tensor(places, device=device), cache
        )
        row = 0
        for x, n in batch:
            for place in range(x.done, x.done + n):
                x.scores[place] = scores[row]
                row += 1
            x.done += n
            if x.done == len(x.tokens) < x.length:
                x.tokens.append(int(scores[row - 1].argmax()))
            elif x.done == x.length:
                x.evict(pools)
                ended.append(x)
        running = [x for x in running if x not in ended]
    return ended


def differing(model, request):
    """(attention, lse, log-probabilities): elements that one training pass computes otherwise."""
    device, seen = model.tokens.weight.device, []

    def attend(layer, q, k, v):
        o, lse = layer.attend(q[None], k[None], v[None])
        seen.append((o[0], lse[0]))
        return o[0]

    tokens = torch.tensor(request.tokens, device=device)
    scores = model(tokens, torch.arange(len(tokens), device=device), attend)
    scores.gather(1, tokens[:, None]).sum().backward()
    counts = [0, 0, 0]
    for (o, lse), places in zip(seen, request.seen):
        for place, (row, row_lse) in places.items():
            counts[0] += int((row != o[place]).sum())
            counts[1] += int((row_lse != lse[:, place]).sum())
    for place, row in request.scores.items():
        counts[2] += int((row != scores[place]).sum())
    return counts


def main():
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    random.seed(3)
    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model().to(device, torch.bfloat16)
    with invariant():  # linear layers, norms and log-softmax, too, are those of single rows
        for says_starts in (True, False):
            print("With kv_starts." if says_starts else "The control, without kv_starts.", end=" ")
            print("Elements of attention, lse and log-probabilities that differ:")
            total = [0, 0, 0]
            for request in rollout(model, says_starts):
                counts = differing(model, request)
                print(f"  {len(request.tokens):3} tokens:", *counts, flush=True)
                total = [a + b for a, b in zip(total, counts)]
            if says_starts == any(total):
                sys.exit("DIFFERENT" if says_starts else "the control did not fail")
    print("equal")


main()
