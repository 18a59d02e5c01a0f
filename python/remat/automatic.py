"""What a training run holds beside a model, found without being told: its optimizers, and a batch that waits.

Reserved where nobody can say it: with `reserved="auto"`, and where the budget comes from the environment, because a trainer that
takes the name of a backend has no place for more. Elsewhere it is said if it was forgotten. The optimizers of a process are found
through the garbage collector; those count that hold a parameter of the region.
"""

from __future__ import annotations

import dataclasses
import gc
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .budget import in_bytes
from .errors import BudgetWarning
from .measure import local, storage_bytes
from .offload.moments import needed_bytes, offload_optimizer
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
    """The options with bytes in the place of `reserved="auto"`, and with what a step of offloaded optimizers needs.

    "auto" are the optimizers that update one of the tensors, and one batch more: loaders of trainers fetch one ahead. The batch is what is no parameter.
    """
    inputs = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    moved = sum(needed_bytes(optimizer) for optimizer in optimizers_of(inputs)) if options.offload_optimizer else 0
    if options.reserved != AUTO:
        return dataclasses.replace(options, reserved=in_bytes(options.reserved, 0) + moved) if moved else options
    waiting = sum(t.untyped_storage().nbytes() for t in inputs if not isinstance(t, torch.nn.Parameter))
    state = moved if options.offload_optimizer else sum(optimizer_bytes(optimizer) for optimizer in optimizers_of(inputs))
    return dataclasses.replace(options, reserved=state + waiting)


def unreserved_state(options: Options, tensors: Iterable[Any]) -> tuple[int, str]:
    """Bytes that the optimizers of the tensors hold above what is reserved, as far as they have their state, and their names.

    Optimizers of others keep more in their state than tensors, and may keep them on another device, which the budget does not count.
    """
    parameters = [tensor for tensor in tensors if isinstance(tensor, torch.nn.Parameter)]
    found, devices = optimizers_of(parameters), {parameter.device for parameter in parameters}
    held = [item for optimizer in found for item in tree_leaves(optimizer.state) if isinstance(item, torch.Tensor)]
    state = storage_bytes(local(item) for item in held if item.device in devices and item.layout is torch.strided)
    return state - in_bytes(options.reserved, 0), ", ".join(dict.fromkeys(type(optimizer).__name__ for optimizer in found))


def offload_optimizers(options: Options, tensors: Iterable[Any]) -> None:
    """Has the optimizers that update one of the tensors keep their state in the store, where the options ask for it."""
    if options.offload is None or not options.offload_optimizer or not torch.is_grad_enabled():
        return
    found = optimizers_of(tensors)
    for optimizer in found:
        offload_optimizer(optimizer, options.offload)
    if not found:
        warnings.warn(
            "offload_optimizer=True found no optimizer of the model, so nothing of it is offloaded; make it before the first step, or"
            " call remat.offload_optimizer(optimizer) and reserve what it returns",
            BudgetWarning,
            stacklevel=2,
        )
