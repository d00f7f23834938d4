"""FlopCounterMode counts ordo's attention as it counts PyTorch's."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode


def counted(call):
    with FlopCounterMode(display=False) as counter:
        call().sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("more", [{}, {"causal": True, "dropout_p": 0.5, "seed": 1}, {"sink": torch.zeros(4)}])
def test_as_sdpa(more):
    q, k, v = (torch.randn(2, n, 4, d, requires_grad=True) for n, d in ((24, 16), (40, 16), (40, 8)))
    across = [x.transpose(1, 2) for x in (q, k, v)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        forward = FlopCounterMode(display=False)
        with forward:
            F.scaled_dot_product_attention(*across)
    scores = 2 * 4 * 24 * 40
    assert forward.get_total_flops() == 2 * scores * (16 + 8)
    assert counted(lambda: ordo.torch.attention(q, k, v, **more)[0]) == 2 * scores * (4 * 16 + 3 * 8)


def test_packed_sequences_count_their_own_lengths():
    q, k, v = (torch.randn(64, 4, 16, requires_grad=True) for _ in range(3))
    ends = torch.tensor([0, 40, 64], dtype=torch.int32)
    flops = counted(lambda: ordo.torch.attention(q, k, v, cu_q=ends, cu_kv=ends)[0])
    assert flops == 7 * 2 * 4 * 16 * (40**2 + 24**2)


def test_parts_count_their_own_rows():
    q, k, v = (torch.randn(1, 256, 4, 16) for _ in range(3))
    o, lse = ordo.torch.attention(q, k, v)
    sums = torch.zeros_like(k), torch.zeros_like(v)
    rows = slice(0, 64)
    given = torch.ones_like(o)[:, rows], q[:, rows], k, v, o[:, rows], lse[:, :, rows].contiguous()
    with FlopCounterMode(display=False) as counter:
        ordo.torch.backward_part(*given, carry="out", dk_sums=sums[0], dv_sums=sums[1])
    assert counter.get_total_flops() == 5 * 2 * 4 * 16 * 64 * 256


def test_block_masks_leave_no_product_out():
    q = torch.randn(1, 256, 4, 16)
    mask = ordo.BlockMask.from_chunks(256, 256, 128)
    with FlopCounterMode(display=False) as counter:
        ordo.torch.attention(q, q, q, block_mask=mask)
    assert counter.get_total_flops() == 2 * 2 * 4 * 16 * 256 * 256
