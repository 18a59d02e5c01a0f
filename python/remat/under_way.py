"""What is under way while a model trains: calls that wait for their backward, the step that they belong to, and what it holds."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import torch_compat
from .distributed import gradient_bucket_bytes
from .measure import local, storage_bytes
from .options import Options
from .problem import output_values
from .release import given_values
from .runner import Runner, Variant
from .together import Profile
from .watch import Watch


@dataclass
class Running:
    """A call of a region, from its forward to its backward."""

    runner: Runner
    variant: Variant
    reference: Any = None
    # Parameters whose gradients may be given away in backward.
    leaves: dict[int, torch.Tensor] = field(default_factory=dict)
    profile_index: int | None = None


@dataclass
class TrainingStep:
    """A training step: from a forward with nothing waiting to the end of the backward after which nothing waits."""

    key: tuple[Any, ...]
    # What plans must count, and what of it the meter sees: not the buckets of DDP.
    gradients: int
    seen_gradients: int
    # The plans it runs by, and those of the steps after it, where they differ because its loss is not known yet.
    choice: dict[int, Variant]
    later: dict[int, Variant] = field(default_factory=dict)
    meter: Watch | None = None
    profile: Profile = field(default_factory=Profile)
    # The sizes for which each region is planned.
    sizes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    n_calls: int = 0
    # Its highest memory so far, where it was measured to the end of a backward.
    measured: int = 0
    # Whether another model waited for its backward when it began.
    is_inside: bool = False
    is_ending: bool = False


def bytes_of(region: Any, values: Iterable[int]) -> int:
    """The bytes of some values of a region, each once."""
    return sum(region.values[value].bytes for value in set(values))


def output_bytes(variant: Variant) -> int:
    """The bytes that the caller gets from forward."""
    return bytes_of(variant.step.region, output_values(variant.step.region))


def held_in_backward(variant: Variant) -> int:
    """The bytes that are there when a backward begins: inputs, what was saved, the gradients it is given, outputs."""
    region = variant.step.region
    tangents = [value for node in region.tangents for value in region.needs[node]]
    return region.fixed_bytes + variant.phases.saved + bytes_of(region, tangents) + output_bytes(variant)


def storage_keys(tensors: Iterable[Any]) -> set[int]:
    """What names the storages of some tensors while they live."""
    return {tensor.untyped_storage()._cdata for tensor in tensors if isinstance(tensor, torch.Tensor)}


def note_leaves(leaves: dict[int, Any], arguments: Iterable[Any]) -> None:
    """Takes note of the parameters among some arguments, without keeping them alive."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor) and argument.is_leaf and argument.requires_grad:
            leaves.setdefault(id(argument), weakref.ref(argument))


def gradients_of(leaves: dict[int, Any]) -> int:
    """Bytes of the gradients that are there."""
    gradients = (leaf.grad for reference in leaves.values() if (leaf := reference()) is not None)
    return storage_bytes(local(g) for g in gradients if g is not None and g.layout is torch.strided)


def all_gradients(model: torch.nn.Module | None) -> float:
    """Bytes of the gradients of a model after a backward; no limit is known without the model."""
    return float("inf") if model is None else sum(local(p).nbytes for p in model.parameters() if p.requires_grad)


def held_gradients(leaves: dict[int, Any], options: Options) -> int:
    """Bytes of the gradients that are there before a step, and of the buckets in which DDP copies those that come."""
    there = 0 if options.accumulates else gradients_of(leaves)
    in_buckets = gradient_bucket_bytes()
    is_view = in_buckets and getattr(torch_compat.active_ddp(), "gradient_as_bucket_view", False)
    return max(there, in_buckets) if is_view else there + in_buckets


def kept_beyond_plan(runner: Runner, variant: Variant) -> int:
    """Bytes of the gradients that hooks left in the backward that has just run, and that its plan took for freed."""
    if runner.receiver is None:
        return 0
    region, kept = variant.step.region, runner.receiver.kept - variant.step.outside.kept
    return bytes_of(region, (value for place, value in given_values(region).items() if place in kept))
