"""ordo for transformers: attn_implementation="ordo".

    import ordo.transformers
    ordo.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ordo")

Registers the attention and its mask: without the mask transformers would leave padding out
without a word. Padded batches are unpadded to sequences end to end, packed ones (position_ids that
start again, or cu_seq_lens_q/k) stay so. Dropout applies while the module trains. What a model
asks for and ordo does not have (attention sinks, biases, masks of other shapes) raises Error and
names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from ._library import Error
from .torch._attention import Arguments, call

__all__ = ["NAME", "attention_forward", "attention_mask", "register"]

NAME = "ordo"


def register(name: str = NAME) -> None:
    """Make attn_implementation="ordo" known to transformers: the attention and its mask."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)


# ---- the mask ----

# Those that a causal or full mask, a window and sequences of their own can say.
UNDERSTOOD = {
    "causal_mask_function",
    "bidirectional_mask_function",
    "sliding_window_overlay.<locals>.inner_mask",
    "sliding_window_bidirectional_overlay.<locals>.inner_mask",
    "padding_mask_function.<locals>.inner_mask",
}
_AND = "and_masks.<locals>.and_mask"
_PACKED = "packed_sequence_mask_function.<locals>.inner_mask"


def _packing(mask_function: Callable[..., Any]) -> Tensor | None:
    """Which sequence each token belongs to, if the mask says so; Error if it says what we lack."""
    name = mask_function.__qualname__
    if name in UNDERSTOOD:
        return None
    held = dict(zip(mask_function.__code__.co_freevars, mask_function.__closure__ or ()))
    if name == _PACKED:
        packing: Tensor = held["packed_sequence_mask"].cell_contents
        return packing
    if name == _AND:
        found = [_packing(part) for part in held["mask_functions"].cell_contents]
        return next((x for x in found if x is not None), None)
    raise Error(
        "unsupported",
        f"mask {name.split('.')[0]}: expected causal, full, sliding windows or packed sequences",
    )


def attention_mask(
    *,
    mask_function: Callable[..., Any],
    attention_mask: Tensor | None = None,
    kv_length: int,
    **rest: Any,
) -> Tensor | None:
    """What attention_forward() gets as its mask: None, the valid tokens of a padded batch (bool,
    (batch, row)), or the number of the sequence each token of a packed one belongs to (int64)."""
    if torch.compiler.is_compiling():
        _refuse_traced(**rest)  # a trace cannot look into functions; see also _restarts()
        packing = None
    else:
        packing = _packing(mask_function)
    if packing is not None:
        return packing.to(torch.int64)
    mask: Tensor | None = flash_attention_mask(
        mask_function=mask_function, attention_mask=attention_mask, kv_length=kv_length, **rest
    )
    return mask


def _refuse_traced(config: Any = None, use_vmap: bool = False, **rest: Any) -> None:
    if use_vmap:
        raise Error("unsupported", "mask function of the model's own: not supported")
    if getattr(config, "attention_chunk_size", None):
        raise Error(
            "unsupported", f"attention_chunk_size {config.attention_chunk_size}: not supported"
        )


# ---- the attention ----

REFUSED = {
    "s_aux": "attention sinks",
    "learnable_sink": "attention sinks",
    "position_bias": "a bias of the scores",
    "attention_bias": "a bias of the scores",
    "attn_bias": "a bias of the scores",
    "head_mask": "a mask of heads",
    "block_table": "keys in a page table",
    "cache": "a paged cache",
}


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """(attn_output (batch, row, head, dim), None) from (batch, head, row, dim) tensors."""
    _refuse(s_aux=s_aux, **kwargs)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    if query.dtype != value.dtype:  # rotary embeddings may have widened queries and keys
        query, key = query.to(value.dtype), key.to(value.dtype)
    window = (-1, -1)
    if sliding_window is not None and key.shape[2] > sliding_window:
        window = (sliding_window - 1, sliding_window - 1)
    arguments = Arguments(
        causal=is_causal,
        window=window,
        scale=scaling,
        softcap=softcap or 0.0,
        dropout_p=dropout if module.training else 0.0,
    )
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    if attention_mask is not None:
        if attention_mask.dim() != 2:
            raise Error(
                "unsupported",
                f"attention_mask.shape {tuple(attention_mask.shape)}: expected (batch, row), valid "
                "tokens; a mask of single elements is not supported",
            )
        if attention_mask.dtype != torch.int64:
            return _unpadded(q, k, v, attention_mask.bool(), arguments), None
        return _packed(q, k, v, _ends(attention_mask), arguments), None
    if cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        longest_q = _longest(cu_seq_lens_q, max_length_q)
        ends = _Ends(cu_seq_lens_q, cu_seq_lens_k, longest_q, _longest(cu_seq_lens_k, max_length_k))
        return _packed(q, k, v, ends, arguments), None
    if position_ids is not None:
        # Encoders, and decoders with a cache, make no mask that says so.
        starts = _restarts(position_ids, q, k)
        if starts is not None:
            return _packed(q, k, v, _ends(starts), arguments), None
    return call(q, k, v, arguments)[0], None


