"""Gradients that are given away while backward still runs.

With an optimizer in backward (`register_post_accumulate_grad_hook` that steps and sets `p.grad = None`) a gradient is needed
for a moment only, but a compiled backward returns all of them when it ends. Where every parameter has such a hook, or with
`releases_gradients=True`, the joint graph gets an operation behind each gradient that accumulates it and calls the hooks of its
parameter, as autograd would do later, and returns nothing for it. The plan sees that the gradient is free from there on, unless
an earlier backward has shown that its hooks leave it (`Receiver.kept`).

A hook may change the parameter, so all operations of backward that read it come first (`problem` orders them), and where a plan
recomputes from it later, the gradient is held until then (`postpone`). A gradient to which something outside of the region adds,
such as a penalty on the weights, is returned at the end. Autograd calls the hooks once more when backward ends; this
call is left out.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from . import torch_compat
from .capture import Region, nested_nodes
from .errors import RematError
from .rewrites import has_layout_of


class Hooks(enum.Enum):
    """Which parameters of a region have hooks that run after their gradients were accumulated.

    Only on the CPU is it known what adds to a gradient (`torch_compat.gradient_sources`), so that all of them may be called early.
    """

    NONE = enum.auto()
    SOME = enum.auto()
    ALL_ON_CPU = enum.auto()


def hooks_of(inputs: Iterable[Any]) -> Hooks:
    """Looks at the parameters among the inputs of a region."""
    leaves = [item for item in inputs if isinstance(item, torch.Tensor) and item.is_leaf and item.requires_grad]
    hooked = [leaf for leaf in leaves if getattr(leaf, "_post_accumulate_grad_hooks", None)]
    if not hooked:
        return Hooks.NONE
    return Hooks.ALL_ON_CPU if len(hooked) == len(leaves) and all(leaf.is_cpu for leaf in leaves) else Hooks.SOME


class Receiver:
    """Takes the gradients of a region, for the backward that is running.

    What else adds to a gradient cannot always be told (`torch_compat.gradient_sources`). Then gradients are given away if the
    caller has declared that hooks consume them, and an addition that comes too late is an error.
    """

    def __init__(self, *, is_declared: bool) -> None:
        self.is_declared = is_declared
        self.leaves: dict[int, torch.Tensor] = {}
        self.sources: Counter[Any] | None = None
        self.returned: dict[int, torch.Tensor] = {}
        # Inputs whose gradients were alive when the backward ended, and were not before it.
        self.kept: set[int] = set()

    def operation(self, place: int) -> Callable[[torch.Tensor], None]:
        """The operation that gives the gradient of an input of the region away."""

        def hand_over(gradient: torch.Tensor) -> None:
            leaf = self.leaves.get(place)
            if leaf is None or not self._is_complete(leaf):
                self.returned[place] = gradient
                self.kept.add(place)
                return
            was_there = leaf.grad is not None
            _accumulate(leaf, gradient)
            _call_hooks(leaf)
            if leaf.grad is not None and not was_there:
                self.kept.add(place)

        hand_over.remat_gives_away = place  # type: ignore[attr-defined]
        return hand_over

    def run(self, backward: Callable[[list[Any]], Any], arguments: list[Any], leaves: dict[int, torch.Tensor]) -> Any:
        """Runs a backward. Gradients of other inputs than `leaves` are returned, as if there was no receiver."""
        self.leaves, self.returned, self.kept = leaves, {}, set()
        self.sources = torch_compat.gradient_sources() if leaves else None
        try:
            results = list(backward(arguments))
            for place, gradient in self.returned.items():
                results[place] = gradient
            return results
        finally:
            self.leaves, self.returned, self.sources = {}, {}, None

    def _is_complete(self, leaf: torch.Tensor) -> bool:
        """Whether the backward that is running accumulates the gradient of a leaf, and has nothing to add to it."""
        if not torch_compat.will_accumulate(leaf):
            return False
        return self.is_declared if self.sources is None else self.sources[torch_compat.accumulator(leaf)] == 1


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


def given_values(region: Region) -> dict[int, int]:
    """The inputs whose gradients are given away, and the values of these gradients."""
    return {place: op.reads[0] for op in region.ops if (place := place_of(op.node)) is not None}


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
                " consumed the other part; compute the whole loss inside of the module (remat.compile(..., loss=...)), or set"
                " releases_gradients=False"
            )


def _state(gradient: torch.Tensor | None) -> Any:
    return None if gradient is None else (id(gradient), gradient._version)
