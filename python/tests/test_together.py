"""One budget for a model in parts: graph breaks, work between parts, blocks, several calls before a backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
from remat.measure import measure_peak
from test_guard import Loss, body, steps, told
from torch import nn

WIDTH = 64


class Parts(nn.Module):
    """Three parts, with Python in between that cannot be traced."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor] = lambda h: h) -> None:
        super().__init__()
        self.parts = nn.ModuleList(body(n) for n in (2, 4, 3))
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.parts[0](x)
        torch._dynamo.graph_break()
        h = self.between(self.parts[1](h))
        torch._dynamo.graph_break()
        return self.parts[2](h).square().mean()


def eager_peak(module: nn.Module, x: torch.Tensor) -> int:
    (peak,) = steps(module, module, lambda y: y, x, 1)
    module.zero_grad(set_to_none=True)
    return peak


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in module.parameters()]


def compiled_steps(module: nn.Module, x: Any, budget: object, n: int = 3) -> tuple[list[int], list[str]]:
    torch._dynamo.reset()
    remat.compile(module, budget=budget, effort=0.01)
    return told(lambda: steps(module, module, lambda y: y, x, n))


def test_one_budget_holds_for_all_parts() -> None:
    torch.manual_seed(0)
    module, x = Parts(), torch.randn(1024, WIDTH)
    eager = eager_peak(module, x)
    module(x).backward()
    expected = gradients(module)
    for budget in (eager, int(0.6 * eager)):
        peaks, messages = compiled_steps(module, x, budget)
        assert max(peaks) <= budget
        assert len(messages) == 1 and "planned together" in messages[0]
        assert all(torch.equal(a, b) for a, b in zip(expected, gradients(module), strict=True))
    # What is there is used: the budget of a part is not what others leave by chance.
    assert peaks[-1] >= 0.75 * budget


def test_a_percentage_is_one_of_the_whole_model() -> None:
    torch.manual_seed(0)
    module, x = Parts(), torch.randn(1024, WIDTH)
    eager = eager_peak(module, x)
    peaks, _ = compiled_steps(module, x, "60%")
    assert 0.4 * eager < peaks[-1] <= 0.6 * eager


def test_the_floor_that_is_stated_works() -> None:
    torch.manual_seed(0)
    module, x = Parts(), torch.randn(1024, WIDTH)
    eager = eager_peak(module, x)
    with pytest.raises(remat.BudgetTooSmall, match="3 parts of the model together") as caught:
        compiled_steps(module, x, 1000, 1)
    assert caught.value.op
    assert caught.value.floor < 0.5 * eager
    peaks, _ = compiled_steps(module, x, caught.value.floor)
    assert max(peaks[1:]) <= caught.value.floor


@torch._dynamo.disable
def scratch(h: torch.Tensor) -> torch.Tensor:
    """Work that no region sees: takes eight times the memory of its argument for a moment and keeps twice."""
    return h + h.repeat(8, 1).sin().sum() * h.exp().mean()


def test_work_between_parts_is_measured_and_counted() -> None:
    torch.manual_seed(0)
    module, x = Parts(scratch), torch.randn(1024, WIDTH)
    eager = eager_peak(module, x)
    budget = int(0.85 * eager)
    peaks, _ = compiled_steps(module, x, budget)
    assert max(peaks[1:]) <= budget


def test_gradients_of_all_parts_are_counted_when_they_accumulate() -> None:
    torch.manual_seed(0)
    module, x = Parts(), torch.randn(96, WIDTH)

    def accumulate() -> list[int]:
        peaks = []
        for _ in range(3):
            with measure_peak("cpu") as peak:
                module(x).backward()
            peaks.append(peak.bytes)
        module.zero_grad(set_to_none=True)
        return peaks

    budget = int(0.85 * max(accumulate()))
    remat.compile(module, budget=budget, accumulates=True, effort=0.01)
    peaks, messages = told(accumulate)
    assert max(peaks) <= budget
    assert len(messages) == 1 and "planned together" in messages[0]


def test_packed_sequences_lie_between_parts() -> None:
    class Packed(nn.Module):
        """What people write for sentences of several lengths; Dynamo does not trace the packing."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32)
            self.lstm = nn.LSTM(32, 32, batch_first=True)
            self.head = body(3)
            self.out = nn.Linear(WIDTH, 50)
            self.join = nn.Linear(32, WIDTH)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            lengths = torch.tensor([ids.shape[1] - n % 4 for n in range(len(ids))])
            packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
            hidden, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
            return self.out(self.head(self.join(hidden))).square().mean()

    torch.manual_seed(0)
    module, ids = Packed(), torch.randint(0, 50, (32, 12))
    eager = eager_peak(module, ids)
    budget = int(0.85 * eager)
    peaks, messages = compiled_steps(module, ids, budget)
    assert max(peaks[1:]) <= budget
    assert peaks[0] <= budget or any("the first step took" in message for message in messages)


def test_blocks_share_a_budget() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x)

    torch.manual_seed(0)
    module, x = nn.Sequential(*(Block() for _ in range(4)), nn.Flatten(0)), torch.randn(512, WIDTH)
    loss = lambda y: y.square().mean()  # noqa: E731
    (eager,) = steps(module, module, loss, x, 1)
    expected = gradients(module)
    budget = int(0.6 * eager)
    remat.compile(module, budget=budget, blocks=Block, effort=0.01)
    peaks, messages = told(lambda: steps(module, module, loss, x))
    assert max(peaks[1:]) <= budget
    assert messages == []
    assert all(torch.equal(a, b) for a, b in zip(expected, gradients(module), strict=True))
    with pytest.raises(ValueError, match="no blocks"):
        remat.compile(module, budget=budget, blocks=nn.Conv2d)


def test_several_calls_before_a_backward_share_the_budget() -> None:
    torch.manual_seed(0)
    module, x = Loss(), torch.randn(512, WIDTH)
    both = lambda m, x: m(x) + m(x.flip(0))  # noqa: E731
    with measure_peak("cpu") as eager:
        both(module, x).backward()
    module.zero_grad(set_to_none=True)
    budget = int(0.7 * eager.bytes)
    remat.compile(module, budget=budget, effort=0.01)
    peaks, _ = told(lambda: steps(lambda x: both(module, x), module, lambda y: y, x))
    assert max(peaks[1:]) <= budget


def test_a_recurrent_layer_on_an_input_without_gradient() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0].square().mean()

    torch.manual_seed(0)
    module, x = Recurrent(), torch.randn(32, 6, 8)
    module(x).backward()
    expected = gradients(module)
    floor = remat.plan(module, x, effort=0.01).floor
    remat.compile(module, budget=floor, effort=0.01)
    peaks, messages = told(lambda: steps(module, module, lambda y: y, x, 2))
    assert messages == []
    assert max(peaks) <= floor
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(expected, gradients(module), strict=True))
