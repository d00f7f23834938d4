"""The functions through which a case may call attention, each with what it takes.

make() returns a function of the case's differentiable tensors that gives (o, lse or None), rows
first; `inputs()` are these tensors, in the layout of the entry, and `parts()` takes their gradients
apart again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ordo.torch
import torch
import torch.nn.functional as F
from ordo.compat import flash_attn_3
from signature_below import dense_2, varlen_2
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Values = dict[str, str]
_OURS = ("ids", "shard", "sink", "blocks")  # which only attention() has


def _basic(v: Values) -> bool:
    """Without what only attention() has."""
    return (
        all(v[axis] == "none" for axis in _OURS) and v["mask"] != "top-left"
        and v["dropout"] not in ("fa2", "prepared") and v["dout"] in ("dense", "expanded", "strided")
    )  # fmt: skip


class Attention:
    """ordo.torch.attention."""

    def takes(self, v: Values, situation: str) -> bool:
        return True

    def inputs(self, case: Any) -> list[Tensor]:
        return [case.q, case.k, case.v] + ([] if case.sink is None else [case.sink])

    def parts(self, made: list[Any]) -> list[Any]:
        return made

    def make(self, case: Any) -> Callable[..., Any]:
        if case.sink is None:
            return lambda q, k, v: ordo.torch.attention(q, k, v, **case.keywords)
        return lambda q, k, v, sink: ordo.torch.attention(q, k, v, sink=sink, **case.keywords)


class Module(Attention):
    """ordo.torch.Attention."""

    def takes(self, v: Values, situation: str) -> bool:
        return v["dout"] in ("dense", "expanded", "strided") and v["sink"] == "none" and v["dropout"] != "prepared"

    def make(self, case: Any) -> Callable[..., Any]:
        rest = dict(case.keywords)
        p = rest.pop("dropout_p", 0.0)
        names = ("causal", "window", "scale", "softcap", "keying")
        module = ordo.torch.Attention(p, **{x: rest.pop(x) for x in names if x in rest})
        return lambda q, k, v: (module(q, k, v, **rest), None)


class Flash(Attention):
    """flash_attn_func, or with `how` one of its packed forms."""

    def __init__(self, how: str = "") -> None:
        self.how = how

    def takes(self, v: Values, situation: str) -> bool:
        if not _basic(v) or v["layout"] != "dense":
            return False
        if self.how and (v["dims"] == "unequal" or v["dims"] == "odd"):
            return False
        return self.how != "qkv" or (v["heads"] == "equal" and v["lengths"] == "equal")

    def inputs(self, case: Any) -> list[Tensor]:
        if self.how == "kv":
            return [case.q, torch.stack((case.k, case.v), -3)]
        if self.how == "qkv":
            return [torch.stack((case.q, case.k, case.v), -3)]
        return [case.q, case.k, case.v]

    def parts(self, made: list[Any]) -> list[Any]:
        if self.how == "kv":
            return [made[0], *made[1].unbind(-3)]
        return list(made[0].unbind(-3)) if self.how == "qkv" else made

    def make(self, case: Any) -> Callable[..., Any]:
        name = f"flash_attn_{self.how}packed_func" if self.how else "flash_attn_func"
        call, rest = getattr(ordo.torch, name), self.keywords(case)
        return lambda *given: (call(*given, **rest), None)

    def keywords(self, case: Any) -> dict[str, Any]:
        names = dict(window="window_size", scale="softmax_scale", slopes="alibi_slopes")
        return {names.get(x, x): y for x, y in case.keywords.items() if x not in _LISTS}


_LISTS = ("cu_q", "cu_kv", "max_q", "max_kv", "q_lens", "kv_lens")


class Varlen(Flash):
    """flash_attn_varlen_func, or a packed form."""

    def takes(self, v: Values, situation: str) -> bool:
        return super().takes(dict(v, layout="dense"), situation) and v["layout"] == "packed"

    def make(self, case: Any) -> Callable[..., Any]:
        name = f"flash_attn_varlen_{self.how}packed_func" if self.how else "flash_attn_varlen_func"
        lists = [case.keywords[x] for x in ("cu_q", "cu_kv", "max_q", "max_kv")]
        lists = lists[::2] if self.how == "qkv" else lists
        call, rest = getattr(ordo.torch, name), self.keywords(case)
        return lambda *given: (call(*given, *lists, **rest), None)


class Third(Flash):
    """FlashAttention-3's functions, which have no dropout."""

    def takes(self, v: Values, situation: str) -> bool:
        return _basic(v) and v["dropout"] == "none" and v["slopes"] == "none" and v["layout"] != "padded"

    def make(self, case: Any) -> Callable[..., Any]:
        given = case.keywords
        rules = dict(softmax_scale=given["scale"], causal=given["causal"], softcap=given["softcap"])
        rules["window_size"] = given["window"]
        if "cu_q" not in given:
            return lambda q, k, v: (flash_attn_3.flash_attn_func(q, k, v, **rules), None)
        lists = [given[x] for x in ("cu_q", "cu_kv", "max_q", "max_kv")]
        rules.update(seqused_q=given.get("q_lens"), seqused_k=given.get("kv_lens"))
        return lambda q, k, v: (flash_attn_3.flash_attn_varlen_func(q, k, v, *lists, **rules), None)


