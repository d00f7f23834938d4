"""What surrounds a call: modes, compilers, hooks. Each runs a case and gives its results."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import cases
import ordo.torch
import torch
from cases import Case, laid
from entries import ENTRIES
from oracle import Results, differences, expected, far, reference
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def leaves(case: Case) -> list[Tensor]:
    return [x.detach().requires_grad_() for x in ENTRIES[case.values["entry"]].inputs(case)]


def gradients(
    case: Case, o: Tensor, lse: Tensor | None, inputs: list[Tensor], upstream: Any = None, **rest: Any
) -> Any:
    """dq, dk, dv, dsink and dbias."""
    ends = [(x, y) for x, y in zip((o, lse), upstream or case.upstream(o, lse)) if y is not None]
    outs, given = zip(*ends)
    return _parts(case, torch.autograd.grad(outs, inputs, given, **rest))


def _parts(case: Case, made: Any) -> list[Any]:
    parts = ENTRIES[case.values["entry"]].parts(list(made))
    return parts if case.sink is not None else [*parts[:3], None, *parts[3:]]


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


# ---- a GPU's ----


def stream(case: Case) -> Results:
    """On a stream of the caller's."""
    with on_another_stream():
        return eager(case)


@contextlib.contextmanager
def on_another_stream() -> Any:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def unwaited(case: Case) -> Results:
    """The second call and its backward pass, with every wait for the device an error."""
    inputs = leaves(case)
    o, lse = case.function(*inputs)
    upstream = case.upstream(o, lse)
    gradients(case, o, lse, inputs, upstream)
    case.start()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        o, lse = case.function(*inputs)
        return Results(o, lse, *gradients(case, o, lse, inputs, upstream))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def graph(case: Case) -> Results:
    """Both passes from a CUDA graph."""
    inputs = leaves(case)
    with on_another_stream():
        upstream = case.upstream(*case.function(*inputs))

    def both() -> Results:
        o, lse = case.function(*inputs)
        return Results(o, lse, *gradients(case, o, lse, inputs, upstream))

    replay, found = captured(both)
    case.start()
    replay()
    return found


def captured(step: Callable[[], Any]) -> Any:
    """(the replay of a CUDA graph of `step`, which ran once before; what it writes, spoilt)."""
    with on_another_stream():
        step()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        found = step()
    for x in found:
        if x is not None:
            x.detach().fill_(77)
    return made.replay, found


def reduce_overhead(case: Case) -> Results:
    """The third call of a graph that inductor has put into CUDA graphs."""
    torch._dynamo.reset()
    whole = torch.compile(case.function, fullgraph=True, mode="reduce-overhead")
    inputs = leaves(case)
    for _ in range(3):
        case.start()
        torch.compiler.cudagraph_mark_step_begin()
        o, lse = whole(*inputs)
        found = Results(o, lse, *gradients(case, o, lse, inputs))
        found = Results(*(None if x is None else x.detach().clone() for x in found))
    return found


# ---- modes ----


def _without(case: Case, mode: Callable[[], Any]) -> Results:
    with mode():
        o, lse = case.function(*leaves(case))
    assert not o.requires_grad
    return Results(o, lse)


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
    """Shapes, types and strides alone, of gradients too."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        inputs = [mode.from_tensor(x.detach()).requires_grad_() for x in leaves(case)]
        o, lse = case.function(*inputs)
        found = Results(o, lse, *gradients(case, o, lse, inputs))
    for name, x, y in zip(Results._fields, found, eager(case)):
        assert x is None or x.numel() == 0 or x.stride() == y.stride(), f"strides of {name}"
    return found


class _Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def mode(case: Case) -> Results:
    with _Watch():
        return _with(case, case.function)


# ---- what autograd does with saved tensors ----


def _checkpointed(case: Case, **rest: Any) -> Results:
    return _with(case, lambda *inputs: checkpoint(case.function, *inputs, **rest))


def checkpoint_reentrant(case: Case) -> Results:
    inputs = leaves(case)
    return _accumulated(case, inputs, *checkpoint(case.function, *inputs, use_reentrant=True))


def _accumulated(case: Case, inputs: list[Tensor], o: Tensor, lse: Tensor | None) -> Results:
    """With gradients that backward() leaves in the inputs."""
    ends = [(x, y) for x, y in zip((o, lse), case.upstream(o, lse)) if y is not None]
    torch.autograd.backward(*zip(*ends))
    return Results(o, lse, *_parts(case, [x.grad for x in inputs]))


def selective(case: Case) -> Results:
    """A checkpoint that keeps what ordo's operators gave."""

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        ours = op.namespace == "ordo" and "backward" not in op.name()
        return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
    return _checkpointed(case, use_reentrant=False, context_fn=contexts)


