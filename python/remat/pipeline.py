"""From a joint graph to a step with a plan: every stage on one screen.

In: the joint graph, the options and the session. Out: the `Step` and the `Planned` that the scheduler writes down.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from torch import fx

from . import costs, inductor, problem
from .budget import in_bytes
from .cache import PlanCache, reprice
from .capture import Region, capture
from .distributed import watch
from .errors import BudgetTooSmall, RematError
from .options import Options
from .planner import Book, Planned, find, lowest
from .problem import Step
from .reports import RegionReport, record
from .rewrites import drop_running_statistics, split_dropout
from .sharing import share

# Plans that were handed out, by graph, planner and effort: see `Book`.
_books: dict[tuple[object, ...], Book] = {}


def read(joint: fx.GraphModule, n_forward_outputs: int, options: Options, *, outside: int = 0) -> Step:
    """The planning problem of a joint graph. `outside` bytes belong to other regions of the model."""
    if options.compiler == "eager":
        split_dropout(joint)
    else:
        inductor.prepare(joint)
    drop_running_statistics(joint)
    region = capture(joint, n_forward_outputs)
    region.shapes.guard(node.meta.get("val") for node in region.primals)
    seconds, workspaces = (costs.analytic(region), {}) if options.cost == "analytic" else costs.measured(region)
    earlier = problem.gradient_bytes(region) if options.accumulates else 0
    return problem.build(region, seconds, workspaces, in_bytes(options.reserved, 0) + outside + earlier)


def book_of(step: Step, options: Options) -> Book:
    """The plans that were handed out for this graph."""
    return _books.setdefault((step.hash, options.planner, options.effort, options.time_limit), Book())


def decide(step: Step, options: Options, portion: float = 1.0) -> Planned:
    """The plan for a step, the same on all ranks. A portion below 1 leaves the rest of the budget to other regions."""
    budget = None if options.budget is None else in_bytes(options.budget, step.keep_all_peak)
    ranks = watch()
    if ranks is None:
        planned = _plan(step, budget, options, portion)
    else:
        own = {"hash": step.hash, "budget": budget, "costs": problem.node_costs(step)}

        def make(all_costs: list[list[float]]) -> str:
            highest = [max(of_node) for of_node in zip(*all_costs, strict=True)]
            return _plan(problem.with_costs(step, highest), budget, options, portion).text

        def check(text: str) -> None:
            faults = step.problem.check(reprice(text, step.text))
            if faults:
                raise RematError(f"bug: the plan of rank 0 is not valid on rank {ranks.rank}: {'; '.join(faults)}")

        text = ranks.agree(own, make, check, options.timeout)
        planned = Planned.read(text, budget if budget is not None else step.keep_all_peak)
    return planned


def _plan(step: Step, budget: int | None, options: Options, portion: float) -> Planned:
    book = book_of(step, options)
    if budget is None:
        return find(step, None, options, book)
    if portion < 1.0:
        return _plan_part(step, budget, options, book, portion)
    cache = PlanCache(options.cache_dir) if options.cache_dir else None
    text = cache.read(step, budget) if cache else None
    if text is not None:
        return book.settle(Planned.read(text, budget))
    planned = find(step, budget, options, book)
    if cache:
        cache.write(step, budget, planned.text)
    return planned


def _plan_part(step: Step, budget: int, options: Options, book: Book, portion: float) -> Planned:
    """A part that others follow: its share, or as little as possible."""
    base = problem.fixed_bytes(step)
    try:
        return find(step, share(budget, base, portion), options, book)
    except BudgetTooSmall:
        planned = lowest(step, options, book)
        if planned.peak > budget:
            raise
        return planned


def report(step: Step, planned: Planned, options: Options, seconds: float) -> None:
    """Notes what was compiled, and how long everything from the joint graph to the two graphs took."""
    record(_report(step, planned, options.budget is not None, seconds))


def _report(step: Step, planned: Planned, has_budget: bool, seconds: float) -> RegionReport:
    runs = Counter(index for kind, index in planned.steps if kind == "compute")
    base = sum(problem.node_costs(step))
    return RegionReport(
        graph_hash=step.hash,
        plan_hash=hashlib.sha256(repr(planned.steps).encode()).hexdigest(),
        n_ops=len(step.ops) - 1,
        n_recomputed=sum(n_runs - 1 for n_runs in runs.values()),
        budget=planned.budget if has_budget else None,
        predicted_peak=planned.peak,
        keep_all_peak=step.keep_all_peak,
        saved_bytes=_saved_bytes(step.region, step, planned),
        overhead=max(planned.cost / base - 1.0, 0.0) if base else 0.0,
        planning_seconds=seconds,
    )


def _saved_bytes(region: Region, step: Step, planned: Planned) -> int:
    """Bytes of the values that are live when forward ends."""
    live: set[int] = set()
    for kind, index in planned.steps:
        if kind == "free":
            live.discard(index)
        elif (op := step.ops[index]) is None:
            break
        else:
            live.update(op.makes)
    return sum(region.values[value].bytes for value in live)
