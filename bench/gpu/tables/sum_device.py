"""The tree sum of arrays of 64 Mi elements and a copy on the device, ms; bytes read and written
per time of one over the other, which must be 0.80."""

from __future__ import annotations

from ctypes import byref

from show import tile_rate

ELEMENTS = 64 << 20
BYTES = {"f32": 4, "bf16": 2}
COLUMNS = [tile_rate("sum / copy", "sum", "copy", must=0.8)]


def rows() -> list[dict]:
    kinds = [("f32", 2, True)]
    kinds += [(dtype, count, False) for dtype in BYTES for count in (2, 3, 4, 6, 8, 16)]
    return [
        {
            "name": f"{dtype} {count}{' a += b' if there else ''}",
            "dtype": dtype,
            "count": count,
            "in_place": there,
        }
        for dtype, count, there in kinds
    ]


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu
    from ordo._sum import sum_call

    torch = gpu.torch
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[row["dtype"]]
    arrays = [torch.zeros(ELEMENTS, dtype=kind, device=gpu.DEVICE) for _ in range(row["count"])]
    source, out = (torch.zeros(ELEMENTS, device=gpu.DEVICE) for _ in range(2))
    to = arrays[0] if row["in_place"] else out
    call = sum_call(row["dtype"], ELEMENTS, [x.data_ptr() for x in arrays], to.data_ptr(), 0)
    moved = ELEMENTS * (row["count"] * BYTES[row["dtype"]] + 4)
    stream = torch.cuda.current_stream().cuda_stream
    contest.add("sum", lambda: gpu.lib.ordo_sum_tree_device(byref(call), stream), tiles=moved)
    contest.add("copy", lambda: out.copy_(source), tiles=8 * ELEMENTS)
    contest.stack.callback(arrays.clear)  # they live as long as the row
