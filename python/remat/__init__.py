"""Trains PyTorch models inside a memory budget.

    model = remat.compile(model, budget="8GiB")

or `torch.compile(model, backend="remat", options={"budget": "8GiB"})`. Importing this package does not import torch; the
first use of a function that needs it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._remat import __version__
from .errors import BudgetTooSmall, BudgetWarning, RankFailure, RecomputeMismatch, RematError

if TYPE_CHECKING:
    from .api import compile, max_batch, plan
    from .diagnosis import doctor
    from .measure import measure_peak
    from .optimizer import optimizer_bytes
    from .options import Options
    from .reports import RegionReport, regions
    from .training_plan import TrainingPlan

__all__ = [
    "BudgetTooSmall",
    "BudgetWarning",
    "Options",
    "RankFailure",
    "RecomputeMismatch",
    "RegionReport",
    "RematError",
    "TrainingPlan",
    "__version__",
    "compile",
    "doctor",
    "max_batch",
    "measure_peak",
    "optimizer_bytes",
    "plan",
    "regions",
]

# Where the names that need torch come from.
_LAZY = {
    "Options": "options",
    "RegionReport": "reports",
    "TrainingPlan": "training_plan",
    "compile": "api",
    "doctor": "diagnosis",
    "max_batch": "api",
    "measure_peak": "measure",
    "optimizer_bytes": "optimizer",
    "plan": "api",
    "regions": "reports",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
