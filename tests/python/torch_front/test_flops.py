"""FlopCounterMode counts ordo's attention as it counts PyTorch's."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode


def counted(call, gradients=True):
    with FlopCounterMode(display=False) as counter:
        made = call()
        if gradients:
            made.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("more", [{}, {"causal": True, "dropout_p": 0.5, "seed": 1}, {"sink": torch.zeros(4)}])
def test_as_sdpa(more):
    q, k, v = (torch.randn(2, n, 4, d, requires_grad=True) for n, d in ((24, 16), (40, 16), (40, 8)))
    across, scores = [x.transpose(1, 2) for x in (q, k, v)], 2 * 4 * 24 * 40
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert counted(lambda: F.scaled_dot_product_attention(*across), False) == 2 * scores * (16 + 8)
    assert counted(lambda: ordo.torch.attention(q, k, v, **more)[0]) == 2 * scores * (4 * 16 + 3 * 8)


def test_sequences_and_parts_count_their_own_rows_and_masks_all():
    q, k, v = (torch.randn(64, 4, 16, requires_grad=True) for _ in range(3))
    ends = torch.tensor([0, 40, 64], dtype=torch.int32)
    flops = counted(lambda: ordo.torch.attention(q, k, v, cu_q=ends, cu_kv=ends)[0])
    assert flops == 7 * 2 * 4 * 16 * (40**2 + 24**2)
    q, k, v = (torch.randn(1, 256, 4, 16) for _ in range(3))
    o, lse = ordo.torch.attention(q, k, v)
    some = torch.ones_like(o)[:, :64], q[:, :64], k, v, o[:, :64], lse[:, :, :64].contiguous()
    sums = dict(carry="out", dk_sums=torch.zeros_like(k), dv_sums=torch.zeros_like(v))
    assert counted(lambda: ordo.torch.backward_part(*some, **sums), False) == 5 * 2 * 4 * 16 * 64 * 256
    mask = ordo.BlockMask.from_chunks(256, 256, 128)
    assert counted(lambda: ordo.torch.attention(q, q, q, block_mask=mask), False) == 2 * 2 * 4 * 16 * 256 * 256