def _hooked(case: Case, hooks: Callable[[], Any]) -> Results:
    inputs = leaves(case)
    with hooks():
        o, lse = case.function(*inputs)
    return Results(o, lse, *gradients(case, o, lse, inputs))


def hooks_with_strides(case: Case) -> Results:
    """Saved tensors come back laid out in another way, or with the negative bit."""

    def pack(x: Tensor) -> Tensor:
        kind = ("heads first", "negative")[case.seed % 2]
        return laid(x, kind) if x.dim() > 2 and x.is_floating_point() else x

    return _hooked(case, partial(saved_tensors_hooks, pack, lambda x: x))


def compiled_autograd(case: Case) -> Results:
    torch._dynamo.reset()
    inputs = leaves(case)
    o, lse = case.function(*inputs)
    compiler = torch.compile(backend="eager", dynamic=False)
    with torch._dynamo.compiled_autograd._enable(compiler):
        return _accumulated(case, inputs, o, lse)


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
    "eager": eager, "again": again, "retained": retained,
    "no_grad": partial(_without, mode=torch.no_grad), "inference": partial(_without, mode=torch.inference_mode),
    "autocast": autocast, "threads": threads, "make_fx": make_fx_, "jit": jit, "fake": fake, "mode": mode,
    "checkpoint": partial(_checkpointed, use_reentrant=False), "checkpoint reentrant": checkpoint_reentrant,
    "selective": selective, "hooks": partial(_hooked, hooks=partial(saved_tensors_hooks, torch.clone, torch.clone)),
    "hooks with strides": hooks_with_strides, "offload": partial(_hooked, hooks=save_on_cpu), "dtensor": dtensor,
}  # fmt: skip
DEAR: dict[str, Callable[[Case], Results]] = {
    "compile": partial(_compiled, backend="aot_eager"), "inductor": partial(_compiled, backend="inductor"),
    "dynamic": partial(_compiled, backend="aot_eager", dynamic=True), "export": export,
    "compiled autograd": compiled_autograd,
}  # fmt: skip


CUDA: dict[str, Callable[[Case], Results]] = {
    "stream": stream, "unwaited": unwaited, "graph": graph, "reduce-overhead": reduce_overhead,
}  # fmt: skip


# ---- the table ----

MODES = {"auto": "auto", "little memory": "sequential"}  # values of ORDO_DROPOUT_MODE


class Found(NamedTuple):
    """What the drawn cases of a situation found."""

    wrong: list[str]
    count: int
    refused: int  # cases of `count` that were refused with the words expected


def table(situation: str, count: int, seed: int, pairs: bool = False) -> Found:
    """Draw cases of a situation and run them."""
    drawn, wrong, refused = cases.draw(situation, count, seed, pairs), [], 0
    for case in drawn:
        case.build()
        words = case.refusal()
        try:
            said = run(case)
            if words:
                said = [f"not refused: expected {words!r}"]
        except Exception as error:  # any kind is wrong: a case that is allowed does not raise
            expected = words != "" and words in str(error)
            refused += expected
            said = [] if expected else [f"{type(error).__name__}: {str(error)[:300]}"]
        if said:
            wrong.append(f"{case}\n      {'; '.join(said)}")
    return Found(wrong, len(drawn), refused)


def run(case: Case) -> list[str]:
    """What is wrong with a case, which is built."""
    mode = case.values["mode"]
    os.environ["ORDO_DROPOUT_MODE"] = MODES.get(mode, mode)
    ordo.torch.set_keep_bits_memory(4096 if mode == "little memory" else None)
    ordo.torch._front.forget_plans()
    with contextlib.ExitStack() as stack:
        stack.callback(ordo.torch.set_keep_bits_memory, None)
        stack.callback(os.environ.pop, "ORDO_DROPOUT_MODE")
        if case.values["entry"] == "sdpa":
            activate_flash_attention_impl("ORDO")
            stack.callback(restore_flash_attention_impl)
        case.start()
        found = {**CHEAP, **DEAR, **CUDA}[case.situation](case)
        if case.device == "cpu":
            return differences(case, found, expected(case))
        right = reference(case)
    said = differences(case, found, right)
    return said or (far(found, expected(case)) if case.situation == "eager" else [])


@contextlib.contextmanager
def one_rank() -> Any:
    """A process group of this process alone."""
    import torch.distributed as dist

    kind = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(kind, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
