"""Operations of the joint graph that must be split or replaced before they can be recomputed.

- `native_dropout` draws a mask and multiplies. It becomes two operations: the draw, which runs once and whose result takes
  one byte per element, and the product, which may run again. Both give the bits of the CPU kernel.
- Batch norm in training returns the new running statistics too. A second run uses the form without statistics,
  which computes the same result and does not read the buffers that AOTAutograd has overwritten by then. Its backward
  is given the statistics and does not use them, so it is not given them here: they would be kept for nothing.
- Autograd copies a gradient that has another layout than its parameter when backward has ended and all gradients are
  alive. So it is copied here, where the plan counts the copy and frees the first one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from . import torch_compat

aten = torch.ops.aten


def draw_mask(x: torch.Tensor, p: float) -> torch.Tensor:
    """The elements that a dropout keeps, from the global generator, in the order of the kernel of torch."""
    return torch.empty_like(x, dtype=torch.bool).bernoulli_(1.0 - p)


draw_mask.remat_is_random = True  # type: ignore[attr-defined]


def apply_mask(x: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    """What a dropout returns, given its mask; in place, so that there is no second temporary."""
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    return x.mul(mask).mul_(scale)


def split_dropout(module: fx.GraphModule) -> None:
    """Replaces each `native_dropout` of a joint graph in training mode by a draw and a product."""
    graph = module.graph
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        x, p, train = (*node.args, True)[:3]
        parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        if train is False or len(parts) != len(node.users):
            continue
        with graph.inserting_before(node):
            mask = _insert(graph, node, "dropout_mask", draw_mask, (x, p), node.meta["val"][1])
            product = _insert(graph, node, "dropout", apply_mask, (x, mask, p), node.meta["val"][0])
        for index, replacement in ((0, product), (1, mask)):
            if index in parts:
                parts[index].replace_all_uses_with(replacement)
                graph.erase_node(parts[index])
        graph.erase_node(node)


def drop_running_statistics(module: fx.GraphModule) -> None:
    """Takes the running statistics from the arguments of the backward of batch norms in training mode."""
    for node in module.graph.find_nodes(op="call_function", target=aten.native_batch_norm_backward.default):
        gradient, x, weight, _mean, _variance, save_mean, save_inverse, train, *rest = node.args
        if train is True:
            node.args = (gradient, x, weight, None, None, save_mean, save_inverse, train, *rest)


def match_layouts(module: fx.GraphModule, n_forward_outputs: int, parameters: Iterable[int]) -> None:
    """Has the gradients of the inputs at these places returned in the layouts that autograd wants for them."""
    graph = module.graph
    output = next(iter(graph.find_nodes(op="output")))
    results = list(output.args[0])
    primals = [node for node in graph.find_nodes(op="placeholder") if not torch_compat.is_tangent(node)]
    for place in parameters:
        end = n_forward_outputs + place
        gradient = results[end] if end < len(results) else None
        if not isinstance(gradient, fx.Node):
            continue
        order = _order_to_copy(primals[place].meta.get("val"), gradient.meta.get("val"))
        if order is not None:
            # At once, so that the gradient is free from there on. One that was given to backward must stay among the inputs.
            with graph.inserting_before(gradient.next if gradient.op == "call_function" else output):
                results[end] = _copied(graph, gradient, order)
    output.args = (type(output.args[0])(results), *output.args[1:])


def has_layout_of(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether the elements are as far apart as those of the parameter; nobody steps along a dimension of size 1."""
    strides = zip(parameter.shape, parameter.stride(), gradient.stride(), strict=True)
    return all(size == 1 or own == other for size, own, other in strides)


def _order_to_copy(parameter: Any, gradient: Any) -> list[int] | None:
    """The dimensions of a gradient from the outermost to the innermost in the layout that it must be copied to.

    Autograd wants the layout of the parameter where that has no gaps, and otherwise a contiguous one. `None`: no copy is needed,
    the gradient is sparse, or the sizes are symbols, which parameters do not have.
    """
    if any(not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided for tensor in (parameter, gradient)):
        return None
    numbers = (*parameter.shape, *parameter.stride(), *gradient.shape, *gradient.stride())
    if any(type(number) is not int for number in numbers) or parameter.shape != gradient.shape:
        return None
    order = sorted(range(parameter.dim()), key=parameter.stride, reverse=True)
    if parameter.permute(order).is_contiguous():
        return None if has_layout_of(gradient, parameter) else order
    return None if gradient.is_contiguous() else list(range(gradient.dim()))


def _copied(graph: fx.Graph, node: fx.Node, order: list[int]) -> fx.Node:
    """Inserts a copy whose dimensions are in memory in the given order."""
    is_moved = order != sorted(order)
    if is_moved:
        node = _insert(graph, node, "outer_first", aten.permute.default, (node, order), node.meta["val"].permute(order))
    value = node.meta["val"].clone(memory_format=torch.contiguous_format)
    node = _insert(graph, node, "in_layout", aten.clone.default, (node,), value)
    node.kwargs = {"memory_format": torch.contiguous_format}
    if is_moved:
        back = sorted(range(len(order)), key=order.__getitem__)
        node = _insert(graph, node, "own_order", aten.permute.default, (node, back), value.permute(back))
    return node


def _insert(graph: fx.Graph, node: fx.Node, name: str, target: Any, args: tuple[Any, ...], value: Any) -> fx.Node:
    made = graph.create_node("call_function", target, args, name=name)
    made.meta = {**node.meta, "val": value}
    return made


def is_training_batch_norm(node: fx.Node) -> bool:
    """Whether a node is the batch norm whose result depends on the batch alone."""
    return node.target is aten._native_batch_norm_legit_functional.default and node.args[5] is True


def second_run(node: fx.Node) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Target and arguments with which a node runs again in backward, after the buffers were overwritten."""
    if is_training_batch_norm(node):
        x, weight, bias, _mean, _variance, training, momentum, epsilon = node.args
        return aten._native_batch_norm_legit.no_stats, (x, weight, bias, training, momentum, epsilon), {}
    return node.target, node.args, node.kwargs
