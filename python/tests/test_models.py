"""The promises, on every model: eleven budgets from the floor up, three steps each."""

from __future__ import annotations

import pytest
import remat
import torch
from harness import run_steps, trace, train_step
from remat.measure import measure_peak
from remat.options import Options
from remat.planner import Book, Planned, find, lowest
from zoo import MODELS, make

N_BUDGETS = 11
N_STEPS = 3
# These also train as users do, which takes as long as all budgets together.
TRACED_AGAIN = ("resnet18", "vit", "gpt2")
# Little search: the promises hold for every plan, and the suite has many.
OPTIONS = Options(effort=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_every_budget_gives_the_same_bits_and_the_predicted_peak(name: str) -> None:
    module, batch = make(name)
    traced = trace(module, batch, OPTIONS)
    step, book = traced.step, Book()
    expected, keep_all = run_steps(traced, Planned.read(step.keep_all, 0).steps, N_STEPS)
    assert keep_all == step.keep_all_peak

    floor = lowest(step, OPTIONS, book).peak
    peaks = []
    for index in range(N_BUDGETS):
        budget = floor + (step.keep_all_peak - floor) * index // (N_BUDGETS - 1)
        planned = find(step, budget, OPTIONS, book)
        results, measured = run_steps(traced, planned.steps, N_STEPS)
        assert all(a.same_bits(b) for a, b in zip(results, expected, strict=True)), f"other bits at {budget} bytes"
        assert measured <= budget, f"the budget of {budget} bytes does not hold: {measured}"
        assert abs(measured - planned.peak) <= 0.001 * planned.peak, f"predicted {planned.peak}, measured {measured}"
        peaks.append(measured)
    assert peaks == sorted(peaks), "a lower budget gave a higher peak"

    if name not in TRACED_AGAIN:
        return
    whole = remat.compile(module, budget=floor, effort=OPTIONS.effort)
    torch.manual_seed(7)
    for index in range(N_STEPS):
        module.zero_grad(set_to_none=True)
        with measure_peak("cpu") as peak:
            loss = whole(*batch)
            loss.backward()
        assert torch.equal(loss, expected[index].loss)
        assert peak.bytes <= floor
    assert torch.equal(torch.random.get_rng_state(), expected[-1].random_state)
    gradients = {p.grad.data_ptr(): p.grad for p in module.parameters() if p.grad is not None}.values()
    assert sorted(g.double().sum().item() for g in gradients) == sorted(
        g.double().sum().item() for g in expected[-1].gradients
    )


def test_steps_equal_eager_training_bit_by_bit() -> None:
    for name, budget in (("mlp", "50%"), ("resnet18", "99%"), ("transformer", "50%")):
        module, batch = make(name)
        torch.manual_seed(3)
        eager = train_step(module, module, batch)
        module, batch = make(name)
        compiled = remat.compile(module, budget=budget, effort=OPTIONS.effort)
        torch.manual_seed(3)
        assert train_step(compiled, module, batch).same_bits(eager), name
        assert remat.regions()[-1].predicted_peak < remat.regions()[-1].keep_all_peak
