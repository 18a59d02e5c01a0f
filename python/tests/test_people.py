"""What people read: representations, errors, options, sizes, names, and warnings about bits."""

from __future__ import annotations

import re
import traceback
import warnings
from typing import Any

import pytest
import remat
import torch
from remat import reproducible
from remat.budget import in_bytes
from remat.capture import module_path
from remat.options import Options
from torch import nn
from zoo import make


def test_representations_are_short() -> None:
    module, batch = make("mlp")
    plan = remat.plan(module, batch, budget="60%", effort=0.01)
    assert len(repr(plan)) < 200 and "predicted peak" in repr(plan)
    assert max(len(repr(part)) for part in (plan.step, plan.planned, plan.step.region)) < 200
    remat.compile(module, budget="60%", effort=0.01)(*batch)
    report = remat.regions()[-1]
    assert len(repr(report)) < 250 and "predicted peak" in repr(report)
    assert report._repr_html_().startswith("<table>") and "planning" in report._repr_html_()


@pytest.mark.parametrize("way", ["in place", "wrapper", "torch.compile", "plan"])
def test_a_budget_that_is_too_small_is_a_short_error(way: str) -> None:
    module, batch = make("mlp")
    with pytest.raises(remat.BudgetTooSmall) as caught:
        if way == "torch.compile":
            torch.compile(module, backend="remat", options={"budget": 100})(*batch)
        elif way == "plan":
            remat.plan(module, batch, budget=100)
        else:
            remat.compile(module, budget=100, in_place=way == "in place")(*batch)
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(lines) <= 25, "\n".join(lines)
    assert not any("Dynamo stack trace" in line or "bug to PyTorch" in line for line in lines)
    assert lines[-1].startswith("remat.errors.BudgetTooSmall: the budget of 100 B is too small")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"planner": "bst"}, r"planner is 'bst' \(did you mean best\?\)"),
        ({"effort": "high"}, "effort is 'high'; it is a number"),
        ({"effort": -1}, "effort is -1"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"timeout": None}, "timeout is None"),
        ({"verify": "yes"}, "verify is 'yes'; it can be True or False"),
        ({"budgett": 1}, r"unknown option budgett of the backend remat \(did you mean budget\?\)"),
        ({"mode": "max-autotune"}, "has no mode"),
        ({"compiler": "triton"}, "compiler is 'triton'"),
        ({"budget": 1.5}, "not a whole number"),
        ({"budget": [1]}, "write bytes as a number"),
        ({"cache_dir": 3}, "cache_dir is 3"),
        ({"reserved": "auto%"}, "a percentage has no base"),
    ],
)
def test_a_wrong_option_is_told_at_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        remat.compile(nn.Linear(1, 1), **options)
    if "mode" not in options:
        with pytest.raises(ValueError, match=text):
            torch.compile(nn.Linear(1, 1), backend="remat", options=options)(torch.ones(1, 1))


def test_the_mode_of_torch_compile_is_not_ignored() -> None:
    with pytest.raises(ValueError, match="has no mode"):
        torch.compile(nn.Linear(1, 1), backend="remat", mode="max-autotune")(torch.ones(1, 1))


def test_sizes_are_read_as_people_mean_them() -> None:
    read = lambda size: in_bytes(size, 1000)  # noqa: E731
    assert [read(size) for size in ("8G", "8 g", "8GiB", "1.5M", "2K")] == [2**33, 2**33, 2**33, 1572864, 2048]
    assert [read(size) for size in (8e9, "8e9", "8GB", 8_000_000_000, "50%")] == [8 * 10**9] * 4 + [500]
    assert Options.parse({"budget": 8e9, "reserved": "2G"}).budget == 8e9
    for wrong in ("8Q", "8", "G", "8e-3", -1, 0.5):
        with pytest.raises(ValueError):
            read(wrong)


def test_module_paths_are_those_of_the_user() -> None:
    class Stack(nn.Module):
        def __init__(s) -> None:  # noqa: N805 (people do this, and Dynamo writes the name down)
            super().__init__()
            s.l = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3))
            s.by_name = nn.ModuleDict({"head": nn.Linear(32, 4)})

        def forward(s, x: torch.Tensor) -> torch.Tensor:  # noqa: N805
            for layer in s.l:
                x = layer(x)
            return s.by_name["head"](x).square().mean()

    plan = remat.plan(Stack(), torch.randn(64, 32), budget="80%", effort=0.01)
    paths = {module_path(op.node) for op in plan.step.ops if op is not None} - {None}
    assert {"l.0.0", "l.2.1", "by_name.head"} <= paths
    assert all(path in dict(Stack().named_modules()) for path in paths), paths
    assert "L['" not in plan.explain()


