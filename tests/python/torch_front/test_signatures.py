"""Drawn calls of FlashAttention-2, FlashAttention-3 and SDPA against float64.

A call equals the reference within its bound (signature_reference.py) and has the same bits twice,
or it is refused by an Error that names an argument for which docs/guide/torch-paths.md has a
reason. Any other exception, and any other number, is a fault.

ORDO_TEST_DRAWS=n draws more under pytest, ORDO_TEST_DEVICE=cuda on a GPU. Without pytest:

PYTHONPATH=python python3 tests/python/torch_front/test_signatures.py [--draws N] [--first SEED]
    [--seed SEED] [--device cpu|cuda] [--json]
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import sys
import time

import ordo
import ordo.torch
import torch
from math64 import same
from ordo._problem import dropout_of
from signature_draws import Call, Drawer
from signature_others import draw
from signature_reference import Results, compare, expected
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "torch-paths.md"
DRAWS, CHUNK = 300, 50

# Names of arguments as ordo.torch.attention has them, or the library.
ALSO = {
    "window_size": ("window",), "softmax_scale": ("scale",), "alibi_slopes": ("slopes",),
    "dropout_p": ("dropout",), "cu_seqlens_q": ("cu_q",), "cu_seqlens_k": ("cu_kv",),
    "cu_seqlens": ("cu_q",), "is_causal": ("causal", "No available kernel"),
    "attn_mask": ("No available kernel",),
}  # fmt: skip


class Fault(Exception):
    """A call that is neither right nor refused."""


# ---- one call ----


def execute(call: Call, device: str) -> tuple[Results, torch.Tensor | None, torch.Tensor]:
    """Results, the debug mask if any, the gradient of o that was used."""
    torch.manual_seed(call.seed)
    for x in call.keywords.values():
        if isinstance(x, torch.Generator):
            x.manual_seed(call.seed)
    cast = torch.autocast(device, call.autocast) if call.autocast else contextlib.nullcontext()
    modes = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad,
             "inference": torch.inference_mode}  # fmt: skip
    with cast, modes[call.mode]():
        found = call.function(*call.positional, **call.keywords)
    found = found if isinstance(found, tuple) else (found,)
    if len(found) < len(call.gives.split()):
        raise Fault(f"{len(found)} results, expected {call.gives}")
    o = found[0].transpose(1, 2) if call.heads_first else found[0]
    if o.dtype != call.dtype:
        raise Fault(f"o.dtype {o.dtype}, expected {call.dtype}")
    dout = upstream(call, o)
    wanted = [x for x in call.inputs if x.requires_grad and call.mode == "grad"]
    if o.requires_grad != bool(wanted):
        raise Fault(f"o.requires_grad {o.requires_grad}")
    made = iter(torch.autograd.grad(o, wanted, dout) if wanted else ())
    grads = [next(made) if wanted and x.requires_grad else None for x in call.inputs]
    for grad, x in zip(grads, call.inputs):
        if grad is not None and (grad.dtype, grad.shape) != (x.dtype, x.shape):
            raise Fault(f"a gradient is {grad.dtype} {tuple(grad.shape)}")
    dq, dk, dv = call.parts(grads) if call.qkv is None else (None, None, None)
    lse = found[1].detach() if "lse" in call.gives else None
    return Results(o.detach(), lse, dq, dk, dv), found[2] if "mask" in call.gives else None, dout


def upstream(call: Call, o: torch.Tensor) -> torch.Tensor:
    """A gradient of o, in one of many layouts."""
    if call.dout == "expanded":  # as sum() makes it
        return torch.ones((), dtype=o.dtype, device=o.device).expand(o.shape)
    d = Drawer(call.seed + 1, str(o.device))
    values = torch.randn(o.shape, generator=d.made).to(o.dtype).to(o.device)
    return d.laid(values, call.dout) if values.numel() else values


def kept(call: Call, mask: torch.Tensor | None) -> Call:
    """The call with what dropout keeps, as the host exports it, or by the signs of the mask."""
    if call.dropout_p == 0 or not call.sequences or 0 in call.longest:
        return call
    q, k, _ = call.parts(call.inputs)
    lists = {} if call.cu is None else dict(cu_q=call.cu[0], cu_kv=call.cu[1])
    problem = ordo.Problem(
        batch=len(call.sequences), heads=q.shape[-2], kv_heads=k.shape[-2], head_dim=1,
        q_len=call.longest[0], kv_len=call.longest[1], dropout=dropout_of(call.dropout_p),
        layout="dense" if call.cu is None else "packed",
        total_q=0 if call.cu is None else len(q), total_kv=0 if call.cu is None else len(k),
    )  # fmt: skip
    call.rules["kept_scale"] = ordo.dropout.query(problem, **lists).scale
    for b, part in enumerate(call.sequences):
        rows, columns = call.longest if call.cu is None else [x[b + 1] - x[b] for x in call.cu]
        exported = signs = None
        if call.rng is not None:
            seed, offset = call.rng
            lists.update(sequence=b, seed=seed, offset=offset)
            heads = [ordo.dropout.export(problem, head=h, **lists) for h in range(q.shape[-2])]
            exported = torch.stack([torch.from_numpy(x) for x in heads])
        if mask is not None and mask.numel():
            signs = ~torch.signbit(mask[b, :, :rows, :columns]).cpu()
        if exported is not None and signs is not None and not torch.equal(exported, signs):
            raise Fault(f"sequence {b}: the signs of the mask are not the mask exported")
        call.sequences[b] = part._replace(keep=signs if exported is None else exported)
    return call


def right(call: Call, device: str) -> float:
    """Raise Fault unless the call is right, twice; the largest error as a part of its bound."""
    before = [x.clone() for x in (*call.inputs, *(x for x, _ in call.caches))]
    torch.set_num_threads(1)
    first, mask, dout = execute(call, device)
    for given, wanted in call.caches:
        close = same if "turned" not in call.rules else near
        if not close(given.cpu(), wanted):
            raise Fault("the cache is not what it should be")
    if not all(same(x, y) for x, y in zip(call.inputs, before)):
        raise Fault("an input was written to")
    for (given, _), old in zip(call.caches, before[len(call.inputs) :]):
        given.copy_(old)
    torch.set_num_threads(1 if call.theirs else 2)
    again, other, _ = execute(call, device)
    torch.set_num_threads(1)
    for name, x, y in zip((*Results._fields, "mask"), (*first, mask), (*again, other)):
        if x is not None and not same(x, y):
            raise Fault(f"{name} has other bits the second time")
    if call.seeded:
        return 0.0
    kept(call, mask)
    q, k, v = call.parts([x.to(call.dtype) for x in call.inputs]) if call.qkv is None else call.qkv
    values, bounds = expected(
        q, k, v, dout, call.lse_shape, call.sequences, dtype=call.dtype, **call.rules
    )
    lse = torch.where(values.lse == -torch.inf, call.empty_lse, values.lse)
    said, worst = compare(first, values._replace(lse=lse), bounds)
    if said:
        raise Fault(said)
    return worst


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal but for one rounding: turned in float32 and in float64."""
    u = 2 * torch.finfo(one.dtype).eps
    return torch.allclose(one.float(), other.float(), rtol=u, atol=u, equal_nan=True)


