"""Seconds per operation: calculated from floating point operations and bytes, or measured on the device.

Costs decide which of the plans that fit is chosen. They never decide whether a plan is valid or how much memory it needs,
so a wrong cost makes a step slower, not wrong. Calculated costs are the default: they are the same in every process,
and with them so are the plans. Measured costs run every operation alone on random data; equal ones (same operation,
shapes, strides and types) once per process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from .capture import Region, tensors_of
from .problem import Step

# A mid-range CPU core pair, and a GPU. Only the ratio of the two numbers of a row matters for a plan.
SPEEDS = {"cpu": (100e9, 15e9), "cuda": (20e12, 1000e9)}
CALL_SECONDS = 5e-6
MEASURED_RUNS = 3
_measured: dict[Any, tuple[float, int]] = {}


def analytic(region: Region) -> dict[fx.Node, float]:
    """Roofline costs: the slower of computing and moving, and a constant for the call."""
    return {op.node: _roofline(region, op.node) for op in region.ops}


def measured(region: Region) -> tuple[dict[fx.Node, float], dict[fx.Node, int]]:
    """Seconds, and bytes of workspace where the allocator can tell (CUDA)."""
    costs: dict[fx.Node, float] = {}
    workspaces: dict[fx.Node, int] = {}
    state = torch.random.get_rng_state()
    try:
        for op in region.ops:
            key = _signature(region, op.node)
            if key not in _measured:
                _measured[key] = _measure(region, op.node)
            costs[op.node], workspaces[op.node] = _measured[key]
    finally:
        torch.random.set_rng_state(state)
    return costs, workspaces


def speeds_of(step: Step, speeds: tuple[float, float]) -> list[float]:
    """Roofline costs of all nodes of a step on a device with these floating point operations and bytes per second."""
    return [0.0 if op is None else _roofline(step.region, op.node, speeds) for op in step.ops]


def _roofline(region: Region, node: fx.Node, speeds: tuple[float, float] | None = None) -> float:
    number = region.shapes.number
    tensors = [t for source in node.all_input_nodes for t in tensors_of(source)] + tensors_of(node)
    moved = sum(number(t.numel()) * t.element_size() for t in tensors)
    device = tensors[0].device.type if tensors else "cpu"
    flops_per_second, bytes_per_second = speeds or SPEEDS.get(device, SPEEDS["cuda"])
    return CALL_SECONDS + max(_flops(region, node) / flops_per_second, moved / bytes_per_second)


def _flops(region: Region, node: fx.Node) -> float:
    packet = getattr(node.target, "overloadpacket", None)
    count: Callable[..., Any] | None = flop_registry.get(packet)
    if count is None:
        return 0.0
    value_of = lambda item: item.meta.get("val") if isinstance(item, fx.Node) else item  # noqa: E731
    args, kwargs = pytree.tree_map(value_of, (list(node.args), dict(node.kwargs)))
    try:
        return float(region.shapes.number(count(*args, **kwargs, out_val=node.meta.get("val"))))
    except (TypeError, AttributeError, ValueError, RuntimeError, IndexError, AssertionError):
        # The registry knows fewer forms than there are; the bytes still count.
        return 0.0


def _signature(region: Region, node: fx.Node) -> Any:
    number = region.shapes.number

    def describe(item: Any) -> Any:
        value = item.meta.get("val") if isinstance(item, fx.Node) else item
        if isinstance(value, torch.Tensor):
            return (tuple(map(number, value.shape)), tuple(map(number, value.stride())), str(value.dtype), str(value.device))
        return number(value) if isinstance(value, torch.SymInt) else str(value)

    flat = pytree.tree_leaves((list(node.args), dict(node.kwargs)))
    return (str(node.target), tuple(describe(item) for item in flat))


def _real(region: Region, item: Any) -> Any:
    """A tensor with the metadata of a node and arbitrary small content; indices are zero, so always in range."""
    value = item.meta.get("val") if isinstance(item, fx.Node) else item
    if isinstance(value, torch.SymInt):
        return region.shapes.number(value)
    if not isinstance(value, torch.Tensor):
        return value
    number = region.shapes.number
    size, stride = tuple(map(number, value.shape)), tuple(map(number, value.stride()))
    tensor = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
    return tensor.uniform_(0.1, 1.0) if value.dtype.is_floating_point else tensor.zero_()


def _measure(region: Region, node: fx.Node) -> tuple[float, int]:
    try:
        args, kwargs = pytree.tree_map(lambda item: _real(region, item), (list(node.args), dict(node.kwargs)))
        with torch.no_grad():
            return _time(node, args, kwargs)
    except Exception:  # noqa: BLE001
        # Some operations reject made-up operands (a generator, a submodule, ranges); their cost is calculated instead.
        return _roofline(region, node), 0


def _time(node: fx.Node, args: list[Any], kwargs: dict[str, Any]) -> tuple[float, int]:
    function: Any = node.target
    device = next((t.device for t in tensors_of(node)), torch.device("cpu"))
    is_cuda = device.type == "cuda"
    seconds, workspace = [], 0
    for _ in range(MEASURED_RUNS):
        if is_cuda:
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        if is_cuda:
            torch.cuda.synchronize(device)
            kept = torch.cuda.memory_allocated(device) - before
            workspace = torch.cuda.max_memory_allocated(device) - before - kept
        seconds.append(time.perf_counter() - begin)
        del result
        if sum(seconds) > 1.0:
            break
    return sorted(seconds)[len(seconds) // 2], workspace
