"""Steps that change while a model trains: what they hold is noticed, said and counted, not only in the first step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import remat
import torch
from remat.measure import measure_peak
from remat.occasions import FIRST_AGAIN, MAX_IN_VAIN, MAX_MEASUREMENTS, Occasions
from test_guard import WIDTH, told, with_head
from torch import nn
from torch.nn import functional

TrainingStep = Callable[[nn.Module, int], None]
X = torch.randn(1024, WIDTH)
LABELS = torch.randint(4, (1024,))


def plain(model: nn.Module, _: int) -> None:
    functional.cross_entropy(model(X), LABELS).backward()


def twice(model: nn.Module, _: int) -> None:
    """Two calls before one backward, as in contrastive learning."""
    a, b = model(X), model(X.flip(0))
    (functional.cross_entropy(a, LABELS) + functional.mse_loss(a, b)).backward()


def late(model: nn.Module, n: int) -> None:
    (twice if n >= 2 else plain)(model, n)


def in_turns(model: nn.Module, n: int) -> None:
    (twice if n % 2 else plain)(model, n)


def validating(model: nn.Module, n: int) -> None:
    """A call without `torch.no_grad()` whose result is dropped when the step is over."""
    validation = functional.cross_entropy(model(X), LABELS)
    plain(model, n)
    del validation


def growing(model: nn.Module, n: int) -> None:
    """A loss that gets another term."""
    out = model(X)
    loss = functional.cross_entropy(out, LABELS)
    if n >= 2:
        loss = loss + out.repeat(1, 160).square().mean()
    loss.backward()


def run(step: TrainingStep, n_steps: int, share: float) -> tuple[int, list[int], list[list[str]]]:
    """The budget, a share of the peak in eager mode, and peaks and warnings of each step; the bits must be those of eager mode."""
    results, peaks, warned, budget = [], [], [], 0
    for is_compiled in (False, True):
        torch.manual_seed(0)
        module = with_head()
        if is_compiled:
            budget = int(share * max(peaks))
            remat.compile(module, budget=budget, effort=0.01)
        peaks, warned = [], []
        for n in range(n_steps):
            module.zero_grad(set_to_none=True)
            with measure_peak("cpu") as peak:
                _, messages = told(lambda: step(module, n))  # noqa: B023
            peaks.append(peak.bytes)
            warned.append(messages)
        results.append([p.grad for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    return budget, peaks, warned


@pytest.mark.parametrize(
    ("step", "first_over", "holds_from"),
    # The step with more calls is told when it comes, measured when it comes again, and holds then.
    [(late, 2, 4), (in_turns, 1, 4)],
)
def test_calls_that_come_later_are_told_and_counted(step: TrainingStep, first_over: int, holds_from: int) -> None:
    budget, peaks, warned = run(step, 8, share=0.7)
    assert max(peaks[:first_over]) <= budget < peaks[first_over]
    assert ["held for the backward of earlier calls" in message for message in warned[first_over]] == [True]
    assert max(peaks[holds_from:]) <= budget and not any(warned[holds_from:])


def test_a_call_without_backward_is_told_and_counted() -> None:
    budget, peaks, warned = run(validating, 4, share=0.7)
    assert peaks[0] > budget >= max(peaks[1:])
    assert [len(messages) for messages in warned] == [0, 1, 0, 0] and "the first step took" in warned[1][0]


def test_a_result_that_is_kept_without_backward_is_told() -> None:
    torch.manual_seed(0)
    module = with_head()
    with measure_peak("cpu") as peak:
        plain(module, 0)
    remat.compile(module, budget=peak.bytes, effort=0.01)
    _, messages = told(lambda: plain(module, 0))
    assert messages == []
    kept = module(X)
    _, messages = told(lambda: plain(module, 1))
    assert len(messages) == 1 and "use torch.no_grad()" in messages[0]
    del kept


def test_a_loss_that_grows_is_found_again() -> None:
    budget, peaks, warned = run(growing, FIRST_AGAIN + 4, share=0.85)
    assert max(peaks[:2]) <= budget < min(peaks[2 : FIRST_AGAIN + 1])
    assert ["a step took" in message for message in warned[FIRST_AGAIN]] == [True]
    assert max(peaks[FIRST_AGAIN + 1 :]) <= budget and sum(map(len, warned)) == 1


def test_two_kinds_of_steps_in_turns_are_both_measured() -> None:
    """As in adversarial training: the input wants a gradient in every other step."""
    torch.manual_seed(0)
    module = remat.compile(with_head(), budget="90%", effort=0.01)
    session = module._compiled_call_impl.session
    for n in range(4):
        x = X.clone().requires_grad_(n % 2 == 0)
        functional.cross_entropy(module(x), LABELS).backward()
        assert torch._C._len_torch_dispatch_stack() in (0, 1)
        assert session.occasions.n_measured == min(n + 1, 2)
    with torch.no_grad():
        module(X)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_what_arguments_do_not_foretell_is_measured_when_it_comes_again() -> None:
    torch.manual_seed(0)
    module = remat.compile(with_head(), budget="90%", effort=0.01)
    session = module._compiled_call_impl.session
    n_measured = []
    for n in range(5):
        for parameter in list(module.parameters())[:4]:
            parameter.requires_grad_(n < 2)
        plain(module, n)
        n_measured.append(session.occasions.n_measured)
    assert n_measured == [1, 1, 1, 2, 2]


def test_measuring_is_given_up() -> None:
    occasions = Occasions()
    first, second = (0, ()), (1, ())
    assert occasions.is_foreseen("shapes") and occasions.begin(first)
    occasions.begin_measuring(first)
    occasions.learn(first, 1)
    assert not occasions.is_foreseen("shapes") and not occasions.begin(first)
    # A kind of step that never comes again.
    assert occasions.begin(second)
    n_calls = sum(occasions.is_foreseen("shapes") for _ in range(2 * MAX_IN_VAIN))
    assert n_calls == MAX_IN_VAIN and not occasions.begin(second)
    # One that has no backward.
    third = (2, ())
    for _ in range(MAX_MEASUREMENTS):
        assert occasions.begin(third)
        occasions.begin_measuring(third)
    assert not occasions.begin(third) and not occasions.is_foreseen("shapes")
