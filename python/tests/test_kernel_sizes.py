"""No operation of torch leaves its result in a larger storage than the plan counts.

Runs torch's own database of operations on small inputs, forward and backward, and looks at every storage that a kernel
makes. What is larger than its shape needs must be known to `kernel_sizes`, to the byte.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import remat
import torch
from remat.kernel_sizes import has_rule, real_bytes
from remat.measure import measure_peak
from torch import fx, nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.uint8, torch.bool)
# Sizes depend on the type through the size of an element only. So every operation runs with the first type that it has, and
# with the others, one sample each, where a kernel of it has a rule or leaves more storage than its result needs.
N_SAMPLES = 3
# Fewer would mean that the database could not be run.
LEAST_OPS = 400
LEAST_SPECIAL = 6


def needed_bytes(tensor: torch.Tensor) -> int:
    """The bytes from the first to the last element of a tensor."""
    if tensor.numel() == 0:
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()


def counted_bytes(func: Any, args: Any, kwargs: Any, result: Any, index: int, tensor: torch.Tensor) -> int:
    """What a plan would count for a result of this call."""
    graph = fx.Graph()

    def placeholder(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        node = graph.placeholder("x")
        node.meta["val"] = item
        return node

    args, kwargs = pytree.tree_map(placeholder, (args, kwargs))
    node = graph.call_function(func, args, kwargs)
    node.meta["val"] = result
    return max(needed_bytes(tensor), real_bytes(node, index, int))


class Sweep(TorchDispatchMode):
    """Compares the storage of every new tensor with what would be counted."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[str] = set()
        # Whether an operation with a rule or a larger storage was seen; set back by the caller.
        self.is_special = False
        self.wrong: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        strided = [t for t in pytree.tree_leaves((args, kwargs)) if _is_strided(t)]
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            # A plan is made for functional graphs.
            return result
        inputs = {t.untyped_storage()._cdata for t in strided}
        self.ops.add(str(func))
        self.is_special |= has_rule(func)
        for index, tensor in enumerate(pytree.tree_leaves(result)):
            if _is_strided(tensor) and tensor.untyped_storage()._cdata not in inputs:
                real = tensor.untyped_storage().nbytes()
                if real > needed_bytes(tensor):
                    self.is_special = True
                    counted = counted_bytes(func, args, kwargs, result, index, tensor)
                    if real != counted:
                        shapes = [tuple(t.shape) for t in strided]
                        self.wrong[f"{func}, result {index}"] = f"{real} bytes, counted {counted}: {shapes} {kwargs}"
        return result


def _is_strided(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.layout is torch.strided


def _samples(info: Any, dtype: torch.dtype, n_samples: int, requires_grad: bool) -> Iterator[Any]:
    """The first samples of an operation, and those of them with images once more in the order of channels last."""
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=requires_grad), n_samples):
        yield sample
        if isinstance(sample.input, torch.Tensor) and sample.input.dim() == 4 and dtype is torch.float32:
            turned = sample.input.detach().to(memory_format=torch.channels_last).requires_grad_(requires_grad)
            sample.input = turned
            yield sample


def _run(info: Any, sample: Any) -> None:
    result = info.op(sample.input, *sample.args, **sample.kwargs)
    roots = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def _sweep(sweep: Sweep, info: Any, dtype: torch.dtype, n_samples: int) -> tuple[int, int]:
    """Runs samples of an operation with one type; how many ran, and how many of them failed."""
    has_gradient = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    requires_grad = has_gradient and (dtype.is_floating_point or dtype.is_complex)
    n_run = 0
    try:
        for sample in _samples(info, dtype, n_samples, requires_grad):
            n_run += 1
            with sweep:
                _run(info, sample)
    except Exception:  # noqa: BLE001 (some samples are not for every build of torch; the caller counts them)
        return n_run, 1
    return n_run, 0


def test_no_storage_is_larger_than_counted() -> None:
    database = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db
    sweep = Sweep()
    n_special, n_run, n_failed = 0, 0, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in database:
            supported = info.supported_dtypes("cpu")
            dtypes = [dtype for dtype in DTYPES if dtype in supported]
            sweep.is_special = False
            for place, dtype in enumerate(dtypes):
                if place > 0 and not sweep.is_special:
                    break
                run, failed = _sweep(sweep, info, dtype, N_SAMPLES if place == 0 else 1)
                n_run, n_failed = n_run + run, n_failed + failed
            n_special += sweep.is_special
    assert not sweep.wrong, "\n".join(f"{op}: {what}" for op, what in sorted(sweep.wrong.items()))
    assert len(sweep.ops) > LEAST_OPS
    assert n_special >= LEAST_SPECIAL
    assert n_failed < 0.1 * n_run


# These leave as much memory behind their result as their operand has.
LOSSES = {
    "mse": functional.mse_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "huber": functional.huber_loss,
    "l1": functional.l1_loss,
    "binary_cross_entropy": lambda y, t: functional.binary_cross_entropy(y.sigmoid(), t),
    "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits,
    "soft_margin": functional.soft_margin_loss,
    "poisson_nll": functional.poisson_nll_loss,
    "kl_div": lambda y, t: functional.kl_div(y, t, reduction="batchmean"),
}


class Regression(nn.Module):
    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss
        self.body = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 512))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.loss(self.body(x), y)


@pytest.mark.parametrize("name", LOSSES)
def test_everyday_losses_are_predicted_to_the_byte(name: str) -> None:
    torch.manual_seed(0)
    module, batch = Regression(LOSSES[name]), (torch.randn(64, 16), torch.rand(64, 512))
    floor = remat.plan(module, batch, effort=0.01).floor
    for budget in (floor, None):
        module.zero_grad(set_to_none=True)
        compiled = remat.compile(module, budget=budget, effort=0.01)
        with measure_peak("cpu") as peak:
            compiled(*batch).backward()
        assert peak.bytes == remat.regions()[-1].predicted_peak


def test_a_fold_is_predicted_to_the_byte() -> None:
    class Folding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(9 * 8, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.fold(x * self.weight, (8, 8), 3, padding=1).square().mean()

    module, x = Folding(), torch.randn(4, 72, 64)
    with measure_peak("cpu") as peak:
        remat.compile(module)(x).backward()
    assert peak.bytes == remat.regions()[-1].predicted_peak
