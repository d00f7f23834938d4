"""ordo.torch.linear and invariant(): rows alone, in batches of 2 to 300 and in any order, a GPT.

PYTHONPATH=python python3 tests/python/torch_front/test_linear.py cuda    without pytest, for tools/test-gpu
"""

from __future__ import annotations

import sys
from unittest import mock

import ordo
import ordo.torch
import torch
import torch.nn.functional as F
from ordo.torch import invariant, linear
from torch import nn

try:
    import pytest

    on_each = pytest.mark.parametrize("device", ["cpu", *["cuda"] * torch.cuda.is_available()])
except ImportError:  # run as a program

    def on_each(test):
        return test


def kinds(device):
    return (torch.float32, torch.bfloat16, torch.float16)[device == "cuda" :]


def same(a, b):
    return (a.dtype, a.shape, ordo.digest(a.contiguous())) == (b.dtype, b.shape, ordo.digest(b.contiguous()))


def draw(seed, *shape, device="cpu", dtype=torch.float32):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=made).to(device, dtype)


def selections(rows, seed, device):
    """Row numbers: each of some alone, batches of 2 to 300, all in reverse."""
    made = torch.Generator().manual_seed(seed)
    for count in (1, 1, 2, 3, 64, 129, 300):
        yield torch.randint(0, rows, (count,), generator=made).to(device)
    yield torch.arange(rows - 1, -1, -1, device=device)


@on_each
def test_rows_of_linear_and_of_its_gradients_do_not_depend_on_the_batch(device):
    for dtype in kinds(device):
        for k, n, biased in ((64, 48, True), (200, 333, False)):
            x, w, dy = (draw(seed, *shape, device=device, dtype=dtype)
                        for seed, shape in ((1, (300, k)), (2, (n, k)), (3, (300, n))))  # fmt: skip
            bias = draw(4, n, device=device, dtype=dtype) if biased else None

            def step(rows):
                given = x[rows].requires_grad_()
                y = linear(given, w, bias)
                return y.detach(), torch.autograd.grad(y, given, dy[rows])[0]

            y, dx = step(slice(None))
            assert (y - F.linear(x, w, bias)).abs().max() < 2
            for rows in selections(300, 5, device):
                got, got_dx = step(rows)
                assert same(got, y[rows]) and same(got_dx, dx[rows]), (dtype, k, n, len(rows))


def chain(a, b):
    """Rounded products and rounded sums in ascending order, as the CPU computes them."""
    sums = torch.zeros(a.shape[0], b.shape[1])
    for x in range(a.shape[1]):
        sums += a[:, x : x + 1].float() * b[x].float()
    return sums


def test_values_and_gradients_are_chains():
    for dtype in kinds("cpu"):
        x, w, bias, dy = (draw(len(shape), *shape, dtype=dtype) for shape in ((2, 9, 40), (24, 40), (24,), (2, 9, 24)))
        leaves = [given.clone().requires_grad_() for given in (x, w, bias)]
        y = linear(*leaves)
        assert same(y.detach().flatten(0, 1), (chain(x.flatten(0, 1), w.t()) + bias.float()).to(dtype))
        rows = dy.flatten(0, 1)
        dx, dw, db = torch.autograd.grad(y, leaves, dy)
        assert same(dx.flatten(0, 1), chain(rows, w).to(dtype))
        assert same(dw, chain(rows.t(), x.flatten(0, 1)).to(dtype))
        assert same(db, chain(torch.ones(1, 18, dtype=dtype), rows)[0].to(dtype))
        assert dw.is_contiguous() and dx.shape == x.shape
    x, w, bias = draw(1, 9, 64, dtype=dtype), draw(2, 24, 64, dtype=dtype), draw(3, 24)
    leaves = [given.clone().requires_grad_() for given in (x, w, bias)]
    y = linear(*leaves, sections=2, wide=True)
    assert same(y.detach(), chain(x[:, :32], w[:, :32].t()) + chain(x[:, 32:], w[:, 32:].t()) + bias)
    assert [g.dtype for g in torch.autograd.grad(y.sum(), leaves)] == [dtype, dtype, torch.float32]


