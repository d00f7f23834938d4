"""The functions, under the name some import them by."""

from typing import Any

from ..._library import Error
from ...torch import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]


def flash_attn_with_kvcache(*args: Any, **kwargs: Any) -> Any:
    """Refused: it is for inference."""
    raise Error("unsupported", "flash_attn_with_kvcache: a cache of keys is not supported")
