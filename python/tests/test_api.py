"""The functions around the backend, and the package itself."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from remat import _remat, codegen, pipeline, planner
from remat.capture import capture
from remat.options import Options
from remat.planner import Book, Planned
from remat.rewrites import apply_mask, draw_mask
from remat.shapes import bucket_top
from remat.verify import compare, digest
from torch import nn
from zoo import make


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, remat; assert 'torch' not in sys.modules; remat.BudgetTooSmall; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plan_describes_itself() -> None:
    module, batch = make("mlp")
    plan = remat.plan(module, batch, budget="60%", effort=0.01)
    assert plan.predicted_peak <= 0.6 * plan.keep_all_peak
    assert plan.proven_floor <= plan.floor <= plan.predicted_peak
    assert plan.overhead > 0
    assert "predicted peak" in plan.table()
    assert plan._repr_html_().startswith("<table>")
    assert "recomputed" in plan.explain()
    points = plan.frontier(4)
    assert len(points) == 4
    assert [p["budget_bytes"] for p in points] == sorted(p["budget_bytes"] for p in points)
    problem = _remat.Problem(plan.problem_json())
    assert problem.check(plan.to_json()) == []
    broken = json.loads(plan.to_json())
    broken["steps"] = broken["steps"][1:]
    assert problem.check(json.dumps(broken)) != []


def test_another_budget_does_not_trace_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Options] = []
    read = pipeline.read

    def counted(joint: Any, n_forward_outputs: int, options: Options, *rest: Any) -> Any:
        reads.append(options)
        return read(joint, n_forward_outputs, options, *rest)

    monkeypatch.setattr(pipeline, "read", counted)
    module, batch = make("mlp")
    plans = [remat.plan(module, batch, budget=budget, effort=0.01) for budget in (None, "90%", "80%")]
    assert len(reads) == 1
    assert plans[0].predicted_peak > plans[1].predicted_peak > plans[2].predicted_peak
    # What changes the step is traced: the mode, the shape of the batch, options, what is trained.
    module.eval()
    remat.plan(module, batch, effort=0.01)
    module.train()
    remat.plan(module, batch, effort=0.01)
    assert len(reads) == 2
    small = remat.plan(module, tuple(tensor[:3] for tensor in batch), effort=0.01)
    assert len(reads) == 3 and small.keep_all_peak < plans[0].keep_all_peak
    assert remat.plan(module, batch, reserved=2**20, effort=0.01).keep_all_peak == plans[0].keep_all_peak + 2**20
    for parameter in list(module.parameters())[:-1]:
        parameter.requires_grad_(False)
    assert len(reads) == 4 and remat.plan(module, batch, effort=0.01).floor < plans[0].floor
    assert len(reads) == 5


def test_attention_on_meta_is_a_fused_kernel() -> None:
    """torch traces it there as products and a softmax, which hold all scores."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(32, 96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().mean()

    here = remat.plan(Attention(), torch.randn(2, 128, 32), effort=0.01)
    with torch.device("meta"):
        there = remat.plan(Attention(), torch.randn(2, 128, 32), effort=0.01)
    assert (there.keep_all_peak, there.floor) == (here.keep_all_peak, here.floor)


def test_traces_die_with_their_model_and_are_few() -> None:
    module, batch = make("mlp")
    steps = [weakref.ref(remat.plan(module, tuple(t[:n] for t in batch), effort=0.01).step) for n in range(2, 8)]
    gc.collect()
    assert sum(step() is not None for step in steps) <= 4
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None and all(step() is None for step in steps)


def test_the_largest_batch_is_the_largest() -> None:
    module, _ = make("mlp")
    example = lambda n: (torch.randn(n, 64), torch.randint(0, 10, (n,)))  # noqa: E731
    size = remat.max_batch(module, example, budget="700kB", start=64, effort=0.01)
    assert size > 64
    assert remat.plan(module, example(size), budget="700kB", effort=0.01).predicted_peak <= 700_000
    with pytest.raises(remat.BudgetTooSmall):
        remat.plan(module, example(size + 1), budget="700kB", effort=0.01)
    with pytest.raises(ValueError, match="percentage"):
        remat.max_batch(module, example, budget="50%")


def test_the_cache_is_used_checked_and_repaired(tmp_path: Path) -> None:
    module, batch = make("mlp")
    budget = int(0.6 * remat.plan(module, batch).keep_all_peak)

    def plan_hash() -> str:
        torch._dynamo.reset()
        module.zero_grad(set_to_none=True)
        remat.compile(module, budget=budget, effort=0.01, cache_dir=str(tmp_path))(*batch).backward()
        return remat.regions()[-1].plan_hash

    first = plan_hash()
    (file,) = tmp_path.iterdir()
    stored = file.read_text()
    assert plan_hash() == first
    file.write_text("not a plan")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert plan_hash() == first
    assert any("is not used" in str(w.message) for w in caught)
    assert json.loads(file.read_text())["steps"] == json.loads(stored)["steps"]


