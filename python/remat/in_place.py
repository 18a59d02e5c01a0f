"""Compiles a module without changing what it is.

`torch.compile(model)` returns a wrapper: another class, another signature, `_orig_mod.` in front of every key of its state
dict. Trainers look at all three, and checkpoints with such keys load nowhere else. So the call of the module is replaced, as
`nn.Module.compile` does: the module stays the same object with the same keys, and what copies or pickles it leaves the
compiled call behind.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from . import torch_compat
from .backend import backend
from .occasions import shapes_of
from .options import Options
from .sharing import Session
from .uncompiled import check_capture


class CompiledCall:
    """What runs when the module is called."""

    def __init__(self, module: nn.Module, session: Session, options: dict[str, Any], **arguments: Any) -> None:
        self.module = module
        self.session = session
        session.is_measurable = True
        # It may also come from the environment.
        self.has_budget = Options.parse(options).budget is not None
        self.device_type = next((p.device.type for p in module.parameters()), "cpu")
        self.run = torch.compile(module._call_impl, backend=backend, options=options, **arguments, **isolation())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One call of the module."""
        if torch.compiler.is_compiling():
            # A larger model around this one is being compiled, and has its own plan.
            return self.module._call_impl(*args, **kwargs)
        with torch_compat.uncut_by_ddp():
            return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        n_runs = self.session.n_runs
        if not self.has_budget:
            return self.run(*args, **kwargs)
        shapes = (self.module.training, *shapes_of(tree_leaves((args, kwargs))))
        self.session.enter(self.device_type, shapes)
        try:
            result = self.run(*args, **kwargs)
        finally:
            self.session.leave()
        check_capture(self.session, self.module, n_runs)
        return result


def compile_in_place(module: nn.Module, session: Session, options: dict[str, Any], **arguments: Any) -> None:
    """Has every later call of `module` go through the backend. A second time replaces the first."""
    module._compiled_call_impl = CompiledCall(module, session, options, **arguments)


def restore(module: nn.Module) -> None:
    """Undoes `compile_in_place`."""
    module._compiled_call_impl = None


def isolation() -> dict[str, Any]:
    """Arguments that give a call of torch.compile its own cache, where torch has them.

    Otherwise two modules of one class share compiled code, also across budgets that compare equal, and one recompile limit.
    """
    return {"isolate_recompiles": True} if "isolate_recompiles" in inspect.signature(torch.compile).parameters else {}
