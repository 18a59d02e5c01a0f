"""Runs schedules directly, so that eleven budgets need one trace.

Tracing a model with torch.compile takes longer than everything else together. So a model is traced and run once through
torch.compile without a budget, and its graph is then planned, scheduled and run for each budget by calling forward
and backward as AOTAutograd does. `test_models.py` also goes the whole way for some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from remat import codegen, pipeline, schedule, torch_compat
from remat.measure import measure_peak
from remat.options import Options
from remat.planner import Planned
from remat.problem import Step
from torch import nn


@dataclass
class Result:
    """What a training step leaves behind."""

    loss: torch.Tensor
    gradients: list[torch.Tensor]
    buffers: list[torch.Tensor]
    random_state: torch.Tensor

    def same_bits(self, other: Result) -> bool:
        mine, theirs = self._tensors(), other._tensors()
        return len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def _tensors(self) -> list[torch.Tensor]:
        return [self.loss, *self.gradients, *self.buffers, self.random_state]


@dataclass
class Traced:
    """A model's problem, with the tensors that its graph takes."""

    step: Step
    arguments: list[torch.Tensor]
    overwritten: list[int]


def train_step(model: Any, module: nn.Module, batch: tuple[Any, ...]) -> Result:
    """One step by the way of users; gradients by name, so that both ways agree on the order."""
    module.zero_grad(set_to_none=True)
    loss = model(*batch)
    loss.backward()
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    return Result(loss.detach(), gradients, [b.clone() for b in module.buffers()], torch.random.get_rng_state())


def trace(module: nn.Module, batch: tuple[Any, ...], options: Options, *, dynamic: bool = False) -> Traced:
    """Traces a model and runs it once without a budget."""
    found: dict[str, Any] = {}

    def partition(joint: Any, joint_inputs: Any, *, num_fwd_outputs: int, **_: Any) -> Any:
        found["step"] = step = pipeline.read(joint, num_fwd_outputs, options)
        output = next(iter(joint.graph.find_nodes(op="output")))
        descriptions = output.meta["desc"][:num_fwd_outputs]
        found["overwritten"] = [d.mutated_input.idx for d in descriptions if torch_compat.is_input_mutation(d)]
        written = schedule.build(step, Planned.read(step.keep_all, 0).steps, verify=False)
        return written.forward, written.backward

    def forward(graph: Any, inputs: Any) -> Any:
        run = codegen.boxed(graph)

        def record(arguments: list[Any]) -> Any:
            found["arguments"] = list(arguments)
            return run(arguments)

        record._boxed_call = True
        return record

    backend = torch_compat.aot_backend(
        fw_compiler=forward, bw_compiler=lambda graph, inputs: codegen.boxed(graph), partition_fn=partition
    )
    torch._dynamo.reset()
    torch_compat.ignore_repeated_warnings()
    compiled = torch.compile(module, backend=backend, fullgraph=True, dynamic=dynamic)
    buffers = [b.clone() for b in module.buffers()]
    with torch_compat.no_autograd_cache():
        compiled(*batch).backward()
    module.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, old in zip(module.buffers(), buffers, strict=True):
            buffer.copy_(old)
    return Traced(found["step"], found["arguments"], found["overwritten"])


def run_steps(traced: Traced, steps: list[tuple[str, int]], n_steps: int, *, verify: bool = False) -> tuple[list[Result], int]:
    """Runs a plan, from the same state each time, and returns the results and the highest measured peak."""
    written = schedule.build(traced.step, steps, verify=verify)
    forward, backward = codegen.boxed(written.forward), codegen.boxed(written.backward)
    arguments = traced.arguments
    before = {index: arguments[index].clone() for index in traced.overwritten}
    torch.manual_seed(7)
    results, peaks = [], []
    with torch.no_grad():
        for _ in range(n_steps):
            with measure_peak("cpu") as peak:
                loss, gradients = _one_step(traced, forward, backward)
            peaks.append(peak.bytes)
            buffers = [arguments[index].clone() for index in traced.overwritten]
            results.append(Result(loss, gradients, buffers, torch.random.get_rng_state()))
        for index, content in before.items():
            arguments[index].copy_(content)
    return results, max(peaks)


def _one_step(traced: Traced, forward: Any, backward: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    region = traced.step.region
    outputs = list(forward(list(traced.arguments)))
    n_outputs = len(region.forward_outputs)
    for place, index in enumerate(traced.overwritten):
        traced.arguments[index].copy_(outputs[place])
    loss = outputs[n_outputs - 1]
    # Autograd holds the gradient of the loss until backward returns, and so do we.
    tangent = torch.ones_like(loss)
    arguments = [*outputs[n_outputs:], tangent]
    del outputs
    return loss, [gradient for gradient in backward(arguments) if gradient is not None]
