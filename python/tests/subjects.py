"""Small models with plans at random budgets, written out as graphs: what `mutations` seeds its faults into."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from harness import trace
from movers import moved, with_stores
from remat import codegen, pipeline, release, schedule
from remat.measure import measure_peak
from remat.options import Options
from remat.planner import Book, find_if_any, lowest
from remat.problem import PlanSteps, Step
from torch import fx, nn
from torch.nn import functional as F
from zoo import WithLoss
from zoo_forms import FORMS

OPTIONS = Options(effort=0.01)
Made = tuple[nn.Module, tuple[Any, ...]]


@dataclass
class Written:
    """A plan, and the graphs that were written for it."""

    plan: PlanSteps
    peak: int
    number: int | None
    forward: fx.Graph
    backward: fx.Graph
    n_results: int
    n_tangents: int

    def copy(self) -> Written:
        """The same, to be changed."""
        return Written(self.plan, self.peak, self.number, _copied(self.forward), _copied(self.backward), self.n_results, self.n_tangents)


class Hooks:
    """Receives gradients that are given away, and changes the parameters as an optimizer would."""

    def __init__(self) -> None:
        self.arguments: list[Any] = []
        self.received: list[torch.Tensor] = []

    def operation(self, place: int) -> Callable[[torch.Tensor], None]:
        """What `release.give_away` writes into a joint graph."""

        def hand_over(gradient: torch.Tensor) -> None:
            self.received.append(gradient.clone())
            self.arguments[place].add_(gradient)

        hand_over.remat_gives_away = place  # type: ignore[attr-defined]
        return hand_over


@dataclass(repr=False)
class Subject:
    """A model that was traced once."""

    name: str
    step: Step
    arguments: list[Any]
    overwritten: list[int]
    is_numbered: bool = True
    hooks: Hooks = field(default_factory=Hooks)
    book: Book = field(default_factory=Book)

    def write(self, rng: random.Random) -> Written:
        """A plan for a random budget."""
        # Moves are woven into plans that have none, so these come from a planner that uses no store.
        options = OPTIONS if self.step.stores is None else replace(OPTIONS, planner="eviction")
        floor = lowest(self.step, options, self.book).peak
        budget = floor + int((self.step.keep_all_peak - floor) * rng.random() ** 2)
        planned = find_if_any(self.step, budget, options, self.book) or lowest(self.step, options, self.book)
        number = rng.randrange(5) if self.is_numbered and rng.random() < 0.7 else None
        if self.step.stores is not None:
            # What backward gets from a store is known by the number of the plan.
            planned, number = moved(self.step, planned.text, rng, 0.2 + 0.8 * rng.random()), rng.randrange(5)
        made = schedule.build(self.step, planned.steps, verify=rng.random() < 0.3, number=number)
        region = self.step.region
        graphs = made.forward.graph, made.backward.graph
        return Written(planned.steps, planned.peak, number, *graphs, len(region.forward_outputs), len(region.tangents))


def results_of(subject: Subject, written: Written) -> tuple[list[Any], int]:
    """Every bit that a step leaves behind, and its peak."""
    root = subject.step.region.module
    forward, backward = (codegen.boxed(fx.GraphModule(root, graph)) for graph in (written.forward, written.backward))
    tensors = {place: item for place, item in enumerate(subject.arguments) if isinstance(item, torch.Tensor)}
    before = {place: tensor.clone() for place, tensor in tensors.items()}
    subject.hooks.arguments, subject.hooks.received = subject.arguments, []
    torch.manual_seed(7)
    with torch.no_grad(), measure_peak("cpu") as peak:
        outputs = list(forward(list(subject.arguments)))
        # Behind what overwrites inputs; a model may return more than its loss.
        loss = next(item for item in outputs[len(subject.overwritten) :] if isinstance(item, torch.Tensor) and item.dim() == 0)
        for place, index in enumerate(subject.overwritten):
            subject.arguments[index].copy_(outputs[place])
        saved = outputs[written.n_results :]
        del outputs
        numbers = [item for item in saved if not isinstance(item, torch.Tensor)]
        arguments = [*numbers, *saved[: len(saved) - len(numbers)], torch.ones_like(loss)]
        del saved
        gradients = backward(arguments)
    left = [loss, *gradients, *subject.hooks.received, *tensors.values(), torch.random.get_rng_state()]
    digests = [None if item is None else (item.shape, item.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()) for item in left]
    with torch.no_grad():
        for place, content in before.items():
            tensors[place].copy_(content)
    return digests, peak.bytes


def _copied(graph: fx.Graph) -> fx.Graph:
    copy = fx.Graph(graph.owning_module)
    copies: dict[fx.Node, fx.Node] = {}
    result = copy.graph_copy(graph, copies)
    copy.output(result)
    return copy


def _dropout() -> Made:
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.3))]
    return WithLoss(nn.Sequential(*layers)), (torch.randn(32, 16), torch.randint(0, 16, (32,)))


def _batch_norm() -> Made:
    layers = [layer for _ in range(3) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())]
    return WithLoss(nn.Sequential(*layers, nn.Flatten())), (torch.randn(4, 4, 4, 4), torch.randint(0, 64, (4,)))


class _Tied(nn.Module):
    """A language model of one block: views, attention, and one matrix for the first and the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(23, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 23, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.block(self.embedding(ids)))
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def _tied() -> Made:
    return _Tied(), (torch.randint(0, 23, (4, 8)),)


MODELS: dict[str, Callable[[], Made]] = {
    "dropout": _dropout,
    "batch_norm": _batch_norm,
    "tied": _tied,
    "releases": _dropout,
    "dynamic": _dropout,
    "buffers": FORMS["buffers_changed"],
    "views": FORMS["views"],
    "random": FORMS["random"],
    "norms": FORMS["norms"],
    "moves": _dropout,
    "moves_norm": _batch_norm,
    "moves_tied": _tied,
}


def subjects(names: list[str] | None = None) -> list[Subject]:
    """The models, traced."""
    return [_subject(name) for name in names or MODELS]


def _subject(name: str) -> Subject:
    torch.manual_seed(0)
    module, batch = MODELS[name]()
    traced = trace(module.train(), batch, OPTIONS, dynamic=name == "dynamic")
    subject = Subject(name, traced.step, traced.arguments, traced.overwritten)
    if name == "releases":
        release.give_away(traced.step.region, subject.hooks)  # type: ignore[arg-type]
        subject.step = pipeline.resized(traced.step, {}, OPTIONS)
    if name.startswith("moves"):
        subject.step = with_stores(traced.step)
    return subject
