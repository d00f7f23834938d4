"""Write what a pass read and computed to a file that `ordo audit` takes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from ctypes import c_uint64
from typing import Any

import numpy as np

from ._arrays import Array, numbers
from ._attention import Numbers
from ._convert import integer
from ._elements import array_of, array_of_tensor, is_tensor
from ._library import Error
from ._plan import Plan

_QUERIES = ("q", "o", "dout", "dq")  # (batch, row, head, dim), packed (row, head, dim)
_KEYS = ("k", "v", "dk", "dv")
_ROWS = ("lse", "dlse")  # (batch, head, row), packed (head, row)
_HEADS = ("slopes", "sink")  # (head,)
_NAMES = (*_QUERIES, *_KEYS, *_ROWS, *_HEADS, "dsink")  # dsink: (batch, head)
_TYPES = {"bf16": "BF16", "f16": "F16"}


def save_call(
    path: str | os.PathLike[str],
    plan: Plan,
    tensors: Mapping[str, Any],
    *,
    seed: int = 0,
    offset: int = 0,
    cu_q: Numbers = None,
    cu_kv: Numbers = None,
    q_lens: Numbers = None,
    kv_lens: Numbers = None,
    key_head: int | None = None,
) -> None:
    """Write a .safetensors file that audit() and `ordo audit` take, whole or not at all.

    `tensors` are those of the call by name: q, k, v, o and lse, of a backward pass dout and those of
    dq, dk and dv that it computed, and dlse, slopes, sink and dsink (of each sequence) if the call
    had them; arrays of NumPy or tensors of PyTorch, of any device. The keywords are what the call
    took.

    With `key_head`, the file holds that key head and the query heads that share it, and the plan of
    this part, which has the bits of the whole. Error "unsupported" if the plan has a block mask, or
    is of another backend than cuda and emulator.
    """
    given = dict(seed=seed, offset=offset, cu_q=cu_q, cu_kv=cu_kv, q_lens=q_lens, kv_lens=kv_lens)
    save(path, plan, tensors, {}, key_head, **given)


def save(
    path: Any,
    plan: Plan,
    tensors: Mapping[str, Any],
    digests: Mapping[str, str],
    key_head: int | None = None,
    *,
    seed: Any = 0,
    offset: Any = 0,
    cu_q: Any = None,
    cu_kv: Any = None,
    q_lens: Any = None,
    kv_lens: Any = None,
) -> None:
    """save_call(), with digests of the tensors as they were where they were computed."""
    _check(plan, tensors, key_head)
    p = plan.problem
    made = {name: _array(name, x, plan) for name, x in tensors.items()}
    words = [f"seed={integer('seed', seed, c_uint64)}", f"offset={integer('offset', offset, c_uint64)}"]
    given = {"packed": (cu_q, cu_kv), "padded": (q_lens, kv_lens)}.get(p.layout, ())
    if any(x is not None for x in (cu_q, cu_kv, q_lens, kv_lens) if not any(x is y for y in given)):
        raise Error("argument", f"lengths given: expected none but those of layout {p.layout}")
    names = ("cu-seqlens", "cu-seqlens-kv") if p.layout == "packed" else ("q-lens", "kv-lens")
    for name, x in zip(names, given):
        if x is None:
            raise Error("argument", f"{name} None: expected an array in {p.layout} layout")
        count = p.batch + (p.layout == "packed")
        words.append(f"{name}={','.join(map(str, numbers(name, x, count, np.int32)))}")
    line = plan.line
    if key_head is not None:
        line = part_line(plan, key_head)
        made = {name: part_of(name, x, plan, key_head) for name, x in made.items()}
    texts = {"ordo.plan": line, "ordo.inputs": " ".join(words)}
    if digests:
        texts["ordo.digests"] = " ".join(f"{name}={x}" for name, x in digests.items())
    _write(path, made, _TYPES[p.dtype], texts)


def _check(plan: Plan, tensors: Mapping[str, Any], key_head: int | None) -> None:
    if plan.info.backend not in ("cuda", "emulator"):
        raise Error(
            "unsupported",
            f"backend {plan.info.backend}: an audit expects a plan of backend cuda or emulator",
        )
    if plan.problem.blocks.entries:
        raise Error("unsupported", "a plan with a block mask: the file has no place for it")
    if plan.problem.bias.on:
        raise Error("unsupported", "a plan with a bias: the file has no place for it")
    if plan.problem.paging.page_rows:
        raise Error("unsupported", "a plan with pages: the file has no place for their table")
    for name in tensors:
        if name not in _NAMES:
            raise Error("argument", f"tensors[{name!r}]: expected the names {' '.join(_NAMES)}")
    for name in ("q", "k", "v", "o", "lse"):
        if name not in tensors:
            raise Error("argument", f"tensors: no {name}; expected q, k, v, o and lse")
    if key_head is None:
        return
    if not 0 <= integer("key_head", key_head) < plan.problem.kv_heads:
        raise Error("argument", f"key_head {key_head}: expected 0..{plan.problem.kv_heads - 1}")


def _array(name: str, given: Any, plan: Plan) -> Array:
    """`given` as an array of the shape and the width that the plan gives it."""
    p = plan.problem
    shapes: dict[str, tuple[int, ...]] = {
        **plan._shapes,
        **dict.fromkeys(_HEADS, (p.heads,)),
        "dsink": (p.batch, p.heads),
    }
    array = array_of_tensor(name, given) if is_tensor(given) else array_of(name, given)
    if array.shape != shapes[name]:
        raise Error("shape", f"{name}.shape {array.shape}: expected {shapes[name]}")
    words = {"f16": ("float16",), "bf16": ("bfloat16", "uint16", "int16")}[p.dtype]
    if name in (*_ROWS, *_HEADS, "dsink"):
        words = ("float32",)
    if array.dtype.name not in words or not array.dtype.isnative:
        raise Error("argument", f"{name}.dtype {array.dtype}: expected {' or '.join(words)}")
    return array


# ---- one key head ----


def part_line(plan: Plan, key_head: int) -> str:
    """The line of the plan for one key head; the same numeric key."""
    p = plan.problem
    group = p.heads // p.kv_heads
    changed = {"heads": group, "kv_heads": 1, "head0": p.shard.head0 + key_head * group, "section": 1}
    pairs = [word.partition("=") for word in plan.line.split(" ")]
    line = " ".join(a + equals + str(changed.get(a, b)) for a, equals, b in pairs)
    if Plan.parse(line).info.numeric_key != plan.info.numeric_key:
        raise Error("internal", f"key_head {key_head}: its plan has another numeric key")
    return line


def part_of(name: str, x: Any, plan: Plan, key_head: int) -> Any:
    """What of an array or a tensor belongs to one key head."""
    group = plan.problem.heads // plan.problem.kv_heads
    heads = slice(key_head * group, (key_head + 1) * group)
    if name in _HEADS:
        return x[heads]
    if name == "dsink":
        return x[:, heads]
    if name in _ROWS:
        return x[..., heads, :]
    return x[..., heads if name in _QUERIES else slice(key_head, key_head + 1), :]


# ---- the file ----


def _write(path: Any, tensors: Mapping[str, Array], type16: str, texts: dict[str, str]) -> None:
    header: dict[str, Any] = {"__metadata__": texts}
    data, at = [], 0
    for name, x in tensors.items():
        data.append(np.ascontiguousarray(x).tobytes())
        kind = type16 if x.itemsize == 2 else "F32"
        header[name] = {"dtype": kind, "shape": x.shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(os.fspath(path)))
    try:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            try:
                file.write(len(text).to_bytes(8, "little") + text)
                file.writelines(data)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(file.name)
                raise
    except OSError as error:
        raise Error("file", f"{os.fspath(path)}: {error.strerror}") from None
