"""Drawn calls of FlashAttention-2's and 3's functions and of SDPA, in the forms that callers use.

Dense and packed calls here, caches and SDPA in signature_others.py. A call is valid in the
signature that it uses; now and then it has an argument that ordo refuses
(docs/guide/torch-paths.md says which) or one that is wrong.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from ordo.compat import flash_attn, flash_attn_3
from signature_reference import Part
from torch import Tensor

SIZES = (1, 2, 3, 5, 8, 13, 16, 20, 32, 40, 64, 77, 80, 96, 128, 160, 192, 256)


@dataclass
class Call:
    """A call, and what it means."""

    seed: int
    route: str
    function: Callable[..., Any]
    positional: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)  # a gradient may be asked for
    parts: Callable[[list[Tensor]], list[Tensor]] = list  # inputs, or their gradients -> q, k, v
    qkv: list[Tensor] | None = None  # q, k and v where no gradient is taken
    lse_shape: tuple[int, ...] = ()
    sequences: list[Part] = field(default_factory=list)
    rules: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32  # of the result
    autocast: torch.dtype | None = None
    dropout_p: float = 0.0
    rng: tuple[int, int] | None = None  # seed and offset, where known
    cu: tuple[Any, Any] | None = None  # ends of packed queries and keys
    longest: tuple[int, int] = (0, 0)
    heads_first: bool = False  # SDPA's layout
    dout: str = "plain"
    gives: str = "o"  # or "o lse", "o lse mask", "o lse ..." with two empty tensors
    empty_lse: float = float("-inf")  # of a row that sees nothing
    refused: str | None = None  # argument that an error must name
    refused_in_table: bool = True  # else the call is wrong, not lacking
    caches: list[Any] = field(default_factory=list)  # (given, what it must become)
    seeded: bool = False  # dropout whose mask nobody knows: repeats are compared, no more
    below: bool = False  # functions below autograd: nothing refused, no autocast
    theirs: bool = False  # runs on PyTorch's kernel, whose bits depend on the number of threads
    mode: str = "grad"  # or "no_grad", "inference"

    def __str__(self) -> str:
        given = [short(x) for x in self.positional]
        given += [f"{name}={short(x)}" for name, x in self.keywords.items()]
        more = f" autocast {self.autocast}" if self.autocast else ""
        return f"{self.route}({', '.join(given)}){more} {self.mode} dout {self.dout}"


def short(x: Any) -> str:
    if isinstance(x, Tensor):
        if x.numel() <= 6 and not x.is_nested:
            return f"tensor({x.tolist()}, {str(x.dtype)[6:]})"
        grad = " grad" if x.requires_grad else ""
        return f"{str(x.dtype)[6:]}{list(x.shape)}/{list(x.stride())}{grad}"
    if isinstance(x, (list, tuple)):
        return f"{type(x).__name__}({', '.join(map(short, x))})"
    return f"{type(x).__name__}({x})" if isinstance(x, np.generic) else repr(x)


# ---- forms ----


class Drawer:
    """Random choices, and values dressed in the forms that callers give them in."""

    def __init__(self, seed: int, device: str) -> None:
        self.r, self.device = random.Random(seed), device
        self.made = torch.Generator().manual_seed(seed)

    def of(self, *choices: Any) -> Any:
        return self.r.choice(choices)

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    def number(self, x: float) -> Any:
        """x, which float32 holds exactly."""
        if self.chance(0.6):
            return x
        return self.of(
            np.float32(x), np.float64(x), torch.tensor(x), torch.tensor(x, dtype=torch.float64),
            torch.tensor(x, device=self.device), np.array(x),
        )  # fmt: skip

    def integer(self, n: int) -> Any:
        if self.chance(0.6):
            return n
        return self.of(
            np.int64(n), np.int32(n), torch.tensor(n), torch.tensor(n, dtype=torch.int32),
            torch.tensor(n, device=self.device),
        )  # fmt: skip

    def truth(self, x: bool) -> Any:
        return x if self.chance(0.7) else self.of(int(x), np.bool_(x), torch.tensor(x))

    def window(self, pair: tuple[int, int]) -> Any:
        if pair == (-1, -1) and self.chance(0.3):
            return self.of(None, (None, None), (-1, None), [-1, -1])
        left, right = (self.of(-1, -2, -100, None) if x < 0 else x for x in pair)
        if self.chance(0.5) or left is None or right is None:
            return self.of((left, right), [left, right])
        return self.of(
            torch.tensor([left, right]), torch.tensor([left, right], dtype=torch.int32),
            np.array([left, right]), (np.int64(left), np.int32(right)),
            (torch.tensor(left), torch.tensor(right)), torch.Size([left, right])
            if min(left, right) >= 0 else (left, right),
        )  # fmt: skip

    def lengths(self, values: list[int]) -> Tensor:
        dtype = torch.int64 if self.chance(0.25) else torch.int32
        return torch.tensor(values, dtype=dtype, device=self.device)

    def tensor(self, *shape: int, dtype: torch.dtype, grad: bool = False) -> Tensor:
        """Normal numbers in one of many layouts."""
        values = torch.randn(*shape, generator=self.made).to(dtype).to(self.device)
        if self.chance(0.05) and shape[0]:  # the same memory for all
            axis = self.of(0, len(shape) - 2)
            return values.narrow(axis, 0, 1).expand(shape).detach().requires_grad_(grad)
        return self.laid(values).detach().requires_grad_(grad)

    def laid(self, x: Tensor, kind: str | None = None) -> Tensor:
        """The same values, elsewhere in memory."""
        kinds = ("plain",) * 4 + ("swapped", "wide", "step", "offset", "turned")
        kind = kind or self.of(*kinds)
        if kind == "swapped":  # (row, head) in the other order
            return x.transpose(-3, -2).contiguous().transpose(-3, -2)
        if kind == "wide":  # rows with gaps
            return x.new_zeros(*x.shape[:-1], x.shape[-1] + 8)[..., : x.shape[-1]].copy_(x)
        if kind == "step":  # the last axis is not contiguous
            return x.new_zeros(*x.shape[:-1], x.shape[-1], 2)[..., 0].copy_(x)
        if kind == "offset":  # begins at an odd address
            return x.new_zeros(x.numel() + 1)[1:].view(x.shape).copy_(x)
        if kind == "turned":  # any order of axes
            order = list(range(x.dim()))
            self.r.shuffle(order)
            back = [order.index(i) for i in range(x.dim())]
            return x.permute(order).contiguous().permute(back)
        return x

    def length(self) -> int:
        return self.of(*range(1, 40), 63, 64, 65, 100, 127, 128, 129, 140, 200)

    def slopes(self, batch: int, heads: int) -> Tensor:
        """(heads,) or (batch, heads), positive."""
        shape = self.of((heads,), (batch, heads))
        made = torch.rand(*shape, generator=self.made)
        made = self.of(made, made.double(), self.laid(made[..., None, None])[..., 0, 0])
        return made.to(self.device) if self.chance(0.8) else made


def unbound(x: Tensor | None, axis: int, count: int) -> list[Any]:
    """Of a gradient that was not asked for: as many Nones."""
    return [None] * count if x is None else list(x.unbind(axis))


def split(x: Tensor | None, sizes: list[int]) -> list[Any]:
    return [None] * len(sizes) if x is None else list(x.split(sizes, 2))


def arrange(d: Drawer, call: Call, given: dict[str, Any]) -> Call:
    """Give the arguments by place or by name, those that are their default perhaps not at all."""
    all_of = inspect.signature(call.function).parameters
    places = [x for x in all_of if all_of[x].kind != inspect.Parameter.KEYWORD_ONLY]
    # The first argument that has no value ends those that can be given by place.
    needed = [x for x in places if all_of[x].default is inspect.Parameter.empty]
    most = min((places.index(x) for x in needed if x not in given), default=len(places))
    last = max(i for i, x in enumerate(places) if x in given) + 1
    count = min(d.r.randint(0, last), most)
    call.positional = [given.get(x, all_of[x].default) for x in places[:count]]
    call.keywords = {x: y for x, y in given.items() if x not in places[:count]}
    return call


# ---- what the calls share ----


def heads_of(d: Drawer) -> tuple[int, int]:
    kv = d.of(1, 1, 2, 3)
    return kv * d.of(1, 1, 2, 4), kv


def dtype_of(d: Drawer) -> torch.dtype:
    if d.device != "cpu":
        return d.of(torch.bfloat16, torch.float16)
    return d.of(torch.float32, torch.float32, torch.bfloat16, torch.float16)


def rules_of(d: Drawer, call: Call, given: dict[str, Any]) -> None:
    """causal, window_size, softmax_scale and softcap."""
    rules: dict[str, Any] = {}
    if d.chance(0.5):
        rules["causal"] = d.chance(0.7)
        given["causal"] = d.truth(rules["causal"])
    if d.chance(0.5):
        sides = (-1, -1, 0, 1, 3, 17, 64, 130, 100000)
        rules["window"] = d.of(*sides), d.of(*sides)
        given["window_size"] = d.window(rules["window"])
    if d.chance(0.4):
        rules["scale"] = d.of(0.5, 0.0625, 1.0, 0.171875, -0.25)
        given["softmax_scale"] = d.number(rules["scale"])
    elif d.chance(0.2):
        given["softmax_scale"] = None
    if d.chance(0.3):
        rules["softcap"] = d.of(0.0, 1.0, 5.0, 30.0)
        given["softcap"] = d.number(rules["softcap"])
    if d.chance(0.3):
        given["deterministic"] = d.truth(d.chance(0.5))
    call.rules.update(rules)


def dropout_of(d: Drawer, call: Call, given: dict[str, Any]) -> None:
    """dropout_p and where its bits come from."""
    if d.chance(0.5):
        return
    call.dropout_p = float(np.float32(d.of(0.0, 0.1, 0.25, 0.5, 0.9, 0.001)))
    given["dropout_p"] = d.number(call.dropout_p)
    source = d.of("seed", "pair", "rng_state", "generator", "default")
    if "seed" not in inspect.signature(call.function).parameters:
        source = "default"
    number, offset = d.r.randrange(2**40), d.r.randrange(2**31)
    if source == "seed":
        given["seed"], call.rng = d.integer(number % 2**31), (number % 2**31, 0)
    elif source == "pair":
        pair = (number, offset)
        given["seed"] = d.of(pair, list(pair), np.array(pair), torch.tensor(pair))
        call.rng = pair
    elif source == "rng_state":
        call.rng = number, offset
        given["rng_state"] = torch.tensor(call.rng, device=d.device)
    elif source == "generator":
        given["generator"] = torch.Generator(d.device)


def autocast_of(d: Drawer, call: Call, dtype: torch.dtype) -> torch.dtype:
    """Type to draw the tensors in."""
    call.dtype = dtype
    if not call.below and d.chance(0.12):
        call.autocast = call.dtype = d.of(torch.bfloat16, torch.float16)
        return torch.float32
    return dtype


def slopes_of(d: Drawer, given: dict[str, Any], batch: int, heads: int) -> list[Any]:
    """Those of each sequence, or None."""
    if d.chance(0.7):
        return [None] * batch
    given["alibi_slopes"] = slopes = d.slopes(batch, heads)
    host = slopes.float().cpu()
    return [host[b] if host.dim() == 2 else host for b in range(batch)]


# ---- dense ----


def dense(d: Drawer, call: Call, module: Any, packed: str) -> Call:
    """flash_attn_func and its packed forms; packed is "", "kv", "qkv" or "heads"."""
    third, given = module is flash_attn_3, {}
    batch = d.of(0, 1, 1, 2, 3) if d.chance(0.3) else d.of(1, 2)
    rows, columns = d.length(), d.length()
    if d.chance(0.08):
        rows, columns = d.of((0, 5), (5, 0), (0, 0))
    if packed in ("qkv", "heads") or d.chance(0.3):
        columns = rows
    heads, kv_heads = heads_of(d)
    if packed == "qkv":
        kv_heads = heads
    dim = d.of(*SIZES)
    v_dim = d.of(*SIZES) if third and not packed and d.chance(0.2) else dim
    dtype = autocast_of(d, call, dtype_of(d))
    grads = [d.chance(0.7) for _ in range(3)]
    if packed == "qkv":
        given["qkv"] = d.tensor(batch, rows, 3, heads, dim, dtype=dtype, grad=grads[0])
        call.parts = lambda x: unbound(x[0], 2, 3)
    elif packed == "heads":
        given["qkv"] = d.tensor(batch, rows, heads + 2 * kv_heads, dim, dtype=dtype, grad=grads[0])
        given["num_heads_q"] = heads
        call.parts = lambda x: split(x[0], [heads, kv_heads, kv_heads])
    elif packed == "kv":
        given["q"] = d.tensor(batch, rows, heads, dim, dtype=dtype, grad=grads[0])
        given["kv"] = d.tensor(batch, columns, 2, kv_heads, dim, dtype=dtype, grad=grads[1])
        call.parts = lambda x: [x[0], *unbound(x[1], 2, 2)]
    else:
        given["q"] = d.tensor(batch, rows, heads, dim, dtype=dtype, grad=grads[0])
        given["k"] = d.tensor(batch, columns, kv_heads, dim, dtype=dtype, grad=grads[1])
        given["v"] = d.tensor(batch, columns, kv_heads, v_dim, dtype=dtype, grad=grads[2])
    call.inputs = [given[x] for x in ("qkv", "q", "kv", "k", "v") if x in given]
    rules_of(d, call, given)
    slopes = [None] * batch
    if not third:
        dropout_of(d, call, given)
        slopes = slopes_of(d, given, batch, heads)
    call.lse_shape, call.longest = (batch, heads, rows), (rows, columns)
    call.sequences = [Part(b, b, b, slopes[b]) for b in range(batch)]
    return finish(d, call, module, given)


def finish(d: Drawer, call: Call, module: Any, given: dict[str, Any]) -> Call:
    """What FlashAttention-3 alone has, results, a refusal now and then, order."""
    third = module is flash_attn_3
    names = inspect.signature(call.function).parameters
    if third:
        for name, choices in (("num_splits", (0, 1, 3)), ("pack_gqa", (None, True, False)),
                              ("sm_margin", (0, 8)), ("attention_chunk", (0,))):  # fmt: skip
            if name in names and d.chance(0.2):
                given[name] = d.of(*choices)
    call.empty_lse = float("-inf") if third else float("inf")
    unknown = call.dropout_p > 0 and call.rng is None  # the mask says what was dropped
    if unknown or d.chance(0.4):
        flag = "return_attn_probs" if "return_attn_probs" in names else "return_softmax_lse"
        given[flag] = d.truth(True)
        call.gives = "o lse mask" if not third and flag == "return_attn_probs" else "o lse"
    call.dout = d.of("plain", "plain", "swapped", "wide", "step", "turned", "expanded")
    call.mode = "grad" if d.chance(0.9) else d.of("no_grad", "inference")
    refuse(d, call, given, names)
    return arrange(d, call, given)


def refuse(d: Drawer, call: Call, given: dict[str, Any], names: Any) -> None:
    """Now and then an argument that ordo does not have, or that no one can mean."""
    if call.below or not d.chance(0.06):
        return
    if "q" in given and call.autocast is None and d.chance(0.1):
        given["q"] = given["q"].detach().double()
        call.refused, call.refused_in_table = "q", False
        return
    one = torch.ones(1, 1, device=d.device)
    lacking = {
        "qv": one, "q_descale": one, "k_descale": one, "v_descale": one, "attention_chunk": 16,
        "block_table": one.int(), "page_table": one.int(), "cache_leftpad": one[0].int(),
        "cu_seqlens_k_new": one[0].int(),
    }  # fmt: skip
    wrong = {
        "window_size": 5, "softcap": "much", "softmax_scale": "x", "causal": "top_left",
        "dropout_p": 1.5, "alibi_slopes": torch.ones(77),
        "cu_seqlens_q": [0, 1], "cu_seqlens_k": np.array([0, 1]), "seed": "x",
        "cache_seqlens": "all",
    }  # fmt: skip
    if d.chance(0.5):
        lacking, call.refused_in_table = wrong, False
    choices = [x for x in lacking if x in names]
    if choices:
        call.refused = d.of(*choices)
        given[call.refused] = lacking[call.refused]
        if call.refused == "seed":
            given.pop("rng_state", None), given.pop("generator", None)
            given["dropout_p"] = 0.5


# ---- packed ----


def cut(d: Drawer, total: int, batch: int) -> list[int]:
    """Lengths of `batch` sequences, `total` together; some are empty."""
    ends = sorted(d.of(0, total, d.r.randint(0, total)) for _ in range(batch - 1))
    return [y - x for x, y in zip([0, *ends], [*ends, total])]


def ends_of(lengths: list[int]) -> list[int]:
    ends = [0]
    for n in lengths:
        ends.append(ends[-1] + n)
    return ends


def varlen(d: Drawer, call: Call, module: Any, packed: str) -> Call:
    """flash_attn_varlen_func and its packed forms."""
    third, given = module is flash_attn_3, {}
    batch = d.of(1, 2, 3, 4)
    heads, kv_heads = heads_of(d)
    kv_heads = heads if packed == "qkv" else kv_heads
    dim, dtype = d.of(*SIZES), autocast_of(d, call, dtype_of(d))
    v_dim = d.of(*SIZES) if third and d.chance(0.2) else dim
    q_lengths = cut(d, d.of(0, 1, 7, 30, 64, 130, 200), batch)
    k_lengths = cut(d, d.of(0, 1, 7, 30, 64, 130, 200), batch)
    if packed == "qkv" or d.chance(0.4):
        k_lengths = q_lengths
    behind = d.of(0, 0, 0, 5)  # rows behind the last end
    q_rows, k_rows = sum(q_lengths) + behind, sum(k_lengths) + behind
    grads = [d.chance(0.7) for _ in range(3)]
    if packed == "qkv":
        given["qkv"] = d.tensor(q_rows, 3, heads, dim, dtype=dtype, grad=grads[0])
        call.parts = lambda x: unbound(x[0], 1, 3)
    elif packed == "kv":
        given["q"] = d.tensor(q_rows, heads, dim, dtype=dtype, grad=grads[0])
        given["kv"] = d.tensor(k_rows, 2, kv_heads, dim, dtype=dtype, grad=grads[1])
        call.parts = lambda x: [x[0], *unbound(x[1], 1, 2)]
    else:
        given["q"] = d.tensor(q_rows, heads, dim, dtype=dtype, grad=grads[0])
        given["k"] = d.tensor(k_rows, kv_heads, dim, dtype=dtype, grad=grads[1])
        given["v"] = d.tensor(k_rows, kv_heads, v_dim, dtype=dtype, grad=grads[2])
    call.inputs = [given[x] for x in ("qkv", "q", "kv", "k", "v") if x in given]
    q_ends, k_ends = ends_of(q_lengths), ends_of(k_lengths)
    room = d.of(0, 0, 1, 60)
    call.longest = max(q_lengths) + room, max(k_lengths) + room
    if packed == "qkv":
        given["cu_seqlens"], given["max_seqlen"] = d.lengths(q_ends), d.integer(call.longest[0])
    else:
        given["cu_seqlens_q"], given["cu_seqlens_k"] = d.lengths(q_ends), d.lengths(k_ends)
        given["max_seqlen_q"] = d.integer(call.longest[0])
        given["max_seqlen_k"] = d.integer(call.longest[1])
    call.cu = q_ends, k_ends
    rules_of(d, call, given)
    slopes = [None] * batch
    if third:
        names = inspect.signature(call.function).parameters
        for name, lengths in (("seqused_q", q_lengths), ("seqused_k", k_lengths)):
            if name in names and d.chance(0.4):  # repeated, or shorter
                lengths = lengths if d.chance(0.5) else [d.r.randint(0, n) for n in lengths]
                given[name] = d.lengths(lengths)
                q_lengths, k_lengths = (
                    (lengths, k_lengths) if name == "seqused_q" else (q_lengths, lengths)
                )
    else:
        dropout_of(d, call, given)
        slopes = slopes_of(d, given, batch, heads)
    call.lse_shape = heads, q_rows
    for b in range(batch):
        rows = slice(q_ends[b], q_ends[b] + q_lengths[b])
        columns = slice(k_ends[b], k_ends[b] + k_lengths[b])
        call.sequences.append(Part(rows, columns, (slice(None), rows), slopes[b]))
    return finish(d, call, module, given)
