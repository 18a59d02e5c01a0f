"""Whether torch's bf16 kernels run on this processor, and which settings make them safe where they do not.

Some machines, mostly virtual ones, announce AMX but do not allow it: the first product in bf16 ends the process with SIGILL
or SIGSEGV, and no `except` helps. So the kernels are tried in a child process. In: nothing. Out: environment variables
for torch, which reads them when it is imported.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# A convolution and products, forward and backward: what reaches the kernels of oneDNN and torch's own.
TRIAL = """
import torch
torch.manual_seed(0)
a, x = torch.randn(64, 64, requires_grad=True), torch.randn(2, 64, 16, 16)
w = torch.randn(64, 64, 3, 3, requires_grad=True)
with torch.autocast("cpu", dtype=torch.bfloat16):
    (torch.nn.functional.conv2d(x, w).sum() + (a @ a).sum() + torch.nn.functional.linear(a, a).sum()).backward()
assert torch.isfinite(a.grad).all() and torch.isfinite(w.grad).all()
"""
# From the mildest on: only AMX off, then all of AVX-512 for oneDNN, then for torch, too.
REMEDIES: tuple[dict[str, str], ...] = (
    {},
    {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"},
)
TRIAL_SECONDS = 120


@dataclass(frozen=True)
class Bf16:
    """What was found: how the plain trial ended, and what to set; `None` where nothing helped."""

    ending: str
    settings: Mapping[str, str] | None = field(default_factory=dict)

    def __str__(self) -> str:
        if self.settings is None:
            return f"bf16 {self.ending}, and no setting of oneDNN or torch was found that helps"
        if self.settings:
            words = " ".join(f"{name}={value}" for name, value in self.settings.items())
            return f"bf16 {self.ending}; it runs with {words}, to be set before torch is imported"
        return f"bf16 {self.ending}"


def try_bf16(run: Callable[[Mapping[str, str]], int | None] | None = None) -> Bf16:
    """Tries bf16 in child processes.

    `run` returns the exit code of a trial with additional environment variables, or `None` where it did not end in time.
    """
    ending = "runs"
    for settings in REMEDIES:
        code = (run or _run)(settings)
        if code is None:
            # A machine that is busy or was stopped for a while says nothing about its processor.
            return Bf16(f"could not be tried: the trial took more than {TRIAL_SECONDS} s")
        if code == 0:
            return Bf16(ending, settings)
        if not settings:
            ending = _describe(code)
    return Bf16(ending, None)


@functools.cache
def bf16() -> Bf16:
    """`try_bf16`, once per process."""
    return try_bf16()


def _run(settings: Mapping[str, str]) -> int | None:
    command = [sys.executable, "-c", TRIAL]
    environment = {**os.environ, **settings}
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=TRIAL_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return None


def _describe(code: int) -> str:
    if code < 0:
        return f"ends the process with {signal.Signals(-code).name} on this processor"
    return f"fails on this processor with exit code {code}"
