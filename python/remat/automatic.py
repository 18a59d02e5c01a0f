"""What a training run holds beside a model, found without being told: its optimizers, and a batch that waits.

Used where nobody can say it: with `reserved="auto"`, and where the budget comes from the environment, because a trainer that
takes the name of a backend has no place for more. The optimizers of a process are found through the garbage collector; those
count that hold a parameter of the region.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable
from typing import Any

import torch

from .optimizer import optimizer_bytes
from .options import AUTO, Options


def optimizers_of(tensors: Iterable[Any]) -> list[torch.optim.Optimizer]:
    """The optimizers that update one of these tensors, without the wrappers that trainers put around them."""
    wanted = {id(tensor) for tensor in tensors if isinstance(tensor, torch.nn.Parameter)}
    found = [item for item in gc.get_objects() if issubclass(type(item), torch.optim.Optimizer)]
    bare = [item for item in found if inner_optimizer(item) is item and hasattr(item, "param_groups")]
    return [item for item in bare if any(id(p) in wanted for group in item.param_groups for p in group["params"])]


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer of torch inside the wrappers of accelerate and Lightning."""
    while True:
        inner = optimizer.__dict__.get("optimizer") or optimizer.__dict__.get("_optimizer")
        if not isinstance(inner, torch.optim.Optimizer) or inner is optimizer:
            return optimizer
        optimizer = inner


def with_reserved(options: Options, tensors: Iterable[Any]) -> Options:
    """The options with bytes in the place of `reserved="auto"`.

    These are the optimizers that update one of the tensors, and one batch more: loaders of trainers fetch one ahead. The batch is what is no parameter.
    """
    if options.reserved != AUTO:
        return options
    inputs = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    waiting = sum(t.untyped_storage().nbytes() for t in inputs if not isinstance(t, torch.nn.Parameter))
    state = sum(optimizer_bytes(optimizer) for optimizer in optimizers_of(inputs))
    return dataclasses.replace(options, reserved=state + waiting)
