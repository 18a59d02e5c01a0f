"""What was compiled: one report per region, for people and for tests."""

from __future__ import annotations

import html
from collections import deque
from dataclasses import dataclass

from .budget import format_bytes


@dataclass(frozen=True, repr=False)
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
    # Copies to stores in a step and their bytes, and the seconds that the plan waits for copies.
    n_offloaded: int = 0
    offloaded_bytes: int = 0
    waiting_seconds: float = 0.0

    def rows(self) -> list[tuple[str, str]]:
        """The summary as pairs of label and text."""
        moved = f"{self.n_offloaded} values, {format_bytes(self.offloaded_bytes)}; waiting {1e3 * self.waiting_seconds:.2f} ms"
        offloaded = [("offloaded", moved)] if self.n_offloaded else []
        return [
            ("budget", "none" if self.budget is None else format_bytes(self.budget)),
            ("predicted peak", format_bytes(self.predicted_peak)),
            ("without recomputation", format_bytes(self.keep_all_peak)),
            ("saved for backward", format_bytes(self.saved_bytes)),
            ("operations", f"{self.n_ops}, and {self.n_recomputed} run again"),
            *offloaded,
            ("added time", f"{100 * self.overhead:.1f} %"),
            ("planning", f"{self.planning_seconds:.2f} s"),
        ]

    def __repr__(self) -> str:
        return f"<RegionReport: {', '.join(f'{label} {text}' for label, text in self.rows()[:3])}, graph {self.graph_hash[:12]}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>" for label, text in self.rows())
        return f"<table>{rows}</table>"


# Reports are small, but a process may compile for weeks.
_reports: deque[RegionReport] = deque(maxlen=256)


def record(report: RegionReport) -> None:
    """Adds a report."""
    _reports.append(report)


def regions() -> list[RegionReport]:
    """Reports of the regions that this process compiled for training, the latest last."""
    return list(_reports)
