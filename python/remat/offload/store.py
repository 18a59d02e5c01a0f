"""A store: a place for values outside of the budget, with a channel to it and one back.

`Store` is what the functions of emitted graphs need of it, and all that differs between devices. `ThreadStore` is the form for
the CPU: two threads that copy, so that a copy out, a copy in and a kernel run at the same time.

A tensor that was copied out is known by a `Stored`, one that is on its way back by an `Arriving`. Whole storages are copied, so the
tensor that comes back has the layout and the bytes of the first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import OffloadError
from .channel import Channel, Job, Transfer
from .space import Space


@dataclass(frozen=True)
class Layout:
    """What makes a tensor of the bytes of a storage."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    n_bytes: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        """The layout of a tensor."""
        n_bytes = tensor.untyped_storage().nbytes()
        return Layout(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype, tensor.device, n_bytes)

    def new(self) -> torch.Tensor:
        """A tensor in new memory of the same size."""
        memory = torch.empty(self.n_bytes, dtype=torch.uint8, device=self.device)
        tensor = torch.empty(0, dtype=self.dtype, device=self.device)
        return tensor.set_(memory.untyped_storage(), self.offset, self.size, self.stride)


class Stored:
    """A tensor in a store, or on its way there. `room` is what holds its bytes, until it is discarded."""

    def __init__(self, store: Store, layout: Layout, room: Any, out: Any) -> None:
        self.store = store
        self.layout = layout
        self.room = room
        self.out = out
        # Copies from here that may be under way.
        self.readers: list[Any] = []

    def again(self) -> Stored:
        """The same for another reader, who may discard it."""
        return Stored(self.store, self.layout, self.room, self.out)


class Arriving:
    """A tensor that is being copied into; nobody but its store may look at it before the copy has ended."""

    def __init__(self, store: Store, tensor: torch.Tensor, copy: Any) -> None:
        self.store = store
        self.tensor = tensor
        self.copy = copy

    def again(self) -> Arriving:
        """The same for another reader."""
        return self


class Store(ABC):
    """A place for values. All copies of one direction run one after the other.

    `Stored.out` and `Arriving.copy` have a `wait()`, after which what runs next finds the copy done: on the CPU it blocks, beside
    streams it has the computing stream wait.
    """

    name: str

    @abstractmethod
    def out(self, tensor: torch.Tensor) -> Stored:
        """Starts a copy of a tensor. Its memory must be neither changed nor freed before `settle`."""

    @abstractmethod
    def bring(self, stored: Stored) -> Arriving:
        """Starts a copy into new memory."""

    def arrived(self, arriving: Arriving) -> torch.Tensor:
        """The tensor that was copied into; what runs from here on reads it as it was."""
        arriving.copy.wait()
        return arriving.tensor

    def settle(self, stored: Stored, tensor: torch.Tensor) -> None:
        """Waits until the copy out of a tensor has ended, so that its memory may be freed. Until then the argument holds it."""
        stored.out.wait()

    @abstractmethod
    def discard(self, stored: Stored) -> None:
        """Waits until all copies to and from there have ended, and gives the room back."""

    @abstractmethod
    def reserve(self, size: int) -> None:
        """Makes sure that there is room for this many bytes, or says that there is not."""

    @abstractmethod
    def transfers(self) -> list[Transfer]:
        """The latest copies."""


class ThreadStore(Store):
    """The store of the CPU: copies run in two threads of their own."""

    def __init__(self, name: str, space: Space) -> None:
        self.name = name
        self.space = space
        self.channels = {"out": Channel(f"to {name}"), "in": Channel(f"from {name}")}

    def out(self, tensor: torch.Tensor) -> Stored:
        """Starts a copy of a tensor."""
        layout, room, space = Layout.of(tensor), self.space.take(tensor.untyped_storage().nbytes()), self.space
        storage = tensor.untyped_storage()
        copy = lambda: space.write(room, storage.data_ptr(), layout.n_bytes)  # noqa: E731
        return Stored(self, layout, room, self.channels["out"].start(copy, layout.n_bytes))

    def bring(self, stored: Stored) -> Arriving:
        """Starts a copy into new memory."""
        layout, room, space = stored.layout, room_of(stored), self.space
        tensor = layout.new()
        storage = tensor.untyped_storage()
        copy = lambda: space.read(room, storage.data_ptr(), layout.n_bytes)  # noqa: E731
        job = self.channels["in"].start(copy, layout.n_bytes, (stored.out,))
        stored.readers = [*(reader for reader in stored.readers if not reader.ended.is_set()), job]
        return Arriving(self, tensor, job)

    def discard(self, stored: Stored) -> None:
        """Waits for all copies, and gives the room back."""
        wait_for((stored.out, *stored.readers))
        stored.room, stored.readers = None, []

    def reserve(self, size: int) -> None:
        """Makes sure that there is room."""
        self.space.reserve(size)

    def transfers(self) -> list[Transfer]:
        """The latest copies, in the order in which they began."""
        found = [transfer for channel in self.channels.values() for transfer in list(channel.transfers)]
        return sorted(found, key=lambda transfer: transfer.begin)


def room_of(stored: Stored) -> Any:
    """What holds the bytes of a value that has not been discarded."""
    if stored.room is None:
        raise OffloadError("bug: a value is read from a store that no longer has it; please report it with the model and the budget")
    return stored.room


def wait_for(jobs: Iterable[Job]) -> None:
    """Waits for all, and then raises where one failed."""
    jobs = list(jobs)
    for job in jobs:
        job.ended.wait()
    for job in jobs:
        job.wait()
