"""ordo for PyTorch: attention with gradients, the same bits every run, dropout included.

docs/guide/torch.md. Needs PyTorch 2.10 or later, and libordo_torch.so, whose operators are compiled to
PyTorch's stable ABI.
"""

from ..run._reproducible import Reproducible, Setting, reproducible
from ..run._unordered import Operation
from ..run._verify import Verdict, verify
from ._attention import Attention, attention
from ._blocks import block_mask
from ._dropout import PreparedDropout, prepare_dropout, set_keep_bits_memory, set_mask_memory
from ._flash import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from ._call import check_lengths
from ._invariant import invariant
from ._linear import linear
from ._parts import backward_part
from ._scores import score_bias
from ._sdpa import register
from ._sum import tree_sum

__all__ = [
    "Attention",
    "Operation",
    "PreparedDropout",
    "Reproducible",
    "Setting",
    "Verdict",
    "attention",
    "backward_part",
    "block_mask",
    "check_lengths",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "invariant",
    "linear",
    "prepare_dropout",
    "register",
    "reproducible",
    "score_bias",
    "set_keep_bits_memory",
    "set_mask_memory",
    "tree_sum",
    "verify",
]
