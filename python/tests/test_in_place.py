"""A compiled module is the module that it was: same object, class, signature and state dict."""

from __future__ import annotations

import copy
import inspect
import io
import warnings

import pytest
import remat
import torch
from remat.in_place import restore
from remat.measure import measure_peak
from torch import nn
from zoo import make


def test_a_module_stays_what_it_is() -> None:
    module, batch = make("mlp")
    keys, signature = list(module.state_dict()), inspect.signature(module.forward)
    compiled = remat.compile(module, budget="70%", effort=0.01)
    assert compiled is module and type(compiled).__name__ != "OptimizedModule"
    assert list(compiled.state_dict()) == keys
    assert inspect.signature(compiled.forward) == signature
    before = len(remat.regions())
    compiled(*batch).backward()
    assert len(remat.regions()) == before + 1 and remat.regions()[-1].n_recomputed > 0


def test_copies_and_files_leave_the_compiled_call_behind() -> None:
    module, batch = make("mlp")
    compiled = remat.compile(module, budget="70%", effort=0.01)
    compiled(*batch).backward()
    twin = copy.deepcopy(compiled)
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    before = len(remat.regions())
    for copied in (twin, loaded):
        copied(*batch).backward()
    assert len(remat.regions()) == before
    twin.zero_grad(set_to_none=True)
    remat.compile(twin, budget="70%", effort=0.01)(*batch)
    assert len(remat.regions()) == before + 1


def test_another_budget_replaces_the_first_and_none_at_all_is_possible() -> None:
    module, batch = make("mlp")
    plan = remat.plan(module, batch, effort=0.01)
    for budget in (plan.keep_all_peak, plan.floor):
        remat.compile(module, budget=budget, effort=0.01)
        module.zero_grad(set_to_none=True)
        with measure_peak("cpu") as peak:
            module(*batch).backward()
        assert peak.bytes <= budget
    assert remat.regions()[-1].n_recomputed > 0
    restore(module)
    before = len(remat.regions())
    module(*batch).backward()
    assert len(remat.regions()) == before


def test_two_modules_of_one_class_are_each_captured() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", remat.BudgetWarning)
        for seed in (0, 1):
            module, batch = make("mlp", seed=seed)
            before = len(remat.regions())
            remat.compile(module, budget="70%", effort=0.01)(*batch).backward()
            assert len(remat.regions()) == before + 1


def test_a_compiled_part_of_a_compiled_model_belongs_to_the_model() -> None:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
    outer = nn.Sequential(nn.Linear(32, 32), inner, nn.Flatten(0))
    remat.compile(inner, budget="90%", effort=0.01)
    remat.compile(outer, effort=0.01, fullgraph=True)
    before = len(remat.regions())
    outer(torch.randn(16, 32)).square().mean().backward()
    assert len(remat.regions()) == before + 1


def test_planning_leaves_compiled_models_alone() -> None:
    module, batch = make("mlp")
    remat.compile(module, budget="70%", effort=0.01)(*batch).backward()
    other = nn.Sequential(nn.Linear(8, 8), nn.Flatten(0))
    compiled_elsewhere: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: object) -> object:
        compiled_elsewhere.append(1)
        return graph.forward

    elsewhere = torch.compile(other, backend=count)
    elsewhere(torch.randn(4, 8))
    plans = [remat.plan(module, batch, effort=0.01).floor for _ in range(10)]
    assert len(set(plans)) == 1
    before = len(remat.regions())
    module.zero_grad(set_to_none=True)
    module(*batch).backward()
    elsewhere(torch.randn(4, 8))
    assert len(remat.regions()) == before and len(compiled_elsewhere) == 1, "planning threw away what was compiled"


@pytest.mark.parametrize("in_place", [True, False])
def test_functions_and_wrappers_still_work(in_place: bool) -> None:
    weight = torch.randn(8, 8, requires_grad=True)
    function = remat.compile(lambda x: (x @ weight).square().mean(), budget="100%", in_place=in_place)
    function(torch.randn(4, 8)).backward()
    assert weight.grad is not None
    module, batch = make("mlp")
    wrapper = remat.compile(module, budget="70%", effort=0.01, in_place=False)
    assert wrapper is not module and module._compiled_call_impl is None
    wrapper(*batch).backward()
