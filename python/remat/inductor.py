"""The planned graphs through Inductor.

Inductor fuses operations and lays out memory itself, so the planned peak is an estimate there: what is saved between forward and
backward is exactly what the plan says, the order inside each graph is a hint. Its own reordering is switched off, because the
plan's order is what keeps recomputed chains from being live all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

# Options that let Inductor move operations; those that this version has are switched off.
REORDERING = ("reorder_for_locality", "reorder_for_peak_memory")


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table with which Inductor wants a graph to be traced."""
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def prepare(module: fx.GraphModule) -> None:
    """Inductor's passes over a joint graph. They turn random draws into functions of seeds, so that only seeds are kept."""
    from torch._guards import detect_fake_mode
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V

    examples = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    with V.set_fake_mode(detect_fake_mode(examples)):
        joint_graph_passes(module)


def compile_graph(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, is_backward: bool, is_inference: bool = False
) -> Callable[..., Any]:
    """Compiles one graph."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner

    if is_inference:
        prepare(module)
    with config.patch({name: False for name in REORDERING if hasattr(config, name)}):
        return compile_fx_inner(module, list(example_inputs), is_backward=is_backward, is_inference=is_inference)
