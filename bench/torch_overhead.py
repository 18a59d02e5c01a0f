"""Two limits of the PyTorch package: what it adds before the first step, and what the backend costs without a budget.

    python bench/torch_overhead.py [--models resnet152,gpt2] [--rounds 9] [--only planning|step] [--threads 1] [--out table.md]

Planning: all seconds that remat itself spends before the first step (reading the joint graph, costs, plan, writing the two
functions and checking them), for budgets along the range from the floor to the peak without recomputation. Tracing by torch.compile is not
ours and not counted. Step: a step of the backend without a budget against `aot_eager`, which runs the same graph op by op, and
against the uncompiled model, all in turns; ratios are medians over rounds. The table is printed row by row.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import remat
import torch
from remat import codegen, schedule
from torch import nn
from torch.nn import functional as F

FRACTIONS = (0.0, 0.25, 0.5, 0.75)


class WithLoss(nn.Module):
    """A model and its loss, so that a call is a whole forward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            return F.cross_entropy(self.model(x), y)
        return F.cross_entropy(self.model(input_ids=x, use_cache=False).logits.flatten(0, 1), y.flatten())


def resnet152() -> tuple[nn.Module, tuple[Any, ...]]:
    """ResNet-152 on images of 96 by 96."""
    from torchvision.models import resnet152 as build

    return WithLoss(build(num_classes=100)), (torch.randn(4, 3, 96, 96), torch.randint(0, 100, (4,)))


def gpt2() -> tuple[nn.Module, tuple[Any, ...]]:
    """GPT-2 small: twelve layers of width 768, 256 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    ids = torch.randint(0, 8192, (1, 256))
    return WithLoss(GPT2LMHeadModel(GPT2Config(vocab_size=8192, n_positions=256))), (ids, ids)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {"resnet152": resnet152, "gpt2": gpt2}


class Table:
    """Prints rows as they come, and keeps a file up to date."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        print(line, flush=True)
        self.lines.append(line)
        if self.path is not None:
            self.path.write_text("\n".join(self.lines) + "\n")


def seconds_of_step(step: Any, module: nn.Module, batch: tuple[Any, ...]) -> float:
    module.zero_grad(set_to_none=True)
    begin = time.perf_counter()
    step(*batch).backward()
    return time.perf_counter() - begin


class Stopwatch:
    """Adds up the seconds of a function of a module."""

    def __init__(self, module: Any, name: str) -> None:
        self.module, self.name = module, name
        self.function = getattr(module, name)
        self.seconds = 0.0

    def __enter__(self) -> Stopwatch:
        def timed(*args: Any) -> Any:
            begin = time.perf_counter()
            try:
                return self.function(*args)
            finally:
                self.seconds += time.perf_counter() - begin

        setattr(self.module, self.name, timed)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self.module, self.name, self.function)


def first_step(module: nn.Module, batch: tuple[Any, ...], budget: int) -> tuple[remat.RegionReport, float, float]:
    """What was compiled, the seconds that were remat's own, and those of them that checked what was written."""
    torch._dynamo.reset()
    graphs, source = Stopwatch(schedule, "check_graphs"), Stopwatch(codegen, "check_source")
    with Stopwatch(codegen, "boxed") as writing, graphs, source:
        remat.compile(module, budget=budget)(*batch).backward()
    report = remat.regions()[-1]
    return report, report.planning_seconds + writing.seconds, graphs.seconds + source.seconds


def planning(name: str, table: Table) -> None:
    module, batch = MODELS[name]()
    plan = remat.plan(module.train(), batch)
    table.add(f"### {name}: what is added before the first step")
    table.add("")
    table.add("| operations | place in the range | budget MiB | planned peak MiB | added time | seconds of remat | of them checks |")
    table.add("|---|---|---|---|---|---|---|")
    floor, top = plan.floor, plan.keep_all_peak
    for fraction in FRACTIONS:
        # One byte more than the floor, whose plan is known by now.
        budget = floor + max(int(fraction * (top - floor)), 1)
        report, seconds, checking = first_step(module, batch, budget)
        table.add(
            f"| {report.n_ops} | {100 * fraction:.0f} % | {budget / 2**20:.1f} | {report.predicted_peak / 2**20:.1f}"
            f" | {100 * report.overhead:.1f} % | {seconds:.2f} | {checking:.2f} |"
        )
    table.add("")


def step(name: str, n_rounds: int, table: Table) -> None:
    module, batch = MODELS[name]()
    module.train()
    torch._dynamo.reset()
    ways = {
        "remat, no budget": remat.compile(module, in_place=False),
        "aot_eager": torch.compile(module, backend="aot_eager"),
        "eager": module,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for way in ways.values():
        seconds_of_step(way, module, batch)
        seconds_of_step(way, module, batch)
    for index in range(n_rounds):
        # The first of a round may be at a disadvantage, so they take turns in that too.
        order = list(ways) if index % 2 == 0 else list(reversed(ways))
        for way in order:
            times[way].append(seconds_of_step(ways[way], module, batch))
    ours = times["remat, no budget"]
    table.add(f"### {name}: a step without a budget")
    table.add("")
    table.add("| way | median ms | remat against it: median of ratios | middle half |")
    table.add("|---|---|---|---|")
    for way, own in times.items():
        ratios = sorted(a / b for a, b in zip(ours, own, strict=True))
        quarter = len(ratios) // 4
        table.add(
            f"| {way} | {1e3 * statistics.median(own):.1f} | {statistics.median(ratios):.3f}"
            f" | {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f} |"
        )
    table.add("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet152,gpt2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=["planning", "step"])
    parser.add_argument("--threads", type=int, help="threads of torch; one is steadier where other programs run")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    table = Table(arguments.out)
    for name in arguments.models.split(","):
        torch.manual_seed(0)
        if arguments.only != "step":
            planning(name, table)
        if arguments.only != "planning":
            step(name, arguments.rounds, table)


if __name__ == "__main__":
    main()
