"""What is assumed of the caller before the first step was measured: a loss outside of the model, who holds the outputs, and hooks
that leave the gradients they are called with.

Assumptions must not refuse a budget that holds without them. So a step that does not fit is tried with fewer
of them (`attempts`), and the first step, in which everything is measured (`sharing`), runs by a plan that leaves as much
room between forward and backward for an unknown loss as the budget allows (`with_room`). The steps after it no longer need
the room that was left in vain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from . import torch_compat
from .planner import book_of, find_if_any
from .problem import LOSS_BYTES, Outside, Step, loss_bytes, output_values, with_outside
from .release import given_values
from .runner import Runner, Variant, buckets

# Room that is tried, by halving, as multiples of a cross entropy: one-hot targets, a teacher's probabilities and their logarithms
# need up to five times as much. The second number is how much of it may last until backward ends: targets that the caller
# holds, the storage behind a loss.
MORE = (
    (8.0, 1.0), (6.0, 1.0), (4.5, 1.0), (3.5, 1.0), (3.5, 0.0), (2.5, 0.5), (2.5, 0.0), (2.0, 0.5), (2.0, 0.0), (1.5, 0.5), (1.5, 0.0),
)  # fmt: skip
# The same where not even a cross entropy fits.
LESS = ((0.75, 0.0), (0.5, 0.0), (0.25, 0.0))
UNSEEN = (
    "the budget leaves no room for a loss outside of the model, or for outputs that are kept until backward ends, and without"
    " remat.compile(model, ...) no step is measured: whether it can be kept is not known"
)
Sizes = tuple[int, ...]


def attempts(runner: Runner, sizes: Sizes) -> Iterator[tuple[Sizes, Step]]:
    """The sizes and steps to plan for, in order: the top of the bucket, the size itself, then with fewer assumptions."""
    for attempt in dict.fromkeys([buckets(sizes), sizes]):
        yield attempt, runner.step_for(attempt)
    step = runner.step_for(sizes)
    if not step.region.has_loss_inside:
        yield sizes, with_outside(step, dataclasses.replace(step.outside, between=0))
    dropped = _droppable_bytes(step)
    if dropped or torch_compat.frees_tangents():
        is_free = torch_compat.frees_tangents()
        outside = Outside(step.outside.always - dropped, forward=dropped, between=0, frees_tangents=is_free, kept=step.outside.kept)
        yield sizes, with_outside(step, outside)


def is_relaxed(step: Step) -> bool:
    """Whether a step leaves out what is assumed at first."""
    return step.outside.between is not None


def held_always(step: Step) -> int:
    """What is held outside during the whole step, also where outputs were taken for dropped."""
    return step.outside.always + step.outside.forward


def _droppable_bytes(step: Step) -> int:
    """Bytes of the outputs that end with forward where the caller drops them: backward does not read them."""
    region = step.region
    read = {value for op in region.ops if op.is_backward for value in op.reads}
    dropped = sum(region.values[value].bytes for value in output_values(region) - read)
    # The value of a loss is held by whoever calls its backward.
    dropped -= LOSS_BYTES if region.has_loss_inside else 0
    # Taken from what is held during the whole step, of which the value of an assumed loss is no part.
    return min(max(dropped, 0), region.fixed_bytes + step.outside.always)


def with_room(runner: Runner, variant: Variant, budget: int) -> Variant:
    """The plan with the most room that was found; the given one where no more can be had, or where no loss is outside.

    Inductor's code for another plan would have to be compiled, so there the given one is kept.
    """
    variant = _with_kept_gradients(runner, variant, budget)
    step, options, found = variant.step, runner.options, None
    if runner.is_fused or step.region.has_loss_inside:
        return variant
    rooms = MORE if step.outside.between is None else LESS
    # Everything from `high` on is taken to fit, nothing before `low`.
    low, high, place = 0, len(rooms), 0
    while low < high:
        roomy = _with_multiple(step, *rooms[place])
        planned = find_if_any(roomy, budget, options, book_of(roomy, options))
        if planned is None:
            low = place + 1
        else:
            found, high = (roomy, planned), place
        place = (low + high) // 2
    return variant if found is None else runner.write(*found)


def _with_kept_gradients(runner: Runner, variant: Variant, budget: int) -> Variant:
    """The plan that holds although hooks leave every gradient, where nobody has said that they free them and such a plan is found."""
    if runner.receiver is None or runner.options.releases_gradients is not None:
        return variant
    step = with_outside(variant.step, dataclasses.replace(variant.step.outside, kept=frozenset(given_values(variant.step.region))))
    planned = find_if_any(step, budget, runner.options, book_of(step, runner.options))
    return variant if planned is None else runner.write(step, planned)


def _with_multiple(step: Step, multiple: float, lasting_multiple: float) -> Step:
    """The step with this much room, and with the value of the loss and its gradient."""
    outside, assumed = step.outside, loss_bytes(step.region)
    lasting = int(lasting_multiple * assumed)
    between = int(multiple * assumed) - lasting
    always = outside.always + LOSS_BYTES
    return with_outside(step, dataclasses.replace(outside, always=always, backward=outside.backward + lasting, between=between))
