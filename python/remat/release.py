"""Gradients that are given away while backward still runs.

With an optimizer in backward (`register_post_accumulate_grad_hook` that steps and sets `p.grad = None`) a gradient is needed
for a moment only, but a compiled backward returns all of them when it ends. With `releases_gradients=True` the joint
graph gets an operation behind each gradient that accumulates it and calls the hooks of its parameter, as autograd would do
later, and returns nothing for it. The plan sees that the gradient is free from there on.

A hook may change the parameter, so all operations of backward that read it come first (`problem` orders them), and where a plan
recomputes from it later, the gradient is held until then (`postpone`). Autograd calls the hooks once more when
backward ends; this call is left out, or, if something outside of the region has added to the gradient by then, an error: its
optimizer has taken its step with a part of the gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from . import torch_compat
from .capture import Region, nested_nodes
from .errors import RematError
from .rewrites import has_layout_of


class Receiver:
    """Takes the gradients of a region, for the backward that is running."""

    def __init__(self) -> None:
        self.leaves: dict[int, torch.Tensor] = {}
        self.kept: dict[int, torch.Tensor] = {}

    def operation(self, place: int) -> Callable[[torch.Tensor], None]:
        """The operation that gives the gradient of an input of the region away."""

        def hand_over(gradient: torch.Tensor) -> None:
            leaf = self.leaves.get(place)
            if leaf is None or not torch_compat.will_accumulate(leaf):
                self.kept[place] = gradient
            else:
                _accumulate(leaf, gradient)
                _call_hooks(leaf)

        hand_over.remat_gives_away = place  # type: ignore[attr-defined]
        return hand_over

    def run(self, backward: Callable[[list[Any]], Any], arguments: list[Any], leaves: dict[int, torch.Tensor]) -> Any:
        """Runs a backward. Gradients of other inputs than `leaves` are returned, as if there was no receiver."""
        self.leaves, self.kept = leaves, {}
        try:
            results = list(backward(arguments))
            for place, gradient in self.kept.items():
                results[place] = gradient
            return results
        finally:
            self.leaves, self.kept = {}, {}


def give_away(region: Region, receiver: Receiver) -> None:
    """Writes the operations into the joint graph of a region, which must be read again afterwards.

    Left out are gradients whose storage something else reads or returns: a hook may change it.
    """
    graph, n_forward = region.module.graph, len(region.forward_outputs)
    if len(region.backward_outputs) != len(region.primals):
        return
    output = next(iter(graph.find_nodes(op="output")))
    results = list(output.args[0])
    readers = Counter(value for op in region.ops for value in op.reads)
    returned = Counter(value for node in nested_nodes(results) for value in region.needs[node])
    made = {value for op in region.ops for value in op.makes}
    position = {node: index for index, node in enumerate(graph.nodes)}
    last_read = _last_reads(region)
    for place, gradient in enumerate(region.backward_outputs):
        if not isinstance(gradient, fx.Node) or len(region.needs[gradient]) != 1:
            continue
        (value,) = region.needs[gradient]
        if value in made and readers[value] == 0 and returned[value] == 1:
            last = max(gradient, last_read.get(region.primals[place], gradient), key=position.__getitem__)
            with graph.inserting_after(last):
                graph.call_function(receiver.operation(place), (gradient,))
            results[n_forward + place] = None
    output.args = (results,)


def place_of(node: fx.Node) -> int | None:
    """The input whose gradient an operation gives away; `None` for other operations."""
    return getattr(node.target, "remat_gives_away", None)


def late(region: Region, ran: Iterable[fx.Node]) -> frozenset[int]:
    """The inputs that a plan reads after it has given their gradients away, from the nodes in the order in which they run."""
    reads = primals_read(region)
    given: set[fx.Node] = set()
    found: set[fx.Node] = set()
    for node in ran:
        found |= given & reads[node]
        place = place_of(node)
        if place is not None:
            given.add(region.primals[place])
    return frozenset(place for place, primal in enumerate(region.primals) if primal in found)


def primals_read(region: Region) -> dict[fx.Node, frozenset[fx.Node]]:
    """For each operation, the inputs of the region that it reads, also through views."""
    made = {part for op in region.ops for part in (op.node, *op.outputs)}
    # What lies behind the tensors that are views, and what the operations read.
    behind: dict[fx.Node, frozenset[fx.Node]] = {primal: frozenset({primal}) for primal in region.primals}
    reads: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in region.module.graph.nodes:
        if node.op == "call_function":
            found = frozenset().union(*(behind.get(source, frozenset()) for source in node.all_input_nodes))
            (reads if node in made else behind)[node] = found
    return reads


def _last_reads(region: Region) -> dict[fx.Node, fx.Node]:
    """The last operation of backward that reads each input."""
    reads = primals_read(region)
    return {primal: op.node for op in region.ops if op.is_backward for primal in reads[op.node]}


def leaves_of(arguments: list[Any]) -> dict[int, torch.Tensor]:
    """The parameters among the arguments of a call whose gradients can be given away.

    Left out are those whose gradient a hook of the tensor may replace, and those that share their memory with others.
    """
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    sharing = Counter(tensor.untyped_storage()._cdata for tensor in tensors)
    return {
        place: argument
        for place, argument in enumerate(arguments)
        if isinstance(argument, torch.Tensor)
        and argument.is_leaf
        and argument.requires_grad
        and not argument._backward_hooks
        and sharing[argument.untyped_storage()._cdata] == 1
    }


def _accumulate(leaf: torch.Tensor, gradient: torch.Tensor) -> None:
    """What autograd does with a gradient that has arrived; one in another layout is copied into that of its parameter."""
    if leaf.grad is not None:
        leaf.grad.add_(gradient)
    elif has_layout_of(gradient, leaf):
        leaf.grad = gradient
    else:
        leaf.grad = torch.empty_like(leaf, requires_grad=False).copy_(gradient)


def _call_hooks(leaf: torch.Tensor) -> None:
    hooks: dict[int, Any] = getattr(leaf, "_post_accumulate_grad_hooks", None) or {}
    for key, hook in list(hooks.items()):
        once = hook if isinstance(hook, _Once) else _Once(hook)
        hooks[key] = once
        once.hook(leaf)
        once.task, once.left = torch_compat.backward_id(), _state(leaf.grad)


class _Once:
    """A hook that has been called before autograd does so, once for each backward."""

    def __init__(self, hook: Callable[[torch.Tensor], None]) -> None:
        self.hook = hook
        self.task: int | None = None
        self.left: Any = None

    def __call__(self, leaf: torch.Tensor) -> None:
        task, self.task = self.task, None
        if task is None or task != torch_compat.backward_id():
            self.hook(leaf)
        elif _state(leaf.grad) != self.left:
            raise RematError(
                f"a parameter of shape {list(leaf.shape)} got a gradient from outside of the compiled module after its hook had"
                " consumed the other part; compute the whole loss inside of the module (remat.compile(..., loss=...)), or leave"
                " out releases_gradients=True"
            )


def _state(gradient: torch.Tensor | None) -> Any:
    return None if gradient is None else (id(gradient), gradient._version)
