"""Storages that the kernels of torch make larger than the fake tensors say.

In: a node of the joint graph. Out: the bytes of its results where they are known to differ. A fake tensor has the storage
that its shape needs; some kernels leave their result in a larger one, and a budget to the byte must count that. Found
by comparing real and fake storages over the models of the tests; the list is short, and each rule says why.
"""

from __future__ import annotations

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


def _storage(item: Any, number: Number) -> int:
    return number(item.meta["val"].untyped_storage().nbytes())


def _reduced_in_place(node: fx.Node, index: int, number: Number) -> int:
    """The loss per element is computed first, and its mean is written into the same storage."""
    value: Any = node.args[0].meta["val"]  # type: ignore[union-attr]
    reduction = node.args[2] if len(node.args) > 2 else node.kwargs.get("reduction", 1)
    return 0 if reduction == 0 else number(value.numel()) * value.element_size()


def _clones_whole_storage(node: fx.Node, index: int, number: Number) -> int:
    """The functional form of a copy clones the storage that it overwrites a part of."""
    return _storage(node.args[0], number)


def _one_more_offset(node: fx.Node, index: int, number: Number) -> int:
    """The second result, the bag of each index, is made with one element more than there are indices."""
    indices: Any = node.args[1].meta["val"]  # type: ignore[union-attr]
    return (number(indices.numel()) + 1) * indices.element_size() if index == 1 else 0


_RULES: dict[Any, Callable[[fx.Node, int, Number], int]] = {
    aten.smooth_l1_loss.default: _reduced_in_place,
    aten.copy.default: _clones_whole_storage,
    aten._embedding_bag.default: _one_more_offset,
}
