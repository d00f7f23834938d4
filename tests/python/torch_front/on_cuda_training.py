"""Transformers models on a CUDA device: a part of on_cuda.py, which also runs alone.

PYTHONPATH=python python3 tests/python/torch_front/on_cuda_training.py [--device cuda] [--steps 50]
                                                                    [NAME...]

Two models are trained twice (equal bits of losses and parameters), beside SDPA; step times last. Of
a third, whose heads are DeepSeek's, one step is compared with eager attention.
"""

from __future__ import annotations

import sys
import time

import on_cuda_kit as kit
import ordo
import torch
from math64 import same
from on_cuda_kit import CHECKS, check, cuda, dropout_there, expect, wait


def _model(name, implementation, p):
    from transformers import (
        DeepseekV3Config, DeepseekV3ForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig,
        LlamaForCausalLM,
    )  # fmt: skip

    small = not cuda()
    torch.manual_seed(0)
    if name == "gpt2":
        size = dict(n_layer=2, n_head=2, n_embd=128) if small else {}
        config = GPT2Config(**size, attn_pdrop=p)
        kind = GPT2LMHeadModel
    elif name == "deepseek":  # no experts: which are chosen may depend on the last bit
        heads = 2 if small else 16
        config = DeepseekV3Config(
            hidden_size=128 if small else 1024, intermediate_size=256 if small else 2048,
            num_hidden_layers=2, first_k_dense_replace=2, num_attention_heads=heads,
            num_key_value_heads=heads, q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128, vocab_size=1024, max_position_embeddings=4096,
            attention_dropout=p,
        )  # fmt: skip
        kind = DeepseekV3ForCausalLM
    else:
        config = LlamaConfig(
            hidden_size=256 if small else 4096, intermediate_size=512 if small else 14336,
            num_hidden_layers=2 if small else 4, num_attention_heads=2 if small else 32,
            num_key_value_heads=1 if small else 8, vocab_size=32000,
            attention_dropout=p, max_position_embeddings=4096,
        )  # fmt: skip
        kind = LlamaForCausalLM
    config._attn_implementation = implementation
    with torch.device(kit.DEVICE):
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


def train(name, implementation, kind, steps, strict, p, seed=2):
    """Losses, a digest of the parameters, seconds a step (median)."""
    torch.use_deterministic_algorithms(strict)
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs time, changes no bit
    model = _model(name, implementation, p)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=cuda())
    inputs = {key: x.to(kit.DEVICE) for key, x in _batch(name, kind).items()}
    torch.manual_seed(seed)
    losses, times = [], []
    for _ in range(steps):
        wait()
        start = time.perf_counter()
        with torch.autocast(kit.DEVICE, torch.bfloat16):
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


