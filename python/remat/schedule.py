"""A plan as a forward and a backward graph.

In: a `Step` and the steps of a plan. Out: the two graphs, in the order of the plan, with every recomputation written out.
Invariants: a storage is live exactly where the plan says so, because a graph holds a tensor from its node to the last
use and the plan frees directly after the last use; each live storage is saved once, as the tensor that was
made, and views of it are made again where they are read. Values that a plan moves to a store and back are written by `moving`.

An *environment* maps each node of the joint graph to its latest copy. Freeing a value forgets all tensors in its storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from . import torch_compat
from .capture import Op, Region, op_name, source_line, tensor_of
from .checks import check_graphs
from .errors import RematError
from .moving import Moving
from .plan_number import number_of as number_of
from .problem import PlanSteps, Step
from .rewrites import second_run
from .verify import compare, digest


@dataclass
class Schedule:
    """The two graphs of a plan."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    n_saved: int


def build(step: Step, plan: PlanSteps, *, verify: bool, number: int | None = None) -> Schedule:
    """Writes the graphs of a valid plan.

    With a `number`, forward saves an empty tensor that carries it, first of all tensors, so that backward can tell by
    which of several plans forward ran; and the same integers are saved whatever the plan.
    """
    written = _Emitter(step, plan, verify, number).emit()
    check_graphs(step, plan, written.forward.graph, written.backward.graph, number)
    return written


