"""Stores beside a device with streams (CUDA): pinned host memory, or a file behind it.

One stream copies out and one copies in, both beside the stream that computes. Nothing here blocks the program while it queues work:
where a step waits for a copy, the computing stream waits for its event. The allocator of the device hands freed memory to
later work of the computing stream, so memory whose copy that stream has waited for can be freed as always. What is
dropped without such a wait, as when a step ends in an error, waits when it is dropped.

With a file there is one more hop in each direction, from or to pinned memory, in the threads of `channel`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from .channel import Channel, Transfer
from .space import Space
from .store import Arriving, Layout, Store, Stored, room_of


class Device:
    """What a store needs of CUDA."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def stream(self) -> Any:
        """A stream beside the one that computes."""
        return torch.cuda.Stream(self.device)

    def current(self) -> Any:
        """The stream that computes."""
        return torch.cuda.current_stream(self.device)

    def copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> Any:
        """Queues a copy on a stream, and returns the event of its end."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        return stream.record_event()

    def pinned(self, size: int) -> torch.Tensor:
        """Host memory that the device can copy from and to by itself."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class Pinned:
    """Pinned memory that is given back to its pool when the last holder is gone. The next copy waits for its `last` events."""

    def __init__(self, pool: deque[tuple[torch.Tensor, list[Any]]], memory: torch.Tensor, last: list[Any]) -> None:
        self.pool = pool
        self.memory = memory
        self.last = last

    def __del__(self) -> None:
        self.pool.append((self.memory, self.last))


class Dropped:
    """Has the computing stream wait for an event when it is dropped, unless somebody has done so before."""

    def __init__(self, device: Device, event: Any) -> None:
        self.device = device
        self.event: Any = event

    def wait(self) -> None:
        """Has the computing stream wait, once."""
        event, self.event = self.event, None
        if event is not None:
            self.device.current().wait_event(event)

    def __del__(self) -> None:
        self.wait()


class StreamStore(Store):
    """Pinned host memory."""

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self.device = device
        self.streams = {"out": device.stream(), "in": device.stream()}
        self.pools: dict[int, deque[tuple[torch.Tensor, list[Any]]]] = {}

    def out(self, tensor: torch.Tensor) -> Stored:
        """Starts a copy of a tensor."""
        layout = Layout.of(tensor)
        room = self._take(layout.n_bytes)
        event = self._copy("out", room.memory, raw(tensor), room.last)
        room.last = [event]
        # The tensor is held until the computing stream waits: dropping both does so in the right order.
        return Stored(self, layout, room, _Holding(self.device, event, tensor))

    def bring(self, stored: Stored) -> Arriving:
        """Starts a copy into new memory."""
        room: Pinned = room_of(stored)
        tensor = stored.layout.new()
        # The memory may have belonged to work that is still queued, so the copy waits for the computing stream.
        event = self._copy("in", raw(tensor), room.memory, room.last)
        room.last = [*room.last, event]
        return Arriving(self, tensor, _Holding(self.device, event, tensor))

    def discard(self, stored: Stored) -> None:
        """Gives the room back; the next copy into it waits for the copies to and from it."""
        stored.room = None

    def reserve(self, size: int) -> None:
        """Nothing: pinned memory is taken in the first step and kept."""

    def transfers(self) -> list[Transfer]:
        """None are recorded: a profiler shows the copies of streams."""
        return []

    def _copy(self, way: str, target: torch.Tensor, source: torch.Tensor, after: list[Any]) -> Any:
        stream = self.streams[way]
        stream.wait_event(self.device.current().record_event())
        for event in after:
            stream.wait_event(event)
        return self.device.copy(stream, target, source)

    def _take(self, size: int) -> Pinned:
        pool = self.pools.setdefault(size, deque())
        return Pinned(pool, *(pool.pop() if pool else (self.device.pinned(size), [])))


class StreamFileStore(StreamStore):
    """A file, through pinned memory that is held only while bytes pass through it."""

    def __init__(self, name: str, device: Device, space: Space) -> None:
        super().__init__(name, device)
        self.space = space
        self.channels = {"out": Channel(f"to {name}"), "in": Channel(f"from {name}")}

    def out(self, tensor: torch.Tensor) -> Stored:
        """Starts a copy of a tensor."""
        passed, space = super().out(tensor), self.space
        layout, through, slot = passed.layout, passed.room, space.take(passed.layout.n_bytes)
        event = through.last[-1]

        def write() -> None:
            event.synchronize()
            space.write(slot, through.memory.data_ptr(), layout.n_bytes)

        job = self.channels["out"].start(write, layout.n_bytes)
        return Stored(self, layout, (slot, job), passed.out)

    def bring(self, stored: Stored) -> Arriving:
        """Starts a copy into new memory."""
        space, layout = self.space, stored.layout
        slot, written = room_of(stored)
        through, tensor = self._take(layout.n_bytes), layout.new()
        begin, after, found = self.device.current().record_event(), through.last, [None]

        def read() -> None:
            for event in after:
                event.synchronize()
            space.read(slot, through.memory.data_ptr(), layout.n_bytes)
            stream = self.streams["in"]
            stream.wait_event(begin)
            found[0] = self.device.copy(stream, raw(tensor), through.memory)
            through.last = [found[0]]

        job = self.channels["in"].start(read, layout.n_bytes, (written,))
        stored.readers.append(job)
        return Arriving(self, tensor, _Reading(self.device, job, found))

    def discard(self, stored: Stored) -> None:
        """Gives the room back when all copies have ended."""
        for job in (room_of(stored)[1], *stored.readers):
            job.wait()
        stored.room = None

    def reserve(self, size: int) -> None:
        """Makes sure that there is room."""
        self.space.reserve(size)

    def transfers(self) -> list[Transfer]:
        """The latest reads and writes of the file."""
        return [transfer for channel in self.channels.values() for transfer in list(channel.transfers)]


class _Holding(Dropped):
    """An event, and the memory that must not be freed before the computing stream has waited for it."""

    def __init__(self, device: Device, event: Any, tensor: torch.Tensor) -> None:
        super().__init__(device, event)
        self.tensor: torch.Tensor | None = tensor

    def wait(self) -> None:
        """Has the computing stream wait, and lets go of the memory."""
        super().wait()
        self.tensor = None


class _Reading(Dropped):
    """A copy that begins when its bytes have been read from a file."""

    def __init__(self, device: Device, job: Any, found: list[Any]) -> None:
        super().__init__(device, None)
        self.job = job
        self.found = found

    def wait(self) -> None:
        """Waits for the file, and has the computing stream wait for the copy."""
        self.job.wait()
        if self.found[0] is not None:
            self.device.current().wait_event(self.found[0])

    def __del__(self) -> None:
        self.job.ended.wait()
        if self.found[0] is not None:
            self.device.current().wait_event(self.found[0])


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the storage of a tensor."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
