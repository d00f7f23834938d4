"""The peers of `bench/gpu/run attention_h200` on CPU tensors: what is timed is what is compared."""

import sys
import types
from pathlib import Path

import pytest
import torch
import torch.utils.deterministic

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu"))
fill = torch.utils.deterministic.fill_uninitialized_memory
import attention_gpu as gpu  # noqa: E402

torch.utils.deterministic.fill_uninitialized_memory = fill  # attention_gpu clears it


class Operators:
    """Attention and its gradients, as the operators of flash_attn_interface are called."""

    def __init__(self):
        self.made = []

    def fwd(self, q, k, v, causal):
        self.made.append("fwd")
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=True
        )
        return o.transpose(1, 2)

    def bwd(self, dout, q, k, v, causal):
        self.made.append("bwd")
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            return torch.autograd.grad(Operators().fwd(*inputs, causal), inputs, dout)


def interface():
    """A module like flash_attn_interface: Python that calls operators by the name of a global."""
    module = types.ModuleType("flash_attn_interface")
    module.flash_attn_3_gpu = Operators()

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, causal):
            ctx.save_for_backward(q, k, v)
            ctx.causal = causal
            return module.flash_attn_3_gpu.fwd(q, k, v, causal)

        @staticmethod
        def backward(ctx, dout):
            return *module.flash_attn_3_gpu.bwd(dout, *ctx.saved_tensors, ctx.causal), None

    def flash_attn_func(q, k, v, causal=False, deterministic=False):
        return Attention.apply(q, k, v, causal)

    module.flash_attn_func = flash_attn_func
    return module


def problem(mask, kv_heads):
    source = torch.Generator().manual_seed(1)
    heads = {"q": 4, "dout": 4, "k": kv_heads, "v": kv_heads}
    given = {x: torch.randn((2, 65, n, 32), generator=source) for x, n in heads.items()}
    return gpu.Shape(2, 4, kv_heads, 65, 65, 32, mask), given


@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_flash_has_the_results_of_torch(mask, kv_heads):
    shape, given = problem(mask, kv_heads)
    expected = gpu.Torch(shape, given, "MATH").results()
    for name, x in gpu.Flash(shape, given, interface()).results().items():
        assert gpu.error(x, expected[name].double()) < 1e-5, name


def test_timed_passes_of_flash_attention_3_are_its_operators():
    """And the module is as it was: its own Python is not called again."""
    shape, given = problem("causal", 2)
    module = interface()
    operators = module.flash_attn_3_gpu
    flash = gpu.Flash(shape, given, module)
    assert module.flash_attn_3_gpu is operators and operators.made == ["fwd", "bwd"]
    module.flash_attn_func = flash.call = None
    flash.forward()
    flash.backward()
    assert operators.made == ["fwd", "bwd", "fwd", "bwd"]


def test_a_module_without_operators_is_called_as_users_do():
    shape, given = problem("full", 4)
    module = interface()
    operators, calls = module.flash_attn_3_gpu, []
    public = types.SimpleNamespace(
        flash_attn_func=lambda *args, **named: (
            calls.append(named),
            module.flash_attn_func(*args, **named),
        )[1]
    )
    flash = gpu.Flash(shape, given, public, True)
    flash.forward()
    flash.backward()
    assert calls == [{"causal": False, "deterministic": True}] * 2
    assert operators.made == ["fwd", "fwd", "bwd"]
