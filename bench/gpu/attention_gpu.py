"""One attention problem on the GPU on the same tensors: ours, PyTorch's, FlashAttention's.

Tensors are (batch, row, head, dim), packed ones (row, head, dim); PyTorch gets them as views in its
own order. Peers are called as their users call them: forward under no_grad, backward by
torch.autograd.grad on a graph that is kept.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from ctypes import byref, c_void_p, pointer
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import ordo
import torch
import torch.utils.deterministic
from contest import error  # noqa: F401
from ordo._library import lib
from ordo._problem import to_c
from ordo._structs import ordo_call, ordo_dropout_call, sized
from ordo.torch import attention
from ordo.torch._blocks import blocks_on
from shapes import Shape
from torch.nn.attention import SDPBackend, sdpa_kernel

GRADIENTS = ("dq", "dk", "dv")
DEVICE = "cuda"
torch.utils.deterministic.fill_uninitialized_memory = False  # not what the peers' kernels do
warnings.filterwarnings("ignore", category=UserWarning)  # why PyTorch takes no other backend


def problem_of(shape: Shape) -> ordo.Problem:
    total = sum(shape.lengths) if shape.packed else 0
    return ordo.Problem(
        dtype=shape.dtype,
        layout="packed" if shape.packed else "padded" if shape.padded else "dense",
        batch=shape.batch,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        q_len=shape.q_len,
        kv_len=shape.kv_len,
        total_q=total,
        total_kv=total,
        head_dim=shape.dim,
        v_head_dim=shape.values,
        mask=shape.mask,
        window=shape.window,
        dropout=shape.p,
        softcap=shape.softcap,
        alibi=shape.alibi,
    )


def block_masks(seq: int) -> dict[str, ordo.BlockMask]:
    """Block masks by name. Documents begin at blocks: their blocks are whole."""
    blocks, ends = seq // 128, (20, 24, 40, 41, 50)
    ids = [sum(at // 128 >= end for end in ends) for at in range(seq)]
    rows = range(blocks)
    listed = [[j for j in rows if (7 * i + j) % 4 == 0 or i == j] for i in rows]
    start = np.cumsum([0, *map(len, listed)], dtype=np.int32).reshape(1, 1, -1)
    keys = np.array([j | 1 << 30 for row in listed for j in row], np.int32)
    return {
        "documents": ordo.BlockMask.from_documents(ids),
        "sparse": ordo.BlockMask(seq, seq, start, keys),
        "causal": ordo.BlockMask.from_band(seq, seq, causal=True),
    }


def inputs(shape: Shape, seed: int = 1) -> dict[str, torch.Tensor]:
    """q, k, v and dout, random normal, on the GPU."""
    source = torch.Generator(DEVICE).manual_seed(seed)
    dtype = torch.bfloat16 if shape.dtype == "bf16" else torch.float16

    def normal(rows: int, heads: int, dim: int) -> torch.Tensor:
        size = (shape.batch, rows, heads, dim)
        if shape.packed:
            size = (sum(shape.lengths), heads, dim)
        return torch.randn(size, generator=source, device=DEVICE, dtype=dtype)

    q, dout = (normal(shape.q_len, shape.heads, dim) for dim in (shape.dim, shape.values))
    k, v = (normal(shape.kv_len, shape.kv_heads, dim) for dim in (shape.dim, shape.values))
    return {"q": q, "k": k, "v": v, "dout": dout}


def ends(shape: Shape) -> list[int]:
    """Where packed sequences end, from 0."""
    return [sum(shape.lengths[:b]) for b in range(len(shape.lengths) + 1)]


class Bits:
    """Keep bits of a problem on the GPU; make() only launches."""

    def __init__(self, problem: ordo.Problem, shape: Shape) -> None:
        cu = ends(shape) if shape.packed else None
        self.problem, self.call = to_c(problem), sized(ordo_dropout_call)
        self.bytes = ordo.dropout.query(problem, cu_q=cu, cu_kv=cu).bytes
        self.words = torch.empty(self.bytes, dtype=torch.uint8, device=DEVICE)
        if cu:  # on the host
            self.ends = (ctypes.c_int32 * len(cu))(*cu)
            self.call.cu_q = self.call.cu_kv = ctypes.addressof(self.ends)

    def make(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        lib.ordo_dropout_fill_device(
            byref(self.problem), byref(self.call), self.words.data_ptr(), self.bytes, stream
        )


class Ours:
    """A plan and its tensors; forward() and backward() only launch.

    Outputs are NaN before the first run, so that what nobody writes is seen. With dropout, `bits`
    are those to be read; None: they are made inside the kernels.
    """

    def __init__(
        self,
        shape: Shape,
        given: dict[str, torch.Tensor],
        bits: Bits | None = None,
        blocks: ordo.BlockMask | None = None,
        **options: object,
    ) -> None:
        problem = problem_of(shape)
        if blocks is not None:
            problem = problem.replace(blocks=blocks.limits)
        self.shape, self.plan = shape, ordo.Plan(problem, "h200", backend="cuda", **options)
        nan = float("nan")
        self.tensors = dict(given)
        for name, like in (("o", "dout"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
            self.tensors[name] = torch.full_like(given[like], nan)
        rows = (shape.batch, shape.heads, shape.q_len)
        if shape.packed:
            rows = (shape.heads, sum(shape.lengths))
        self.lse = torch.full(rows, nan, device=DEVICE)
        self.workspace = torch.empty(self.plan.workspace_bytes, dtype=torch.uint8, device=DEVICE)
        self.call = sized(ordo_call)
        for name, tensor in self.tensors.items():
            field = getattr(self.call, name)
            field.data = tensor.data_ptr()
            field.stride[:] = ((0,) if shape.packed else ()) + tensor.stride()
        if shape.packed:
            self.ends = torch.tensor(ends(shape), dtype=torch.int32, device=DEVICE)
            self.call.cu_q = self.call.cu_kv = self.ends.data_ptr()
        elif shape.padded:
            self.ends = torch.tensor(shape.lengths, dtype=torch.int32, device=DEVICE)
            self.call.q_lens = self.call.kv_lens = self.ends.data_ptr()
        if shape.alibi:
            self.slopes = 2.0 ** -torch.arange(1.0, 1 + shape.heads, device=DEVICE).div(
                shape.heads / 8
            )
            self.call.slopes = self.slopes.data_ptr()
        self.bits = bits
        if bits is not None:
            self.call.keep_bits = bits.words.data_ptr()
        if blocks is not None:
            self.lists, self.mask = blocks_on(blocks, self.lse.device), blocks.to_c()
            for name, x in self.lists._asdict().items():
                setattr(self.mask, name, None if x is None else x.data_ptr())
            self.call.block_mask = pointer(self.mask)
        self.call.lse = self.lse.data_ptr()
        self.call.workspace = self.workspace.data_ptr()
        self.call.workspace_bytes = self.workspace.numel()
        self.call.stream = torch.cuda.current_stream().cuda_stream

    def forward(self) -> None:
        lib.ordo_attention_forward(self.plan._handle, byref(self.call))

    def backward(self) -> None:
        lib.ordo_attention_backward(self.plan._handle, byref(self.call))

    def results(self) -> dict[str, torch.Tensor]:
        return {name: self.tensors[name] for name in ("o", *GRADIENTS)}


class Unordered(Ours):
    """The same plan with dQ partials added as they come: a second libordo, bench/gpu/unordered."""

    def __init__(self, shape: Shape, given: dict[str, torch.Tensor], path: Path) -> None:
        super().__init__(shape, given)
        self.lib = ctypes.CDLL(str(path))
        self.lib.ordo_last_error.restype = ctypes.c_char_p
        self.handle = c_void_p()
        self.must(self.lib.ordo_plan_parse(byref(self.handle), self.plan.line.encode()))

    def must(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.lib.ordo_last_error().decode())

    def forward(self) -> None:
        self.must(self.lib.ordo_attention_forward(self.handle, byref(self.call)))

    def backward(self) -> None:
        self.must(self.lib.ordo_attention_backward(self.handle, byref(self.call)))


class Peer:
    """Attention that PyTorch differentiates; a subclass says how it is called.

    backward() is torch.autograd.grad on a graph that is kept: the kernels of one backward pass and
    the allocation of its results, no sum into .grad.
    """

    def __init__(self, shape: Shape, given: dict[str, torch.Tensor]) -> None:
        self.shape = shape
        self.q, self.k, self.v = (
            self.transposed(given[x]).detach().requires_grad_() for x in "qkv"
        )
        self.dout = self.transposed(given["dout"])
        self.o: torch.Tensor | None = None

    def transposed(self, x: torch.Tensor) -> torch.Tensor:
        """To this peer's order of dimensions, and back."""
        return x

    def attend(self) -> torch.Tensor:
        raise NotImplementedError

    def forward(self) -> None:
        with torch.no_grad():
            self.attend()

    def output(self) -> torch.Tensor:
        """What backward() differentiates: computed once."""
        if self.o is None:
            self.o = self.attend()
        return self.o

    def gradients(self) -> tuple[torch.Tensor, ...]:
        o = self.output()
        return torch.autograd.grad(o, (self.q, self.k, self.v), self.dout, retain_graph=True)

    def backward(self) -> None:
        self.gradients()

    def results(self) -> dict[str, torch.Tensor]:
        gradients = self.gradients()
        found = zip(("o", *GRADIENTS), (self.output(), *gradients))
        return {name: self.transposed(x.detach()) for name, x in found}


