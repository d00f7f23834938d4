"""A training step of attention, twice: the same bits. Run: see docs/guide/torch.md."""

import numpy as np

import ordo

BATCH, HEADS, KV_HEADS, ROWS, DIM = 2, 8, 2, 256, 64

rng = np.random.default_rng(0)
q, dout = (rng.standard_normal((BATCH, ROWS, HEADS, DIM), np.float32) for _ in range(2))
k, v = (rng.standard_normal((BATCH, ROWS, KV_HEADS, DIM), np.float32) for _ in range(2))

problem = ordo.Problem(
    batch=BATCH,
    heads=HEADS,
    kv_heads=KV_HEADS,
    q_len=ROWS,
    head_dim=DIM,
    mask="causal",
    dropout=0.1,
)
plan = ordo.Plan(problem)
print(plan.info.numeric_key, "keeps", ", ".join(plan.info.kept))


def step(plan, threads):
    o, lse = ordo.forward(plan, q, k, v, seed=1, threads=threads)
    dq, dk, dv = ordo.backward(plan, q, k, v, o, lse, dout, seed=1, threads=threads)
    return {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


first = {name: ordo.digest(x) for name, x in step(plan, threads=1).items()}
print(*(f"{name:4} {digest}" for name, digest in first.items()), sep="\n")

# Later, elsewhere, with other threads: the plan's line, kept with the checkpoint, is enough.
again = ordo.Plan.parse(plan.line)
second = {name: ordo.digest(x) for name, x in step(again, threads=4).items()}
print("equal" if first == second else "DIFFERENT")
