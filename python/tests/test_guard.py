"""Nothing goes over the budget in silence: what is outside of the plan is counted, or said."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
from remat import sharing
from remat.measure import measure_peak
from torch import nn
from torch.nn import functional

WIDTH = 64


def body(n_layers: int = 5) -> nn.Sequential:
    return nn.Sequential(*(layer for _ in range(n_layers) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())))


def steps(model: Callable[..., Any], module: nn.Module, loss: Callable[[Any], torch.Tensor], x: Any, n: int = 3) -> list[int]:
    """Peaks of some steps."""
    peaks = []
    for _ in range(n):
        module.zero_grad(set_to_none=True)
        with measure_peak("cpu") as peak:
            loss(model(x)).backward()
        peaks.append(peak.bytes)
    return peaks


def told(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run()
    return result, [str(w.message) for w in caught if issubclass(w.category, remat.BudgetWarning)]


def dice(y: torch.Tensor) -> torch.Tensor:
    p = y.sigmoid()
    return 1 - (2 * p * y.abs()).sum() / (p.square().sum() + y.square().sum())


TEACHER = torch.randn(1024, WIDTH)
LOSSES = {
    "mse": lambda y: functional.mse_loss(y, TEACHER),
    "dice": dice,
    "distillation": lambda y: functional.kl_div(y.log_softmax(-1), TEACHER.softmax(-1), reduction="batchmean") + dice(y),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_outside_has_room_in_the_first_step_and_is_counted_then(name: str) -> None:
    torch.manual_seed(0)
    module, x = body(), torch.randn(1024, WIDTH)
    keep_all = remat.plan(module, x, effort=0.01).keep_all_peak
    budget = int(0.87 * keep_all)
    compiled = remat.compile(module, budget=budget, effort=0.01)
    peaks, messages = told(lambda: steps(compiled, module, LOSSES[name], x))
    assert max(peaks) <= budget and messages == []
    # Later steps do without room that is not needed.
    session = module._compiled_call_impl.session
    assert session.step.choice[0].planned.cost <= session.runners[0].variants[1].planned.cost


def large(y: torch.Tensor) -> torch.Tensor:
    """A loss that needs more than any that is expected."""
    return y.repeat(1, 40).square().mean()


def with_head() -> nn.Sequential:
    """A model with small outputs, so that room for a usual loss is little."""
    return nn.Sequential(*body(8), nn.Linear(WIDTH, 4))


def test_a_loss_that_is_larger_than_expected_is_told_and_counted() -> None:
    torch.manual_seed(0)
    module, x = with_head(), torch.randn(1024, WIDTH)
    budget = int(0.95 * remat.plan(module, x, effort=0.01).keep_all_peak)
    compiled = remat.compile(module, budget=budget, effort=0.01)
    peaks, messages = told(lambda: steps(compiled, module, large, x))
    assert peaks[0] > budget >= max(peaks[1:])
    assert len(messages) == 1 and "the first step took" in messages[0] and "loss=" in messages[0]


def test_a_loss_that_needs_less_than_is_assumed_is_not_refused_at_the_eager_peak() -> None:
    torch.manual_seed(0)
    # So little is saved that the loss decides.
    module, x = nn.Linear(4, 4096), torch.randn(64, 4)
    with measure_peak("cpu") as eager:
        module(x).abs().sum().backward()
    expected = [p.grad.clone() for p in module.parameters()]
    module.zero_grad(set_to_none=True)
    compiled = remat.compile(module, budget=eager.bytes, effort=0.01)
    peaks, messages = told(lambda: steps(compiled, module, lambda out: out.abs().sum(), x))
    assert max(peaks) <= eager.bytes and messages == []
    assert all(torch.equal(a, p.grad) for a, p in zip(expected, module.parameters(), strict=True))


def test_outputs_that_are_larger_than_everything_else_are_planned_or_refused() -> None:
    """The gradient of a sum is one number expanded, which torch.compile makes a whole tensor."""
    module, x = nn.Linear(4, 4096), torch.randn(64, 4)
    with measure_peak("cpu") as eager:
        module(x).sum().backward()
    with pytest.raises(remat.BudgetTooSmall) as caught:
        remat.compile(module, budget=eager.bytes, effort=0.01)(x)
    peaks, messages = told(lambda: steps(remat.compile(module, budget=caught.value.floor), module, torch.sum, x))
    assert max(peaks) <= caught.value.floor and messages == []


def test_strict_raises_what_is_warned_of_otherwise() -> None:
    module, x = with_head(), torch.randn(1024, WIDTH)
    keep_all = remat.plan(module, x, effort=0.01).keep_all_peak
    compiled = remat.compile(module, budget=int(0.95 * keep_all), strict=True, effort=0.01)
    with pytest.raises(remat.BudgetExceeded, match="the first step took"):
        steps(compiled, module, large, x, 1)


def test_a_loss_that_is_given_is_in_the_plan() -> None:
    torch.manual_seed(0)
    model, x, y = body(), torch.randn(1024, WIDTH), torch.randn(1024, WIDTH)
    with measure_peak("cpu") as eager:
        functional.mse_loss(model(x), y).backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    budget = int(0.8 * eager.bytes)
    training = remat.compile(model, budget=budget, loss=functional.mse_loss, effort=0.01)
    with measure_peak("cpu") as peak:
        _, messages = told(lambda: training(x, y).backward())
    assert messages == []
    assert peak.bytes == remat.regions()[-1].predicted_peak <= budget
    assert all(torch.equal(a, p.grad) for a, p in zip(expected, model.parameters(), strict=True))


class Loss(nn.Module):
    def __init__(self, n_layers: int = 5) -> None:
        super().__init__()
        self.body = body(n_layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).square().mean()


def accumulate(module: nn.Module, compiled: Any, x: torch.Tensor, n: int) -> list[int]:
    peaks = []
    for _ in range(n):
        with measure_peak("cpu") as peak:
            compiled(x).backward()
        peaks.append(peak.bytes)
    return peaks


def test_gradients_that_are_there_are_counted() -> None:
    torch.manual_seed(0)
    module, x = Loss(), torch.randn(256, WIDTH)
    budget = int(0.95 * remat.plan(module, x, effort=0.01).keep_all_peak)
    remat.compile(module, budget=budget, effort=0.01)
    peaks, messages = told(lambda: accumulate(module, module, x, 4))
    assert messages == []
    assert max(peaks) <= budget
    # The plan for the first step would not do for the others.
    assert remat.regions()[-1].predicted_peak == peaks[-1] > peaks[0] - 1
    free, _ = Loss(), torch.manual_seed(0)
    free.load_state_dict(module.state_dict())
    accumulate(free, free, x, 4)
    assert all(torch.allclose(a.grad, b.grad) for a, b in zip(module.parameters(), free.parameters(), strict=True))


def test_gradients_that_do_not_fit_are_told_with_the_number() -> None:
    module, x = Loss(), torch.randn(256, WIDTH)
    budget = remat.plan(module, x, effort=0.01).floor
    remat.compile(module, budget=budget, effort=0.01)
    _, messages = told(lambda: accumulate(module, module, x, 3))
    assert len(messages) == 1
    assert "gradients from earlier backwards" in messages[0] and "zero_grad(set_to_none=True)" in messages[0]
    module.zero_grad(set_to_none=True)
    strict = remat.compile(module, budget=budget, strict=True, effort=0.01)
    strict(x).backward()
    with pytest.raises(remat.BudgetTooSmall):
        strict(x)


def test_a_step_as_planned_is_as_predicted_and_nothing_is_said() -> None:
    module, x = Loss(), torch.randn(256, WIDTH)
    budget = remat.plan(module, x, effort=0.01).floor
    remat.compile(module, budget=budget, effort=0.01)
    peaks, messages = told(lambda: steps(module, module, lambda y: y, x))
    assert messages == []
    assert set(peaks) == {remat.regions()[-1].predicted_peak}


def test_shapes_beyond_the_recompile_limit_are_told() -> None:
    module = Loss()
    remat.compile(module, budget="1GiB", dynamic=False, effort=0.01)
    with torch._dynamo.config.patch(recompile_limit=2, cache_size_limit=2):
        _, messages = told(lambda: [module(torch.randn(n, WIDTH)).backward() for n in (8, 16, 24, 32, 40)])
    assert len(messages) == 1
    assert "ran uncompiled" in messages[0] and "dynamic=True" in messages[0] and "recompile_limit" in messages[0]


def test_two_instances_of_a_class_are_both_captured() -> None:
    x = torch.randn(64, WIDTH)

    def run() -> None:
        for _ in range(2):
            module = Loss()
            remat.compile(module, budget="1GiB", effort=0.01)
            module(x).backward()

    assert told(run)[1] == []


def test_measuring_leaves_the_modes_of_the_caller_in_order() -> None:
    module, x = Loss(), torch.randn(64, WIDTH)
    remat.compile(module, budget="1GiB", effort=0.01)
    with measure_peak("cpu") as outer:
        loss = module(x)
    with measure_peak("cpu") as inner:
        loss.backward()
    assert 0 < outer.bytes and 0 < inner.bytes
    module(x)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_forward_without_backward_is_no_step() -> None:
    module, x = Loss(), torch.randn(64, WIDTH)
    remat.compile(module, budget="1GiB", effort=0.01)
    module(x)
    module(x)
    module(x).backward()
    with torch.no_grad():
        module(x)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_step_that_never_ends_keeps_no_other_model_from_measuring() -> None:
    torch.manual_seed(0)
    module, other, x = with_head(), Loss(), torch.randn(1024, WIDTH)
    keep_all = remat.plan(module, x, effort=0.01).keep_all_peak
    budget = int(0.95 * keep_all)
    remat.compile(other, budget="1GiB", effort=0.01)
    kept = other(x)
    compiled = remat.compile(module, budget=budget, effort=0.01)
    peaks, messages = told(lambda: steps(compiled, module, large, x, 10))
    assert peaks[0] > budget >= max(peaks[1:])
    assert len(messages) == 1 and "the first step took" in messages[0]
    # The first model is no longer watched, and its backward may come at last.
    assert torch._C._len_torch_dispatch_stack() == 0
    kept.backward()
    assert all(p.grad is not None for p in other.parameters())


def test_steps_that_overlap_are_each_measured() -> None:
    torch.manual_seed(0)
    first, second, x = body(), body(), torch.randn(1024, WIDTH)
    budget = int(0.87 * remat.plan(first, x, effort=0.01).keep_all_peak)
    for module in (first, second):
        remat.compile(module, budget=budget, effort=0.01)

    def run() -> None:
        a = LOSSES["distillation"](first(x))
        LOSSES["distillation"](second(x)).backward()
        a.backward()

    _, messages = told(run)
    # The second model runs within the step of the first, which therefore counts it.
    assert ["other models" in message for message in messages] == [True]
    assert [module._compiled_call_impl.session.occasions.n_measured for module in (first, second)] == [1, 1]
    assert max(steps(second, second, LOSSES["distillation"], x, 2)) <= budget
    first(x)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_model_that_is_gone_leaves_nothing_behind() -> None:
    gc.collect()
    module, x = Loss(), torch.randn(64, WIDTH)
    before = len(sharing._sessions)
    remat.compile(module, budget="1GiB", effort=0.01)
    loss = module(x)
    assert len(sharing._sessions) == before + 1
    del module, loss
    torch._dynamo.reset()
    gc.collect()
    assert len(sharing._sessions) == before and sharing._measuring == []