class Recorder:
    """Stands in for a namespace of operators, and keeps the last call of each."""

    def __init__(self, operators: object) -> None:
        self.operators = operators
        self.calls: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Callable[..., object]:
        operator = getattr(self.operators, name)

        def call(*args: object, **named: object) -> object:
            self.calls[name] = partial(operator, *args, **named)
            return operator(*args, **named)

        return call


class Flash(Peer):
    """flash_attn_func of a module: flash_attn_interface (FlashAttention-3) or flash_attn (2).

    The Python of FlashAttention-3 takes longer than a short pass on the GPU. So the operators that
    it calls, "fwd" and "bwd", are recorded in one public call, and forward() and backward() repeat
    them with the same arguments; results() are those of public calls.
    """

    OPERATORS = "flash_attn_3_gpu"  # their namespace in flash_attn_interface

    def __init__(
        self,
        shape: Shape,
        given: dict[str, torch.Tensor],
        module: ModuleType,
        deterministic: bool = False,
    ) -> None:
        super().__init__(shape, given)
        self.call, self.deterministic = module.flash_attn_func, deterministic
        self.calls: dict[str, Callable[[], object]] = {}
        if hasattr(module, self.OPERATORS):
            self.calls = self.recorded(module)

    def recorded(self, module: ModuleType) -> dict[str, Callable[[], object]]:
        recorder = Recorder(getattr(module, self.OPERATORS))
        setattr(module, self.OPERATORS, recorder)
        try:
            super().backward()
        finally:
            setattr(module, self.OPERATORS, recorder.operators)
        return recorder.calls

    def forward(self) -> None:
        self.repeat("fwd", super().forward)

    def backward(self) -> None:
        self.repeat("bwd", super().backward)

    def repeat(self, name: str, public: Callable[[], object]) -> None:
        if name not in self.calls:
            public()
            return
        with torch.no_grad():
            self.calls[name]()

    def attend(self) -> torch.Tensor:
        causal = self.shape.mask != "full"
        o = self.call(self.q, self.k, self.v, causal=causal, deterministic=self.deterministic)
        return o[0] if isinstance(o, tuple) else o  # some versions return lse, too


