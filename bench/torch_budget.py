"""PyTorch's own ways to save memory against a budget, on the same models, in one process.

    python bench/torch_budget.py [--models gpt2,resnet50] [--rounds 5] [--out table.md]

Each way gives points (measured peak, time of a step): `torch.utils.checkpoint` around every block and around every second
one, and `activation_memory_budget` at several values with the partition-only backend. For every point we plan with its
measured peak as our budget and compare times: below 1 we are faster with the same memory. Times are medians over rounds in
which all candidates take turns, so that a disturbance hits all of them. Peaks are bytes of live storages of a whole
step (parameters, batch, gradients included), measured in a step of their own.

Gradients are compared with eager training too: a way that is fast and wrong is not a way.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import remat
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

BUDGETS_OF_TORCH = (0.7, 0.5, 0.3, 0.1, 0.0)


class WithLoss(nn.Module):
    """A model and its loss, so that a call is a whole forward."""

    def __init__(self, model: nn.Module, classes: bool) -> None:
        super().__init__()
        self.model = model
        self.classes = classes

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.classes:
            return F.cross_entropy(self.model(x), y)
        logits = self.model(input_ids=x, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def gpt2() -> tuple[nn.Module, tuple[Any, ...], list[str]]:
    """GPT-2 small with a shorter context."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=384, n_head=6, vocab_size=8192, n_positions=256))
    ids = torch.randint(0, 8192, (4, 256))
    return WithLoss(model, classes=False), (ids, ids), [f"model.transformer.h.{i}" for i in range(12)]


def resnet50() -> tuple[nn.Module, tuple[Any, ...], list[str]]:
    """ResNet-50 on images of 128 by 128."""
    from torchvision.models import resnet50 as build

    model = build(num_classes=100)
    blocks = [f"model.layer{stage}.{i}" for stage, n in ((1, 3), (2, 4), (3, 6), (4, 3)) for i in range(n)]
    return WithLoss(model, classes=True), (torch.randn(8, 3, 128, 128), torch.randint(0, 100, (8,))), blocks


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...], list[str]]]] = {"gpt2": gpt2, "resnet50": resnet50}


@dataclass
class Candidate:
    """One way to run a step, and what was measured of it."""

    name: str
    module: nn.Module
    step: Callable[..., torch.Tensor]
    batch: tuple[Any, ...]
    peak: int = 0
    gradient_error: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        return statistics.median(self.seconds)

    def run(self) -> None:
        self.module.zero_grad(set_to_none=True)
        self.step(*self.batch).backward()

    def prepare(self, expected: torch.Tensor | None) -> None:
        """Compiles, measures the peak, and compares gradients."""
        torch.manual_seed(7)
        self.run()
        flat = torch.cat([p.grad.flatten() for p in self.module.parameters()])
        if expected is not None:
            self.gradient_error = ((flat - expected).norm() / expected.norm()).item()
        self.module.zero_grad(set_to_none=True)
        del flat
        with remat.measure_peak("cpu") as peak:
            self.run()
        self.peak = peak.bytes


def build(name: str) -> tuple[nn.Module, tuple[Any, ...], list[str]]:
    torch.manual_seed(0)
    module, batch, blocks = MODELS[name]()
    return module.train(), batch, blocks


def checkpointed(name: str, every: int) -> Candidate:
    """Each `every`-th block inside `torch.utils.checkpoint`, in eager mode, as it is used by hand."""
    module, batch, blocks = build(name)
    for path in blocks[::every]:
        block = module.get_submodule(path)
        forward = block.forward
        block.forward = lambda *a, forward=forward, **k: checkpoint(forward, *a, use_reentrant=False, **k)
    return Candidate(f"checkpoint, every {every}. block" if every > 1 else "checkpoint per block", module, module, batch)


def torch_budget(name: str, fraction: float) -> Candidate:
    """`activation_memory_budget` with the backend that only partitions, so that kernels are the same."""
    module, batch, _ = build(name)
    torch._functorch.config.activation_memory_budget = fraction
    compiled = torch.compile(module, backend="aot_eager_decomp_partition")
    return Candidate(f"activation_memory_budget {fraction}", module, compiled, batch)


def ours(name: str, budget: int | None) -> Candidate:
    module, batch, _ = build(name)
    title = "remat, no budget" if budget is None else f"remat, {budget / 2**20:.0f} MiB"
    return Candidate(title, module, remat.compile(module, budget=budget, cost="measured", effort=0.2), batch)


def compare(name: str, n_rounds: int) -> list[str]:
    module, batch, _ = build(name)
    eager = Candidate("eager", module, module, batch)
    eager.prepare(None)
    torch.manual_seed(7)
    eager.run()
    expected = torch.cat([p.grad.flatten() for p in module.parameters()])

    theirs = [eager]
    makers = [lambda: checkpointed(name, 1), lambda: checkpointed(name, 2)]
    makers += [lambda fraction=fraction: torch_budget(name, fraction) for fraction in BUDGETS_OF_TORCH]
    for maker in makers:
        candidate = maker()
        candidate.prepare(expected)
        theirs.append(candidate)
    torch._functorch.config.activation_memory_budget = 1.0

    pairs: list[tuple[Candidate, Candidate | None]] = []
    for candidate in theirs:
        own: Candidate | None = ours(name, candidate.peak)
        try:
            own.prepare(expected)
        except Exception as error:
            if "too small" not in str(error):
                raise
            own = None
        pairs.append((candidate, own))
    floor = remat.plan(*ours_example(name)).floor
    lowest = ours(name, floor)
    lowest.prepare(expected)
    free = ours(name, None)
    free.prepare(expected)

    everyone = [*theirs, *(own for _, own in pairs if own is not None), lowest, free]
    for _ in range(n_rounds):
        for candidate in everyone:
            begin = time.perf_counter()
            candidate.run()
            candidate.seconds.append(time.perf_counter() - begin)
    return [*table(name, pairs, lowest, free), ""]


def ours_example(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    module, batch, _ = build(name)
    return module, batch


def table(name: str, pairs: list[tuple[Candidate, Candidate | None]], lowest: Candidate, free: Candidate) -> list[str]:
    lines = [
        f"### {name}",
        "",
        "| way | peak MiB | ms | gradient error | remat: peak MiB | ms | time ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for candidate, own in pairs:
        left = f"| {candidate.name} | {candidate.peak / 2**20:.1f} | {1e3 * candidate.time:.0f} | {candidate.gradient_error:.1e} |"
        right = "does not fit | | |" if own is None else (
            f" {own.peak / 2**20:.1f} | {1e3 * own.time:.0f} | {own.time / candidate.time:.3f} |"
        )  # fmt: skip
        lines.append(left + right)
    for candidate in (lowest, free):
        title = "remat at its floor" if candidate is lowest else candidate.name
        lines.append(f"| {title} | | | {candidate.gradient_error:.1e} | {candidate.peak / 2**20:.1f} | {1e3 * candidate.time:.0f} | |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="gpt2,resnet50")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = [line for name in arguments.models.split(",") for line in compare(name, arguments.rounds)]
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
