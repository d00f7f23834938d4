"""The PyTorch front on a CUDA device, in one script: no pytest, no network.

PYTHONPATH=python python3 tests/python/torch_front/on_cuda.py [--device cuda] [--steps 50] [NAME...]

Prints one line a check: "ok", "refused" with the library's words (a feature the CUDA backend
does not have), or "FAIL"; then step times of two transformers models. Exit status 1 if any failed.
With --device cpu it checks itself, on small shapes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import math64  # noqa: E402
import ordo  # noqa: E402
import ordo.torch  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from math64 import same  # noqa: E402
from ordo.torch._attention import Arguments, run  # noqa: E402
from ordo.torch._mask import keep_mask  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

CHECKS = {}
DEVICE = "cuda"
STEPS = 50


def check(function):
    CHECKS[function.__name__] = function
    return function


class Wrong(Exception):
    """A check that did not hold."""


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def cuda():
    return DEVICE == "cuda"


def wait():
    if cuda():
        torch.cuda.synchronize()


# ---- tensors ----


def tensors(batch=2, rows=384, heads=4, kv_heads=2, dim=64, dtype=torch.bfloat16, columns=None):
    """q, k, v and the gradient of o; the same numbers on every device."""
    drawn = torch.Generator().manual_seed(rows + dim)
    shapes = [
        (rows, heads),
        (columns or rows, kv_heads),
        (columns or rows, kv_heads),
        (rows, heads),
    ]
    made = [torch.randn(batch, *shape, dim, generator=drawn).to(dtype) for shape in shapes]
    *inputs, dout = (x.to(DEVICE) for x in made)
    return [x.requires_grad_() for x in inputs], dout


def both(inputs, dout, **rules):
    """o, lse, dq, dk, dv."""
    o, lse = ordo.torch.attention(*inputs, **rules)
    return [o.detach(), lse.detach(), *torch.autograd.grad(o, inputs, dout)]


def equal(one, other, what):
    for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), one, other):
        expect(same(x.cpu(), y.cpu()), f"{what}: {name} differs")


def against_math(inputs, dout, keywords, **expected_rules):
    """Largest error of each result, as a part of the largest element."""
    o, lse, seen = run(*inputs, Arguments(**keywords))
    grads = torch.autograd.grad(o, inputs, dout)
    wide = [x.detach().double().cpu().requires_grad_() for x in inputs]
    if keywords.get("dropout_p"):
        info = ordo.dropout.query(ordo.Problem(q_len=1, head_dim=1, dropout=keywords["dropout_p"]))
        expected_rules.update(keep=keep_mask(*seen).cpu(), kept_scale=info.scale)
    expected, expected_lse = math64.attention(*wide, **expected_rules)
    wanted = [expected, expected_lse, *torch.autograd.grad(expected, wide, dout.double().cpu())]
    worst = 0.0
    for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads), wanted):
        error = ((x.detach().double().cpu() - y).abs().max() / y.abs().max()).item()
        expect(error < 2e-2, f"{name} is off by {error:.1e}")
        worst = max(worst, error)
    return f"{worst:.1e}"


# ---- checks ----


@check
def values():
    found = []
    for dim in (64, 128):
        for causal in (False, True):
            for heads, kv_heads in ((4, 4), (4, 1)):
                rules = dict(causal=causal)
                given = tensors(dim=dim, heads=heads, kv_heads=kv_heads)
                found.append(against_math(*given, rules, **rules))
    return f"largest error {max(found, key=float)} over {len(found)} shapes"


@check
def dropout():
    found = [against_math(*tensors(), dict(causal=c, dropout_p=p, seed=(3, 4)), causal=c)
             for c in (False, True) for p in (0.1, 0.17)]  # fmt: skip
    return f"the mask is the host's; largest error {max(found, key=float)}"


@check
def unequal_lengths():
    given = tensors(rows=200, columns=456)
    return against_math(*given, dict(causal=True), causal=True)


@check
def repeats():
    given = tensors(batch=4, rows=1024, heads=8)
    p = _dropout_there()
    first = both(*given, causal=True, dropout_p=p, seed=1)
    side = torch.cuda.Stream() if cuda() else None
    noise = torch.randn(2048, 2048, device=DEVICE)
    for _ in range(20):
        if side is not None:
            with torch.cuda.stream(side):
                for _ in range(4):
                    noise = noise @ noise / 2048
        equal(first, both(*given, causal=True, dropout_p=p, seed=1), "a repeat under load")
    wait()
    return f"20 runs beside another stream's load, p {p}"


@check
def batch_invariance():
    (q, k, v), dout = tensors(batch=3, rows=512)
    whole = both([q, k, v], dout, causal=True)
    for b in range(3):
        one = [x.detach()[b : b + 1].requires_grad_() for x in (q, k, v)]
        equal([x[b : b + 1] for x in whole], both(one, dout[b : b + 1], causal=True), "one of 3")
    return "a sequence alone has the bits it has in a batch"


def _there(**rules):
    """Whether the backend has a feature."""
    inputs, _ = tensors(rows=128)
    try:
        o, lse = ordo.torch.attention(*inputs, **rules)
        torch.autograd.grad(o.float().sum() if rules else lse.sum(), inputs[0])
    except ordo.Error as error:
        if error.status != "unsupported":
            raise
        return False
    return True


def _dropout_there():
    """0.1, or 0 if the backend has none."""
    return 0.1 if _there(dropout_p=0.1, seed=1) else 0.0


@check
def streams():
    if not cuda():
        return "no streams here"
    given = tensors(rows=512)
    plain = both(*given, causal=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        other = both(*given, causal=True)
    torch.cuda.current_stream().wait_stream(side)
    equal(plain, other, "on another stream")
    return "same bits on a side stream"


@check
def graphs():
    if not cuda():
        return "no graphs here"
    p = _dropout_there()
    inputs, dout = tensors(rows=512)
    rng = torch.tensor([1, 2], device=DEVICE)

    def step():
        rules = dict(dropout_p=p, rng_state=rng) if p else {}
        return both(inputs, dout, causal=True, **rules)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = step()
    for seed in (1, 9, 1):
        rng[0] = seed
        graph.replay()
        wait()
        equal([x.clone() for x in held], step(), f"replayed with seed {seed}")
    return f"forward and backward replayed, seed read from the device, p {p}"


@check
def drawn_in_a_graph():
    if not cuda():
        return "no graphs here"
    inputs, _ = tensors(rows=256)
    with torch.no_grad():
        ordo.torch.attention(*inputs, dropout_p=0.5)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o, _ = ordo.torch.attention(*inputs, dropout_p=0.5)
        made = []
        for _ in range(2):
            graph.replay()
            wait()
            made.append(o.clone())
    expect(not same(*made), "two replays drew the same mask")
    return "each replay draws a mask of its own"


@check
def compiled():
    given = tensors(rows=256)
    plain = both(*given, causal=True)
    done = []
    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        whole = torch.compile(
            lambda q, k, v: ordo.torch.attention(q, k, v, causal=True)[0],
            fullgraph=True,
            backend=backend,
        )
        o = whole(*given[0])
        other = [o.detach(), plain[1], *torch.autograd.grad(o, given[0], given[1])]
        equal(plain, other, backend)
        done.append(backend)
    return "one graph: " + ", ".join(done)


@check
def checkpointed():
    inputs, dout = tensors(rows=256)
    p = _dropout_there()

    def block(q, k, v):
        return ordo.torch.attention(q, k, v, causal=True, dropout_p=p)[0]

    torch.manual_seed(3)
    plain = torch.autograd.grad(block(*inputs), inputs, dout)
    torch.manual_seed(3)
    again = torch.autograd.grad(checkpoint(block, *inputs, use_reentrant=False), inputs, dout)
    for x, y in zip(plain, again):
        expect(same(x, y), "recomputed gradients differ")
    return f"recomputed with the same mask, p {p}"


@check
def opcheck():
    from ordo.torch._plans import Lists, Rules

    inputs, _ = tensors(rows=128)
    rules = Rules(0, 0, 0.125, "causal", -1, -1, 0.0, 0.0, "ordo", ())
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if _there():  # the last one differentiates lse, too
        tests.append("test_aot_dispatch_dynamic")
    said = torch.library.opcheck(
        torch.ops.ordo.attention_forward.default, (*inputs, *Lists(), *rules), test_utils=tests
    )
    expect(set(said.values()) == {"SUCCESS"}, str(said))
    return ", ".join(said)


@check
def autocast():
    inputs, _ = tensors(rows=128, dtype=torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        o, _ = ordo.torch.attention(*inputs)
    expect(o.dtype == torch.bfloat16, f"o is {o.dtype}")
    return "float32 in, bfloat16 out"


@check
def layouts():
    inputs, dout = tensors(rows=256)
    plain = both(inputs, dout, causal=True)
    heads_first = [
        x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in inputs
    ]
    equal(plain, both(heads_first, dout, causal=True), "(batch, head, row, dim) in memory")
    qkv = torch.stack([x.detach() for x in (inputs[0][:, :, :2], *inputs[1:])], 2)
    packed = ordo.flash_attn_qkvpacked_func(qkv.requires_grad_(), causal=True)
    parts = ordo.flash_attn_func(*qkv.unbind(2), causal=True)
    expect(same(packed, parts), "packed qkv")
    return "heads first and packed qkv, without copies"


@check
def strides():
    """Queries, keys and values side by side in one tensor, as GPT-2 has them, beside copies."""
    heads, rows = (12, 1024) if cuda() else (2, 64)
    drawn = torch.Generator().manual_seed(5)
    qkv = torch.randn(2, rows, 3 * heads * 64, generator=drawn).to(DEVICE, torch.bfloat16)
    views = [x.unflatten(-1, (heads, 64)) for x in qkv.split(heads * 64, dim=-1)]
    copies = [x.contiguous().requires_grad_() for x in views]
    views = [x.detach().requires_grad_() for x in views]
    expect(not views[0].is_contiguous(), "views are contiguous")
    dout = torch.randn(2, rows, heads, 64, generator=drawn).to(DEVICE, torch.bfloat16)
    equal(both(copies, dout, causal=True), both(views, dout, causal=True), "strided inputs")
    wide = dout.new_zeros(2, rows, heads, 128)[..., :64].copy_(dout)
    equal(both(copies, dout, causal=True), both(copies, wide, causal=True), "strided dout")
    return "rows with gaps have the bits of copies"


def _feature(keywords, shape=None, **expected):
    def body():
        return against_math(*tensors(**(shape or {})), keywords, **expected)

    return body


CHECKS["head_size_80"] = _feature(dict(causal=True), dict(dim=80), causal=True)
CHECKS["head_size_256"] = _feature(dict(causal=True), dict(dim=256), causal=True)
CHECKS["top_left"] = _feature(
    dict(causal="top-left"), dict(rows=200, columns=456), causal="top-left"
)
CHECKS["window"] = _feature(dict(causal=True, window=(100, 0)), None, causal=True, window=(100, 0))
CHECKS["softcap"] = _feature(dict(softcap=5.0), None, softcap=5.0)
CHECKS["float16"] = _feature(dict(causal=True), dict(dtype=torch.float16), causal=True)
CHECKS["float32"] = _feature(dict(causal=True), dict(dtype=torch.float32), causal=True)


@check
def gradient_of_lse():
    inputs, _ = tensors(rows=128)
    _, lse = ordo.torch.attention(*inputs)
    (got,) = torch.autograd.grad(lse.sum(), inputs[0])
    wide = [x.detach().double().cpu().requires_grad_() for x in inputs]
    (wanted,) = torch.autograd.grad(math64.attention(*wide)[1].sum(), wide[0])
    error = ((got.double().cpu() - wanted).abs().max() / wanted.abs().max()).item()
    expect(error < 2e-2, f"dq is off by {error:.1e}")
    return f"{error:.1e}"


@check
def alibi():
    slopes = torch.rand(4, device=DEVICE)
    return against_math(*tensors(), dict(slopes=slopes), slopes=slopes.cpu())


@check
def packed():
    ends = torch.tensor([0, 100, 384, 700], dtype=torch.int32, device=DEVICE)
    inputs, dout = tensors(batch=1, rows=700)
    flat = [x.detach()[0].requires_grad_() for x in inputs]
    o, _ = ordo.torch.attention(*flat, cu_q=ends, max_q=316, causal=True)
    grads = torch.autograd.grad(o, flat, dout[0])
    for first, end in ((0, 100), (100, 384), (384, 700)):
        one = [x.detach()[None, first:end].requires_grad_() for x in flat]
        alone = both(one, dout[:, first:end], causal=True)
        for x, y in zip((o, *grads), (alone[0], *alone[2:])):
            expect(same(x[first:end], y[0]), f"rows {first}..{end} differ from the sequence alone")
    return "three sequences have the bits they have alone"


@check
def padded():
    lens = torch.tensor([100, 384], dtype=torch.int32, device=DEVICE)
    inputs, _ = tensors()
    o, _ = ordo.torch.attention(*inputs, q_lens=lens, kv_lens=lens, causal=True)
    one = [x.detach()[:1, :100] for x in inputs]
    expect(same(o[:1, :100], ordo.torch.attention(*one, causal=True)[0]), "differs from it alone")
    return "valid rows have the bits they have alone"


@check
def sdpa():
    from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

    dtype = torch.bfloat16
    inputs, dout = tensors(rows=512, heads=4, kv_heads=4, dtype=dtype)
    given = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs]
    dout = dout.transpose(1, 2)
    p = _dropout_there() if cuda() else 0.0
    ordo.torch.register()
    activate_flash_attention_impl("ORDO")
    torch.use_deterministic_algorithms(True)
    try:
        o = F.scaled_dot_product_attention(*given, is_causal=True)
        grads = torch.autograd.grad(o, given, dout)
        ours = both([x.transpose(1, 2) for x in given], dout.transpose(1, 2), causal=True)
        for x, y in zip((o, *grads), (ours[0], *ours[2:])):
            expect(same(x, y.transpose(1, 2)), "F.scaled_dot_product_attention has other bits")
        made = []
        for _ in range(2):
            torch.manual_seed(7)
            o = F.scaled_dot_product_attention(*given, is_causal=True, dropout_p=p)
            made.append([o, *torch.autograd.grad(o, given, dout)])
        expect(all(same(x, y) for x, y in zip(*made)), "with dropout: a repeat differs")
        if p:
            expect(not same(made[0][0], ours[0].transpose(1, 2)), "nothing was dropped")
        whole = torch.compile(F.scaled_dot_product_attention, fullgraph=True)
        o = whole(*given, is_causal=True)
        expect(same(o, ours[0].transpose(1, 2)), "compiled: other bits")
        torch.autograd.grad(o, given, dout)
    finally:
        restore_flash_attention_impl()
        torch.use_deterministic_algorithms(False)
    return f"strict determinism, dropout {p}, compiled"


@check
def overhead():
    """Host time to launch a pass: the queue is emptied between samples, not during one."""
    if not cuda():
        return "tools/bench-torch-overhead measures it here"
    inputs, dout = tensors(batch=1, rows=128, heads=1, kv_heads=1)
    o, _ = ordo.torch.attention(*inputs)
    heads_first = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs]
    theirs = F.scaled_dot_product_attention(*heads_first)

    def host(function, calls=50, samples=40):
        times = []
        for _ in range(samples):
            wait()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times.append((time.perf_counter() - start) / calls * 1e6)
        wait()
        return sorted(times)[len(times) // 4]

    grad = dict(retain_graph=True)
    back = dout.transpose(1, 2).contiguous()
    rows = {
        "forward": lambda: ordo.torch.attention(*inputs),
        "backward": lambda: torch.autograd.grad(o, inputs, dout, **grad),
        "SDPA forward": lambda: F.scaled_dot_product_attention(*heads_first),
        "SDPA backward": lambda: torch.autograd.grad(theirs, heads_first, back, **grad),
    }
    return ", ".join(f"{name} {host(call):.0f} us" for name, call in rows.items())


# ---- a real client ----


def _model(name, implementation):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    small = not cuda()
    torch.manual_seed(0)
    if name == "gpt2":
        size = dict(n_layer=2, n_head=2, n_embd=128) if small else {}
        config = GPT2Config(**size, attn_pdrop=_dropout_there())
        kind = GPT2LMHeadModel
    else:
        config = LlamaConfig(
            hidden_size=256 if small else 4096, intermediate_size=512 if small else 14336,
            num_hidden_layers=2 if small else 4, num_attention_heads=2 if small else 32,
            num_key_value_heads=1 if small else 8, vocab_size=32000,
            attention_dropout=_dropout_there(),
            max_position_embeddings=4096,
        )  # fmt: skip
        kind = LlamaForCausalLM
    config._attn_implementation = implementation
    with torch.device(DEVICE):
        return kind(config).train()


def _batch(name, kind):
    """Tokens with a pattern to learn; padded on the right, or several texts in one row."""
    batch, rows = ((8, 1024) if name == "gpt2" else (2, 1024)) if cuda() else (2, 64)
    drawn = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 500, (batch, rows), generator=drawn).cumsum(1) % 1000
    if kind == "dense":
        return dict(input_ids=tokens, labels=tokens)
    if kind == "padded":
        mask = torch.ones_like(tokens)
        for b in range(batch):
            mask[b, rows - (b * rows) // (2 * batch) :] = 0
        return dict(
            input_ids=tokens, labels=tokens.masked_fill(mask == 0, -100), attention_mask=mask
        )
    tokens = tokens.view(1, -1)[:, : 2048 if name == "llama" else 8192]
    cut = rows * 3 // 4
    positions = torch.cat([torch.arange(n) for n in _cuts(tokens.shape[1], cut)])[None]
    return dict(input_ids=tokens, labels=tokens, position_ids=positions)


def _cuts(total, longest):
    while total > 0:
        yield min(total, longest)
        total -= longest


def train(name, implementation, kind, steps, strict, seed=2):
    """Losses, a digest of the parameters, seconds a step (median)."""
    torch.use_deterministic_algorithms(strict)
    model = _model(name, implementation)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=cuda())
    inputs = {key: x.to(DEVICE) for key, x in _batch(name, kind).items()}
    torch.manual_seed(seed)
    losses, times = [], []
    for _ in range(steps):
        wait()
        start = time.perf_counter()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(**inputs, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wait()
        times.append(time.perf_counter() - start)
        losses.append(loss.detach())
    torch.use_deterministic_algorithms(False)
    total = torch.stack([_fingerprint(p.detach()) for p in model.parameters()])
    digest = ordo.digest(torch.cat([torch.stack(losses).view(torch.int32).long(), total]))
    return [x.item() for x in losses], digest, sorted(times)[len(times) // 2]


def _fingerprint(tensor):
    """Of every bit and its place, made on the device: integers, so in any order the same."""
    bits = tensor.reshape(-1).view(torch.int32).long()
    return (bits * (2 * torch.arange(bits.numel(), device=bits.device) + 1)).sum()


@check
def gradients_in_a_model():
    """One step of each model without dropout: every gradient beside SDPA's and eager's."""
    import ordo.transformers

    ordo.transformers.register()
    said = []
    for name in ("gpt2", "llama"):
        grads, losses = {}, {}
        for implementation in ("eager", "sdpa", "ordo"):
            model = _model(name, implementation)
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
                if hasattr(module, "attention_dropout"):
                    module.attention_dropout = 0.0
            inputs = {key: x.to(DEVICE) for key, x in _batch(name, "dense").items()}
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = model(**inputs, use_cache=False).loss
            loss.backward()
            losses[implementation] = loss.item()
            grads[implementation] = {n: p.grad for n, p in model.named_parameters()}
            del model

        def off(one, other):
            """The largest relative distance of a gradient, and whose it is."""
            found = (
                ((x - grads[other][n]).norm() / grads[other][n].norm().clamp_min(1e-20), n)
                for n, x in grads[one].items()
            )
            return max((x.item(), n) for x, n in found)

        ours, theirs = off("ordo", "eager"), off("sdpa", "eager")
        words = " ".join(f"{x:.4f}" for x in losses.values())
        said.append(f"{name} losses {words}, ordo {ours[0]:.1e} {ours[1]}, sdpa {theirs[0]:.1e}")
        expect(ours[0] < 2 * theirs[0] + 0.02, said[-1])
        grads.clear()
    return "; ".join(said)


def _gap(one, other):
    """Mean distance of two loss curves."""
    return sum(abs(x - y) for x, y in zip(one, other)) / len(one)


def _curve(losses):
    shown = sorted({0, 1, 2, 5, 10, 20, 30, 40, len(losses) - 1})
    return " ".join(f"{losses[i]:.2f}" for i in shown
                    if i < len(losses))  # fmt: skip


def client(name, kind):
    def body():
        import ordo.transformers

        ordo.transformers.register()
        losses, digest, seconds = train(name, "ordo", kind, STEPS, True)
        _, again, _ = train(name, "ordo", kind, STEPS, True)
        expect(digest == again, "trained twice: losses or parameters differ")
        said = f"twice equal {digest}; attention dropout {_dropout_there()}"
        said += f"; loss {losses[0]:.3f} to {losses[-1]:.3f}"
        row = f"ordo {seconds * 1e3:.1f} ms"
        if kind == "dense":
            theirs, _, fast = train(name, "sdpa", kind, STEPS, False)
            again, _, strict = train(name, "sdpa", kind, STEPS, True, seed=3)
            gap, noise = _gap(losses, theirs), _gap(again, theirs)
            expect(
                gap < 2 * noise + 0.1,
                f"{gap:.2f} from SDPA, whose masks differ by {noise:.2f}: ordo {_curve(losses)}; "
                f"sdpa {_curve(theirs)}; sdpa, others {_curve(again)}",
            )
            row += f", sdpa {fast * 1e3:.1f} ms, sdpa strict {strict * 1e3:.1f} ms"
            said += f", SDPA {theirs[-1]:.3f} (mean gap {gap:.3f}, of other masks {noise:.3f})"
        return f"{said}; a step: {row}"

    return body


for _name in ("gpt2", "llama"):
    for _kind in ("dense", "padded", "packed"):
        CHECKS[f"{_name}_{_kind}"] = client(_name, _kind)


# ---- the run ----


def one(name):
    start = time.perf_counter()
    try:
        word, said = "ok", CHECKS[name]()
    except ordo.Error as error:
        word, said = ("refused" if error.status == "unsupported" else "FAIL"), str(error)
    except Wrong as error:
        word, said = "FAIL", str(error)
    except Exception as error:
        known = isinstance(error.__cause__, ordo.Error) and error.__cause__.status == "unsupported"
        word, said = ("refused" if known else "FAIL"), f"{type(error).__name__}: {error}"
        if not known:
            traceback.print_exc(limit=-3)
    said = " ".join(str(said).split())[: 230 if word != "FAIL" else 600]
    print(f"{word:8}{name:18}{time.perf_counter() - start:6.1f} s  {said}", flush=True)
    return word


def main():
    global DEVICE, STEPS
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("names", nargs="*", metavar="NAME")
    given = options.parse_args()
    DEVICE, STEPS = given.device, given.steps
    if cuda() and not torch.cuda.is_available():
        print("skip: PyTorch sees no CUDA device")
        return 0
    title = torch.cuda.get_device_name() if cuda() else "CPU"
    print(
        f"torch {torch.__version__}, {title}, libordo {ordo.build().version} {ordo.build().target}"
    )
    if cuda() and not ordo.backend_available("cuda"):
        print(f"FAIL: {ordo.backend_why_not('cuda')}")
        return 1
    words = [one(name) for name in given.names or CHECKS]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("ok", "refused", "FAIL"))
    print(f"torch on {DEVICE}: {counts}")
    return 1 if "FAIL" in words else 0


if __name__ == "__main__":
    sys.exit(main())
