"""What ordo.torch must refuse: a table of calls, each with words of its error. None draws, writes or is
forgotten because a rightful call like it is known."""

from __future__ import annotations

import functools
import math
import types

import ordo
import ordo.torch
import pytest
import torch
from bits import ints
from ordo.compat import flash_attn
from torch.autograd import forward_ad
from torch.nn.attention.flex_attention import create_block_mask

attention, prepare_dropout = ordo.torch.attention, ordo.torch.prepare_dropout


Q, K, V = (torch.randn(2, 9, h, 16, generator=torch.Generator().manual_seed(h)) for h in (4, 2, 2))
FLAT = [x.flatten(0, 1) for x in (Q, K, V)]
ENDS, LENS = ints(0, 4, 18), ints(9, 4)
CACHE = torch.zeros(2, 12, 2, 16)
RNG = dict(dropout_p=0.5)
BIAS = torch.zeros(1, 1, 9, 9)
SEEN = BIAS == 0
SUMS = dict(dk_sums=torch.zeros(K.shape), dv_sums=torch.zeros(V.shape))


def bad(words, *tensors, call=attention, **keywords):
    return functools.partial(call, *(tensors or (Q, K, V)), **keywords), words


def packed(words, **keywords):
    return bad(words, *FLAT, **{"cu_q": ENDS, "max_q": 14, **keywords})


def part(words, **keywords):
    o, lse = attention(Q, K, V)
    return bad(words, torch.ones_like(o), Q, K, V, o, lse, call=ordo.torch.backward_part, **keywords)


def ahead(words, *shapes, **keywords):
    return bad(words, *(shapes or (Q.shape, K.shape)), call=prepare_dropout, **{"dropout_p": 0.1, "device": "cpu", **keywords})


def prepared(words, *tensors, **keywords):
    def call(*given, **rest):
        return attention(*given, prepared=prepare_dropout(Q.shape, K.shape, dropout_p=0.25, device="cpu"), **rest)

    return bad(words, *tensors, call=call, **keywords)


def jvp(**rest):
    return torch.func.jvp(lambda q: attention(q, K, V, **rest)[0], (Q,), (Q,))


def dual(**rest):
    with forward_ad.dual_level():
        return attention(forward_ad.make_dual(Q, Q), K, V, **rest)


def second_derivative(wanted=0, **rest):
    given = [Q.clone().requires_grad_(), torch.ones(4, requires_grad=True), torch.ones(1, 1, 9, 9, requires_grad=True)]
    o, _ = attention(given[0], K, V, **({}, {"sink": given[1]}, {"bias": given[2]})[wanted])
    (first,) = torch.autograd.grad(o.sum(), given[wanted], create_graph=True)
    first.sum().backward()


def func_grad(call=lambda f: f):
    return call(torch.func.grad(lambda q: attention(q, K, V)[0].sum()))(Q)


def compiled(call, **rest):
    torch._dynamo.reset()
    return torch.compile(call, backend="aot_eager", fullgraph=True, **rest)


def TWO(b, h, i, j):
    return (j < 2) | (j > 6) & (i > 7)


def mask_of(rule, sequences=None, heads=None, **rest):
    return create_block_mask(rule, sequences, heads, 9, 9, device="cpu", **rest)


def cached(lengths):
    return flash_attn.flash_attn_with_kvcache(Q[:, :4], CACHE, CACHE.clone(), K[:, :4], V[:, :4], cache_seqlens=lengths)


def dtensor():
    from situations import one_rank
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

    with one_rank():
        mesh = init_device_mesh("cpu", (1,))
        attention(*(DTensor.from_local(x, mesh, [Replicate()]) for x in (Q, K, V)), dropout_p=0.5)


def emulated(machine, dtype):
    def call():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ORDO_EMULATE", machine)
            ordo.torch._front.forget_plans()
            attention(*(x.to(dtype) for x in (Q, K, V)))

    return call


def ref(**rest):
    return dict(block_mask=ordo.BlockMask.from_chunks(rest.pop("rows", 9), rest.pop("columns", 9), 7), **rest)


