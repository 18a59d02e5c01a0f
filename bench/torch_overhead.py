"""Two limits of the PyTorch package: planning time, and what the backend costs without a budget.

    python bench/torch_overhead.py [--rounds 7]

Planning: seconds from the joint graph to the plan, for ResNet-152 and a 12-layer GPT-2 (tracing by torch.compile is not ours and
not counted). Overhead: a step of the backend without a budget against `aot_eager`, which runs the same graph, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import remat
import torch
from torch import nn


def resnet152() -> tuple[nn.Module, tuple[Any, ...]]:
    from torchvision.models import resnet152 as build

    return build(num_classes=100), (torch.randn(4, 3, 96, 96),)


class Logits(nn.Module):
    """GPT-2 as a function of tokens."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=256, n_head=8, vocab_size=4096, n_positions=128))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


def gpt2() -> tuple[nn.Module, tuple[Any, ...]]:
    return Logits(), (torch.randint(0, 4096, (4, 128)),)


def step_seconds(step: Any, module: nn.Module, batch: tuple[Any, ...]) -> float:
    module.zero_grad(set_to_none=True)
    begin = time.perf_counter()
    step(*batch).square().mean().backward()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    for make in (resnet152, gpt2):
        torch.manual_seed(0)
        module, batch = make()
        module.train()
        torch._dynamo.reset()
        remat.compile(module, budget="60%" if make is gpt2 else "95%")(*batch)
        report = remat.regions()[-1]
        print(f"{make.__name__}: {report.n_ops} operations, planned in {report.planning_seconds:.2f} s, +{100 * report.overhead:.1f} %")
        torch._dynamo.reset()
        ours, plain = remat.compile(module), torch.compile(module, backend="aot_eager")
        times: dict[str, list[float]] = {"ours": [], "plain": []}
        for name, step in (("ours", ours), ("plain", plain)):
            step_seconds(step, module, batch)
        for _ in range(arguments.rounds):
            times["ours"].append(step_seconds(ours, module, batch))
            times["plain"].append(step_seconds(plain, module, batch))
        ratio = statistics.median(a / b for a, b in zip(times["ours"], times["plain"], strict=True))
        print(f"{make.__name__}: without a budget {1e3 * statistics.median(times['ours']):.0f} ms, aot_eager"
              f" {1e3 * statistics.median(times['plain']):.0f} ms, median of ratios {ratio:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