def test_a_recompute_with_other_bits_is_named() -> None:
    x = torch.randn(1000)
    changed = x.clone()
    changed[500] += 1e-6
    compare(x.clone(), digest(x), "aten.sin", None)
    with pytest.raises(remat.RecomputeMismatch, match=r"aten.sin, from model.py:3"):
        compare(changed, digest(x), "aten.sin", "model.py:3")
    swapped = x[torch.randperm(1000)]
    assert not torch.equal(digest(swapped), digest(x))


def test_verification_finds_an_impure_operation() -> None:
    calls = []

    @torch.library.custom_op("remat_tests::impure", mutates_args=())
    def impure(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.sin() + len(calls)

    impure.register_fake(lambda x: torch.empty_like(x))
    keep = lambda ctx, inputs, output: ctx.save_for_backward(output)  # noqa: E731
    impure.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0], setup_context=keep)

    class Impure(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = impure(layer(x))
            return x.square().mean()

    module, x = Impure(), torch.randn(512, 64)
    floor = remat.plan(module, x, effort=0.01).floor
    with pytest.raises(remat.RecomputeMismatch, match="impure"):
        remat.compile(module, budget=floor, effort=0.01, verify=True)(x).backward()


def test_peaks_never_fall_when_budgets_rise() -> None:
    book = Book()
    plan = lambda budget, peak: Planned(budget, f"{peak}", peak, 1.0, None)  # noqa: E731
    assert book.settle(plan(100, 95)).peak == 95
    assert book.settle(plan(120, 90)).peak == 95
    assert book.settle(plan(80, 80)).peak == 80
    assert book.settle(plan(97, 60)).peak == 80
    assert book.settle(plan(99, 98)).peak == 95


def test_a_floor_is_found_where_the_planner_creeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for what it has just reached, it may reach a little more, again and again; keeping everything is not the floor then."""
    module, batch = make("mlp")
    step = remat.plan(module, batch, effort=0.011).step
    options = Options(effort=0.011)
    solve, keep_all = planner._solve, step.keep_all_peak
    least = int(1.2 * planner.proven_floor(step)["bytes"])
    assert least < keep_all

    def creeping(step: Any, budget: int, options: Options) -> tuple[str, str | None]:
        text, reason = solve(step, max(budget, least), options)
        if budget >= least:
            return text, reason
        return json.dumps({**json.loads(text), "peak_bytes": budget + 1}), "no plan"

    monkeypatch.setattr(planner, "_solve", creeping)
    assert planner.lowest(step, options, planner.Book()).peak < keep_all


def test_buckets_end_at_powers_and_halves() -> None:
    assert [bucket_top(n) for n in (1, 2, 3, 4, 5, 6, 7, 9, 13, 100, 129)] == [1, 2, 3, 4, 6, 6, 8, 12, 16, 128, 192]


def test_split_dropout_has_the_bits_of_the_kernel() -> None:
    x = torch.randn(64, 33).t()
    torch.manual_seed(5)
    expected, mask = torch.ops.aten.native_dropout(x, 0.3, True)
    torch.manual_seed(5)
    drawn = draw_mask(x, 0.3)
    assert torch.equal(drawn, mask)
    assert torch.equal(apply_mask(x, drawn, 0.3), expected)


def test_views_share_the_storage_of_their_base() -> None:
    graph = torch.fx.experimental.proxy_tensor.make_fx(
        lambda x: (x.sin().view(-1).t().unsqueeze(0)[:, 2:] * 2,), tracing_mode="fake"
    )(torch.randn(4, 4))
    region = capture(graph, 1)
    assert [value.bytes for value in region.values] == [64, 56]
    assert [op.node.name for op in region.ops] == ["sin", "mul"]
    assert region.fixed_bytes == 64


def test_the_doctor_finds_a_working_installation() -> None:
    text = remat.doctor()
    assert text.endswith("ready") and "holds" in text, text


def test_bad_problems_and_planners_are_value_errors() -> None:
    with pytest.raises(ValueError, match="schema"):
        _remat.Problem("{}")
    module, batch = make("mlp")
    with pytest.raises(ValueError, match="the option planner is 'fastest'.*it can be save-all or"):
        remat.plan(module, batch, budget="50%", planner="fastest")


def test_constants_of_generated_functions_keep_clear_of_the_names_of_nodes() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("constant_0")
    y = graph.create_node("call_function", torch.ops.aten.mul.Tensor, (x, 0.5), name="constant_1")
    graph.output([graph.call_function(torch.ops.aten.add.Tensor, (y, x))])
    run = codegen.boxed(torch.fx.GraphModule({}, graph))
    (result,) = run([torch.full((3,), 2.0)])
    assert torch.equal(result, torch.full((3,), 3.0))
