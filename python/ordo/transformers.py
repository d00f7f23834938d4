"""ordo for transformers: attn_implementation="ordo".

    import ordo.transformers
    ordo.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ordo")

The mask that a model makes decides what is seen, as in eager attention. Batches that are padded on
the right stay where they are, others are unpadded; packed ones stay so. What a model asks for and
ordo does not have raises Error and names it: docs/guide/transformers.md.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from . import _transformers_paged
from ._library import Error
from ._transformers_choice import check_choice, seen_of
from ._transformers_mask import (
    UNDERSTOOD,
    Mask,
    Pattern,
    attention_mask,
    of_elements,
    own_code,
    pattern_of,
    warn_of_own_code,
)
from ._transformers_padding import (
    Packed,
    of_chunks,
    of_ends,
    of_runs,
    of_valid,
    once,
    padding_of,
    right_padded,
    taken,
)
from .torch import _front as f
from .torch._attention import call
from .torch._call import Arguments, _autocasts, _cast, checked, plain, prepare, width_of
from .torch._inputs import Call, call_of
from .torch._node import eager
from .torch._pages import ALIGN, aligned

__all__ = ["NAME", "UNDERSTOOD", "attention_forward", "attention_mask", "register"]

NAME = "ordo"


def register(name: str = NAME) -> None:
    """Make attn_implementation="ordo" known to transformers, and "paged|ordo" for continuous batching."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)
    _transformers_paged.register(name)
    if not _names:
        _check_models()
    _names.add(name)


_names: set[str] = set()


