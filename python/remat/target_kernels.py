"""The kernels that the target would run, in a graph that is traced on the device `meta`: attention and losses.

On `meta` torch traces attention as separate products and a softmax, which hold the whole matrix of scores; real devices run fused
kernels that never make it. So the calls of `scaled_dot_product_attention` are replaced before autograd sees them. The rules are
those of torch's own choice, as far as shapes and types decide it:

- CPU: the fused kernel, with or without mask, if there is no dropout.
- GPU: flash attention in half precision, without mask, up to 256 elements per head; otherwise the memory-efficient kernel, which
  takes masks and fp32, if heads are equal in number.

`nll_loss` has no gradient on `meta`: torch registers it there as one operation without a formula. It is replaced by the two kernels
that it consists of elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
HALF = (torch.bfloat16, torch.float16)
MAX_HEAD = 256


def use_kernels_of(is_gpu: bool, graph: fx.GraphModule) -> int:
    """Replaces the calls in a graph of Dynamo; returns how many there were."""
    replacement = attention_on_gpu if is_gpu else attention_on_cpu
    n_replaced = 0
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is torch._C._nn.scaled_dot_product_attention:
            node.target = replacement
            n_replaced += 1
    graph.recompile()
    return n_replaced


def give_losses_gradients(graph: fx.GraphModule) -> None:
    """Replaces losses over classes in a graph of Dynamo that is traced on `meta`."""
    losses = {torch.nn.functional.cross_entropy: cross_entropy, torch.nn.functional.nll_loss: nll_loss}
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in losses:
            node.target = losses[node.target]
    graph.recompile()


def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """As `torch.nn.functional.cross_entropy`, for targets that are classes."""
    if label_smoothing != 0.0 or target.is_floating_point():
        return torch.nn.functional.cross_entropy(
            input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    scores = torch.log_softmax(input, 1 if input.dim() > 1 else 0)
    return nll_loss(scores, target, weight, ignore_index=ignore_index, reduction=reduction)


def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """As `torch.nn.functional.nll_loss`."""
    kernel = aten.nll_loss_forward if input.dim() <= 2 else aten.nll_loss2d_forward
    if input.dim() > 4 or input.dim() == 3:
        input, target = input.flatten(2).unsqueeze(-1), target.flatten(1).unsqueeze(-1)
    return kernel(input, target, weight, {"none": 0, "mean": 1, "sum": 2}[reduction], ignore_index)[0]


def _plain(q: Any, k: Any, v: Any, **arguments: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **arguments)


def attention_on_cpu(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """What a CPU runs."""
    if enable_gqa:
        key, value = _repeated(query, key), _repeated(query, value)
    is_fused = dropout_p == 0.0 and query.dim() == 4 and query.shape[-1] == value.shape[-1]
    if not is_fused:
        return _plain(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
    mask = _additive(attn_mask, query)
    return aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale
    )[0]


def attention_on_gpu(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """What a GPU runs."""
    if attn_mask is None and query.dtype in HALF and query.shape[-1] <= MAX_HEAD:
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if enable_gqa:
        key, value = _repeated(query, key), _repeated(query, value)
    if attn_mask is not None:
        attn_mask = _additive(attn_mask, query).expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]


def _repeated(query: Any, tensor: Any) -> Any:
    return tensor.repeat_interleave(query.shape[1] // tensor.shape[1], 1)


def _additive(mask: Any, query: Any) -> Any:
    """A mask of truth values as one that is added, which is what the kernels take."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, float("-inf")).to(query.dtype)
