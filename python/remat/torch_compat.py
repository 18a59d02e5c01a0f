"""Everything that differs between torch 2.13 and 2.15, in one place.

Private names of torch are used only here and are looked for, not assumed; `doctor` prints what was found.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import fx

from .errors import RematError

SUPPORTED = ((2, 13), (2, 15))
# Where code lies that is not the model's.
TORCH_FOLDER = os.path.dirname(torch.__file__)
OWN_FOLDER = os.path.dirname(__file__)
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
# The functions of torch through which a call of a compiled model goes.
COMPILED_ENTRIES = frozenset({"compile_wrapper", "_fn"})


def version() -> tuple[int, int]:
    """Major and minor version of torch."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def is_supported() -> bool:
    """Whether this torch is one that the tests ran with."""
    return SUPPORTED[0] <= version() <= SUPPORTED[1]


def is_tangent(node: fx.Node) -> bool:
    """Whether a placeholder of a joint graph is the gradient of an output."""
    return node.op == "placeholder" and "tangents" in str(node.target)


def traced_in_backward(graph: fx.Graph, n_forward_outputs: int) -> frozenset[fx.Node]:
    """Nodes that AOTAutograd met while it traced backward, as far as it notes that.

    It marks the operations of forward that have inputs. So those behind the last of them are of backward, but for what
    an output of forward needs.
    """
    nodes = list(graph.nodes)
    marked = [place for place, node in enumerate(nodes) if node.meta.get("partitioner_tag") == "is_forward"]
    if not marked:
        return frozenset()
    pending = [node for node in nodes[-1].args[0][:n_forward_outputs] if isinstance(node, fx.Node)]
    forward: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in forward:
            forward.add(node)
            pending.extend(node.all_input_nodes)
    return frozenset(nodes[marked[-1] + 1 :]) - forward


def is_input_mutation(description: Any) -> bool:
    """Whether an output of the joint graph is the new content of an input."""
    return type(description).__name__ == "InputMutationAOTOutput"


def mutated_inputs(descriptions: list[Any]) -> frozenset[int]:
    """The positions of the inputs that the step overwrites."""
    mutations = [d for d in descriptions if is_input_mutation(d)]
    return frozenset(m.mutated_input.idx for m in mutations if hasattr(m.mutated_input, "idx"))


def saved_descriptions(n_saved: int, first_without_check: int) -> list[Any]:
    """What AOTAutograd wants to read at the saved outputs of a forward graph; nothing where it has no such notion."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._functorch._aot_autograd import descriptors

        unchecked = getattr(descriptors, "SavedForBackwardsNoVcCheckAOTOutput", descriptors.SavedForBackwardsAOTOutput)
        return [
            (unchecked if index >= first_without_check else descriptors.SavedForBackwardsAOTOutput)(index)
            for index in range(n_saved)
        ]
    return [None] * n_saved


def needs_no_version_check(node: fx.Node) -> bool:
    """Whether AOTAutograd keeps a saved tensor outside `save_for_backward`; such tensors come last."""
    return bool(node.meta.get("saved_tensor_with_no_vc_check", False))


def forbid_donated_buffers() -> None:
    """Called while backward is compiled: saved tensors may be read by a second backward (`retain_graph=True`).

    AOTAutograd assumes that a compiler reuses the memory of saved tensors and then refuses a second backward. We free them
    early instead, which a retained graph simply prevents.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    if metadata is not None and hasattr(metadata, "bw_donated_idxs"):
        metadata.bw_donated_idxs = []


def frees_tangents() -> bool:
    """Whether autograd leaves the gradients that a compiled backward is given to it alone, to be freed in the middle."""
    return hasattr(torch.autograd.function.BackwardCFunction, "apply_boxed")


def allows_other_saved_tensors() -> bool:
    """Called while a joint graph is cut: whether forward may save other tensors at run time than the graph says.

    AOTAutograd takes everything between outputs and integers as saved, so it may, unless tensor subclasses are taken apart
    or states of generators are passed around the graph.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    if metadata is None:
        return False
    has_subclasses = getattr(metadata, "subclass_inp_meta", None) or []
    is_plain = all(type(meta).__name__ == "PlainTensorMeta" for meta in has_subclasses)
    has_states = getattr(metadata, "num_graphsafe_rng_states", 0) or getattr(metadata, "is_rng_op_functionalized", False)
    return is_plain and not has_states


class _Unknown(list[bool]):
    """Whether a saved tensor is an input of the graph, asked by position: unknown, which only costs a `detach`."""

    def __getitem__(self, index: Any) -> Any:
        return False


def forget_saved_tensors() -> None:
    """Called while forward is compiled: AOTAutograd must not look up by position what it noted about saved tensors."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    if metadata is None:
        return
    if hasattr(metadata, "saved_tensor_is_graph_input"):
        metadata.saved_tensor_is_graph_input = _Unknown()
    if hasattr(metadata, "dynamic_saved_tensors_idxs"):
        metadata.dynamic_saved_tensors_idxs = {}


