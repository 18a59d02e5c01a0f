"""Plans in which a gradient is given away no earlier than its parameter was read for the last time.

In: a plan in which an operation that reads a parameter runs again after the gradient was given away, when a hook may have
changed the parameter. Out: the same plan with the gradient held until then, and the peak that this has. The planner knows no
such order, because it depends on what a plan recomputes.
"""

from __future__ import annotations

import json
from typing import Any

from .errors import RematError
from .problem import Step
from .release import place_of, primals_read


def postponed(step: Step, text: str) -> str:
    """The plan, with every gradient given away late enough."""
    givers = {index: place for index, op in enumerate(step.ops) if op and (place := place_of(op.node)) is not None}
    if not givers:
        return text
    plan = json.loads(text)
    problem = json.loads(step.text)
    ends = _ends(step, plan["steps"], givers)
    if not ends:
        return text
    plan["steps"] = _moved(plan["steps"], problem["nodes"], ends)
    plan["peak_bytes"] = _peak(plan["steps"], problem)
    text = json.dumps(plan)
    faults = step.problem.check(text)
    if faults:
        raise RematError(f"bug: a plan with gradients that are given away later is not valid: {'; '.join(faults)}")
    return text


def _ends(step: Step, steps: list[Any], givers: dict[int, int]) -> dict[int, int]:
    """For each operation that gives away too early, the place in the plan of the last one that reads its parameter."""
    reads = primals_read(step.region)
    primals = step.region.primals
    given: dict[Any, int] = {}
    ends: dict[int, int] = {}
    for position, (kind, index) in enumerate(steps):
        op = step.ops[index] if kind == "compute" else None
        if op is not None:
            ends |= {given[primal]: position for primal in reads[op.node] if primal in given}
            if index in givers:
                given[primals[givers[index]]] = index
    return ends


def _moved(steps: list[Any], nodes: list[dict[str, Any]], ends: dict[int, int]) -> list[Any]:
    """Each of these operations behind the place where it ends, and with it the frees of what it reads."""
    waiting: dict[int, list[Any]] = {}
    moved: list[Any] = []
    for position, (kind, index) in enumerate(steps):
        holders = [giver for giver in waiting if kind == "free" and index in nodes[giver]["inputs"]]
        if kind == "compute" and index in ends:
            waiting[index] = []
        elif holders:
            waiting[holders[0]].append([kind, index])
        else:
            moved.append([kind, index])
        for giver in [giver for giver in waiting if ends[giver] == position]:
            moved += [["compute", giver], *waiting.pop(giver)]
    return moved


def _peak(steps: list[Any], problem: dict[str, Any]) -> int:
    size = [value["bytes"] for value in problem["values"]]
    live = set(problem["inputs"])
    held = highest = problem["fixed_bytes"] + sum(size[value] for value in live)
    for kind, index in steps:
        if kind == "free":
            live.discard(index)
            held -= size[index]
            continue
        node = problem["nodes"][index]
        fresh = set(node["outputs"]) - live
        live |= fresh
        held += sum(size[value] for value in fresh)
        highest = max(highest, held + node["workspace_bytes"])
    return highest
