"""A plan as two functions that Inductor compiles when they first run.

Many plans are looked at before one is found that fits, and most never run, so kernels are compiled late. Where a region can
change its plan, the number of the plan travels beside the compiled code: Inductor does not see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from . import inductor
from .inductor_peak import Written
from .plan_number import numbered

Function = Callable[[list[Any]], Any]


class _Late:
    """A graph that is compiled when it runs for the first time."""

    def __init__(self, module: fx.GraphModule, inputs: list[Any], **how: Any) -> None:
        self.compile: Callable[[], Function] = lambda: inductor.compile_graph(module, inputs, **how)
        self.run: Function | None = None

    def __call__(self, arguments: list[Any]) -> Any:
        if self.run is None:
            self.run = self.compile()
            # It holds the graph.
            del self.compile
        return self.run(arguments)


def functions(written: Written, number: int | None) -> tuple[Function, Function]:
    """Forward and backward. With a number, forward saves it first of all tensors, and backward gets it back first."""
    forward = _Late(written.forward, written.forward_inputs, **written.forward_way)
    backward = _Late(written.backward, written.backward_inputs, is_backward=True)
    if number is None:
        return forward, backward

    def marked(arguments: list[Any]) -> list[Any]:
        results = list(forward(arguments))
        results.insert(written.n_outputs, numbered(number))
        return results

    def unmarked(arguments: list[Any]) -> Any:
        del arguments[0]
        return backward(arguments)

    return marked, unmarked
