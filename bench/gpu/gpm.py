"""The counters of the driver's GPU performance monitoring (GPM), which NVML reads without a profiler
and without privileges on compute capability 9.0: averages over the time between two samples."""

from __future__ import annotations

import ctypes
import time

DRAM = 10  # NVML_GPM_METRIC_DRAM_BW_UTIL: per cent of the bandwidth of HBM


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("short", "long", "unit")]


class Metric(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint),
        ("status", ctypes.c_int),
        ("value", ctypes.c_double),
        ("info", Info),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("metrics", Metric * 512),  # more than any version has
    ]


class Counters:
    """Counters of GPU 0. Raises OSError if NVML is not there or does not have them."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device, self.samples = ctypes.c_void_p(), [ctypes.c_void_p(), ctypes.c_void_p()]
        self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.device))
        for sample in self.samples:
            self.call("nvmlGpmSampleAlloc", ctypes.byref(sample))
        self.call("nvmlGpmSampleGet", self.device, self.samples[0])  # not everywhere allowed

    def call(self, name: str, *words) -> None:
        try:
            status = getattr(self.nvml, name)(*words)
        except AttributeError as error:
            raise OSError(f"{name}: this NVML has none") from error
        if status != 0:
            raise OSError(f"{name}: NVML error {status}")

    def value_of(self, ids) -> dict:
        request = Request(version=1, count=len(ids))
        request.first, request.second = (sample.value for sample in self.samples)
        for metric, number in zip(request.metrics, ids):
            metric.id = number
        self.call("nvmlGpmMetricsGet", ctypes.byref(request))
        return {
            str(metric.id): {
                "value": metric.value,
                "name": (metric.info.short or b"").decode(),
                "unit": (metric.info.unit or b"").decode(),
            }
            for metric in request.metrics[: len(ids)]
            if metric.status == 0
        }

    def over(self, seconds: float) -> dict:
        """Values by the number of the metric, over so many seconds from now."""
        self.call("nvmlGpmSampleGet", self.device, self.samples[0])
        time.sleep(seconds)
        self.call("nvmlGpmSampleGet", self.device, self.samples[1])
        return self.value_of([DRAM])
