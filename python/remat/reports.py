"""What was compiled: one report per region, for people and for tests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class RegionReport:
    """What is known about a compiled region.

    `predicted_peak` holds for the CPU to the byte when the region is the whole step. `plan_hash` is equal on all ranks.
    """

    graph_hash: str
    plan_hash: str
    n_ops: int
    n_recomputed: int
    budget: int | None
    predicted_peak: int
    keep_all_peak: int
    saved_bytes: int
    overhead: float
    planning_seconds: float


# Reports are small, but a process may compile for weeks.
_reports: deque[RegionReport] = deque(maxlen=256)


def record(report: RegionReport) -> None:
    """Adds a report."""
    _reports.append(report)


def regions() -> list[RegionReport]:
    """Reports of the regions that this process compiled for training, the latest last."""
    return list(_reports)
