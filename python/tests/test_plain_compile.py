"""What is said with plain `torch.compile(..., backend="remat")`, where no call goes through remat before the compiled code runs."""

from __future__ import annotations

from typing import Any

import pytest
import remat
import torch
from test_guard import WIDTH, Loss, body, steps, told
from torch import nn


def _mean_square(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


def _blocks() -> tuple[nn.Sequential, torch.Tensor, int]:
    """Blocks of one class, a batch, and the peak of eager training."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*(body(3) for _ in range(4))), torch.randn(512, WIDTH)
    (eager,) = steps(model, model, _mean_square, x, 1)
    return model, x, eager


@pytest.mark.parametrize("way", ["module.compile", "torch.compile", "other options"])
def test_blocks_that_each_have_the_budget_of_the_model_are_told(way: str) -> None:
    model, x, eager = _blocks()
    budget = int(0.6 * eager)
    for index, block in enumerate(model):
        # Other options have other sessions; with equal ones, blocks of one class are calls of one region.
        options: dict[str, Any] = {"budget": budget, "effort": 0.01 if way != "other options" else 0.01 + index / 1000}
        if way == "torch.compile":
            model[index] = torch.compile(block, backend="remat", options=options)
        else:
            block.compile(backend="remat", options=options)
    peaks, messages = told(lambda: steps(model, model, _mean_square, x))
    assert max(peaks) > budget
    said = [message for message in messages if "blocks=" in message]
    assert said and "a budget of its own" in said[0], messages


def test_blocks_that_fit_together_are_left_alone() -> None:
    model, x, eager = _blocks()
    for block in model:
        block.compile(backend="remat", options={"budget": 2 * eager, "effort": 0.01})
    assert told(lambda: steps(model, model, _mean_square, x))[1] == []


def test_blocks_that_remat_compiles_one_by_one_are_told_of_blocks() -> None:
    model, x, eager = _blocks()
    for block in model:
        remat.compile(block, budget=int(0.6 * eager), effort=0.01)
    peaks, messages = told(lambda: steps(model, model, _mean_square, x))
    assert max(peaks[1:]) > 0.6 * eager
    assert any("blocks=" in message for message in messages)
    assert not any("counted from now on" in message for message in messages), "other blocks are not"


@pytest.mark.parametrize("way", ["torch.compile", "wrapper"])
def test_shapes_beyond_the_recompile_limit_are_told(way: str) -> None:
    module, budget = Loss(), "1GiB"
    if way == "wrapper":
        compiled = remat.compile(module, budget=budget, dynamic=False, in_place=False, effort=0.01)
    else:
        compiled = torch.compile(module, backend="remat", dynamic=False, options={"budget": budget, "effort": 0.01})
    with torch._dynamo.config.patch(recompile_limit=2, cache_size_limit=2):
        _, messages = told(lambda: [compiled(torch.randn(n, WIDTH)).backward() for n in (8, 16, 24, 32)])
    assert len(messages) == 1
    assert "run uncompiled" in messages[0] and "dynamic=True" in messages[0]


def test_strict_raises_at_the_recompile_limit() -> None:
    options = {"budget": "1GiB", "effort": 0.01, "strict": True}
    compiled = torch.compile(Loss(), backend="remat", dynamic=False, options=options)
    with torch._dynamo.config.patch(recompile_limit=2, cache_size_limit=2):
        for n in (8, 16):
            compiled(torch.randn(n, WIDTH)).backward()
        with pytest.raises(remat.BudgetExceeded, match="run uncompiled"):
            compiled(torch.randn(24, WIDTH))


def test_a_refusal_names_the_option_for_hooks_that_free_gradients() -> None:
    module, x = Loss(), torch.randn(8, WIDTH)

    def free(parameter: torch.Tensor) -> None:
        parameter.grad = None

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(free)
    with pytest.raises(remat.BudgetTooSmall, match="releases_gradients=True") as caught:
        torch.compile(module, backend="remat", options={"budget": 100, "effort": 0.01})(x)
    remat.compile(module, budget=caught.value.floor - 4 * WIDTH * WIDTH, releases_gradients=True, effort=0.01)
    module(x).backward()
