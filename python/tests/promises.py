"""Checks the promises on one model, through `remat.compile` alone: no knowledge of what is inside.

In: a function that makes a model and its batch. Out: what was found, or `Broken` with the first promise that does not hold.
Works for models that torch.compile cuts into several regions, too; there the measured peak is compared with the budget only,
because a prediction is made per region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import remat
import torch
from remat.measure import measure_peak
from torch import nn

# The measured peak may differ from the predicted one by this part of it.
TOLERANCE = 0.01
# Tries to find a budget that suits all parts of a model.
N_TRIES = 8


class Broken(AssertionError):
    """A promise that does not hold."""


@dataclass
class Run:
    """What some steps left behind."""

    tensors: list[torch.Tensor]
    peaks: list[int]
    reports: list[remat.RegionReport]


@dataclass
class Findings:
    """What is worth telling about a model that keeps the promises."""

    n_ops: int
    n_regions: int
    floor: int
    keep_all: int
    overhead: float
    peak_error: float


def train(make: Callable[[], tuple[nn.Module, tuple[Any, ...]]], n_steps: int, budget: int | None, effort: float) -> Run:
    """Some steps from the same start, and every bit that they leave."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, batch = make()
    module.train()
    before = remat.regions()
    compiled = remat.compile(module, budget=budget, effort=effort)
    torch.manual_seed(7)
    tensors: list[torch.Tensor] = []
    peaks = []
    for _ in range(n_steps):
        module.zero_grad(set_to_none=True)
        for tensor in batch:
            tensor.grad = None
        with measure_peak("cpu") as peak:
            loss = compiled(*batch)
            loss.backward()
        peaks.append(peak.bytes)
        tensors += [loss.detach(), *(t.grad.clone() for t in (*module.parameters(), *batch) if t.grad is not None)]
        tensors += [buffer.clone() for buffer in module.buffers()]
        tensors.append(torch.random.get_rng_state())
    return Run(tensors, peaks, [report for report in remat.regions() if all(report is not old for old in before)])


def examine(
    make: Callable[[], tuple[nn.Module, tuple[Any, ...]]], fractions: Sequence[float], *, n_steps: int, effort: float
) -> Findings:
    """Trains at several budgets and compares everything with training without one."""
    free = train(make, n_steps, None, effort)
    is_whole = len(free.reports) == 1
    keep_all = free.reports[0].keep_all_peak if is_whole else max(free.peaks)
    floor = _floor(make, effort, is_whole=is_whole)
    runs: list[Run] = []
    for fraction in fractions:
        budget = floor + int(fraction * max(keep_all - floor, 0))
        run = train(make, n_steps, budget, effort)
        _compare(run, free, budget, is_whole)
        if runs and is_whole and max(runs[-1].peaks) > max(run.peaks):
            raise Broken(f"a budget of {budget} bytes gave a lower peak than a smaller one")
        runs.append(run)
    return Findings(
        n_ops=sum(report.n_ops for report in free.reports),
        n_regions=len(free.reports),
        floor=floor,
        keep_all=keep_all,
        overhead=max(report.overhead for report in runs[0].reports),
        peak_error=max(_peak_error(run) for run in runs) if is_whole else 0.0,
    )


def _floor(make: Callable[[], tuple[nn.Module, tuple[Any, ...]]], effort: float, *, is_whole: bool) -> int:
    """The floor, as the error states it when a budget is below it; the error must name the operation, too.

    Each part of a model that is cut states its own floor, so there it takes as many tries as there are parts.
    """
    budget = 1
    for _ in range(1 if is_whole else N_TRIES):
        try:
            train(make, 1, budget, effort)
        except remat.BudgetTooSmall as error:
            if not error.op or str(error.floor) not in str(error):
                raise Broken(f"the error does not state the floor and the op: {error}") from error
            if error.floor <= budget:
                raise Broken(f"a budget of {budget} is too small, but the floor is said to be {error.floor}") from error
            budget = error.floor
        else:
            break
    if budget == 1:
        raise Broken("a budget of one byte was accepted")
    return budget


def _compare(run: Run, free: Run, budget: int, is_whole: bool) -> None:
    if len(run.tensors) != len(free.tensors):
        raise Broken(f"{len(run.tensors)} results with a budget of {budget}, {len(free.tensors)} without")
    for index, (a, b) in enumerate(zip(run.tensors, free.tensors, strict=True)):
        same = torch.equal(a.nan_to_num(nan=17.0), b.nan_to_num(nan=17.0)) if a.is_floating_point() else torch.equal(a, b)
        if not same:
            raise Broken(f"other bits with a budget of {budget} bytes, in result {index} of {len(run.tensors)}")
    if max(run.peaks) > budget:
        raise Broken(f"the budget of {budget} bytes does not hold: {max(run.peaks)}")
    if is_whole and _peak_error(run) > TOLERANCE:
        raise Broken(f"predicted {run.reports[0].predicted_peak}, measured {max(run.peaks)}")


def _peak_error(run: Run) -> float:
    predicted = run.reports[0].predicted_peak
    return abs(max(run.peaks) - predicted) / predicted
