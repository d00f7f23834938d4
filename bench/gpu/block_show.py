"""Tables of what block_h200 measured, and its rows for `ordo model validate`."""

from __future__ import annotations

import h200

MODES = ("none", "sequential", "fused", "overlapped-qkv", "overlapped")


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def over(value: float | None, base: float | None) -> float | None:
    return value / base if value and base else None


def samples(made: dict) -> str:
    counts = [mode["samples"] for mode in made["said"].get("modes", []) if "samples" in mode]
    return str(min(counts)) if counts else "-"


def print_modes(name: str, rows: list[dict], markdown: bool) -> None:
    print(f"{name}: ms of a pass; sequential and fused over overlapped, beside QKV and beside all;")
    print("in brackets as modelled\n")
    lines = []
    for made in rows:
        what, ms, model = made["what"], made["ms"], made.get("modelled", {})
        shape = f"{what['seq']} x {what['embed']}"
        line = [shape, what["precision"], f"{what['generator']} {what['rounds']}", samples(made)]
        line += [number(ms.get(mode)) for mode in MODES]
        for base in ("sequential", "fused"):
            for beside in ("overlapped-qkv", "overlapped"):
                predicted = over(model.get(base), model.get(beside))
                got = number(over(ms.get(base), ms.get(beside)))
                line.append(got + (f" ({predicted:.3f})" if predicted else ""))
        lines.append([*line, made["said"].get("refused", "")[:40]])
    ratios = ["seq/qkv", "seq/all", "fused/qkv", "fused/all"]
    head = ["rows x width", "precision", "generator", "samples", *MODES, *ratios, "refused"]
    print(h200.table([head, *lines], markdown) + "\n")


def print_targets(made: dict, markdown: bool) -> None:
    mask = "causal" if made["what"]["causal"] else "full"
    print(f"targets, 8k x 4k, bf16, forward and backward, {mask}\n")
    if "refused" in made["said"]:
        print(f"refused: {made['said']['refused']}")
    lines = []
    for mode, ms in made["ms"].items():
        count = sum(turn[mode]["samples"] for turn in made["turns"])
        spread = [turn[mode]["ms"] for turn in made["turns"]]
        line = [mode, number(ms), str(count), f"{min(spread):.3f} to {max(spread):.3f}"]
        line += [percent(made["dropout"].get(mode))]
        lines.append([*line, percent(made.get("generation", {}).get(mode))])
    head = ["mode", "ms", "samples", "turns", "dropout", "generation"]
    print(h200.table([head, *lines], markdown))
    if made.get("bits_ms"):
        print(f"\nkeep bits, ms in each turn: {' '.join(f'{ms:.4f}' for ms in made['bits_ms'])}")
    print()


def print_interference(rows: list[dict], markdown: bool) -> None:
    print("interference, 8k x 4k: QKV projection and keep bits; hidden: share of the bits\n")
    keys = ("product_slowdown", "bits_slowdown", "hidden", "dropping_alone")
    lines = []
    for made in rows:
        found, trace = made["said"].get("interference", {}), made["said"].get("trace", {})
        line = [made["what"]["precision"], made["what"]["way"], number(found.get("product_ms"))]
        line += [number(found.get(f"{key}_ms")) for key in ("bits", "then", "both")]
        line += [percent(found.get(key)) for key in keys] + [percent(trace.get("inside"))]
        lines.append([*line, found.get("algorithm", made["said"].get("refused", "-"))])
    head = ["precision", "way", "product", "bits", "then", "both", *keys, "inside", "algorithm"]
    print(h200.table([head, *lines], markdown) + "\n")


def show(document: dict, markdown: bool) -> None:
    results = document["results"]
    for state in document["states"]:
        print(f"{state['command']}, {state['date']}, {state['smi']}")
    print()
    for name in ("figure", "paper", "more"):
        if results.get(name):
            print_modes(name, results[name], markdown)
    for made in results.get("targets", []):
        print_targets(made, markdown)
    for made in results.get("peer", []):
        said = made["ms"] or made["said"].get("refused")
        print(f"peer, 16k x 4k, full, forward and backward, ms: {said}")
        for mode, ratio in made.get("over_cudnn", {}).items():
            print(f"  block with dropout, {mode}, over cuDNN's without: {number(ratio)}")
        print()
    if results.get("interference"):
        print_interference(results["interference"], markdown)
    for what in document["left_out"]:
        print(f"left out: {what}")


def measured_rows(results: dict) -> list[dict]:
    """Times as `ordo model validate` reads them. The model's pipelined mode cuts the products too,
    which the block does not."""
    rows = []
    for part in ("figure", "paper", "more", "targets"):
        training = part == "targets"
        for made in results.get(part, []):
            what = made["what"]
            for mode, ms in made["ms"].items():
                if mode == "pipelined" or (training and mode == "overlapped-qkv"):
                    continue
                rows.append(
                    {"kernel": "training" if training else "block"}
                    | {key: what[key] for key in ("precision", "seq", "embed", "rounds")}
                    | ({"causal": what["causal"]} if training else {})
                    | {"bits": 32 if what["generator"] == "compare" else 8}
                    | {"generator": what["generator"], "mode": mode, "state": "steady"}
                    | {"seconds": ms * 1e-3}
                )
    return rows
