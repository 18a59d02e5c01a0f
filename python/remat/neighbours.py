"""Modules that are compiled one by one and run within one step, each with a budget of its own.

Blocks of a model that are compiled with plain torch.compile, each with the budget of the model, know nothing of each other: every
plan keeps to the budget, and together they hold several times as much. (Blocks of one class may even share one region, which
then has several calls.) A block begins while others wait for their backward, and what those hold is known. So it is looked at before every
call, which costs little; where steps are measured (`sharing`) nothing of this is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .budget import format_bytes, in_bytes, is_percentage
from .measure import local
from .options import Options
from .runner import Variant

TOGETHER = "remat.compile(model, budget=..., blocks=Block), with the class of the modules or a list of them, gives them one budget"


def excess(variant: Variant, options: Options, arguments: Iterable[Any], waiting: list[Any]) -> str | None:
    """What to say when a call, with what the sessions hold that wait for a backward, is above its budget; a percentage is
    one of the module itself.

    They hold their parameters, and what they saved or, later, their gradients.
    """
    if not waiting or options.budget is None or is_percentage(options.budget):
        return None
    own = {id(argument) for argument in arguments}
    others = {key: leaf for session in waiting for key, reference in session.leaves.items() if (leaf := reference()) is not None}
    parameters = sum(_bytes(leaf) for key, leaf in others.items() if key not in own)
    saved = sum(session.saved_bytes() for session in waiting)
    budget = in_bytes(options.budget, 0)
    need = variant.planned.peak - in_bytes(options.reserved, 0) + parameters + max(saved, parameters)
    if need <= budget:
        return None
    n_calls = sum(len(session.waiting) for session in waiting)
    return (
        f"{n_calls} calls of compiled modules wait for their backward when another one begins. Each has a budget of its own, here"
        f" {format_bytes(budget)}, and together they need at least {format_bytes(need)}. {TOGETHER}; otherwise reserve what the others hold"
    )


def _bytes(leaf: torch.Tensor) -> int:
    return local(leaf).nbytes
