"""examples/ is where the backend is. What vLLM reads: one process, and no more of it than the tests need."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples"))
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
