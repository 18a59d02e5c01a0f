"""Plans that move values, made by hand or at random from plans that do not, for tests of what carries them out."""

from __future__ import annotations

import json
import random
from typing import Any

from remat import problem
from remat.offload.space import HostSpace
from remat.offload.steps import Moves
from remat.offload.store import Store, ThreadStore
from remat.planner import Planned
from remat.problem import PlanSteps, Step
from remat.stores import Speed, Stores

# A copy of a MiB takes about a millisecond.
SPEED = Speed(1e-5, 1e-9, 1e-5, 1e-9)


def with_stores(step: Step, stores: list[Store] | None = None, smallest: int = 1) -> Step:
    """The same step with stores, two in host memory unless others are given."""
    chosen = stores or [ThreadStore("first", HostSpace()), ThreadStore("second", HostSpace())]
    moves = tuple(Moves.of(store, index) for index, store in enumerate(chosen))
    offered = Stores(moves, (SPEED,) * len(moves), smallest=smallest)
    return problem.build(step.region, step.costs, step.workspaces, step.outside, offered)


def moved(step: Step, text: str, rng: random.Random, share: float = 1.0) -> Planned:
    """A plan in which this share of the values rests in a store wherever it is not needed for a while."""
    plan = json.loads(text)
    steps: PlanSteps = [tuple(item) for item in plan["steps"]]
    specification = json.loads(step.text)
    n_stores = len(specification["stores"])
    inserted: dict[int, PlanSteps] = {}
    for value, entry in enumerate(specification["values"]):
        if entry.get("swap") is False or rng.random() > share:
            continue
        for first, last in _gaps(specification["nodes"], steps, value):
            # The first step may be the one that makes the value; the free and the copy back lie between.
            out, free, back = sorted(rng.sample(range(first + 1, last + 1), 3)) if last - first > 3 else (0, 0, 0)
            if free == 0:
                continue
            if rng.random() < 0.5:
                out = first + 1
            store = rng.randrange(n_stores)
            discard = rng.randrange(back, last + 1)
            inserted.setdefault(out, []).append(("out", value, store))
            inserted.setdefault(free, []).append(("free", value))
            inserted.setdefault(back, []).append(("in", value, store))
            inserted.setdefault(discard, []).append(("discard", value, store))
    order = {"out": 0, "free": 1, "in": 2, "discard": 3}
    woven: PlanSteps = []
    for place, item in enumerate(steps):
        woven += sorted(inserted.get(place, []), key=lambda move: (order[move[0]], move[1]))
        woven.append(item)
    plan |= {"schema": "remat.plan/2", "steps": woven, "problem": specification["name"], "planner": "tests"}
    priced = json.loads(step.problem.price(json.dumps(plan)))["plan"]
    plan = {**json.loads(priced), "budget_bytes": json.loads(priced)["peak_bytes"]}
    faults = step.problem.check(json.dumps(plan))
    assert not faults, faults
    return Planned.read(json.dumps(plan), plan["budget_bytes"])


def _gaps(nodes: list[Any], steps: PlanSteps, value: int) -> list[tuple[int, int]]:
    """The places of neighbouring uses of a value between which it is live."""
    gaps, last = [], None
    for place, (kind, index, *_) in enumerate(steps):
        if kind == "free" and index == value:
            last = None
        elif kind == "compute" and value in (*nodes[index]["inputs"], *nodes[index]["outputs"]):
            if last is not None:
                gaps.append((last, place))
            last = place
    return gaps

