"""Score functions of FlexAttention that add to the score: a bias of the elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._library import Error

_aten: Any = torch.ops.aten
_MOVES = {_aten.view, _aten.expand, _aten.unsqueeze, _aten.squeeze, _aten.permute, _aten.transpose, _aten.select, _aten.clone}


def score_bias(
    score_mod: Callable[..., Tensor], batch: int, heads: int, rows: int, columns: int, *, device: Any = "cpu"
) -> Tensor:
    """What a score_mod(score, b, h, q_idx, kv_idx) of FlexAttention adds, as a bias for attention().

    float32, (batch or 1, heads or 1, row, column): 1 where b or h is not read. It has a gradient for the
    tensors that the function reads, which PyTorch sums: in one order under
    torch.use_deterministic_algorithms(True). Where the function gives -inf the bias hides. Error
    if it does more with the score than to add to it.
    """
    from torch.fx.experimental.proxy_tensor import make_fx  # whose import takes long

    each = _of_all(score_mod)
    places = [torch.arange(size, device=device) for size in (batch, heads, rows, columns)]
    zero = torch.zeros((), device=device)
    read, chooses = _read(make_fx(each)(zero, *(x[:1] for x in places)).graph)
    places = [x if at in read or at > 2 else x[:1] for at, x in enumerate(places, 1)]
    made = each(zero, *places).float()
    if chooses:  # what takes the place of the score has to hide
        with torch.no_grad():
            wrong = ~((each(zero + torch.inf, *places) == torch.inf) | (made == -torch.inf))
        if wrong.any():
            b, h, row, column = wrong.nonzero()[0].tolist()
            raise Error(
                "unsupported",
                f"score_mod: b {b}, h {h}, row {row}, column {column}: {made[b, h, row, column]} takes the place "
                "of the score: expected -inf there, or a finite number added to the score",
            )
    return made


def _of_all(score_mod: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function of a score and all places: (batch, heads, row, column)."""
    each: Any = score_mod
    for axis in (4, 3, 2, 1):
        each = torch.vmap(each, tuple(0 if at == axis else None for at in range(5)))
    return each  # type: ignore[no-any-return]


def _read(graph: Any) -> tuple[set[int], bool]:
    """Which arguments the result follows from, and whether it chooses between the score and another
    value. Error unless all that follows from the score, argument 0, is the score and what was added."""
    graph.eliminate_dead_code()
    arguments, chooses = 0, False
    of: dict[Any, set[int]] = {}
    for node in graph.nodes:
        of[node] = set().union(*(of[x] for x in node.all_input_nodes))
        if node.op == "placeholder":
            of[node], arguments = {arguments}, arguments + 1
        elif node.op == "call_function" and 0 in of[node]:
            kind = node.target.overloadpacket
            has = [isinstance(x, torch.fx.Node) and 0 in of[x] for x in node.args]
            adds = kind is _aten.add and sum(has) == 1 or kind is _aten.sub and has == [True, False]
            picks = kind is _aten.where and not has[0]
            chooses |= picks and not all(has[1:])
            if kind not in _MOVES and (node.kwargs or not (adds or picks)):
                raise Error("unsupported", f"score_mod: {node.target} of the score: expected score + something")
    read = of[next(iter(reversed(graph.nodes)))]
    if 0 not in read:
        raise Error("unsupported", "score_mod: the result does not follow from the score: expected score + something")
    return read, chooses
