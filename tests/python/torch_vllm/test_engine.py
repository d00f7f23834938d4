"""vLLM's engine on a CPU with examples/vllm_backend.py: what it generates has the attention bits of training.

Layers with and without a window, softcap, chunks of prompts, a shared prefix, requests whose pages go to others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ordo.torch

vllm = pytest.importorskip(
    "vllm", reason="vLLM is not installed: `tests/python/run --vllm` makes an environment with it"
)
import vllm_backend  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: E402

pytestmark = pytest.mark.skipif(
    not current_platform.is_cpu(), reason="vLLM is not built for a CPU: `tests/python/run --vllm`"
)

WINDOW, VOCABULARY = 40, 101
MODEL = dict(
    architectures=["Gemma2ForCausalLM"], model_type="gemma2", vocab_size=VOCABULARY, hidden_size=64,
    intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    query_pre_attn_scalar=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
    sliding_window=WINDOW, max_position_embeddings=512, torch_dtype="bfloat16",
    hidden_activation="gelu_pytorch_tanh",
)  # fmt: skip


def test_what_it_generates_has_the_bits_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    vllm_backend.register(AttentionBackendEnum.CPU_ATTN)  # the one that vLLM knows on a CPU
    forward = vllm_backend.OrdoImpl.forward
    rows: dict[tuple[str, str], dict[int, tuple[Any, ...]]] = {}  # of each layer and request: q, k, v, o
    sizes, layers, again = set(), {}, []

    def watched(impl: Any, layer: Any, *given: Any, output: Any, **more: Any) -> Any:
        query, key, value, _, metadata = given
        made = forward(impl, layer, *given, output=output, **more)
        if metadata is None:
            return made
        layers[layer.layer_name] = impl
        starts = metadata.query_start_loc.tolist()
        sizes.add(tuple(metadata.query_start_loc.diff().tolist()))
        for b, length in enumerate(metadata.seq_lens.tolist()):
            seen = rows.setdefault((layer.layer_name, runner.input_batch.req_ids[b]), {})
            for row in range(starts[b], starts[b + 1]):
                place = length - starts[b + 1] + row
                again.append(place in seen)
                seen[place] = tuple(x[row].clone() for x in (query, key, value, output))
        return made

    monkeypatch.setattr(vllm_backend.OrdoImpl, "forward", watched)
    torch.manual_seed(0)
    llm = vllm.LLM(
        str(tmp_path), skip_tokenizer_init=True, load_format="dummy", dtype="bfloat16", enforce_eager=True,
        block_size=16, max_model_len=200, max_num_batched_tokens=64, max_num_seqs=3, num_gpu_blocks_override=28,
    )  # fmt: skip
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    for name, parameter in runner.model.named_parameters():
        if "norm" not in name:  # dummy weights are too small to choose a token by
            parameter.data.normal_(std=0.3)
    prefix = torch.randint(3, VOCABULARY, (90,)).tolist()
    prompts = [prefix + [5, 6], prefix + [7] * 40, [8], prefix[:50], [9, 10, 11]]
    settings = vllm.SamplingParams(max_tokens=60, temperature=0, ignore_eos=True, detokenize=False)
    made = llm.generate([{"prompt_token_ids": x} for x in prompts], settings, use_tqdm=False)

    assert sorted(impl.left for impl in layers.values()) == [-1, WINDOW - 1]
    assert any(len(x) > 1 and max(x) > 1 for x in sizes) and len(made) == len(prompts)
    requests = sorted({request for _, request in rows}, key=lambda x: int(x.split("-")[0]))
    shared = 0
    for name, impl in layers.items():
        first = rows[name, requests[0]]  # whose pages others use
        for request, prompt in zip(requests, prompts):
            own = rows[name, request]
            places = range(len(prompt) + settings.max_tokens - 1)
            shared += sum(place not in own for place in places)
            q, k, v, o = (
                torch.stack([own.get(place, first.get(place))[part] for place in places]) for part in range(4)
            )
            expected, _ = ordo.torch.attention(
                q[None].requires_grad_(), k[None], v[None], causal=True, scale=impl.scale,
                softcap=impl.softcap, window=(impl.left, 0) if impl.left >= 0 else (-1, -1),
            )  # fmt: skip
            assert expected.requires_grad and torch.equal(expected[0], o.view_as(expected[0]))
    assert shared > 0 and any(again)  # pages of a prefix, and those that were taken away
