"""A training run within a budget: what the callbacks of all trainers have in common.

In: the module, its optimizers, and how many batches the trainer holds at once. The module is compiled in place at its first
training call, when the batch and the state of a resumed optimizer are known. Out: a module that
stays within the budget, one line in the log when the plan is made and one at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .. import api
from ..budget import format_bytes, in_bytes
from ..in_place import restore
from ..log import say
from ..optimizer import optimizer_bytes
from ..options import Options
from ..reports import RegionReport, regions


class Run:
    """One model in one training run."""

    def __init__(
        self,
        module: nn.Module,
        optimizers: Iterable[torch.optim.Optimizer],
        *,
        n_batches_ahead: int = 0,
        bypass: Callable[[nn.Module], bool] = lambda module: False,
        **options: Any,
    ) -> None:
        Options.parse(options)
        self.module = module
        self.optimizers = list(optimizers)
        self.n_batches_ahead = n_batches_ahead
        # Calls of the module that are no calls of its own forward.
        self.bypass = bypass
        self.options = options
        self.before: list[RegionReport] = []
        self.has_begun = False

    def begin(self) -> None:
        """Has the module compiled at its first call that trains it."""
        self.before = regions()
        self.module._compiled_call_impl = self._first_call

    def end(self) -> None:
        """Gives the module back as it was, and says what was compiled."""
        restore(self.module)
        if self.has_begun:
            say(f"done; {_describe(self.reports())}{_measured()}")

    def reports(self) -> list[RegionReport]:
        """What was compiled since the run began."""
        return [report for report in regions() if all(report is not old for old in self.before)]

    def reserved(self, batch: Any) -> int:
        """Bytes that are held beside the step of the module: optimizers, and batches that wait."""
        tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        waiting = self.n_batches_ahead * sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        state = sum(optimizer_bytes(optimizer) for optimizer in self.optimizers)
        return in_bytes(self.options.get("reserved", 0), 0) + state + waiting

    def _first_call(self, *args: Any, **kwargs: Any) -> Any:
        is_training = self.module.training and torch.is_grad_enabled()
        if not is_training or self.bypass(self.module):
            return self.module._call_impl(*args, **kwargs)
        api.compile(self.module, **{**self.options, "reserved": self.reserved((args, kwargs))})
        compiled: Any = self.module._compiled_call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.module._call_impl(*args, **kwargs) if self.bypass(self.module) else compiled(*args, **kwargs)

        self.module._compiled_call_impl = call
        result = call(*args, **kwargs)
        self.has_begun = True
        say(_describe(self.reports()))
        return result


def _describe(reports: list[RegionReport]) -> str:
    """One line over all plans, for parts, shapes or gradients that accumulate: the largest of them sets the peak."""
    if not reports:
        return "nothing was compiled"
    largest = max(reports, key=lambda report: report.predicted_peak)
    budget = "no budget" if largest.budget is None else f"budget {format_bytes(largest.budget)}"
    others = f" (the largest of {len(reports)} plans)" if len(reports) > 1 else ""
    return (
        f"{budget}, predicted peak {format_bytes(largest.predicted_peak)} of"
        f" {format_bytes(largest.keep_all_peak)} without recomputation{others}, {largest.n_recomputed} operations run again,"
        f" +{100 * largest.overhead:.1f} % of a step by calculation"
    )


def _measured() -> str:
    """What the allocator of a GPU counted; a CPU has no such statistics."""
    return f", measured {format_bytes(torch.cuda.max_memory_allocated())}" if torch.cuda.is_available() else ""
