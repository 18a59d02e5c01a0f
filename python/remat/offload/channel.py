"""Copies in another thread, one after the other, in the order in which they are started."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import OffloadError

# How many copies are remembered, for people who look at them.
REMEMBERED = 4096


@dataclass(frozen=True)
class Transfer:
    """A copy that has ended: its bytes, and when it ran (`time.perf_counter`)."""

    channel: str
    bytes: int
    begin: float
    end: float


class Job:
    """A copy that may still be under way."""

    def __init__(self, work: Callable[[], None], size: int, after: Sequence[Job]) -> None:
        self.work: Callable[[], None] | None = work
        self.size = size
        self.after = after
        self.fault: str | None = None
        self.ended = threading.Event()

    def run(self, channel: Channel) -> None:
        """Does the work. What it holds is let go before anybody is told that it has ended."""
        work, self.work = self.work, None
        assert work is not None, "a job runs once"
        for earlier in self.after:
            earlier.ended.wait()
            self.fault = self.fault or earlier.fault
        self.after = ()
        begin = time.perf_counter()
        try:
            if self.fault is None:
                work()
        except Exception as error:  # noqa: BLE001 (it is raised in the thread that waits)
            self.fault = str(error) or type(error).__name__
        del work
        channel.transfers.append(Transfer(channel.name, self.size, begin, time.perf_counter()))
        self.ended.set()

    def wait(self) -> None:
        """Waits until the copy has ended, and raises where it failed."""
        self.ended.wait()
        if self.fault is not None:
            raise OffloadError(self.fault)


class Channel:
    """A thread that copies. It begins with the first copy."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transfers: deque[Transfer] = deque(maxlen=REMEMBERED)
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self, work: Callable[[], None], size: int, after: Sequence[Job] = ()) -> Job:
        """Begins a copy, after all copies that were started here before and after those of other channels that are given."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=f"remat {self.name}", daemon=True)
                self._thread.start()
        job = Job(work, size, after)
        self._jobs.put(job)
        return job

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            job.run(self)
            del job