class _Emitter:
    def __init__(self, step: Step, plan: PlanSteps, verify: bool, number: int | None) -> None:
        self.step = step
        self.number = number
        self.region: Region = step.region
        self.plan = plan
        self.forward = fx.Graph()
        self.backward = fx.Graph()
        self.graph = self.forward
        self.environment: dict[fx.Node, fx.Node] = {}
        self.forward_environment: dict[fx.Node, fx.Node] = {}
        self.holders: dict[int, list[fx.Node]] = {}
        for node, values in self.region.needs.items():
            for value in values:
                self.holders.setdefault(value, []).append(node)
        self.live: set[int] = set()
        self.n_runs: dict[int, int] = {}
        runs = Counter(index for kind, index, *_ in plan if kind == "compute")
        self.repeated = {index for index, n_runs in runs.items() if n_runs > 1} if verify else set()
        self.made = {part for op in self.region.ops for part in op.outputs}
        self.digests: dict[fx.Node, fx.Node] = {}
        self.moving = Moving(step)
        # Placeholders of backward by what they hold, and the tensors of forward behind them.
        self.saved: dict[fx.Node, fx.Node] = {}
        self.saved_copies: dict[fx.Node, fx.Node] = {}
        self.first_tensor: fx.Node | None = None
        self.anchor: fx.Node | None = None
        self.forward_results: list[Any] = []

    def emit(self) -> Schedule:
        for primal in self.region.primals:
            self.environment[primal] = self._placeholder(self.forward, primal)
        for kind, index, *store in self.plan:
            if kind == "free":
                self._free(index)
            elif kind == "in":
                self.live.add(index)
                self.moving.bring(self.graph, index, store[0])
            elif kind == "out":
                self.moving.out(self.graph, index, store[0], self._resolve(self.moving.tensors[index]))
            elif kind == "discard":
                self.moving.discard(self.graph, index, store[0])
            elif (op := self.step.ops[index]) is None:
                self._cross_boundary()
            else:
                self._run(op, index)
        return self._finish()

    def _free(self, value: int) -> None:
        if self.moving.is_copied(value):
            self.moving.settle(self.graph, value, self._resolve(self.moving.tensors[value]))
        self.live.discard(value)
        for node in self.holders.get(value, ()):
            self.environment.pop(node, None)
            self.forward_environment.pop(node, None)

    def _run(self, op: Op, index: int) -> None:
        run = self.n_runs.get(index, 0)
        self.n_runs[index] = run + 1
        # Within forward nothing is overwritten yet, so a second run is like the first.
        is_late = run > 0 and self.graph is self.backward
        target: Any
        target, args, kwargs = second_run(op.node) if is_late else (op.node.target, op.node.args, op.node.kwargs)
        copy = self._copy(op.node, target, args, kwargs)
        copy.meta["remat_run"] = run
        fresh = set(op.makes) - self.live
        self.live.update(op.makes)
        if tensor_of(op.node) is not None:
            if fresh or not op.makes:
                self.environment[op.node] = copy
        else:
            for part in op.outputs:
                # A second run may return less than the first: batch norm without statistics.
                position: Any = part.args[1]
                is_returned = target is op.node.target or position < len(target._schema.returns)
                if is_returned and (self.region.needs[part] & fresh or not op.makes):
                    self.environment[part] = self._copy(part, part.target, (copy, *part.args[1:]), {}, keep=(copy,))
        if index in self.repeated:
            self._verify(op, run)

    def _verify(self, op: Op, run: int) -> None:
        """The first run leaves a digest of each tensor, which later runs are compared with."""
        for part in op.outputs:
            tensor = tensor_of(part)
            if part not in self.environment or tensor is None:
                continue
            made = self.environment[part]
            if run == 0:
                self.digests[part] = self.graph.call_function(digest, (made,))
                self.digests[part].meta = {"val": tensor.new_empty((), dtype=torch.int64)}
            else:
                expected = self._digest(part)
                label = f"{op_name(op.node)} ({op.node.name})"
                self.graph.call_function(compare, (made, expected, label, source_line(op.node)))

    def _digest(self, part: fx.Node) -> fx.Node:
        known = self.digests[part]
        if known.graph is self.graph:
            return known
        return self._save(part, known, key=known)

    def _copy(self, node: fx.Node, target: Any, args: Any, kwargs: Any, keep: tuple[fx.Node, ...] = ()) -> fx.Node:
        resolve: Callable[[fx.Node], fx.Node] = lambda item: item if item in keep else self._resolve(item)  # noqa: E731
        args, kwargs = fx.node.map_arg((args, kwargs), resolve)
        copy = self.graph.create_node("call_function", target, args, kwargs, name=node.name)
        copy.meta = dict(node.meta)
        return copy

    def _resolve(self, node: fx.Node) -> fx.Node:
        """The copy of a node in the graph that is being written."""
        if node in self.environment:
            return self.environment[node]
        if node.op == "get_attr":
            copy = self.graph.create_node("get_attr", node.target, name=node.name)
            copy.meta = dict(node.meta)
        elif self.moving.is_arriving(node):
            copy = self.moving.arrived(self.graph, node)
        elif self.graph is self.backward and self._can_be_saved(node):
            copy = self._save(node, self._forward_copy(node), key=node)
        elif node in self.region.needs and node not in self.made:
            copy = self._copy(node, node.target, node.args, node.kwargs)
        else:
            raise AssertionError(f"the plan reads {node.name}, which is not live")
        self.environment[node] = copy
        return copy

    def _can_be_saved(self, node: fx.Node) -> bool:
        if tensor_of(node) is None:
            if self.number is not None and node.op != "placeholder":
                # Integers are computed again from those of the caller, so that all plans save the same ones.
                return False
            return _is_number(node) and not _reaches_tangent(node, self.region)
        return node in self.forward_environment and (node.op == "placeholder" or node in self.made)

    def _forward_copy(self, node: fx.Node) -> fx.Node:
        """The copy in forward; numbers are computed there on demand."""
        if node in self.forward_environment:
            return self.forward_environment[node]
        graph, environment = self.graph, self.environment
        self.graph, self.environment = self.forward, self.forward_environment
        try:
            return self._resolve(node)
        finally:
            self.graph, self.environment = graph, environment

    def _save(self, node: fx.Node, copy: fx.Node, *, key: fx.Node) -> fx.Node:
        if key in self.saved:
            return self.saved[key]
        is_number = _is_number(node)
        before = self.first_tensor if is_number else self.anchor
        assert before is not None, "only backward reads saved tensors"
        with self.backward.inserting_before(before):
            placeholder = self._placeholder(self.backward, copy)
        if not is_number and self.first_tensor is self.anchor:
            self.first_tensor = placeholder
        self.saved[key] = placeholder
        self.saved_copies[placeholder] = copy
        return placeholder

    def _placeholder(self, graph: fx.Graph, node: fx.Node) -> fx.Node:
        placeholder = graph.create_node("placeholder", node.name, name=node.name)
        placeholder.meta = dict(node.meta)
        return placeholder

    def _cross_boundary(self) -> None:
        self.forward_results = [fx.node.map_arg(output, self._resolve) for output in self.region.forward_outputs]
        self.live.update(value for node in self.region.tangents for value in self.region.needs[node])
        self.graph = self.backward
        self.forward_environment, self.environment = self.environment, {}
        tangents = [self._placeholder(self.backward, node) for node in self.region.tangents]
        self.environment.update(zip(self.region.tangents, tangents, strict=True))
        with self.backward.inserting_before(tangents[0]):
            # Saved tensors are inserted before this node, which goes away in the end.
            self.anchor = self.backward.create_node("placeholder", "anchor")
        self.first_tensor = self.anchor
        if self.number is not None:
            self._save_number(self.number)
        elif self.moving.is_under_way:
            raise RematError("bug: a plan without a number moves values from forward to backward")

    def _save_number(self, number: int) -> None:
        """Saves the number of the plan, and every integer that any plan might need."""
        mark = self.moving.mark(self.forward, number)
        example = next(tensor for primal in self.region.primals if (tensor := tensor_of(primal)) is not None)
        mark.meta = {"val": example.new_empty((0, number), dtype=torch.float32, device="cpu")}
        self.moving.cross(self.backward, self._save(mark, mark, key=mark))
        for node in self.region.primals:
            if isinstance(node.meta.get("val"), torch.SymInt):
                self._save(node, self.forward_environment[node], key=node)

    def _finish(self) -> Schedule:
        results = [fx.node.map_arg(output, self._resolve) for output in self.region.backward_outputs]
        self.backward.output(results)
        saved = [node for node in self.backward.find_nodes(op="placeholder") if node in self.saved_copies]
        numbers = [node for node in saved if _is_number(node)]
        tensors = [node for node in saved if not _is_number(node)]
        checked = [node for node in tensors if not torch_compat.needs_no_version_check(node)]
        unchecked = [node for node in tensors if torch_compat.needs_no_version_check(node)]
        assert self.anchor is not None, "every plan runs the boundary"
        for node in unchecked:
            self.anchor.prepend(node)
        self.backward.erase_node(self.anchor)
        outputs = [self.saved_copies[node] for node in (*checked, *unchecked, *numbers)]
        output = self.forward.output([*self.forward_results, *outputs])
        _describe(self.region, output, len(outputs), len(checked), self.backward)
        for graph in (self.forward, self.backward):
            _erase_unused(graph)
        return Schedule(
            forward=fx.GraphModule(self.region.module, self.forward),
            backward=fx.GraphModule(self.region.module, self.backward),
            n_saved=len(outputs),
        )


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _reaches_tangent(node: fx.Node, region: Region) -> bool:
    """Whether a number comes from a gradient, which forward does not have."""
    pending, tangents = [node], set(region.tangents)
    while pending:
        item = pending.pop()
        if item in tangents:
            return True
        pending.extend(item.all_input_nodes)
    return False


def _describe(region: Region, output: fx.Node, n_saved: int, n_checked: int, backward: fx.Graph) -> None:
    """Copies what AOTAutograd notes at outputs, and adds it for the saved tensors."""
    joint = next(iter(region.module.graph.find_nodes(op="output")))
    descriptions = joint.meta.get("desc")
    if descriptions is not None:
        n_forward = len(region.forward_outputs)
        saved = torch_compat.saved_descriptions(n_saved, n_checked)
        output.meta["desc"] = [*descriptions[:n_forward], *saved]
        next(iter(backward.find_nodes(op="output"))).meta["desc"] = list(descriptions[n_forward:])


def _erase_unused(graph: fx.Graph) -> None:
    """Removes parts of results that nobody reads, and views and numbers without readers."""
    for node in reversed(list(graph.nodes)):
        is_part = node.op == "get_attr" or (node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem")
        if is_part and not node.users:
            graph.erase_node(node)
