"""What a copy takes, measured on this machine beside running work: a store is slower while kernels use the memory, too.

A copy of b bytes is taken to need `latency + b * seconds per byte`. Copies of two sizes are timed, from the moment when they are started to
their end, while the thread that trains multiplies matrices. The result is rounded coarsely, so that the next process
most often finds the same numbers, and with them the same plan; it is kept for the life of the process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .store import Store, ThreadStore

SMALL = 64 << 10
LARGE = 8 << 20
N_COPIES = 5
# The side of the matrices: a product takes a fraction of a millisecond.
SIDE = 192
# Steps in which speeds are rounded.
STEP = math.sqrt(2.0)
Seconds = tuple[float, float]
_measured: dict[int, tuple[Seconds, Seconds]] = {}


def measured(store: Store, device: torch.device) -> tuple[Seconds, Seconds]:
    """Latency and seconds per byte, out and in."""
    if id(store) not in _measured:
        with _disable_current_modes(), torch.no_grad():
            timed = _beside_threads if isinstance(store, ThreadStore) else _beside_streams
            small, large = (timed(store, torch.zeros(size, dtype=torch.uint8, device=device)) for size in (SMALL, LARGE))
        _measured[id(store)] = (_line(small[0], large[0]), _line(small[1], large[1]))
    return _measured[id(store)]


def _line(small: float, large: float) -> Seconds:
    """The line through two sizes; what is measured as nothing is still something."""
    per_byte = max((large - small) / (LARGE - SMALL), 1e-13)
    return _rounded(max(small - SMALL * per_byte, 1e-6)), _rounded(per_byte)


def _rounded(seconds: float) -> float:
    return STEP ** round(math.log(seconds, STEP))


def _usual(times: list[float]) -> float:
    """Not the best, which may be luck, and not the middle: other processes only ever make a copy slower."""
    return sorted(times)[1]


def _beside_threads(store: Store, tensor: torch.Tensor) -> tuple[float, float]:
    assert isinstance(store, ThreadStore), "other stores have streams"
    work = _work(tensor.device)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(N_COPIES):
        begin = time.perf_counter()
        stored = store.out(tensor)
        while not stored.out.ended.is_set():
            work()
        store.settle(stored, tensor)
        times[0].append(store.channels["out"].transfers[-1].end - begin)
        begin = time.perf_counter()
        arriving = store.bring(stored)
        while not arriving.copy.ended.is_set():
            work()
        store.arrived(arriving)
        times[1].append(store.channels["in"].transfers[-1].end - begin)
        store.discard(stored)
    return _usual(times[0]), _usual(times[1])


def _beside_streams(store: Store, tensor: torch.Tensor) -> tuple[float, float]:
    work = _work(tensor.device)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(N_COPIES):
        torch.cuda.synchronize(tensor.device)
        for _ in range(16):
            work()
        begin = time.perf_counter()
        stored = store.out(tensor)
        stored.out.event.synchronize()
        times[0].append(time.perf_counter() - begin)
        store.settle(stored, tensor)
        torch.cuda.synchronize(tensor.device)
        begin = time.perf_counter()
        arriving = store.bring(stored)
        store.arrived(arriving)
        torch.cuda.synchronize(tensor.device)
        times[1].append(time.perf_counter() - begin)
        store.discard(stored)
    return _usual(times[0]), _usual(times[1])


def _work(device: torch.device) -> Callable[[], object]:
    matrix = torch.ones(SIDE, SIDE, device=device)
    return lambda: torch.mm(matrix, matrix)
