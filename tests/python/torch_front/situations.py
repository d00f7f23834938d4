"""What surrounds a call: modes, compilers, hooks. Each runs a case and gives its results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from cases import Case, laid
from entries import ENTRIES
from oracle import Results
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def leaves(case: Case) -> list[Tensor]:
    return [x.detach().requires_grad_() for x in ENTRIES[case.values["entry"]].inputs(case)]


def gradients(case: Case, o: Tensor, lse: Tensor | None, inputs: list[Tensor], **rest: Any) -> Any:
    """dq, dk, dv and dsink."""
    ends = [(x, y) for x, y in zip((o, lse), case.upstream(o, lse)) if y is not None]
    outs, given = zip(*ends)
    made = torch.autograd.grad(outs, inputs, given, **rest)
    return ENTRIES[case.values["entry"]].parts(list(made))


def _with(case: Case, call: Callable[..., Any]) -> Results:
    inputs = leaves(case)
    o, lse = call(*inputs)
    return Results(o, lse, *gradients(case, o, lse, inputs))


def eager(case: Case) -> Results:
    return _with(case, case.function)


def again(case: Case) -> Results:
    """With a plan that is known, and twice the same."""
    one = _with(case, case.function)
    case.start()
    other = _with(case, case.function)
    for x, y in zip(one, other):
        assert x is None or torch.equal(x.nan_to_num(), y.nan_to_num()), "other bits the second time"
    return other


def retained(case: Case) -> Results:
    """The gradients of a second walk through the same graph."""
    inputs = leaves(case)
    o, lse = case.function(*inputs)
    gradients(case, o, lse, inputs, retain_graph=True)
    return Results(o, lse, *gradients(case, o, lse, inputs))


def _without(case: Case, mode: Any) -> Results:
    with mode:
        o, lse = case.function(*leaves(case))
    assert not o.requires_grad
    return Results(o, lse)


def no_grad(case: Case) -> Results:
    return _without(case, torch.no_grad())


def inference(case: Case) -> Results:
    return _without(case, torch.inference_mode())


def autocast(case: Case) -> Results:
    def call(*inputs: Tensor) -> Any:
        with torch.autocast(case.device, case.dtype):
            return case.function(*inputs)

    return _with(case, call)


def threads(case: Case) -> Results:
    """In four threads at once, the backward pass too."""
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: _with(case, case.function), range(4)))
    for x, y in zip(made[0], made[1]):
        assert x is None or torch.equal(x.nan_to_num(), y.nan_to_num()), "threads differ"
    return made[-1]


# ---- compilers and tracers ----


def _compiled(case: Case, **rest: Any) -> Results:
    torch._dynamo.reset()
    return _with(case, torch.compile(case.function, fullgraph=True, **rest))


def compile_(case: Case) -> Results:
    return _compiled(case, backend="aot_eager")


def inductor(case: Case) -> Results:
    return _compiled(case, backend="inductor")


def dynamic(case: Case) -> Results:
    return _compiled(case, backend="aot_eager", dynamic=True)


def export(case: Case) -> Results:
    class Model(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Any:
            return case.function(*inputs)

    inputs = tuple(x.detach() for x in leaves(case))
    o, lse = torch.export.export(Model(), inputs).module()(*inputs)
    return Results(o, lse)


def _traced(case: Case) -> tuple[list[Tensor], Any]:
    inputs = leaves(case)
    graph = make_fx(case.function)(*[x.detach() for x in inputs])
    case.start()
    return inputs, graph


def make_fx_(case: Case) -> Results:
    """The graph of a forward pass, run again: it has gradients."""
    inputs, graph = _traced(case)
    o, lse = graph(*inputs)
    return Results(o, lse, *gradients(case, o, lse, inputs))


def jit(case: Case) -> Results:
    def call(*inputs: Tensor) -> Any:
        return tuple(x for x in case.function(*inputs) if x is not None)

    inputs = leaves(case)
    traced = torch.jit.trace(call, [x.detach() for x in inputs], check_trace=False)
    case.start()
    o, *rest = traced(*inputs)
    lse = rest[0] if rest else None
    return Results(o, lse, *gradients(case, o, lse, inputs))


def fake(case: Case) -> Results:
    """Shapes and types only; the test compares no bits."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        o, lse = case.function(*[mode.from_tensor(x.detach()) for x in leaves(case)])
    return Results(o, lse)


