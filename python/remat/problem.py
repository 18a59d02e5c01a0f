"""A region and its costs as a `remat.problem/1` for the planner, or `/2` where values may be moved to stores.

In: a `Region` and seconds per operation. Out: a `Step`: the problem as JSON, with the operation behind every node.

Between forward and backward stands one node that is no operation, the *boundary*. It reads every output of forward, and
makes the gradients that autograd hands to backward. What a plan computes before it becomes the forward graph, what it
computes after it the backward graph, and what is live there is saved. So the plan, and not the partitioner, decides
what is forward.

Operations with effects (random draws, collectives) must keep their order, or other numbers would come out. Values of
zero bytes chain them, through the boundary too.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import fx

from ._remat import Problem
from .capture import Op, Region, module_path, nested_nodes, op_name, tensors_of
from .release import given_values, place_of, primals_read
from .stores import Stores, without_speeds

BOUNDARY = "boundary"
# A loss that is computed outside: its value and its gradient, which live during backward, padded.
LOSS_BYTES = 16
# `("compute", node)`, `("free", value)`, and `("out" | "in" | "discard", value, store)`.
PlanSteps = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Outside:
    """Bytes that something outside of a region holds: during the whole step, only in one pass, and between the passes.

    `between` is what must be free between forward and backward beside the gradients that backward is given; `None` assumes a
    cross entropy (`loss_bytes`). `frees_tangents`: nobody but backward holds the gradients that it is given. `kept`: the inputs
    whose gradients are given away in the middle of backward (`release`) and stay alive all the same.
    """

    always: int = 0
    forward: int = 0
    backward: int = 0
    between: int | None = None
    frees_tangents: bool = False
    kept: frozenset[int] = frozenset()


@dataclass(repr=False)
class Step:
    """A planning problem, and what its nodes stand for; `None` is the boundary."""

    region: Region
    text: str
    problem: Problem
    ops: list[Op | None]
    keep_all: str
    # A hash of everything but costs: the same graph has the same hash in every process.
    hash: str
    costs: dict[fx.Node, float]
    workspaces: dict[fx.Node, int]
    outside: Outside
    # Where plans may move values to.
    stores: Stores | None = None

    @cached_property
    def keep_all_peak(self) -> int:
        """Peak without recomputation, in the order of the joint graph."""
        return int(json.loads(self.keep_all)["peak_bytes"])


def graph_hash(problem: dict[str, Any]) -> str:
    """A hash of a problem without its costs, the speed of its stores, and its name."""
    problem = without_speeds(problem)
    nodes = [{**node, "cost": 0.0} for node in problem["nodes"]]
    return hashlib.sha256(json.dumps({**problem, "name": "", "nodes": nodes}, sort_keys=True).encode()).hexdigest()


def build(
    region: Region, costs: dict[fx.Node, float], workspaces: dict[fx.Node, int], outside: Outside, stores: Stores | None = None
) -> Step:
    """Writes the problem. The order is that of the joint graph, with the boundary where forward ends."""
    order = _with_boundary(region)
    values = [{"name": value.name, "bytes": value.bytes} for value in region.values]
    inputs: list[int] = []
    lasting = sorted(_lasting(region, outside))
    boundary = _boundary(region, outside)
    for name, size, ends in (("outside.forward", outside.forward, "inputs"), ("outside.backward", outside.backward, "outputs")):
        if size:
            values.append({"name": name, "bytes": size})
            boundary[ends].append(len(values) - 1)
            (inputs if ends == "inputs" else lasting).append(len(values) - 1)
    nodes: list[dict[str, Any]] = []
    token: int | None = None
    for op in order:
        node = boundary if op is None else _node(op, costs, workspaces)
        if op is None or op.is_ordered:
            values.append({"name": f"order.{len(nodes)}", "bytes": 0})
            node["inputs"] += [] if token is None else [token]
            token = len(values) - 1
            node["outputs"].append(token)
        nodes.append(node)
    _give_away_last(region, order, nodes, values)
    is_assumed = outside.between is None and not region.has_loss_inside
    problem = {
        "schema": "remat.problem/1",
        "name": "",
        "cost_unit": "s",
        "fixed_bytes": region.fixed_bytes + outside.always + (LOSS_BYTES if is_assumed else 0),
        "values": values,
        "inputs": inputs,
        "nodes": nodes,
        "outputs": lasting,
    }
    if stores is not None:
        stores.describe(problem, region, frozenset(lasting))
    fingerprint = graph_hash(problem)
    problem["name"] = f"torch.{fingerprint[:12]}"
    return _step(region, problem, order, fingerprint, costs, workspaces, outside, stores)


def _give_away_last(
    region: Region, order: list[Op | None], nodes: list[dict[str, Any]], values: list[dict[str, Any]]
) -> None:
    """Chains the operations of backward that read a parameter, by values of zero bytes, to the one after which it may change."""
    givers = {region.primals[place]: index for index, op in enumerate(order) if op and (place := place_of(op.node)) is not None}
    if not givers:
        return
    reads = primals_read(region)
    for index, op in enumerate(order):
        if op is None or not op.is_backward:
            continue
        for primal in reads[op.node]:
            if primal in givers:
                values.append({"name": f"read.{len(values)}", "bytes": 0})
                nodes[index]["outputs"].append(len(values) - 1)
                nodes[givers[primal]]["inputs"].append(len(values) - 1)


def with_outside(step: Step, outside: Outside) -> Step:
    """The same step, with something else outside."""
    return step if outside == step.outside else build(step.region, step.costs, step.workspaces, outside, step.stores)


def with_costs(step: Step, costs: list[float]) -> Step:
    """The same step with other seconds per node."""
    problem = json.loads(step.text)
    for node, cost in zip(problem["nodes"], costs, strict=True):
        node["cost"] = cost
    return _step(step.region, problem, step.ops, step.hash, step.costs, step.workspaces, step.outside, step.stores)


def adjusted(step: Step, costs: list[float], block: int) -> Step:
    """The same step with other seconds per node, and with every storage rounded up to whole blocks."""
    problem = json.loads(step.text)
    for node, cost in zip(problem["nodes"], costs, strict=True):
        node["cost"] = cost
    for value in problem["values"]:
        value["bytes"] = -(-value["bytes"] // block) * block
    # What is fixed consists of the inputs, each in a block of its own.
    problem["fixed_bytes"] += (block - 1) * len(step.region.primals)
    return _step(step.region, problem, step.ops, graph_hash(problem), step.costs, step.workspaces, step.outside, step.stores)


def node_costs(step: Step) -> list[float]:
    """Seconds per node, in the order of the problem."""
    return [node["cost"] for node in json.loads(step.text)["nodes"]]


def fixed_bytes(step: Step) -> int:
    """Memory that is held during the whole step, whatever the plan."""
    return int(json.loads(step.text)["fixed_bytes"])


def between_bytes(step: Step) -> int:
    """Memory that must be free between forward and backward, beside the gradients that backward is given."""
    return loss_bytes(step.region) if step.outside.between is None else step.outside.between


def gradient_bytes(region: Region) -> int:
    """Bytes of the gradients that backward returns, each storage once."""
    nodes = [node for output in region.backward_outputs for node in nested_nodes(output)]
    return sum(region.values[value].bytes for value in frozenset().union(*(region.needs[node] for node in nodes)))


def output_values(region: Region) -> frozenset[int]:
    """The values behind what forward returns to the caller; what only carries the new content of an input dies at once."""
    results = zip(region.forward_outputs, region.overwrites_input, strict=True)
    nodes = [node for output, is_overwrite in results if not is_overwrite for node in nested_nodes(output)]
    return frozenset().union(*(region.needs[node] for node in nodes))


def end_of_step(step: Step) -> tuple[int, int]:
    """Bytes that are live after the last node, and that node: the last one that makes something which lasts."""
    problem = json.loads(step.text)
    lasting = set(problem["outputs"])
    makers = [index for index, node in enumerate(problem["nodes"]) if lasting.intersection(node["outputs"])]
    return int(problem["fixed_bytes"]) + sum(problem["values"][value]["bytes"] for value in lasting), max(makers, default=0)


def _step(
    region: Region,
    problem: dict[str, Any],
    order: list[Op | None],
    fingerprint: str,
    costs: dict[fx.Node, float],
    workspaces: dict[fx.Node, int],
    outside: Outside,
    stores: Stores | None,
) -> Step:
    text = json.dumps(problem)
    checked = Problem(text)
    keep_all, _ = checked.solve(2**62, planner="save-all")
    return Step(region, text, checked, order, keep_all, fingerprint, costs, workspaces, outside, stores)


def _node(op: Op, costs: dict[fx.Node, float], workspaces: dict[fx.Node, int]) -> dict[str, Any]:
    node = {
        "name": op.node.name,
        "op": op_name(op.node),
        "phase": "backward" if op.is_backward else "forward",
        "cost": costs[op.node],
        "workspace_bytes": workspaces.get(op.node, 0),
        "inputs": list(op.reads),
        "outputs": list(op.makes),
        "recompute": op.may_repeat,
    }
    module = module_path(op.node)
    return node if module is None else {**node, "module": module}


def _boundary(region: Region, outside: Outside) -> dict[str, Any]:
    outputs = [node for output in region.forward_outputs for node in nested_nodes(output)]
    return {
        "name": BOUNDARY,
        "op": BOUNDARY,
        "phase": "forward",
        "cost": 0.0,
        "workspace_bytes": loss_bytes(region) if outside.between is None else outside.between,
        "inputs": sorted(frozenset().union(*(region.needs[node] for node in outputs))),
        "outputs": sorted(frozenset().union(*(region.needs[node] for node in region.tangents))),
        "recompute": False,
    }


def loss_bytes(region: Region) -> int:
    """Memory of a loss that is computed outside the region.

    Where no output is a scalar, the loss comes afterwards, as in `cross_entropy(model(x), y)`: beside the gradient of the
    logits that we count anyway it holds the log-probabilities and one more gradient of that size.
    """
    if region.has_loss_inside:
        return 0
    return 2 * sum(region.shapes.number(t.untyped_storage().nbytes()) for node in region.tangents for t in tensors_of(node))


def _lasting(region: Region, outside: Outside) -> frozenset[int]:
    """Values that live to the end: gradients, and what autograd and the caller hold until backward returns."""
    gradients = [node for output in region.backward_outputs for node in nested_nodes(output)]
    # The gradient of a loss is held where its backward is called.
    held = [node for node in region.tangents if not outside.frees_tangents or any(t.dim() == 0 for t in tensors_of(node))]
    given = [value for place, value in given_values(region).items() if place in outside.kept]
    return output_values(region).union(given, *(region.needs[node] for node in (*gradients, *held)))


def _with_boundary(region: Region) -> list[Op | None]:
    """The operations in the joint order, with the boundary after the last one that an output of forward needs."""
    makers = {value: op for op in region.ops for value in op.makes}
    outputs = [node for output in region.forward_outputs for node in nested_nodes(output)]
    pending = [makers[value] for node in outputs for value in region.needs[node] if value in makers]
    forward: set[int] = set()
    while pending:
        op = pending.pop()
        if id(op) not in forward:
            forward.add(id(op))
            pending.extend(makers[value] for value in op.reads if value in makers)
    early = [op for op in region.ops if id(op) in forward or (op.is_ordered and not op.is_backward)]
    chosen = {id(op) for op in early}
    return [*early, None, *(op for op in region.ops if id(op) not in chosen)]
