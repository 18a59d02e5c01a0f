"""Trains PyTorch models inside a memory budget.

    model = remat.compile(model, budget="8GiB")

or `torch.compile(model, backend="remat", options={"budget": "8GiB"})`, or one line in a trainer (docs/trainers.md). Importing this package does not import torch; the
first use of a function that needs it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import import_hook
from ._remat import __version__
from .errors import (
    BudgetExceeded,
    BudgetTooSmall,
    BudgetWarning,
    OffloadError,
    RankFailure,
    RecomputeMismatch,
    RematError,
    ReproducibilityWarning,
)

if TYPE_CHECKING:
    from .api import compile, max_batch, plan
    from .diagnosis import doctor
    from .measure import measure_peak
    from .offload.moments import offload_optimizer
    from .optimizer import optimizer_bytes
    from .options import Options
    from .reports import RegionReport, regions
    from .trainers.lightning import RematCallback as LightningCallback
    from .trainers.transformers import RematCallback
    from .training_plan import TrainingPlan

__all__ = [
    "BudgetExceeded",
    "BudgetTooSmall",
    "BudgetWarning",
    "LightningCallback",
    "OffloadError",
    "Options",
    "RankFailure",
    "RecomputeMismatch",
    "RegionReport",
    "RematCallback",
    "RematError",
    "ReproducibilityWarning",
    "TrainingPlan",
    "__version__",
    "compile",
    "doctor",
    "max_batch",
    "measure_peak",
    "offload_optimizer",
    "optimizer_bytes",
    "plan",
    "regions",
]

# Where the names that need torch or a trainer come from.
_LAZY = {
    "LightningCallback": "trainers.lightning:RematCallback",
    "Options": "options",
    "RegionReport": "reports",
    "RematCallback": "trainers.transformers",
    "TrainingPlan": "training_plan",
    "compile": "api",
    "doctor": "diagnosis",
    "max_batch": "api",
    "measure_peak": "measure",
    "offload_optimizer": "offload.moments",
    "optimizer_bytes": "optimizer",
    "plan": "api",
    "regions": "reports",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    return getattr(importlib.import_module(f".{module}", __name__), attribute or name)


def __dir__() -> list[str]:
    return sorted(__all__)


import_hook.install()