REFUSED = {
    # tensors
    "dtype": bad("q.dtype torch.float64: expected", Q.double(), K.double(), V.double()),
    "k of another type": bad("k.dtype torch.float16: expected torch.float32", Q, K.half(), V),
    "v of another type": bad("v.dtype", Q, K, V.bfloat16()),
    "v of another length": bad(r"v.shape .*: expected \(2, 9, 2, 16\)", Q, K, V[:, :8]),
    "k of another head size": bad(r"k.shape .*: expected \(2, 9, 2, 16\)", Q, K[..., :8], V),
    "k of another batch": bad(r"k.shape .*: expected \(2, 9, 2, 16\)", Q, K[:1], V[:1]),
    "k on another device": bad("k.device meta: expected that of q|rng None", Q, K.to("meta"), V),
    "heads": bad("kv_heads 3", Q, *[torch.zeros(2, 9, 3, 16)] * 2),
    "no head size": bad("head_dim 0: expected 1..", *(x[..., :0] for x in (Q, K, V))),
    "three axes": bad(r"q.shape \(9, 4, 16\): expected \(batch, row", Q[0], K[0], V[0]),
    "four axes beside cu_q": bad(r"\(row, head, dim\)", cu_q=ENDS, max_q=14),
    "sparse queries": bad("q.layout.*: expected torch.strided", Q.to_sparse(), K, V),
    "sparse keys": bad("k.layout.*: expected torch.strided", Q, K.to_sparse(), V),
    # numbers
    "scale 0": bad("scale 0", scale=0.0),
    "scale 0 of flash_attn_func": bad("scale 0", call=ordo.torch.flash_attn_func, softmax_scale=0),
    "scale 0 without keys": bad("scale 0", Q, K[:, :0], V[:, :0], scale=0),
    "NaN scale": bad("scale", scale=math.nan),
    "scale of text": bad("scale 'x': expected a number", scale="x"),
    "two scales": bad("scale .*: expected a number", scale=torch.ones(2)),
    "scale with a gradient": bad("scale.requires_grad", scale=torch.tensor(0.5, requires_grad=True)),
    "softcap with a gradient": bad("softcap.requires_grad", softcap=torch.tensor(0.5, requires_grad=True)),
    "softcap": bad("softcap", softcap=-1.0),
    "window of floats": bad("window", window=(2.0, 1)),
    "window of a tensor of floats": bad("window 1.5: expected an integer", window=torch.tensor([1.5, 0.0])),
    "window of one": bad(r"window 5: expected \(left, right\)", window=5),
    "window of three": bad(r"window \(1, 2, 3\): expected \(left, right\)", window=(1, 2, 3)),
    "causal": bad("causal 'top_left': expected True, False, 'bottom-right'", causal="top_left"),
    "max_q between integers": packed("max_q 5.5", max_q=5.5),
    "max_q of a tensor": packed(r"max_q tensor\(12.5.*: expected an integer", max_q=torch.tensor(12.5)),
    # slopes and sinks
    "slopes with a gradient": bad("slopes.requires_grad", slopes=torch.ones(4, requires_grad=True)),
    "complex slopes": bad("slopes.dtype torch.complex64: expected real numbers", slopes=torch.ones(4, dtype=torch.complex64)),
    "complex sink": bad("sink.dtype torch.complex64: expected real numbers", sink=torch.ones(4, dtype=torch.complex64)),
    "sink of another length": bad(r"sink.shape \(3,\): expected \(4,\)", sink=torch.ones(3)),
    "sink of two axes": bad(r"sink.shape \(1, 4\)", sink=torch.ones(1, 4)),
    "slopes of another length": bad(r"slopes.shape \(3,\): expected", slopes=torch.ones(3)),
    # ends and lengths
    "cu_kv alone": bad("cu_kv given, cu_q None: expected", *FLAT, cu_kv=ENDS),
    "max_q alone": bad("max_q given, cu_q None: expected", max_q=4),
    "max_kv alone": bad("max_kv given, cu_q None: expected cu_q beside max_kv", max_kv=8, q_lens=LENS),
    "cu_kv missing": bad("cu_kv None", FLAT[0], FLAT[1][:9], FLAT[2][:9], cu_q=ENDS, max_q=14),
    "no ends": packed(r"cu_q.shape \(0,\): expected \(batch \+ 1,\)", cu_q=ints()),
    "ends of another length": packed("cu_kv.shape", cu_kv=ints(0, 18), max_q=18),
    "ends stride": packed(r"cu_q.stride \(2,\): expected a contiguous tensor", cu_q=ints(0, 0, 4, 4, 18, 18)[::2]),
    "ends begin": packed(r"cu_q\[0\] 1: expected 0", cu_q=ENDS + 1),
    "ends decrease": packed(r"cu_q\[2\] 3: expected 9\.\.", cu_q=ints(0, 9, 3), dropout_p=0.5),
    "ends decrease, with gaps": packed(r"cu_q\[2\] 3: expected 9..18", cu_q=ints(0, 9, 3), q_lens=ints(1, 1)),
    "ends beyond the rows": packed(r"cu_q\[2\] 21: expected .*18", cu_q=ints(0, 10, 21)),
    "a sequence longer than max_q": packed("cu_q", max_q=4),
    "a sequence longer than max_q, with dropout": packed("cu_q", max_q=4, dropout_p=0.5),
    "a sequence longer than max_kv": packed(r"cu_kv\[2\] 18: expected 3\.\.17", cu_kv=ints(0, 3, 18), max_kv=14),
    "a length beyond the rows, with dropout": bad("q_lens", q_lens=ints(10, 1), dropout_p=0.5),
    "a length beyond the sequence": packed(r"q_lens\[1\] 15: expected 0..14", q_lens=ints(4, 15)),
    "a negative length": packed(r"q_lens\[0\] -1: expected 0..4", q_lens=ints(-1, 11)),
    "lengths of another length": bad("q_lens.shape", q_lens=ints(1, 2, 3)),
    "lengths of another length, packed": packed(r"q_lens.shape \(1,\): expected \(2,\)", q_lens=ints(9)),
    "lengths on another device": packed("q_lens.device meta: expected that of cu_q, cpu", q_lens=LENS.to("meta")),
    # dropout
    "NaN p": bad("dropout.p", dropout_p=math.nan),
    "no p, with a seed": bad("dropout", dropout_p=None, seed=1),
    "p of text": bad("dropout_p 'x': expected a number", dropout_p="x"),
    "p of 1": bad("dropout.p", dropout_p=1.0, seed=1),
    "p of 1 without keys": bad("dropout.p", Q, K[:, :0], V[:, :0], dropout_p=1.0, seed=1),
    "negative p": bad("dropout.p", dropout_p=-0.1),
    "keying": bad("keying 'x'", **RNG, seed=1, keying="x"),
    "offset": bad("offset 4294967296", **RNG, seed=(1, 2**32)),
    "negative seed": bad("seed -1: expected", **RNG, seed=-1),
    "rng type": bad("rng.dtype torch.int32", **RNG, rng_state=ints(1, 2)),
    "rng as floats": bad("rng", **RNG, rng_state=torch.ones(2)),
    "rng of another length": bad("rng", **RNG, rng_state=torch.tensor([1, 2, 3])),
    "rng stride": bad(r"rng.stride \(2,\): expected a contiguous tensor", **RNG, rng_state=torch.tensor([1, 2, 3, 4])[::2]),
    "rng on another device": bad("rng.device meta: expected that of q, cpu", **RNG, rng_state=torch.tensor([1, 2]).to("meta")),
    "list as rng": bad(r"rng_state \[1, 2\]: expected a tensor", **RNG, rng_state=[1, 2]),
    "two sources": bad("one of them at most", **RNG, seed=1, generator=torch.Generator()),
    "ids of another type": bad("sequence_ids.dtype", **RNG, sequence_ids=ints(1, 2)),
    "negative ids": bad(r"sequence_ids\[1\] -1", **RNG, sequence_ids=torch.tensor([0, -1])),
    "a DTensor": (dtensor, "dropout"),
    "prepared for another p": prepared("prepared for .*dropout_p 0.25.*: expected .*dropout_p 0.5", dropout_p=0.5),
    "prepared for another keying": prepared("keying ordo, .*: expected .*keying fa2", dropout_p=0.25, keying="fa2"),
    "prepared for other rows": prepared("9 x 9 rows.*: expected .*8 x 8 rows", *(x[:, :8] for x in (Q, K, V)), dropout_p=0.25),
    "prepared beside a seed": prepared("expected none beside prepared", dropout_p=0.25, seed=1),
    "prepared without dropout": prepared("dropout_p 0.0: expected more than 0 beside prepared", dropout_p=0.0),
    "prepared of a number": bad("prepared 3: expected what prepare_dropout", prepared=3, **RNG),
    "ahead without dropout": ahead("dropout_p 0.0: expected more than 0", dropout_p=0.0),
    "ahead on a stream of another device": ahead("stream.device cuda:1: expected cpu", stream=types.SimpleNamespace(device=torch.device("cuda", 1))),
    "ahead of two sizes": ahead("q.shape .*: expected", (2, 3)),
    # derivatives and transforms
    "vmap": (lambda: torch.vmap(lambda q: attention(q[None], K[:1], V[:1])[0])(Q), "torch.func"),
    "func.grad": (func_grad, "torch.func"),
    "func.grad in a graph": (lambda: func_grad(compiled), None),
    "func.jvp": (jvp, "torch.func"),
    "func.jvp with a sink": (lambda: jvp(sink=torch.ones(4)), "torch.func"),
    "func.jvp with a bias": (lambda: jvp(bias=torch.ones(1, 1, 9, 9)), "torch.func"),
    "func.jvp with dropout": (lambda: jvp(**RNG), "torch.func"),
    "a tangent": (dual, "tangents"),
    "a tangent with dropout": (lambda: dual(**RNG), "tangents"),
    "a second derivative": (second_derivative, "second derivatives"),
    "a second derivative of a sink": (lambda: second_derivative(1), "second derivatives"),
    "a second derivative of a bias": (lambda: second_derivative(2), "second derivatives"),
    "in a graph": (lambda: compiled(attention)(Q, K[..., :8], V), "k.shape"),
    # block masks
    "a mask of text": bad("block_mask 5: expected ordo.BlockMask", block_mask=5),
    "a mask of other rows": bad("block_mask.q_len 300: expected 9", **ref(rows=300, dropout_p=0.1)),
    "a mask of other columns": bad("block_mask.kv_len 300: expected 9", **ref(columns=300)),
    "a mask of three sequences": bad("block_mask.sequences 3: expected 2", block_mask=ordo.BlockMask.join([[ordo.BlockMask.from_chunks(9, 9, 7)]] * 3)),
    "a mask of three heads": bad("block_mask.heads 3: expected 4", block_mask=ordo.BlockMask.join([[ordo.BlockMask.from_chunks(9, 9, 7)] * 3])),
    "a mask beside scale 0": bad("scale", **ref(scale=0.0, dropout_p=0.1)),
    "a mask on meta": bad("q.device meta: expected cpu or cuda", *(x.to("meta") for x in (Q, K, V)), **ref(dropout_p=0.1)),
    "a rule by sequence": bad("mask_mod: depends on b, and .* with", block_mask=mask_of(lambda b, h, i, j: (i >= j) | (b == 1))),
    "a rule by head": bad("mask_mod: depends on h, and .* with", block_mask=mask_of(lambda b, h, i, j: (i >= j) | (h == 1))),
    "a rule by sequence, packed": bad("mask_mod: depends on b", *FLAT, cu_q=ints(0, 9, 18), block_mask=mask_of(lambda b, h, i, j: i >= j + b)),
    "a rule of two intervals": (lambda: ordo.torch.block_mask(mask_of(TWO)), "mask_mod: row 8 sees columns"),
    "a rule of two intervals for other rows": bad(r"block_mask.shape \(1, 1, 9, 9\): expected .* 8, 9\)", Q[:, :8], K, V, block_mask=mask_of(TWO)),
    "small blocks": bad("BLOCK_SIZE", block_mask=mask_of(lambda b, h, i, j: i >= j, BLOCK_SIZE=64)),
    # element masks and biases
    "a seen of a list": bad(r"seen \[True\]: expected a tensor", seen=[True]),
    "seen as floats": bad("seen.dtype torch.float32: expected torch.bool", seen=torch.ones(1, 1, 9, 9)),
    "seen of three axes": bad(r"seen.shape \(1, 9, 9\): expected \(2 or 1, 4 or 1, 9, 9\)", seen=SEEN[0]),
    "seen of three sequences": bad(r"seen.shape \(3, 1, 9, 9\): expected \(2 or 1", seen=SEEN.expand(3, -1, -1, -1)),
    "seen of key heads": bad(r"seen.shape \(1, 2, 9, 9\): expected", seen=SEEN.expand(-1, 2, -1, -1)),
    "seen of other rows": bad(r"seen.shape \(1, 1, 8, 9\): expected .*, 9, 9\)", seen=SEEN[:, :, :8]),
    "seen of other rows, packed": packed(r"seen.shape \(1, 1, 9, 9\): expected .*, 14, 14\)", seen=SEEN),
    "seen on another device": bad("seen.device meta: expected that of q, cpu", seen=SEEN.to("meta")),
    "seen beside a block mask": bad("seen, block_mask: expected one of the two", **ref(seen=SEEN)),
    "a bias of a number": bad("bias 1.0: expected a tensor", bias=1.0),
    "a bias of float64": bad("bias.dtype torch.float64: expected torch.float32", bias=BIAS.double()),
    "a bias of another half": bad("bias.dtype torch.float16: expected torch.float32", bias=BIAS.half()),
    "a bias of other columns": bad(r"bias.shape \(1, 1, 9, 8\): expected .*, 9, 9\)", bias=BIAS[..., :8]),
    "a bias on another device": bad("bias.device meta: expected that of q, cpu", bias=BIAS.to("meta")),
    "a bias of packed sequences": packed("bias.on true, layout packed: expected dense or padded", bias=torch.zeros(1, 1, 14, 14)),
    # caches and parts
    "a cache that is full": (lambda: cached(ints(9, 9)), "cache_seqlens"),
    "a cache that is full, in a graph": (lambda: compiled(cached)(ints(9, 9)), "cache_seqlens"),
    "a negative cache length": (lambda: cached(ints(-1, 3)), "cache_seqlens"),
    "carry": part("carry 'both'", carry="both", **SUMS),
    "a gradient of nothing": part("gradients .'dx'", gradients=("dx",)),
    "half of a pair": part("gradients .*dk and dv together", gradients=("dq", "dk")),
    "no gradients": part("dq.data, dk.data and dv.data NULL", gradients=()),
    "sums without carry": part("dk_sums given: expected None with carry ''", **SUMS),
    "carry without sums": part("dk_sums None: expected a tensor", carry="out"),
    "sums of another shape": part("dv_sums.shape", carry="out", dk_sums=SUMS["dk_sums"], dv_sums=SUMS["dv_sums"][:1]),
    "sums of another type": part("dk_sums.dtype", carry="out", dk_sums=SUMS["dk_sums"].double(), dv_sums=SUMS["dv_sums"]),
    "sums with strides": part("dk_sums.stride", carry="out", dk_sums=torch.zeros(K.mT.shape).mT, dv_sums=SUMS["dv_sums"]),
    "sums in one place": part("dk_sums and dv_sums overlap", carry="out", dk_sums=SUMS["dk_sums"], dv_sums=SUMS["dk_sums"]),
    "a part without its seed": part("seed and rng_state None", dropout_p=0.1),
    "a part between tiles": part("shard.row0 32.*multiple of 64", carry="out", **SUMS, shard=ordo.Shard(row0=32, q_total=600, kv_total=9)),
    "an unknown machine": (emulated("h300", torch.bfloat16), 'ORDO_EMULATE: machine "h300" is unknown'),
    "a machine that is a CPU": (emulated("zen4", torch.bfloat16), "machine zen4 is a CPU; expected a GPU"),
    "a machine without float32": (emulated("h200", torch.float32), "dtype f32"),
}  # fmt: skip
for _dtype in (torch.float32, torch.bool, torch.complex64, torch.int16):
    for _name in ("q_lens", "kv_lens"):
        REFUSED[f"{_name} of {_dtype}"] = bad(rf"^{_name}\.dtype {_dtype}: expected", **{_name: LENS.to(_dtype)})
    for _name in ("q_lens", "kv_lens", "cu_q", "cu_kv"):
        _list = (LENS if "lens" in _name else ENDS).to(_dtype)
        for _longest in (14, None):
            REFUSED[f"packed {_name} of {_dtype}, {_longest}"] = packed(
                rf"^{_name}\.dtype {_dtype}: expected", **{_name: _list}, max_q=_longest)  # fmt: skip
