"""Steps compiled by Inductor, with and without a budget, against plain torch.compile and eager mode.

    python bench/torch_inductor.py [--models resnet50,gpt2] [--budgets none,75%,55%,400MiB] [--rounds 9] [--threads 1] [--pause]
        [--out table.md]

Every way trains the same module on the same batch, in turns, so that what else the machine does meets all alike; ratios are
medians over rounds. The peak is measured in a step of its own. A budget is a size, or a percentage of the peak that plain Inductor's
cut has; one that cannot be met is written with its floor and left out. Compiling takes minutes and timing seconds: with `--pause` the
second waits for a line on the standard input, so that the machine needs to be quiet for that part only.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import remat
import torch
from torch import nn
from torch_overhead import WithLoss, gpt2


def resnet50(side: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """ResNet-50 on eight square images."""
    from torchvision.models import resnet50 as build

    return WithLoss(build(num_classes=100)), (torch.randn(8, 3, side, side), torch.randint(0, 100, (8,)))


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "resnet50": lambda: resnet50(96), "resnet50-224": lambda: resnet50(224), "gpt2": gpt2,
}  # fmt: skip


def seconds_of_step(run: Any, module: nn.Module, batch: tuple[Any, ...]) -> float:
    module.zero_grad(set_to_none=True)
    begin = time.perf_counter()
    run(*batch).backward()
    return time.perf_counter() - begin


def first_step(run: Any, module: nn.Module, batch: tuple[Any, ...]) -> tuple[float, int]:
    """Seconds until the first step is done, and the peak of the second."""
    seconds = seconds_of_step(run, module, batch)
    module.zero_grad(set_to_none=True)
    with remat.measure_peak("cpu") as peak:
        run(*batch).backward()
    return seconds, peak.bytes


def compare(name: str, budgets: list[str], n_rounds: int, say: Callable[[str], None], *, pauses: bool) -> None:
    """The table of one model."""
    module, batch = MODELS[name]()
    ways: dict[str, tuple[Any, nn.Module]] = {}
    say(f"### {name}\n\n| way | stated MiB | measured MiB | first step s | median ms | against plain Inductor | middle half |\n|---|---|---|---|---|---|---|")
    rows: dict[str, str] = {}
    for way in ("plain Inductor", "eager", *budgets):
        own = copy.deepcopy(module)
        n_reports = len(remat.regions())
        run: Any = own if way == "eager" else torch.compile(own)
        if way in budgets:
            run = remat.compile(own, budget=None if way == "none" else way, compiler="inductor")
        try:
            seconds, peak = first_step(run, own, batch)
        except remat.BudgetTooSmall as error:
            say(f"| {way} | floor {error.floor / 2**20:.1f} | | | | | |")
            continue
        reports = remat.regions()[n_reports:]
        stated = f"{reports[-1].predicted_peak / 2**20:.1f}" if reports else ""
        rows[way] = f"| {way} | {stated} | {peak / 2**20:.1f} | {seconds:.1f}"
        ways[way] = (run, own)
    if pauses:
        input("ready; Enter begins the timed steps\n")
    times: dict[str, list[float]] = {way: [] for way in ways}
    for index in range(n_rounds):
        # The first of a round may be at a disadvantage, so they take turns in that too.
        for way in list(ways) if index % 2 == 0 else list(reversed(ways)):
            times[way].append(seconds_of_step(*ways[way], batch))
    for way, own_times in times.items():
        ratios = sorted(a / b for a, b in zip(own_times, times["plain Inductor"], strict=True))
        quarter = len(ratios) // 4
        middle = f"{statistics.median(ratios):.3f} | {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}"
        say(f"{rows[way]} | {1e3 * statistics.median(own_times):.1f} | {middle} |")
    say("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet50,gpt2")
    parser.add_argument("--budgets", default="none,75%,55%")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, help="threads of torch; one is steadier where other programs run")
    parser.add_argument("--pause", action="store_true", help="wait for a line before the timed steps")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")

    for name in arguments.models.split(","):
        torch.manual_seed(0)
        torch._dynamo.reset()
        compare(name, arguments.budgets.split(","), arguments.rounds, say, pauses=arguments.pause)


if __name__ == "__main__":
    main()