def is_in_backward() -> bool:
    """Whether autograd is running backward in this thread."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def keeps_graph() -> bool:
    """Whether the backward that is running leaves its graph for another one; so it is assumed where torch cannot tell."""
    if not is_in_backward():
        return False
    asked = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return asked is None or bool(asked())


def backward_id() -> int:
    """A number for the backward that is running in this thread."""
    return torch._C._current_graph_task_id()


def will_accumulate(leaf: torch.Tensor) -> bool:
    """Whether the backward that is running accumulates the gradient of a leaf; `torch.autograd.grad` does not."""
    try:
        return torch._C._will_engine_execute_node(accumulator(leaf))
    except RuntimeError:
        # What torch answers for a leaf in torch.autograd.grad.
        return False


def accumulator(leaf: torch.Tensor) -> Any:
    """The node of autograd's graph that accumulates the gradient of a leaf."""
    return torch.autograd.graph.get_gradient_edge(leaf).node


def gradient_sources() -> Counter[Any] | None:
    """How many gradients the backward that is running adds up for each node of its graph; `None` where that cannot be told.

    Autograd tells nobody where a backward began. On the CPU it runs in the thread that asked for it, so the tensors are found on
    the stack, in the function of torch that hands them over.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "_engine_run_backward" and frame.f_code.co_filename.startswith(TORCH_FOLDER)):
        frame = frame.f_back
    roots = None if frame is None else frame.f_locals.get("t_outputs")
    if roots is None:
        return None
    given = [torch.autograd.graph.get_gradient_edge(root) if isinstance(root, torch.Tensor) else root for root in roots]
    sources = Counter(edge.node for edge in given)
    pending = list(sources)
    while pending:
        for node, _ in pending.pop().next_functions:
            if node is not None:
                if node not in sources:
                    pending.append(node)
                sources[node] += 1
    return sources


def after_backward(function: Callable[[], None]) -> None:
    """Has autograd call a function when the backward that is running ends."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def aot_backend(**kwargs: Any) -> Callable[..., Any]:
    """The Dynamo backend that calls AOTAutograd."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**kwargs)


def is_cut_by_graph_break(module: fx.GraphModule) -> bool:
    """Whether Dynamo handed over a part of the model and continues after it in Python."""
    reason = getattr(module, "compile_subgraph_reason", None)
    return bool(getattr(reason, "graph_break", False))


def is_inside_running_code() -> bool:
    """Whether the region that is being compiled was called by code of the model that runs in Python.

    That is so after a graph break, and when a module as a whole cannot be traced but its children can. Told from the call
    stack: a function that Dynamo traces is not on it, one that runs is. Above the entry into the compiled model begins
    the caller's own code, which does not count.
    """
    frame: FrameType | None = sys._getframe(1)
    is_inside = False
    while frame is not None:
        name, path = frame.f_code.co_name, frame.f_code.co_filename
        if name in COMPILED_ENTRIES and path.endswith("eval_frame.py"):
            return is_inside
        if path.startswith(TORCH_FOLDER):
            is_inside |= name == "forward" and "parallel" not in path
        elif not path.startswith(OWN_FOLDER):
            is_inside |= not path.startswith(STANDARD_LIBRARY) or "-packages" in path
        frame = frame.f_back
    return False


@contextlib.contextmanager
def no_autograd_cache() -> Iterator[None]:
    """Keeps AOTAutograd from storing compiled graphs: our partition depends on a budget that is not in its key."""
    config = torch._functorch.config
    if not hasattr(config, "enable_autograd_cache"):
        yield
        return
    with config.patch(enable_autograd_cache=False):
        yield


@contextlib.contextmanager
def not_compiling() -> Iterator[None]:
    """Has code run as it does in a training loop, while something is being compiled: optimizers look at this flag."""
    name = "_is_compiling_flag"
    if not hasattr(torch.compiler, name):
        yield
        return
    before = getattr(torch.compiler, name)
    setattr(torch.compiler, name, False)
    try:
        yield
    finally:
        setattr(torch.compiler, name, before)


@contextlib.contextmanager
def no_recompile_limit() -> Iterator[None]:
    """Lets one function be traced as often as somebody asks for a plan."""
    config = torch._dynamo.config
    names = [name for name in ("recompile_limit", "accumulated_recompile_limit") if hasattr(config, name)]
    with config.patch({name: 2**31 for name in names}):
        yield


@contextlib.contextmanager
def unrolled_layers() -> Iterator[None]:
    """Has `nn.LSTM` traced step by step in every case.

    Torch takes a fused kernel where the input needs no gradient. Its workspace is as large as all activations of the layer, is
    unknown to fake tensors, and is missing where gradients are off, as they are inside a compiled forward.
    """
    table = torch._decomp.decompositions
    name = "select_one_layer_lstm_function"
    original, plain = getattr(table, name, None), getattr(table, "one_layer_lstm", None)
    if original is None or plain is None:
        yield
        return
    setattr(table, name, lambda input, hx, params: plain)
    try:
        yield
    finally:
        setattr(table, name, original)


INTERPOLATIONS = (
    *(f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"),
)


@contextlib.contextmanager
def whole_interpolations() -> Iterator[None]:
    """Has `F.interpolate` traced as the one operation that eager mode runs.

    Torch takes it apart while it traces, into gathers for forward and as many scattered sums of the size of the input for backward,
    which need several times the memory and have other bits.
    """
    packets = [getattr(torch.ops.aten, name) for name in INTERPOLATIONS if hasattr(torch.ops.aten, name)]
    operations = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    taken = [(op, {key: op.py_kernels.pop(key) for key in keys if key in op.py_kernels}) for op in operations]
    for op, _ in taken:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in taken:
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


@contextlib.contextmanager
def no_missing_gradients() -> Iterator[None]:
    """Makes an error of torch's warning that an operation has no gradient, as some have none on the device `meta`.

    The trace would go on without that part of backward, and the plan would be too small.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*an autograd kernel was not registered.*")
        yield


