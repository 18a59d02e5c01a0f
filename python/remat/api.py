"""The functions that people call: `compile`, `plan` and `max_batch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from . import pipeline, sharing, torch_compat
from .backend import backend
from .budget import in_bytes
from .distributed import watch
from .errors import BudgetTooSmall, RematError
from .options import Options
from .planner import find, proven_floor
from .problem import Step
from .training_plan import TrainingPlan


def compile(  # noqa: A001 (the name that users of torch.compile look for)
    model: Any, *, budget: int | str | None = None, dynamic: bool | None = None, fullgraph: bool = False, **options: Any
) -> Any:
    """`model`, compiled so that a training step stays within `budget`.

    The budget counts the bytes of live storages over forward and backward: parameters, buffers, batch, gradients and
    activations. It is an int, `"8GiB"`, or `"50%"` of the peak without recomputation. `options` are those of
    `remat.options.Options`. A budget that cannot be met raises `BudgetTooSmall` at the first step.
    """
    given = {"budget": budget, **options}
    Options.parse(given)
    watch()
    torch_compat.ignore_repeated_warnings()
    torch_compat.allow_recurrent_layers(model)
    session = sharing.session(given)
    session.know(model)
    compiled = torch.compile(model, backend=backend, options=given, dynamic=dynamic, fullgraph=fullgraph)
    if budget is not None and isinstance(compiled, torch.nn.Module):
        sharing.CaptureCheck(session, compiled)
    return compiled


def plan(model: Any, example: Any, *, budget: int | str | None = None, **options: Any) -> TrainingPlan:
    """What `compile` would do with this example, without running the model.

    `example` is a tensor, a tuple of arguments, or a dictionary of keyword arguments.
    """
    parsed = Options.parse({"budget": budget, **options})
    step = _trace(model, example, parsed)
    size = None if parsed.budget is None else in_bytes(parsed.budget, step.keep_all_peak)
    return TrainingPlan(step, parsed, find(step, size, parsed, pipeline.book_of(step, parsed)))


def max_batch(
    model: Any, example: Callable[[int], Any], *, budget: int | str, start: int = 1, limit: int = 1 << 16, **options: Any
) -> int:
    """The largest batch whose training step fits the budget, or 0.

    `example(n)` makes the arguments for a batch of n. Found by doubling and halving, so with about 2 log2(n) traces.
    """
    if isinstance(budget, str) and budget.strip().endswith("%"):
        raise ValueError("max_batch needs a budget in bytes: a percentage grows with the batch")
    parsed = Options.parse({"budget": budget, **options})

    def fits(size: int) -> bool:
        step = _trace(model, example(size), parsed)
        budget_bytes = in_bytes(budget, 0)
        if proven_floor(step)["bytes"] > budget_bytes:
            return False
        try:
            find(step, budget_bytes, parsed, pipeline.book_of(step, parsed))
        except BudgetTooSmall:
            return False
        return True

    low, high = 0, start
    while high <= limit and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class _Traced(Exception):  # noqa: N818 (not an error: it carries the result out of torch.compile)
    def __init__(self, step: Step) -> None:
        super().__init__("traced")
        self.step = step


def _trace(model: Any, example: Any, options: Options) -> Step:
    """Has torch.compile trace the whole step, and stops before anything runs."""
    found: list[Step] = []

    def partition(joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **_: Any) -> Any:
        found.append(pipeline.read(joint, num_fwd_outputs, options))
        raise _Traced(found[0])

    def nothing_to_plan(module: fx.GraphModule, example_inputs: Any) -> Any:
        error = RematError("the model has no gradients here: call it in training mode, with parameters that require them")
        raise torch_compat.unwrapped(error)

    def stop(module: fx.GraphModule, example_inputs: Any, **_: Any) -> Any:
        aot = torch_compat.aot_backend(
            fw_compiler=nothing_to_plan, inference_compiler=nothing_to_plan, partition_fn=partition
        )
        with torch_compat.no_autograd_cache():
            return aot(module, example_inputs)

    torch._dynamo.reset()
    torch_compat.ignore_repeated_warnings()
    torch_compat.allow_recurrent_layers(model)
    traced = torch.compile(model, backend=stop, fullgraph=True, dynamic=False)
    try:
        _call(traced, example)
    except Exception:
        # The exception that stops the trace arrives wrapped by torch.compile.
        if not found:
            raise
    finally:
        torch._dynamo.reset()
    if not found:
        raise RematError("torch.compile traced nothing of the model; is it a function of tensors?")
    return found[0]


def _call(model: Any, example: Any) -> Any:
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)
