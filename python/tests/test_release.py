"""An optimizer in backward: gradients are consumed as soon as they are made, with the numbers of an ordinary step."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import remat
import torch
from harness import trace
from remat import pipeline, release, torch_compat
from remat.measure import measure_peak
from remat.options import Options
from torch import nn
from zoo import make


def optimize_in_backward(module: nn.Module) -> list[int]:
    """One optimizer for each parameter, as a hook that consumes the gradient. Returns the list of its calls."""
    calls: list[int] = []
    for index, parameter in enumerate(module.parameters()):
        optimizer = torch.optim.SGD([parameter], lr=0.05, foreach=False)

        def step(p: torch.Tensor, index: int = index, optimizer: torch.optim.Optimizer = optimizer) -> None:
            assert p.grad is not None
            calls.append(index)
            optimizer.step()
            p.grad = None

        parameter.register_post_accumulate_grad_hook(step)
    return calls


def floor(name: str, **options: Any) -> int:
    """The floor as the error states it."""
    module, batch = make(name)
    with pytest.raises(remat.BudgetTooSmall) as caught:
        remat.compile(module, budget=1, effort=0.01, **options)(*batch)
    return caught.value.floor


@pytest.mark.parametrize("is_declared", [True, None])
@pytest.mark.parametrize("name", ["mlp", "gpt2"])
def test_the_floor_falls_and_the_numbers_stay(name: str, is_declared: bool | None) -> None:
    lowest = floor(name, releases_gradients=True)
    assert lowest < floor(name)
    results = []
    for options in ({}, {"budget": lowest, "releases_gradients": is_declared}):
        torch._dynamo.reset()
        module, batch = make(name)
        calls = optimize_in_backward(module)
        compiled = remat.compile(module, effort=0.01, **options)
        torch.manual_seed(3)
        for n_steps in range(1, 4):
            with measure_peak("cpu") as peak:
                compiled(*batch).backward()
            assert len(calls) == n_steps * len(list(module.parameters()))
        if "releases_gradients" in options:
            assert peak.bytes == remat.regions()[-1].predicted_peak <= lowest
        results.append(list(module.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_what_a_hook_uses_is_measured_and_said() -> None:
    module, batch = make("mlp")

    def hook(p: torch.Tensor) -> None:
        # The temporaries of a large optimizer.
        torch.cat([p.grad.flatten()] * 8)
        p.grad = None

    for p in module.parameters():
        p.register_post_accumulate_grad_hook(hook)
    budget = floor("mlp", releases_gradients=True)
    compiled = remat.compile(module, budget=budget, effort=0.01, releases_gradients=True)
    with pytest.warns(remat.BudgetWarning, match="a step takes"), measure_peak("cpu") as peak:
        compiled(*batch).backward()
    assert peak.bytes > budget


def released(module: nn.Module) -> Any:
    return remat.compile(module, budget="100%", effort=0.01, releases_gradients=True)


def small() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)

    class Mean(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).square().mean()

    return Mean(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)


def test_hooks_that_only_look_see_each_gradient_once() -> None:
    gradients = []
    for compile_it in (lambda module: module, released):
        module, x = small()
        seen: list[torch.Tensor] = []
        handles = [
            p.register_post_accumulate_grad_hook(lambda p, seen=seen: seen.append(p.grad.clone())) for p in module.parameters()
        ]
        compiled = compile_it(module)
        for _ in range(2):
            compiled(x).backward()
        assert len(seen) == 2 * len(handles)
        for handle in handles:
            handle.remove()
        compiled(x).backward()
        assert len(seen) == 2 * len(handles), "a hook that was removed is not called"
        gradients.append([p.grad for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True)), "three backwards are accumulated"


def test_gradients_without_backward_leave_the_hooks_alone() -> None:
    module, x = small()
    expected = torch.autograd.grad(module(x), list(module.parameters()))
    calls = optimize_in_backward(module)
    found = torch.autograd.grad(released(module)(x), list(module.parameters()))
    assert not calls and all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_two_calls_in_one_backward_are_one_step() -> None:
    results = []
    for compile_it in (lambda module: module, released):
        module, x = small()
        calls = optimize_in_backward(module)
        compiled = compile_it(module)
        (compiled(x) + compiled(2 * x)).backward()
        assert len(calls) == len(list(module.parameters()))
        results.append(list(module.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("options", [{"releases_gradients": True}, {}])
def test_a_gradient_to_which_something_outside_adds_is_whole(options: dict[str, Any]) -> None:
    results = []
    for is_compiled in (False, True):
        module, x = small()
        calls = optimize_in_backward(module)
        run = remat.compile(module, budget="200%", effort=0.01, **options) if is_compiled else module
        for n_steps in range(1, 4):
            # In the second step some parameters, in the third none.
            penalised = list(module.parameters())[: 4 - 2 * (n_steps - 1)]
            (run(x) + sum(p.square().sum() for p in penalised)).backward()
            assert len(calls) == n_steps * len(list(module.parameters()))
        results.append(list(module.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_gradient_that_the_caller_gives_to_a_parameter_is_added_first() -> None:
    results = []
    for is_compiled in (False, True):
        module, x = small()
        calls = optimize_in_backward(module)
        run = released(module) if is_compiled else module
        first = next(module.parameters())
        torch.autograd.backward([run(x), first], [torch.tensor(1.0), torch.ones_like(first)])
        assert len(calls) == len(list(module.parameters()))
        results.append(list(module.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("is_declared", [True, False])
def test_where_what_adds_to_a_gradient_is_unknown_a_late_one_is_an_error(is_declared: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch_compat, "gradient_sources", lambda: None)
    module, x = small()
    calls = optimize_in_backward(module)
    if not is_declared:
        # Nothing is given away on a guess.
        remat.compile(module, budget="200%", effort=0.01)
        (module(x) + sum(p.sum() for p in module.parameters())).backward()
        assert len(calls) == len(list(module.parameters()))
        return
    compiled = released(module)
    penalty = sum(p.sum() for p in module.parameters())
    with pytest.raises(remat.RematError, match="from outside of the compiled module"):
        (compiled(x) + penalty).backward()
    # What failed there does not reach into the next backward.
    module.zero_grad(set_to_none=True)
    compiled(x).backward()


@pytest.mark.parametrize("name", ["mlp", "gpt2"])
@pytest.mark.parametrize("is_consumed", [True, False])
def test_hooks_are_found_and_what_they_leave_is_counted(name: str, is_consumed: bool) -> None:
    def hook(module: nn.Module) -> None:
        if is_consumed:
            optimize_in_backward(module)
            return
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: None)

    results, eager_peak = [], 0
    for is_compiled in (False, True):
        torch._dynamo.reset()
        module, batch = make(name)
        hook(module)
        run = remat.compile(module, budget=eager_peak, effort=0.01) if is_compiled else module
        torch.manual_seed(3)
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("error", remat.BudgetWarning)
                with measure_peak("cpu") as peak:
                    run(*batch).backward()
            if not is_consumed:
                results.append([p.grad for p in module.parameters()])
                module.zero_grad(set_to_none=True)
            if is_compiled:
                assert peak.bytes <= eager_peak
            eager_peak = eager_peak if is_compiled else max(eager_peak, peak.bytes)
        results.append([p.detach() for p in module.parameters()])
    half = len(results) // 2
    for eager, found in zip(results[:half], results[half:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(eager, found, strict=True))


def test_hooks_that_no_longer_consume_are_said() -> None:
    module, x = small()
    is_frozen = False

    def hook(p: torch.Tensor) -> None:
        p.grad = p.grad if is_frozen else None

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    compiled = remat.compile(module, budget="100%", effort=0.01)
    for _ in range(2):
        compiled(x).backward()
    is_frozen = True
    with pytest.warns(remat.BudgetWarning, match="are alive after the hooks of their parameters"):
        compiled(x).backward()
    module.zero_grad(set_to_none=True)
    with warnings.catch_warnings(), measure_peak("cpu") as peak:
        warnings.simplefilter("error", remat.BudgetWarning)
        compiled(x).backward()
    assert peak.bytes <= remat.regions()[-1].budget


def test_a_hook_for_one_parameter_is_called_when_backward_ends() -> None:
    module, x = small()
    first, *others = module.parameters()
    there: list[bool] = []
    first.register_post_accumulate_grad_hook(lambda _: there.append(True))
    remat.compile(module, budget="100%", effort=0.01)(x).backward()
    assert there == [True] and all(p.grad is not None for p in others)


def test_what_reads_a_parameter_after_its_gradient_was_given_away_is_found() -> None:
    module, x = small()
    region = trace(module, (x,), Options()).step.region
    release.give_away(region, release.Receiver(is_declared=True))
    region = pipeline.read(region.module, len(region.forward_outputs), Options()).region
    nodes = [op.node for op in region.ops]
    given = [place for node in nodes if (place := release.place_of(node)) is not None]
    assert len(given) == len(list(module.parameters()))
    assert release.late(region, nodes) == frozenset()
    # A plan that computes forward once more at the end reads every parameter again.
    assert release.late(region, [*nodes, *nodes]) == frozenset(given)


@pytest.mark.parametrize("options", [{}, {"budget": "100%", "compiler": "inductor"}])
def test_what_cannot_release_gradients_says_so(options: dict[str, Any]) -> None:
    module, x = small()
    with pytest.raises(remat.RematError, match="releases_gradients=True needs a budget"):
        remat.compile(module, releases_gradients=True, **options)(x)
