"""Operations that torch itself does not run reproducibly: two runs with the same inputs may differ in the last bits.

They add with atomic instructions, so the order of the sum is that of the threads. A recomputation of such an operation may then
differ from its first run, and so may two runs of the same plan, or of the model without remat. The list is that of torch's
page on `torch.use_deterministic_algorithms`, as far as operations of training are concerned; a test compares it with the page of the
torch that is installed. On the CPU, sums over indices are the only ones, with more than one thread.

Not listed are operations whose result depends on the order only where one index occurs twice and the last write wins: `scatter`,
`index_copy`, `max_unpool`, and `index_put` and `put` without `accumulate`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch import fx

from .capture import op_name, source_line, tensors_of
from .errors import ReproducibilityWarning

# Operations that sum over indices.
ON_ANY_DEVICE = frozenset({"index_put", "_unsafe_index_put", "put"})
# Those that cuDNN can be told to run in one order, beside the switch for everything.
CONVOLUTIONS = frozenset({"convolution", "convolution_backward"})
ON_CUDA = ON_ANY_DEVICE | CONVOLUTIONS | frozenset({
    "scatter_add", "scatter_reduce", "index_add", "histc", "bincount", "median", "cumsum",
    "embedding_dense_backward", "_embedding_bag_dense_backward", "grid_sampler_2d_backward", "grid_sampler_3d_backward",
    "adaptive_max_pool2d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "avg_pool3d_backward",
    "max_pool3d_with_indices_backward", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward",
    "upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_bicubic2d_backward", "upsample_trilinear3d_backward",
    "_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward",
    "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d_backward",
    "replication_pad2d_backward", "replication_pad3d_backward", "nll_loss2d_forward", "_ctc_loss_backward",
})  # fmt: skip
ON_MPS = ON_CUDA | frozenset({"index_reduce", "kthvalue", "max_pool2d_with_indices_backward"})
_warned: set[str] = set()


def is_unreproducible(node: fx.Node) -> bool:
    """Whether torch may give other bits for the same inputs, as it is set up now."""
    target = node.target
    if torch.are_deterministic_algorithms_enabled() or not isinstance(target, torch._ops.OpOverload):
        return False
    name = target._schema.name.removeprefix("aten::").rstrip("_")
    if name in ON_ANY_DEVICE and not _accumulates(node):
        return False
    kinds = {tensor.device.type for tensor in tensors_of(node)} - {"cpu", "meta"}
    if not kinds:
        return name in ON_ANY_DEVICE and torch.get_num_threads() > 1
    if name in CONVOLUTIONS and torch.backends.cudnn.deterministic:
        return False
    if name == "cumsum" and not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors_of(node)):
        return False
    if name == "median" and len(target._schema.returns) == 1:
        # Without the index of the element that was taken, it does not matter which one of several equal ones it was.
        return False
    return name in (ON_MPS if "mps" in kinds else ON_CUDA)


def _accumulates(node: fx.Node) -> bool:
    if "accumulate" in node.kwargs:
        return bool(node.kwargs["accumulate"])
    return len(node.args) > 3 and bool(node.args[3])


def warn_of(nodes: Iterable[fx.Node]) -> None:
    """Warns, once per operation and process, that no budget can promise bits which torch does not repeat."""
    found = {op_name(node): source_line(node) for node in nodes if is_unreproducible(node)}
    fresh = {name: source for name, source in found.items() if name not in _warned}
    if not fresh:
        return
    _warned.update(fresh)
    places = ", ".join(f"{name}{f' ({source})' if source else ''}" for name, source in fresh.items())
    warnings.warn(
        f"torch does not run {places} reproducibly: sums over indices depend on the order of threads, so the last bits may differ"
        " from run to run, with and without a budget; torch.use_deterministic_algorithms(True), or one thread on the CPU, repeats them",
        ReproducibilityWarning,
        stacklevel=2,
    )