@on_each
def test_shapes_strides_and_autocast(device):
    dtype = torch.bfloat16
    x, w = draw(1, 5, 7, 64, device=device, dtype=dtype), draw(2, 32, 64, device=device, dtype=dtype)
    y = linear(x, w)
    assert y.shape == (5, 7, 32) and same(linear(x[3, 2], w), y[3, 2])
    assert same(linear(x.transpose(0, 1), w), y.transpose(0, 1))
    for view in (x.transpose(1, 2).contiguous().transpose(1, 2), x.expand(2, 5, 7, 64)[1]):
        assert same(linear(view, w), y)
    assert same(linear(x, w.t().contiguous().t()), y)
    assert same(linear(x, torch.cat((w, w), 1)[:, :64]), y)
    assert linear(x[:0], w).shape == (0, 7, 32) and (linear(x[..., :0], w[:, :0]) == 0).all()
    with torch.autocast(device, dtype):
        assert same(linear(x.float(), w.float()), y)
    gap = draw(6, 3, 30, dtype=dtype), draw(7, 33, 30, dtype=dtype)  # rows of no whole units
    assert (linear(*(x.to(device) for x in gap)).cpu().float() - linear(*gap).float()).abs().max() < 0.2


def test_gradients_of_gradients_and_graphs():
    x, w = draw(1, 3, 8).requires_grad_(), draw(2, 4, 8).requires_grad_()
    dx, = torch.autograd.grad(linear(x, w).pow(2).sum(), x, create_graph=True)
    own = torch.autograd.grad(dx.pow(2).sum(), w)[0]
    plain, = torch.autograd.grad(F.linear(x, w).pow(2).sum(), x, create_graph=True)
    assert torch.allclose(own, torch.autograd.grad(plain.pow(2).sum(), w)[0], rtol=1e-4)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counted:
        linear(x, w).sum().backward()
    assert counted.get_total_flops() == 3 * 2 * 3 * 8 * 4
    made = torch.compile(linear, backend="aot_eager", fullgraph=True)(x, w)
    assert same(made.detach(), linear(x, w).detach())
    found, expected = (torch.autograd.grad(y.sum(), (x, w)) for y in (made, linear(x, w)))
    assert all(map(same, found, expected))
    assert same(torch.func.vmap(linear, (0, None))(x.detach()[:, None], w.detach())[:, 0], linear(x, w).detach())
    assert linear(x.to("meta"), w.to("meta")).shape == (3, 4)


def test_cpu_tensors_have_the_bits_of_an_h200_if_asked_for():
    x, w = draw(1, 9, 72, dtype=torch.float16), draw(2, 24, 72, dtype=torch.float16)
    with mock.patch.dict("os.environ", ORDO_EMULATE="h200"):
        y = linear(x, w, wide=True)
    assert ordo.digest(y) == ordo.digest(ordo.gemm(x.numpy(), w.numpy().T, wide=True, backend="emulator"))
    assert not same(y, linear(x, w, wide=True))


def refused(call, message):
    try:
        raise AssertionError(f"not refused: {call()}")
    except ordo.Error as error:
        assert message in str(error), str(error)


@on_each
def test_what_is_refused(device):
    x, w = (draw(1, n, 8, device=device, dtype=torch.bfloat16) for n in (3, 4))
    refused(lambda: linear(x, w.t()), "x.shape (3, 8), weight.shape (8, 4): expected (..., k) and (n, k)")
    refused(lambda: linear(x, w.half()), "b.dtype torch.float16: expected torch.bfloat16")
    refused(lambda: linear(x.int(), w.int()), "a.dtype torch.int32: expected torch.float32")
    refused(lambda: linear(x, w, w[:, 0]), "bias.stride")
    refused(lambda: linear(x, w, w[0]), "bias.shape (8,): expected (4,)")
    refused(lambda: linear(x, [1.0]), "weight [1.0]: expected a tensor")
    with torch.autograd.forward_ad.dual_level():  # a tangent would be dropped
        dual = torch.autograd.forward_ad.make_dual(x, x)
        refused(lambda: linear(dual, w), "tangents (forward-mode derivatives)")
    refused(lambda: torch.func.jvp(linear, (x, w), (x, w)), "tangents")
    refused(lambda: torch.func.grad(lambda x: linear(x, w).sum())(x), "torch.func (grad, vjp, jacrev)")
    if device == "cuda":
        refused(lambda: linear(x.float(), w.float()), "dtype 0 (f32): backend cuda expects bf16 or f16")
        refused(lambda: linear(x, w.cpu()), "b.device cpu: expected")