for _far in (2**32, -(2**32), 2**31, 2**63 - 18):  # which would wrap around
    REFUSED |= {
        f"kv_lens {_far}": bad(r"kv_lens\[0\]", kv_lens=torch.tensor([_far + 3, 8])),
        f"q_lens {_far}": bad(r"q_lens\[1\]", q_lens=torch.tensor([8, _far + 3])),
        f"cu_q {_far}": packed(r"cu_q\[1\]", cu_q=torch.tensor([0, _far + 4, 18])),
        f"cu_q {_far}, any length": packed("cu_q|q_len", cu_q=torch.tensor([0, _far + 4, 18]), max_q=None),
        f"cu_kv {_far}": packed(r"cu_kv\[1\]", cu_kv=torch.tensor([0, _far + 4, 18]), max_kv=14),
        f"packed kv_lens {_far}": packed(rf"kv_lens\[0\] {_far + 3}:", kv_lens=torch.tensor([_far + 3, 8])),
    }
for _seed in ("x", 1.5, (1, 2, 3), torch.tensor([1.0, 2.0]), torch.ones(3), ()):
    REFUSED[f"seed {_seed}"] = bad("seed .*: expected a number or", **RNG, seed=_seed)


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row, capfd):
    """The second time the plan of the rightful call is known. With dropout, too, nothing has been drawn."""
    call, words = REFUSED[row]
    calls = [call]
    if getattr(call, "func", None) is attention and "dropout_p" not in call.keywords:
        calls.append(functools.partial(call, dropout_p=0.5))
    for known in (False, True):
        if known:
            attention(Q, K, V)
            for lists in ({}, dict(q_lens=LENS, kv_lens=LENS), dict(slopes=torch.ones(4)), dict(dropout_p=0.5, seed=1)):
                attention(Q, K, V, window=(2, 1), **lists)
            attention(*FLAT, cu_q=ENDS, max_q=14)
        before, cache = torch.get_rng_state(), CACHE.clone()
        for one in calls:
            with pytest.raises((RuntimeError, NotImplementedError), match=words):
                one()
        if not row.startswith("prepared"):
            assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(CACHE, cache) and not any(x.any() for x in SUMS.values())
    assert "aoti_torch" not in capfd.readouterr().err  # what PyTorch says of a tensor without address
    ordo.torch._front.forget_plans()


