"""ordo for transformers: attn_implementation="ordo".

    import ordo.transformers
    ordo.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ordo")

Registers the attention and its mask. The mask that a model makes decides what is seen, as in eager
attention. Padded batches stay where they are if the valid tokens of each sequence are one run, and
are unpadded otherwise; packed ones stay so. Sequences are packed by cu_seq_lens_q/k or, as in eager
attention, by position_ids if neither attention_mask nor a cache is given: a sequence begins where a
position does not follow the one before. Beside an empty cache such positions are refused.
Dropout applies while the module trains. What a model asks for and ordo does not have (biases,
masks of other shapes) raises Error and names it. Models with attention code of their own run that
code, with the mask of eager attention and a warning.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    GenerationMixin,
    PreTrainedModel,
)

from ._library import Error
from ._transformers_ahead import with_prepared
from ._transformers_choice import check_choice
from ._transformers_chunks import in_chunks
from ._transformers_mask import (
    UNDERSTOOD,
    Mask,
    Pattern,
    attention_mask,
    own_code,
    pattern_of,
    shape_of,
    warn_of_own_code,
)
from ._transformers_padding import once, padded, right_padded
from .torch._attention import call
from .torch._call import Arguments
from .torch._repeated import Repeated

__all__ = ["NAME", "UNDERSTOOD", "attention_forward", "attention_mask", "register"]

NAME = "ordo"


def register(name: str = NAME) -> None:
    """Make attn_implementation="ordo" known to transformers: the attention and its mask."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)
    if name not in _names:
        _names.add(name)
        if len(_names) == 1:
            _check_models()
            _check_batching()


_names: set[str] = set()


