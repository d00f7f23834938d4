"""Continuous batching of transformers: attn_implementation="paged|ordo".

The cache hands out the keys of each sequence end to end. A layer with a window gets those that its
rows may see, and says by its lengths how many it does not get: tiles of keys begin where they begin in
the whole sequence, so that a row has the bits of the training pass.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, GenerationMixin

from ._library import Error
from .torch._attention import call
from .torch._call import Arguments
from .torch._pages import ALIGN, aligned


_names: set[str] = set()


def register(name: str) -> None:
    """Let generate_batch() and its kin take "paged|ordo" in the place of "ordo", where they would take
    FlashAttention if there is one; at their end they put "ordo" back."""
    AttentionInterface.register(f"paged|{name}", paged_forward)
    if not _names:
        _begin_with_pages()
    _names.add(name)


def _begin_with_pages() -> None:
    begin = GenerationMixin.init_continuous_batching

    @functools.wraps(begin)
    def init_continuous_batching(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = self.config._attn_implementation
        if chosen not in _names:
            return begin(self, *args, **kwargs)
        self.set_attn_implementation(f"paged|{chosen}")
        try:
            manager = begin(self, *args, **kwargs)
        except BaseException:
            self.set_attn_implementation(chosen)
            raise
        manager._original_attn_impl = chosen
        return manager

    GenerationMixin.init_continuous_batching = init_continuous_batching


def paged_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    *,
    cache: Any = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Any = None,
    max_seqlen_q: Any = None,
    max_seqlen_k: Any = None,
    position_ids: Tensor | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    block_table: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """(attn_output (1, row, head, dim), None) from (1, head, row, dim) tensors of several sequences."""
    if cache is None or cu_seq_lens_q is None or cu_seq_lens_k is None:
        raise Error(
            "unsupported",
            'attn_implementation "paged|ordo" without a paged cache: expected generate_batch(); '
            'attn_implementation "ordo" is for all else',
        )
    if dropout:
        raise Error(
            "unsupported", f"dropout {dropout:g} with a paged cache: expected 0; call model.eval() before"
        )
    if block_table is not None:
        raise Error(
            "unsupported", "block_table given: expected None; keys are gathered by the cache"
        )
    given = sliding_window or getattr(module, "sliding_window", None)  # some say it, some have it
    window = (int(given) - 1, 0) if given else (-1, -1)
    kind = "sliding_attention" if given else "full_attention"
    lengths, longest = cu_seq_lens_k, max_seqlen_k
    if isinstance(lengths, dict):
        lengths, longest = lengths[kind], longest[kind]
    k, v = cache.update(
        key_states=key,
        value_states=value,
        layer_idx=module.layer_idx,
        read_index=kwargs["read_index"],
        write_index=kwargs["write_index"],
    )
    ends_q, ends = cu_seq_lens_q.to(torch.int32), lengths.to(torch.int32)
    if window != (-1, -1):
        whole = _whole(ends_q, cu_seq_lens_k, position_ids)
        k, v, ends = aligned(k, v, ends, (whole - ends.diff()).clamp(min=0))
        longest = int(longest) + ALIGN
    arguments = Arguments(
        True, window, scaling, softcap or 0.0, sink=s_aux, cu_q=ends_q, cu_kv=ends,
        max_q=max_seqlen_q, max_kv=longest,
    )  # fmt: skip
    with torch.no_grad():
        o, _ = call(query[0].transpose(0, 1), k, v, arguments)
    return o[None], None


def _whole(ends_q: Tensor, lengths: Any, position_ids: Tensor | None) -> Tensor:
    """The length of each sequence, with the keys that a window's layer does not get."""
    if isinstance(lengths, dict) and "full_attention" in lengths:
        whole: Tensor = lengths["full_attention"].diff().to(torch.int32)
        return whole
    if position_ids is None:
        raise Error(
            "unsupported",
            "sliding_window without a layer of full attention or position_ids: expected one of them, "
            "which say how many keys the cache dropped",
        )
    last = position_ids[0, (ends_q[1:] - 1).clamp(min=0).long()].to(torch.int32) + 1
    return torch.where(ends_q.diff() > 0, last, 0)
