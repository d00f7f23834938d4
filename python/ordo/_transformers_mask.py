"""The mask of attn_implementation="ordo": what it says, and its elements for those who want them.

transformers describes a mask as a function of indices. attention_mask() reads that function and
returns a Mask, which carries the answer as a Pattern to attention_forward(). Attention code of a
model's own never calls attention_forward(): it adds the mask to its scores, or indexes it. Then the
Mask computes its elements, the same as those of eager attention.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.masking_utils import eager_mask, sdpa_mask

from ._library import Error
from ._transformers_padding import keeps_numbers, padding_of


class Pattern(NamedTuple):
    """Which keys each query sees."""

    causal: bool
    window: tuple[int, int] = (-1, -1)
    keys: int | None = None  # only the first so many are seen: a static cache is longer; None: all
    valid: Tensor | None = None  # tokens of a padded batch, bool, (batch, key)
    packing: Tensor | None = None  # the sequence that each token belongs to, (batch, row)
    chunk: int | None = None  # tokens per chunk: a query sees keys of its own chunk; None: all
    shift: Tensor | None = None  # (batch,): key j is token j + shift, counted from a chunk's start
    one: Tensor | None = None  # in a graph, which cannot branch on it: no sequences are packed
    bare: bool = False  # causal, made beside no attention_mask and no cached keys, and not packed
    seen: Tensor | None = None  # single elements, (batch or 1, heads or 1, row, key), and nothing of the above
    bias: Tensor | None = None  # numbers that are added to the scores, of the same axes
    dropped: int = 0  # columns before key 0: those that a window's cache gave back
    before: Tensor | None = None  # how many of them are tokens of each sequence, int32; None: all


class _Single(Exception):
    """What no Pattern says: it takes single elements."""


# ---- reading a mask function ----

# By the name of a mask function: a Pattern from the values that the function holds.
UNDERSTOOD: dict[str, Callable[..., Pattern]] = {
    "and_masks.<locals>.and_mask": lambda mask_functions: _all_of([_read(x) for x in mask_functions]),
    "bidirectional_mask_function": lambda: Pattern(False),
    "causal_mask_function": lambda: Pattern(True),
    "chunked_overlay.<locals>.inner_mask": lambda chunk_size, left_padding: Pattern(
        False, chunk=int(chunk_size), shift=-left_padding.to(torch.int64)
    ),
    "packed_sequence_mask_function.<locals>.inner_mask": lambda packed_sequence_mask: Pattern(
        False, packing=_runs(packed_sequence_mask)
    ),
    "sliding_window_bidirectional_overlay.<locals>.inner_mask": lambda sliding_window: Pattern(
        False, (sliding_window, sliding_window)
    ),
    "sliding_window_overlay.<locals>.inner_mask": lambda sliding_window: Pattern(
        False, (sliding_window - 1, -1)
    ),
}


def _read(function: Callable[..., Any]) -> Pattern:
    """What a mask function of transformers says."""
    reader = UNDERSTOOD.get(function.__qualname__)
    if reader is None:
        raise _Single
    held = (cell.cell_contents for cell in function.__closure__ or ())
    return reader(**dict(zip(function.__code__.co_freevars, held)))


def _runs(numbers: Tensor) -> Tensor:
    """Numbers of sequences, each of which is one run of tokens."""
    numbers = numbers.to(torch.int64)
    changes, distinct = (x.diff(dim=-1).ne(0).sum(-1) for x in (numbers, numbers.sort(-1)[0]))
    if not torch.equal(changes, distinct):
        raise _Single
    return numbers


def _all_of(parts: Sequence[Pattern]) -> Pattern:
    packings = [x.packing for x in parts if x.packing is not None]
    sides = ([x.window[side] for x in parts if x.window[side] >= 0] for side in (0, 1))
    left, right = (min(side, default=-1) for side in sides)
    causal = any(x.causal for x in parts)
    chunks = [x for x in parts if x.chunk is not None]
    if len(packings) > 1 or len(chunks) > 1 or (chunks and (packings or (left, right) != (-1, -1))):
        raise _Single
    made = chunks[0] if chunks else Pattern(False, packing=packings[0] if packings else None)
    return made._replace(causal=causal, window=(left, right))


def _read_traced(
    function: Callable[..., Any],
    config: Any = None,
    use_vmap: bool = False,
    local_size: int | None = None,
    **rest: Any,
) -> Pattern:
    """The same under torch.compile, where functions cannot be looked into: from the arguments."""
    known = function.__name__ in ("and_mask", "bidirectional_mask_function", "causal_mask_function")
    if use_vmap or getattr(config, "attention_chunk_size", None) or not known:
        raise _Single
    causal = "allow_is_bidirectional_skip" not in rest
    if local_size is None:
        return Pattern(causal)
    return Pattern(causal, (local_size - 1, -1) if causal else (local_size, local_size))


def _one_sequence(
    function: Callable[..., Any],
    rows: int,
    batch_size: int = 1,
    local_size: int | None = None,
    device: Any = "cpu",
    **rest: Any,
) -> Tensor | None:
    """Whether each token sees the one before; None if a window hides it."""
    if rows < 2 or local_size == 1:
        return None
    batch = torch.arange(batch_size, device=device)[:, None]
    token = torch.arange(1, rows, device=device)[None]
    made: Tensor = function(batch, 0, token, token - 1).all()
    return made


# ---- making the mask ----

# By id, the configurations of models that never call attention_forward(): their masks are eager's.
own_code: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def attention_mask(
    *, mask_function: Callable[..., Any], q_length: int, **rest: Any
) -> Tensor | None:
    """What attention_forward() gets as its mask: a tensor (batch, 1, query, key) whose `pattern`
    says what it masks. Its elements, those of eager attention, are computed when they are used.
    A model with attention code of its own gets what eager attention gets, which may be None."""
    traced = torch.compiler.is_compiling()
    given = dict(rest, mask_function=mask_function, q_length=q_length)
    config = rest.get("config")
    if config is not None and not traced and own_code.get(id(config)) is config:
        return eager_mask(**given)
    whole = given | dict(allow_is_bidirectional_skip=False, allow_is_causal_skip=False)
    if rest.get("attention_mask") is not None and keeps_numbers():
        return eager_mask(**whole)
    try:  # in a graph around little, for it cannot be left inside
        pattern = _read_traced(mask_function, **rest) if traced else _described(_read(mask_function), **given)
    except _Single:
        if traced:
            return eager_mask(**whole)
        pattern = Pattern(False, seen=sdpa_mask(**whole))
    if traced:
        pattern = _described(pattern, **given)
    # A graph computes no elements that nobody uses; a mask of one row, made before a graph that
    # decodes, has few.
    if traced or (q_length == 1 and not rest.get("allow_is_causal_skip", True)):
        mask: Any = eager_mask(**whole)
        mask.pattern, mask.version = pattern, _version(mask)
        return mask
    return Mask.make(pattern, whole)


def _described(
    pattern: Pattern, mask_function: Callable[..., Any], q_length: int, kv_length: int, q_offset: Any = 0,
    kv_offset: int = 0, attention_mask: Tensor | None = None, **rest: Any,
) -> Pattern:  # fmt: skip
    """The pattern of a mask from that of its function."""
    causal, window, _, _, packing, chunk, shift, *_ = pattern
    end = _first(q_offset, q_length, attention_mask) + q_length - kv_offset
    if chunk is not None and shift is not None:
        if not causal:
            raise _Single
        first = kv_offset + end <= chunk  # it has all tokens
        chunk, shift = (None, None) if first else (chunk, shift + kv_offset)
    # Causal and window are aligned to the last query and the last key: these have to be one token.
    keys = end if causal else kv_length
    left, right = (-1 if side >= kv_offset + keys - 1 else side for side in window)
    aligned = causal or (left, right) != (-1, -1)
    if aligned and not (q_length <= keys <= kv_length and keys == end):
        if not torch.compiler.is_compiling():
            raise _Single
        raise Error(
            "unsupported",
            f"mask of {q_length} queries, the last of which is token {end - 1}, and {kv_length} "
            "keys: expected the keys to be the tokens up to the last query",
        )
    valid, before = _valid(attention_mask, kv_offset, keys or kv_length), None
    dropped = kv_offset if left >= 0 else 0
    if dropped and _valid(attention_mask, 0, dropped) is not None:
        before = attention_mask[:, :dropped].sum(dim=-1, dtype=torch.int32)  # type: ignore[index]
        valid = attention_mask[:, dropped : dropped + keys].bool()  # type: ignore[index]
    if packing is not None and (valid is not None or q_length != kv_length):
        raise _Single
    bare = attention_mask is None and q_length == kv_length
    one = None
    if bare and torch.compiler.is_compiling():
        one = _one_sequence(mask_function, q_length, **rest)
    bare = bare and causal and packing is None
    return Pattern(
        causal, (left, right), keys, valid, packing, chunk, shift, one, bare, dropped=dropped, before=before
    )


def pattern_of(mask: Tensor | None) -> Pattern | None:
    """What a mask of attention_mask() says; None of others, and of one written to since then."""
    made: Pattern | None = getattr(mask, "pattern", None)
    if mask is None or made is None or torch.compiler.is_compiling():
        return made
    elements: Any = mask.elements if isinstance(mask, Mask) else mask
    unchanged = elements is None or _version(elements) == mask.version
    return made if unchanged else None


def _version(elements: Tensor) -> int:
    """A count of the writes to a tensor; inference tensors have none, nor do those of a trace."""
    if torch.compiler.is_compiling() or elements.is_inference():
        return 0
    count: int = elements._version
    return count


def _first(q_offset: Any, q_length: int, attention_mask: Tensor | None) -> int:
    """Position of the first query. A static cache counts on the device: there, a graph has to take
    the length of attention_mask for the number of tokens so far, and checks that it is."""
    if not isinstance(q_offset, Tensor):
        return q_offset  # type: ignore[no-any-return]
    if not torch.compiler.is_compiling():
        return int(q_offset.item())
    if attention_mask is None:
        raise Error("unsupported", "attention_mask None: expected one: static cache in a graph")
    first: int = attention_mask.shape[1] - q_length
    torch._assert_async(
        q_offset == first, "attention_mask in a graph: expected one column per token so far"
    )
    return first


def _valid(attention_mask: Tensor | None, first: int, keys: int) -> Tensor | None:
    """The valid ones of the keys; None if all are."""
    if attention_mask is None:
        return None
    valid = attention_mask[:, first : first + keys].bool()
    if valid.shape[1] < keys:
        return torch.nn.functional.pad(valid, (0, keys - valid.shape[1]))
    none = valid.all() if torch.compiler.is_compiling() else padding_of(valid).none
    return None if none else valid


_ABOUT = "__get__ size dim stride storage_offset numel untyped_storage _is_view".split()
_MOVES = "to cuda cpu detach".split()


class Mask(Tensor):
    """A mask (batch, 1, query, key) without elements until somebody computes with them."""

    pattern: Pattern
    given: dict[str, Any]  # arguments of eager_mask()
    elements: Tensor | None
    version: int  # what _version() gave when the elements were made
    last: Any  # the last call of attention_forward() that the next layer may repeat; None: none

    @staticmethod
    def make(pattern: Pattern, given: dict[str, Any], device: Any = None) -> Mask:
        shape = (given["batch_size"], 1, given["q_length"], given["kv_length"])
        dtype = given.get("dtype", torch.float32)
        nan = torch.full((), torch.nan, dtype=dtype, device=device or given.get("device", "cpu"))
        made: Any = torch.Tensor._make_subclass(Mask, nan.expand(shape))
        made.pattern, made.given, made.elements, made.version = pattern, given, None, 0
        made.last = None
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        with torch._C.DisableTorchFunctionSubclass():
            if name in _MOVES:
                moved = func(*args, **kwargs)
                if moved.is_floating_point():
                    return _moved(args[0], moved)
            elif name in _ABOUT or name.startswith("is_"):
                told = func(*args, **kwargs)
                if not isinstance(told, Tensor):
                    return told
            args, kwargs = torch.utils._pytree.tree_map_only(Mask, _elements, (args, kwargs))
            return func(*args, **kwargs)


def of_elements(mask: Tensor) -> Pattern:
    """What a mask of single elements says, bool or numbers that are added: where these are 0 or the least
    of their type they hide, and elements suffice. In a graph, which cannot look, they are a bias."""
    if mask.dtype == torch.bool:
        return Pattern(False, seen=mask)
    hidden = mask <= torch.finfo(mask.dtype).min
    if torch.compiler.is_compiling() or keeps_numbers() or mask.requires_grad or not (hidden | (mask == 0)).all():
        return Pattern(False, bias=mask.masked_fill(hidden, -torch.inf))
    return Pattern(False, seen=~hidden)


def _moved(mask: Mask, there: Tensor) -> Mask:
    """The same mask with the type and on the device of `there`."""
    if there.dtype == mask.dtype and there.device == mask.device:
        return mask
    lists = {name: getattr(mask.pattern, name) for name in ("valid", "packing", "shift", "seen")}
    lists = {name: None if x is None else x.to(there.device) for name, x in lists.items()}
    pattern = mask.pattern._replace(**lists)
    return Mask.make(pattern, mask.given | {"dtype": there.dtype}, there.device)


def _elements(mask: Mask) -> Tensor:
    """Those of eager attention."""
    if torch.compiler.is_compiling():
        return eager_mask(**mask.given).to(mask.device)
    if mask.elements is None:
        warn_of_own_code("a model that computes with the mask")
        mask.elements = eager_mask(**mask.given).to(mask.device)
        mask.version = _version(mask.elements)
    return mask.elements


def warn_of_own_code(model: str) -> None:
    warnings.warn(
        f"{model} has attention code of its own, which ordo does not reach: it runs as with "
        "attn_implementation=\"eager\"",
        stacklevel=2,
    )