class Below(Flash):
    """_flash_attn_forward and _flash_attn_backward inside a Function of the caller's."""

    def takes(self, v: Values, situation: str) -> bool:
        return (
            _basic(v) and v["layout"] in ("dense", "packed") and v["dropout"] in ("none", "drawn")
            and situation in ("eager", "again", "no_grad", "hooks", "threads", "checkpoint")
        )  # fmt: skip

    def make(self, case: Any) -> Callable[..., Any]:
        rest = self.keywords(case)
        if "cu_q" not in case.keywords:
            return lambda q, k, v: (dense_2(q, k, v, **rest), None)
        lists = [case.keywords[x] for x in ("cu_q", "cu_kv", "max_q", "max_kv")]
        return lambda q, k, v: (varlen_2(q, k, v, *lists, **rest), None)


class Sdpa(Attention):
    """F.scaled_dot_product_attention on ordo's kernels; the test activates them."""

    def takes(self, v: Values, situation: str) -> bool:
        causal_corner = v["mask"] == "full" or v["lengths"] == "equal" or v["mask"] == "top-left"
        plain = v["window"] == "open" and v["softcap"] == "off" and v["slopes"] == "none"
        return (
            _basic(dict(v, mask="full")) and plain and v["layout"] == "dense" and causal_corner
            and v["dropout"] == "none" and v["heads"] == "equal" and v["dims"] == "equal"
            and v["lengths"] not in ("no keys", "no rows") and v["strides"] in ("dense", "heads first")
            and situation in ("eager", "again", "no_grad", "threads", "hooks", "compile", "retained")
        )  # fmt: skip

    def inputs(self, case: Any) -> list[Tensor]:
        return [x.transpose(1, 2) for x in (case.q, case.k, case.v)]

    def parts(self, made: list[Any]) -> list[Any]:
        return [x.transpose(1, 2) for x in made]

    def make(self, case: Any) -> Callable[..., Any]:
        rules = dict(is_causal=bool(case.keywords["causal"]), scale=case.keywords["scale"])
        kernels = [SDPBackend.FLASH_ATTENTION] if case.device == "cuda" else list(SDPBackend.__members__.values())

        def run(q: Tensor, k: Tensor, v: Tensor) -> Any:
            with sdpa_kernel(kernels):
                return F.scaled_dot_product_attention(q, k, v, **rules).transpose(1, 2), None

        return run


class Part(Attention):
    """backward_part() of all rows, inside a Function of the caller's."""

    def takes(self, v: Values, situation: str) -> bool:
        given = v["dropout"] in ("none", "seed", "state")
        return (
            v["layout"] != "gaps" and v["sink"] == "none" and v["blocks"] == "none" and given
            and situation in ("eager", "again", "threads", "hooks")
        )  # fmt: skip

    def make(self, case: Any) -> Callable[..., Any]:
        return functools.partial(_Parted.apply, case.keywords)


class _Parted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keywords: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        o, lse = ordo.torch.attention(q, k, v, **keywords)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.keywords = keywords
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse = ctx.saved_tensors
        dout = torch.zeros_like(o) if dout is None else dout
        grads = ordo.torch.backward_part(dout, q, k, v, o, lse, dlse=dlse, **ctx.keywords)
        return None, *grads


class Layer(Attention):
    """The attention of transformers' models, with valid tokens as a mask."""

    def takes(self, v: Values, situation: str) -> bool:
        return (
            _basic(v) and v["window"] == "open" and v["slopes"] == "none" and v["layout"] == "dense"
            and v["dropout"] in ("none", "drawn") and v["lengths"] in ("equal", "more keys", "one row")
            and situation in ("eager", "again", "no_grad", "compile", "hooks", "checkpoint", "mode")
        )  # fmt: skip

    def inputs(self, case: Any) -> list[Tensor]:
        return [x.transpose(1, 2) for x in (case.q, case.k, case.v)]

    def parts(self, made: list[Any]) -> list[Any]:
        return [x.transpose(1, 2) for x in made]

    def make(self, case: Any) -> Callable[..., Any]:
        from ordo.transformers import attention_forward

        module, given = torch.nn.Module(), case.keywords
        rules = dict(
            dropout=given.get("dropout_p", 0.0), scaling=given["scale"], softcap=given["softcap"],
            is_causal=given["causal"],
        )  # fmt: skip
        return lambda q, k, v: (attention_forward(module, q, k, v, None, **rules)[0], None)


ENTRIES: dict[str, Any] = {
    "attention": Attention(), "module": Module(), "flash": Flash(), "kvpacked": Flash("kv"),
    "qkvpacked": Flash("qkv"), "varlen": Varlen(), "varlen kvpacked": Varlen("kv"),
    "varlen qkvpacked": Varlen("qkv"), "third": Third(), "below": Below(), "sdpa": Sdpa(),
    "part": Part(), "layer": Layer(),
}  # fmt: skip
