"""Errors that the package raises, each with the facts as attributes.

They live apart from everything that needs torch, so that `except remat.BudgetTooSmall` costs no import.
"""

from __future__ import annotations


class RematError(RuntimeError):
    """Base of all errors of this package."""


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


class BudgetWarning(UserWarning):
    """The budget holds, but not in the way that the caller may expect: a graph break, or memory outside the graph."""
