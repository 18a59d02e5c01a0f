"""The state of an optimizer that rests in a store: the same bits as the plain optimizer, and the budget over the whole step."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from remat.measure import measure_peak
from remat.offload import places
from torch import nn
from zoo import WithLoss

OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
}


def model() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(96, 96), nn.GELU())]
    return WithLoss(nn.Sequential(*layers)), (torch.randn(32, 96), torch.randint(0, 96, (32,)))


def train(module: nn.Module, optimizer: torch.optim.Optimizer, call: Any, batch: Any, n_steps: int, scheduler: Any = None) -> None:
    for _ in range(n_steps):
        call(*batch).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad(set_to_none=True)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_the_update_has_the_same_bits(name: str) -> None:
    results = []
    for is_offloaded in (False, True):
        module, batch = model()
        optimizer = OPTIMIZERS[name](module.parameters())
        if is_offloaded:
            remat.offload_optimizer(optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        train(module, optimizer, module, batch, 4, scheduler)
        results.append([p.detach() for p in module.parameters()])
        state = optimizer.state_dict()["state"]
        results[-1] += [item for of_one in state.values() for item in of_one.values() if torch.is_tensor(item)]
    assert len(results[0]) == len(results[1]) > 0
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("kind", ["host", "file"])
@pytest.mark.parametrize("name", ["adamw", "adamw_foreach"])
def test_the_budget_holds_over_the_whole_step_and_the_state_is_elsewhere(name: str, kind: str, tmp_path: Path) -> None:
    module, batch = model()
    optimizer = OPTIMIZERS[name](module.parameters())
    plain = copy.deepcopy(module)
    plain_optimizer = OPTIMIZERS[name](plain.parameters())
    place = "host" if kind == "host" else str(tmp_path)
    reserved = remat.optimizer_bytes(optimizer)
    options = {"offload": place, "offload_optimizer": True, "offload_speed": "2GB/s", "effort": 0.01}
    whole = remat.plan(module, batch, effort=0.01, reserved=reserved)
    budget = remat.plan(module, batch, budget="100%", **options).floor
    assert budget < 0.85 * whole.floor, "the moments need not fit any more"
    compiled = remat.compile(module, budget=budget, **options)
    for _ in range(3):
        with measure_peak("cpu") as peak:
            compiled(*batch).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        assert peak.bytes <= budget, f"{peak.bytes} of {budget}, at {peak.at}"
        assert sum(t.nbytes for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)) < 0.02 * reserved
    train(plain, plain_optimizer, plain, batch, 3)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), plain.parameters(), strict=True))
    assert any(store.transfers() for store in places._open.values())
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_has_the_whole_state_and_can_be_loaded() -> None:
    module, batch = model()
    optimizer = OPTIMIZERS["adamw"](module.parameters())
    remat.offload_optimizer(optimizer)
    train(module, optimizer, module, batch, 2)
    saved = copy.deepcopy({"model": module.state_dict(), "optimizer": optimizer.state_dict()})
    assert all(s["exp_avg"].shape == p.shape for s, p in zip(saved["optimizer"]["state"].values(), module.parameters(), strict=True))
    train(module, optimizer, module, batch, 2)
    expected = [p.detach().clone() for p in module.parameters()]
    for is_offloaded in (False, True):
        again, _ = model()
        other = OPTIMIZERS["adamw"](again.parameters())
        if is_offloaded:
            remat.offload_optimizer(other)
        again.load_state_dict(saved["model"])
        # torch takes the tensors of a state dict as they are, and updates them.
        other.load_state_dict(copy.deepcopy(saved["optimizer"]))
        train(again, other, again, batch, 2)
        assert all(torch.equal(a, b) for a, b in zip(again.parameters(), expected, strict=True))


def test_restoring_gives_the_plain_optimizer_back() -> None:
    module, batch = model()
    optimizer = OPTIMIZERS["adamw"](module.parameters())
    remat.offload_optimizer(optimizer)
    train(module, optimizer, module, batch, 2)
    whole = optimizer.state_dict()
    optimizer.remat_moments.restore()
    for of_one, there in zip(optimizer.state.values(), whole["state"].values(), strict=True):
        assert all(torch.equal(of_one[key], there[key]) for key in there)
    train(module, optimizer, module, batch, 1)


def test_a_step_that_fails_leaves_the_groups_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    module, batch = model()
    optimizer = OPTIMIZERS["adamw"](module.parameters())
    remat.offload_optimizer(optimizer)
    train(module, optimizer, module, batch, 1)
    module(*batch).backward()
    n_parameters = len(optimizer.param_groups[0]["params"])
    store = next(iter(places._open.values()))
    with monkeypatch.context() as patched:
        def failing(*_: Any) -> None:
            raise remat.OffloadError("the disk is gone")

        patched.setattr(store, "arrived", failing)
        with pytest.raises(remat.OffloadError, match="the disk is gone"):
            optimizer.step()
    assert len(optimizer.param_groups[0]["params"]) == n_parameters


def test_what_does_not_work_is_told() -> None:
    module, batch = model()
    with pytest.raises(remat.OffloadError, match="LBFGS"):
        remat.offload_optimizer(torch.optim.LBFGS(module.parameters()))
    optimizer = OPTIMIZERS["adamw"](module.parameters())
    remat.offload_optimizer(optimizer)
    module(*batch).backward()
    with pytest.raises(remat.OffloadError, match="takes no closure"):
        optimizer.step(lambda: module(*batch))
    other, _ = model()
    with pytest.warns(remat.BudgetWarning, match="found no optimizer"):
        remat.compile(other, budget="100%", offload="host", offload_speed="1GB/s", offload_optimizer=True)(*batch)