@on_each
def test_rows_under_invariant_do_not_depend_on_the_batch(device):
    for dtype in kinds(device)[:2]:
        for n in (64, 333):
            x, w, matrix = (draw(seed, *shape, device=device, dtype=dtype)
                            for seed, shape in ((1, (300, n)), (2, (n,)), (3, (40, n))))  # fmt: skip
            operations = {
                "linear": lambda x: F.linear(x, matrix), "@": lambda x: x @ matrix.t(),
                "addmm": lambda x: torch.addmm(w[:40], x, matrix.t()),
                "layer_norm": lambda x: F.layer_norm(x, (n,), w, w), "rms_norm": lambda x: F.rms_norm(x, (n,), w),
                "log_softmax": lambda x: F.log_softmax(x, -1), "softmax": lambda x: x.softmax(-1),
                "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.long, device=device),
                                                           reduction="none")[:, None],
                "mean": lambda x: x.float().pow(2).mean(-1, keepdim=True), "sum": lambda x: x.sum(-1)[:, None],
                "gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
                "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
            }  # fmt: skip
            for name, operation in operations.items():

                def step(rows):
                    given = x[rows].requires_grad_()
                    with invariant():
                        y = operation(given)
                    return y.detach(), torch.autograd.grad(y.float().sum(), given)[0]

                y, dx = step(slice(None))
                assert (y.double() - operation(x).double()).abs().max() < 0.2 * n**0.5, name
                for rows in selections(300, n, device):
                    got, got_dx = step(rows)
                    assert same(got, y[rows]) and same(got_dx, dx[rows]), (name, dtype, n, len(rows))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, self.heads, -1).unbind(2)
        x = x + self.out(ordo.torch.attention(q, k, v, causal=True)[0].flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, width=64, heads=4, layers=2, words=101):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


@on_each
def test_logits_of_a_gpt_are_equal_alone_and_in_any_batch_before_and_after_a_step(device):
    for dtype in kinds(device)[:2]:
        torch.manual_seed(3)
        model = GPT().to(device, dtype)
        tokens = torch.randint(0, 101, (20, 33), device=device)

        def logits(sequences):
            with torch.no_grad(), invariant():
                return F.log_softmax(model(tokens[sequences]), -1)

        def gradients():
            with invariant():
                loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
            return torch.autograd.grad(loss, list(model.parameters()))

        for _ in range(2):
            whole = logits(torch.arange(20, device=device))
            for sequences in ([7], [19], [7, 7], [3, 1, 19, 10], list(range(19, -1, -1))):
                assert same(logits(sequences), whole[sequences]), (dtype, sequences)
            for parameter, x, y in zip(model.parameters(), gradients(), gradients()):
                assert same(x, y)
                parameter.data -= 0.1 * x
        assert not same(whole, logits(torch.arange(20, device=device)))


if __name__ == "__main__":
    given = sys.argv[1:] or ["cuda"]
    if given[0] == "cuda" and not torch.cuda.is_available():
        print("skip: no CUDA device")
        sys.exit(77)
    tests = [x for name, x in list(globals().items()) if name.startswith("test_")]
    for test in tests:
        test(*given[: test.__code__.co_argcount])
        print("ok  ", test.__name__)
    print(f"{len(tests)} passed, 0 failed, 0 skipped")
