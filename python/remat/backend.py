"""The Dynamo backend `remat`: from a captured graph to functions that run it within a budget.

AOTAutograd traces forward and backward into one joint graph and asks `_Compiler.partition` to cut it. There the graph becomes
a planning problem, a plan (`pipeline`) and two graphs (`schedule`). AOTAutograd then has the two graphs compiled: written as
Python functions that run op by op, or given to Inductor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from . import codegen, inductor, pipeline, schedule, sharing, torch_compat
from .distributed import watch
from .errors import RematError
from .options import Options


def backend(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """What `torch.compile(model, backend="remat", options={...})` calls for each captured graph."""
    parsed = Options.parse(options)
    if torch_compat.is_split_by_ddp(module):
        split = RematError(
            "DistributedDataParallel cut the model into buckets before compiling, so that no plan can see the whole step;"
            " set torch._dynamo.config.optimize_ddp = False, or compile the model before wrapping it"
        )
        raise torch_compat.unwrapped(split)
    session = sharing.session(options)
    is_followed = torch_compat.is_cut_by_graph_break(module)
    is_part = is_followed or torch_compat.is_inside_running_code()
    session.is_cut |= is_part
    session.n_regions += torch.is_grad_enabled()
    compiler = _Compiler(
        parsed,
        session if is_part else None,
        outside=session.outside_bytes(example_inputs),
        portion=session.portion(example_inputs, is_followed=is_followed),
    )
    aot = torch_compat.aot_backend(
        fw_compiler=compiler.forward,
        bw_compiler=compiler.backward,
        inference_compiler=compiler.inference,
        partition_fn=compiler.partition,
        decompositions=inductor.decompositions() if parsed.compiler == "inductor" else {},
    )
    with torch_compat.no_autograd_cache():
        return aot(module, example_inputs)


# The name in messages of torch.compile.
backend.__name__ = "remat"


class _Compiler:
    """The functions that AOTAutograd calls for one region, and what they share."""

    def __init__(self, options: Options, session: sharing.Session | None, *, outside: int, portion: float) -> None:
        self.options = options
        # Only where the region is a part of a model.
        self.session = session
        self.outside = outside
        self.portion = portion

    def partition(
        self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **_: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Cuts a joint graph as the plan says."""
        try:
            return self._partition(joint, num_fwd_outputs)
        except RematError as error:
            raise torch_compat.unwrapped(error) from error.__cause__

    def _partition(self, joint: fx.GraphModule, n_forward_outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        begin = time.perf_counter()
        if self.session is not None and self.options.budget is not None:
            self.session.warn_of_cut()
        try:
            step = pipeline.read(joint, n_forward_outputs, self.options, outside=self.outside)
        except Exception as error:
            ranks = watch()
            if ranks is not None:
                ranks.fail(error)
            raise
        planned = pipeline.decide(step, self.options, self.portion)
        written = schedule.build(step, planned.steps, verify=self.options.verify)
        pipeline.report(step, planned, self.options, time.perf_counter() - begin)
        return written.forward, written.backward

    def forward(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles forward."""
        if self.options.compiler == "inductor":
            return inductor.compile_graph(module, example_inputs, is_backward=False)
        run = codegen.boxed(module)
        return run if self.session is None else self.session.watched(run)

    def backward(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles backward."""
        torch_compat.forbid_donated_buffers()
        if self.options.compiler == "inductor":
            return inductor.compile_graph(module, example_inputs, is_backward=True)
        return codegen.boxed(module)

    def inference(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles a graph without gradients. Nothing waits for backward, so freeing early is all there is to do."""
        if self.options.compiler == "inductor":
            return inductor.compile_graph(module, example_inputs, is_backward=False, is_inference=True)
        return codegen.boxed(module)


# A rank that has loaded the backend takes part in the watch, so that its end is noticed before its first step.
watch()
torch_compat.ignore_repeated_warnings()
