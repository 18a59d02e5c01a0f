"""Sizes as integers, also where a dimension is symbolic.

In: sizes of fake tensors, which are integers or expressions over symbols such as a batch of `s0`. Out: integers that hold for
every shape of a bucket. Why: a plan is made for numbers, and a budget must hold for all shapes that use the plan. So
each symbol is planned at the top of its bucket, and a guard makes torch.compile come back with a shape outside it.
Buckets end at 2^k and 1.5 * 2^k: a dozen cover three orders of magnitude, and at most half of a bucket is unused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from . import torch_compat


def bucket_top(size: int) -> int:
    """The smallest 2^k or 1.5 * 2^k that is not below `size`."""
    power = 1
    while power < size:
        if power >= 2 and power + power // 2 >= size:
            return power + power // 2
        power *= 2
    return power


class Shapes:
    """Replaces every symbol by the top of its bucket."""

    def __init__(self, sizes: dict[Any, int] | None = None) -> None:
        # Sizes of symbols that are not planned at the top of their bucket.
        self.tops: dict[Any, int] = dict(sizes or {})

    def number(self, size: int | torch.SymInt) -> int:
        """The largest value of a size within the bucket."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        for symbol in expression.free_symbols:
            if symbol not in self.tops:
                self.tops[symbol] = bucket_top(torch_compat.hint(size.node.shape_env, symbol))
        return int(expression.xreplace({symbol: self.tops[symbol] for symbol in expression.free_symbols}))

    def guard(self, symbolic: Iterable[Any]) -> None:
        """Makes torch.compile recompile for a size above its bucket: comparing installs the guard."""
        for size in symbolic:
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                top = self.number(size)
                if not bool(size <= top):
                    raise AssertionError(f"{size} is above the top {top} of its own bucket")

