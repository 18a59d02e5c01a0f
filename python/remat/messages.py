"""What is said when a step does not keep the budget for a reason outside of its plan: the number and the remedy."""

from __future__ import annotations

from .budget import format_bytes
from .errors import BudgetTooSmall
from .neighbours import TOGETHER

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


def waiting_calls(saved: int, need: int, budget: int) -> str:
    """More calls wait for their backward than in any step that was measured."""
    return (
        f"the model is called while {format_bytes(saved)} are held for the backward of earlier calls: together they take"
        f" {format_bytes(need)} of a budget of {format_bytes(budget)}. Steps of this kind are measured when they come again, and then"
        " counted. Where no backward is wanted, as in evaluation, use torch.no_grad()"
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