def _refuse(**given: Any) -> None:
    for name, what in REFUSED.items():
        if given.get(name) is not None:
            raise Error("unsupported", f"{name} given: {what}: not supported")
    if given.get("output_attentions"):
        raise Error("unsupported", "output_attentions True: probabilities are never in memory")


# ---- sequences end to end ----


class _Ends(NamedTuple):
    q: Tensor
    kv: Tensor
    max_q: int
    max_kv: int


# What follows from a mask is the same in every layer: it is computed, and waited for, once.
_known: Any = WeakTensorKeyDictionary()


def _once(mask: Tensor, kind: str, compute: Callable[[Tensor], Any]) -> Any:
    if torch.compiler.is_compiling() or mask.is_inference():
        return compute(mask)
    kept = _known.setdefault(mask, {})
    version, made = kept.get(kind, (None, None))
    if version != mask._version:
        made = compute(mask)
        kept[kind] = (mask._version, made)
    return made


def _ends(packing: Tensor) -> _Ends:
    """Ends of the runs of equal numbers, row after row."""

    def compute(numbers: Tensor) -> _Ends:
        first = torch.ones_like(numbers, dtype=torch.bool)
        first[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
        starts = first.flatten().nonzero().flatten().to(torch.int32)
        ends = torch.nn.functional.pad(starts, (0, 1), value=numbers.numel())
        longest = int(ends.diff().max())
        return _Ends(ends, ends, longest, longest)

    made: _Ends = _once(packing, "ends", compute)
    return made


def _longest(ends: Tensor, given: int | None) -> int:
    if given is not None:
        return given
    longest: int = _once(ends, "longest", lambda x: x.diff().max().item())
    return longest


def _restarts(position_ids: Tensor, q: Tensor, k: Tensor) -> Tensor | None:
    """Numbers of sequences, if positions begin again; as transformers, in batches of one only."""
    rows = q.shape[1]
    if rows == 1 or k.shape[1] != rows or position_ids.shape[-1] != rows:
        return None
    if torch.compiler.is_compiling():
        # How many sequences there are is data, which a graph cannot branch on.
        torch._assert_async(
            (position_ids.diff(dim=-1) == 1).all(),
            "packed sequences under torch.compile: expected cu_seq_lens_q, not position_ids",
        )
        return None
    if q.shape[0] != 1 or position_ids.shape != (1, rows):
        return None

    def compute(positions: Tensor) -> Tensor | None:
        restarted = positions.diff(dim=-1) != 1
        if not restarted.any():
            return None
        return torch.nn.functional.pad(restarted.to(torch.int64).cumsum(-1), (1, 0))

    made: Tensor | None = _once(position_ids, "restarts", compute)
    return made


def _packed(q: Tensor, k: Tensor, v: Tensor, ends: _Ends, arguments: Arguments) -> Tensor:
    arguments = arguments._replace(cu_q=ends.q, cu_kv=ends.kv, max_q=ends.max_q, max_kv=ends.max_kv)
    o, _ = call(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), arguments)
    return o.unflatten(0, q.shape[:2])


class _Valid(NamedTuple):
    rows: Tensor  # of the flattened batch
    ends: Tensor
    longest: int


def _valid(mask: Tensor) -> _Valid:
    def compute(valid: Tensor) -> _Valid:
        lengths = valid.sum(dim=-1, dtype=torch.int32)
        rows = valid.flatten().nonzero().flatten()
        ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        return _Valid(rows, ends, int(lengths.max()))

    made: _Valid = _once(mask, "valid", compute)
    return made


def _unpadded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, arguments: Arguments) -> Tensor:
    """Valid tokens only; zeros in the other rows of the result."""
    k, v = k[:, : mask.shape[1]], v[:, : mask.shape[1]]  # a static cache is longer
    batch, rows = q.shape[:2]
    keys = _valid(mask)
    queries = keys
    if rows < k.shape[1]:  # the last ones of each sequence, to which older keys are cached
        queries = _valid(mask[:, -rows:])
    arguments = arguments._replace(
        cu_q=queries.ends, cu_kv=keys.ends, max_q=queries.longest, max_kv=keys.longest
    )
    o, _ = call(_take(q, queries.rows), _take(k, keys.rows), _take(v, keys.rows), arguments)
    made = o.new_zeros(batch * rows, *o.shape[1:]).index_copy(0, queries.rows, o)
    return made.unflatten(0, (batch, rows))


def _take(x: Tensor, rows: Tensor) -> Tensor:
    # Each row once: however the gradient is scattered back, nothing is added to anything.
    return x.flatten(0, 1).index_select(0, rows)