def _check_models() -> None:
    """Let models with attention code of their own say so before they are built. Some (GPT-J, the images of
    SAM) look up a class in a dictionary beside the model, others (BLOOM, CTRL) have one class for all."""
    checked = PreTrainedModel.get_correct_attn_implementation

    @functools.wraps(checked)
    def get_correct_attn_implementation(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = checked(self, *args, **kwargs)
        if chosen in _names:
            modules = {kind.__module__ for kind in type(self).__mro__}
            held = [x for name in modules for x in vars(sys.modules[name]).values() if type(x) is dict]
            classes = [x for x in held if isinstance(x.get("eager"), type)]
            for each in classes:
                each.setdefault(chosen, each["eager"])
            calls_ours = self._can_set_attn_implementation()
            if classes or not calls_ours:
                warn_of_own_code(type(self).__name__)
            if not calls_ours:
                own_code[id(self.config)] = self.config
        return chosen

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation


# ---- the attention ----

REFUSED = {
    "attention_bias": "a bias of the scores",
    "attn_bias": "a bias of the scores",
    "head_mask": "a mask of heads",
    "block_table": 'keys in a page table; attn_implementation "paged|ordo" has them',
    "cache": 'a paged cache; attn_implementation "paged|ordo" has it',
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
    learnable_sink: Tensor | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """(attn_output (batch, row, head, dim), None) from (batch, head, row, dim) tensors.

    attention_mask is what attention_mask() made, which then decides what is seen, as in eager
    attention; or single elements (batch, head, query, key), bool or added to the scores, which
    decide, too; or the valid tokens (batch, key); or None. Beside the last two, is_causal and
    sliding_window decide. The mask knows which tokens are packed, not position_ids; those that
    are not heard are refused."""
    for name, said in REFUSED.items():
        if kwargs.get(name) is not None:
            raise Error("unsupported", f"{name} given: {said}: not supported")
    if kwargs.get("output_attentions"):
        raise Error("unsupported", "output_attentions True: probabilities are never in memory")
    if (
        position_ids is not None and query.shape[0] == 1 and cu_seq_lens_q is None
        and not torch.compiler.is_compiling()
    ):  # fmt: skip
        _refuse_positions(position_ids, attention_mask)
    p = dropout if module.training else 0.0
    if query.shape[0] != key.shape[0]:  # one of them is 1: learned queries of all sequences
        size = key.shape[0] if query.shape[0] == 1 else query.shape[0]
        query, key, value = (x.expand(size, -1, -1, -1) for x in (query, key, value))
    if query.dtype != value.dtype:  # rotary embeddings may have widened queries and keys
        query, key = query.to(value.dtype), key.to(value.dtype)
    look: Any = None  # what decides the call besides its mask; None: more than that does
    if (
        type(attention_mask) is Mask and attention_mask.elements is None
        and s_aux is None and learnable_sink is None and cu_seq_lens_q is None and cu_seq_lens_k is None
        and indices is None and block_indices is None and position_bias is None and plain(query, key, value) and not checked()
        and not width_of(query, value)
    ):  # fmt: skip
        if _autocasts():
            query, key, value = _cast(query, key, value)
        look = scaling, softcap, p, *((x.shape, x.dtype, x.device) for x in (query, key, value))
        last = attention_mask.last
        if last is not None and last.look == look and last.version == _version(last.source):
            return eager(query, key, value, last.call)[0], None
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    pattern = _pattern(q, k, attention_mask, is_causal, sliding_window)
    if pattern.keys is not None and (torch.compiler.is_compiling() or pattern.keys < k.shape[1]):
        k, v, look = k[:, : pattern.keys], v[:, : pattern.keys], None
    if indices is not None:
        check_choice("indices", indices, 1, pattern, k.shape[1])
    if block_indices is not None:
        block = getattr(getattr(module, "config", None), "index_block_size", 1)
        check_choice("block_indices", block_indices, block, pattern, k.shape[1])
    bias, shown = _bias(q, k, pattern, position_bias), pattern
    lists = pattern.valid, pattern.packing, pattern.chunk
    if (bias is not None and any(x is not None for x in lists)) or _has_holes(pattern):
        shown = Pattern(False, seen=seen_of(pattern, q.shape[1], k.shape[1], q.device)[:, None])
    arguments = Arguments(
        causal=shown.causal,
        window=shown.window,
        scale=scaling,
        softcap=softcap or 0.0,
        dropout_p=p,
        sink=s_aux if learnable_sink is None else learnable_sink,
        seen=None if shown.seen is None else shown.seen.expand(-1, -1, q.shape[1], k.shape[1]),
        bias=bias,
    )
    packed: Packed | None = None
    if shown.chunk is not None:
        packed = of_chunks(q.shape[0], q.shape[1], k.shape[1], shown)
    elif shown.packing is not None:
        packed = of_runs(shown.packing)
    elif shown.valid is not None:
        right = None if shown.dropped else right_padded(q.shape[1], shown.valid, arguments)
        if right is None:
            packed = of_valid(q.shape[0], q.shape[1], shown.valid, arguments)
        else:
            arguments = right
    elif cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        packed = Packed(of_ends(cu_seq_lens_q, max_length_q), of_ends(cu_seq_lens_k, max_length_k))
    elif pattern.one is not None:
        torch._assert_async(
            pattern.one,
            "packed sequences under torch.compile: expected cu_seq_lens_q, not position_ids alone",
        )
    rows: Tensor | None = None
    if packed is not None:
        q, k, v, rows = taken(q, packed.q), taken(k, packed.kv), taken(v, packed.kv), packed.q.rows
        arguments = arguments._replace(
            cu_q=packed.q.ends, cu_kv=packed.kv.ends, max_q=packed.q.longest, max_kv=packed.kv.longest
        )
        look = look if rows is packed.kv.rows is None else None
    if pattern.dropped:
        k, v, arguments = _aligned(k, v, arguments, pattern)
        look = None
    if look is not None and attention_mask is not None:
        last = _repeated(look, pattern, q, k, v, arguments)
        attention_mask.last = last
        return eager(query, key, value, last.call)[0], None
    o, _ = call(q, k, v, arguments)
    if packed is None:
        return o, None
    shape = query.shape[0], query.shape[2]
    if rows is not None:
        o = o.new_zeros(shape[0] * shape[1], *o.shape[1:]).index_copy(0, rows, o)
    return o.unflatten(0, shape), None


def _aligned(k: Tensor, v: Tensor, a: Arguments, pattern: Pattern) -> tuple[Tensor, Tensor, Arguments]:
    """Keys behind hidden ones, which take the place of those that a window's cache gave back: tiles begin
    where they begin in the whole sequence, so that a row has the bits of the training pass."""
    if a.cu_kv is not None:
        before = a.cu_kv.new_full(a.cu_kv[1:].shape, pattern.dropped) if pattern.before is None else pattern.before
        k, v, ends = aligned(k, v, a.cu_kv, before)
        return k, v, a._replace(cu_kv=ends, max_kv=(a.max_kv or 0) + ALIGN)
    fill = pattern.dropped % ALIGN
    k, v = (F.pad(x, (0, 0, 0, 0, fill, 0), value=hidden) for x, hidden in ((k, torch.nan), (v, 0.0)))
    seen, bias = (None if x is None else F.pad(x, (fill, 0)) for x in (a.seen, a.bias))
    return k, v, a._replace(seen=seen, bias=bias)


class _Last(NamedTuple):
    """A call that its mask decided, which the next layer repeats with other tensors."""

    look: Any
    source: Tensor | None  # what the lists were made from
    version: Any
    call: Call  # takes tensors (batch, head, row, dim)


def _repeated(
    look: Any, pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, a: Arguments
) -> _Last:
    with torch.no_grad():
        _, _, _, lists, rules = prepare(q, k, v, a)
    flags, *rest = call_of(lists, rules)
    source = pattern.valid if pattern.packing is None else pattern.packing
    return _Last(look, source, _version(source), (flags | f.HEADS_FIRST, *rest))


def _version(x: Tensor | None) -> Any:
    """A count of the writes to a tensor; of inference tensors, which have none, a new object. What
    is made in inference mode cannot be saved for backward."""
    if x is None:
        return torch.is_inference_mode_enabled()
    return object() if x.is_inference() else (x._version, torch.is_inference_mode_enabled())


def _pattern(
    q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, sliding_window: int | None
) -> Pattern:
    """Which keys each query sees."""
    made = pattern_of(mask)
    if mask is not None and made is not None:
        expected, shape = (q.shape[0], 1, q.shape[1], k.shape[1]), tuple(mask.shape)
        alike = not made.causal and made.window == (-1, -1) and made.packing is made.chunk is made.seen is None
        rows = shape[2] if alike else expected[2]  # of rows that see the same any number will do
        if shape[0] not in (1, expected[0]) or shape[1:] != (1, rows, expected[3]):
            raise Error(
                "unsupported",
                f"attention_mask.shape {shape}: expected (batch, 1, query, key) = {expected}",
            )
        if shape[0] == expected[0]:
            return made
        valid, packing = (None if x is None else x.expand(q.shape[0], -1) for x in (made.valid, made.packing))
        return made._replace(valid=valid, packing=packing)  # one mask for all sequences
    window = (-1, -1)
    if sliding_window is not None and k.shape[1] > sliding_window:
        window = (sliding_window - 1, -1 if is_causal else sliding_window - 1)
    if mask is None:
        return Pattern(is_causal, window)
    if mask.dim() == 2:
        return Pattern(is_causal, window, mask.shape[1], mask.bool())
    elements = mask.elements if isinstance(mask, Mask) and mask.elements is not None else mask
    axes = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    fits = len(elements.shape) == 4 and all(x in (1, most) for x, most in zip(elements.shape, axes))
    if not fits or not (elements.dtype == torch.bool or elements.is_floating_point()):
        raise Error(
            "unsupported",
            f"attention_mask.shape {tuple(elements.shape)}, dtype {elements.dtype}: expected what ordo's mask "
            f"function made, unchanged, or valid tokens (batch, key), or single elements {axes}",
        )
    if elements.dtype == torch.bool or elements.requires_grad:
        return of_elements(elements)
    return once(elements, "elements", of_elements)


def _bias(q: Tensor, k: Tensor, pattern: Pattern, position_bias: Tensor | None) -> Tensor | None:
    """What is added to the scores, as attention() takes it."""
    made = pattern.bias
    if position_bias is not None:
        if position_bias.dim() != 4:
            shape = tuple(position_bias.shape)
            raise Error("shape", f"position_bias.shape {shape}: expected (batch or 1, heads or 1, query, key)")
        position_bias = position_bias[..., : k.shape[1]]
        made = position_bias if made is None else made + position_bias
    if made is None:
        return None
    made = made if made.dtype == q.dtype else made.float()
    return made.expand(-1, -1, q.shape[1], k.shape[1])


def _has_holes(pattern: Pattern) -> bool:
    """Whether padding between tokens would move those of a window, which graphs, that cannot look, refuse."""
    return (
        pattern.valid is not None and pattern.window != (-1, -1)
        and not torch.compiler.is_compiling() and not padding_of(pattern.valid).runs
    )  # fmt: skip


def _refuse_positions(position_ids: Tensor, mask: Tensor | None) -> None:
    """Positions of a batch of one that start again beside a cache without keys: FlashAttention's path
    in transformers packs them, eager attention does not. Of larger batches neither packs them, and
    nothing is read from the device."""
    pattern = pattern_of(mask)
    rows = position_ids.shape[-1]
    if pattern is None or not pattern.bare or position_ids.shape != (1, rows) or rows < 2:
        return

    if once(position_ids, "restarts", lambda positions: bool((positions.diff(dim=-1) != 1).any())):
        raise Error(
            "unsupported",
            "position_ids that do not run on by 1, beside a cache and no attention_mask: expected "
            "use_cache=False or cu_seq_lens_q and cu_seq_lens_k (packed sequences), or an "
            "attention_mask (one sequence)",
        )
