"""A model together with its loss, so that one plan sees both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn


class LossOf(nn.Module):
    """`LossOf(model, loss)(inputs, *targets)` is `loss(model(inputs), *targets)`.

    `inputs` is one argument of the model, a tuple of them, or a dictionary of keyword arguments.
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, inputs: Any, *targets: Any) -> Any:
        """The loss of a batch."""
        return self.loss(call(self.model, inputs), *targets)


def call(model: Callable[..., Any], inputs: Any) -> Any:
    """Calls a model with a tensor, a tuple of arguments, or a dictionary of keyword arguments."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)
