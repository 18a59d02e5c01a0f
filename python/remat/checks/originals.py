"""The values of a joint graph, numbered so that equal numbers mean equal tensors.

A pure operation on equal inputs gives an equal result, so a value is known by its operation, its attributes and the numbers of its
inputs, and a second run gets the number of the first. An operation with an effect (a random draw, a collective, a write) runs
once and has a number of its own.

Writes are counted for each storage. An operation that reads a tensor reads a *version* of it: after a write, the same operation
gives another value. A view reads nothing, so it has no version. Two writes happen outside of the operations: when forward
ends, AOTAutograd writes the new content of inputs; and where a gradient is given away, a hook may change its parameter.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .. import torch_compat
from ..capture import COLLECTIVE_NAMESPACES, PURE_HIGHER_ORDER, UNDECLARED_VIEWS, Region, tensors_of

aten = torch.ops.aten
Key = Hashable
# How many results batch norm has in its form without running statistics.
N_WITHOUT_STATISTICS = 3


@dataclass
class Effect:
    """An operation that must run exactly once."""

    node: fx.Node
    key: Key
    value: int
    is_backward: bool


@dataclass(repr=False)
class Originals:
    """The numbers of a joint graph."""

    region: Region
    of: dict[fx.Node, int] = field(default_factory=dict)
    # The first node with a number. Some numbers have none: results that the joint graph does not read.
    nodes: dict[int, fx.Node] = field(default_factory=dict)
    known: dict[Key, int] = field(default_factory=dict)
    # For each number, the one whose storage it shares.
    roots: list[int] = field(default_factory=list)
    # Effects in their order, and those that give gradients away, which have none, by their function.
    effects: list[Effect] = field(default_factory=list)
    givers: dict[Any, Effect] = field(default_factory=dict)
    # Numbers of batch norms without running statistics, and of those that they repeat.
    repeats: dict[int, int] = field(default_factory=dict)
    # Roots that are written when forward ends.
    overwritten: set[int] = field(default_factory=set)

    def new(self) -> int:
        """A number for a new value."""
        self.roots.append(len(self.roots))
        return self.roots[-1]

    def number(self, key: Key) -> int:
        """The number of what is known by a key."""
        if key not in self.known:
            self.known[key] = self.new()
        return self.known[key]


def key_of(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], known: Callable[[fx.Node], Hashable]) -> Key:
    """What a call is known by: its operation, its attributes, and what its inputs are known by."""
    named = [(name, _frozen(argument, known)) for name, argument in kwargs.items()]
    return (target, tuple(_frozen(argument, known) for argument in args), tuple(named))


def attribute_key(module: fx.GraphModule, node: fx.Node) -> Key:
    """What an attribute of a module is known by."""
    return ("attribute", id(operator.attrgetter(str(node.target))(module)))


def is_effect(node: fx.Node) -> bool:
    """Whether a second run of an operation would be another value, or another effect."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if target._schema.is_mutable or target.namespace in COLLECTIVE_NAMESPACES or not target._schema.returns:
            return True
        return torch.Tag.nondeterministic_seeded in target.tags and _dropout_probability(node) != 0.0
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.name() not in PURE_HIGHER_ORDER
    return getattr(target, "remat_is_random", False) or hasattr(target, "remat_gives_away")


def reads_nothing(node: fx.Node) -> bool:
    """Whether an operation reads no element of a tensor: a view, a part of a result, or a size."""
    target = node.target
    if target is operator.getitem or is_number(node):
        return True
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    returns = target._schema.returns
    if target._schema.name in UNDECLARED_VIEWS or (returns and all(r.alias_info is not None for r in returns)):
        return True
    sources = {_storage(tensor) for source in node.all_input_nodes for tensor in tensors_of(source)}
    return bool(tensors_of(node)) and all(_storage(tensor) in sources for tensor in tensors_of(node))


