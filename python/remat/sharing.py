"""One budget for a model that torch.compile cuts into several regions.

Where Python code cannot be traced, Dynamo compiles the model in parts, one at a time and while the first step runs: when a
part is planned, the parts after it are not known. What is known is exact: the storages that earlier parts hold at this
moment. So a part that is followed by others gets half of what is left above what it needs to hold anyway, and more
only if it cannot live on that; the last part gets the rest.

A session is one call of torch.compile; all its parts get the same options object.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .errors import BudgetWarning

_sessions: dict[int, Session] = {}


class Session:
    """What the parts of one model hold."""

    def __init__(self, options: Any) -> None:
        # Kept alive, because the identity of the options names the session.
        self.options = options
        self.held: dict[int, Any] = {}
        self.n_cuts = 0

    def held_bytes(self) -> int:
        """Bytes of the storages that earlier parts hold now."""
        alive = (reference() for reference in self.held.values())
        return sum(storage.nbytes() for storage in alive if storage is not None)

    def note_cut(self) -> None:
        """Warns, once per model, that the budget is shared."""
        self.n_cuts += 1
        if self.n_cuts == 1:
            warnings.warn(
                "torch.compile cut the model at a graph break, so its parts are planned one by one and share the budget:"
                " each part but the last gets half of what is left. Remove the break for a better plan"
                " (TORCH_LOGS=graph_breaks names it)",
                BudgetWarning,
                stacklevel=2,
            )

    def _forget(self, key: int, _: Any) -> None:
        self.held.pop(key, None)

    def watched(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Runs forward and remembers the storages that it reads and returns."""

        def run_and_note(arguments: list[Any]) -> Any:
            inputs = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
            results = run(arguments)
            for tensor in (*inputs, *(r for r in results if isinstance(r, torch.Tensor))):
                storage = tensor.untyped_storage()
                key = storage._cdata
                self.held[key] = weakref.ref(storage, functools.partial(self._forget, key))
            return results

        run_and_note._boxed_call = True  # type: ignore[attr-defined]
        return run_and_note


def session(options: Any) -> Session:
    """The session of a call of torch.compile."""
    if id(options) not in _sessions:
        _sessions[id(options)] = Session(options)
    return _sessions[id(options)]


def share(budget: int, base: int) -> int:
    """The budget of a part that others follow; `base` is what it holds anyway."""
    return base + max(budget - base, 0) // 2
