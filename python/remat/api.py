"""The functions that people call: `compile`, `plan` and `max_batch`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from . import pipeline, sharing, torch_compat
from .automatic import with_reserved
from .backend import backend
from .budget import Size, in_bytes, is_percentage
from .distributed import watch
from .errors import BudgetTooSmall, RematError
from .in_place import compile_in_place, isolation
from .losses import LossOf, call
from .options import Options
from .planner import book_of, find, proven_floor
from .problem import Step
from .target_kernels import give_losses_gradients, use_kernels_of
from .training_plan import TrainingPlan

# Per module and kind of options, and traces of each kind: other shapes, another mode.
TRACES_KEPT = 4
_TRACERS: weakref.WeakKeyDictionary[torch.nn.Module, dict[Options, _Tracer]] = weakref.WeakKeyDictionary()


def compile(  # noqa: A001 (the name that users of torch.compile look for)
    model: Any,
    *,
    budget: Size | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    in_place: bool = True,
    loss: Callable[..., Any] | None = None,
    blocks: type | tuple[type, ...] | Iterable[torch.nn.Module] | None = None,
    **options: Any,
) -> Any:
    """`model`, compiled so that a training step stays within `budget`.

    The budget counts the bytes of live storages over forward and backward: parameters, buffers, batch, gradients and
    activations. It is an int, `"8GiB"`, or `"50%"` of the peak without recomputation. `options` are those of
    `remat.options.Options`. A budget that cannot be met raises `BudgetTooSmall` at the first step.

    A module is compiled in place and returned: the same object, with the same signature and state dict. `in_place=False`
    leaves it as it is and returns the wrapper of torch.compile.

    With `loss`, the result is a module that takes `(inputs, *targets)` and returns `loss(model(inputs), *targets)`, all of it
    in one plan. With `blocks`, a class of modules or some modules of the model, each block is compiled by itself and
    all of them share the budget.
    """
    if loss is not None:
        model = LossOf(model, loss)
    given = {"budget": budget, **options}
    Options.parse(given)
    watch()
    torch_compat.ignore_repeated_warnings()
    torch_compat.allow_recurrent_layers(model)
    session = sharing.session(given)
    session.know(model)
    arguments: dict[str, Any] = {"dynamic": dynamic, "fullgraph": fullgraph}
    if blocks is not None:
        session.share()
        for block in _blocks(model, blocks):
            compile_in_place(block, session, given, **arguments)
        return model
    if in_place and isinstance(model, torch.nn.Module):
        compile_in_place(model, session, given, **arguments)
        return model
    return torch.compile(model, backend=backend, options=given, **arguments, **isolation())


def plan(model: Any, example: Any, *, budget: Size | None = None, **options: Any) -> TrainingPlan:
    """What `compile` would do with this example, without running the model.

    `example` is a tensor, a tuple of arguments, or a dictionary of keyword arguments.
    """
    parsed = with_reserved(Options.parse({"budget": budget, **options}), _parameters(model))
    step = trace(model, example, parsed)
    size = None if parsed.budget is None else in_bytes(parsed.budget, step.keep_all_peak)
    return TrainingPlan(step, parsed, find(step, size, parsed, book_of(step, parsed)))


def max_batch(
    model: Any, example: Callable[[int], Any], *, budget: Size, start: int = 1, limit: int = 1 << 16, **options: Any
) -> int:
    """The largest batch whose training step fits the budget, or 0.

    `example(n)` makes the arguments for a batch of n. Found by doubling and halving, so with about 2 log2(n) traces.
    """
    if is_percentage(budget):
        raise ValueError("max_batch needs a budget in bytes: a percentage grows with the batch")
    parsed = with_reserved(Options.parse({"budget": budget, **options}), _parameters(model))

    def fits(size: int) -> bool:
        step = trace(model, example(size), parsed)
        budget_bytes = in_bytes(budget, 0)
        if proven_floor(step)["bytes"] > budget_bytes:
            return False
        try:
            find(step, budget_bytes, parsed, book_of(step, parsed))
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


def trace(model: Any, example: Any, options: Options, rewrite: Callable[[fx.GraphModule], Any] | None = None) -> Step:
    """Has torch.compile trace the whole step, and stops before anything runs. `rewrite` may change Dynamo's graph first.

    A module that is traced again with the same kind of example, in the same state, gets the step of the first time.
    """
    torch_compat.ignore_repeated_warnings()
    torch_compat.allow_recurrent_layers(model)
    is_kept = rewrite is None and isinstance(model, torch.nn.Module) and bool(isolation())
    return (_tracer_of(model, options) if is_kept else _Tracer(options, rewrite)).step(model, example)


class _Tracer:
    """The steps that were traced with the same options. Which of them a call means is known to Dynamo, by its guards."""

    def __init__(self, options: Options, rewrite: Callable[[fx.GraphModule], Any] | None = None) -> None:
        self.steps: list[Step] = []
        self.run = torch.compile(_call_module, backend=_stop_at(weakref.ref(self), options, rewrite), fullgraph=True, dynamic=False, **isolation())

    def step(self, model: Any, example: Any) -> Step:
        """The step of a model."""
        n_steps = len(self.steps)
        try:
            with torch_compat.no_recompile_limit(), torch_compat.no_missing_gradients():
                call(functools.partial(self.run, model), example)
        except _Traced as traced:
            return traced.step
        except Exception:
            # Without a cache of its own the exception that stops the trace arrives wrapped by torch.compile.
            if len(self.steps) == n_steps:
                raise
            return self.steps[-1]
        raise RematError("torch.compile traced nothing of the model; is it a function of tensors?")


def _tracer_of(model: torch.nn.Module, options: Options) -> _Tracer:
    # Stores are offered where there is a budget; which one it is changes nothing of the problem.
    is_offered = options.offload is not None and options.budget is not None
    kind = dataclasses.replace(options, budget=0 if is_offered else None)
    tracers = _TRACERS.setdefault(model, {})
    if kind not in tracers or len(tracers[kind].steps) >= TRACES_KEPT:
        if len(tracers) >= TRACES_KEPT:
            tracers.clear()
        tracers[kind] = _Tracer(kind)
    return tracers[kind]


def _call_module(model: Any, /, *args: Any, **kwargs: Any) -> Any:
    # Not the module itself: it may be compiled in place, for another budget.
    return model._call_impl(*args, **kwargs) if isinstance(model, torch.nn.Module) else model(*args, **kwargs)


def _stop_at(tracer: weakref.ref[_Tracer], options: Options, rewrite: Callable[[fx.GraphModule], Any] | None) -> Callable[..., Any]:
    """A backend whose functions raise `_Traced`. Dynamo holds it as long as the process lives, and so it holds no step."""

    def partition(joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **rest: Any) -> Any:
        raise _Traced(pipeline.read(joint, num_fwd_outputs, options, rest.get("static_lifetime_input_indices") or ()))

    def nothing_to_plan(module: fx.GraphModule, example_inputs: Any) -> Any:
        error = RematError("the model has no gradients here: call it in training mode, with parameters that require them")
        raise torch_compat.unwrapped(error)

    def stop(module: fx.GraphModule, example_inputs: Any, **_: Any) -> Any:
        if any(isinstance(tensor, torch.Tensor) and tensor.is_meta for tensor in example_inputs):
            give_losses_gradients(module)
            if rewrite is None:
                # Which device is meant is not known. The fused kernel of a CPU holds what flash attention on a GPU does.
                use_kernels_of(False, module)
        if rewrite is not None:
            rewrite(module)
        aot = torch_compat.aot_backend(
            fw_compiler=nothing_to_plan, inference_compiler=nothing_to_plan, partition_fn=partition
        )
        interpolations = contextlib.nullcontext() if options.compiler == "inductor" else torch_compat.whole_interpolations()
        try:
            with torch_compat.no_autograd_cache(), torch_compat.unrolled_layers(), interpolations:
                return aot(module, example_inputs)
        except _Traced as traced:
            return found(traced.step)

    def found(step: Step) -> Callable[..., Any]:
        owner = tracer()
        assert owner is not None
        owner.steps.append(step)
        if not isolation():
            raise _Traced(step)
        held = weakref.ref(step)

        def answer(*_: Any) -> Any:
            known = held()
            assert known is not None
            raise _Traced(known)

        return answer

    return stop


def _parameters(model: Any) -> list[torch.nn.Parameter]:
    return list(model.parameters()) if isinstance(model, torch.nn.Module) else []


def _blocks(model: Any, blocks: Any) -> list[torch.nn.Module]:
    is_class = isinstance(blocks, (type, tuple))
    found = [m for m in model.modules() if isinstance(m, blocks)] if is_class else list(blocks)
    if not found:
        raise ValueError(f"{type(model).__name__} has no blocks of {blocks!r}; give a class of its modules or the modules")
    return found
