"""What people do with a compiled model: copy it, save it, freeze it, evaluate in between, change the batch."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import remat
import torch
from remat.measure import measure_peak
from torch import nn
from zoo import WithLoss, make


def _train(compiled: Any, module: nn.Module, batch: Any, n_steps: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(3)
    results = []
    for _ in range(n_steps):
        module.zero_grad(set_to_none=True)
        loss = compiled(*batch)
        loss.backward()
        results += [loss.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]
    return results


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_compiled_model_can_be_copied_saved_and_loaded() -> None:
    module, batch = make("mlp")
    compiled = remat.compile(module, budget="70%", effort=0.01)
    expected = _train(compiled, module, batch)

    twin = copy.deepcopy(compiled)
    assert _same(_train(twin, twin, batch), expected)

    other, _ = make("mlp", seed=5)
    again = remat.compile(other, budget="70%", effort=0.01)
    again.load_state_dict(compiled.state_dict())
    assert _same(_train(again, other, batch), expected)

    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh, _ = make("mlp", seed=6)
    fresh.load_state_dict(torch.load(file))
    assert _same(_train(remat.compile(fresh, budget="70%", effort=0.01), fresh, batch), expected)


def test_training_and_evaluation_in_turns() -> None:
    results = []
    for budget in (None, "80%"):
        torch.manual_seed(0)
        layers = [layer for _ in range(3) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())]
        module = WithLoss(nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2)))
        batch = torch.randn(8, 4, 8, 8), torch.randint(0, 256, (8,))
        compiled = remat.compile(module, budget=budget, effort=0.01)
        results.append(_train(compiled, module, batch, 1))
        compiled.eval()
        with torch.no_grad():
            results[-1].append(compiled(*batch))
        with torch.inference_mode():
            results[-1].append(compiled(*batch).clone())
        assert torch.equal(results[-1][-1], results[-1][-2])
        compiled.train()
        results[-1] += _train(compiled, module, batch, 1)
    assert _same(*results)


def test_freezing_layers_in_between_plans_anew() -> None:
    results = []
    for budget in (None, "75%"):
        module, batch = make("mlp")
        compiled = remat.compile(module, budget=budget, effort=0.01)
        results.append(_train(compiled, module, batch, 1))
        module.model[0].requires_grad_(False)
        results[-1] += _train(compiled, module, batch, 1)
        assert module.model[0].weight.grad is None
    assert _same(*results)


def test_batches_of_other_sizes_keep_to_the_budget() -> None:
    module, _ = make("mlp")
    torch.manual_seed(0)
    batches = [(torch.randn(n, 64), torch.randint(0, 10, (n,))) for n in (256, 200, 256, 64, 251)]
    budget = remat.plan(module, batches[0], effort=0.01).floor
    free = remat.compile(module, effort=0.01, in_place=False)
    compiled = remat.compile(module, budget=budget, effort=0.01, in_place=False)
    for batch in batches:
        expected = _train(free, module, batch, 1)
        module.zero_grad(set_to_none=True)
        with measure_peak("cpu") as peak:
            torch.manual_seed(3)
            compiled(*batch).backward()
        assert peak.bytes <= budget
        assert _same(expected, _train(compiled, module, batch, 1))


def test_gradients_by_torch_autograd_grad() -> None:
    module, batch = make("mlp")
    results = []
    for budget in (None, "70%"):
        compiled = remat.compile(module, budget=budget, effort=0.01)
        torch.manual_seed(3)
        results.append(list(torch.autograd.grad(compiled(*batch), list(module.parameters()))))
    assert _same(*results)


def test_hooks_on_the_way_see_the_same_tensors() -> None:
    seen: dict[str, list[torch.Tensor]] = {"None": [], "75%": []}
    for budget in (None, "75%"):
        module, batch = make("mlp")
        for parameter in module.parameters():
            parameter.register_hook(lambda g, key=str(budget): seen[key].append(g.clone()))
        _train(remat.compile(module, budget=budget, effort=0.01), module, batch, 1)
    assert len(seen["None"]) > 0
    assert _same(sorted(seen["None"], key=torch.sum), sorted(seen["75%"], key=torch.sum))


def test_a_sparse_gradient_is_refused_with_its_place() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32, sparse=True)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.embedding(ids).square().mean()

    compiled = remat.compile(Sparse(), budget="50%")
    with pytest.raises(remat.RematError, match="makes a sparse tensor.*sparse=False"):
        compiled(torch.randint(0, 50, (8, 8))).backward()


def test_errors_arrive_as_they_are() -> None:
    module, batch = make("mlp")
    with pytest.raises(remat.BudgetTooSmall) as caught:
        remat.compile(module, budget=1, effort=0.01)(*batch)
    assert caught.value.floor == remat.plan(module, batch, effort=0.01).floor
    assert caught.value.op and caught.value.op in str(caught.value)
