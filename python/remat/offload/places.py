"""One store for each place and kind of device: all models of a process share its channels, as they share the disk."""

from __future__ import annotations

import os

import torch

from ..errors import OffloadError
from .space import FileSpace, HostSpace, Space
from .store import Store, ThreadStore
from .streams import Device, StreamFileStore, StreamStore

HOST = "host"
_open: dict[tuple[str, str], Store] = {}


def store_at(place: str | os.PathLike[str], device: torch.device) -> Store:
    """The store at a place (`host` or a folder) for values of a device. It is opened once."""
    where = HOST if place == HOST else os.path.realpath(os.path.expanduser(place))
    key = (where, str(device))
    if key not in _open:
        _open[key] = _make(where, device)
    return _open[key]


def _make(where: str, device: torch.device) -> Store:
    name = "host memory" if where == HOST else where
    if device.type == "cpu":
        space: Space = HostSpace() if where == HOST else FileSpace(where)
        return ThreadStore(name, space)
    if device.type == "cuda":
        return StreamStore(name, Device(device)) if where == HOST else StreamFileStore(name, Device(device), FileSpace(where))
    raise OffloadError(f"values on the device {device.type} cannot be offloaded; it works with cpu and cuda")
