"""How results are compared: bit by bit, or within a few roundings of a type."""

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


def same(one, other):
    """Equal bits, zeros' signs and NaN included."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds[one.element_size()]
    return one.dtype == other.dtype and torch.equal(
        one.detach().contiguous().view(kind), other.detach().contiguous().view(kind)
    )
