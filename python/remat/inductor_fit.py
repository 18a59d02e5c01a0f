"""Finds the plan whose code, as Inductor writes it, fits a budget.

The planner counts operation by operation. Inductor fuses, reorders and reuses, so its code holds less or more than a plan says;
how much is known when its wrappers are written (`inductor_peak`). So the planner is asked for several budgets of its own, and
among the plans whose code fits, the cheapest is taken. First comes the cut that torch itself makes, which is what runs
without a budget.

The planner's budgets lie at fixed places between its lowest peak and the one without recomputation, and are searched by halving.
So a search ends after few drafts, they serve all later searches, and a budget that fails has tried the same plans in every process:
the lowest peak among them is a floor that works.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from .budget import format_bytes
from .capture import source_line
from .distributed import watch
from .errors import BudgetTooSmall
from .options import Options
from .pipeline import decide
from .planner import Planned, book_of, find, lowest
from .problem import Step, between_bytes, end_of_step, fixed_bytes, output_values, with_outside
from .runner import Runner, Variant
from .together import Phases, Profile, Together, least_saving, peak

# Places between the lowest peak and the one without recomputation; three drafts find one.
N_PLACES = 8
# How often regions that share a budget are planned again.
ROUNDS = 4


def stated_peak(step: Step, phases: Phases) -> int:
    """The peak of a whole step: the two passes, and what lies between them."""
    region = step.region
    gradients = frozenset().union(*(region.needs[node] for node in region.tangents))
    held = sum(region.values[value].bytes for value in output_values(region) | gradients)
    between = phases.saved + held + between_bytes(step)
    return fixed_bytes(step) + max(phases.forward, between, phases.backward)


def whole(
    runner: Runner, gradients: int, budget_of: Callable[[int], int], say: Callable[[str, str], None]
) -> Variant:
    """The plan for a region that is the whole model, beside gradients of earlier backwards.

    `budget_of` gives the budget from the peak that torch's own cut has. `say` warns.
    """
    plain = stated_peak(runner.step, runner.own_cut().phases)
    budget = budget_of(plain)
    outside = runner.step.outside
    step = with_outside(runner.step, dataclasses.replace(outside, always=outside.always + gradients))
    peak_of: Callable[[Phases], int] = lambda phases: stated_peak(step, phases)  # noqa: E731
    if watch() is None:
        variant = _stated(_search(runner, budget, peak_of), step, budget, peak_of)
    else:
        # Ranks must agree on a plan, and what Inductor writes on one of them is unknown to the others.
        variant = _stated(runner.write(step, decide(step, runner.options)), step, budget, peak_of)
    if variant.planned.peak > budget:
        say(
            "ranks",
            f"the code that Inductor writes for the plan of all ranks holds {format_bytes(variant.planned.peak)} of a budget of"
            f" {format_bytes(budget)}. Ask for a smaller budget, or use compiler='eager'",
        )
    return dataclasses.replace(variant, keep_all_peak=plain)


def together(
    runners: Sequence[Runner], steps: list[Step], profile: Profile, always: int, budget: int, options: Options
) -> list[Variant]:
    """Plans for regions that share a budget, with what was measured around them."""
    if len(runners) == 1:
        peak_of: Callable[[Phases], int] = lambda phases: peak(steps, [phases], profile, always)  # noqa: E731
        return [_stated(_search(runners[0], budget, peak_of), steps[0], budget, peak_of)]
    shares = Together(steps, profile, always, options)
    target = budget
    for _ in range(ROUNDS):
        try:
            plans = shares.plan(target)
        except BudgetTooSmall:
            break
        variants = _written(runners, steps, plans)
        reached = peak(steps, [variant.phases for variant in variants], profile, always)
        if reached <= budget:
            return variants
        target -= reached - budget
    variants = _written(runners, steps, [least_saving(step, options) for step in steps])
    reached = peak(steps, [variant.phases for variant in variants], profile, always)
    if reached > budget:
        raise _too_small(steps[0], budget, reached)
    return variants


def _search(runner: Runner, budget: int, peak_of: Callable[[Phases], int]) -> Variant:
    """The cheapest plan that fits, of those that are looked at."""
    tried = [runner.own_cut()]
    if peak_of(tried[0].phases) <= budget:
        return tried[0]
    low, high = -1, N_PLACES
    while high - low > 1:
        place = (low + high) // 2
        tried.append(_at(runner, place))
        low, high = (place, high) if peak_of(tried[-1].phases) <= budget else (low, place)
    fitting = [variant for variant in tried if peak_of(variant.phases) <= budget]
    if not fitting:
        raise _too_small(runner.step, budget, min(peak_of(variant.phases) for variant in tried))
    return min(fitting, key=lambda variant: (variant.planned.cost, peak_of(variant.phases)))


def _at(runner: Runner, place: int) -> Variant:
    """The plan for the planner's budget at one of the places, without what is held outside: that changes no plan."""
    if place not in runner.places:
        step, options = runner.step, runner.options
        book = book_of(step, options)
        planned = lowest(step, options, book)
        if place > 0:
            planned = find(step, planned.peak + (step.keep_all_peak - planned.peak) * place // N_PLACES, options, book)
        runner.places[place] = runner.write(step, planned)
    return runner.places[place]


def _written(runners: Sequence[Runner], steps: list[Step], plans: list[Planned]) -> list[Variant]:
    return [runner.write(step, planned) for runner, step, planned in zip(runners, steps, plans, strict=True)]


def _stated(variant: Variant, step: Step, budget: int, peak_of: Callable[[Phases], int]) -> Variant:
    """The variant with the peak that its code has."""
    planned = dataclasses.replace(variant.planned, budget=budget, peak=peak_of(variant.phases))
    return dataclasses.replace(variant, step=step, planned=planned)


def _too_small(step: Step, budget: int, floor: int) -> BudgetTooSmall:
    at_end, last = end_of_step(step)
    op = step.ops[last]
    name = "the end of the step" if op is None else op.node.name
    message = (
        f"the budget of {format_bytes(budget)} is too small for the code that Inductor writes: no plan was found; the floor is"
        f" {format_bytes(floor)} ({floor} bytes), and {format_bytes(at_end)} are held when the step ends;"
        " raise the budget, make the batch smaller, lower the reserved memory, or try compiler='eager'"
    )
    source = None if op is None else source_line(op.node)
    return BudgetTooSmall(message, budget=budget, lowest_peak=floor, proven_floor=at_end, op=name, source=source)
