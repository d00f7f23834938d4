"""The block of block_h200 in PyTorch, with cuDNN's attention: a separate process.

PyTorch brings its own cuBLASLt, so that it does not share a process with ordo's block. Reads lines
`SEQ EMBED DROPOUT SECONDS` from stdin and answers each with one line of JSON: {"ms": milliseconds of
a pass, forward and backward}, or {"refused": why}. Ends with its input.
"""

from __future__ import annotations

import json
import sys
import time

DIM = 128


def block(torch, seq: int, embed: int, dropout: float):
    """A pass, forward and backward."""
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def weight(rows: int, columns: int):
        made = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) / columns**0.5
        return made.requires_grad_()

    heads = embed // DIM
    wqkv, wout = weight(3 * embed, embed), weight(embed, embed)
    wup, wdown = weight(4 * embed, embed), weight(embed, 4 * embed)
    gain = torch.ones(embed, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    x = torch.randn(seq, embed, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn(seq, embed, device="cuda", dtype=torch.bfloat16)

    def run() -> None:
        for leaf in (wqkv, wout, wup, wdown, gain, x):
            leaf.grad = None
        qkv = F.linear(F.rms_norm(x, (embed,), gain), wqkv).view(1, seq, 3, heads, DIM)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            a = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        h = x + F.linear(a.transpose(1, 2).reshape(seq, embed), wout)
        up = F.gelu(F.linear(F.rms_norm(h, (embed,), gain), wup), approximate="tanh")
        (h + F.linear(up, wdown)).backward(dy)

    return run


def steady_ms(torch, run, seconds: float) -> float:
    """Milliseconds of a pass over `seconds`, after passes that are not counted."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(4):
            run()
        torch.cuda.synchronize()
        count += 4
    return 1e3 * (time.perf_counter() - begin) / count


def main() -> int:
    why = ""
    try:
        import torch

        why = "" if torch.cuda.is_available() else "PyTorch finds no CUDA device"
    except ImportError as missing:
        why = str(missing)
    blocks: dict = {}
    for line in sys.stdin:
        seq, embed, dropout, seconds = (float(word) for word in line.split())
        said = {"refused": why}
        if not why:
            which = (int(seq), int(embed), dropout)
            try:
                if which not in blocks:
                    blocks[which] = block(torch, *which)
                said = {"ms": steady_ms(torch, blocks[which], seconds)}
            except RuntimeError as error:
                said = {"refused": str(error).splitlines()[0]}
        print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