class Torch(Peer):
    """scaled_dot_product_attention with one backend; its own order is (batch, head, row, dim)."""

    def __init__(
        self,
        shape: Shape,
        given: dict[str, torch.Tensor],
        backend: SDPBackend | str,
        deterministic: bool = False,
    ) -> None:
        super().__init__(shape, given)
        self.deterministic = deterministic
        self.backend = backend if isinstance(backend, SDPBackend) else getattr(SDPBackend, backend)
        self.mask = None
        if shape.q_len != shape.kv_len and shape.high is not None:
            self.mask = visible(shape)  # is_causal aligns top-left

    def transposed(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)

    def attend(self) -> torch.Tensor:
        with sdpa_kernel(self.backend):
            return torch.nn.functional.scaled_dot_product_attention(
                self.q,
                self.k,
                self.v,
                attn_mask=self.mask,
                dropout_p=self.shape.p,
                is_causal=self.shape.high is not None and self.mask is None,
                enable_gqa=self.shape.heads != self.shape.kv_heads,
            )

    def gradients(self) -> tuple[torch.Tensor, ...]:
        if not self.deterministic:
            return super().gradients()
        self.output()  # in its usual mode: only the backward pass has another
        torch.use_deterministic_algorithms(True)
        try:
            return super().gradients()
        finally:
            torch.use_deterministic_algorithms(False)


def half(seq: int) -> torch.Tensor:
    """(1, 1, row, column): half of the elements, in every tile."""
    source = torch.Generator(DEVICE).manual_seed(2)
    return torch.rand(1, 1, seq, seq, generator=source, device=DEVICE) < 0.5


def bias(shape: Shape, heads: int) -> torch.Tensor:
    source = torch.Generator(DEVICE).manual_seed(3)
    size = (1, heads, shape.q_len, shape.kv_len)
    return torch.randn(size, generator=source, device=DEVICE, dtype=torch.bfloat16)


