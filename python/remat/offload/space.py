"""Where bytes rest, and how they get there.

In: an address in memory and a number of bytes. Out: the same bytes in a *slot*: memory that belongs to no tensor, or a piece of a
file. A slot is given back when the last object that holds it is gone, in whichever thread that happens.

The file has no name from the beginning, so nothing is left behind however the process ends. It is written and read directly
where the file system can do that, through a small buffer: otherwise the page cache would hold the bytes in memory
once more, which the budget does not see.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import tempfile
import threading
import warnings
import weakref
from collections import deque
from pathlib import Path
from typing import Protocol

from ..budget import format_bytes
from ..errors import BudgetWarning, OffloadError

# Files are written in whole blocks of this size, from and to addresses that are multiples of it.
BLOCK = 4096
# What one read or write takes at once, and the size of the two buffers of a file.
CHUNK = 4 << 20


class Slot:
    """Room for some bytes."""

    def __init__(self, returned: deque[tuple[int, int]], start: int, size: int) -> None:
        self.start = start
        self.size = size
        self._returned = returned

    def __del__(self) -> None:
        # It may be the garbage collector who calls, in the middle of anything: the space takes it back later.
        self._returned.append((self.start, self.size))


class Space(Protocol):
    """A place with room for slots."""

    name: str

    def reserve(self, size: int) -> None:
        """Makes sure that this much room is there."""

    def take(self, size: int) -> Slot:
        """A slot for some bytes."""

    def write(self, slot: Slot, address: int, size: int) -> None:
        """Copies memory into a slot. Called by one thread at a time."""

    def read(self, slot: Slot, address: int, size: int) -> None:
        """Copies a slot into memory. Called by one thread at a time, also while another writes."""


class HostSpace:
    """Memory of the process outside of all tensors. What was used once is kept for the next step."""

    def __init__(self) -> None:
        self.name = "host memory"
        self.returned: deque[tuple[int, int]] = deque()
        self.maps: dict[int, mmap.mmap] = {}
        self.free: dict[int, list[int]] = {}
        self.lock = threading.Lock()

    def reserve(self, size: int) -> None:
        """Nothing: the memory is taken when it is needed."""

    def take(self, size: int) -> Slot:
        """A slot for some bytes."""
        size = _whole_blocks(size)
        with self.lock:
            self._take_back()
            if self.free.get(size):
                return Slot(self.returned, self.free[size].pop(), size)
            try:
                memory = mmap.mmap(-1, size)
            except OSError as error:
                # What rests for other sizes may be what is missing.
                self._forget_free()
                try:
                    memory = mmap.mmap(-1, size)
                except OSError:
                    raise OffloadError(
                        f"there is no host memory for another {format_bytes(size)} of offloaded values ({error.strerror});"
                        " raise the budget, or give a folder instead of 'host'"
                    ) from None
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            self.maps[address] = memory
            return Slot(self.returned, address, size)

    def write(self, slot: Slot, address: int, size: int) -> None:
        """Copies memory into a slot."""
        ctypes.memmove(slot.start, address, size)

    def read(self, slot: Slot, address: int, size: int) -> None:
        """Copies a slot into memory."""
        ctypes.memmove(address, slot.start, size)

    @property
    def n_used(self) -> int:
        """How many slots are in use."""
        with self.lock:
            self._take_back()
            return len(self.maps) - sum(map(len, self.free.values()))

    def _take_back(self) -> None:
        while self.returned:
            start, size = self.returned.popleft()
            self.free.setdefault(size, []).append(start)

    def _forget_free(self) -> None:
        for starts in self.free.values():
            for start in starts:
                del self.maps[start]
        self.free.clear()


class FileSpace:
    """A file without a name in a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()
        self.name = f"a file in {self.folder}"
        self.returned: deque[tuple[int, int]] = deque()
        # Room that is free, by its start, in order; and how long the file is.
        self.free: list[tuple[int, int]] = []
        self.length = 0
        self.lock = threading.Lock()
        self.file = self._open()
        weakref.finalize(self, os.close, self.file)
        self.is_direct = self._try_direct()
        self.buffers = {"write": mmap.mmap(-1, CHUNK), "read": mmap.mmap(-1, CHUNK)}

    def reserve(self, size: int) -> None:
        """Makes the file at least this long."""
        with self.lock:
            if size > self.length:
                self._grow(_whole_blocks(size) - self.length)

    def take(self, size: int) -> Slot:
        """A slot for some bytes: the first room that is large enough, or the end of the file."""
        size = _whole_blocks(size)
        with self.lock:
            self._take_back()
            place = next((place for place, (_, room) in enumerate(self.free) if room >= size), None)
            if place is None:
                start, room = self.free[-1] if self.free else (0, 0)
                is_last = bool(self.free) and start + room == self.length
                self._grow(size - (room if is_last else 0))
                place = len(self.free) - 1
            start, room = self.free[place]
            self.free[place : place + 1] = [(start + size, room - size)] if room > size else []
            return Slot(self.returned, start, size)

    def write(self, slot: Slot, address: int, size: int) -> None:
        """Copies memory into a slot."""
        buffer = self.buffers["write"]
        target = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        for done in range(0, size, CHUNK):
            part = min(CHUNK, size - done)
            ctypes.memmove(target, address + done, part)
            self._transfer(os.pwritev, buffer, slot.start + done, _whole_blocks(part), "written to")
        if not self.is_direct:
            # Without direct access this at least asks the kernel to let go of what has reached the disk.
            os.posix_fadvise(self.file, slot.start, slot.size, os.POSIX_FADV_DONTNEED)

    def read(self, slot: Slot, address: int, size: int) -> None:
        """Copies a slot into memory."""
        buffer = self.buffers["read"]
        source = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        for done in range(0, size, CHUNK):
            part = min(CHUNK, size - done)
            self._transfer(os.preadv, buffer, slot.start + done, _whole_blocks(part), "read from")
            ctypes.memmove(address + done, source, part)

    @property
    def n_used(self) -> int:
        """How many blocks are in use."""
        with self.lock:
            self._take_back()
            return (self.length - sum(room for _, room in self.free)) // BLOCK

    def _transfer(self, call: object, buffer: mmap.mmap, offset: int, size: int, what: str) -> None:
        done = 0
        while done < size:
            try:
                moved = call(self.file, [memoryview(buffer)[done:size]], offset + done)  # type: ignore[operator]
            except OSError as error:
                raise self._failed(f"{format_bytes(size)} could not be {what}", error) from None
            if moved == 0:
                raise OffloadError(f"{self.name} is shorter than what was written to it; is the disk failing?")
            done += moved

    def _take_back(self) -> None:
        has_new = bool(self.returned)
        while self.returned:
            self.free.append(self.returned.popleft())
        if has_new:
            self._join()

    def _join(self) -> None:
        """Makes one of neighbouring rooms."""
        joined: list[tuple[int, int]] = []
        for start, room in sorted(self.free):
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + room)
            else:
                joined.append((start, room))
        self.free = joined

    def _grow(self, size: int) -> None:
        try:
            os.posix_fallocate(self.file, self.length, size)
        except OSError as error:
            raise self._failed(f"{format_bytes(size)} more could not be reserved", error) from None
        self.free.append((self.length, size))
        self.length += size
        self._join()

    def _open(self) -> int:
        try:
            try:
                return os.open(self.folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    raise
                file, path = tempfile.mkstemp(dir=self.folder, prefix="remat-")
                os.unlink(path)
                return file
        except OSError as error:
            raise self._failed("no file could be made", error) from None

    def _try_direct(self) -> bool:
        """Switches direct access on, and tries it: some file systems refuse only when something is written."""
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_DIRECT)
            os.posix_fallocate(self.file, 0, BLOCK)
            os.pwritev(self.file, [mmap.mmap(-1, BLOCK)], 0)
        except OSError as error:
            fcntl.fcntl(self.file, fcntl.F_SETFL, flags)
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise self._failed("a first block could not be written", error) from None
            warnings.warn(
                f"the file system of {self.folder} has no direct access: copies go through the page cache, which holds them in"
                " memory outside of the budget until the kernel has written them",
                BudgetWarning,
                stacklevel=2,
            )
            return False
        self.free, self.length = [(0, BLOCK)], BLOCK
        return True

    def _failed(self, what: str, error: OSError) -> OffloadError:
        remedy = {
            errno.ENOSPC: "free some space there, give another folder, or raise the budget",
            errno.EDQUOT: "free some space there, give another folder, or raise the budget",
            errno.EFBIG: "raise the limit of the size of files (ulimit -f), or give another folder",
            errno.EIO: "the disk may be failing; give another folder",
        }.get(error.errno or 0, "give a folder that can be written")
        return OffloadError(f"offload to {self.folder}: {what} ({error.strerror}); {remedy}")


def _whole_blocks(size: int) -> int:
    return -(-max(size, 1) // BLOCK) * BLOCK