# What torch's page on deterministic algorithms lists, by how it names things: our names for it, or why there are none.
LISTED: dict[str, set[str] | str] = {
    "torch.nn.Conv": {"convolution", "convolution_backward"},
    "torch.nn.ReplicationPad": {f"replication_pad{n}d_backward" for n in (1, 2, 3)},
    "torch.nn.ReflectionPad": {f"reflection_pad{n}d_backward" for n in (1, 2, 3)},
    "torch.bmm": "with sparse tensors, which are refused",
    "torch.cumsum": {"cumsum"},
    "torch.Tensor.__getitem__": {"index_put"},
    "torch.Tensor.index_put": {"index_put"},
    "torch.Tensor.put_": {"put"},
    "torch.Tensor.scatter_add_": {"scatter_add"},
    "torch.gather": {"scatter_add"},
    "torch.index_add": {"index_add"},
    "torch.index_select": {"index_add"},
    "torch.repeat_interleave": {"index_add"},
    "torch.Tensor.index_copy": "the last write wins",
    "torch.Tensor.scatter_reduce": {"scatter_reduce"},
    "torch.Tensor.scatter": "the last write wins",
    "torch.nn.MaxPool3d": {"max_pool3d_with_indices_backward"},
    "torch.nn.MaxPool2d": {"max_pool2d_with_indices_backward"},
    "torch.nn.EmbeddingBag": {"_embedding_bag_dense_backward"},
    "torch.nn.Embedding": {"embedding_dense_backward"},
    "torch.nn.AvgPool3d": {"avg_pool3d_backward"},
    "torch.nn.AdaptiveAvgPool2d": {"_adaptive_avg_pool2d_backward"},
    "torch.nn.AdaptiveAvgPool3d": {"_adaptive_avg_pool3d_backward"},
    "torch.nn.AdaptiveMaxPool2d": {"adaptive_max_pool2d_backward"},
    "torch.nn.FractionalMaxPool": {"fractional_max_pool2d_backward", "fractional_max_pool3d_backward"},
    "torch.nn.MaxUnpool": "the last write wins",
    "torch.nn.functional.interpolate": {"upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward"},
    "torch.nn.NLLLoss": {"nll_loss2d_forward"},
    "torch.nn.CTCLoss": {"_ctc_loss_backward"},
    "torch.histc": {"histc"},
    "torch.bincount": {"bincount"},
    "torch.median": {"median"},
    "torch.nn.functional.grid_sample": {"grid_sampler_2d_backward", "grid_sampler_3d_backward"},
    "torch.Tensor.index_reduce": {"index_reduce"},
    "torch.kthvalue": {"kthvalue"},
    "torch.Tensor.resize_": "with quantized tensors, which are not trained",
}


def test_the_list_of_operations_is_that_of_torch() -> None:
    page = torch.use_deterministic_algorithms.__doc__ or ""
    lines = [line for line in page.splitlines() if line.strip().startswith("* :")]
    found = [name for line in lines for name in re.findall(r"`(torch\.[\w.]+)`", line)]
    assert len(found) > 40
    for name in found:
        key = max((key for key in LISTED if name.startswith(key)), key=len, default=None)
        assert key is not None, f"{name} is new on torch's page: is it in reproducible.py?"
        ours = LISTED[key]
        assert isinstance(ours, str) or ours <= reproducible.ON_MPS, f"{name}: {ours - reproducible.ON_MPS} is missing"


class Indexed(nn.Module):
    """The gradient of indexing adds atomically."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(50, 8))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.table[index].square().mean()


def test_operations_that_torch_does_not_repeat_are_named_once() -> None:
    index = torch.randint(0, 50, (64,))

    def told() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            remat.compile(Indexed(), budget="100%")(index).backward()
        return [str(w.message) for w in caught if issubclass(w.category, remat.ReproducibilityWarning)]

    reproducible._warned.clear()
    assert told() == [], "one thread repeats itself"
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    try:
        assert told() == []
    finally:
        torch.use_deterministic_algorithms(False)
    (text,) = told()
    assert "index_put" in text and "use_deterministic_algorithms" in text
    assert told() == [], "once is enough"
