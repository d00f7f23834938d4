"""Drawn calls of flash_attn_with_kvcache and of SDPA; draw() makes a call of any kind."""

from __future__ import annotations

from typing import Any

import signature_below
import torch
import torch.nn.functional as F
from ordo.compat import flash_attn, flash_attn_3
from signature_draws import (
    SIZES, Call, Drawer, arrange, autocast_of, dense, dtype_of, ends_of, finish, heads_of,
    rules_of, slopes_of, varlen,
)  # fmt: skip
from signature_reference import Part
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

# ---- a cache of keys ----


def cache(d: Drawer, call: Call, module: Any, _: str) -> Call:
    """flash_attn_with_kvcache. What lies behind the keys used is NaN: nothing may read it."""
    batch, room = d.of(1, 2, 3), d.length() + 8
    heads, kv_heads = heads_of(d)
    dim, dtype = d.of(*SIZES), dtype_of(d)
    call.dtype = dtype
    rows, new = d.of(1, 1, 2, 5, 17), d.of(0, 0, 1, 3, 8)
    given: dict[str, Any] = {"q": d.tensor(batch, rows, heads, dim, dtype=dtype)}
    used = lengths(d, given, batch, room, new)
    places = list(range(batch))
    there = batch
    if d.chance(0.3):
        there = batch + 2
        places = d.r.sample(range(there), batch)
        given["cache_batch_idx"] = d.lengths(places)
    caches = [torch.randn(there, room, kv_heads, dim, generator=d.made) for _ in range(2)]
    for x in caches:
        for b in range(there):
            x[b, used[places.index(b)] if b in places else 0 :] = torch.nan
    caches = [x.to(dtype).to(d.device) for x in caches]
    given["k_cache"], given["v_cache"] = (d.laid(x.clone()) for x in caches)
    rules_of(d, call, given)
    given.pop("deterministic", None)
    q, added = given["q"].cpu(), []
    if new:
        for name in ("k", "v"):
            given[name] = d.tensor(batch, new, kv_heads, dim, dtype=dtype)
            added.append(given[name].cpu())
        if dim > 1 and d.chance(0.4):
            q, added[0] = rotary(d, call, module, given, q, added[0], used, room)
    whole = [x.cpu().clone() for x in caches]
    for x, more in zip(whole, added):
        for b, place in enumerate(places):
            x[place, used[b] : used[b] + new] = more[b]
    call.caches = list(zip((given["k_cache"], given["v_cache"]), whole))
    call.qkv = [q, *(x[torch.tensor(places)] for x in whole)]
    slopes = [None] * batch if module is flash_attn_3 else slopes_of(d, given, batch, heads)
    call.lse_shape = batch, heads, rows
    call.sequences = [
        Part((b, slice(None)), (b, slice(0, used[b] + new)), b, slopes[b]) for b in range(batch)
    ]
    return finish(d, call, module, given)


def lengths(d: Drawer, given: dict[str, Any], batch: int, room: int, new: int) -> list[int]:
    """cache_seqlens: one number for all, one per sequence, or none: all of the cache."""
    kind = d.of("one", "each", "each", "none")
    if kind == "none" and not new:
        if d.chance(0.5):
            given["cache_seqlens"] = None
        return [room] * batch
    if kind == "one":
        used = d.r.randint(0, room - new)
        given["cache_seqlens"] = d.integer(used)
        return [used] * batch
    each = [d.r.randint(0, room - new) for _ in range(batch)]
    given["cache_seqlens"] = d.lengths(each)
    return each


