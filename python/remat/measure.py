"""The peak memory of a piece of code.

On the CPU: the bytes of live storages, counted exactly. A dispatch mode sees every operation; each storage that an
operation reads or makes is counted until it is freed, and one that existed before counts from the start. What code
compiled by Inductor allocates or reads passes no dispatch mode and is reported (`allocations`). What the measured code
never touches does not count, so other models in the process do not disturb. Temporaries inside an operation are not
storages; the resident size beside shows them. On a GPU: the statistics of the allocator.
"""

from __future__ import annotations

import resource
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from . import allocations

# A tensor that is made of Python numbers is first seen as the input of these, but it is new.
LIFTS = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default})


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes behind some tensors, each storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def local(tensor: Any) -> torch.Tensor:
    """What this process has of a tensor that is sharded over several."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class measure_peak:  # noqa: N801 (reads as a function: `with measure_peak() as peak`)
    """`with measure_peak() as peak: step()`, then `peak.bytes`.

    `bytes`: the peak. `at`: the operation after which it was reached (CPU). `resident_bytes`: the highest resident size
    that the process ever had. `device`: where it was measured.
    """

    def __init__(self, device: str | torch.device | None = None) -> None:
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.device = torch.device(chosen)
        self.bytes = 0
        self.at = ""
        self.resident_bytes = 0
        self._mode: LiveStorages | None = None

    def __enter__(self) -> measure_peak:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._mode = LiveStorages(self.device.type)
            self._mode.__enter__()
            allocations.listen(self._mode)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mode is None:
            torch.cuda.synchronize(self.device)
            self.bytes = torch.cuda.max_memory_allocated(self.device)
        else:
            allocations.unlisten(self._mode)
            self._mode.__exit__(kind, error, trace)
            self.bytes, self.at = self._mode.peak, self._mode.at
        self.resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class LiveStorages(TorchDispatchMode):
    """Counts the storages of one device type."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.device_type = device_type
        self.live: dict[int, tuple[Any, int]] = {}
        self.current = 0
        self.peak = 0
        self.at = ""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Lets torch.compile work inside the measured code."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in pytree.tree_leaves((args, kwargs)):
            self.see(tensor, is_new=func in LIFTS)
        result = func(*args, **kwargs)
        for tensor in pytree.tree_leaves(result):
            self.see(tensor, is_new=True)
        if self.current > self.peak:
            self.peak, self.at = self.current, str(func)
        return result

    def allocated(self, tensor: torch.Tensor) -> None:
        """Compiled code made a tensor."""
        self.see(tensor, is_new=True)
        if self.current > self.peak:
            self.peak, self.at = self.current, "an allocation of compiled code"

    def read(self, tensor: torch.Tensor) -> None:
        """Compiled code reads a tensor."""
        self.see(tensor, is_new=False)

    def see(self, tensor: Any, *, is_new: bool) -> None:
        """Counts the storage of a tensor, once."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != self.device_type or _is_abstract(tensor):
            return
        if is_traceable_wrapper_subclass(tensor):
            # Such as a sharded tensor: what it wraps has the storage.
            for name in tensor.__tensor_flatten__()[0]:
                self.see(getattr(tensor, name), is_new=is_new)
            return
        size = self.count(tensor.untyped_storage())
        if not is_new:
            # It was alive all the time, unseen.
            self.peak += size

    def count(self, storage: torch.UntypedStorage) -> int:
        """Counts a storage until it is freed, and returns the bytes that were not counted before."""
        key = storage._cdata
        if key in self.live:
            return 0
        size = storage.nbytes()
        self.live[key] = (weakref.ref(storage, lambda _: self._forget(key)), size)
        self.current += size
        return size

    def _forget(self, key: int) -> None:
        self.current -= self.live.pop(key, (None, 0))[1]


def _is_abstract(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no storage: it is only traced, or it is sparse, and its parts are seen by themselves."""
    from torch._subclasses.fake_tensor import FakeTensor

    is_sparse = tensor.layout is not torch.strided
    return isinstance(tensor, FakeTensor) or torch._is_functional_tensor(tensor) or is_sparse
