"""Checks of what the scheduler and the code generator wrote, before it runs. They share no code with either.

- `values`: every value that the graphs read or return stands for the right value of the joint graph.
- `moves`: copies to stores and back are of the right value and store, and whoever needs their end waits for it.
- `lives`: the operations run in the order of the plan, and no storage is held longer than the plan says.
- `source`: the generated Python does what its graph says, and deletes every tensor directly after its last use.

A fault is a bug of ours and is raised before a wrong number can be computed. Time is linear in the size of the graphs.
"""

from __future__ import annotations

from torch import fx

from ..problem import PlanSteps, Step
from . import lives, values
from .source import check_source

__all__ = ["check_graphs", "check_source"]


def check_graphs(step: Step, plan: PlanSteps, forward: fx.Graph, backward: fx.Graph, number: int | None) -> None:
    """Raises unless the two graphs carry out a plan of the step."""
    lives.check(step, plan, values.check(step.region, forward, backward, number, step.stores))
