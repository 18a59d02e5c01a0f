"""The stores for CUDA against simulated streams, which run everything as late as they may.

A copy on a stream runs only when somebody waits for it: the computing stream, another stream, or the processor. So a step that forgets to wait
reads memory that nothing was copied to, and a copy whose source was freed and used again before the wait copies the wrong bytes.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from movers import moved, with_stores
from mutate_moves import moves
from remat import schedule
from remat.offload.space import FileSpace
from remat.offload.store import Store
from remat.offload.streams import Device, Dropped, StreamFileStore, StreamStore
from subjects import Subject, Written, results_of, subjects

GARBAGE = 0xA5
# The threads of a file wait for streams, as the main one does: who comes second must find the work done, not begun.
RUNNING = threading.RLock()


class Event:
    """The end of everything that was queued before."""

    def __init__(self, stream: Stream, place: int) -> None:
        self.stream = stream
        self.place = place

    def synchronize(self) -> None:
        self.stream.run_until(self.place)


class Stream:
    """Work that runs when somebody waits for it."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], None]] = []
        self.n_done = 0

    def record_event(self) -> Event:
        return Event(self, len(self.queue))

    def wait_event(self, event: Event) -> None:
        self.queue.append(event.synchronize)

    def run_until(self, place: int) -> None:
        with RUNNING:
            while self.n_done < place:
                self.n_done += 1
                self.queue[self.n_done - 1]()


class Computing(Stream):
    """The stream that computes: torch runs its work at once, so waiting cannot be put off."""

    def wait_event(self, event: Event) -> None:
        event.synchronize()


class Simulated(Device):
    """A device whose memory is that of the processor."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.computing = Computing()
        self.n_copies = 0

    def stream(self) -> Any:
        return Stream()

    def current(self) -> Any:
        return self.computing

    def copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> Any:
        # Addresses and not tensors: a device does not hold what it copies from.
        to, start, size = target.data_ptr(), source.data_ptr(), target.numel()

        def run() -> None:
            self.n_copies += 1
            ctypes.memmove(to, start, size)

        stream.queue.append(run)
        return stream.record_event()

    def pinned(self, size: int) -> torch.Tensor:
        # Past the dispatcher: memory of the host is not counted.
        return torch.frombuffer(bytearray([GARBAGE]) * size, dtype=torch.uint8)


def stores(kind: str, folder: Path) -> tuple[Simulated, list[Store]]:
    device = Simulated()
    if kind == "host":
        return device, [StreamStore("first", device), StreamStore("second", device)]
    return device, [StreamFileStore("first", device, FileSpace(folder)), StreamStore("second", device)]


def plan_with(subject: Subject, chosen: list[Store], rng: random.Random, share: float) -> Written:
    """A plan that keeps everything, with a share of the values in the stores."""
    step = with_stores(subject.step, chosen)
    planned = moved(step, step.keep_all, rng, share)
    made, region = schedule.build(step, planned.steps, verify=False, number=0), step.region
    n_results, n_tangents = len(region.forward_outputs), len(region.tangents)
    return Written(planned.steps, planned.peak, 0, made.forward.graph, made.backward.graph, n_results, n_tangents)


@pytest.mark.parametrize("kind", ["host", "file"])
def test_streams_that_are_late_give_the_same_bits(kind: str, tmp_path: Path) -> None:
    (subject,) = subjects(["dropout"])
    plain = subject.write(random.Random(1))
    expected, _ = results_of(subject, plain)
    rng = random.Random(0)
    for share in (0.3, 1.0, 1.0):
        device, chosen = stores(kind, tmp_path)
        written = plan_with(subject, chosen, rng, share)
        found, peak = results_of(subject, written)
        assert device.n_copies > 0
        assert found == expected
        assert peak <= written.peak


def test_a_missing_wait_is_seen_by_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation is worth its name: without the waits of `arrived`, and of what is dropped, other bits come out."""
    (subject,) = subjects(["dropout"])
    expected, _ = results_of(subject, subject.write(random.Random(1)))

    class Careless(StreamStore):
        def arrived(self, arriving: Any) -> torch.Tensor:
            return arriving.tensor

        def settle(self, stored: Any, tensor: torch.Tensor) -> None:
            pass

    monkeypatch.setattr(Dropped, "__del__", lambda self: None)
    device = Simulated()
    written = plan_with(subject, [Careless("first", device), Careless("second", device)], random.Random(0), 1.0)
    assert moves(written.backward, "arrived")
    found, _ = results_of(subject, written)
    assert found != expected
