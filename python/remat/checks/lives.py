"""The emitted graphs run the operations in the order of the plan, and hold no storage longer than the plan says.

In: a plan, and what the nodes of the two graphs stand for (`values`). A tensor lives from its node to its last reader, a saved one
from forward to its last reader in backward. Where the plan frees a storage, no tensor in it may be alive when the
next operation runs. So the peak of the graphs is not above that of the plan, which the planner's own checker has seen.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import fx

from ..capture import Op
from ..problem import Step
from .fault import EmittedFault, told
from .originals import N_WITHOUT_STATISTICS
from .values import Emitted

Storages = frozenset[int]
NOTHING: Storages = frozenset()


def check(step: Step, plan: list[tuple[str, int]], emitted: Emitted) -> None:
    """Walks through the plan and the graphs side by side."""
    _Walk(step, plan, emitted).walk()


class _Walk:
    def __init__(self, step: Step, plan: list[tuple[str, int]], emitted: Emitted) -> None:
        self.step = step
        self.region = step.region
        self.plan = plan
        self.emitted = emitted
        self.known = emitted.originals
        self.position = 0
        self.freed: set[int] = set()
        # The storages that a tensor is in, which of the operations made it, and how many tensors are alive in a storage.
        self.storages: dict[fx.Node, Storages] = {}
        self.made_by: dict[fx.Node, Op] = {}
        self.n_tensors: Counter[int] = Counter()
        self.operations = {self.known.of[op.node] for op in self.region.ops}

    def walk(self) -> None:
        forward, backward = self.emitted.forward, self.emitted.backward
        self._run(forward, dict.fromkeys(forward.find_nodes(op="placeholder"), NOTHING))
        if self._next_operation() is not None:
            raise EmittedFault("an operation of forward does not run there")
        self._check_freed("the end of forward")
        self.n_tensors.clear()
        self.freed.clear()
        self.position += 1
        places = list(backward.find_nodes(op="placeholder"))
        n_saved = len(places) - len(self.region.tangents)
        saved = {place: self.storages[self.emitted.saved[place]] for place in places[:n_saved]}
        self._run(backward, saved | dict(zip(places[n_saved:], map(self.region.needs.__getitem__, self.region.tangents), strict=True)))
        if self._next_operation() is not None or self.position < len(self.plan):
            raise EmittedFault("an operation of backward does not run")
        self._check_freed("the end of backward")

    def _next_operation(self) -> Op | None:
        """Goes to the next operation of the plan; nothing at the end of a pass. What is freed on the way is noted."""
        while self.position < len(self.plan):
            kind, index = self.plan[self.position]
            if kind == "compute":
                return self.step.ops[index]
            self.freed.add(index)
            self.position += 1
        return None

    def _run(self, graph: fx.Graph, inputs: dict[fx.Node, Storages]) -> None:
        last_reads = _last_reads(graph)
        for node in graph.nodes:
            if node.op == "output":
                break
            if node.op == "placeholder":
                self._hold(node, inputs[node])
            elif node.op == "call_function" and self._number(node) in self.operations:
                self._run_operation(node)
            else:
                self._hold(node, self._part(node) if node.target is operator.getitem else self._shared(node))
            for dead in last_reads.get(node, ()):
                self.n_tensors.subtract(self.storages[dead])

    def _number(self, node: fx.Node) -> int | None:
        """What a node stands for; a batch norm without running statistics is a run of the one with them."""
        value = self.emitted.values.get(node)
        return None if value is None else self.known.repeats.get(value, value)

    def _run_operation(self, node: fx.Node) -> None:
        op = self._next_operation()
        if op is None or self.known.of[op.node] != self._number(node):
            due = "the pass should end" if op is None else f"the plan runs {told(op.node)}"
            raise EmittedFault(f"{told(node)} runs where {due}")
        self._check_freed(told(node))
        self.position += 1
        self.made_by[node] = op
        makes: Iterable[int] = op.makes
        if self.emitted.values[node] in self.known.repeats:
            early = [part for part in op.outputs if _index(part) < N_WITHOUT_STATISTICS]
            makes = NOTHING.union(*(self.region.needs[part] for part in early))
        self.freed.difference_update(makes)
        self._hold(node, self._shared(node).union(makes))

    def _check_freed(self, place: str) -> None:
        for value in self.freed:
            if self.n_tensors[value] > 0:
                raise EmittedFault(f"{self.region.values[value].name} is still held at {place}, where the plan has freed it")
        self.freed.clear()

    def _part(self, node: fx.Node) -> Storages:
        """The storages of a part of a result."""
        source: Any = node.args[0]
        op = self.made_by.get(source)
        if op is None:
            return self.storages[source]
        part = next((part for part in op.outputs if part.target is operator.getitem and part.args[1] == node.args[1]), None)
        return self.storages[source] if part is None else self.region.needs[part]

    def _shared(self, node: fx.Node) -> Storages:
        """The storages of the inputs that a result is a view of."""
        roots, values = self.known.roots, self.emitted.values
        if node not in values or not node.all_input_nodes:
            return NOTHING
        own = roots[values[node]]
        return NOTHING.union(*(self.storages[source] for source in node.all_input_nodes if roots[values[source]] == own))

    def _hold(self, node: fx.Node, storages: Storages) -> None:
        self.storages[node] = storages
        self.n_tensors.update(storages)


def _index(part: fx.Node) -> int:
    index: Any = part.args[1] if part.target is operator.getitem else 0
    return index


def _last_reads(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each node, the tensors that nobody reads after it. What the graph returns lives on."""
    dying: dict[fx.Node, list[fx.Node]] = {}
    seen: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        for item in (*node.all_input_nodes, node):
            if item not in seen:
                seen.add(item)
                dying.setdefault(node, []).append(item)
    return dying