def _gradients(name, implementation, strict=False):
    """(loss, gradients) of one step without dropout."""
    torch.use_deterministic_algorithms(strict)
    model = _model(name, implementation, 0.0)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    inputs = {key: x.to(kit.DEVICE) for key, x in _batch(name, "dense").items()}
    with torch.autocast(kit.DEVICE, torch.bfloat16):
        loss = model(**inputs, use_cache=False).loss
    loss.backward()
    torch.use_deterministic_algorithms(False)
    return loss.item(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def _beside_eager(name):
    """Every gradient of one step beside SDPA's and eager's: what was found."""
    made = {x: _gradients(name, x) for x in ("eager", "sdpa", "ordo")}

    def apart(one, other):
        """The largest relative distance of a gradient, and whose it is."""
        grads, others = made[one][1], made[other][1]
        expect(grads.keys() == others.keys(), f"{name}: {one} has other gradients than {other}")
        found = (
            ((x - others[n]).norm() / others[n].norm().clamp_min(1e-20), n)
            for n, x in grads.items()
        )
        return max((x.item(), n) for x, n in found)

    ours, theirs = apart("ordo", "eager"), apart("sdpa", "eager")
    words = " ".join(f"{loss:.4f}" for loss, _ in made.values())
    said = f"{name} losses {words}, ordo {ours[0]:.1e} {ours[1]}, sdpa {theirs[0]:.1e}"
    expect(ours[0] < 2 * theirs[0] + 0.02, said)
    return said


@check
def gradients_in_a_model():
    """One step of each model without dropout: every gradient beside SDPA's and eager's."""
    import ordo.transformers

    ordo.transformers.register()
    return "; ".join(_beside_eager(name) for name in ("gpt2", "llama"))


@check
def deepseek():
    """The same of a model whose queries and keys have 192 columns and whose values have 128, and
    its bits twice."""
    import ordo.transformers

    ordo.transformers.register()
    said = _beside_eager("deepseek")
    (loss, grads), (again, repeated) = (_gradients("deepseek", "ordo", True) for _ in range(2))
    expect(loss == again, f"a repeat has loss {again}, not {loss}")
    for name, x in grads.items():
        expect(same(x, repeated[name]), f"a repeat has another gradient of {name}")
    return f"{said}; a repeat has its {len(grads)} gradients"


def _gap(one, other):
    """Mean distance of two loss curves."""
    return sum(abs(x - y) for x, y in zip(one, other)) / len(one)


def _curve(losses):
    shown = sorted({0, 1, 2, 5, 10, 20, 30, 40, len(losses) - 1})
    return " ".join(f"{losses[i]:.2f}" for i in shown
                    if i < len(losses))  # fmt: skip


TIMES = []  # rows of the table: model, batch, dropout, then times and kernels


def _kernel(name, kind, strict, p):
    """Which of PyTorch's kernels SDPA takes in this model."""
    torch.use_deterministic_algorithms(strict)
    model = _model(name, "sdpa", p)
    inputs = {key: x.to(kit.DEVICE) for key, x in _batch(name, kind).items()}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        with torch.autocast(kit.DEVICE, torch.bfloat16):
            model(**inputs, use_cache=False)
    torch.use_deterministic_algorithms(False)
    names = {event.key for event in seen.key_averages()}
    kinds = {"cudnn_": "cuDNN", "flash_": "flash", "efficient_": "efficient"}
    for key, word in kinds.items():
        if any(x.startswith(f"aten::_scaled_dot_product_{key}attention") for x in names):
            return word
    return "math"


def client(name, kind):
    def body():
        import ordo.transformers

        ordo.transformers.register()
        p = dropout_there()
        losses, digest, seconds = train(name, "ordo", kind, kit.STEPS, True, p)
        _, again, _ = train(name, "ordo", kind, kit.STEPS, True, p)
        expect(digest == again, "trained twice: losses or parameters differ")
        theirs, _, fast = train(name, "sdpa", kind, kit.STEPS, False, p)
        others, _, strict = train(name, "sdpa", kind, kit.STEPS, True, p, seed=3)
        more, _, _ = train(name, "sdpa", kind, kit.STEPS, False, p, seed=4)
        mine, _, _ = train(name, "ordo", kind, kit.STEPS, True, p, seed=3)
        gap = (_gap(losses, theirs) + _gap(mine, others)) / 2
        noise = max(_gap(others, theirs), _gap(more, theirs), _gap(more, others))
        expect(
            gap < 2 * noise + 0.1,
            f"{gap:.2f} from SDPA, whose masks differ by {noise:.2f}: ordo {_curve(losses)}; "
            f"sdpa {_curve(theirs)}; sdpa, others {_curve(others)}",
        )
        kernels = _kernel(name, kind, False, p), _kernel(name, kind, True, p)
        TIMES.append((name, kind, p, (seconds, fast, strict), kernels))
        said = f"twice equal {digest}; attention dropout {p}; loss {losses[0]:.3f} to "
        said += f"{losses[-1]:.3f}, SDPA {theirs[-1]:.3f} (mean gap {gap:.3f}, of other masks "
        return said + f"{noise:.3f}); ms a step: {_row(TIMES[-1])}"

    return body


def without_dropout(name):
    """Step times only: without dropout PyTorch can take its fastest kernel, cuDNN's."""

    def body():
        import ordo.transformers

        ordo.transformers.register()
        steps = min(kit.STEPS, 15)
        ways = (("ordo", True), ("sdpa", False), ("sdpa", True))
        times = tuple(train(name, way, "dense", steps, strict, 0.0)[2] for way, strict in ways)
        kernels = _kernel(name, "dense", False, 0.0), _kernel(name, "dense", True, 0.0)
        TIMES.append((name, "dense", 0.0, times, kernels))
        return f"ms a step: {_row(TIMES[-1])}"

    return body


def _row(row):
    ordo_ms, fast, strict = (1e3 * x for x in row[3])
    return (
        f"ordo {ordo_ms:.1f}, sdpa ({row[4][0]}) {fast:.1f}, sdpa strict ({row[4][1]}) {strict:.1f}"
    )


def table():
    """Print median milliseconds per step and ordo's part of theirs, if a model was trained."""
    if not TIMES:
        return
    print("\nms a step     batch   dropout   ordo      sdpa              sdpa, strict determinism")
    for name, kind, p, (ours, fast, strict), kernels in TIMES:
        cells = [
            f"{1e3 * x:7.1f} {kernel:9} {ours / x:5.2f}"
            for x, kernel in zip((fast, strict), kernels)
        ]
        print(f"{name:14}{kind:8}{p:<8}{1e3 * ours:7.1f}   " + "   ".join(cells))


class _Block(torch.nn.Module):
    def __init__(self, width, heads, p):
        super().__init__()
        self.heads, self.norm = heads, torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.attention = ordo.Attention(p, causal=True)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return x + self.out(self.attention(q, k, v).flatten(-2))


def _graph_run(p, graphed, steps=4):
    """(losses, fingerprints of the weights) of steps that are run one by one, or captured whole
    (forward, backward, optimizer) and replayed."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[_Block(256, 4, p) for _ in range(3)]).to(kit.DEVICE).train()
    state = {key: x.clone() for key, x in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=cuda())
    x, wanted = torch.randn(2, 4, 256, 256, device=kit.DEVICE).unbind(0)
    loss = torch.zeros((), device=kit.DEVICE)

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(kit.DEVICE, torch.bfloat16, cache_enabled=False):
            found = (model(x).float() - wanted).square().mean()
        found.backward()
        optimizer.step()
        loss.copy_(found.detach())

    run = step
    if graphed:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    else:
        step()
    with torch.no_grad():  # begin again: weights, moments and generator, all in place
        for key, value in model.state_dict().items():
            value.copy_(state[key])
        for kept in optimizer.state.values():
            for value in kept.values():
                value.zero_()
    torch.manual_seed(3)
    losses = []
    for _ in range(steps):
        run()
        losses.append(loss.clone())
    wait()
    return losses, [_fingerprint(x.detach()) for x in model.parameters()]


@check
def whole_step_graph():
    """A training step in one CUDA graph, optimizer and dropout included: replays repeat, and what
    they learn is what steps one by one learn."""
    torch.use_deterministic_algorithms(True)
    said = []
    for p in (0.0, dropout_there()):
        runs = [_graph_run(p, graphed) for graphed in ((True, True, False) if cuda() else (False,) * 2)]
        losses, weights = ([torch.stack(x) for x in part] for part in zip(*runs))
        expect(torch.equal(losses[0], losses[1]), f"p {p}: losses of two runs differ")
        expect(torch.equal(weights[0], weights[1]), f"p {p}: weights of two runs differ")
        expect(losses[0][-1] < losses[0][0], f"p {p}: loss {losses[0].tolist()}")
        equal = torch.equal(losses[0], losses[-1]) and torch.equal(weights[0], weights[-1])
        apart = (losses[0] - losses[-1]).abs().max().item()
        expect(apart < 0.02, f"p {p}: losses are {apart} from those of steps one by one")
        said.append(f"p {p}: {'the bits' if equal else f'within {apart:.1e}'} of steps one by one")
    torch.use_deterministic_algorithms(False)
    return "; ".join(said) if cuda() else "no graphs here; " + "; ".join(said)


for _name in ("gpt2", "llama"):
    for _kind in ("dense", "padded", "packed"):
        CHECKS[f"{_name}_{_kind}"] = client(_name, _kind)
    CHECKS[f"{_name}_no_dropout"] = without_dropout(_name)


if __name__ == "__main__":
    sys.exit(kit.main(__doc__, table))