@pytest.mark.parametrize("row", [x for x in REFUSED if x.startswith(("ends ", "a sequence", "a length", "a negative length"))])
def test_with_the_switch_the_host_refuses(row):
    """As for lengths of CUDA tensors, which nothing else checks."""
    call, words = REFUSED[row]
    ordo.torch.check_lengths(True)
    try:
        with pytest.raises(ordo.Error, match=words):
            call()
    finally:
        ordo.torch.check_lengths(False)


STATUS = {"dtype": "argument", "ends begin": "shape", "rng stride": "align", "sparse queries": "unsupported"}


@pytest.mark.parametrize("row", STATUS)
def test_the_kind_of_error(row):
    with pytest.raises(ordo.Error) as caught:
        REFUSED[row][0]()
    assert caught.value.status == STATUS[row]


def test_a_generator_of_the_callers_is_not_drawn_from():
    for rest in (dict(scale=0.0), ref(rows=300), dict(sink=torch.ones(3))):
        generator = torch.Generator()
        before = generator.get_state()
        with pytest.raises(ordo.Error):
            attention(Q, K, V, dropout_p=0.1, generator=generator, **rest)
        assert torch.equal(before, generator.get_state())


def test_gradients_of_another_shape_are_refused():
    o, lse = attention(Q, K, V)
    for dout, dlse, message in (
        (o[:1], None, r"dout.shape .*: expected"),
        (o.half(), None, "dout.dtype"),
        (o, lse[:1], "dlse.shape"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.ordo.backward(dout, dlse, Q, K, V, o, lse, 0, 0.25, [])
