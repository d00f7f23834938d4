"""Attention on tensors in one call."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .._library import Error
from .._problem import Shard
from .._words import Keying
from ._call import Arguments, Inputs, known_call, plain, prepare, widened, with_prepared, without_gaps
from ._inputs import Lists, Rules, call_of
from ._node import eager, watched
from ._pages import packed


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    sink: Tensor | None = None,
    dropout_p: float = 0.0,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
    keying: Keying = "ordo",
    cu_q: Tensor | None = None,
    cu_kv: Tensor | None = None,
    max_q: int | None = None,
    max_kv: int | None = None,
    q_lens: Tensor | None = None,
    kv_lens: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    shard: Shard | None = None,
    prepared: Any = None,
    block_mask: Any = None,
    page_table: Tensor | None = None,
    kv_starts: Tensor | None = None,
    seen: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(o, lse): attention with gradients, the same bits every time.

    q, k and v are (batch, row, head, dim), packed (row, head, dim), of one type: float32,
    bfloat16 or float16. Any strides will do as long as the last axis is contiguous. o is
    contiguous; lse is float32, (batch, head, row), packed (head, row), and has a gradient.

        causal          bottom-right: the last row sees every key; "top-left" aligns to the first
        window          (left, right), inclusive; negative = open
        scale           None = 1 / sqrt(dim)
        slopes          of ALiBi: (heads,) or (batch, heads)
        sink            (heads,), any floating type: a learned logit of each head in the softmax of
                        every row, with a gradient; lse includes it
        dropout_p       applies whenever it is not 0: ordo.Attention knows about training; to a
                        multiple of 1/256, closer than that to 0 or 1 of 1/65536
        seed            of dropout: a number, or (seed, offset); never the same pair twice
        rng_state       the same as an int64 tensor of two, on the device of q
        generator       where they are drawn from if neither is given; None = the default one
        keying          which element gets which random bit; "fa2" is FlashAttention-2's mask
        cu_q, cu_kv     packed: batch + 1 ends, int32, from 0; max_q, max_kv the longest of them
        q_lens, kv_lens padded: valid rows and columns of each sequence, int32; packed: how many
                        rows of each sequence are used, its first ones; o is 0 in the others
        sequence_ids    int64, of dropout; None = batch0, batch0 + 1, ...
        shard           where this problem sits in a larger one (ordo.Shard): ranks that hold
                        some of the heads draw their part of the same keep bits
        prepared        what prepare_dropout() returned for this call: seed and offset, and the
                        keep bits, which were made while other work ran
        block_mask      an ordo.BlockMask, or FlexAttention's, which each call converts as
                        ordo.torch.block_mask() does: narrows the mask; on CUDA up to head size 128;
                        a graph needs an ordo.BlockMask, and a CUDA graph one that is there already
        page_table      (batch, pages), int32: k and v are (page, row, head, dim), and kv_lens counts
                        whole sequences; rows have the bits of the training pass. No gradients
        kv_starts       with page_table: the first stored column of each sequence, int32, where a
                        window lets a cache drop old keys
        seen            (batch or 1, heads or 1, row, column), bool, any strides: which elements are
                        seen; narrows the mask. Packed: rows and columns of the longest sequence
        bias            (batch or 1, heads or 1, row, column), float32 or the type of q: added to the
                        scores after scale, softcap and slopes, with a gradient; less than -2^100
                        hides. Not of packed sequences. CUDA has seen up to head size 256, bias
                        up to 128
    """
    if (
        slopes is None and sink is None and seed is None and rng_state is None and generator is None
        and cu_q is None and cu_kv is None and max_q is None and max_kv is None
        and q_lens is None and kv_lens is None and sequence_ids is None
        and prepared is None and block_mask is None and page_table is None and kv_starts is None
        and seen is None and bias is None
    ):  # fmt: skip
        known = known_call(q, k, v, (causal, window, scale, softcap, dropout_p, keying, shard))
        if known is not None:
            return eager(*known)
    arguments = Arguments(
        causal, window, scale, softcap, dropout_p, keying, shard, seed, rng_state, generator,
        slopes, cu_q, cu_kv, max_q, max_kv, q_lens, kv_lens, sequence_ids, prepared, sink, block_mask,
        page_table, kv_starts, seen, bias,
    )  # fmt: skip
    return call(q, k, v, arguments)


class Attention(torch.nn.Module):
    """Scaled dot-product attention: o from q, k and v, (batch, row, head, dim).

    No parameters. Dropout applies while training and not in eval(), which a function cannot
    know. Keywords of forward() are those of ordo.torch.attention: seed, rng_state, cu_q, ...
    """

    def __init__(
        self,
        dropout: float = 0.0,
        *,
        causal: bool | Literal["bottom-right", "top-left"] = False,
        window: tuple[int, int] = (-1, -1),
        scale: float | None = None,
        softcap: float = 0.0,
        keying: Keying = "ordo",
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.rules: dict[str, Any] = dict(
            causal=causal, window=window, scale=scale, softcap=softcap, keying=keying
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
        p = self.dropout if self.training else 0.0
        o, _ = attention(q, k, v, dropout_p=p, **self.rules, **keywords)
        return o

    def extra_repr(self) -> str:
        rules = ", ".join(f"{name}={value!r}" for name, value in self.rules.items())
        return f"dropout={self.dropout}, {rules}"


# ---- every call ----


def call(q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> tuple[Tensor, Tensor]:
    """(o, lse)."""
    return run_inputs(q, k, v, a, now=False)[:2]


def run_inputs(
    q: Tensor, k: Tensor, v: Tensor, a: Arguments, now: bool = True
) -> tuple[Tensor, Tensor, Inputs]:
    """(o, lse, inputs); `now`: with the seed and offset that were drawn."""
    if a.kv_starts is not None and a.page_table is None:
        raise Error("argument", "kv_starts given, page_table None: expected both")
    batch = back = broken = None
    if a.page_table is not None:
        batch = q.shape[:2] if a.cu_q is None else None
        q, k, v, a, broken = packed(q, k, v, a)
    elif a.cu_q is not None and (a.q_lens is not None or a.kv_lens is not None):
        q, k, v, a, back = without_gaps(q, k, v, a)
    if a.prepared is not None:
        a = with_prepared(a)
    inputs = prepare(q, k, v, a, now)
    o, lse = attend(*inputs, a.prepared)
    if broken is not None:
        o, lse = o.masked_fill(broken[:, None, None], torch.nan), lse.masked_fill(broken, torch.nan)
    if back is not None:
        o, lse = o.index_select(0, back), lse.index_select(1, back)
    if batch is not None:
        o, lse = o.unflatten(0, batch), lse.unflatten(1, batch).transpose(0, 1)
    return o, lse, inputs


def attend(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, prepared: Any = None
) -> tuple[Tensor, Tensor]:
    """(o, lse), with gradients for q, k, v, the bias and the sink. `prepared` is a PreparedDropout."""
    if type(q).__name__ == "DTensor":  # its sharding rules are registered when they are needed
        rules_of = importlib.import_module("ordo.torch.distributed._dtensor")
        lists = rules_of.replicated(q, lists)
    real, dim = plain(q, k, v), v.shape[-1]
    if real and prepared is not None:
        lists = lists._replace(bits=prepared.take(q, k, lists, rules))
    q, k, v = widened(q, k, v)  # by zeros, which change no score
    made = call_of(lists, rules)
    o, lse = eager(q, k, v, made, lists.bias, lists.sink) if real else watched(q, k, v, made)
    return o if o.shape[-1] == dim else o[..., :dim].contiguous(), lse
