"""Graphs through Inductor: compiled, or only written.

Inductor lowers a graph, fuses and schedules it, lays out its buffers and writes a Python function, the *wrapper*, that allocates
buffers and calls kernels. Only then does it compile the kernels, which takes most of the time. `draft` stops before that:
the wrapper alone tells what the graph will hold (`inductor_peak`).
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

Compiled = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Draft:
    """A wrapper whose kernels are not compiled, and the constants that it reads."""

    source: str
    constants: dict[str, Any]


class _Written(BaseException):
    """Carries a draft out of Inductor, which would turn an ordinary exception into an error of its own."""

    def __init__(self, draft: Draft) -> None:
        super().__init__("written")
        self.draft = draft


def plain(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """What `torch.compile(model)` does with a captured graph."""
    from torch._inductor.compile_fx import compile_fx

    compiled: Any = compile_fx(module, list(example_inputs))
    return compiled


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table with which Inductor wants a graph to be traced."""
    # Some entries, such as that of max pooling, look this module up as an attribute, and only Inductor itself imports it.
    importlib.import_module("torch._inductor.lowering")
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


def own_cut(joint: fx.GraphModule, n_forward_outputs: int, lasting_inputs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward as torch's partitioner cuts a joint graph: what is cheap to fuse is computed again, the rest is kept."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    with _disable_current_modes():
        module = copy.deepcopy(joint)
    return min_cut_rematerialization_partition(
        module, None, num_fwd_outputs=n_forward_outputs, static_lifetime_input_indices=lasting_inputs
    )


def compile_graph(module: fx.GraphModule, example_inputs: Sequence[Any], **how: Any) -> Compiled:
    """Compiles one graph, which is changed by it. `how` is as for `draft`."""
    from torch._inductor.compile_fx import compile_fx_inner

    if how.get("is_inference"):
        prepare(module)
    _keep_strides(module, how.pop("n_visible", None))
    with _context(example_inputs):
        return compile_fx_inner(module, list(example_inputs), **how)


def draft(module: fx.GraphModule, example_inputs: Sequence[Any], **how: Any) -> Draft:
    """Writes the wrapper of a graph, as `compile_graph` would. `is_backward`, and `n_visible`: how many results of
    forward others see."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    def stop(source: str) -> None:
        raise _Written(Draft(source, dict(V.graph.constants)))

    with _disable_current_modes():
        module = copy.deepcopy(module)
    before = GraphLowering.save_output_code
    GraphLowering.save_output_code = stop
    try:
        # What was compiled before is not looked for: a graph from the cache has no constants here.
        with config.patch(fx_graph_cache=False, fx_graph_remote_cache=False):
            compile_graph(module, example_inputs, **how)
    except _Written as written:
        return written.draft
    finally:
        GraphLowering.save_output_code = before
    # A graph without operations is not written but run as it is.
    return Draft("", {})


def _keep_strides(module: fx.GraphModule, n_visible: int | None) -> None:
    """Has results keep the strides of eager mode where somebody else sees them; saved tensors may have any."""
    output = next(iter(module.graph.find_nodes(op="output")))
    results = list(output.args[0])
    places = range(len(results) if n_visible is None else n_visible)
    output.meta["user_visible_output_idxs"] = [place for place in places if isinstance(results[place], fx.Node)]


@contextlib.contextmanager
def _context(example_inputs: Sequence[Any]) -> Iterator[None]:
    """What Inductor expects around it. While AOTAutograd compiles, that is there; a later plan is compiled outside of it."""
    from torch._guards import TracingContext, detect_fake_mode, tracing

    with torch.no_grad(), torch._C._DisableAutocast():
        if TracingContext.try_get() is not None:
            yield
        else:
            with tracing(TracingContext(detect_fake_mode(list(example_inputs)))):
                yield
