"""Finds the plan for a budget, and remembers which plans were handed out.

In: a `Step`, a budget in bytes and options. Out: a plan as JSON that the planner's independent checker accepted.

The planner is a heuristic with a time to stop, so for two budgets it may find a *higher* peak for the lower one. People
would rightly call that broken: see the rule in `Book`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .budget import format_bytes
from .capture import source_line
from .errors import BudgetTooSmall
from .options import Options
from .postpone import postponed
from .problem import PlanSteps, Step, end_of_step, fixed_bytes

# Work per plan unless the caller says otherwise: planning must not be felt.
DEFAULT_EFFORT = 0.05
# How often a lower peak is asked for when the budget was not met.
ATTEMPTS = 4
# What the budget is then multiplied with, one after the other: asked for what it has just reached, the planner may reach a little more,
# and again, and again.
WIDER = (1.02, 1.05, 1.1, 1.2, 1.4, 2.0)
# Why a plan is above the budget that fitted before its gradients were postponed.
LATE = "gradients are given away late"


@dataclass(repr=False)
class Planned:
    """A plan that fits its budget."""

    budget: int
    text: str
    peak: int
    cost: float
    lower_bound: float | None

    @staticmethod
    def read(text: str, budget: int) -> Planned:
        """From `remat.plan/1` or `/2`."""
        plan = json.loads(text)
        return Planned(budget, text, plan["peak_bytes"], plan["cost"], plan["lower_bound"])

    @cached_property
    def steps(self) -> PlanSteps:
        """Computes, frees and moves, in order."""
        return [tuple(step) for step in json.loads(self.text)["steps"]]


class Book:
    """The plans that were handed out for one problem.

    Rule: along ascending budgets, no peak falls. A plan found for a budget may be lower than one handed out for a smaller
    budget, or higher than one for a larger budget; the plan handed out fits in both cases and is given again.
    """

    def __init__(self) -> None:
        self.plans: list[Planned] = []

    def settle(self, found: Planned) -> Planned:
        """The plan to use for a budget, given the best one found."""
        below = [plan for plan in self.plans if plan.budget <= found.budget]
        above = [plan for plan in self.plans if plan.budget >= found.budget and plan.peak <= found.budget]
        choice = found
        for plan in below:
            if plan.peak > choice.peak:
                choice = plan
        for plan in above:
            if plan.peak < choice.peak:
                choice = plan
        self.plans.append(Planned(found.budget, choice.text, choice.peak, choice.cost, choice.lower_bound))
        return self.plans[-1]

    def known(self, budget: int) -> Planned | None:
        """The plan that was handed out for exactly this budget."""
        return next((plan for plan in self.plans if plan.budget == budget), None)


# Plans that were handed out, by graph, speed of its stores, planner and effort.
_books: dict[tuple[object, ...], Book] = {}


def book_of(step: Step, options: Options) -> Book:
    """The plans that were handed out for this graph."""
    speeds = None if step.stores is None else step.stores.speeds
    return _books.setdefault((step.hash, speeds, options.planner, options.effort, options.time_limit), Book())


def find(step: Step, budget: int | None, options: Options, book: Book) -> Planned:
    """A plan within the budget, or an error with the smallest budget that works."""
    planned = find_if_any(step, budget, options, book)
    if planned is None:
        assert budget is not None, "without a budget everything is kept"
        raise _too_small(step, budget, options, book)
    return planned


def find_if_any(step: Step, budget: int | None, options: Options, book: Book) -> Planned | None:
    """A plan within the budget, where one is found."""
    if budget is None or budget >= step.keep_all_peak:
        return book.settle(Planned.read(step.keep_all, budget or step.keep_all_peak))
    known = book.known(budget)
    if known is not None:
        return known
    text, reason = _solve(step, budget, options)
    if reason is None:
        return book.settle(Planned.read(text, budget))
    # A plan that was found for another budget may fit here.
    fitting = [plan for plan in book.plans if plan.peak <= budget]
    if fitting:
        best = min(fitting, key=lambda plan: (plan.cost, plan.peak))
        return book.settle(Planned.read(best.text, budget))
    return None


def lowest(step: Step, options: Options, book: Book) -> Planned:
    """The plan with the lowest peak that the planner reaches."""
    target = proven_floor(step)["bytes"]
    found = Planned.read(step.keep_all, step.keep_all_peak)
    for factor in (*(1.0,) * ATTEMPTS, *WIDER):
        target = int(factor * target)
        if target >= found.peak:
            break
        text, reason = _solve(step, target, options)
        reached = Planned.read(text, target)
        # The answer to a budget that is not met is no plan, except for this reason.
        if reason in (None, LATE) and reached.peak < found.peak:
            found = reached
        if reason is None:
            break
        target = max(reached.peak, target + 1)
    known = [plan for plan in book.plans if plan.peak < found.peak]
    return min(known, key=lambda plan: plan.peak) if known else book.settle(Planned.read(found.text, found.peak))


def proven_floor(step: Step) -> dict[str, Any]:
    """The peak that no plan goes below, and the node that sets it.

    Either what one operation needs at once, or what is live when the step ends: all gradients and outputs.
    """
    floor: dict[str, Any] = json.loads(step.problem.floor())
    at_end, last = end_of_step(step)
    op = step.ops[last]
    if at_end > floor["bytes"] and op is not None:
        floor |= {"bytes": at_end, "node": last, "name": op.node.name}
    return floor


def _solve(step: Step, budget: int, options: Options) -> tuple[str, str | None]:
    effort = options.effort
    if effort is None and options.time_limit is None:
        effort = DEFAULT_EFFORT
    target, late = budget, ""
    for _ in range(ATTEMPTS):
        text, reason = step.problem.solve(target, planner=options.planner, effort=effort, time_limit=options.time_limit)
        if reason is not None:
            return (late, LATE) if late else (text, reason)
        late = postponed(step, text)
        excess = int(json.loads(late)["peak_bytes"]) - budget
        if excess <= 0:
            return late, None
        # What is held longer than planned is asked for as room.
        target -= excess
    return late, LATE


def _too_small(step: Step, budget: int, options: Options, book: Book) -> BudgetTooSmall:
    floor = proven_floor(step)
    reached = lowest(step, options, book)
    op = step.ops[floor["node"]] if floor["node"] is not None else None
    source = source_line(op.node) if op is not None else None
    where = f"{floor['name']}{f' at {source}' if source else ''}"
    is_proved = budget < floor["bytes"]
    verdict = "no plan can fit" if is_proved else "no plan was found"
    message = (
        f"the budget of {format_bytes(budget)} is too small: {verdict}; the floor is {format_bytes(reached.peak)}"
        f" ({reached.peak} bytes), and no plan is below {format_bytes(floor['bytes'])}, set by {where};"
        f" {format_bytes(fixed_bytes(step))} of it are parameters, batch and what is reserved;"
        " raise the budget, make the batch smaller, or lower the reserved memory"
    )
    return BudgetTooSmall(
        message, budget=budget, lowest_peak=reached.peak, proven_floor=floor["bytes"], op=floor["name"], source=source
    )
