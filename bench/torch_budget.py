"""PyTorch's own ways to save memory against a budget, on the same models, in one process.

    python bench/torch_budget.py [--models gpt2,resnet50] [--ways eager,checkpoint,0.5] [--rounds 5] [--threads 1]
                                   [--out table.md]

Each way gives a point (measured peak, time of a step): `checkpoint` is `torch.utils.checkpoint` around every block,
`checkpoint2` around every second one, a number is `activation_memory_budget` with the backend that only partitions
(`aot_eager_decomp_partition`), and `0.5/plain` the same on the graph that we get, without decompositions. For every point
we plan with its measured peak as our budget and compare times: below 1 we are faster with the same memory. The two take
turns, so that a disturbance hits both, and the ratio is the median over the rounds. Peaks are bytes of live storages of
a whole step (parameters, batch, gradients included), measured in a step of their own. Gradients are compared with eager
training too: a way that is fast and wrong is not a way. `floor` is our lowest peak. A row is printed, and added to the
file, as soon as it is known.
"""

from __future__ import annotations

import argparse
import gc
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

WAYS = "eager,checkpoint,checkpoint2,0.7,0.5,0.3,0.1,0.0,0.5/plain,0.0/plain,floor"
HEAD = (
    "| model | way | peak MiB | ms | gradient error | remat: peak MiB | ms | gradient error | time ratio |",
    "|---|---|---|---|---|---|---|---|---|",
)


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

    def timed_run(self) -> None:
        """A run whose time counts."""
        begin = time.perf_counter()
        self.run()
        self.seconds.append(time.perf_counter() - begin)

    def prepare(self, expected: torch.Tensor) -> None:
        """Compiles, measures the peak, and compares gradients."""
        torch.manual_seed(7)
        self.run()
        flat = torch.cat([p.grad.flatten() for p in self.module.parameters()])
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
    return Candidate("checkpoint, every second block" if every > 1 else "checkpoint per block", module, module, batch)


def plain_partition(module: Any, example_inputs: Any) -> Any:
    """PyTorch's partitioner on the graph as it is."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.compilers import nop

    backend = aot_autograd(fw_compiler=nop, bw_compiler=nop, partition_fn=min_cut_rematerialization_partition)
    return backend(module, example_inputs)


def torch_budget(name: str, fraction: float, *, is_plain: bool) -> Candidate:
    """`activation_memory_budget` with backends that only partition, so that the kernels are the same as in eager mode."""
    module, batch, _ = build(name)
    torch._functorch.config.activation_memory_budget = fraction
    compiled = torch.compile(module, backend=plain_partition if is_plain else "aot_eager_decomp_partition")
    title = f"activation_memory_budget {fraction}{', no decompositions' if is_plain else ''}"
    return Candidate(title, module, compiled, batch)


def theirs(name: str, way: str) -> Candidate:
    """The candidate of a way."""
    if way == "eager":
        module, batch, _ = build(name)
        return Candidate("eager", module, module, batch)
    if way.startswith("checkpoint"):
        return checkpointed(name, 2 if way.endswith("2") else 1)
    fraction, _, form = way.partition("/")
    return torch_budget(name, float(fraction), is_plain=form == "plain")


def ours(name: str, budget: int | None) -> Candidate:
    """The backend within a budget, or at its floor."""
    module, batch, _ = build(name)
    options = {"cost": "measured"}
    if budget is None:
        budget = remat.plan(module, batch, **options).floor
    return Candidate(f"remat, {budget / 2**20:.0f} MiB", module, remat.compile(module, budget=budget, **options), batch)


def expected_gradients(name: str) -> torch.Tensor:
    """The gradients of eager training."""
    module, batch, _ = build(name)
    torch.manual_seed(7)
    Candidate("eager", module, module, batch).run()
    return torch.cat([p.grad.flatten() for p in module.parameters()])


def row(name: str, way: str, n_rounds: int, expected: torch.Tensor) -> str:
    """Measures one way and ours at its peak."""
    torch._dynamo.reset()
    gc.collect()
    own: Candidate | None
    if way == "floor":
        own = ours(name, None)
        own.prepare(expected)
        for _ in range(n_rounds):
            own.timed_run()
        return f"| {name} | remat at its floor | | | | {text(own)} | |"
    other = theirs(name, way)
    try:
        other.prepare(expected)
    except RuntimeError as error:
        # Their partitioner may recompute what reads a buffer that the step has overwritten by then.
        return f"| {name} | {other.name} | fails: {' '.join(str(error).split())[:90]} ... | | | | | | |"
    finally:
        torch._functorch.config.activation_memory_budget = 1.0
    own = ours(name, other.peak)
    try:
        own.prepare(expected)
    except Exception as error:
        if "too small" not in str(error):
            raise
        own = None
    for _ in range(n_rounds):
        other.timed_run()
        if own is not None:
            own.timed_run()
    if own is None:
        return f"| {name} | {other.name} | {text(other)} | does not fit | | | |"
    ratio = statistics.median(a / b for a, b in zip(own.seconds, other.seconds, strict=True))
    return f"| {name} | {other.name} | {text(other)} | {text(own)} | {ratio:.3f} |"


def text(candidate: Candidate) -> str:
    return f"{candidate.peak / 2**20:.1f} | {1e3 * candidate.time:.0f} | {candidate.gradient_error:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ways", default=WAYS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="threads of torch; one is steadier where other programs run")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    lines = arguments.out.read_text().splitlines() if arguments.out and arguments.out.exists() else list(HEAD)
    for name in arguments.models.split(","):
        expected = expected_gradients(name)
        for way in arguments.ways.split(","):
            lines.append(row(name, way, arguments.rounds, expected))
            print(lines[-1], flush=True)
            if arguments.out:
                arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
