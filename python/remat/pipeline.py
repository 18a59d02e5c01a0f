"""From a joint graph to a step with a plan: every stage on one screen.

In: the joint graph, the options and the session. Out: the `Step` and the `Planned` that the scheduler writes down.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import fx

from . import costs, inductor, problem
from .budget import in_bytes
from .cache import PlanCache, reprice
from .capture import Region, capture, has_collectives
from .distributed import watch
from .errors import BudgetTooSmall, RematError
from .options import Options
from .planner import Planned, book_of, find
from .problem import Outside, Step
from .reports import RegionReport, record
from .rewrites import drop_running_statistics, match_layouts, split_dropout
from .shapes import Shapes
from .stores import Moving, moved_by, offered

def read(joint: fx.GraphModule, n_forward_outputs: int, options: Options, parameters: Iterable[int] = ()) -> Step:
    """The planning problem of a joint graph; `parameters` are the places of the inputs that live longer than a step."""
    if options.compiler == "eager":
        split_dropout(joint)
        match_layouts(joint, n_forward_outputs, parameters)
    else:
        inductor.prepare(joint)
    drop_running_statistics(joint)
    return _read(capture(joint, n_forward_outputs), options)


def resized(step: Step, sizes: dict[Any, int], options: Options) -> Step:
    """The same step for other sizes of its symbols."""
    region = step.region
    return _read(capture(region.module, len(region.forward_outputs), Shapes(sizes)), options)


def _read(region: Region, options: Options) -> Step:
    seconds, workspaces = (costs.analytic(region), {}) if options.cost == "analytic" else costs.measured(region)
    earlier = problem.gradient_bytes(region) if options.accumulates else 0
    return problem.build(region, seconds, workspaces, Outside(always=in_bytes(options.reserved, 0) + earlier), offered(region, options))


def decide(step: Step, options: Options) -> Planned:
    """The plan for a step: the same on all ranks, unless this rank compiles alone and its graph allows that."""
    budget = None if options.budget is None else in_bytes(options.budget, step.keep_all_peak)
    ranks = watch()
    if ranks is None:
        return _plan(step, budget, options)
    own = {"hash": step.hash, "budget": budget, "costs": problem.node_costs(step), "is_shared": has_collectives(step.region)}

    def make(all_costs: list[list[float]]) -> str:
        highest = [max(of_node) for of_node in zip(*all_costs, strict=True)]
        try:
            return _plan(problem.with_costs(step, highest), budget, options).text
        except BudgetTooSmall as error:
            # An answer like a plan: all ranks are told the same, and may ask for another one together.
            return json.dumps({"too_small": error.facts})

    def check(text: str) -> None:
        if "too_small" in json.loads(text):
            return
        faults = step.problem.check(reprice(text, step))
        if faults:
            raise RematError(f"bug: the plan of rank 0 is not valid on rank {ranks.rank}: {'; '.join(faults)}")

    text = ranks.agree(own, make, check, options.timeout)
    if text is None:
        return _plan(step, budget, options)
    refusal = json.loads(text).get("too_small")
    if refusal is not None:
        raise BudgetTooSmall(**refusal)
    return Planned.read(text, budget if budget is not None else step.keep_all_peak)


def _plan(step: Step, budget: int | None, options: Options) -> Planned:
    book = book_of(step, options)
    if budget is None:
        return find(step, None, options, book)
    cache = PlanCache(options.cache_dir) if options.cache_dir else None
    text = cache.read(step, budget) if cache else None
    if text is not None:
        return book.settle(Planned.read(text, budget))
    planned = find(step, budget, options, book)
    if cache:
        cache.write(step, budget, planned.text)
    return planned


def report(step: Step, planned: Planned, options: Options, seconds: float, keep_all_peak: int | None = None) -> None:
    """Notes what was planned, and how long that took. `keep_all_peak` is that of the model, where the step is a part."""
    made = _report(step, planned, options.budget is not None, seconds)
    record(made if keep_all_peak is None else dataclasses.replace(made, keep_all_peak=keep_all_peak))


def _report(step: Step, planned: Planned, has_budget: bool, seconds: float) -> RegionReport:
    runs = Counter(index for kind, index, *_ in planned.steps if kind == "compute")
    base = sum(problem.node_costs(step))
    moving = moved(step, planned)
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
        n_offloaded=moving.n_out,
        offloaded_bytes=moving.bytes,
        waiting_seconds=moving.waiting,
    )


def moved(step: Step, planned: Planned) -> Moving:
    """What a plan moves to stores."""
    if step.stores is None:
        return Moving()
    return moved_by(json.loads(step.text), json.loads(step.problem.price(planned.text)))


def _saved_bytes(region: Region, step: Step, planned: Planned) -> int:
    """Bytes of the values that are live when forward ends."""
    live: set[int] = set()
    for kind, index, *_ in planned.steps:
        if kind == "free":
            live.discard(index)
        elif kind == "in":
            live.add(index)
        elif kind != "compute":
            continue
        elif (op := step.ops[index]) is None:
            break
        else:
            live.update(op.makes)
    return sum(region.values[value].bytes for value in live)
