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

import torch
from torch import fx

from .capture import Region, tensor_of
from .offload import speed
from .offload.places import store_at
from .offload.space import BLOCK
from .offload.steps import Moves
from .options import Options
from .rates import out_and_in

# Below this, starting a copy takes longer than the copy.
USEFUL_BYTES = 32 << 10
# Seconds to begin a copy where only a speed was given: about what waking a thread takes.
GIVEN_LATENCY = 5e-5


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
    device: torch.device = torch.device("cpu")
    smallest: int = USEFUL_BYTES

    def describe(self, problem: dict[str, Any], region: Region, lasting: frozenset[int]) -> None:
        """Writes the stores into a problem, and which of its values may not be moved."""
        movable = {value for value, node in tensors_to_move(region).items() if _device(node) == self.device}
        for value, entry in enumerate(problem["values"]):
            if value not in movable or value in lasting or entry["bytes"] < self.smallest:
                entry["swap"] = False
        problem["schema"] = "remat.problem/2"
        problem["channels"], problem["stores"] = [], []
        for moves, takes in zip(self.moves, self.speeds, strict=True):
            name, first = moves.store.name, len(problem["channels"])
            problem["channels"] += [{"name": f"{way} {name}", "overlaps": True} for way in ("to", "from")]
            ways = ((first, takes.out_latency, takes.out_per_byte), (first + 1, takes.in_latency, takes.in_per_byte))
            out, back = ({"channel": c, "latency": latency, "cost_per_byte": cost} for c, latency, cost in ways)
            problem["stores"].append({"name": name, "capacity_bytes": None, "out": out, "in": back})


def offered(region: Region, options: Options) -> Stores | None:
    """The stores that the options ask for, opened, with their speeds."""
    devices = [device for op in region.ops for part in op.outputs if (device := _device(part)) is not None]
    if options.offload is None or options.budget is None or not devices:
        return None
    device = max(set(devices), key=devices.count)
    store = store_at(options.offload, device)
    if options.offload_speed is None:
        (out_latency, out_per_byte), (in_latency, in_per_byte) = speed.measured(store, device)
    else:
        out, back = out_and_in(options.offload_speed)
        out_latency, out_per_byte, in_latency, in_per_byte = GIVEN_LATENCY, 1 / out, GIVEN_LATENCY, 1 / back
    return Stores((Moves.of(store, 0),), (Speed(out_latency, out_per_byte, in_latency, in_per_byte),), device)


def _device(node: fx.Node) -> torch.device | None:
    tensor = tensor_of(node)
    return None if tensor is None else tensor.device


@dataclass(frozen=True)
class MovedValue:
    """A value that a plan copies to a store, with its copies, and how long all of them take."""

    name: str
    bytes: int
    store: str
    n_copies: int
    seconds: float


@dataclass(frozen=True)
class Moving:
    """What a plan moves: copies out and their bytes, values, and the seconds that the program waits for copies."""

    n_out: int = 0
    bytes: int = 0
    waiting: float = 0.0
    values: tuple[MovedValue, ...] = ()


def moved_by(problem: dict[str, Any], priced: dict[str, Any]) -> Moving:
    """What a plan moves, from what `Problem.price` says; the largest values first."""
    copies = priced["transfers"]
    if not copies:
        return Moving()
    values, n_copies = problem["values"], Counter[tuple[int, int]]()
    seconds: dict[tuple[int, int], float] = {}
    for value, store, _, start, end in copies:
        seconds[value, store] = seconds.get((value, store), 0.0) + end - start
        n_copies[value, store] += 1
    found = [
        MovedValue(values[v]["name"], values[v]["bytes"], problem["stores"][s]["name"], n_copies[v, s], seconds[v, s])
        for v, s in n_copies
    ]
    out = [value for value, _, is_back, _, _ in copies if not is_back]
    found.sort(key=lambda moved: (-moved.bytes, moved.name))
    return Moving(len(out), sum(values[value]["bytes"] for value in out), priced["stalls"], tuple(found))


def stored_bytes(problem: dict[str, Any], steps: list[tuple[Any, ...]]) -> list[int]:
    """The most bytes that a plan has in each store at once, each value in whole blocks."""
    held, most = Counter[int](), [0] * len(problem.get("stores", []))
    for kind, value, *store in steps:
        if kind in ("out", "discard"):
            size = -(-problem["values"][value]["bytes"] // BLOCK) * BLOCK
            held[store[0]] += size if kind == "out" else -size
            most[store[0]] = max(most[store[0]], held[store[0]])
    return most


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
