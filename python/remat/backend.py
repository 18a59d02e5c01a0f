"""The Dynamo backend `remat`: from a captured graph to functions that run it within a budget.

AOTAutograd traces forward and backward into one joint graph and asks `_Compiler.partition` to cut it. There the graph becomes
a planning problem, a plan (`pipeline`) and two graphs (`schedule`). AOTAutograd then has the two graphs compiled: written as
Python functions that run op by op, or given to Inductor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
        raise RematError(
            "DistributedDataParallel cut the model into buckets before compiling, so that no plan can see the whole step;"
            " set torch._dynamo.config.optimize_ddp = False, or compile the model before wrapping it"
        )
    compiler = _Compiler(parsed, sharing.session(options), torch_compat.is_cut_by_graph_break(module))
    aot = torch_compat.aot_backend(
        fw_compiler=compiler.forward,
        bw_compiler=compiler.backward,
        inference_compiler=compiler.inference,
        partition_fn=compiler.partition,
        decompositions=inductor.decompositions() if parsed.compiler == "inductor" else {},
    )
    with torch_compat.no_autograd_cache():
        return aot(module, example_inputs)


class _Compiler:
    """The functions that AOTAutograd calls for one region, and what they share."""

    def __init__(self, options: Options, session: sharing.Session, is_cut: bool) -> None:
        self.options = options
        self.session = session
        self.is_cut = is_cut

    def partition(
        self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **_: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Cuts a joint graph as the plan says."""
        if self.is_cut and self.options.budget is not None:
            self.session.note_cut()
        try:
            step = pipeline.read(joint, num_fwd_outputs, self.options, held=self.session.held_bytes())
        except Exception as error:
            ranks = watch()
            if ranks is not None:
                ranks.fail(error)
            raise
        planned = pipeline.decide(step, self.options, self.session if self.is_cut else None)
        written = schedule.build(step, planned.steps, verify=self.options.verify)
        return written.forward, written.backward

    def forward(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles forward."""
        if self.options.compiler == "inductor":
            return inductor.compile_graph(module, example_inputs, is_backward=False)
        run = codegen.boxed(module)
        return self.session.watched(run) if self.is_cut else run

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
