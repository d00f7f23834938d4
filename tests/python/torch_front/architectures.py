"""Which model types of transformers run on ordo: every one that a small configuration can make.

    PYTHONPATH=python build/python-torch/bin/python tests/python/torch_front/architectures.py [NAME...]

Without names it tries all, offline, in a process of its own each, and writes what it found to
tests/data/transformers.txt, from which docs/guide/transformers.md is generated: some minutes. A model of random weights
runs with `eager` first; "ordo" has the same output and called ordo for it, "cpu" too, with element masks or
biases, "part" called ordo in some layers, "own" never called ordo, "refused" raised ordo.Error. What cannot be made or run
with `eager` so is not listed.
"""

from __future__ import annotations

import copy
import inspect
import multiprocessing.connection
import os
import signal
import sys
import warnings
from pathlib import Path

import torch
import transformers
from test_transformers_models import MLA, SMALL, TARGETS, TOKENS, class_of, small
from transformers.models.auto import configuration_auto
from transformers.models.auto import modeling_auto as auto

import ordo.transformers  # isort: skip

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "transformers.txt"
IMAGE, CHANNELS = 32, 3
MORE = SMALL | dict(
    image_size=IMAGE, patch_size=8, num_channels=CHANNELS, projection_dim=32, d_inner=32, decoder_start_token_id=1,
    num_mel_bins=16, max_source_positions=32, max_target_positions=64, mlp_dim=48, vision_hidden_size=32,
    spatial_merge_size=1, out_hidden_size=32, depth=2, embed_dim=32, encoder_hidden_dim=32, decoder_hidden_size=32,
    decoder_num_hidden_layers=2, decoder_num_attention_heads=4, decoder_intermediate_size=48, type_vocab_size=2,
    conv_dim=(16, 16), conv_kernel=(3, 3), conv_stride=(2, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2, max_length=16, num_frames=2, tubelet_size=1, window_size=4, rope_dim=8,
)  # fmt: skip


def whole(make):
    """A configuration of small sizes, of what it is made of, too."""
    known, asked = make(), {}
    if getattr(known, "kv_lora_rank", None):
        asked = {k: x for k, x in MLA.items() if hasattr(known, k)}
    for name, part in getattr(make, "sub_configs", {}).items():
        if inspect.isclass(part) and part is not transformers.PreTrainedConfig:
            asked[name] = whole(part).to_dict()
    return small(make, MORE, **asked)


TEXT = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    vocab_size=97, max_position_embeddings=64, sliding_window=4, pad_token_id=0,
)  # fmt: skip
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=IMAGE, patch_size=8)
KINDS = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1, 0, 0]] * 2)  # tokens of two images and of text


def swin():
    """Windows that are shifted."""
    config = transformers.SwinConfig(
        image_size=IMAGE, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
    )  # fmt: skip
    pixels = torch.linspace(-1, 1, 2 * CHANNELS * IMAGE**2).view(2, CHANNELS, IMAGE, IMAGE).sin()
    return transformers.SwinModel, config, [dict(pixel_values=pixels)]


def gemma(text, kind, **more):
    """Tokens of an image see one another, by or_masks."""
    images = VISION | dict(model_type="siglip_vision_model")
    config = kind.config_class(text_config=TEXT | dict(model_type=text), vision_config=images, **more)
    return kind, config, [dict(input_ids=TOKENS[:2], token_type_ids=KINDS)]


MADE = {
    "swin": swin,
    "gemma3": lambda: gemma("gemma3_text", transformers.Gemma3Model),
    "paligemma": lambda: gemma("gemma2", transformers.PaliGemmaModel, projection_dim=32),
}


def parts(name):
    """The class of a model, a small configuration, and arguments to try; None: those that many take."""
    if name in MADE:
        return MADE[name]()
    kind = class_of(name, auto.MODEL_MAPPING_NAMES)
    return kind, whole(kind.config_class), None


