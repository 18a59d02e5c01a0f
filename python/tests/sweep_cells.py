"""The promises on one model as eager training sees them: loss inside or outside of what is compiled, at three budgets.

In: a function that makes a model and its batch. Out: one `Cell` per place of the loss and budget, each with a verdict. Budgets are
shares between the floor and the peak of eager training, so that the verdicts mean what users see: a budget that suffices
without remat must suffice with it, and no step may exceed its budget unless that was said.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import remat
import torch
from remat.measure import measure_peak
from remat.planner import book_of, lowest
from torch import nn
from torch.nn import functional as F

Make = Callable[[], tuple[nn.Module, tuple[Any, ...]]]
INSIDE, OUTSIDE = "inside", "outside"
# Where between the floor and the eager peak the budgets lie.
SHARES = {"eager peak": 1.0, "midway": 0.5, "near the floor": 0.1}
N_STEPS = 3
EFFORT = 0.01
# Verdicts that break no promise.
HOLDS, FIRST_TOLD, TOLD, REFUSED = "holds", "holds from the second step on", "over, with a warning", "refused"
TORCH_FAILS, SPARSE = "fails in torch.compile without remat", "refused: a sparse gradient has no fixed size"
# What a warning must say where later steps may exceed the budget as well.
LASTING = ("a step takes", "cannot be kept", "captured no part", "ran uncompiled")


def _one_hot(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.one_hot(target, scores.shape[1]).movedim(-1, 1).to(scores.dtype)


def mse(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(scores, _one_hot(scores, target))


def distillation(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    teacher = (4 * _one_hot(scores, target)).softmax(1)
    return F.kl_div(scores.log_softmax(1), teacher, reduction="batchmean") + F.cross_entropy(scores, target)


def dice(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    p, y = scores.sigmoid(), _one_hot(scores, target)
    return 1 - 2 * (p * y).sum() / (p.square().sum() + y.sum())


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross entropy": F.cross_entropy, "mse": mse, "distillation": distillation, "dice": dice,
}  # fmt: skip


@dataclass
class Run:
    """What some steps left behind."""

    tensors: list[torch.Tensor]
    peaks: list[int]
    messages: list[str]

    def same_bits(self, other: Run) -> bool:
        pairs = zip(self.tensors, other.tensors, strict=False)
        return len(self.tensors) == len(other.tensors) and all(_equal(a, b) for a, b in pairs)


@dataclass
class Cell:
    """What was found at one budget."""

    place: str
    loss: str
    share: str
    budget: int
    eager_peak: int
    peaks: list[int] = field(default_factory=list)
    verdict: str = ""
    # The run that has the same bits: eager training, or torch.compile without a budget where that changes bits itself.
    bits: str = ""
    n_parts: int = 0
    seconds: float = 0.0
    messages: list[str] = field(default_factory=list)

    @property
    def is_broken(self) -> bool:
        return self.verdict not in (HOLDS, FIRST_TOLD, TOLD, REFUSED, TORCH_FAILS, SPARSE) or self.bits == "OTHER"


class Subject:
    """A model with its loss in one place, ready to be trained from the same start any number of times."""

    def __init__(self, make: Make, place: str, loss: str) -> None:
        self.make, self.place, self.loss = make, place, LOSSES[loss]
        self.compiled: nn.Module | None = None

    def fails_in_torch(self) -> bool:
        """Whether the backend of torch that runs the same graphs op by op fails, too."""
        torch._dynamo.reset()
        module, batch = self.make()
        module.train()
        (module if self.place == INSIDE else module.model).compile(backend="aot_eager")
        try:
            self._steps(module, batch)
        except Exception:  # noqa: BLE001 (any failure is an answer)
            return True
        return False

    def train(self, **options: Any) -> Run:
        """Some steps; without options, as they are in eager mode."""
        torch._dynamo.reset()
        torch.manual_seed(0)
        module, batch = self.make()
        module.train()
        self.compiled = module if self.place == INSIDE else module.model
        if options:
            remat.compile(self.compiled, effort=EFFORT, **options)
        torch.manual_seed(7)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tensors, peaks = self._steps(module, batch)
        return Run(tensors, peaks, [str(w.message) for w in caught if issubclass(w.category, remat.BudgetWarning)])

    def _steps(self, module: nn.Module, batch: tuple[Any, ...]) -> tuple[list[torch.Tensor], list[int]]:
        tensors: list[torch.Tensor] = []
        peaks = []
        for _ in range(N_STEPS):
            for tensor in (*module.parameters(), *batch):
                tensor.grad = None
            with measure_peak("cpu") as peak:
                loss = module(*batch) if self.place == INSIDE else self.loss(*module.scores(*batch))
                loss.backward()
            peaks.append(peak.bytes)
            tensors += [loss.detach(), *(t.grad for t in (*module.parameters(), *batch) if t.grad is not None)]
            tensors += [buffer.clone() for buffer in module.buffers()]
            tensors.append(torch.random.get_rng_state())
            del loss
        return tensors, peaks

    def n_parts(self) -> int:
        return len(self._session().runners)

    def floor(self) -> int:
        """The smallest budget of what was compiled last."""
        session = self._session()
        if session.is_cut or not session.runners:
            try:
                self.train(budget=1)
            except remat.BudgetTooSmall as error:
                return error.floor
            return 0
        runner = session.runners[0]
        return lowest(runner.step, runner.options, book_of(runner.step, runner.options)).peak

    def _session(self) -> Any:
        return self.compiled._compiled_call_impl.session  # type: ignore[union-attr]


def cells(make: Make, place: str, loss: str) -> Iterator[Cell]:
    """The cells of one place of the loss."""
    subject = Subject(make, place, loss)
    eager = subject.train()
    top = max(eager.peaks)
    floor = 0
    others: dict[str, Run] = {}
    for share, fraction in SHARES.items():
        begin = time.perf_counter()
        if fraction < 1 and not floor:
            floor = min(subject.floor(), top)
        cell = Cell(place, "" if place == INSIDE else loss, share, floor + int(fraction * (top - floor)), top)
        try:
            run = subject.train(budget=cell.budget)
        except remat.BudgetTooSmall as error:
            cell.verdict = REFUSED if cell.budget < top else "REFUSED AT THE EAGER PEAK"
            cell.messages = [str(error)]
        except Exception as error:
            if isinstance(error, remat.RematError) and "sparse tensor" in str(error):
                # docs/pytorch.md says so.
                cell.verdict, cell.messages = SPARSE, [str(error)]
            elif subject.fails_in_torch():
                cell.verdict = TORCH_FAILS
            else:
                raise
        else:
            cell.n_parts = subject.n_parts()
            cell.peaks, cell.messages = run.peaks, run.messages
            cell.verdict = _verdict(cell)
            cell.bits = _bits(subject, run, eager, others)
        cell.seconds = time.perf_counter() - begin
        yield cell
        if cell.verdict in (TORCH_FAILS, SPARSE):
            return


def _verdict(cell: Cell) -> str:
    said = [message for message in cell.messages if "cut the model" not in message]
    if max(cell.peaks) <= cell.budget:
        return HOLDS
    if not said:
        return "OVER IN SILENCE"
    if max(cell.peaks[1:]) <= cell.budget:
        return FIRST_TOLD
    return TOLD if any(text in message for message in said for text in LASTING) else "OVER AFTER THE FIRST STEP"


def _bits(subject: Subject, run: Run, eager: Run, others: dict[str, Run]) -> str:
    if run.same_bits(eager):
        return "eager"
    # Found once per subject, and only where it is needed.
    if not others:
        others["not reproducible in eager"] = subject.train()
        others["compiled"] = subject.train(budget=None)
    if not others["not reproducible in eager"].same_bits(eager):
        return "not reproducible in eager"
    return "compiled" if run.same_bits(others["compiled"]) else "OTHER"


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.nan_to_num(nan=17.0), b.nan_to_num(nan=17.0)) if a.is_floating_point() else torch.equal(a, b)
