"""Inductor under a budget: the peak that is stated is the measured one, and it is within the budget.

Gradients are compared with those of eager mode: Inductor rounds differently, and differently at each budget, so they agree to
`TOLERANCE` and not to the bit. Two steps by one plan agree to the bit.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
from remat.measure import measure_peak, storage_bytes
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None and shutil.which("g++") is None, reason="Inductor needs a C++ compiler"
)
# As stated in docs/pytorch.md.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}
Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x.square().mean()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.mix, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.first(x)).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 32)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(32, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.blocks(self.tokens(ids))).flatten(0, 1), ids.flatten())


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1) for i in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x)))
        return x.square().mean()


MODELS: dict[str, Callable[[], Model]] = {
    "layers": lambda: (Layers(), (torch.randn(1024, 64),)),
    "blocks": lambda: (Blocks(), (torch.randint(0, 50, (8, 64)),)),
    "convolutions": lambda: (Convolutions(), (torch.randn(8, 3, 24, 24),)),
}


def make(name: str) -> Model:
    torch.manual_seed(0)
    return MODELS[name]()


def step(run: Any, module: nn.Module, batch: tuple[torch.Tensor, ...]) -> tuple[list[torch.Tensor], int]:
    """The loss and the gradients of a step, and its peak."""
    module.zero_grad(set_to_none=True)
    with measure_peak("cpu") as peak:
        loss = run(*batch)
        loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)], peak.bytes


def check(name: str, budget: Any) -> remat.RegionReport:
    """Two steps within a budget, with the stated peak, the same bits and gradients close to those of eager mode."""
    module, batch = make(name)
    remat.compile(module, budget=budget, compiler="inductor")
    first, first_peak = step(module, module, batch)
    module.load_state_dict(make(name)[0].state_dict())
    second, second_peak = step(module, module, batch)
    report = remat.regions()[-1]
    assert first_peak == second_peak == report.predicted_peak
    assert report.budget is not None
    assert report.predicted_peak <= report.budget
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    eager, batch = make(name)
    expected, _ = step(eager, eager, batch)
    assert all(torch.allclose(a, b, **TOLERANCE) for a, b in zip(first, expected, strict=True))
    buffers = zip(module.buffers(), eager.buffers(), strict=True)
    assert all(torch.allclose(a, b, **TOLERANCE) for a, b in buffers)
    return report


@pytest.mark.parametrize("name", MODELS)
def test_everything_fits_at_the_peak_of_plain_inductor(name: str) -> None:
    report = check(name, "100%")
    assert report.n_recomputed == 0
    assert report.predicted_peak == report.budget == report.keep_all_peak


@pytest.mark.parametrize(("name", "budget"), [("layers", "75%"), ("layers", "55%"), ("blocks", "75%"), ("blocks", "55%")])
def test_a_budget_holds(name: str, budget: str) -> None:
    report = check(name, budget)
    assert report.n_recomputed > 0
    # Room is used: the next plan above would not fit.
    assert report.predicted_peak > 0.75 * (report.budget or 0)


def test_the_floor_that_is_stated_works() -> None:
    with pytest.raises(remat.BudgetTooSmall, match="code that Inductor writes") as raised:
        check("convolutions", "20%")
    torch._dynamo.reset()
    report = check("convolutions", raised.value.floor)
    assert report.predicted_peak == raised.value.floor
    assert report.keep_all_peak > report.predicted_peak


def test_gradients_of_earlier_backwards_are_counted() -> None:
    module, batch = make("layers")
    remat.compile(module, budget="75%", compiler="inductor")
    for _ in range(3):
        with measure_peak("cpu") as peak:
            module(*batch).backward()
        assert peak.bytes <= (remat.regions()[-1].budget or 0)
    # Twice: without gradients, and beside them.
    held = storage_bytes(p.grad for p in module.parameters() if p.grad is not None)
    assert remat.regions()[-1].predicted_peak >= held + storage_bytes([*module.parameters(), *batch])


def test_a_peak_of_plain_inductor_is_what_the_allocator_saw() -> None:
    module, batch = make("layers")
    compiled = torch.compile(module)
    # Compiled outside of the measurement: wrappers that are loaded already are counted, too.
    compiled(*batch).backward()
    _, measured = step(compiled, module, batch)
    module.zero_grad(set_to_none=True)
    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profile:
        compiled(*batch).backward()
    current, highest = 0, 0
    for event in profile.kineto_results.events():
        if event.name() == "[memory]":
            current += event.nbytes()
            highest = max(highest, current)
    assert measured == highest + storage_bytes([*module.parameters(), *batch])


def test_nothing_is_added_without_a_budget() -> None:
    results = []
    for compiler in (torch.compile, lambda module: remat.compile(module, compiler="inductor")):
        module, batch = make("layers")
        n_reports = len(remat.regions())
        run = compiler(module)
        results.append(step(run, module, batch)[0])
        assert len(remat.regions()) == n_reports
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    # The allocation that wrappers find is torch's own.
    assert isinstance(torch._C._dynamo.guards._empty_strided_cpu, types.BuiltinFunctionType)


def test_a_first_model_with_max_pooling() -> None:
    """In a process that has not used Inductor yet: a decomposition of pooling needs a module that only Inductor imports."""
    code = (
        "import remat, torch\n"
        "model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(2))\n"
        "remat.compile(model, budget='1GiB', compiler='inductor')(torch.randn(1, 3, 8, 8)).square().mean().backward()\n"
        "print(remat.regions())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0 and "predicted peak" in run.stdout, run.stderr[-2000:]


def test_verify_belongs_to_the_eager_compiler() -> None:
    with pytest.raises(ValueError, match="verify=True needs compiler='eager'"):
        remat.compile(make("layers")[0], compiler="inductor", verify=True)
