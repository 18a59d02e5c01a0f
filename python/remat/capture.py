"""The joint graph of AOTAutograd as operations over storages.

In: the joint forward and backward graph, with fake tensors in `meta["val"]`. Out: a `Region`: which storages exist, and
for every operation which of them it reads and makes and whether it may run again.

Storages count, not tensors: a view is part of its base, costs nothing, and is made again wherever it is wanted. What the
caller owns during the whole step (parameters, buffers, batch) is no value of the plan but fixed memory. Functional
graphs make this exact: nothing changes a storage after it was made.

An operation may run again unless it is random (a second draw is another number), a collective or another effect,
reads an input that the step overwrites (AOTAutograd writes the new value right after forward), or makes an output of
forward (the caller holds that one, so freeing ours would free nothing).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from . import torch_compat
from .errors import RematError
from .kernel_sizes import argument, real_bytes
from .rewrites import is_training_batch_norm
from .shapes import Shapes

COLLECTIVE_NAMESPACES = frozenset({"_c10d_functional", "c10d_functional", "c10d", "fsdp", "_c10d_functional_autograd"})
# These share the storage of their input although their schemas do not say so.
UNDECLARED_VIEWS = frozenset({"aten::_unsafe_view", "aten::detach", "aten::alias", "aten::lift_fresh"})
# Higher order operations that are pure functions of their tensors.
PURE_HIGHER_ORDER = frozenset({"flex_attention", "flex_attention_backward"})


@dataclass
class Value:
    """A storage that the step makes."""

    name: str
    bytes: int


@dataclass
class Op:
    """An operation that makes storages or has an effect: a node of the planning problem."""

    node: fx.Node
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    may_repeat: bool
    is_ordered: bool
    is_backward: bool
    outputs: list[fx.Node] = field(default_factory=list)


@dataclass(repr=False)
class Region:
    """What the planner and the scheduler need to know about a joint graph."""

    module: fx.GraphModule
    shapes: Shapes
    primals: list[fx.Node]
    tangents: list[fx.Node]
    forward_outputs: list[Any]
    backward_outputs: list[Any]
    values: list[Value]
    ops: list[Op]
    # The values that must be live for a node's tensor to exist; empty for what the caller owns.
    needs: dict[fx.Node, frozenset[int]]
    fixed_bytes: int
    # Which forward outputs only carry the new content of an input: they die when forward ends.
    overwrites_input: list[bool]

    @property
    def has_loss_inside(self) -> bool:
        """Whether an output that is differentiated is a single number, so that no loss is computed outside."""
        return any(tensor.dim() == 0 for node in self.tangents for tensor in tensors_of(node))


def tensor_of(node: Any) -> torch.Tensor | None:
    """The fake tensor of a node with one tensor as its value."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """All fake tensors of a node's value."""
    value = node.meta.get("val")
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if isinstance(item, torch.Tensor)]


def source_line(node: fx.Node) -> str | None:
    """The line of the model that made the node, such as `model.py:31`."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return None
    places = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    if not places:
        return None
    path, _, rest = places[-1].removeprefix("File ").partition(", line ")
    return f"{path.strip(chr(34))}:{rest.split(',')[0]}"


def module_path(node: fx.Node) -> str | None:
    """The module that a node comes from, such as `layer3.12.conv2`."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0]
    # Dynamo writes where it found the module, as in `L['self'].layer3._modules['12']`; users know what follows the first name.
    path = re.sub(r"^[LG]\['[^']*'\]", "", path).replace("__self__", "").replace("_modules", "")
    parts = re.sub(r"\['?([^'\]]*)'?\]", r".\1", path).split(".")
    return ".".join(part for part in parts if part) or None


def capture(module: fx.GraphModule, n_forward_outputs: int, shapes: Shapes | None = None) -> Region:
    """Reads a joint graph. Time is linear in its size."""
    return _Reader(module, n_forward_outputs, shapes or Shapes()).read()


def has_collectives(region: Region) -> bool:
    """Whether a graph meets those of other ranks while it runs."""
    return any(getattr(op.node.target, "namespace", None) in COLLECTIVE_NAMESPACES for op in region.ops)


