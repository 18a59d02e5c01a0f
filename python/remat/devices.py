"""Devices that `python -m remat fit` knows: memory, bandwidth, and dense arithmetic without sparsity.

Memory is the nominal size in decimal gigabytes, which is a little less than what the driver shows, and less by what the driver
keeps for itself (`RESERVED`). Speeds are the peaks that the vendor states; kernels reach a part of them, about the same part for
most operations, so shares of a step mean more than seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .budget import in_bytes

# What the driver, the context and the handles of the libraries take of a GPU's memory, roughly.
RESERVED = 600 * 10**6
# The caching allocator of torch rounds every block up to this.
BLOCK = 512


@dataclass(frozen=True)
class Device:
    """A target to plan for. Speeds are per second; `half` is bf16 or fp16 with the matrix units, `single` is fp32."""

    name: str
    memory: int
    bandwidth: float
    half: float
    single: float
    source: str
    is_gpu: bool = True

    @property
    def usable(self) -> int:
        """Memory for tensors."""
        return max(self.memory - RESERVED, 0) if self.is_gpu else self.memory


def _gpu(name: str, bandwidth: float, half: float, single: float, source: str) -> Device:
    gigabytes = int(name.rsplit("-", 1)[1].removesuffix("GB"))
    return Device(name, gigabytes * 10**9, bandwidth * 1e9, half * 1e12, single * 1e12, source)


# GB/s, TFLOP/s dense in half precision, TFLOP/s in fp32.
DEVICES = {
    device.name: device
    for device in (
        _gpu("T4-16GB", 320, 65, 8.1, "NVIDIA T4 datasheet"),
        _gpu("V100-32GB", 900, 125, 15.7, "NVIDIA V100 datasheet, SXM2"),
        _gpu("RTX3090-24GB", 936, 71, 35.6, "NVIDIA GA102 architecture whitepaper"),
        _gpu("RTX4090-24GB", 1008, 165, 82.6, "NVIDIA Ada architecture whitepaper"),
        _gpu("L4-24GB", 300, 121, 30.3, "NVIDIA L4 datasheet"),
        _gpu("A10-24GB", 600, 125, 31.2, "NVIDIA A10 datasheet"),
        _gpu("L40S-48GB", 864, 362, 91.6, "NVIDIA L40S datasheet"),
        _gpu("A100-40GB", 1555, 312, 19.5, "NVIDIA A100 datasheet, SXM"),
        _gpu("A100-80GB", 2039, 312, 19.5, "NVIDIA A100 datasheet, SXM"),
        _gpu("H100-80GB", 3350, 989, 67, "NVIDIA H100 datasheet, SXM"),
        _gpu("H200-141GB", 4800, 989, 67, "NVIDIA H200 datasheet, SXM"),
        _gpu("MI250X-128GB", 3277, 383, 47.9, "AMD Instinct MI250X datasheet"),
        _gpu("MI300X-192GB", 5300, 1307, 163.4, "AMD Instinct MI300X datasheet"),
    )
}
NUMBERS = re.compile(r"(?P<memory>[^,]+),(?P<bandwidth>[\d.]+)\s*(?P<unit>[GT])B/s,(?P<flops>[\d.]+)\s*TFLOPS?", re.IGNORECASE)


def device(text: str) -> Device:
    """The device of a name, of `cpu`, or of numbers such as `48GB,864GB/s,362TFLOPS`."""
    by_name = {name.lower(): known for name, known in DEVICES.items()}
    if text.lower() in by_name:
        return by_name[text.lower()]
    if text.lower() == "cpu":
        return Device("cpu", 2**62, 15e9, 100e9, 100e9, "a mid-range pair of cores", is_gpu=False)
    numbers = NUMBERS.fullmatch(text.strip())
    if numbers is None:
        raise ValueError(
            f"the device {text!r} is not known; known are {', '.join(DEVICES)} and cpu, or write numbers:"
            " memory,bandwidth,arithmetic such as 48GB,864GB/s,362TFLOPS"
        )
    factor = 1e12 if numbers["unit"].upper() == "T" else 1e9
    flops = float(numbers["flops"]) * 1e12
    return Device(text, in_bytes(numbers["memory"], 0), float(numbers["bandwidth"]) * factor, flops, flops, "given")
