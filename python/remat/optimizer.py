"""The memory of an optimizer: its state, and the temporaries of its step.

In: an optimizer over the parameters of a model. Out: bytes to reserve, so that forward, backward *and* the optimizer's
step stay within the budget. Found by trying: a copy of the optimizer updates one made-up parameter of each size and
type, which takes as much memory as the largest parameter needs, and the storages are counted. So it holds for any
optimizer that treats parameters one by one, and needs no table of optimizers.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

import torch

from . import torch_compat
from .measure import measure_peak


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the state of `optimizer` after its first step, and of what a step needs on top for a moment.

    Pass it as `reserved`. Implementations that update many parameters at once (`foreach=True`) have temporaries for all of
    them at the same time, the others for one.
    """
    return sum(state_and_temporaries(optimizer))


def state_and_temporaries(optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Bytes that stay, and bytes that only the step of the optimizer needs."""
    tried: dict[Any, tuple[int, int]] = {}
    state, largest, together = 0, 0, 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not parameter.requires_grad:
                continue
            key = (tuple(parameter.shape), parameter.dtype, parameter.device, id(group))
            if key not in tried:
                sizes, temporary = parameter_bytes(optimizer, group, parameter)
                tried[key] = sum(sizes), temporary
            kept, temporary = tried[key]
            state += kept
            largest = max(largest, temporary)
            together += temporary if group.get("foreach") else 0
    return state, max(largest, together)


def parameter_bytes(optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.Tensor) -> tuple[list[int], int]:
    """Bytes of each tensor of state, and of temporaries, for one parameter, in the third step: the first ones make the state and may change its types."""
    subject = torch.nn.Parameter(torch.zeros_like(parameter, requires_grad=False))
    subject.grad = torch.zeros_like(subject)
    twin = copy.copy(optimizer)
    twin.param_groups = [{**group, "params": [subject]}]
    twin.state = defaultdict(dict)
    # State that rests in a store is not there to be copied.
    if parameter in optimizer.state and getattr(optimizer, "remat_moments", None) is None:
        twin.state[subject] = copy.deepcopy(optimizer.state[parameter])
    with torch_compat.not_compiling():
        return _third_step(twin, subject)


def _third_step(twin: torch.optim.Optimizer, subject: torch.nn.Parameter) -> tuple[list[int], int]:
    twin.step()
    twin.step()
    sizes = [value.untyped_storage().nbytes() for value in twin.state[subject].values() if torch.is_tensor(value)]
    with measure_peak(subject.device) as peak:
        twin.step()
    return sizes, max(peak.bytes - sum(sizes) - 2 * subject.untyped_storage().nbytes(), 0)
