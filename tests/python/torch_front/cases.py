"""Drawn calls of ordo.torch: an entry, features, and the situation that it is called in.

A case names one value of each axis. draw() chooses cases so that each value of each axis comes in
every situation, and each pair of values in the situations that cost little, as far as `allowed()`
has such cases. Tensors follow from the case's seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ordo
import ordo.torch
import torch
from entries import ENTRIES
from torch import Tensor

AXES: dict[str, tuple[str, ...]] = {
    "entry": tuple(ENTRIES),
    "dtype": ("f32", "bf16", "f16"),
    "layout": ("dense", "packed", "padded", "gaps"),
    "mask": ("full", "causal", "top-left"),
    "window": ("open", "left", "right", "both"),
    "scale": ("default", "given", "negative"),
    "softcap": ("off", "on"),
    "slopes": ("none", "heads", "batch"),
    "sink": ("none", "given"),
    "dropout": ("none", "drawn", "seed", "state", "generator", "fa2", "prepared"),
    "mode": ("auto", "fused", "sequential", "pipelined", "little memory"),
    "ids": ("none", "given"),
    "shard": ("none", "given"),
    "blocks": ("none", "given"),
    "seen": ("none", "given"),
    "bias": ("none", "f32", "as q"),
    "heads": ("equal", "grouped"),
    "dims": ("equal", "unequal", "odd"),
    "lengths": ("equal", "more keys", "fewer keys", "one row", "no keys", "no rows", "no sequence"),
    "strides": ("dense", "heads first", "every second", "one row of many", "negative"),
    "dout": ("dense", "expanded", "strided", "of lse", "of both", "lse expanded", "negative"),
}  # fmt: skip

EMPTY = ("no keys", "no rows", "no sequence")  # kinds of "lengths"
WITHOUT_LSE = ("dense", "expanded", "strided", "negative")  # kinds of "dout" without dlse
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
PLAIN = {
    "eager", "again", "no_grad", "inference", "autocast", "threads", "checkpoint",
    "checkpoint reentrant", "hooks", "hooks with strides", "offload", "retained", "compiled autograd",
}  # fmt: skip  # situations in which tensors are plain

# Rows, head sizes, odd ones, and those of values. A GPU's tiles have 64 to 128 rows.
SIZES = {
    "cpu": ((1, 7, 20, 33), (8, 16), (5, 12), (8, 24, 11)),
    "cuda": ((1, 33, 130, 300), (64, 128), (40, 77, 192), (80, 128, 16)),
}
DEVICE = os.environ.get("ORDO_TEST_DEVICE", "cpu")  # on_cuda.py sets it

Values = dict[str, str]


def allowed(v: Values, situation: str) -> bool:
    """Whether a call with these values exists and is not refused."""
    if DEVICE != "cpu" and not _allowed_there(v, situation):
        return False
    drops, packed = v["dropout"] != "none", v["layout"] in ("packed", "gaps")
    empty = v["lengths"] in EMPTY
    if v["mode"] != "auto" and not drops or v["ids"] == "given" and not drops:
        return False
    if v["dropout"] in ("prepared", "generator") and situation not in PLAIN:
        return False
    if v["dropout"] == "generator" and "checkpoint" in situation:
        return False  # a checkpoint restores the default generators alone
    if situation == "threads" and v["dropout"] in ("drawn", "generator", "prepared"):
        return False  # whose numbers go to whichever thread comes first
    if v["dropout"] == "prepared" and (v["layout"] != "dense" or v["entry"] != "attention"):
        return False
    if v["blocks"] == "given" and (situation == "dtensor" or v["shard"] == "given" or empty):
        return False
    if empty and (packed or v["layout"] == "padded") and v["sink"] == "given":
        return False  # rows that see the sink alone, of which the oracle knows in dense batches
    if v["seen"] == "given" and (v["blocks"] == "given" or situation == "dtensor"):
        return False
    if v["bias"] != "none" and (packed or situation == "dtensor"):
        return False
    if v["shard"] == "given" and (v["mask"] == "top-left" or v["layout"] == "gaps" or empty):
        return False
    if empty and v["layout"] == "gaps" or v["lengths"] == "no sequence" and v["layout"] != "dense":
        return False
    if situation in TRACED and (v["layout"] == "gaps" and situation != "compile" or v["strides"] == "negative"):
        return False
    if situation == "export" and v["dropout"] == "drawn":
        return False
    if situation == "dtensor" and (drops or v["layout"] != "dense" or v["sink"] == "given"):
        return False
    if situation in ("no_grad", "inference", "export") and v["dout"] != "dense":
        return False
    if situation == "autocast" and v["dtype"] == "f32":
        return False
    if situation == "hooks with strides" and empty:
        return False
    return ENTRIES[v["entry"]].takes(v, situation)


TRACED = {"compile", "inductor", "dynamic", "export", "make_fx", "jit", "fake", "reduce-overhead"}


def _allowed_there(v: Values, situation: str) -> bool:
    """The same of a GPU."""
    if v["dtype"] == "f32":
        return False
    if v["entry"] == "sdpa":  # what PyTorch sends to flash attention
        masks = (v["seen"] != "none") + (v["bias"] != "none") + (v["mask"] != "full")
        if masks > 1 or v["mask"] != "full" and v["lengths"] != "equal" or v["dropout"] != "none":
            return False
        if v["dims"] != "equal" or v["strides"] not in ("dense", "heads first") or v["lengths"] in EMPTY:
            return False
    if situation in ("graph", "unwaited", "reduce-overhead"):  # which read the seed of start() later
        return v["dropout"] not in ("generator", "prepared")
    return True


# ---- which cases ----


def draw(situation: str, count: int, seed: int, pairs: bool) -> list[Case]:
    """`count` cases of a situation; with `pairs` as many more as cover each pair of values."""
    r = random.Random(f"{seed} {situation}")
    open_ones = set(_wanted(r, situation, pairs))
    cases: list[Case] = []
    while open_ones and (pairs or len(cases) < count):
        most, best = 0, None
        for target in r.sample(sorted(open_ones), min(6, len(open_ones))):
            values = _complete(r, dict(target), situation)
            if values is None:
                open_ones.discard(target)
                continue
            covers = sum(_covers(values, x) for x in open_ones)
            if covers > most:
                most, best = covers, values
        if best is None:
            continue
        open_ones = {x for x in open_ones if not _covers(best, x)}
        cases.append(Case(situation, best, r.randrange(10**6)))
    while len(cases) < count:
        values = _complete(r, {}, situation)
        assert values is not None, situation
        cases.append(Case(situation, values, r.randrange(10**6)))
    return cases


def _covers(values: Values, target: tuple[Any, ...]) -> bool:
    """A call of no elements, which computes nothing, covers pairs with its lengths alone."""
    lengths = values["lengths"]
    return set(target) <= values.items() and (lengths not in EMPTY or ("lengths", lengths) in target)


def _wanted(r: random.Random, situation: str, pairs: bool) -> Iterator[tuple[Any, ...]]:
    single = [(axis, value) for axis, values in AXES.items() for value in values]
    for at, one in enumerate(single):
        yield (one,)
        for other in single[at + 1 :] if pairs else ():
            if one[0] != other[0]:
                yield (one, other)


def _complete(r: random.Random, fixed: Values, situation: str) -> Values | None:
    """Values with the given ones that are allowed; None if none are found."""
    for attempt in range(400):
        values = {axis: r.choice(choices) for axis, choices in AXES.items()}
        usual = 0.3 + 0.1 * (attempt % 8)  # ever more of the first values, which go with any other
        for axis, choices in AXES.items():
            fits = axis != "dtype" or (situation != "autocast" and DEVICE != "cuda")  # no float32 there
            if r.random() < usual and axis != "entry" and fits:
                values[axis] = choices[0]
        values.update(fixed)
        if values["lengths"] in EMPTY and "lengths" not in fixed:
            continue
        if allowed(values, situation):
            return values
    return None


# ---- one case ----


@dataclass
class Case:
    situation: str
    values: Values
    seed: int
    device: str = field(default_factory=lambda: DEVICE)

    q: Tensor = field(init=False)  # rows first, as attention() takes them; the entry turns them
    k: Tensor = field(init=False)
    v: Tensor = field(init=False)
    bias: Tensor | None = field(init=False, default=None)
    sink: Tensor | None = field(init=False, default=None)
    keywords: dict[str, Any] = field(init=False)  # arguments of attention()
    rng: tuple[int, int] = (0, 0)  # seed and offset of dropout
    function: Callable[..., Any] = field(init=False)

    def __str__(self) -> str:
        given = [f"{axis} {x}" for axis, x in self.values.items() if x != AXES[axis][0]]
        return f"{self.situation}, seed {self.seed}: {self.values['entry']}, {', '.join(given)}"

    def refusal(self) -> str:
        """The words that refuse this call, once it is built; "" if it is not to be refused."""
        widest = max(self.q.shape[-1], self.v.shape[-1])
        masked = self.values["seen"] == "given" or self.bias is not None
        if self.device == "cuda" and self.values["entry"] == "sdpa" and masked:
            return "No available kernel"  # PyTorch's words: its flash backend takes no mask
        if self.device != "cuda":
            return ""
        if self.values["lengths"] == "no keys" and self.sink is not None:
            return "backend cuda expects keys"
        if self.values["lengths"] in EMPTY:  # nothing is computed
            return ""
        if self.values["seen"] == "given" and widest > 256:
            return "seen: backend cuda expects at most 256"
        if self.values["blocks"] == "given" and widest > 128:
            return "block mask: backend cuda expects at most 128"
        if self.bias is not None and widest > 128:
            return "bias.on true: backend cuda expects at most 128"
        beside = "given" in (self.values["seen"], self.values["blocks"]) or self.values["softcap"] == "on"
        if self.bias is not None and beside:
            return "bias.on true: backend cuda expects one of the two"
        return ""

    def build(self) -> None:
        """Make the tensors and keywords."""
        r, v = random.Random(self.seed), self.values
        self._random = torch.Generator().manual_seed(self.seed)
        batch, heads = r.choice((1, 2, 3)), r.choice((2, 4))
        if v["lengths"] == "no sequence":
            batch = 0
        kv_heads = heads if v["heads"] == "equal" else heads // 2
        lengths, sizes, odd, of_values = SIZES[self.device]
        dim = r.choice(sizes) if v["dims"] != "odd" else r.choice(odd)
        v_dim = dim if v["dims"] == "equal" else r.choice(of_values)
        rows = r.choice(lengths)
        columns = {"equal": rows, "more keys": rows + r.choice((1, 9, 40)), "one row": 19,
                   "fewer keys": max(1, rows // 2), "no keys": 0}.get(v["lengths"], rows)  # fmt: skip
        rows = {"one row": 1, "no rows": 0}.get(v["lengths"], rows)
        self.keywords = {"causal": {"full": False, "causal": True, "top-left": "top-left"}[v["mask"]]}
        window = {"open": (-1, -1), "left": (4, -1), "right": (-1, 3), "both": (5, 2)}[v["window"]]
        scale = {"default": None, "given": 0.3, "negative": -0.25}[v["scale"]]
        self.keywords.update(window=window, scale=scale, softcap=2.5 if v["softcap"] == "on" else 0.0)
        first, second = self._lengths(r, batch, rows, columns)
        self.dtype = DTYPES[v["dtype"]]
        dtype = torch.float32 if self.situation == "autocast" else self.dtype
        self.q = self._tensor((*first, heads, dim), dtype)
        self.k = self._tensor((*second, kv_heads, dim), dtype)
        self.v = self._tensor((*second, kv_heads, v_dim), dtype)
        if v["slopes"] != "none":
            shape = (heads,) if v["slopes"] == "heads" else (batch, heads)
            self.keywords["slopes"] = self._signed(torch.rand(shape, generator=self._random) / 4)
        if v["sink"] == "given":
            self.sink = self._signed(torch.randn(heads, generator=self._random))
        if v["ids"] == "given":
            ids = r.sample(range(50), batch)
            self.keywords["sequence_ids"] = torch.tensor(ids, dtype=torch.int64, device=self.device)
        if v["shard"] == "given":
            self.keywords["shard"] = ordo.Shard(batch0=2, head0=heads, heads_total=3 * heads)
        if v["blocks"] == "given":
            self.keywords["block_mask"] = self._mask(r, rows, columns, batch, heads)
        matrices = r.choice((1, batch)), r.choice((1, heads)), self.keywords.get("max_q", rows), self.keywords.get("max_kv", columns)
        if v["seen"] == "given":
            seen = (torch.rand(matrices, generator=self._random) < r.choice((0.2, 0.9))).to(self.device)
            self.keywords["seen"] = (seen, seen.mT.contiguous().mT, seen.expand(batch, heads, -1, -1))[r.randrange(3)]
        if v["bias"] != "none":
            bias = torch.randn(matrices, generator=self._random)
            bias[torch.rand(matrices, generator=self._random) < 0.1] = -torch.inf
            kind = torch.float32 if v["bias"] == "f32" else self.dtype
            self.bias = laid(bias.to(kind).to(self.device), v["strides"])
        self._dropout(r)
        self.function = ENTRIES[v["entry"]].make(self)

    def _lengths(self, r: random.Random, batch: int, rows: int, columns: int) -> tuple[Any, Any]:
        """Lists of lengths; the leading axes of q and of k."""
        layout, empty = self.values["layout"], 0 in (rows, columns)
        kind = r.choice((torch.int32, torch.int64))

        def ints(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=kind, device=self.device)

        if layout == "dense":
            return (batch, rows), (batch, columns)
        if layout == "padded":
            self.keywords["q_lens"] = ints([r.randint(0, rows) for _ in range(batch)])
            self.keywords["kv_lens"] = ints([r.randint(0, columns) for _ in range(batch)])
            if self.values["entry"] == "layer":  # whose mask of keys hides queries under a causal mask alone
                full = self.values["mask"] == "full"
                self.keywords["q_lens"] = ints(batch * [rows]) if full else self.keywords["kv_lens"]
            return (batch, rows), (batch, columns)
        each = [[r.randint(r.random() > 0.2, max(most, 1)) for _ in range(batch)] for most in (rows, columns)]
        for x in each:
            x[-1] = max(x[-1], 1)
        if self.values["lengths"] == "equal":
            each[1] = each[0]
        totals = [0 if most == 0 else sum(x) for most, x in zip((rows, columns), each)]
        if empty:
            each = [x if total else [0] * batch for x, total in zip(each, totals)]
        ends = [[sum(x[:b]) for b in range(batch + 1)] for x in each]
        self.keywords.update(cu_q=ints(ends[0]), cu_kv=ints(ends[1]))
        self.keywords.update(max_q=max(1, *each[0]), max_kv=max(1, *each[1]))
        if layout == "gaps":
            self.keywords["q_lens"] = ints([r.randint(0, x) for x in each[0]])
            self.keywords["kv_lens"] = ints([r.randint(0, x) for x in each[1]])
            if r.random() < 0.3:
                del self.keywords[r.choice(("q_lens", "kv_lens"))]
        masked = self.values["blocks"] != "none" or self.values["seen"] != "none"
        free = self.values["entry"] == "attention" and not masked and self.situation in PLAIN
        if r.random() < 0.3 and free:  # drawn for all: the same call by another entry has the same sizes
            del self.keywords["max_q"], self.keywords["max_kv"]
        behind = 0 if empty or r.random() < 0.5 else 3  # rows of no sequence
        return (totals[0] + behind,), (totals[1] + behind,)

    def _mask(self, r: random.Random, rows: int, columns: int, batch: int, heads: int) -> Any:
        """Intervals of columns of each row; of each sequence and head, or shared."""
        rows, columns = self.keywords.get("max_q", rows), self.keywords.get("max_kv", columns)
        own = [r.choice((1, most)) for most in (batch, heads)]

        def one() -> Any:
            first = torch.randint(columns, (rows,), generator=self._random)
            last = first + torch.randint(-1, columns, (rows,), generator=self._random)
            ends = last.clamp(max=columns - 1)
            return ordo.BlockMask.from_intervals(first.numpy(), ends.numpy(), columns)

        mask = ordo.BlockMask.join([[one() for _ in range(own[1])] for _ in range(own[0])])
        return ordo.torch.block_mask(mask, device=self.device)

    def _dropout(self, r: random.Random) -> None:
        source = self.values["dropout"]
        if source == "none":
            return
        self.rng = r.randrange(2**32), r.randrange(2**32)
        self.keywords["dropout_p"] = r.choice((0.25, 0.5, 0.002))
        if source in ("seed", "fa2", "prepared"):
            self.keywords["seed"] = self.rng
        elif source == "state":
            self.keywords["rng_state"] = self._signed(torch.tensor(self.rng))
        elif source == "generator":
            self.keywords["generator"] = torch.Generator(self.device)
        if source == "fa2":
            self.keywords["keying"] = "fa2"

    def start(self) -> None:
        """Set generators as the case has them, before each run; rng is then what is drawn."""
        torch.manual_seed(self.seed)
        source, made = self.values["dropout"], self.keywords.get("generator")
        seeded = torch.manual_seed if made is None else made.manual_seed
        seeded(self.seed)
        if source in ("drawn", "generator"):
            pair = torch.randint(2**32, (2,), device=self.device, generator=made)
            self.rng = tuple(pair.tolist())
            seeded(self.seed)
        if source == "prepared":
            rest = {x: self.keywords[x] for x in ("dropout_p", "causal", "shard", "sequence_ids")
                    if x in self.keywords}  # fmt: skip
            self.keywords.pop("seed", None)
            self.keywords["prepared"] = ordo.torch.prepare_dropout(
                self.q.shape, self.k.shape, device=self.device, dtype=self.dtype, seed=self.rng, **rest
            )

    def _tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        values = torch.randn(shape, generator=self._random).to(dtype).to(self.device)
        return laid(values, self.values["strides"])

    def _signed(self, x: Tensor) -> Tensor:
        """With the negative bit where the case has it."""
        return laid(x.to(self.device), "negative" if self.values["strides"] == "negative" else "dense")

    def upstream(self, o: Tensor, lse: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of o and lse."""
        kind = self.values["dout"]
        made = torch.Generator().manual_seed(self.seed + 1)
        dout = torch.randn(o.shape, generator=made).to(o.dtype).to(o.device)
        if lse is None or kind in WITHOUT_LSE:
            if kind == "expanded":
                dout = torch.full((), 0.75, dtype=o.dtype, device=o.device).expand(o.shape)
            elif kind != "dense" and o.numel():
                dout = laid(dout, "every second" if kind == "strided" else kind)
            return dout, None
        dlse = torch.randn(lse.shape, generator=made).to(lse.device)
        if kind == "lse expanded":
            dlse = torch.full((), 0.5, device=lse.device).expand(lse.shape)
        return None if kind == "of lse" else dout, dlse


def laid(x: Tensor, kind: str) -> Tensor:
    """The same values with other strides, or at an odd address."""
    if x.numel() == 0:
        return x
    if kind == "heads first":
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    if kind == "every second":
        return torch.stack((x, x + 1), -1).flatten(-2)[..., ::2]
    if kind == "one row of many":  # an address of its own
        return torch.cat((torch.zeros(1, dtype=x.dtype, device=x.device), x.flatten()))[1:].view(x.shape)
    if kind == "negative":
        return torch._neg_view(-x)
    return x