def inputs(model):
    """Arguments to try, the likely ones first."""
    takes = set(inspect.signature(model.forward).parameters)
    ids = dict(input_ids=TOKENS)
    pixels = dict(pixel_values=torch.linspace(-1, 1, 3 * CHANNELS * IMAGE**2).view(3, CHANNELS, IMAGE, IMAGE))
    clips = dict(pixel_values=torch.linspace(-1, 1, 3 * 2 * CHANNELS * IMAGE**2).view(3, 2, CHANNELS, IMAGE, IMAGE))
    sound = dict(input_values=torch.linspace(-1, 1, 3 * 400).view(3, 400).sin())
    mel = [dict(input_features=torch.linspace(-1, 1, 3 * 16 * n).view(shape)) for n, shape in ((64, (3, 16, 64)), (64, (3, 64, 16)))]
    to = dict(decoder_input_ids=TARGETS) if "decoder_input_ids" in takes else {}
    for given in (ids, pixels, ids | pixels, clips, sound, *mel, ids | clips):
        if given.keys() <= takes:
            yield given | to
            if to:
                yield given


def tensors(x):
    if torch.is_tensor(x):
        return [x.double()] if x.is_floating_point() and x.numel() else []
    values = x.values() if hasattr(x, "values") else x if isinstance(x, (list, tuple)) else ()
    return [t for value in values for t in tensors(value)]


def attempt(name):
    ordo.transformers.register()
    table = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    calls, real = [], table["ordo"]
    table["ordo"] = lambda *words, **more: calls.append(1) or real(*words, **more)
    single, take = [], ordo.transformers.Arguments

    def arguments(**given):
        single.append(given["seen"] is not None or given["bias"] is not None)
        return take(**given)

    ordo.transformers.Arguments = arguments
    kind, config, tries = parts(name)
    made = {}
    for implementation in ("eager", "ordo"):
        torch.manual_seed(0)
        try:
            made[implementation] = kind._from_config(copy.deepcopy(config), attn_implementation=implementation).eval()
        except ordo.Error as error:
            return "refused", str(error)
    for given in tries or inputs(made["eager"]):
        try:
            torch.manual_seed(1)  # some models draw
            with torch.no_grad():
                expected = tensors(made["eager"](**given))
        except Exception as error:  # not what this model takes
            why = error
            continue
        if not all(x.isfinite().all() for x in expected):
            return "untried", "eager: not finite"
        torch.manual_seed(1)
        try:
            with torch.no_grad():
                got = tensors(made["ordo"](**given))
        except ordo.Error as error:
            return "refused", str(error)
        for x, y in zip(got, expected, strict=True):
            if x.shape != y.shape or not (x - y).abs().max() <= 1e-4 * y.abs().max():
                return "DIFFERENT", f"{(x - y).abs().max()} of {y.abs().max()}"
        return ("cpu" if any(single) else "ordo" if calls else "own"), ""
    raise why


def start(name):
    """attempt() in a process that may die or hang: where its answer comes, and the process."""
    pipe, theirs = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child > 0:
        theirs.close()
        return pipe, child
    signal.alarm(120)
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result, detail = attempt(name)
        if result == "ordo" and any("attention code of its own" in str(x.message) for x in said):
            result = "part"
    except BaseException as error:
        result, detail = "untried", f"{type(error).__name__}: {error}"
    theirs.send((result, " ".join(detail.split())[:200]))
    os._exit(0)


def main(names):
    every = names or sorted(auto.MODEL_MAPPING_NAMES.keys() & configuration_auto.CONFIG_MAPPING_NAMES.keys())
    waiting, running, results = list(every), {}, {}
    while waiting or running:
        while waiting and len(running) < 2:
            pipe, child = start(name := waiting.pop(0))
            running[pipe] = name, child
        for pipe in multiprocessing.connection.wait(list(running)):
            name, child = running.pop(pipe)
            try:
                result, detail = pipe.recv()
            except EOFError:
                result, detail = "untried", "it died"
            os.waitpid(child, 0)
            results[name] = result
            print(f"{result:9} {name}  {detail}", flush=True)
    if not names:
        lines = [f"{name} {results[name]}\n" for name in every if results[name] != "untried"]
        DATA.write_text(f"# transformers {transformers.__version__}, architectures.py\n" + "".join(lines))
    return "DIFFERENT" in results.values()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
