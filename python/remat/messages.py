"""What is said when a step does not keep the budget for a reason outside of its plan: the number and the remedy.

Some functions are given what was found, others look themselves, and have nothing to say where all is well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .automatic import unreserved_state
from .budget import format_bytes, in_bytes, is_percentage
from .errors import BudgetTooSmall
from .neighbours import TOGETHER
from .options import Options
from .runner import Variant
from .unknown_loss import held_always

CUT = (
    "torch.compile cut the model at a graph break. The first step recomputes as much as it can; when it ends, the parts are planned"
    " together. Remove the break for a better plan (TORCH_LOGS=graph_breaks names it)"
)


def kept_by_hooks(kept: int) -> str:
    """Gradients are alive that the plan took for consumed."""
    return (
        f"{format_bytes(kept)} of gradients are alive after the hooks of their parameters, and the step was planned without them."
        " They are counted from now on"
    )


def earlier_gradients(gradients: int, error: BudgetTooSmall) -> str:
    """With the gradients that are there when a step begins, there is no plan."""
    return (
        f"{format_bytes(gradients)} of gradients from earlier backwards or in buckets of DDP are alive when a step begins, and with them"
        f" the budget of {format_bytes(error.budget)} cannot be kept: {format_bytes(error.floor)} are needed. Raise the budget, or free"
        " them before the step with zero_grad(set_to_none=True)"
    )


def forgotten_optimizer(options: Options, leaves: dict[int, Any], variants: Iterable[Variant]) -> str | None:
    """The optimizers of the model hold more than is reserved, and than the budget has room for.

    A percentage is one of what the model takes, without them.
    """
    if options.budget is None or is_percentage(options.budget) or options.offload_optimizer:
        return None
    state, names = unreserved_state(options, (reference() for reference in leaves.values()))
    budget, need = in_bytes(options.budget, 0), state + max((variant.planned.peak for variant in variants), default=0)
    if state <= 0 or need <= budget:
        return None
    return (
        f"{names} holds {format_bytes(state)} more than is reserved: with it, a step takes {format_bytes(need)} of a budget of"
        f" {format_bytes(budget)}. Reserve it (reserved=remat.optimizer_bytes(optimizer), or reserved='auto' if the optimizer exists"
        " before the first step)"
    )


def waiting_calls(variant: Variant, saved: int, budget: int) -> str | None:
    """Calls that wait for their backward leave no room for another one, in a step with more calls than any that was measured."""
    own = held_always(variant.step) + variant.step.region.fixed_bytes + max(variant.phases.forward, variant.phases.backward)
    if not saved or own + saved <= budget:
        return None
    return (
        f"the model is called while {format_bytes(saved)} are held for the backward of earlier calls: together they take"
        f" {format_bytes(own + saved)} of a budget of {format_bytes(budget)}. Steps of this kind are measured when they come again, and"
        " then counted. Where no backward is wanted, as in evaluation, use torch.no_grad()"
    )


def too_much_outside(measured: int, error: BudgetTooSmall, *, has_hooks: bool) -> str:
    """With what a measured step holds outside of the plan, there is no plan."""
    hooks = "gradients that their hooks leave, " if has_hooks else ""
    return (
        f"a step takes {format_bytes(measured)} of a budget of {format_bytes(error.budget)}: memory outside of the compiled module (a loss,"
        f" {hooks}tensors that are kept, other models) is not in the plan, and with it {format_bytes(error.floor)} are needed. Raise the"
        " budget, or return the loss from the module (remat.compile(..., loss=...))"
    )


def found_outside(measured: int, budget: int, *, is_first: bool, has_neighbours: bool) -> str:
    """A measured step was above the budget, and the next ones will not be."""
    took = f"{'the first' if is_first else 'a'} step took {format_bytes(measured)} of a budget of {format_bytes(budget)}: "
    if has_neighbours:
        return took + f"other compiled modules ran within it, each with a budget of its own. {TOGETHER}"
    return took + (
        "memory outside of the compiled module was not known. It is counted from now on. A loss that the module returns"
        " (remat.compile(..., loss=...)) is counted from the first step"
    )