def is_number(node: fx.Node) -> bool:
    """Whether a node is a size or another number, and no tensor."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def written_by(node: fx.Node) -> list[fx.Node]:
    """The inputs that an operation changes. A hook may change the gradient that it is given."""
    target = node.target
    if hasattr(target, "remat_gives_away"):
        return list(node.all_input_nodes)
    if not isinstance(target, torch._ops.OpOverload):
        return []
    found: list[fx.Node] = []
    for place, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            found += [item for item in (given if isinstance(given, (list, tuple)) else [given]) if isinstance(item, fx.Node)]
    return found


def read(region: Region) -> Originals:
    """Numbers a joint graph."""
    return _Reader(region).read()


class _Reader:
    def __init__(self, region: Region) -> None:
        self.region = region
        self.found = Originals(region)
        self.root_of_storage: dict[int, int] = {}
        self.versions: Counter[int] = Counter()
        self.from_tangents: set[fx.Node] = set(region.tangents)
        self.late = torch_compat.traced_in_backward(region.module.graph, len(region.forward_outputs))

    def read(self) -> Originals:
        found, region = self.found, self.region
        output = next(iter(region.module.graph.find_nodes(op="output")))
        descriptions = output.meta.get("desc") or []
        overwritten = torch_compat.mutated_inputs(descriptions[: len(region.forward_outputs)])
        for node in (*region.primals, *region.tangents):
            self._give(node, found.new())
        found.overwritten = {found.roots[found.of[region.primals[place]]] for place in overwritten}
        for node in region.module.graph.nodes:
            if node.op == "get_attr":
                self._give(node, found.number(attribute_key(region.module, node)))
            elif node.op == "call_function":
                self._read_call(node)
        return found

    def _read_call(self, node: fx.Node) -> None:
        found = self.found
        is_backward = not self.from_tangents.isdisjoint(node.all_input_nodes)
        if is_backward:
            self.from_tangents.add(node)
        known = found.of.__getitem__ if reads_nothing(node) else lambda source: self._version(source, is_backward)
        key = key_of(node.target, node.args, node.kwargs, known)
        if not is_effect(node):
            self._give(node, found.number(key))
            if node.target is aten._native_batch_norm_legit_functional.default and node.args[5] is True:
                self._add_without_statistics(node, known)
            return
        effect = Effect(node, key, found.new(), is_backward or node in self.late)
        self._give(node, effect.value)
        if hasattr(node.target, "remat_gives_away"):
            found.givers[node.target] = effect
        else:
            found.effects.append(effect)
            self.versions.update(found.roots[found.of[source]] for source in written_by(node))

    def _version(self, node: fx.Node, is_backward: bool) -> Hashable:
        value = self.found.of[node]
        root = self.found.roots[value]
        return versioned(value, self.versions[root] + (is_backward and root in self.found.overwritten))

    def _add_without_statistics(self, node: fx.Node, known: Callable[[fx.Node], Hashable]) -> None:
        """Batch norm may run again without the running statistics, and then gives the same first results."""
        found = self.found
        x, weight, bias, _mean, _variance, *rest = node.args
        form = found.number(key_of(aten._native_batch_norm_legit.no_stats, (x, weight, bias, *rest), {}, known))
        found.repeats[form] = found.of[node]
        for index in range(N_WITHOUT_STATISTICS):
            part = found.number(part_key(found.of[node], index))
            found.known[part_key(form, index)] = part

    def _give(self, node: fx.Node, value: int) -> None:
        found = self.found
        found.of[node] = value
        if value in found.nodes:
            return
        found.nodes[value] = node
        tensors = tensors_of(node)
        if len(tensors) == 1:
            found.roots[value] = self.root_of_storage.setdefault(_storage(tensors[0]), value)
        if node.op == "call_function" and found.roots[value] == value and tensors and reads_nothing(node):
            bases = [source for source in node.all_input_nodes if tensors_of(source)]
            is_part = node.target is operator.getitem and not reads_nothing(bases[0])
            found.roots[value] = value if is_part or not bases else found.roots[found.of[bases[0]]]


def versioned(value: int, version: int) -> Hashable:
    """What the content of a tensor is known by, after some writes."""
    return (value, version) if version else value


def part_key(source: int, index: int) -> Key:
    """What a part of a result is known by."""
    return (operator.getitem, (("value", source), (int, index)), ())


def _dropout_probability(node: fx.Node) -> Any:
    """Of an operation that draws only where this is not zero."""
    target: Any = node.target
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            default = node.kwargs.get("dropout_p", argument.default_value)
            return node.args[place] if place < len(node.args) else default
    return None


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _frozen(argument: Any, known: Callable[[fx.Node], Hashable]) -> Hashable:
    """An argument that can be compared; `1`, `1.0` and `True` are different ones."""
    if isinstance(argument, fx.Node):
        return ("value", known(argument))
    if isinstance(argument, (list, tuple)):
        return (list if isinstance(argument, list) else tuple, *_all_frozen(argument, known))
    if isinstance(argument, dict):
        return (dict, *_all_frozen(argument.items(), known))
    if isinstance(argument, slice):
        return (slice, *_all_frozen((argument.start, argument.stop, argument.step), known))
    if isinstance(argument, float):
        return (float, argument.hex())
    if isinstance(argument, (int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return (type(argument), argument)
    return ("object", id(argument))


def _all_frozen(arguments: Iterable[Any], known: Callable[[fx.Node], Hashable]) -> list[Hashable]:
    return [_frozen(argument, known) for argument in arguments]
