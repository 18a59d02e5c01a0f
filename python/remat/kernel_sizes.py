"""Storages that the kernels of torch make larger than the fake tensors say.

In: a node of the joint graph. Out: the bytes of its results where they differ. A fake tensor has the storage that its shape
needs; some kernels leave their result in a larger one, and a budget to the byte must count that. `tests/test_kernel_sizes.py`
runs every operation of torch's own test database and fails where a storage is larger than this file says; operations from
elsewhere are caught when the first step is measured (`watch.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
Number = Callable[[Any], int]


def real_bytes(node: fx.Node, index: int, number: Number) -> int:
    """The least bytes of the storage of a node's result; 0 where the fake tensor is right."""
    rule = _RULES.get(node.target)
    return 0 if rule is None else rule(node, index, number)


def has_rule(target: Any) -> bool:
    """Whether an operation is known to make larger storages than fake tensors say."""
    return target in _RULES


def argument(node: fx.Node, name: str, default: Any) -> Any:
    """The value of a named argument of an operation; `default` where it has no such argument."""
    if name in node.kwargs:
        return node.kwargs[name]
    target: Any = node.target
    for index, declared in enumerate(target._schema.arguments):
        if declared.name == name:
            return node.args[index] if index < len(node.args) else declared.default_value
    return default


def _tensor(node: fx.Node, name: str) -> Any:
    return argument(node, name, None).meta["val"]


def _storage(tensor: Any, number: Number) -> int:
    return number(tensor.untyped_storage().nbytes())


def _result(node: fx.Node, index: int) -> Any:
    value = node.meta["val"]
    return value[index] if isinstance(value, (list, tuple)) else value


def _reduced_in_place(node: fx.Node, index: int, number: Number) -> int:
    """The loss per element is computed first, and its mean is written into the same storage."""
    if argument(node, "reduction", 1) == 0:
        return 0
    shape = torch.broadcast_shapes(_tensor(node, "self").shape, _tensor(node, "target").shape)
    return math.prod(number(size) for size in shape) * _result(node, index).element_size()


def _clones_whole_storage(node: fx.Node, index: int, number: Number) -> int:
    """The functional form of a copy clones the storage that it overwrites a part of."""
    return _storage(_tensor(node, "self"), number)


def _bags(node: fx.Node, index: int, number: Number) -> int:
    """The bag of each index has one element more than there are indices; the sizes of bags one for the last offset."""
    if index == 1 and (_result(node, 1).numel() != 0):
        indices = _tensor(node, "indices")
        return (number(indices.numel()) + 1) * indices.element_size()
    if index == 2:
        offsets = _tensor(node, "offsets")
        return number(offsets.numel()) * offsets.element_size()
    return 0


def _reuses_input(node: fx.Node, index: int, number: Number) -> int:
    """The result is resized from a buffer of the size of the input, which never shrinks."""
    value = _tensor(node, "self")
    return number(value.numel()) * value.element_size()


def _rows_of_both_sides(node: fx.Node, index: int, number: Number) -> int:
    """The solution is the upper part of a buffer with as many rows as the larger side of the matrix."""
    if index != 0:
        return 0
    matrix, right = _tensor(node, "self"), _tensor(node, "b")
    is_vector = right.dim() == 1 or (matrix.dim() - 1 == right.dim() and matrix.shape[:-1] == right.shape)
    solution = _result(node, 0)
    batch = [number(size) for size in (solution.shape[:-1] if is_vector else solution.shape[:-2])]
    columns = 1 if is_vector else number(right.shape[-1])
    rows = max(number(matrix.shape[-2]), number(matrix.shape[-1]))
    return math.prod(batch) * rows * columns * int(solution.element_size())


_RULES: dict[Any, Callable[[fx.Node, int, Number], int]] = {
    aten.mse_loss.default: _reduced_in_place,
    aten.smooth_l1_loss.default: _reduced_in_place,
    aten.binary_cross_entropy.default: _reduced_in_place,
    aten.soft_margin_loss.default: _reduced_in_place,
    aten.copy.default: _clones_whole_storage,
    aten.col2im.default: _reuses_input,
    aten._embedding_bag.default: _bags,
    aten._embedding_bag_forward_only.default: _bags,
    aten.linalg_lstsq.default: _rows_of_both_sides,
}
