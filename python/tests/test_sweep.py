"""A part of the sweep of bench/torch_sweep.py: models whose loss is computed outside, from the eager peak down."""

from __future__ import annotations

import pytest
import remat
import torch
from remat.measure import measure_peak
from sweep_cells import HOLDS, INSIDE, OUTSIDE, cells
from torch import nn
from zoo_text import TEXT
from zoo_timm import TIMM

# rnn, timm_vit: the eager peak is at the end of backward, when the outputs are long gone. roberta, distilbert: the losses need
# more than a cross entropy does.
OUTSIDE_CASES = {
    "rnn": (TEXT["rnn"], "mse"),
    "timm_vit": (TIMM["timm_vit"], "mse"),
    "roberta": (TEXT["roberta"], "distillation"),
    "distilbert": (TEXT["distilbert"], "dice"),
}


@pytest.mark.parametrize("name", OUTSIDE_CASES)
def test_a_loss_outside_holds_from_the_first_step_on(name: str) -> None:
    make, loss = OUTSIDE_CASES[name]
    for cell in cells(make, OUTSIDE, loss):
        assert (cell.verdict, cell.messages) == (HOLDS, []), cell
        assert not cell.is_broken, cell


# Models that Dynamo cuts into parts.
@pytest.mark.parametrize("name", ["mixtral", "opt"])
def test_a_model_in_parts_is_not_refused_at_the_eager_peak(name: str) -> None:
    cell = next(cells(TEXT[name], INSIDE, "mse"))
    assert cell.n_parts > 1
    assert cell.verdict == HOLDS and not cell.is_broken, cell
    assert all("cut the model" in message for message in cell.messages)


def test_outputs_that_the_caller_keeps_are_noticed() -> None:
    torch.manual_seed(0)
    module, x = nn.Linear(256, 2048), torch.randn(64, 256)
    with measure_peak("cpu") as dropped:
        module(x).square().sum().backward()
    module.zero_grad(set_to_none=True)
    remat.compile(module, budget=dropped.bytes, effort=0.01)
    with pytest.warns(remat.BudgetWarning, match="a step takes"):
        out = module(x)
        out.square().sum().backward()
    del out


def test_gradients_that_the_caller_keeps_are_noticed() -> None:
    torch.manual_seed(0)
    module, x = nn.Linear(256, 2048), torch.randn(64, 256)

    def step(module: nn.Module) -> None:
        # Not through a variable: the output is gone when backward begins, its gradient is not.
        gradient = torch.ones(64, 2048)
        module(x).backward(gradient)

    with measure_peak("cpu") as eager:
        step(module)
    module.zero_grad(set_to_none=True)
    remat.compile(module, budget=eager.bytes, effort=0.01)
    peaks = []
    for _ in range(2):
        module.zero_grad(set_to_none=True)
        with measure_peak("cpu") as peak:
            step(module)
        peaks.append(peak.bytes)
    assert max(peaks) <= eager.bytes


def test_without_measuring_a_plan_that_leaves_out_the_loss_says_so() -> None:
    module, x = nn.Linear(4, 4096), torch.randn(64, 4)
    with measure_peak("cpu") as eager:
        module(x).abs().sum().backward()
    compiled = torch.compile(module, backend="remat", options={"budget": eager.bytes, "effort": 0.01})
    with pytest.warns(remat.BudgetWarning, match="no room for a loss"):
        compiled(x).abs().sum().backward()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_interpolation_is_not_taken_apart(mode: str) -> None:
    class Enlarged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Conv2d(3, 8, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            large = nn.functional.interpolate(self.body(x).tanh(), scale_factor=2.5, mode=mode)
            return nn.functional.interpolate(large, size=(5, 5), mode=mode).square().mean()

    torch.manual_seed(0)
    for cell in cells(lambda: (Enlarged(), (torch.randn(2, 3, 8, 8),)), INSIDE, "mse"):
        assert (cell.verdict, cell.bits) == (HOLDS, "eager"), cell


def test_gradients_in_another_layout_than_their_parameter_are_in_the_plan() -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bodies = nn.ModuleList(nn.Conv2d(64, 64, 8, stride=8) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # In channels-last layout, as after a permutation, while the weights are not.
            x = x.contiguous(memory_format=torch.channels_last)
            return sum(body(x).square().mean() for body in self.bodies)

    torch.manual_seed(0)
    module, x = Patches(), torch.randn(1, 64, 16, 16)
    expected = [gradient.clone() for gradient in torch.autograd.grad(module(x), list(module.parameters()))]
    floor = remat.plan(module, x, effort=0.01).floor
    remat.compile(module, budget=floor, effort=0.01, strict=True)
    for _ in range(2):
        module.zero_grad(set_to_none=True)
        with measure_peak("cpu") as peak:
            module(x).backward()
        assert peak.bytes <= floor
    assert all(torch.equal(a, p.grad) and p.grad.stride() == p.stride() for a, p in zip(expected, module.parameters(), strict=True))
