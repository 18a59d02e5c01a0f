"""Memory that compiled code takes past torch's dispatcher.

The wrappers that Inductor writes allocate through a function of their own, and their kernels read tensors through pointers, so a
dispatch mode sees neither. While somebody listens, those functions are replaced in every wrapper that is loaded, and where
wrappers that are loaded later find them. At other times nothing is replaced and nothing costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

# The names in a wrapper, and those of the functions behind them.
ALLOCATIONS = {"empty_strided_cpu": "_empty_strided_cpu", "empty_strided_cpu_pinned": "_empty_strided_cpu_pinned"}
# Every wrapper checks its inputs with one of these before it reads them.
CHECKS = {"assert_size_stride": "assert_size_stride", "assert_size_stride_grouped": "assert_size_stride_grouped"}


class Listener(Protocol):
    """Somebody who counts memory."""

    def allocated(self, tensor: torch.Tensor) -> None:
        """A tensor was made."""

    def read(self, tensor: torch.Tensor) -> None:
        """A tensor is about to be read."""


_listeners: list[Listener] = []
# Original functions and what replaces them, by their names in a wrapper.
_replaced: dict[str, tuple[Any, Any]] = {}


def listen(listener: Listener) -> None:
    """Tells a listener about every tensor, until `unlisten`."""
    if not _listeners:
        _install()
    _listeners.append(listener)


def unlisten(listener: Listener) -> None:
    """Ends `listen`."""
    if listener in _listeners:
        _listeners.remove(listener)
        if not _listeners:
            _remove()


def _install() -> None:
    functions = _functions()
    for name, function in (ALLOCATIONS | CHECKS).items():
        original = getattr(functions, function, None)
        if original is not None:
            reporting = _allocating(original) if name in ALLOCATIONS else _checking(original)
            _replaced[name] = (original, reporting)
            setattr(functions, function, reporting)
    for wrapper in _wrappers():
        for name, (original, reporting) in _replaced.items():
            if getattr(wrapper, name, None) is original:
                setattr(wrapper, name, reporting)


def _remove() -> None:
    functions = _functions()
    for name, (original, reporting) in _replaced.items():
        setattr(functions, (ALLOCATIONS | CHECKS)[name], original)
        for wrapper in _wrappers():
            if getattr(wrapper, name, None) is reporting:
                setattr(wrapper, name, original)
    _replaced.clear()


def _allocating(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def allocate(*arguments: Any) -> torch.Tensor:
        tensor = original(*arguments)
        for listener in _listeners:
            listener.allocated(tensor)
        return tensor

    return allocate


def _checking(original: Callable[..., None]) -> Callable[..., None]:
    def check(tensors: Any, *rest: Any) -> None:
        for tensor in tensors if isinstance(tensors, (tuple, list)) else (tensors,):
            for listener in _listeners:
                listener.read(tensor)
        return original(tensors, *rest)

    return check


def _functions() -> Any:
    return torch._C._dynamo.guards


def _wrappers() -> Iterable[Any]:
    """The wrappers that Inductor has loaded, where it is in use."""
    codecache = sys.modules.get("torch._inductor.codecache")
    return [] if codecache is None else list(codecache.PyCodeCache.modules)