class Front(Peer):
    """ordo.torch.attention(), with an element mask or a bias, whose gradient may be wanted."""

    def __init__(
        self,
        shape: Shape,
        given: dict[str, torch.Tensor],
        seen: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        wanted: bool = False,
    ) -> None:
        super().__init__(shape, given)
        self.seen, self.wanted = seen, wanted
        self.bias = bias if bias is None else bias.detach().requires_grad_(wanted)

    def attend(self) -> torch.Tensor:
        return attention(
            self.q, self.k, self.v, seen=self.seen, bias=self.bias, dropout_p=self.shape.p, seed=1
        )[0]

    def gradients(self) -> tuple[torch.Tensor, ...]:
        o, leaves = self.output(), (self.q, self.k, self.v)
        if self.wanted:
            leaves += (self.bias,)
        return torch.autograd.grad(o, leaves, self.dout, retain_graph=True)

    def results(self) -> dict[str, torch.Tensor]:
        found = zip(("o", *GRADIENTS, "dbias"), (self.output(), *self.gradients()))
        return {
            name: x.detach() if name == "dbias" else self.transposed(x.detach())
            for name, x in found
        }


class Biased(Front):
    """The same by PyTorch: its efficient kernel, or FlexAttention, compiled."""

    def __init__(
        self, shape: Shape, given: dict[str, torch.Tensor], bias: torch.Tensor, how: str
    ) -> None:
        super().__init__(shape, given, bias=bias, wanted=True)
        self.flex = None
        if how == "flex":
            from torch.nn.attention.flex_attention import flex_attention

            self.flex = torch.compile(flex_attention, dynamic=False)

    def transposed(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)

    def attend(self) -> torch.Tensor:
        if self.flex:
            bias = self.bias
            return self.flex(
                self.q,
                self.k,
                self.v,
                score_mod=lambda score, b, h, row, column: score + bias[0, h, row, column],
            )
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                self.q, self.k, self.v, attn_mask=self.bias.expand(self.shape.batch, -1, -1, -1)
            )


@contextmanager
def bf16_inside(on: bool):
    """Whether PyTorch's math backend computes bf16 in bf16, or in f32 and rounds at the end."""
    was = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(on)
    try:
        yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(was)


def visible(shape: Shape) -> torch.Tensor:
    """(row, column): whether the mask lets the row see the column."""
    rows = torch.arange(shape.q_len, device=DEVICE)[:, None]
    columns = torch.arange(shape.kv_len, device=DEVICE)[None, :]
    if shape.high is None:
        return torch.ones(shape.q_len, shape.kv_len, dtype=torch.bool, device=DEVICE)
    return columns <= rows + shape.high


def exact(shape: Shape, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same in fp64 on the same bf16 inputs: o, lse, dq, dk, dv."""
    group = shape.heads // shape.kv_heads
    q, dout = (given[x].double().transpose(1, 2) for x in ("q", "dout"))
    k, v = (given[x].double().transpose(1, 2).repeat_interleave(group, 1) for x in "kv")
    scale = shape.dim**-0.5
    scores = (q @ k.transpose(2, 3) * scale).masked_fill(~visible(shape), -torch.inf)
    lse = torch.logsumexp(scores, 3, keepdim=True)
    p = torch.exp(scores - lse.nan_to_num(neginf=0.0))  # a row that sees nothing: all zeros
    o = p @ v
    ds = p * (dout @ v.transpose(2, 3) - (dout * o).sum(3, keepdim=True)) * scale
    sizes = (shape.batch, shape.kv_heads, group, shape.kv_len, -1)
    found = {
        "o": o,
        "dq": ds @ k,
        "dk": (ds.transpose(2, 3) @ q).reshape(sizes).sum(2),
        "dv": (p.transpose(2, 3) @ dout).reshape(sizes).sum(2),
    }
    return {"lse": lse.squeeze(3)} | {name: x.transpose(1, 2) for name, x in found.items()}


def oracle(shape: Shape, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The library's own fp64 oracle, on the host: o, lse, dq, dk, dv."""
    import numpy

    plan = ordo.Plan(problem_of(shape), backend="ref")
    q, k, v, dout = (
        given[name].cpu().view(torch.int16).numpy().view(numpy.uint16)
        for name in ("q", "k", "v", "dout")
    )
    o, lse = ordo.forward(plan, q, k, v)
    gradients = ordo.backward(plan, q, k, v, o, lse, dout)
    found = {"lse": torch.from_numpy(lse).to(DEVICE)}
    for name, array in zip(("o", *GRADIENTS), (o, *gradients)):
        bits = torch.from_numpy(array.view(numpy.int16))
        found[name] = bits.view(torch.bfloat16).to(DEVICE)
    return found


def add_torch(contest, shape: Shape, given: dict[str, torch.Tensor]) -> None:
    """PyTorch's own kernels as peers: cuDNN, flash, and flash deterministic."""
    flop = shape.both_flop
    contest.both("cudnn", partial(Torch, shape, given, "CUDNN_ATTENTION"), flop)
    contest.both("flash", partial(Torch, shape, given, "FLASH_ATTENTION"), flop)
    contest.both("flash_det", partial(Torch, shape, given, "FLASH_ATTENTION", True), flop, ("bwd",))