# ---- refusals ----


def reasons(route: str) -> set[str]:
    """The words in the table's last column, of a route and of what all routes end in."""
    name = route
    if route.startswith("ordo.compat.flash_attn.") and "kvcache" not in route:
        name = route.replace("compat.flash_attn.", "")
    below = route.rsplit(".", 1)[1].startswith("_")  # the function below autograd has no row
    found = "" if below else None
    for line in PAGE.read_text().splitlines():
        cells = [x.strip() for x in line.split("|")]
        if len(cells) == 5 and re.match(rf"`{re.escape(name)}`( on |$)", cells[1]):
            found = (found or "") + cells[3]
        elif len(cells) == 5 and cells[1] == "`ordo.torch.attention`":
            shared = cells[3]
    if found is None:
        raise Fault(f"{route}: no row in {PAGE.name}")
    return set(re.findall("`([^`=]+)(?:=[^`]*)?`", found + shared))


def explained(call: Call, error: Exception) -> str:
    """The argument that a refusal names; raises Fault if it is not the one, or has no reason."""
    said = re.sub("^ORDO flash attention( forward| backward)?: ", "", str(error))
    ours = said != str(error)  # SDPA's errors are RuntimeErrors that begin with our name
    known = isinstance(error, ordo.Error) or (
        isinstance(error, RuntimeError) and (ours or call.heads_first and call.refused is not None)
    )
    if not known:
        raise Fault(f"{type(error).__name__}: {error}") from error
    if call.refused is not None:
        if not said.startswith((call.refused, *ALSO.get(call.refused, ()))):
            raise Fault(f"{call.refused} is not named: {said}")
        name = call.refused
    else:
        name = re.split(r"[ .:\[]", said)[0]
    if (call.refused is None or call.refused_in_table) and name not in reasons(call.route):
        raise Fault(f"refused without a reason in {PAGE.name}: {said}")
    return name


