"""The stores of a step: which values may be moved, where to, and what a copy takes.

In: a region, and stores with their speeds. Out: what `remat.problem/2` says about them, and the functions that emitted graphs call.

A value may be moved if exactly one tensor is made in its storage, the step makes it and uses it up, and it is large enough: what
the caller holds (parameters, the batch, outputs) stays where it is, views come back with their base, and the copy of
a small value takes longer than it is worth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import fx

from .capture import Region, tensor_of
from .offload.steps import Moves

# Below this, starting a copy takes longer than the copy.
USEFUL_BYTES = 32 << 10


@dataclass(frozen=True)
class Speed:
    """What a copy takes: `latency + bytes * cost_per_byte` seconds, out and in."""

    out_latency: float
    out_per_byte: float
    in_latency: float
    in_per_byte: float


@dataclass(frozen=True, repr=False)
class Stores:
    """The stores that the plans of a step may use."""

    moves: tuple[Moves, ...]
    speeds: tuple[Speed, ...]
    smallest: int = USEFUL_BYTES

    def describe(self, problem: dict[str, Any], region: Region, lasting: frozenset[int]) -> None:
        """Writes the stores into a problem, and which of its values may not be moved."""
        movable = tensors_to_move(region)
        for value, entry in enumerate(problem["values"]):
            if value not in movable or value in lasting or entry["bytes"] < self.smallest:
                entry["swap"] = False
        problem["schema"] = "remat.problem/2"
        problem["channels"], problem["stores"] = [], []
        for moves, speed in zip(self.moves, self.speeds, strict=True):
            name, first = moves.store.name, len(problem["channels"])
            problem["channels"] += [{"name": f"{way} {name}", "overlaps": True} for way in ("to", "from")]
            ways = ((first, speed.out_latency, speed.out_per_byte), (first + 1, speed.in_latency, speed.in_per_byte))
            out, back = ({"channel": c, "latency": latency, "cost_per_byte": cost} for c, latency, cost in ways)
            problem["stores"].append({"name": name, "capacity_bytes": None, "out": out, "in": back})


def tensors_to_move(region: Region) -> dict[int, fx.Node]:
    """For each value that can be copied as a whole, the node whose tensor stands for it."""
    parts = [part for op in region.ops for part in op.outputs]
    n_tensors = Counter(value for part in parts for value in region.needs[part])
    found: dict[int, fx.Node] = {}
    for part in parts:
        if tensor_of(part) is not None and len(region.needs[part]) == 1:
            (value,) = region.needs[part]
            if n_tensors[value] == 1:
                found[value] = part
    return found


def without_speeds(problem: dict[str, Any]) -> dict[str, Any]:
    """A problem that is equal on machines with faster or slower stores."""
    if "stores" not in problem:
        return problem
    return {**problem, "stores": [{"name": "", "capacity_bytes": store["capacity_bytes"]} for store in problem["stores"]], "channels": []}
