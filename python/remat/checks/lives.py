"""The emitted graphs run the operations in the order of the plan, and hold no storage longer than the plan says.

In: a plan, and what the nodes of the two graphs stand for (`values`). A tensor lives from its node to its last reader, a saved one
from forward to its last reader in backward. Where the plan frees a storage, no tensor in it may be alive when the
next operation runs. So the peak of the graphs is not above that of the plan, which the planner's own checker has seen.

Copies begin in the order of the plan, too. Where the plan frees a value, the copies of it must have ended: a `settle` for each copy out, directly
before, that holds the tensor until then, and an `arrived` for a copy in.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import fx

from ..capture import Op
from ..offload.steps import packed, unpacked
from ..problem import PlanSteps, Step
from .fault import EmittedFault, told
from .originals import N_WITHOUT_STATISTICS
from .values import Emitted

Storages = frozenset[int]
NOTHING: Storages = frozenset()


def check(step: Step, plan: PlanSteps, emitted: Emitted) -> None:
    """Walks through the plan and the graphs side by side."""
    _Walk(step, plan, emitted).walk()


class _Walk:
    def __init__(self, step: Step, plan: PlanSteps, emitted: Emitted) -> None:
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
        self.moves = emitted.moved.functions
        # By the numbers of what was moved: the value. By value: copies out of its memory; and values that nobody has waited for.
        self.value_of: dict[int, int] = {}
        self.copies: dict[int, set[int]] = {}
        self.settled: set[int] = set()
        self.arriving: set[int] = set()
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
        step = self._next_step()
        if step is not None and step[0] != "compute":
            raise EmittedFault(f"the plan has {step[0]} {self._name(step[1])} where the graphs have nothing of the kind")
        return None if step is None else self.step.ops[step[1]]

    def _next_step(self, until_free_of: int | None = None) -> tuple[Any, ...] | None:
        """Goes to the next step that is no free, or to the free of one value."""
        while self.position < len(self.plan):
            step = self.plan[self.position]
            if step[0] != "free" or step[1] == until_free_of:
                return step
            value = step[1]
            if self.copies.pop(value, set()) - self.settled or value in self.arriving:
                raise EmittedFault(f"{self._name(value)} is freed before a copy of it has ended")
            self.freed.add(value)
            self.position += 1
        return None

    def _name(self, value: int) -> str:
        return self.region.values[value].name if value < len(self.region.values) else f"value {value}"

    def _run(self, graph: fx.Graph, inputs: dict[fx.Node, Storages]) -> None:
        last_reads = _last_reads(graph)
        for node in graph.nodes:
            if node.op == "output":
                break
            if node.op == "placeholder":
                self._hold(node, inputs[node])
            elif node.target in self.moves:
                self._run_move(node, *self.moves[node.target])
            elif node.target in (packed, unpacked):
                self._hold(node, NOTHING)
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

    def _run_move(self, node: fx.Node, kind: str, store: int) -> None:
        source: Any = node.args[0]
        number = self.emitted.values[source]
        if kind == "arrived":
            self.arriving.difference_update(self.storages[source])
            self._hold(node, self.storages[source])
            return
        if kind in ("out", "settle"):
            tensor: Any = source if kind == "out" else node.args[1]
            held = self.storages[tensor]
            value = next(iter(held)) if len(held) == 1 else None
        else:
            value = self.value_of[number]
        if kind == "settle":
            if value is None or self._next_step(until_free_of=value) != ("free", value):
                raise EmittedFault(f"{told(node)} waits where the plan does not free what was copied")
            self.settled.add(number)
            self._hold(node, NOTHING)
            return
        if self._next_step() != ({"bring": "in"}.get(kind, kind), value, store) or value is None:
            raise EmittedFault(f"{told(node)} does not move what the plan moves there, or to another place")
        self.position += 1
        if kind == "bring":
            self._check_freed(told(node))
            self.arriving.add(value)
        elif kind == "out":
            self.copies.setdefault(value, set()).add(self.emitted.values[node])
        else:
            self.copies.get(value, set()).discard(number)
        if kind != "discard":
            self.value_of[self.emitted.values[node]] = value
        self._hold(node, frozenset({value}) if kind == "bring" else NOTHING)

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
            number = self.emitted.values.get(node)
            if number is not None and number in self.emitted.moved.arriving:
                return frozenset({self.value_of[number]})
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