def one(seed: int, device: str) -> tuple[Call, str, float]:
    """(call, the argument refused or "", the largest error as a part of its bound)."""
    call = draw(seed, device)
    try:
        worst = right(call, device)
    except Fault:
        raise
    except Exception as error:
        return call, explained(call, error), 0.0
    if call.refused is not None:
        raise Fault(f"{call.refused} was taken")
    return call, "", worst


# ---- all of them ----


@contextlib.contextmanager
def activated():
    ordo.torch.register()
    activate_flash_attention_impl("ORDO")
    try:
        yield
    finally:
        restore_flash_attention_impl(_raise_warn=False)


def sweep(seeds: range, device: str) -> dict:
    """Draw and check; what was found, by route. Small tensors: one thread, two for the repeat."""
    routes = collections.defaultdict(lambda: dict(draws=0, refused=0, worst=0.0))
    faults, refused = [], collections.Counter()
    threads = torch.get_num_threads()
    with activated():
        for seed in seeds:
            try:
                call, name, worst = one(seed, device)
            except Exception as error:
                said = " ".join(f"{type(error).__name__} {error}".split())[:300]
                again = f"python3 tests/python/torch_front/test_signatures.py --device {device}"
                faults.append(f"{said}\n  {again} --seed {seed}  # {draw(seed, device)}")
                continue
            row = routes[call.route]
            row["draws"] += 1
            row["refused"] += bool(name)
            row["worst"] = max(row["worst"], worst)
            refused.update([name] if name else [])
    torch.set_num_threads(threads)
    return dict(routes=dict(routes), refused=dict(refused), faults=faults)


def pytest_generate_tests(metafunc):
    if "seeds" in metafunc.fixturenames:
        draws = int(os.environ.get("ORDO_TEST_DRAWS", DRAWS))
        chunks = [range(x, min(x + CHUNK, draws)) for x in range(0, draws, CHUNK)]
        metafunc.parametrize("seeds", chunks, ids=lambda x: f"{x.start}-{x.stop - 1}")


def test_drawn_calls(seeds):
    found = sweep(seeds, os.environ.get("ORDO_TEST_DEVICE", "cpu"))
    assert not found["faults"], "\n".join(found["faults"])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--draws", type=int, default=DRAWS)
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--seed", type=int, help="this one alone, with a traceback")
    options.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("skip: PyTorch sees no CUDA device")
        return 0
    if given.seed is not None:
        with activated():
            print(draw(given.seed, given.device))
            call, name, worst = one(given.seed, given.device)
        print(f"refused: {name}" if name else f"ok, {worst:.2f} of the bound")
        return 0
    start = time.perf_counter()
    found = sweep(range(given.first, given.first + given.draws), given.device)
    found.update(device=given.device, draws=given.draws, seconds=time.perf_counter() - start)
    if given.json:
        print(json.dumps(found))
        return 1 if found["faults"] else 0
    for route, row in sorted(found["routes"].items()):
        said = f"{row['refused']:5} refused   {row['worst']:.2f} of the bound"
        print(f"{route:60}{row['draws']:6}{said}")
    print("refused by name:", ", ".join(f"{x} {n}" for x, n in sorted(found["refused"].items())))
    for fault in found["faults"]:
        print(f"FAIL {fault}")
    print(f"signatures on {given.device}: {given.draws} draws, {len(found['faults'])} FAIL; "
          f"{found['seconds']:.0f} s")  # fmt: skip
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
