"""Gradients that have another layout than their parameter: copied within the plan, with the layouts and bits of eager training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
from remat.measure import measure_peak
from torch import nn
from torch.nn import functional as F

EFFORT = 0.01


class Patches(nn.Module):
    """Convolutions of an input in channels-last layout, as after a permutation, with weights that are not."""

    def __init__(self, uses: int = 1) -> None:
        super().__init__()
        self.uses = uses
        self.bodies = nn.ModuleList(nn.Conv2d(64, 64, 8, stride=8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        return sum(body(x + use).square().mean() for body in self.bodies for use in range(self.uses))


class Turned(nn.Module):
    """A parameter with its dimensions in another order, and one with gaps; all gradients come in the usual layout."""

    def __init__(self) -> None:
        super().__init__()
        self.turned = nn.Parameter(torch.randn(48, 96, 64).permute(2, 0, 1))
        self.gaps = nn.Parameter(torch.randn(64, 96)[:, ::2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.turned.sigmoid().sum(2).cos() * self.gaps.t().sin().t()).square().mean()


def frozen() -> nn.Module:
    module = Patches()
    for body in module.bodies[::2]:
        body.requires_grad_(False)
    return module


def image(batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 64, 16, 16)


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


def like_eager(module: nn.Module, expected: list[torch.Tensor]) -> bool:
    pairs = list(zip(gradients(module), expected, strict=True))
    return all(torch.equal(a, b) and a.stride() == b.stride() for a, b in pairs)


def in_eager(module: nn.Module, *batch: torch.Tensor, backwards: int = 1) -> list[torch.Tensor]:
    loss = module(*batch)
    for left in reversed(range(backwards)):
        loss.backward(retain_graph=left > 0)
    found = gradients(module)
    module.zero_grad(set_to_none=True)
    return found


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "channels last": (Patches, image),
    "one parameter, two uses": (lambda: Patches(uses=2), image),
    "some frozen": (frozen, image),
    "other orders and gaps": (Turned, lambda: torch.randn(64, 48)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_copy_is_in_the_plan(case: str) -> None:
    torch.manual_seed(0)
    build, batch = CASES[case]
    module, x = build(), batch()
    expected = in_eager(module, x)
    floor = remat.plan(module, x, effort=EFFORT).floor
    remat.compile(module, budget=floor, effort=EFFORT, strict=True)
    for _ in range(2):
        module.zero_grad(set_to_none=True)
        with measure_peak("cpu") as peak:
            module(x).backward()
        assert peak.bytes == remat.regions()[-1].predicted_peak <= floor
    assert like_eager(module, expected)


def test_first_gradients_are_free_once_they_are_copied() -> None:
    module = Patches()
    weight = module.bodies[0].weight.nbytes
    floor = remat.plan(module, image(), effort=EFFORT).floor
    fixed = sum(p.nbytes for p in module.parameters())
    # All gradients at the end, and one that is being copied. Four more if each were held until then.
    assert floor < 2 * fixed + 2 * weight


def test_a_second_backward_adds_to_the_first() -> None:
    torch.manual_seed(0)
    module, x = Patches(), image()
    expected = in_eager(module, x, backwards=2)
    remat.compile(module, budget="100%", effort=EFFORT)
    loss = module(x)
    loss.backward(retain_graph=True)
    loss.backward()
    assert like_eager(module, expected)


def test_other_sizes_of_the_batch() -> None:
    torch.manual_seed(0)
    module = Patches()
    images = [image(batch) for batch in (2, 3, 5)]
    expected = [in_eager(module, x) for x in images]
    remat.compile(module, budget="64MiB", effort=EFFORT, strict=True, dynamic=True)
    for x, wanted in zip(images, expected, strict=True):
        module.zero_grad(set_to_none=True)
        module(x).backward()
        assert like_eager(module, wanted)


def test_an_optimizer_in_backward_gets_the_copy() -> None:
    def train(**options: Any) -> tuple[list[torch.Tensor], list[tuple[int, ...]], int]:
        torch.manual_seed(0)
        module, x = Patches(), image()
        strides: list[tuple[int, ...]] = []

        def hook(p: torch.Tensor) -> None:
            assert p.grad is not None
            strides.append(p.grad.stride())
            with torch.no_grad():
                p.sub_(p.grad.mul_(0.05))
            p.grad = None

        for p in module.parameters():
            p.register_post_accumulate_grad_hook(hook)
        if options:
            remat.compile(module, effort=EFFORT, **options)
        with measure_peak("cpu") as peak:
            module(x).backward()
        return list(module.parameters()), strides, peak.bytes

    module = Patches()
    with pytest.raises(remat.BudgetTooSmall) as caught:
        remat.compile(module, budget=1, effort=EFFORT, releases_gradients=True)(image())
    floor = caught.value.floor
    assert floor < sum(p.nbytes for p in module.parameters()) + 3 * module.bodies[0].weight.nbytes
    expected, found = train(), train(budget=floor, releases_gradients=True, strict=True)
    assert all(torch.equal(a, b) for a, b in zip(expected[0], found[0], strict=True))
    assert sorted(expected[1]) == sorted(found[1])
    assert found[2] <= floor


def test_dimensions_of_size_one_need_no_copy() -> None:
    class Pointwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Conv2d(8, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.body(x.contiguous(memory_format=torch.channels_last))).mean()

    plan = remat.plan(Pointwise(), torch.randn(2, 8, 4, 4), effort=EFFORT)
    assert "in_layout" not in plan.problem_json()