class _Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def mode(case: Case) -> Results:
    with _Watch():
        return _with(case, case.function)


# ---- what autograd does with saved tensors ----


def _checkpointed(case: Case, **rest: Any) -> Results:
    return _with(case, lambda *inputs: checkpoint(case.function, *inputs, **rest))


def checkpoint_(case: Case) -> Results:
    return _checkpointed(case, use_reentrant=False)


def checkpoint_reentrant(case: Case) -> Results:
    inputs = leaves(case)
    o, lse = checkpoint(case.function, *inputs, use_reentrant=True)
    ends = [(x, y) for x, y in zip((o, lse), case.upstream(o, lse)) if y is not None]
    torch.autograd.backward(*zip(*ends))
    made = ENTRIES[case.values["entry"]].parts([x.grad for x in inputs])
    return Results(o, lse, *made)


def selective(case: Case) -> Results:
    """A checkpoint that keeps what ordo's operators gave."""

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        ours = op.namespace == "ordo" and "backward" not in op.name()
        return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
    return _checkpointed(case, use_reentrant=False, context_fn=contexts)


def _hooked(case: Case, hooks: Any) -> Results:
    inputs = leaves(case)
    with hooks:
        o, lse = case.function(*inputs)
    return Results(o, lse, *gradients(case, o, lse, inputs))


def hooks(case: Case) -> Results:
    return _hooked(case, torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone))


def hooks_with_strides(case: Case) -> Results:
    """Saved tensors come back laid out in another way."""

    def pack(x: Tensor) -> Tensor:
        return laid(x, "heads first") if x.dim() > 2 and x.is_floating_point() else x

    return _hooked(case, torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x))


def offload(case: Case) -> Results:
    return _hooked(case, torch.autograd.graph.save_on_cpu())


def compiled_autograd(case: Case) -> Results:
    torch._dynamo.reset()
    inputs = leaves(case)
    o, lse = case.function(*inputs)
    compiler = torch.compile(backend="eager", dynamic=False)
    with torch._dynamo.compiled_autograd._enable(compiler):
        for x in inputs:
            x.grad = None
        ends = [(x, y) for x, y in zip((o, lse), case.upstream(o, lse)) if y is not None]
        torch.autograd.backward(*zip(*ends))
    return Results(o, lse, *ENTRIES[case.values["entry"]].parts([x.grad for x in inputs]))


def dtensor(case: Case) -> Results:
    """On a mesh of one rank, divided by heads."""
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    mesh = init_device_mesh(case.device, (1,))
    inputs = leaves(case)
    parts = [DTensor.from_local(x, mesh, [Shard(x.dim() - 2)], run_check=False) for x in inputs]
    o, lse = case.function(*parts)
    o, lse = (None if x is None else x.full_tensor() for x in (o, lse))
    return Results(o, lse, *gradients(case, o, lse, inputs))


CHEAP: dict[str, Callable[[Case], Results]] = {
    "eager": eager, "again": again, "retained": retained, "no_grad": no_grad,
    "inference": inference, "autocast": autocast, "threads": threads, "make_fx": make_fx_,
    "jit": jit, "fake": fake, "mode": mode, "checkpoint": checkpoint_,
    "checkpoint reentrant": checkpoint_reentrant, "selective": selective, "hooks": hooks,
    "hooks with strides": hooks_with_strides, "offload": offload, "dtensor": dtensor,
}  # fmt: skip
DEAR: dict[str, Callable[[Case], Results]] = {
    "compile": compile_, "inductor": inductor, "dynamic": dynamic, "export": export,
    "compiled autograd": compiled_autograd,
}  # fmt: skip


@contextlib.contextmanager
def one_rank() -> Any:
    """A process group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
