"""One compiled region: its planning problem, and the plans it can run by.

AOTAutograd asks for a forward and a backward function once. What a plan must count is known only when the region runs: sizes,
gradients of earlier backwards, what else the model holds. So the functions that it gets choose a *variant*, a plan
that is written out as two functions, at every call, and another plan needs no new trace. Forward saves the number of its
variant, so each backward runs by the plan of its forward.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from . import codegen, inductor, inductor_plan, moving, pipeline, problem, release, schedule, torch_compat
from .budget import in_bytes, is_percentage
from .capture import COLLECTIVE_NAMESPACES, nested_nodes
from .distributed import watch
from .errors import BudgetWarning, RematError
from .inductor_peak import Written
from .options import Options
from .planner import Planned
from .problem import Step
from .shapes import bucket_top
from .together import Phases, phases


@dataclass
class Variant:
    """A plan, written out."""

    step: Step
    planned: Planned
    phases: Phases
    written: schedule.Schedule
    forward: Callable[[list[Any]], Any]
    backward: Callable[[list[Any]], Any]
    # The peak that the model has without recomputation, where the problem does not tell.
    keep_all_peak: int | None = None


class Runner:
    """A region with its variants."""

    def __init__(
        self,
        index: int,
        joint: fx.GraphModule,
        n_forward_outputs: int,
        options: Options,
        lasting_inputs: Any = None,
        *,
        has_subclasses: bool = False,
        releases_gradients: bool = False,
    ) -> None:
        self.index = index
        # Places of the inputs that live longer than a step, as torch's partitioner wants to know.
        self.lasting_inputs = lasting_inputs
        self.options = options
        # AOTAutograd has noted the layouts of gradients that are subclasses, so those stay as they are.
        self.step = pipeline.read(joint, n_forward_outputs, options, () if has_subclasses else lasting_inputs or ())
        primals = self.step.region.primals
        sized = [(place, node.meta["val"]) for place, node in enumerate(primals) if _is_symbol(node.meta.get("val"))]
        # Where the caller passes the size of each symbol, and how many integers forward saves.
        self.symbols = [(place, value.node.expr) for place, value in sized]
        self.n_numbers = sum(isinstance(node.meta.get("val"), torch.SymInt) for node in primals)
        self.is_fused = options.compiler == "inductor"
        self.is_numbered = options.budget is not None and _can_switch(self.step)
        if self.is_fused and (self.symbols or has_subclasses):
            # Inductor may guard symbols while it compiles, which is too late once the region runs; and the number of a plan
            # must not be in a graph that Inductor gets from AOTAutograd.
            self.is_numbered = False
        if self.step.stores is not None and not self.is_numbered:
            # What is stored travels to backward under the number of its plan.
            self.step = problem.build(self.step.region, self.step.costs, self.step.workspaces, self.step.outside)
            warnings.warn("a graph with collectives, or whose sizes depend on its tensors, cannot be offloaded", BudgetWarning, stacklevel=2)
        self.can_switch = self.is_numbered
        self.receiver: release.Receiver | None = None
        # Inputs whose gradients were still there when their hooks had been called, in any backward so far.
        self.kept: frozenset[int] = frozenset()
        if options.releases_gradients is None and is_percentage(options.budget):
            # Whether hooks leave their gradients is not known yet, so it is a share of the peak with all of them, as without hooks.
            releases_gradients = releases_gradients and not self.symbols
            if releases_gradients:
                self.options = options = dataclasses.replace(options, budget=in_bytes(options.budget, self.step.keep_all_peak))
        if self.is_numbered and releases_gradients and not self.is_fused and watch() is None:
            self.receiver = release.Receiver(is_declared=bool(options.releases_gradients))
            release.give_away(self.step.region, self.receiver)
            self.step = pipeline.resized(self.step, {}, options)
            primals = self.step.region.primals
        if not self.can_switch:
            self.step.region.shapes.guard(node.meta.get("val") for node in primals)
        self.steps: dict[tuple[int, ...], Step] = {}
        self.variants: list[Variant] = []
        self.by_plan: dict[tuple[Any, ...], Variant] = {}
        # Plans that the search for one that fits Inductor's code has looked at.
        self.places: dict[int, Variant] = {}

    @property
    def n_outputs(self) -> int:
        """How many results of forward come before what is saved."""
        return len(self.step.region.forward_outputs)

    def sizes(self, arguments: list[Any]) -> tuple[int, ...]:
        """The sizes of the symbols in a call."""
        return tuple(int(arguments[place]) for place, _ in self.symbols)

    def example_sizes(self) -> tuple[int, ...]:
        """The sizes with which the region was traced."""
        primals = self.step.region.primals
        values = [primals[place].meta["val"] for place, _ in self.symbols]
        return tuple(torch_compat.hint(value.node.shape_env, value.node.expr) for value in values)

    def step_for(self, sizes: tuple[int, ...]) -> Step:
        """The problem for given sizes, with the gradients that hooks keep."""
        step = self._resized(sizes) if sizes else self.step
        return problem.with_outside(step, dataclasses.replace(step.outside, kept=self.kept))

    def _resized(self, sizes: tuple[int, ...]) -> Step:
        if sizes not in self.steps:
            if len(self.steps) >= 16:
                self.steps.pop(next(iter(self.steps)))
            by_symbol = {symbol: size for (_, symbol), size in zip(self.symbols, sizes, strict=True)}
            self.steps[sizes] = pipeline.resized(self.step, by_symbol, self.options)
        return self.steps[sizes]

    def write(self, step: Step, planned: Planned) -> Variant:
        """The variant of a plan."""
        key = tuple(planned.steps)
        if key not in self.by_plan:
            written = self._schedule(step, planned)
            if self.is_fused:
                bare = written if not self.is_numbered else schedule.build(step, planned.steps, verify=False)
                return self._fuse(key, step, planned, written, Written(step.region, bare.forward, bare.backward))
            forward, backward = codegen.boxed(written.forward), codegen.boxed(written.backward)
            moving.reserve(step, planned.steps)
            ran = [op.node for kind, index, *_ in planned.steps if kind == "compute" and (op := step.ops[index]) is not None]
            if self.receiver is not None and (late := release.late(step.region, ran)):
                raise RematError(f"bug: the plan reads inputs {sorted(late)} after their gradients were given away")
            self.by_plan[key] = Variant(step, planned, phases(step, planned), written, forward, backward)
            self.variants.append(self.by_plan[key])
        known = self.by_plan[key]
        # The same order of operations for other sizes: what it needs differs.
        if known.step is step or self.is_fused:
            return known
        return dataclasses.replace(known, step=step, planned=planned, phases=phases(step, planned))

    def own_cut(self) -> Variant:
        """The variant that torch's own partitioner makes for Inductor."""
        key = ("own cut",)
        if key not in self.by_plan:
            planned = Planned.read(self.step.keep_all, self.step.keep_all_peak)
            forward, backward = inductor.own_cut(self.step.region.module, self.n_outputs, self.lasting_inputs)
            written = schedule.Schedule(forward, backward, n_saved=0)
            if self.is_numbered:
                # What AOTAutograd reads of the first variant is only that there are saved tensors, and the number first of them.
                written = self._schedule(self.step, planned)
            return self._fuse(key, self.step, planned, written, Written(self.step.region, forward, backward))
        return self.by_plan[key]

    def _schedule(self, step: Step, planned: Planned) -> schedule.Schedule:
        number = len(self.variants) if self.is_numbered else None
        return schedule.build(step, planned.steps, verify=self.options.verify, number=number)

    def _fuse(self, key: Any, step: Step, planned: Planned, written: schedule.Schedule, drafted: Written) -> Variant:
        number = len(self.variants) if self.is_numbered else None
        functions = inductor_plan.functions(drafted, number)
        self.by_plan[key] = Variant(step, planned, drafted.phases, written, *functions)
        self.variants.append(self.by_plan[key])
        return self.by_plan[key]

    def run_backward(self, variant: Variant, arguments: list[Any], leaves: dict[int, torch.Tensor]) -> Any:
        """Runs a backward; gradients of these leaves are given away as soon as they are made, where that was asked for."""
        if self.receiver is None:
            return variant.backward(arguments)
        results = self.receiver.run(variant.backward, arguments, leaves)
        self.kept |= self.receiver.kept
        return results


def buckets(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that a plan is made for first, so that sizes near each other share it."""
    return tuple(bucket_top(size) for size in sizes)


def _is_symbol(value: Any) -> bool:
    return isinstance(value, torch.SymInt) and bool(value.node.expr.is_symbol)


def _can_switch(step: Step) -> bool:
    """Whether several plans fit the one frame that AOTAutograd makes.

    Ranks must not leave the plan that they agreed on where it has collectives. Tensors that are kept outside of
    `save_for_backward`, and integers that come from the shape of an intermediate tensor, differ from plan to plan.
    """
    region = step.region
    for node in region.module.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target.namespace in COLLECTIVE_NAMESPACES:
            return False
        if torch_compat.needs_no_version_check(node):
            return False
        is_number = isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
        if is_number and node.op == "call_function":
            sources = [source.meta.get("val") for source in nested_nodes(list(node.args))]
            if any(isinstance(source, torch.Tensor) for source in sources):
                return False
    return True