def is_split_by_ddp(module: fx.GraphModule) -> bool:
    """Whether `module` is a piece that Dynamo's DDP optimizer cut out to overlap communication; it gives its name as the reason."""
    if active_ddp() is None:
        return False
    reason = getattr(module, "compile_subgraph_reason", None)
    return reason is None or "DDPOptimizer" in str(getattr(reason, "reason", ""))


def active_ddp() -> Any:
    """The DistributedDataParallel that is running its forward, or `None`."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from torch.nn.parallel import DistributedDataParallel

    return getattr(DistributedDataParallel, "_get_active_ddp_module", lambda: None)()


def uncut_by_ddp() -> contextlib.AbstractContextManager[Any]:
    """Keeps Dynamo from compiling bucket by bucket inside a DistributedDataParallel.

    Besides cutting the plan, that way runs the first step with real tensors once more, outside of it.
    """
    return contextlib.nullcontext() if active_ddp() is None else torch._dynamo.config.patch(optimize_ddp=False)


def hint(shape_env: Any, symbol: Any) -> int:
    """The size that a symbol had in the example; sizes that only the data decides cannot be planned."""
    sizes = getattr(shape_env, "backed_var_to_val", None)
    if sizes is None:
        sizes = shape_env.var_to_val
    if symbol not in sizes:
        raise RematError(
            f"the size {symbol} depends on the data (as in nonzero or boolean indexing), so no plan can hold a budget;"
            " move that part of the model out of the compiled function"
        )
    return int(sizes[symbol])


def unwrapped(error: RematError) -> RematError:
    """The same error in a form that torch.compile passes on as it is, so that `except remat.BudgetTooSmall` works.

    Its traceback begins at the caller of this function: the frames of Dynamo and of the planner tell users nothing.
    """
    passed_on = getattr(torch._dynamo.exc, "ShortenTraceback", None)
    if passed_on is not None and not isinstance(error, passed_on):
        kind = type(error)
        error.__class__ = type(kind.__name__, (kind, passed_on), {"__module__": kind.__module__})
    error.first_useful_frame = sys._getframe(1)  # type: ignore[attr-defined]
    return error.with_traceback(None)


def when_compiling_ends(tell: Callable[[str, int, Any], None]) -> None:
    """Has `tell` called when Dynamo gives up a function that was compiled too often: with the function, the limit, and the options
    of its backend.

    From then on it runs as it is, without a word to the backend; the line that Dynamo logs is the only sign.
    """

    class Listener(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            arguments = record.args
            if "hit config.%s" in str(record.msg) and isinstance(arguments, tuple) and len(arguments) > 2:
                compiler = _running_compiler()
                if getattr(compiler, "compiler_name", "") == "remat":
                    tell(str(arguments[2]), int(str(arguments[1])), getattr(compiler, "kwargs", {}).get("options"))
            return True

    logging.getLogger("torch._dynamo.convert_frame").addFilter(Listener())


def _running_compiler() -> Any:
    """What torch.compile made of the backend for which Dynamo compiles now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_compile" and frame.f_code.co_filename.endswith("convert_frame.py"):
            found: Any = frame.f_locals.get("compiler_fn")
            while hasattr(found, "_torchdynamo_orig_backend"):
                found = found._torchdynamo_orig_backend
            return found
        frame = frame.f_back
    return None


def allow_recurrent_layers(model: Any) -> None:
    """Lets Dynamo trace `nn.LSTM` and its like, where the model has some; it would cut the model there otherwise.

    The layers are then unrolled over time, so that a plan can recompute single time steps.
    """
    has_some = isinstance(model, torch.nn.Module) and any(isinstance(m, torch.nn.RNNBase) for m in model.modules())
    if has_some and hasattr(torch._dynamo.config, "allow_rnn"):
        torch._dynamo.config.allow_rnn = True


def ignore_repeated_warnings() -> None:
    """Keeps `logger.warning_once` of the transformers library from cutting a model in two.

    Dynamo breaks the graph at a call of a logger. In that library every model with labels may call this one before its loss.
    """
    warn_once = getattr(logging.Logger, "warning_once", None)
    ignored = getattr(torch._dynamo.config, "ignore_logging_functions", None)
    if warn_once is not None and isinstance(ignored, set):
        ignored.add(warn_once)
