"""Measures the memory of a training step while it runs, from inside.

A step begins in a compiled forward and ends with autograd, so no `with` statement spans it. The measuring mode is put
*below* all modes that the caller has entered or will enter: their `with` statements then end in the right order, and
taking the mode away does not disturb them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import allocations
from .measure import LiveStorages, storage_bytes

# Whether there may be modes to take away.
_has_ended = False


class Watch(LiveStorages):
    """Live storages, and the highest count since the last mark."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.highest = 0
        self.is_running = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.is_running:
            return func(*args, **(kwargs or {}))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.highest = max(self.highest, self.current)
        return result

    def allocated(self, tensor: torch.Tensor) -> None:
        """Compiled code made a tensor."""
        super().allocated(tensor)
        self.highest = max(self.highest, self.current)

    def own(self, tensors: Iterable[Any]) -> int:
        """Takes note of tensors that were there before, and returns the bytes of their storages."""
        here = [t for t in tensors if isinstance(t, torch.Tensor) and t.device.type == self.device_type]
        for tensor in here:
            self.see(tensor, is_new=False)
        self.highest = max(self.highest, self.current)
        return storage_bytes(here)

    def mark(self) -> int:
        """The highest count since the last mark."""
        highest, self.highest = self.highest, self.current
        return highest

    def start(self) -> bool:
        """Begins to count, where that is possible."""
        self.is_running = _restack(lambda modes: [self, *modes])
        if self.is_running:
            allocations.listen(self)
        return self.is_running

    def stop(self) -> None:
        """Ends counting. The mode itself goes with the next call of `clear`."""
        global _has_ended
        _has_ended = True
        self.is_running = False
        allocations.unlisten(self)
        self.live.clear()


def clear() -> None:
    """Takes away the modes that have ended.

    Autograd restores the modes of its caller when backward returns, so nothing that ends there can be taken away there.
    """
    global _has_ended
    if not _has_ended:
        return
    _has_ended = False
    _restack(lambda modes: [mode for mode in modes if not isinstance(mode, Watch) or mode.is_running])


def _restack(change: Callable[[list[Any]], list[Any]]) -> bool:
    """Replaces the modes that are active in this thread, the lowest first."""
    stack = torch._C
    modes = [stack._get_dispatch_stack_at(index) for index in range(stack._len_torch_dispatch_stack())]
    if any(getattr(mode, "_mode_key", None) is not None for mode in modes):
        # Something is being traced; its modes have places of their own.
        return False
    for _ in modes:
        stack._pop_torch_dispatch_stack(None)
    for mode in change(modes):
        stack._push_on_torch_dispatch_stack(mode)
    return True
