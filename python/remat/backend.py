"""The Dynamo backend `remat`: from a captured graph to functions that run it within a budget.

AOTAutograd traces forward and backward into one joint graph and asks `_Compiler.partition` to cut it. There the graph becomes
a planning problem, a plan (`pipeline`) and two graphs (`schedule`). AOTAutograd then has the two graphs compiled: written as
Python functions that run op by op, or given to Inductor.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import codegen, inductor, pipeline, release, reproducible, sharing, torch_compat
from .automatic import offload_optimizers, with_reserved
from .distributed import watch
from .errors import BudgetTooSmall, OptionError, RematError
from .options import Options
from .runner import Runner
from .uncompiled import tell_of_limit


def backend(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What `torch.compile(model, backend="remat", options={...})` calls for each captured graph."""
    try:
        parsed = Options.parse(options if mode in (None, "default") else {**(options or {}), "mode": mode})
    except ValueError as error:
        raise torch_compat.unwrapped(OptionError(str(error))) from None
    parsed = with_reserved(parsed, example_inputs)
    offload_optimizers(parsed, example_inputs)
    if torch_compat.is_split_by_ddp(module):
        split = RematError(
            "DistributedDataParallel cut the model into buckets before compiling, so that no plan can see the whole step;"
            " set torch._dynamo.config.optimize_ddp = False, or compile the model before wrapping it"
        )
        raise torch_compat.unwrapped(split)
    if parsed.compiler == "inductor" and parsed.budget is None:
        return inductor.plain(module, example_inputs)
    is_continued = torch_compat.is_inside_running_code()
    is_part = torch_compat.is_cut_by_graph_break(module) or is_continued
    if options is None and not is_continued:
        # Without options all models would share one session; what begins in the caller's code is another pass or model.
        sharing.forget(options)
    session = sharing.session(options)
    session.is_cut |= is_part
    session.n_regions += torch.is_grad_enabled()
    has_subclasses = any(is_traceable_wrapper_subclass(item) for item in example_inputs)
    compiler = _Compiler(
        parsed, session, is_part=session.is_cut, has_subclasses=has_subclasses, hooks=release.hooks_of(example_inputs)
    )
    aot = torch_compat.aot_backend(
        fw_compiler=compiler.forward,
        bw_compiler=compiler.backward,
        inference_compiler=compiler.inference,
        partition_fn=compiler.partition,
        decompositions=inductor.decompositions() if parsed.compiler == "inductor" else {},
    )
    # Inductor decomposes them, and fuses what comes of it.
    interpolations = contextlib.nullcontext() if parsed.compiler == "inductor" else torch_compat.whole_interpolations()
    with torch_compat.no_autograd_cache(), torch_compat.unrolled_layers(), interpolations:
        return aot(module, example_inputs)


# The name in messages of torch.compile.
backend.__name__ = "remat"


class _Compiler:
    """The functions that AOTAutograd calls for one region, and what they share."""

    def __init__(
        self, options: Options, session: sharing.Session, *, is_part: bool, has_subclasses: bool, hooks: release.Hooks
    ) -> None:
        self.hooks = hooks
        self.options = options
        self.session = session
        self.is_part = is_part
        self.has_subclasses = has_subclasses
        self.runner: Runner | None = None

    def partition(
        self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Cuts a joint graph as the plan says."""
        try:
            return self._partition(joint, num_fwd_outputs, kwargs.get("static_lifetime_input_indices"))
        except RematError as error:
            is_released = self.runner is not None and self.runner.receiver is not None
            if isinstance(error, BudgetTooSmall) and self.hooks is not release.Hooks.NONE and not is_released:
                error.message += ". Parameters have hooks that run after their gradients: if those free them, try releases_gradients=True"
            raise torch_compat.unwrapped(error) from None

    def _partition(
        self, joint: fx.GraphModule, n_forward_outputs: int, lasting_inputs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        begin = time.perf_counter()
        try:
            index = len(self.session.runners)
            self.runner = Runner(
                index,
                joint,
                n_forward_outputs,
                self.options,
                lasting_inputs,
                has_subclasses=self.has_subclasses,
                releases_gradients=self._releases_gradients(),
            )
        except Exception as error:
            ranks = watch()
            if ranks is not None:
                ranks.fail(error)
            raise
        if self.options.releases_gradients and (self.is_part or self.runner.receiver is None):
            raise RematError(
                "releases_gradients=True needs a budget, compiler='eager', one process, and a model that torch.compile captures"
                " as a whole (TORCH_LOGS=graph_breaks tells where it is cut)"
            )
        reproducible.warn_of(op.node for op in self.runner.step.region.ops)
        first = self.session.add(self.runner, is_part=self.is_part)
        pipeline.report(first.step, first.planned, self.options, time.perf_counter() - begin, first.keep_all_peak)
        return first.written.forward, first.written.backward

    def _releases_gradients(self) -> bool:
        """Whether gradients are given away during backward: as the options say, or because a hook waits for each of them.

        In the second case the first step must be watched, in case the hooks keep what they are given.
        """
        if self.options.releases_gradients is not None:
            return self.options.releases_gradients
        is_plain = not self.is_part and not self.has_subclasses and self.options.offload is None
        return self.hooks is release.Hooks.ALL_ON_CPU and self.session.is_measurable and is_plain

    def forward(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles forward."""
        run = self._forward(module, example_inputs)
        ranks = watch()
        if ranks is None:
            return run

        def known_to_others(arguments: list[Any]) -> Any:
            ranks.count_call()
            return run(arguments)

        return _boxed(known_to_others)

    def _forward(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        runner = self.runner
        if runner is not None and runner.is_numbered:
            runner.can_switch = torch_compat.allows_other_saved_tensors()
            torch_compat.forget_saved_tensors()
            if runner.receiver is not None and not runner.can_switch:
                raise torch_compat.unwrapped(RematError("releases_gradients=True does not work with parameters that are tensor subclasses"))
            if runner.is_fused and not runner.can_switch:
                raise torch_compat.unwrapped(RematError("compiler='inductor' does not hold a budget where generators are passed around"))
        if runner is None or not runner.can_switch:
            is_fused = self.options.compiler == "inductor"
            n_visible = None if runner is None else runner.n_outputs
            run = inductor.compile_graph(module, example_inputs, n_visible=n_visible) if is_fused else codegen.boxed(module)
            return self._counted(run)
        return _boxed(lambda arguments: self.session.forward(runner, arguments))

    def backward(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles backward."""
        torch_compat.forbid_donated_buffers()
        runner = self.runner
        if runner is None or not runner.can_switch:
            is_fused = self.options.compiler == "inductor"
            return inductor.compile_graph(module, example_inputs, is_backward=True) if is_fused else codegen.boxed(module)
        return _boxed(lambda arguments: self.session.backward(runner, arguments))

    def inference(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles a graph without gradients. Nothing waits for backward, so freeing early is all there is to do."""
        if self.options.compiler == "inductor":
            return self._counted(inductor.compile_graph(module, example_inputs, is_inference=True))
        return self._counted(codegen.boxed(module))

    def _counted(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; its runs are counted, so that calls outside of all regions are noticed."""
        if self.options.budget is None:
            return run

        def counted(arguments: list[Any]) -> Any:
            self.session.n_runs += 1
            return run(arguments)

        return _boxed(counted)


def _boxed(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Tells AOTAutograd that a function takes one list and empties it."""
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


# A rank that has loaded the backend takes part in the watch, so that its end is noticed before its first step.
watch()
torch_compat.ignore_repeated_warnings()
tell_of_limit()
