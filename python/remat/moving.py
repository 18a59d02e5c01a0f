"""Writes the steps of a plan that move values into its graphs.

In: the moves of a plan, in order, with the tensors in question. Out: calls of the functions of `offload.steps`. A value that is on its
way back is known by what `bring` returns until somebody reads it; only then a wait is written, directly before the reader.
When forward ends, everything that is stored or arriving goes into the parcel of the plan's number, and comes out of
it where backward begins.
"""

from __future__ import annotations

import json
import operator

from torch import fx

from .offload.steps import Moves, packed, unpacked
from .plan_number import numbered
from .problem import PlanSteps, Step
from .stores import stored_bytes, tensors_to_move

Key = tuple[int, int]


class Moving:
    """What is stored, on its way out and on its way back while a plan is written."""

    def __init__(self, step: Step) -> None:
        self.functions: tuple[Moves, ...] = () if step.stores is None else step.stores.moves
        # The node of the joint graph whose tensor stands for a value, and the other way round.
        self.tensors: dict[int, fx.Node] = {} if step.stores is None else tensors_to_move(step.region)
        self.values = {node: value for value, node in self.tensors.items()}
        self.stored: dict[Key, fx.Node] = {}
        self.arriving: dict[int, tuple[int, fx.Node]] = {}
        # Copies out of the memory that a value has now.
        self.copies: dict[int, list[Key]] = {}
        # What is given to backward, and what it is there.
        self.parcel: list[fx.Node] = []

    def out(self, graph: fx.Graph, value: int, store: int, tensor: fx.Node) -> None:
        """Starts a copy to a store."""
        self.stored[value, store] = graph.call_function(self.functions[store].out, (tensor,))
        self.copies.setdefault(value, []).append((value, store))

    def bring(self, graph: fx.Graph, value: int, store: int) -> None:
        """Starts a copy back into memory."""
        self.arriving[value] = store, graph.call_function(self.functions[store].bring, (self.stored[value, store],))

    def is_arriving(self, node: fx.Node) -> bool:
        """Whether nobody has waited yet for the tensor of a node of the joint graph."""
        return self.values.get(node) in self.arriving

    def arrived(self, graph: fx.Graph, node: fx.Node) -> fx.Node:
        """Waits for a tensor."""
        store, arriving = self.arriving.pop(self.values[node])
        copy = graph.call_function(self.functions[store].arrived, (arriving,))
        copy.meta = dict(node.meta)
        return copy

    def is_copied(self, value: int) -> bool:
        """Whether a copy of the memory of a value may be under way, in or out."""
        return bool(self.copies.get(value)) or value in self.arriving

    def settle(self, graph: fx.Graph, value: int, tensor: fx.Node) -> None:
        """Waits for the copies out of the memory of a value, which is then freed."""
        for key in self.copies.pop(value, []):
            graph.call_function(self.functions[key[1]].settle, (self.stored[key], tensor))

    def discard(self, graph: fx.Graph, value: int, store: int) -> None:
        """Gives room in a store back, which waits for all copies to and from there."""
        if (value, store) in self.copies.get(value, []):
            self.copies[value].remove((value, store))
        graph.call_function(self.functions[store].discard, (self.stored.pop((value, store)),))

    @property
    def is_under_way(self) -> bool:
        """Whether backward must be given something that is no tensor."""
        return bool(self.stored or self.arriving)

    def mark(self, forward: fx.Graph, number: int) -> fx.Node:
        """The number of the plan, with everything that backward must be given."""
        self.parcel = [*self.stored.values(), *(arriving for _, arriving in self.arriving.values())]
        return forward.call_function(packed, (number, self.parcel)) if self.parcel else forward.call_function(numbered, (number,))

    def cross(self, backward: fx.Graph, mark: fx.Node) -> None:
        """Takes everything out of the parcel, where backward begins."""
        if not self.parcel:
            return
        items = backward.call_function(unpacked, (mark,))
        there = {item: backward.call_function(operator.getitem, (items, place)) for place, item in enumerate(self.parcel)}
        self.stored = {key: there[item] for key, item in self.stored.items()}
        self.arriving = {value: (store, there[item]) for value, (store, item) in self.arriving.items()}


def reserve(step: Step, plan: PlanSteps) -> None:
    """Has the stores make room for what a plan stores, so that a full disk is told before the first step."""
    if step.stores is not None:
        for moves, size in zip(step.stores.moves, stored_bytes(json.loads(step.text), plan), strict=True):
            if size:
                moves.store.reserve(size)
