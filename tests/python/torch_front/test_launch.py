"""What only CUDA tensors take, as far as it can be had without a device: CPU plans, launched as
those of CUDA are."""

from __future__ import annotations

import ctypes
import dataclasses

import ordo
import ordo.torch
import pytest
import torch
from math64 import close, same
from ordo import _problem, _structs
from ordo.torch import _bits, _call, _kept, _layout, _memory, _ops, _passes, _plans, _segments
from ordo.torch._attention import Arguments, prepare, run
from test_attention import gradients, tensors

SQUARE = (2, 33, 33, 4, 4, 16, 16)


@pytest.fixture
def pretended(monkeypatch):
    """Passes of a CPU plan take the way of CUDA ones; the memory they were handed, in order."""
    held, given_back = {}, []

    def take(size, stream):
        assert stream == 0
        storage = torch.UntypedStorage(size + 256)
        place = -(-storage.data_ptr() // 256) * 256
        held[place] = storage
        return place

    def give(place):
        given_back.append(held.pop(place))

    def fill(problem, call, words, size, stream):
        fields = _structs.ordo_dropout_call.from_buffer_copy(call)
        pair = ctypes.cast(fields.seed_ptr, ctypes.POINTER(ctypes.c_uint64))
        assert fields.size == len(call) and fields.offset_ptr == fields.seed_ptr + 8
        assert fields.on_device  # which pretends to be the host here
        whole = _problem.from_c(_structs.ordo_problem.from_buffer_copy(problem))
        ends = [
            None if place is None else (ctypes.c_int32 * (whole.batch + 1)).from_address(place)[:]
            for place in (fields.cu_q, fields.cu_kv)
        ]
        made = ordo.dropout.fill(whole, seed=pair[0], offset=pair[1], cu_q=ends[0], cu_kv=ends[1])
        assert made.nbytes <= size
        ctypes.memmove(words, made.ctypes.data, made.nbytes)
        return 0

    for name, function in (
        ("_cuda_getDevice", lambda: 0),
        ("_cuda_getCurrentRawStream", lambda index: 0),
        ("_cuda_cudaCachingAllocator_raw_alloc", take),
        ("_cuda_cudaCachingAllocator_raw_delete", give),
    ):
        monkeypatch.setattr(torch._C, name, function, raising=False)
    monkeypatch.setattr(_bits, "_fill_device", fill)
    yield given_back
    assert not held


def pretend(inputs, rules):
    """What a call would be on CUDA, with a plan of its own."""
    _plans._plans.clear()
    q, k, v, lists, plain = prepare(*inputs, Arguments(**rules))
    made = _plans.ready(q, k, v, lists, plain)
    made.cuda = True
    made.width = _layout.fill_width(q.shape[-1], v.shape[-1])
    _plans.choose_bits(made, lists)
    _plans._plans.clear()
    return made, (q, k, v, lists)


def refuse(monkeypatch, name, message, when):
    """Make a pass of the library refuse by `message` when the call is as `when` says."""
    real, asked = getattr(_call, name), []

    def function(handle, call):
        asked.append(call)
        whole = call.ljust(ctypes.sizeof(_structs.ordo_call), b"\0")  # it may end before the sums
        if when(_structs.ordo_call.from_buffer_copy(whole)):
            raise ordo.Error("unsupported", message)
        return real(handle, call)

    monkeypatch.setattr(_call, name, function)
    return asked


CALLS = {
    "plain": {},
    "dropout": dict(dropout_p=0.1, seed=(1, 2)),
    "packed, dropout": dict(
        dropout_p=0.1, seed=3, cu_q=torch.tensor([0, 20, 33], dtype=torch.int32), max_q=20
    ),
    "fa2": dict(dropout_p=0.25, seed=(1, 2), keying="fa2"),
    "alibi": dict(slopes=torch.rand(2, 4), q_lens=torch.tensor([9, 33], dtype=torch.int32)),
}


def inputs_of(case):
    inputs, dout = tensors(SQUARE)
    if "cu_q" not in CALLS[case]:
        return inputs, dout
    return [x.detach()[0].requires_grad_() for x in inputs], dout[0]


@pytest.mark.parametrize("case", CALLS)
def test_a_launch(pretended, case):
    inputs, dout = inputs_of(case)
    plain, lse, _ = run(*inputs, Arguments(**CALLS[case]))
    wanted = gradients(plain, inputs, dout)
    made, (q, k, v, lists) = pretend(inputs, CALLS[case])
    o, again = _ops.execute(made, q, k, v, lists)
    assert same(o, plain) and same(again, lse)
    for x, y in zip(gradients(o, inputs, dout), wanted):
        assert same(x, y)
    # The workspace of the backward pass; with bits made before each pass also the forward pass's.
    assert len(pretended) == (2 if made.bits_bytes and not made.keeps else 1)


class Stream:
    cuda_stream = 77


@pytest.mark.parametrize("case", ["dropout", "fa2"])
def test_a_launch_in_segments(pretended, monkeypatch, case):
    """A mask that does not fit: two streams, one workspace, and inside if that cannot be had."""
    rules, seen = CALLS[case], []
    inputs, dout = tensors((1, 700, 700, 4, 4, 16, 16))
    plain, lse, _ = run(*inputs, Arguments(**rules))
    wanted = gradients(plain, inputs, dout)
    monkeypatch.setenv("ORDO_DROPOUT_MODE", "sequential")
    monkeypatch.setattr(_memory, "_limit", 100_000)
    monkeypatch.setattr(_segments, "side", lambda device: Stream)
    _memory._limits.clear()
    for name in ("_forward", "_backward"):

        def watch(handle, call, real=getattr(_call, name)):
            whole = call.ljust(ctypes.sizeof(_structs.ordo_call), b"\0")
            seen.append(_structs.ordo_call.from_buffer_copy(whole))
            return real(handle, call)

        monkeypatch.setattr(_call, name, watch)
    made, (q, k, v, lists) = pretend(inputs, rules)
    o, again = _ops.execute(made, q, k, v, lists)
    assert same(o, plain) and same(again, lse)
    for x, y in zip(gradients(o, inputs, dout), wanted):
        assert same(x, y)
    parts = next(iter(made.segments.values()))
    assert parts.plan.info.segments == 11
    assert [x.side_stream for x in seen] == [77, 77]
    assert [x.workspace_bytes for x in seen] == [parts.forward_bytes, parts.backward_bytes]
    assert len(pretended) == 2

    def no_memory(size, stream):
        raise torch.OutOfMemoryError()

    if case == "dropout":  # inside: a forward pass that needs no workspace
        monkeypatch.setattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", no_memory)
        made.forward_bytes = 0
        with torch.no_grad():
            monkeypatch.setattr(_call, "_forward", lambda handle, call: seen.append(handle) or 0)
            _ops.execute(made, q, k, v, lists)
        assert seen[-1] is made.handle
    _memory._limits.clear()


@pytest.mark.parametrize("case, mode", [("fa2", "fused"), ("dropout", "sequential"),
                                        ("packed, dropout", "sequential")])  # fmt: skip
def test_bits_are_made_before_a_pass_that_needs_them(pretended, monkeypatch, case, mode):
    """Because CUDA passes make none of keying fa2, or because people say so."""
    monkeypatch.setenv("ORDO_DROPOUT_MODE", mode)
    inputs, dout = inputs_of(case)
    plain, lse, _ = run(*inputs, Arguments(**CALLS[case]))
    wanted = gradients(plain, inputs, dout)
    made, (q, k, v, lists) = pretend(inputs, CALLS[case])
    assert made.bits_bytes > 0
    asked = refuse(monkeypatch, "_forward", "no bits", lambda call: not call.mask_bits)
    backwards = refuse(monkeypatch, "_backward", "no bits", lambda call: not call.mask_bits)
    o, again = _ops.execute(made, q, k, v, lists)
    assert same(o, plain) and same(again, lse)
    for x, y in zip(gradients(o, inputs, dout), wanted):
        assert same(x, y)
    assert len(asked) == len(backwards) == 1


def test_bits_are_made_inside_a_pass_that_can(monkeypatch):
    for case in ("plain", "dropout", "packed, dropout"):
        assert pretend(inputs_of(case)[0], CALLS[case])[0].bits_bytes == 0
    assert _plans.dropout_mode() == "auto"
    monkeypatch.setenv("ORDO_DROPOUT_MODE", "x")
    with pytest.raises(ordo.Error, match="ORDO_DROPOUT_MODE 'x': expected auto, fused, sequential"):
        _plans.dropout_mode()


def advise(made, lists, mode, keep):
    """Let the plan recommend a mode, as it does for large problems on a GPU."""
    info = dataclasses.replace(made.plan.info, dropout_mode=mode, dropout_keep_bits=keep)
    made.plan.__dict__["info"] = info
    _plans.choose_bits(made, lists)


def results(made, given, inputs, dout):
    o, lse = _ops.execute(made, *given)
    return [o, lse, *gradients(o, inputs, dout)]


@pytest.mark.parametrize("case", ["dropout", "packed, dropout"])
def test_the_plan_chooses_the_mode(pretended, monkeypatch, case):
    """fused, made again, kept: the same bits; how often bits are made."""
    inputs, dout = inputs_of(case)
    plain, lse, _ = run(*inputs, Arguments(**CALLS[case]))
    wanted = [plain, lse, *gradients(plain, inputs, dout)]
    made, (q, k, v, lists) = pretend(inputs, CALLS[case])
    fill, filled = _bits._fill_device, []
    monkeypatch.setattr(_bits, "_fill_device", lambda *call: filled.append(1) or fill(*call))
    modes = ("fused", False, 0), ("sequential", False, 2), ("sequential", True, 1)
    for mode, keep, times in modes:
        advise(made, lists, mode, keep)
        filled.clear()
        for x, y in zip(results(made, (q, k, v, lists), inputs, dout), wanted):
            assert same(x, y)
        assert len(filled) == times
    monkeypatch.setenv("ORDO_DROPOUT_MODE", "fused")  # over the plan's advice
    advise(made, lists, "sequential", True)
    assert made.bits_bytes == 0 and not made.keeps
    assert not any(_memory._kept.values())


def test_memory_decides_whether_bits_are_kept(pretended, monkeypatch):
    inputs, dout = inputs_of("dropout")
    made, (q, k, v, lists) = pretend(inputs, CALLS["dropout"])
    advise(made, lists, "sequential", True)
    wanted = results(made, (q, k, v, lists), inputs, dout)
    fill, filled = _bits._fill_device, []
    monkeypatch.setattr(_bits, "_fill_device", lambda *call: filled.append(1) or fill(*call))
    one = made.bits_bytes
    limits = (3 * one, 2), (3 * one - 1, 3), (2 * one, 3), (2 * one - 1, 4), (one - 1, 0)
    for limit, times in limits:
        ordo.torch.set_mask_memory(limit)
        filled.clear()
        first = _ops.execute(made, q, k, v, lists)[0]  # two layers in flight
        second = _ops.execute(made, q, k, v, lists)[0]
        assert _memory._kept.get(q.device, 0) <= limit
        again = [gradients(x, inputs, dout) for x in (second, first)]
        for grads in again:
            assert all(same(x, y) for x, y in zip(grads, wanted[2:]))
        assert len(filled) == times, limit
        assert same(first, wanted[0]) and same(second, wanted[0])
        del first, second
        assert not any(_memory._kept.values())


def test_no_memory_for_bits_is_no_error(pretended, monkeypatch):
    """The allocator refuses whatever has room for the bits: the passes make them."""
    inputs, dout = inputs_of("dropout")
    made, (q, k, v, lists) = pretend(inputs, CALLS["dropout"])
    wanted = results(made, (q, k, v, lists), inputs, dout)
    take = torch._C._cuda_cudaCachingAllocator_raw_alloc

    def short(size, stream):
        if size >= made.bits_bytes:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return take(size, stream)

    class Storage:
        def __new__(cls, size, **more):
            if size >= made.bits_bytes:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return real(size, **more)

    real = torch.UntypedStorage
    made.forward_bytes = 0
    for keep in (False, True):
        advise(made, lists, "sequential", keep)
        with monkeypatch.context() as patch:
            patch.setattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", short)
            patch.setattr(torch, "UntypedStorage", Storage)
            o, lse = _passes.forward(made, q.detach(), k.detach(), v.detach(), lists)
            bits, kept = _kept.kept_bits(made, lists, None)
        assert bits is None and not kept
        assert same(o, wanted[0]) and same(lse, wanted[1])


@pytest.mark.parametrize("dims", [(20, 20), (20, 12), (64, 20), (72, 36)])
def test_head_sizes_that_are_filled_up(pretended, dims):
    inputs, dout = tensors((2, 33, 33, 4, 2, *dims))
    plain, lse, seen = run(*inputs, Arguments(causal=True))
    made, (q, k, v, lists) = pretend(inputs, dict(causal=True))
    assert made.width == -(-max(dims) // 8) * 8
    wide, wide_lse = _ops.execute(made, q, k, v, lists)
    assert wide.shape == plain.shape and wide.is_contiguous()
    close(wide, plain.double(), torch.float32)
    close(wide_lse, lse.double(), torch.float32)
    for x, y in zip(gradients(wide, inputs, dout), gradients(plain, inputs, dout)):
        assert x.is_contiguous()
        close(x, y.double(), torch.float32)
    out = torch.empty(2, 4, 33, dims[1]).transpose(1, 2)
    assert _passes.forward(made, q, k, v, lists, out)[0] is out
    assert same(out, wide.detach())


def test_the_librarys_refusal_is_the_callers(pretended, monkeypatch):
    inputs, _ = tensors(SQUARE)
    made, (q, k, v, lists) = pretend([x.detach() for x in inputs], {})
    asked = refuse(monkeypatch, "_forward", "head_dim 16: backend cuda has none", lambda call: True)
    with pytest.raises(ordo.Error, match="head_dim 16: backend cuda has none"):
        _ops.execute(made, q, k, v, lists)
    assert len(asked) == 1  # no second attempt


def test_tensors_that_hardware_cannot_copy_are_copied():
    class OnDevice(torch.Tensor):
        is_cuda = True

    base = torch.zeros(2, 9, 4, 64, dtype=torch.bfloat16)
    fits = base.as_subclass(OnDevice)
    assert _passes._readable(fits) is fits and _layout.takes_strides(fits)
    odd = torch.zeros(2 * 9 * 4 * 64 + 1, dtype=torch.bfloat16)[1:].view(2, 9, 4, 64)
    odd = odd.as_subclass(OnDevice)
    assert _passes._readable(odd).data_ptr() % 16 == 0
    gaps = torch.zeros(2, 9, 4, 65, dtype=torch.bfloat16)[..., :64].as_subclass(OnDevice)
    assert not _layout.takes_strides(gaps) and _passes._readable(gaps).is_contiguous()
    heads_first = base.transpose(1, 2).contiguous().transpose(1, 2).as_subclass(OnDevice)
    assert _passes._readable(heads_first) is heads_first


def test_a_place_that_hardware_cannot_copy_from_is_copied(pretended):
    inputs, dout = tensors(SQUARE)
    plain, _, _ = run(*inputs, Arguments(causal=True))
    wanted = gradients(plain, inputs, dout)
    made, (q, k, v, lists) = pretend(inputs, dict(causal=True))
    moved = torch.empty(q.numel() + 1)[1:].view(q.shape).copy_(q.detach()).requires_grad_()
    assert moved.data_ptr() % 16
    o, _ = _ops.execute(made, moved, k, v, lists)
    assert same(o, plain)
    for x, y in zip(gradients(o, [moved, k, v], dout), wanted):
        assert same(x, y)
