"""Keep bits made ahead of attention, on another stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .._library import Error
from .._problem import Shard
from .._words import Keying
from ._call import Arguments, prepare
from ._dropout import PreparedDropout, make_ahead


def prepare_dropout(
    q_shape: Sequence[int],
    k_shape: Sequence[int] | None = None,
    *,
    dropout_p: float,
    device: torch.device | str | int,
    dtype: torch.dtype | None = None,
    causal: bool | Literal["bottom-right", "top-left"] = False,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
    keying: Keying = "ordo",
    cu_q: Tensor | None = None,
    cu_kv: Tensor | None = None,
    max_q: int | None = None,
    max_kv: int | None = None,
    sequence_ids: Tensor | None = None,
    shard: Shard | None = None,
    stream: torch.cuda.Stream | None = None,
) -> PreparedDropout:
    """Draw seed and offset now, and make the keep bits of a call while other work runs.

        made = prepare_dropout(q_shape, dropout_p=0.1, device=x.device, causal=True)
        q, k, v = project(x)
        o, lse = attention(q, k, v, causal=True, dropout_p=0.1, prepared=made)

    q_shape and k_shape (None: the same) are those of q and k in attention(), and so are the other
    arguments. dtype is that of q, by default bfloat16 on CUDA and float32 on the CPU. The bits are
    made on `stream`, by default one of ordo's own, and attention() waits for them there; on the CPU
    they are made at once. They are made only if the mode says so (ORDO_DROPOUT_MODE, or what the
    plan recommends) and set_keep_bits_memory() leaves room. Results are the same in any case.
    """
    place = _device(device)
    _check_stream(stream, place)
    if not isinstance(dropout_p, (int, float)) or not dropout_p > 0:
        raise Error("argument", f"dropout_p {dropout_p!r}: expected more than 0")
    if dtype is None:
        dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
    with torch.no_grad(), torch.autocast(place.type, enabled=False):
        one = torch.empty(1, dtype=dtype, device=place)  # of which all rows are views
        q = one.expand(_sizes("q_shape", q_shape))
        k = q if k_shape is None else one.expand(_sizes("k_shape", k_shape))
        a = Arguments(
            causal=causal, dropout_p=dropout_p, keying=keying, shard=shard, seed=seed,
            rng_state=rng_state, generator=generator, cu_q=cu_q, cu_kv=cu_kv, max_q=max_q,
            max_kv=max_kv, sequence_ids=sequence_ids,
        )  # fmt: skip
        q, k, v, lists, rules = prepare(q, k, k, a, now=True)
    return make_ahead(q, k, v, lists, rules, stream, hidden=True)


# ---- arguments ----


def _device(device: Any) -> torch.device:
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        raise Error("argument", f"device {device!r}: expected a device") from None
    if place.type not in ("cpu", "cuda"):
        raise Error("unsupported", f"device {device}: expected cpu or cuda")
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _check_stream(stream: Any, device: torch.device) -> None:
    if stream is None:
        return
    if not isinstance(stream, torch.cuda.Stream):
        raise Error("argument", f"stream {stream!r}: expected a torch.cuda.Stream or None")
    if stream.device != device:
        raise Error("argument", f"stream.device {stream.device}: expected {device}, that of q")


def _sizes(name: str, shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(int(x) for x in shape)
    except (TypeError, ValueError):
        sizes = ()
    if len(sizes) not in (3, 4) or min(sizes) < 0:
        expected = "(batch, row, head, dim), or packed (row, head, dim)"
        raise Error("shape", f"{name} {shape!r}: expected {expected}")
    return sizes