class _Reader:
    def __init__(self, module: fx.GraphModule, n_forward_outputs: int, shapes: Shapes) -> None:
        self.module = module
        self.shapes = shapes
        output = next(iter(module.graph.find_nodes(op="output")))
        outputs = list(output.args[0])
        self.forward_outputs = outputs[:n_forward_outputs]
        self.backward_outputs = outputs[n_forward_outputs:]
        descriptions = output.meta.get("desc") or [None] * len(outputs)
        self.overwrites_input = [torch_compat.is_input_mutation(d) for d in descriptions[:n_forward_outputs]]
        self.overwritten = torch_compat.mutated_inputs(descriptions[:n_forward_outputs])
        self.primals: list[fx.Node] = []
        self.tangents: list[fx.Node] = []
        self.values: list[Value] = []
        self.value_of_storage: dict[int, int] = {}
        self.owned: set[int] = set()
        self.fixed_bytes = 0
        self.needs: dict[fx.Node, frozenset[int]] = {}
        # Storages, as keys of `_key`, that a node's tensor shares; found once per node.
        self.storages: dict[fx.Node, frozenset[int]] = {}
        self.volatile: set[int] = set()
        self.ops: dict[fx.Node, Op] = {}
        self.from_tangents: set[fx.Node] = set()
        self.late = torch_compat.traced_in_backward(module.graph, n_forward_outputs)

    def read(self) -> Region:
        wanted = self._wanted()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self._read_placeholder(node)
            elif node.op == "get_attr":
                self._own(node)
            elif node.op == "call_function" and node in wanted:
                self._read_call(node)
        self._keep_outputs()
        return Region(
            module=self.module,
            shapes=self.shapes,
            primals=self.primals,
            tangents=self.tangents,
            forward_outputs=self.forward_outputs,
            backward_outputs=self.backward_outputs,
            values=self.values,
            ops=list(self.ops.values()),
            needs=self.needs,
            fixed_bytes=self.fixed_bytes,
            overwrites_input=self.overwrites_input,
        )

    def _wanted(self) -> set[fx.Node]:
        """Nodes that an output or an effect needs. A random draw has one: the state of the generator."""
        wanted: set[fx.Node] = set()
        roots = [node for node in (*self.forward_outputs, *self.backward_outputs) if isinstance(node, fx.Node)]
        roots += [node for node in self.module.graph.nodes if node.op == "call_function" and (_has_effect(node) or _is_random(node))]
        while roots:
            node = roots.pop()
            if node not in wanted:
                wanted.add(node)
                roots.extend(node.all_input_nodes)
        return wanted

    def _keep_outputs(self) -> None:
        results = zip(self.forward_outputs, self.overwrites_input, strict=True)
        nodes = [node for output, is_overwrite in results if not is_overwrite for node in nested_nodes(output)]
        held = frozenset().union(*(self.needs[node] for node in nodes))
        for op in self.ops.values():
            if held.intersection(op.makes):
                op.may_repeat = False

    def _read_placeholder(self, node: fx.Node) -> None:
        if torch_compat.is_tangent(node):
            self.tangents.append(node)
            self.from_tangents.add(node)
            self.needs[node] = frozenset(self._new_value(node, tensor) for tensor in tensors_of(node))
            self.storages[node] = frozenset(_key(tensor) for tensor in tensors_of(node))
            return
        if len(self.primals) in self.overwritten:
            self.volatile.update(_key(tensor) for tensor in tensors_of(node))
        self.primals.append(node)
        self._own(node)

    def _own(self, node: fx.Node) -> None:
        """The caller, or the module for a constant, holds the tensor during the whole step."""
        self.needs[node] = frozenset()
        self.storages[node] = frozenset(_key(tensor) for tensor in tensors_of(node))
        for tensor in tensors_of(node):
            if _key(tensor) not in self.owned:
                self.owned.add(_key(tensor))
                self.fixed_bytes += self._bytes(tensor)

    def _bytes(self, tensor: torch.Tensor) -> int:
        return self.shapes.number(tensor.untyped_storage().nbytes())

    def _new_value(self, node: fx.Node, tensor: torch.Tensor, index: int = 0) -> int:
        size = max(self._bytes(tensor), real_bytes(node, index, self.shapes.number))
        self.values.append(Value(node.name, size))
        self.value_of_storage[_key(tensor)] = len(self.values) - 1
        return len(self.values) - 1

    def _read_call(self, node: fx.Node) -> None:
        _refuse_sparse(node)
        inputs = node.all_input_nodes
        if any(source in self.from_tangents for source in inputs):
            self.from_tangents.add(node)
        if node.target is operator.getitem:
            self._read_getitem(node)
            return
        read = frozenset().union(*(self.needs[source] for source in inputs))
        input_storages = frozenset().union(*(self.storages[source] for source in inputs))
        views = _is_view(node)
        results = enumerate(tensors_of(node))
        fresh = {_key(t): (t, index) for index, t in results if not views and _key(t) not in input_storages}
        if not fresh and not _has_effect(node) and (tensors_of(node) or _is_symbolic(node)):
            self.needs[node] = read
            self.storages[node] = input_storages
            return
        made = tuple(self._new_value(node, tensor, index) for tensor, index in fresh.values())
        volatile = bool(input_storages & self.volatile) and not is_training_batch_norm(node)
        is_fixed_point = _has_effect(node) or _is_random(node) or volatile
        self.ops[node] = Op(
            node=node,
            reads=tuple(sorted(read)),
            makes=made,
            may_repeat=not is_fixed_point,
            is_ordered=is_fixed_point and not _gives_away(node),
            # What has no effect may move between the passes.
            is_backward=node in self.from_tangents or (is_fixed_point and node in self.late),
        )
        self.needs[node] = frozenset(made) if made else read
        self.storages[node] = frozenset(_key(tensor) for tensor in tensors_of(node))
        if tensor_of(node) is not None:
            self.ops[node].outputs.append(node)

    def _read_getitem(self, node: fx.Node) -> None:
        source: Any = node.args[0]
        keys = frozenset(_key(tensor) for tensor in tensors_of(node))
        if source in self.ops:
            self.ops[source].outputs.append(node)
            own = frozenset(self.value_of_storage[key] for key in keys if key in self.value_of_storage)
            # An output that aliases an input exists only where the operation ran, so it needs all that this made.
            self.needs[node] = own if own <= self.needs[source] and own else own | self.needs[source]
            self.storages[node] = keys
        else:
            self.needs[node] = self.needs[source]
            self.storages[node] = self.storages[source]


