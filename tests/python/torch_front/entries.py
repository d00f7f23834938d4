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
from ordo.compat.flash_attn import flash_attn_interface
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Values = dict[str, str]
_OURS = ("ids", "shard", "sink", "blocks", "seen", "bias")  # which only attention() has


def _basic(v: Values) -> bool:
    """Without what only attention() has."""
    return (
        all(v[axis] == "none" for axis in _OURS) and v["mask"] != "top-left"
        and v["dropout"] not in ("fa2", "prepared") and v["dout"] in ("dense", "expanded", "strided", "negative")
    )  # fmt: skip


class Attention:
    """ordo.torch.attention."""

    def takes(self, v: Values, situation: str) -> bool:
        return True

    def inputs(self, case: Any) -> list[Tensor]:
        return [case.q, case.k, case.v] + [x for x in (case.sink, case.bias) if x is not None]

    def parts(self, made: list[Any]) -> list[Any]:
        return made

    def make(self, case: Any) -> Callable[..., Any]:
        names = [name for name in ("sink", "bias") if getattr(case, name) is not None]
        return lambda q, k, v, *more: ordo.torch.attention(q, k, v, **dict(zip(names, more)), **case.keywords)


class Module(Attention):
    """ordo.torch.Attention."""

    def takes(self, v: Values, situation: str) -> bool:
        learned = v["sink"] != "none" or v["bias"] != "none"
        return v["dout"] in ("dense", "expanded", "strided", "negative") and not learned and v["dropout"] != "prepared"

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
        return self.with_lse(case, functools.partial(getattr(ordo.torch, name), **self.keywords(case)))

    def with_lse(self, case: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """Every second call returns lse, which is +inf for rows that see nothing."""
        if case.seed % 2:
            return lambda *given: (call(*given), None)

        def both(*given: Any) -> Any:
            o, lse, *_ = call(*given, return_attn_probs=True)
            return o, torch.where(lse == torch.inf, -torch.inf, lse)

        return both

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
        return self.with_lse(case, lambda *given, **more: call(*given, *lists, **rest, **more))


class Third(Flash):
    """FlashAttention-3's functions, which have no dropout."""

    def takes(self, v: Values, situation: str) -> bool:
        return _basic(v) and v["dropout"] == "none" and v["slopes"] == "none" and v["layout"] != "padded"

    def make(self, case: Any) -> Callable[..., Any]:
        given = case.keywords
        rules = dict(softmax_scale=given["scale"], causal=given["causal"], softcap=given["softcap"])
        rules["window_size"] = given["window"]
        if "cu_q" not in given:
            return self.with_lse(case, functools.partial(flash_attn_3.flash_attn_func, **rules))
        lists = [given[x] for x in ("cu_q", "cu_kv", "max_q", "max_kv")]
        rules.update(seqused_q=given.get("q_lens"), seqused_k=given.get("kv_lens"))
        call = flash_attn_3.flash_attn_varlen_func
        return self.with_lse(case, lambda q, k, v, **more: call(q, k, v, *lists, **rules, **more))


class Below(Flash):
    """The passes below autograd of FlashAttention-2, or with `third` of -3, inside a Function of the caller's."""

    def __init__(self, third: bool = False) -> None:
        super().__init__()
        self.third = third

    def takes(self, v: Values, situation: str) -> bool:
        if self.third and (v["dropout"] != "none" or v["slopes"] != "none"):
            return False
        return (
            _basic(v) and (v["layout"] in ("dense", "packed") or self.third)
            and v["dropout"] in ("none", "drawn")
            and situation in ("eager", "again", "no_grad", "hooks", "threads", "checkpoint")
        )  # fmt: skip

    def make(self, case: Any) -> Callable[..., Any]:
        given = case.keywords
        left, right = (-1 if x is None else int(x) for x in given["window"])
        rest = dict(window_size_left=left, window_size_right=right, softcap=given["softcap"])
        ends = [given[x] for x in _LISTS[:4] if x in given]
        if self.third:
            names = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
            rest.update(zip(names, ends), softmax_scale=given["scale"])
            used = [given.get(x) for x in _LISTS[4:]]
            passes = functools.partial(_third_passes, rest, given["causal"], used)
            return lambda q, k, v: (_Passes.apply(q, k, v, passes)[0], None)
        scale = case.q.shape[-1] ** -0.5 if given["scale"] is None else given["scale"]
        rest.update(alibi_slopes=given.get("slopes"), dropout_p=given.get("dropout_p", 0.0))
        rest.update(softmax_scale=scale, causal=given["causal"])
        passes = functools.partial(_second_passes, "varlen_" if ends else "", ends, rest)
        return lambda q, k, v: (_Passes.apply(q, k, v, passes)[0], None)


class _Passes(torch.autograd.Function):
    """`passes` of q, k and v alone gives out and lse, with more of them it writes gradients."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, passes: Any) -> Any:
        out, lse, *rng = passes((q, k, v))
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.rng, ctx.passes = rng, passes
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        dout = torch.zeros_like(out) if dout is None else dout
        grads = [torch.full_like(x, torch.nan) for x in (q, k, v)]
        more = ctx.rng if dlse is None else [dlse]
        ctx.passes((dout, q, k, v, out, lse), grads, *more)
        return (*grads, None)


def _second_passes(kind: str, ends: Any, rest: Any, tensors: Any, grads: Any = None, rng: Any = None) -> Any:
    if grads is None:
        call = getattr(flash_attn_interface, f"_flash_attn_{kind}forward")
        out, lse, _, rng = call(*tensors, *ends, **rest, return_softmax=False)
        return out, lse, rng
    call = getattr(flash_attn_interface, f"_flash_attn_{kind}backward")
    return call(*tensors, *grads, *ends, **rest, deterministic=True, rng_state=rng)


def _third_passes(rest: Any, causal: Any, used: Any, tensors: Any, grads: Any = None) -> Any:
    if grads is None:
        rest = dict(rest, causal=causal, seqused_q=used[0], seqused_k=used[1])
        return flash_attn_3._flash_attn_forward(*tensors, **rest)[:2]
    rest = dict(rest, is_causal=causal, sequed_q=used[0], sequed_k=used[1], **dict(zip(("dq", "dk", "dv"), grads)))
    return flash_attn_3._flash_attn_backward(*tensors, **rest)


class Sdpa(Attention):
    """F.scaled_dot_product_attention on ordo's kernels; the test activates them."""

    def takes(self, v: Values, situation: str) -> bool:
        causal_corner = v["mask"] == "full" or v["lengths"] == "equal" or v["mask"] == "top-left"
        plain = v["window"] == "open" and v["softcap"] == "off" and v["slopes"] == "none"
        one_mask = v["seen"] == "none" or v["bias"] == "none"
        return (
            _basic(dict(v, mask="full", seen="none", bias="none")) and one_mask and plain and v["layout"] == "dense" and causal_corner
            and v["dropout"] in ("none", "drawn")
            and situation in ("eager", "again", "no_grad", "inference", "checkpoint", "threads", "hooks", "compile", "retained")
        )  # fmt: skip

    def inputs(self, case: Any) -> list[Tensor]:
        more = [] if case.bias is None else [case.bias]
        return [x.transpose(1, 2) for x in (case.q, case.k, case.v)] + more

    def parts(self, made: list[Any]) -> list[Any]:
        return [x.transpose(1, 2) for x in made[:3]] + made[3:]

    def make(self, case: Any) -> Callable[..., Any]:
        rules = dict(is_causal=bool(case.keywords["causal"]), scale=case.keywords["scale"])
        rules["dropout_p"] = case.keywords.get("dropout_p", 0.0)
        seen = case.keywords.get("seen")
        rules["enable_gqa"] = case.values["heads"] == "grouped"
        kernels = [SDPBackend.FLASH_ATTENTION] if case.device == "cuda" else list(SDPBackend.__members__.values())

        def run(q: Tensor, k: Tensor, v: Tensor, bias: Any = None) -> Any:
            with sdpa_kernel(kernels):
                mask = seen if bias is None else bias
                return F.scaled_dot_product_attention(q, k, v, mask, **rules).transpose(1, 2), None

        return run


class Part(Attention):
    """backward_part() of all rows, inside a Function of the caller's."""

    def takes(self, v: Values, situation: str) -> bool:
        given = v["dropout"] in ("none", "seed", "state")
        return (
            v["layout"] != "gaps" and all(v[x] == "none" for x in ("sink", "blocks", "seen", "bias")) and given
            and situation in ("eager", "again", "threads", "hooks")
        )  # fmt: skip

    def make(self, case: Any) -> Callable[..., Any]:
        def passes(tensors: Any, grads: Any = None, dlse: Any = None) -> Any:
            if grads is None:
                return ordo.torch.attention(*tensors, **case.keywords)
            for x, made in zip(grads, ordo.torch.backward_part(*tensors, dlse=dlse, **case.keywords)):
                x.copy_(made)

        return lambda q, k, v: _Passes.apply(q, k, v, passes)


class Layer(Attention):
    """The attention of transformers' models: beside a mask of theirs, valid tokens, or packed."""

    def takes(self, v: Values, situation: str) -> bool:
        traced = situation == "compile"
        lengths = {"dense": ("equal", "more keys", "one row"), "padded": ("equal",)}.get(v["layout"], _SOME)
        window = v["window"] == "open" or (v["window"] == "left" and v["mask"] == "causal")
        return (
            _basic(dict(v, sink="none")) and window and v["slopes"] == "none" and v["layout"] != "gaps" and v["lengths"] in lengths
            and v["dropout"] in ("none", "drawn") and not (traced and v["layout"] == "padded")
            and situation in ("eager", "again", "no_grad", "compile", "hooks", "checkpoint", "mode", "retained")
        )  # fmt: skip

    def inputs(self, case: Any) -> list[Tensor]:
        return [x.transpose(-2, -3) for x in (case.q, case.k, case.v)] + ([] if case.sink is None else [case.sink])

    def parts(self, made: list[Any]) -> list[Any]:
        return [x.transpose(-2, -3) for x in made[:3]] + made[3:]

    def make(self, case: Any) -> Callable[..., Any]:
        import ordo.transformers
        from transformers import masking_utils

        module, given, mask = torch.nn.Module(), case.keywords, None
        rules = dict(
            dropout=given.get("dropout_p", 0.0), scaling=given["scale"], softcap=given["softcap"],
            is_causal=given["causal"],
        )  # fmt: skip
        if given["window"][0] >= 0:
            rules["sliding_window"] = given["window"][0] + 1
        packed = "cu_q" in given
        if packed:
            names = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
            rules.update(zip(names, (given[x] for x in _LISTS[:4])))
        else:
            (batch, rows), columns = case.q.shape[:2], case.k.shape[1]
            if "q_lens" in given:
                mask = torch.arange(columns, device=case.q.device) < given["kv_lens"][:, None]
            if case.seed % 2 and case.situation != "compile":  # a mask of theirs, not its valid tokens alone
                kind = "causal" if given["causal"] else "bidirectional"
                function = getattr(masking_utils, kind + "_mask_function")
                if "sliding_window" in rules:
                    function = masking_utils.sliding_window_causal_mask_function(rules["sliding_window"])
                offset = columns - rows if given["causal"] else 0
                sizes = dict(batch_size=batch, q_length=rows, kv_length=columns, q_offset=offset)
                mask = ordo.transformers.attention_mask(mask_function=function, attention_mask=mask, **sizes)

        def run(q: Tensor, k: Tensor, v: Tensor, sink: Any = None) -> Any:
            if packed:
                q, k, v = q[None], k[None], v[None]
            o = ordo.transformers.attention_forward(module, q, k, v, mask, s_aux=sink, **rules)[0]
            return o[0] if packed else o, None

        return run


_SOME = ("equal", "more keys", "fewer keys", "one row")
ENTRIES: dict[str, Any] = {
    "attention": Attention(), "module": Module(), "flash": Flash(), "kvpacked": Flash("kv"),
    "qkvpacked": Flash("qkv"), "varlen": Varlen(), "varlen kvpacked": Varlen("kv"),
    "varlen qkvpacked": Varlen("qkv"), "third": Third(), "below": Below(), "third below": Below(True),
    "sdpa": Sdpa(), "part": Part(), "layer": Layer(),
}  # fmt: skip
