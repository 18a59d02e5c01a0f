"""A plan as an object to look at: a table, what sets the peak, what other budgets would cost."""

from __future__ import annotations

import html
import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from . import pipeline
from .budget import format_bytes
from .options import Options
from .planner import Planned, book_of, lowest, proven_floor
from .problem import Step, node_costs
from .stores import Moving

SHOWN = 10


@dataclass(repr=False)
class TrainingPlan:
    """What is kept and what is recomputed in one training step of a model."""

    step: Step
    options: Options
    planned: Planned

    @property
    def predicted_peak(self) -> int:
        """Bytes of live storages at the peak."""
        return self.planned.peak

    @property
    def keep_all_peak(self) -> int:
        """The peak without recomputation."""
        return self.step.keep_all_peak

    @property
    def floor(self) -> int:
        """The smallest budget that the planner meets."""
        return lowest(self.step, self.options, book_of(self.step, self.options)).peak

    @property
    def proven_floor(self) -> int:
        """A peak that no plan goes below."""
        return int(proven_floor(self.step)["bytes"])

    @property
    def overhead(self) -> float:
        """Time that recomputation adds, as a fraction, by the costs that were planned with."""
        base = sum(node_costs(self.step))
        return max(self.planned.cost / base - 1.0, 0.0) if base else 0.0

    @property
    def recomputed(self) -> list[tuple[str, int, float]]:
        """Name, runs beyond the first and their seconds of each recomputed operation, most expensive first."""
        costs = node_costs(self.step)
        runs = Counter(index for kind, index, *_ in self.planned.steps if kind == "compute")
        again = [(index, n_runs - 1) for index, n_runs in runs.items() if n_runs > 1]
        names = {index: op.node.name for index, op in enumerate(self.step.ops) if op is not None}
        rows = [(names[index], extra, extra * costs[index]) for index, extra in again]
        return sorted(rows, key=lambda row: (-row[2], row[0]))

    @cached_property
    def moving(self) -> Moving:
        """What is moved to a store and back, and how long the step waits for it."""
        return pipeline.moved(self.step, self.planned)

    def rows(self) -> list[tuple[str, str]]:
        """The summary as pairs of label and text."""
        bound = self.planned.lower_bound
        gap = ""
        if bound is not None and bound > 0:
            gap = f", at most {100 * (self.planned.cost / bound - 1):.1f} % above the cheapest plan"
        return [
            ("budget", format_bytes(self.planned.budget)),
            ("predicted peak", format_bytes(self.predicted_peak)),
            ("without recomputation", format_bytes(self.keep_all_peak)),
            ("no plan is below", format_bytes(self.proven_floor)),
            ("operations", f"{len(self.step.ops) - 1}, of which {len(self.recomputed)} run again"),
            *self._moved_row(),
            ("added time", f"{100 * self.overhead:.1f} %{gap}"),
        ]

    def _moved_row(self) -> list[tuple[str, str]]:
        moving = self.moving
        if not moving.n_out:
            return []
        busy = sum(moved.seconds for moved in moving.values)
        text = f"{moving.n_out} values, {format_bytes(moving.bytes)}; copies take {1e3 * busy:.2f} ms, of which the step waits {1e3 * moving.waiting:.2f} ms"
        return [("offloaded", text)]

    def table(self) -> str:
        """The summary as text."""
        width = max(len(label) for label, _ in self.rows())
        return "\n".join(f"{label:<{width}}  {text}" for label, text in self.rows())

    __str__ = table

    def __repr__(self) -> str:
        return (
            f"<TrainingPlan: budget {format_bytes(self.planned.budget)}, predicted peak {format_bytes(self.predicted_peak)} of"
            f" {format_bytes(self.keep_all_peak)}, {len(self.recomputed)} of {len(self.step.ops) - 1} operations run again,"
            f" +{100 * self.overhead:.1f} %>"
        )

    def _repr_html_(self) -> str:
        summary = "".join(f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in self.rows())
        again = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{extra}</td><td>{1e3 * seconds:.2f} ms</td></tr>"
            for name, extra, seconds in self.recomputed[:SHOWN]
        )
        moved = "".join(
            f"<tr><td>{html.escape(item.name)}</td><td>{format_bytes(item.bytes)}</td><td>{html.escape(item.store)}</td></tr>"
            for item in self.moving.values[:SHOWN]
        )
        moves = f"<table><tr><th>offloaded</th><th>bytes</th><th>to</th></tr>{moved}</table>" if moved else ""
        detail = f"<table><tr><th>recomputed</th><th>runs</th><th>time</th></tr>{again}</table>" if again else ""
        return f"<table>{summary}</table>{detail}{moves}"

    def frontier(self, n_points: int = 8) -> list[dict[str, Any]]:
        """What other budgets would cost: budget, lowest peak and seconds, from the floor to no recomputation."""
        options = self.options
        text = self.step.problem.frontier(
            n_points, planner=options.planner, effort=options.effort or 0.02, time_limit=options.time_limit
        )
        return json.loads(text)["points"]

    def explain(self) -> str:
        """What sets the peak, what is recomputed and what it costs."""
        return self.step.problem.explain(self.planned.text)

    def to_json(self) -> str:
        """The plan as `remat.plan/1`, or `/2` where it moves values."""
        return self.planned.text

    def problem_json(self) -> str:
        """The problem as `remat.problem/1` or `/2`, for the command line."""
        return self.step.text