def _refuse_sparse(node: fx.Node) -> None:
    """The bytes of a sparse tensor depend on the data, so no plan can count them."""
    if any(tensor.layout is not torch.strided for tensor in tensors_of(node)):
        source = source_line(node)
        raise RematError(
            f"{op_name(node)}{f' at {source}' if source else ''} makes a sparse tensor, whose memory depends on the data, so"
            " that no plan can hold a budget; use dense gradients (sparse=False) or move that part out of the compiled function"
        )


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def op_name(node: fx.Node) -> str:
    """A name that is the same in every process; the text of a Python function would hold its address."""
    target = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(getattr(target, "__name__", type(target).__name__))


def _is_view(node: fx.Node) -> bool:
    """Whether every tensor that the operation returns shares the storage of an input."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    if schema.name in UNDECLARED_VIEWS:
        return True
    returns = schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _is_symbolic(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def _is_random(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "remat_is_random", False)
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    return argument(node, "dropout_p", default=1.0) != 0.0


def _has_effect(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        is_silent = not tensors_of(node) and not _is_symbolic(node)
        return target._schema.is_mutable or target.namespace in COLLECTIVE_NAMESPACES or is_silent
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.name() not in PURE_HIGHER_ORDER
    return _gives_away(node)


def _gives_away(node: fx.Node) -> bool:
    """Whether an operation gives a gradient away (`release`); they may come in any order."""
    return hasattr(node.target, "remat_gives_away")


def nested_nodes(argument: Any) -> Iterator[fx.Node]:
    """All nodes inside an argument or an output."""
    if isinstance(argument, fx.Node):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from nested_nodes(item)
