"""A part of the sweep of bench/torch_sweep.py that is quick: one model per form that graphs take in practice."""

from __future__ import annotations

import warnings

import pytest
import remat
import torch
from promises import examine, train
from torch import nn
from zoo_forms import FORMS
from zoo_text import TEXT
from zoo_timm import TIMM
from zoo_vision import VISION

ALL = {**VISION, **TEXT, **TIMM, **FORMS}
QUICK = [
    "unet", "lstm", "sdpa_dropout", "autograd_function", "buffers_changed", "bags", "norms", "pictures", "complex", "losses",
    "branches", "checkpoint_inside", "in_place", "random", "dropouts", "views", "selects", "autocast_inside",
    "batch_norm_twice", "batch_norm_frozen", "double", "timm_sequencer2d",
]  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_the_promises_hold(name: str) -> None:
    found = examine(ALL[name], (0.0,), n_steps=2, effort=0.01)
    assert found.n_regions == 1
    assert found.floor <= found.keep_all


def test_a_model_that_cannot_be_captured_says_so() -> None:
    class Unseen(nn.Module):
        """A break inside a loop: Dynamo gives up the whole function."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x).tanh()
                torch._dynamo.graph_break()
            return x.square().mean()

    torch.manual_seed(0)
    module, x = Unseen(), torch.randn(8, 16)
    compiled = remat.compile(module, budget=1)
    with pytest.warns(remat.BudgetWarning, match="captured no part"):
        compiled(x).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x).backward()


def test_blocks_that_are_captured_one_by_one_share_the_budget() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x)

    class Looped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
                torch._dynamo.graph_break()
            return x.square().mean()

    def make() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        return Looped(), (torch.randn(512, 64),)

    free = train(make, 2, None, 0.01)
    budget = int(0.75 * max(free.peaks))
    with pytest.warns(remat.BudgetWarning, match="cut the model"):
        within = train(make, 2, budget, 0.01)
    assert len(within.reports) >= 1
    assert max(within.peaks) <= budget
    assert all(torch.equal(a, b) for a, b in zip(within.tensors, free.tensors, strict=True))