def _check_models() -> None:
    """Let models that never call our attention say so before they are built.

    Some (GPT-J, Falcon) look up a class in a dictionary beside the model, and would end in a
    KeyError; others (BLOOM, CTRL) have one class for every implementation."""
    checked = PreTrainedModel.get_correct_attn_implementation

    @functools.wraps(checked)
    def get_correct_attn_implementation(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = checked(self, *args, **kwargs)
        if chosen in _names:
            model, tables = type(self).__name__, _class_tables(type(self))
            for table in tables:
                table.setdefault(chosen, functools.partial(_no_class, model, chosen))
            if not tables and not self._can_set_attn_implementation():
                warn_of_own_code(model)
                own_code[id(self.config)] = self.config
        return chosen

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation


def _check_batching() -> None:
    """Refuse generate_batch() and its kin, which would take another attention where there is one."""
    begin = GenerationMixin.init_continuous_batching

    @functools.wraps(begin)
    def init_continuous_batching(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = self.config._attn_implementation
        if chosen in _names:
            raise Error(
                "unsupported",
                f"generate_batch() with attn_implementation {chosen}: continuous batching keeps its "
                "keys in pages, which ordo does not read there: expected generate(), or "
                'set_attn_implementation("paged|sdpa") before',
            )
        return begin(self, *args, **kwargs)

    GenerationMixin.init_continuous_batching = init_continuous_batching


def _class_tables(model: type) -> list[dict[str, Any]]:
    modules = [sys.modules[kind.__module__] for kind in model.__mro__]
    found = [value for module in modules for value in vars(module).values() if type(value) is dict]
    return [x for x in found if isinstance(x.get("eager"), type)]


def _no_class(model: str, implementation: str, *args: Any, **kwargs: Any) -> None:
    raise Error(
        "unsupported",
        f"attn_implementation {implementation} of {model}: it chooses among attention classes of "
        "its own and has none for others; expected a model that calls the AttentionInterface",
    )


# ---- the attention ----

REFUSED = {
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
    learnable_sink: Tensor | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """(attn_output (batch, row, head, dim), None) from (batch, head, row, dim) tensors.

    attention_mask is what attention_mask() made, which then decides what is seen, as in eager
    attention; or the valid tokens (batch, key); or None. Beside the last two, is_causal and
    sliding_window decide. The mask knows which tokens are packed, not position_ids; those that
    are not heard are refused."""
    _refuse(kwargs)
    if (
        position_ids is not None and query.shape[0] == 1 and cu_seq_lens_q is None
        and not torch.compiler.is_compiling()
    ):  # fmt: skip
        _refuse_positions(position_ids, attention_mask)
    p = dropout if module.training else 0.0
    mask: Any = None  # one that says all there is to know
    if (
        type(attention_mask) is Mask and s_aux is None and learnable_sink is None
        and cu_seq_lens_q is None and cu_seq_lens_k is None and indices is None
        and block_indices is None and not torch.compiler.is_compiling()
    ):  # fmt: skip
        mask = attention_mask
    if mask is not None and mask.last is not None and mask.elements is None:
        o = mask.last.call(module, query, key, value, (scaling, softcap, p))
        if o is not None:
            return o, None
    if query.shape[0] != key.shape[0]:
        query, key, value = _one_batch(query, key, value)
    if query.dtype != value.dtype:  # rotary embeddings may have widened queries and keys
        query, key = query.to(value.dtype), key.to(value.dtype)
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    pattern = _pattern(q, k, attention_mask, is_causal, sliding_window)
    if pattern.keys is not None and (torch.compiler.is_compiling() or pattern.keys < k.shape[1]):
        k, v = k[:, : pattern.keys], v[:, : pattern.keys]
    if indices is not None:
        check_choice("indices", indices, 1, pattern, k.shape[1])
    if block_indices is not None:
        block = getattr(getattr(module, "config", None), "index_block_size", 1)
        check_choice("block_indices", block_indices, block, pattern, k.shape[1])
    arguments = Arguments(
        causal=pattern.causal,
        window=pattern.window,
        scale=scaling,
        softcap=softcap or 0.0,
        dropout_p=p,
        sink=s_aux if learnable_sink is None else learnable_sink,
    )
    ends_given = cu_seq_lens_q is not None and cu_seq_lens_k is not None
    listed = pattern.packing is not None or pattern.valid is not None or pattern.chunk is not None
    arguments = with_prepared(module, q, k, v, arguments, not listed and not ends_given)
    if pattern.chunk is not None:
        return in_chunks(q, k, v, pattern, arguments), None
    if pattern.packing is not None:
        arguments = _with_ends(_ends(pattern.packing), arguments)
    elif pattern.valid is not None:
        right = right_padded(q.shape[1], pattern.valid, arguments)
        if right is None:
            return padded(q, k, v, pattern.valid, arguments), None
        arguments = right
    elif cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        longest = _longest(cu_seq_lens_q, max_length_q), _longest(cu_seq_lens_k, max_length_k)
        arguments = _with_ends(_Ends(cu_seq_lens_q, cu_seq_lens_k, *longest), arguments)
    elif pattern.one is not None:
        torch._assert_async(
            pattern.one,
            "packed sequences under torch.compile: expected cu_seq_lens_q, not position_ids alone",
        )
    if mask is None or k.shape[1] != key.shape[2]:
        return _attend(q, k, v, arguments), None
    repeated = Repeated(arguments)
    o = repeated.call(query, key, value)
    if o is None:
        return _attend(q, k, v, arguments), None
    rules = scaling, softcap, p
    mask.last = _Last.make(query, key, rules, pattern, repeated)
    return o, None


class _Last(NamedTuple):
    """A call whose mask decided all, which the next layer may repeat with other tensors."""

    shapes: tuple[Any, Any]  # of query and key
    rules: Any  # scaling, softcap and dropout
    source: Tensor | None  # what the lists were made from
    version: int
    repeated: Repeated

    @staticmethod
    def make(
        query: Tensor, key: Tensor, rules: Any, pattern: Pattern, repeated: Repeated
    ) -> _Last | None:
        source = pattern.valid if pattern.packing is None else pattern.packing
        if torch.is_inference_mode_enabled():  # what is made there cannot be saved for backward
            return None
        version = 0
        if source is not None:
            if source.is_inference():
                return None
            version = source._version
        return _Last((query.shape, key.shape), rules, source, version, repeated)

    def call(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, rules: Any
    ) -> Tensor | None:
        """o; None if this is another call, or the compiled front declines it."""
        if (
            rules != self.rules
            or (query.shape, key.shape) != self.shapes
            or query.dtype is not value.dtype
            or (self.source is not None and self.source._version != self.version)
            or getattr(module, "_forward_pre_hooks", True)  # one may have drawn a seed already
        ):
            return None
        return self.repeated.call(query, key, value)


def _pattern(
    q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, sliding_window: int | None
) -> Pattern:
    """Which keys each query sees."""
    made = pattern_of(mask)
    if mask is not None and made is not None:
        expected, shape = (q.shape[0], 1, q.shape[1], k.shape[1]), shape_of(mask)
        if shape == (1, *expected[1:]) != expected:  # one mask for all sequences
            return _for_all(made, q.shape[0])
        if shape != expected:
            raise Error(
                "unsupported",
                f"attention_mask.shape {shape}: expected (batch, 1, query, key) = {expected}",
            )
        return made
    window = (-1, -1)
    if sliding_window is not None and k.shape[1] > sliding_window:
        window = (sliding_window - 1, -1 if is_causal else sliding_window - 1)
    if mask is None:
        return Pattern(is_causal, window)
    if mask.dim() != 2:
        raise Error(
            "unsupported",
            f"attention_mask.shape {tuple(mask.shape)}: expected what ordo's mask function made, "
            "unchanged, or valid tokens (batch, key); a mask of single elements is not supported",
        )
    return Pattern(is_causal, window, mask.shape[1], mask.bool())


def _for_all(pattern: Pattern, batch: int) -> Pattern:
    """The pattern of one sequence for each of a batch."""
    p = pattern  # torch.compile does not trace _replace()
    valid, packing = (None if x is None else x.expand(batch, -1) for x in (p.valid, p.packing))
    return Pattern(p.causal, p.window, p.keys, valid, packing, p.chunk, p.shift, p.one, p.bare)


def _refuse(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None and name in REFUSED:
            raise Error("unsupported", f"{name} given: {REFUSED[name]}: not supported")
    if given.get("output_attentions"):
        raise Error("unsupported", "output_attentions True: probabilities are never in memory")


def _one_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors with one batch size: of two, one must be 1 (learned queries of all sequences)."""
    sizes = query.shape[0], key.shape[0]
    if 1 not in sizes or value.shape[0] != key.shape[0]:
        raise Error(
            "shape",
            f"query.shape[0] {sizes[0]}, key.shape[0] {sizes[1]}, value.shape[0] {value.shape[0]}: "
            "expected equal ones, or 1 for query or for key and value",
        )
    size = sizes[1] if sizes[0] == 1 else sizes[0]
    query, key, value = (x.expand(size, -1, -1, -1) for x in (query, key, value))
    return query, key, value


# ---- sequences end to end ----


class _Ends(NamedTuple):
    q: Tensor
    kv: Tensor
    max_q: int
    max_kv: int


def _ends(packing: Tensor) -> _Ends:
    """Ends of the runs of equal numbers, row after row."""

    def compute(numbers: Tensor) -> _Ends:
        first = torch.ones_like(numbers, dtype=torch.bool)
        first[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
        starts = first.flatten().nonzero().flatten().to(torch.int32)
        ends = torch.nn.functional.pad(starts, (0, 1), value=numbers.numel())
        longest = int(ends.diff().max())
        return _Ends(ends, ends, longest, longest)

    made: _Ends = once(packing, "ends", compute)
    return made


def _longest(ends: Tensor, given: int | None) -> int:
    if given is not None:
        return given
    longest: int = once(ends, "longest", lambda x: x.diff().max().item())
    return longest


def _refuse_positions(position_ids: Tensor, mask: Tensor | None) -> None:
    """Positions of a batch of one that start again beside a cache without keys: FlashAttention's path
    in transformers packs them, eager attention does not. Of larger batches neither packs them, and
    nothing is read from the device."""
    pattern = pattern_of(mask)
    rows = position_ids.shape[-1]
    if pattern is None or not pattern.bare or position_ids.shape != (1, rows) or rows < 2:
        return

    def compute(positions: Tensor) -> bool:
        return bool((positions.diff(dim=-1) != 1).any())

    if once(position_ids, "restarts", compute):
        raise Error(
            "unsupported",
            "position_ids that do not run on by 1, beside a cache and no attention_mask: expected "
            "use_cache=False or cu_seq_lens_q and cu_seq_lens_k (packed sequences), or an "
            "attention_mask (one sequence)",
        )


def _with_ends(ends: _Ends, arguments: Arguments) -> Arguments:
    return arguments._replace(cu_q=ends.q, cu_kv=ends.kv, max_q=ends.max_q, max_kv=ends.max_kv)


def _attend(q: Tensor, k: Tensor, v: Tensor, arguments: Arguments) -> Tensor:
    """o, (batch, row, head, dim), of packed sequences too."""
    if arguments.cu_q is None:
        return call(q, k, v, arguments)[0]
    o, _ = call(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), arguments)
    return o.unflatten(0, q.shape[:2])
