"""One budget for a model that torch.compile cuts into several regions.

Where Python code cannot be traced, Dynamo compiles the model in parts, one at a time and while the first step runs: when a
part is planned, the parts after it are not known. What is known is exact: the storages that earlier parts hold at this
moment and, when the model came through `remat.compile`, all its parameters and the gradients that will stand beside them
while a part runs its backward. What is left above that is shared by parameters: a part gets as much of it as it has of
those parameters that no earlier part had, and more only if it cannot live on it. So equal blocks get equal shares, and
the last part gets the rest. Where the model is not known, a part that others follow gets half.

A session is one call of torch.compile; all its parts get the same options object.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from .errors import BudgetWarning

_sessions: dict[int, Session] = {}


class Session:
    """What the parts of one model hold."""

    def __init__(self, options: Any) -> None:
        # Kept alive, because the identity of the options names the session.
        self.options = options
        self.held: dict[int, Any] = {}
        # Storages of parameters that belong to a part which was already planned.
        self.covered: set[int] = set()
        self.model: Callable[[], nn.Module | None] = lambda: None
        # Whether any region so far was only a part of the model.
        self.is_cut = False
        self.has_warned = False
        # Regions that were captured while gradients were wanted.
        self.n_regions = 0

    def know(self, model: Any) -> None:
        """Tells which model is compiled, where that is known."""
        if isinstance(model, nn.Module):
            self.model = weakref.ref(model)

    def portion(self, inputs: Iterable[Any], *, is_followed: bool) -> float:
        """The part of what is left that a region with these inputs may use; everything when it is the whole model."""
        if not self.is_cut or not torch.is_grad_enabled():
            return 1.0
        model = self.model()
        parameters = [] if model is None else [p for p in model.parameters() if p.requires_grad]
        trainable = {_key(parameter): _local(parameter).nbytes for parameter in parameters}
        own = {_key(tensor) for tensor in inputs if isinstance(tensor, torch.Tensor)} & trainable.keys()
        if own and own <= self.covered:
            # All parts come again, for another shape.
            self.covered = set()
        open_bytes = sum(size for key, size in trainable.items() if key not in self.covered)
        own_bytes = sum(trainable[key] for key in own - self.covered)
        self.covered |= own
        if own_bytes:
            return own_bytes / open_bytes
        return 0.5 if is_followed else 1.0

    def outside_bytes(self, inputs: Iterable[Any]) -> int:
        """Bytes that are held while a part with these inputs runs, beside what its own graph holds."""
        if not self.is_cut:
            return 0
        own = {_key(tensor) for tensor in inputs if isinstance(tensor, torch.Tensor)}
        others = {key: storage.nbytes() for key, reference in self.held.items() if (storage := reference()) is not None}
        gradients = 0
        model = self.model()
        if model is not None:
            for tensor in (*model.parameters(), *model.buffers()):
                others[_key(tensor)] = _local(tensor).untyped_storage().nbytes()
                if tensor.requires_grad and _key(tensor) not in own:
                    gradients += _local(tensor).nbytes
        return gradients + sum(size for key, size in others.items() if key not in own)

    def warn_of_cut(self) -> None:
        """Warns, once per model, that the budget is shared."""
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(
                "torch.compile cut the model at a graph break, so its parts are planned one by one and share the budget:"
                " each part gets a share by its parameters. Remove the break for a better plan"
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


def _key(tensor: torch.Tensor) -> int:
    return _local(tensor).untyped_storage()._cdata


def _local(tensor: Any) -> torch.Tensor:
    """What this process has of a tensor that is sharded over several."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def session(options: Any) -> Session:
    """The session of a call of torch.compile."""
    if id(options) not in _sessions:
        _sessions[id(options)] = Session(options)
    return _sessions[id(options)]


class CaptureCheck:
    """After the first training step of a compiled module: was anything of it captured?

    torch.compile runs what it cannot trace as it is, without a word to the backend; then no budget holds, and the caller
    must know. A hook of the module, which takes itself away after that step. Copies of the module do not check again.
    """

    def __init__(self, session: Session | None, compiled: nn.Module | None) -> None:
        self.session = session
        self.handle = None if compiled is None else compiled.register_forward_hook(self)

    def __call__(self, compiled: nn.Module, arguments: Any, result: Any) -> None:
        """Warns where the step ran outside of all regions."""
        if not torch.is_grad_enabled() or not any(p.requires_grad for p in compiled.parameters()):
            return
        if self.handle is not None:
            self.handle.remove()
        if self.session is not None and self.session.n_regions == 0:
            warnings.warn(
                "torch.compile captured no part of the model, so it ran as it is and no budget holds. TORCH_LOGS=graph_breaks"
                " tells why; remat.compile(..., fullgraph=True) makes it an error",
                BudgetWarning,
                stacklevel=2,
            )

    def __reduce__(self) -> Any:
        return (CaptureCheck, (None, None))


def share(budget: int, base: int, portion: float) -> int:
    """The budget of a part; `base` is what it holds anyway."""
    return base + int(portion * max(budget - base, 0))
