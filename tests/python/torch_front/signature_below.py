"""FlashAttention's functions below autograd, behind the signatures of those above it.

_flash_attn_forward and _flash_attn_backward, and their forms for packed sequences, are what
programs with an autograd function of their own import.
"""

from __future__ import annotations

import torch
from ordo.compat.flash_attn import flash_attn_interface as flash_attn_2


class Below(torch.autograd.Function):
    """(out, lse, mask) by `forward`, gradients by `backward`, which writes them."""

    @staticmethod
    def forward(ctx, q, k, v, forward, backward):
        out, lse, mask, rng = forward(q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.rng, ctx.run = rng, backward
        ctx.mark_non_differentiable(lse, mask)
        return out, lse, mask

    @staticmethod
    def backward(ctx, dout, *_):
        q, k, v, out, lse = ctx.saved_tensors
        grads = [torch.full_like(x, torch.nan) for x in (q, k, v)]
        ctx.run(dout, q, k, v, out, lse, *grads, rng=ctx.rng)
        return (*grads, None, None)


def sides(window):
    return [-1 if x is None else int(x) for x in (window if window is not None else (-1, -1))]


def dense_2(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
            softcap=0.0, alibi_slopes=None, deterministic=False,
            return_attn_probs=False):  # fmt: skip
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    rules = dropout_p, scale, causal, *sides(window_size), softcap, alibi_slopes

    def forward(q, k, v):
        return flash_attn_2._flash_attn_forward(q, k, v, *rules, return_attn_probs)

    def backward(*tensors, rng):
        flash_attn_2._flash_attn_backward(*tensors, *rules, deterministic, rng)

    found = Below.apply(q, k, v, forward, backward)
    return found if return_attn_probs else found[0]


def varlen_2(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
             softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
             alibi_slopes=None, deterministic=False, return_attn_probs=False):  # fmt: skip
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    rules = (
        cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, scale, causal,
        *sides(window_size), softcap, alibi_slopes,
    )  # fmt: skip

    def forward(q, k, v):
        return flash_attn_2._flash_attn_varlen_forward(q, k, v, *rules, return_attn_probs)

    def backward(*tensors, rng):
        flash_attn_2._flash_attn_varlen_backward(*tensors, *rules, deterministic, rng)

    found = Below.apply(q, k, v, forward, backward)
    return found if return_attn_probs else found[0]
