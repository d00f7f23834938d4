"""How results are compared: bit by bit, or within a few roundings of a type; and tensors to begin with."""

from __future__ import annotations

import torch


def close(got, expected, dtype):
    """Within a few roundings of the type, of the largest element."""
    tolerance = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    finite = torch.isfinite(expected)
    assert got.shape == expected.shape
    assert torch.equal(torch.isfinite(got), finite)
    if finite.any():
        size = expected[finite].abs().max().clamp_min(1e-30)
        worst = (got.double() - expected)[finite].abs().max() / size
        assert worst <= tolerance, f"{worst:.2e} of the largest, expected {tolerance:.0e}"


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def leaf(*shape, **rest):
    """drawn(), with gradients."""
    return drawn(*shape, **rest).requires_grad_()


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def equal(ones, others):
    return all(same(x, y) for x, y in zip(ones, others, strict=True))


def same(one, other):
    """Equal bits, zeros' signs and NaN included."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = [x.detach().resolve_neg().contiguous().view(kinds[x.element_size()]) for x in (one, other)]
    return one.dtype == other.dtype and torch.equal(*bits)
