"""Devices that `python -m remat fit` knows: memory, bandwidth, and dense arithmetic without sparsity.

Memory is what `nvidia-smi` shows as total, in MiB: the sizes of T4, L4, A10, L40S, A100 and H100 are those that modal-labs/modal-client
reports in its pull request 2797; those of GeForce cards and of the V100 are the nominal ones in GiB. Where no report was found (H200 and
the cards of AMD) it is the nominal size in decimal gigabytes, which is on the safe side. Of all this, driver and context take a part
(`RESERVED`): where `nvidia-smi` shows 79.65 GiB of an H100, torch sees 79.11 (vllm-project/vllm, issue 27508), of 40 GiB of an A100 39.50
(TianheWu/CoSeR, issue 10), of 15 GiB of a T4 14.75 (hpcaitech/Open-Sora, issue 697), of 24 GiB of an RTX 4090 23.64 (ali-vilab/VGen, issue 104).

Speeds are the peaks of the documents that are named beside them, as other pages repeat them (for T4, V100 and the GeForce cards nobody
has held the matrix units against a second page), halved where they are stated with sparsity; `half` is for products that are summed in
fp32, as torch does it, which is half of the headline figure of GeForce cards. T4 and V100 have fp16 only, no bf16. Kernels reach a
part of these speeds, about the same part for most operations, so shares of a step mean more than seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .budget import in_bytes

# What the driver, the context and the handles of the libraries take of a GPU's memory: half a GiB each, roughly.
RESERVED = 2**30
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


def _gpu(name: str, mebibytes: float, bandwidth: float, half: float, single: float, source: str) -> Device:
    return Device(name, int(mebibytes * 2**20), bandwidth * 1e9, half * 1e12, single * 1e12, source)


def _nominal(gigabytes: int) -> float:
    return gigabytes * 1e9 / 2**20


# MiB, GB/s, TFLOP/s dense in half precision, TFLOP/s in fp32.
DEVICES = {
    device.name: device
    for device in (
        _gpu("T4-16GB", 15360, 320, 65, 8.1, "NVIDIA T4 datasheet"),
        _gpu("V100-32GB", 32768, 900, 125, 15.7, "NVIDIA V100 datasheet, SXM2"),
        _gpu("RTX3090-24GB", 24576, 936, 71, 35.6, "NVIDIA Ampere GA102 whitepaper"),
        _gpu("RTX4090-24GB", 24576, 1008, 165.2, 82.6, "NVIDIA Ada architecture whitepaper"),
        _gpu("L4-24GB", 23034, 300, 121, 30.3, "NVIDIA L4 datasheet"),
        _gpu("A10-24GB", 23028, 600, 125, 31.2, "NVIDIA A10 datasheet"),
        _gpu("L40S-48GB", 46068, 864, 362, 91.6, "NVIDIA L40S datasheet"),
        _gpu("A100-40GB", 40960, 1555, 312, 19.5, "NVIDIA A100 datasheet, SXM"),
        _gpu("A100-80GB", 81920, 2039, 312, 19.5, "NVIDIA A100 datasheet, SXM"),
        _gpu("H100-80GB", 81559, 3350, 989, 67, "NVIDIA H100 datasheet, SXM"),
        _gpu("H200-141GB", _nominal(141), 4800, 989, 67, "NVIDIA H200 datasheet, SXM"),
        # Two dies on one module, each of which torch sees as a device.
        _gpu("MI250X-64GB", _nominal(64), 1638, 191.5, 23.9, "AMD Instinct MI250X datasheet, one of its two dies"),
        _gpu("MI300X-192GB", _nominal(192), 5300, 1307, 163.4, "AMD Instinct MI300X datasheet"),
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
