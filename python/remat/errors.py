"""Errors that the package raises, each with the facts as attributes.

They live apart from everything that needs torch, so that `except remat.BudgetTooSmall` costs no import.
"""

from __future__ import annotations


class RematError(RuntimeError):
    """Base of all errors of this package. Its text is ours: torch.compile appends advice for bugs of its own."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class OptionError(RematError, ValueError):
    """An option that the backend does not have or cannot read, told by torch.compile; `remat.compile` raises ValueError."""


class BudgetTooSmall(RematError):
    """No plan within the budget was found.

    `proven_floor` is a bound that no plan goes below; `lowest_peak` is what the planner reached, which is the
    smallest budget to ask for. `op` is the operation that sets the bound and `source` the line of the model it comes from.
    """

    def __init__(
        self, message: str, *, budget: int, lowest_peak: int, proven_floor: int, op: str, source: str | None
    ) -> None:
        super().__init__(message)
        self.budget = budget
        self.lowest_peak = lowest_peak
        self.floor = lowest_peak
        self.proven_floor = proven_floor
        self.op = op
        self.source = source

    @property
    def facts(self) -> dict[str, object]:
        """What this error can be made from again, in another process."""
        numbers = {"budget": self.budget, "lowest_peak": self.lowest_peak, "proven_floor": self.proven_floor}
        return {"message": self.message, **numbers, "op": self.op, "source": self.source}


class BudgetExceeded(RematError):
    """A step does not keep the budget, for a reason outside of the plan. Only raised with `strict=True`."""


class OffloadError(RematError):
    """A store cannot take or give what a plan moves: it is full, cannot be written, or failed."""


class RecomputeMismatch(RematError):
    """A recomputed tensor differs from its first value. Only raised with `verify=True`."""

    def __init__(self, message: str, *, op: str, source: str | None) -> None:
        super().__init__(message)
        self.op = op
        self.source = source


class RankFailure(RematError):
    """Another process of the group failed or runs another model, so all stop. `rank` is the one that is to blame."""

    def __init__(self, message: str, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class ReproducibilityWarning(UserWarning):
    """The model has operations whose bits torch itself does not repeat."""


class BudgetWarning(UserWarning):
    """The budget holds, but not in the way that the caller may expect: a graph break, or memory outside the graph."""
