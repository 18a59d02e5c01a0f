"""Calls of a compiled module in which no region ran.

torch.compile runs what it cannot trace, or what came in too many shapes, as it is and without a word to the backend; then
no budget holds, and the caller must know. After each call of a module that is compiled in place it is known whether a region
ran; otherwise Dynamo's own log tells when it gives a function up.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from . import sharing, torch_compat
from .options import Options
from .sharing import Session

REMEDY = "Use dynamic=True for batches of many shapes, or raise torch._dynamo.config.recompile_limit"


def check_capture(session: Session, module: nn.Module, n_runs: int) -> None:
    """After a call of a compiled module: did it run in a region? `n_runs` is the count before the call."""
    if session.n_runs != n_runs or not torch.is_grad_enabled() or not any(p.requires_grad for p in module.parameters()):
        return
    session.n_outside += 1
    if session.n_regions == 0:
        session.say(
            "nothing",
            "torch.compile captured no part of the model, so it ran as it is and no budget holds. TORCH_LOGS=graph_breaks"
            " tells why; remat.compile(..., fullgraph=True) makes it an error",
        )
    else:
        limit = getattr(torch._dynamo.config, "recompile_limit", 8)
        session.say(
            "limit",
            f"{type(module).__name__} ran uncompiled, so the budget did not hold in this step: torch.compile gives up after"
            f" {limit} compilations of a function. {REMEDY}",
        )


def tell_of_limit() -> None:
    """Has models that are compiled with plain torch.compile say it when Dynamo gives a function up."""

    def tell(function: str, limit: int, options: Any) -> None:
        session = sharing.session(options)
        if session.is_measurable or Options.parse(options).budget is None:
            return
        session.say(
            "limit",
            f"torch.compile gives up {function} after {limit} compilations. From now on other shapes run uncompiled, and the"
            f" budget does not hold in their steps. {REMEDY}",
        )

    torch_compat.when_compiling_ends(tell)