def rotary(
    d: Drawer, call: Call, module: Any, given: dict[str, Any], q: Tensor, k: Tensor,
    used: list[int], room: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Give the tables; q and the new keys as they are turned."""
    half = d.r.randint(1, q.shape[-1] // 2)
    angle = torch.outer(torch.arange(room + 40.0), 0.7 ** torch.arange(half))
    tables = [x.to(q.dtype) for x in (angle.cos(), angle.sin())]
    given["rotary_cos"], given["rotary_sin"] = (x.to(d.device) for x in tables)
    pairs = True
    if d.chance(0.6):
        pairs = d.chance(0.5)
        given["rotary_interleaved"] = d.truth(pairs)
    first = used
    if module is flash_attn_3 and d.chance(0.3):
        first = [d.r.randint(0, 9) for _ in used]
        given["rotary_seqlens"] = d.lengths(first)
    moving = call.rules.get("causal") or call.rules.get("window", (-1, -1)) != (-1, -1)
    call.rules["turned"] = True
    return (turned(q, tables, first, pairs, int(bool(moving))),
            turned(k, tables, first, pairs, 1))  # fmt: skip


def turned(x: Tensor, tables: list[Tensor], first: list[int], pairs: bool, step: int) -> Tensor:
    at = torch.tensor(first)[:, None] + step * torch.arange(x.shape[1])
    cos, sin = (table.double()[at][:, :, None] for table in tables)
    width = 2 * cos.shape[-1]
    part = x[..., :width].double()
    one, other = (part[..., 0::2], part[..., 1::2]) if pairs else part.chunk(2, -1)
    made = [one * cos - other * sin, one * sin + other * cos]
    whole = torch.stack(made, -1).flatten(-2) if pairs else torch.cat(made, -1)
    return torch.cat([whole.to(x.dtype), x[..., width:]], -1)


# ---- SDPA ----


def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None,
         enable_gqa=False):  # fmt: skip
    """F.scaled_dot_product_attention, which inspect cannot see; on CUDA the flash path alone."""
    given = query, key, value, attn_mask, dropout_p, is_causal
    if not query.is_cuda:
        return F.scaled_dot_product_attention(*given, scale=scale, enable_gqa=enable_gqa)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(*given, scale=scale, enable_gqa=enable_gqa)


def scaled(d: Drawer, call: Call, _module: Any, _packed: str) -> Call:
    """F.scaled_dot_product_attention with "ORDO" activated."""
    cuda = d.device != "cpu"
    mask = d.of("", "", "", "", "bool", "float", "upper", "lower")
    batch, rows, columns = d.of(1, 2, 3), d.length(), d.length()
    if d.chance(0.4):
        columns = rows
    if mask == "lower" and rows > columns:
        rows, columns = columns, rows
    heads, kv_heads = heads_of(d)
    dim = d.of(*SIZES)
    call.theirs = mask in ("bool", "float") or mask == "lower" and rows != columns and not cuda
    call.dtype = dtype = torch.float32 if call.theirs and not cuda else dtype_of(d)
    if not call.theirs and mask != "lower":  # whose operator is called as it is: nothing is cast
        dtype = autocast_of(d, call, dtype)
    call.heads_first = True
    given: dict[str, Any] = {}
    for name in ("query", "key", "value"):
        shape = (heads, rows) if name == "query" else (kv_heads, columns)
        made = d.tensor(batch, *shape, dim, dtype=dtype, grad=d.chance(0.7))
        if cuda:  # PyTorch's rule for flash
            made = made.detach().contiguous().requires_grad_(made.requires_grad)
        given[name] = made
    call.inputs = list(given.values())
    call.theirs |= any(x.to(call.dtype).stride(-1) != 1 for x in call.inputs)
    call.parts = lambda x: [None if y is None else y.transpose(1, 2) for y in x]
    if heads != kv_heads or d.chance(0.2):
        given["enable_gqa"] = True
    if mask == "" and d.chance(0.5):
        call.rules["causal"] = "top-left" if d.chance(0.7) else False
        given["is_causal"] = bool(call.rules["causal"])
    if d.chance(0.3):
        call.rules["scale"] = d.of(0.5, 0.0625, 1.0, -0.25, 0.0)
        given["scale"] = d.of(1, 1, 1, torch.tensor(1.0)) * call.rules["scale"]
    biases = [None] * batch
    if mask in ("bool", "float"):
        biases = masked(d, given, mask, batch, heads, rows, columns, dtype)
    elif mask:
        kind = causal_upper_left if mask == "upper" else causal_lower_right
        given["attn_mask"] = kind(rows, columns)
        call.rules["causal"] = "top-left" if mask == "upper" else True
    if not call.theirs and d.chance(0.15):
        given["dropout_p"], call.seeded, call.theirs = 0.25, True, not cuda
    call.dout = d.of("plain", "swapped", "wide", "step", "turned", "expanded")
    call.lse_shape = batch, heads, rows
    call.sequences = [Part(b, b, b, bias=biases[b]) for b in range(batch)]
    refused_here(call, cuda, mask, rows, columns)
    return arrange(d, call, given)


def masked(d: Drawer, given: dict[str, Any], mask: str, batch: int, heads: int, rows: int,
           columns: int, dtype: torch.dtype) -> list[Tensor]:  # fmt: skip
    """attn_mask of one of its shapes; as numbers to add, for each sequence."""
    shape = d.of((rows, columns), (batch, 1, rows, columns), (batch, heads, rows, columns))
    if mask == "bool":
        made = torch.rand(*shape, generator=d.made) > 0.4
        made[..., 0] = True  # no row sees nothing
        numbers = torch.zeros(shape, dtype=torch.float64).masked_fill(~made, -torch.inf)
    else:
        made = torch.randn(*shape, generator=d.made).to(dtype)
        numbers = made.double()
    given["attn_mask"] = made.to(d.device)
    return list(numbers.expand(batch, -1, -1, -1) if numbers.dim() == 4 else
                numbers.expand(batch, 1, rows, columns))  # fmt: skip


def refused_here(call: Call, cuda: bool, mask: str, rows: int, columns: int) -> None:
    """On CUDA PyTorch has rules of its own for the flash path."""
    if cuda and mask in ("bool", "float"):
        call.refused = "attn_mask"
    elif cuda and rows != columns and call.rules.get("causal") == "top-left":
        call.refused = "is_causal"
    elif call.rules.get("scale") == 0 and not call.theirs:
        call.refused = "scale"


def nested(query, key, value, q_ends, k_ends, is_causal=False, *, scale=None):
    """Values of F.scaled_dot_product_attention of nested tensors."""
    made = [
        torch.nested.nested_tensor_from_jagged(x, ends).transpose(1, 2)
        for x, ends in ((query, q_ends), (key, k_ends), (value, k_ends))
    ]
    return sdpa(*made, None, 0.0, is_causal, scale=scale).transpose(1, 2).values()


def jagged(d: Drawer, call: Call, _module: Any, _packed: str) -> Call:
    """SDPA of nested tensors: on CUDA packed sequences, on the CPU PyTorch's math path."""
    cuda = d.device != "cpu"
    call.function, call.theirs = nested, not cuda
    call.dtype = dtype = dtype_of(d) if cuda else torch.float32
    lengths = [[d.length() for _ in range(d.of(1, 2, 3))]]
    lengths.append(lengths[0] if d.chance(0.6) else [d.length() for _ in lengths[0]])
    ends = [ends_of(x) for x in lengths]
    heads, dim = d.of(1, 2, 3), d.of(*SIZES)
    if cuda:
        dim = -dim // 8 * -8  # PyTorch has no kernel for other head sizes of nested tensors
    given: dict[str, Any] = {}
    for name, rows in zip(("query", "key", "value"), (ends[0][-1], ends[1][-1], ends[1][-1])):
        made = torch.randn(rows, heads, dim, generator=d.made).to(dtype).to(d.device)
        given[name] = made.requires_grad_(d.chance(0.7))
    call.inputs = list(given.values())
    # One tensor for both, so that PyTorch sees equal lengths.
    given["q_ends"] = torch.tensor(ends[0], device=d.device)
    given["k_ends"] = given["q_ends"] if lengths[0] is lengths[1] else torch.tensor(
        ends[1], device=d.device)  # fmt: skip
    if cuda and lengths[0] is lengths[1] and d.chance(0.5):
        call.rules["causal"] = given["is_causal"] = True
    if d.chance(0.3):
        call.rules["scale"] = given["scale"] = d.of(0.5, 0.0625, -0.25)
    call.lse_shape = heads, ends[0][-1]
    for b in range(len(lengths[0])):
        rows, columns = (slice(x[b], x[b + 1]) for x in ends)
        call.sequences.append(Part(rows, columns, (slice(None), rows)))
    return arrange(d, call, given)


# ---- a call of any kind ----

KINDS = [
    (flash_attn, "flash_attn_func", dense, ""),
    (flash_attn, "flash_attn_func", dense, ""),
    (flash_attn, "flash_attn_kvpacked_func", dense, "kv"),
    (flash_attn, "flash_attn_qkvpacked_func", dense, "qkv"),
    (flash_attn, "flash_attn_varlen_func", varlen, ""),
    (flash_attn, "flash_attn_varlen_func", varlen, ""),
    (flash_attn, "flash_attn_varlen_kvpacked_func", varlen, "kv"),
    (flash_attn, "flash_attn_varlen_qkvpacked_func", varlen, "qkv"),
    (flash_attn, "flash_attn_with_kvcache", cache, ""),
    (flash_attn_3, "flash_attn_func", dense, ""),
    (flash_attn_3, "flash_attn_qkvpacked_func", dense, "qkv"),
    (flash_attn_3, "flash_attn_qkvpacked_func", dense, "heads"),
    (flash_attn_3, "flash_attn_varlen_func", varlen, ""),
    (flash_attn_3, "flash_attn_varlen_func", varlen, ""),
    (flash_attn_3, "flash_attn_with_kvcache", cache, ""),
    (None, "F.scaled_dot_product_attention", scaled, ""),
    (None, "F.scaled_dot_product_attention", scaled, ""),
    (None, "F.scaled_dot_product_attention", jagged, ""),
]
BELOW = [
    (flash_attn, "_flash_attn_forward", dense, signature_below.dense_2),
    (flash_attn, "_flash_attn_varlen_forward", varlen, signature_below.varlen_2),
    (flash_attn_3, "_flash_attn_forward", dense, signature_below.dense_3),
    (flash_attn_3, "_flash_attn_forward", varlen, signature_below.varlen_3),
]


def draw(seed: int, device: str) -> Call:
    """One call, the same one for the same seed and device."""
    d = Drawer(seed, device)
    module, name, make, packed = d.of(*KINDS, *BELOW)
    route = name if module is None else f"{module.__name__}.{name}"
    if callable(packed):
        return make(d, Call(seed, route, packed, below=True), module, "")
    call = Call(seed, route, sdpa if module is None else getattr(module, name))
    return make(d, call, module, packed)
