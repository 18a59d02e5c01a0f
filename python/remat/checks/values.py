"""Every value that the emitted graphs read or return stands for the right value of the joint graph.

In: the joint graph, and a forward and a backward graph. Out: the number (`originals`) that each of their nodes stands for, or the
first fault: an operation that the joint graph does not have on these inputs, a result in a wrong place, an effect
that is missing, repeated or out of order, or a number of a plan that is not passed on.

The graphs meet as AOTAutograd runs them: forward returns its results, the saved tensors and the saved integers; backward takes
the integers, the tensors and the gradients of the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from .. import torch_compat
from ..capture import Region
from ..plan_number import numbered
from ..stores import Stores
from ..verify import compare, digest
from . import originals
from .fault import EmittedFault, told
from .moves import Moved
from .originals import Originals, attribute_key, is_effect, is_number, key_of, versioned, written_by


@dataclass(repr=False)
class Emitted:
    """Two graphs, and what their nodes stand for."""

    originals: Originals
    forward: fx.Graph
    backward: fx.Graph
    values: dict[fx.Node, int] = field(default_factory=dict)
    # The nodes of forward behind the inputs of backward that were saved.
    saved: dict[fx.Node, fx.Node] = field(default_factory=dict)
    moved: Moved = field(default_factory=Moved)


def check(region: Region, forward: fx.Graph, backward: fx.Graph, number: int | None, stores: Stores | None = None) -> Emitted:
    """Reads both graphs in the order in which they run."""
    return _Reader(Emitted(originals.read(region), forward, backward, moved=Moved(stores)), number).read()


class _Reader:
    def __init__(self, emitted: Emitted, number: int | None) -> None:
        self.emitted = emitted
        self.number = number
        self.known = emitted.originals
        self.region = self.known.region
        self.values = emitted.values
        self.versions: Counter[int] = Counter()
        self.n_effects = 0
        self.given: set[Any] = set()
        self.mark = self.known.new()

    def read(self) -> Emitted:
        region, known = self.region, self.known
        self._take_inputs(self.emitted.forward, [known.of[node] for node in region.primals], "forward")
        results = self._run(self.emitted.forward)
        n_forward = len(region.forward_outputs)
        self._check_results(results[:n_forward], region.forward_outputs, "forward")
        late = [effect.node for effect in known.effects[self.n_effects :] if not effect.is_backward]
        if late:
            raise EmittedFault(f"{told(late[0])} belongs to forward and does not run there")
        self.versions.update(known.overwritten)
        inputs = self._saved(results[n_forward:])
        tangents = [known.of[node] for node in region.tangents]
        places = self._take_inputs(self.emitted.backward, [*(self.values[node] for node in inputs), *tangents], "backward")
        self.emitted.saved = dict(zip(places, inputs, strict=False))
        self._check_results(self._run(self.emitted.backward), region.backward_outputs, "backward")
        missing = [effect.node for effect in known.effects[self.n_effects :]]
        missing += [effect.node for target, effect in known.givers.items() if target not in self.given]
        if missing:
            raise EmittedFault(f"{told(missing[0])} has an effect and does not run")
        return self.emitted

    def _take_inputs(self, graph: fx.Graph, expected: list[int], name: str) -> list[fx.Node]:
        places = list(graph.find_nodes(op="placeholder"))
        if len(places) != len(expected):
            raise EmittedFault(f"{name} takes {len(places)} inputs and is given {len(expected)}")
        self.values.update(zip(places, expected, strict=True))
        return places

    def _saved(self, saved: list[Any]) -> list[fx.Node]:
        """What forward saves, in the order in which backward takes it."""
        for item in saved:
            if not isinstance(item, fx.Node):
                raise EmittedFault(f"forward saves {item!r}, which is no tensor and no integer")
        numbers = [node for node in saved if self._is_number(node)]
        tensors = saved[: len(saved) - len(numbers)]
        if saved[len(tensors) :] != numbers:
            raise EmittedFault("forward saves a tensor behind an integer")
        unchecked = [torch_compat.needs_no_version_check(node) for node in tensors]
        if unchecked != sorted(unchecked):
            raise EmittedFault("forward saves a tensor that autograd checks behind one that it does not check")
        if self.number is not None:
            if not tensors or self.values[tensors[0]] != self.mark:
                raise EmittedFault(f"the first tensor that forward saves is not the number {self.number} of its plan")
            given = [self.known.of[node] for node in self.region.primals if is_number(node)]
            if [self.values[node] for node in numbers] != given:
                raise EmittedFault("forward saves other integers than its inputs, which all plans of a region save")
        return [*numbers, *tensors]

    def _is_number(self, node: fx.Node) -> bool:
        original = self.known.nodes.get(self.values[node])
        is_one = original is not None and is_number(original)
        if is_one != is_number(node):
            raise EmittedFault(f"{told(node)} is saved as {'a tensor' if is_one else 'an integer'}, which it is not")
        return is_one

    def _run(self, graph: fx.Graph) -> list[Any]:
        for node in graph.nodes:
            if node.op == "call_function":
                self._check_order(node)
                self._run_call(node)
            elif node.op == "get_attr":
                self.values[node] = self._find(node, attribute_key(graph.owning_module or self.region.module, node), None)
            elif node.op == "output":
                self._check_order(node)
                return list(node.args[0])
            elif node.op != "placeholder":
                raise EmittedFault(f"{told(node)} is of a kind that no joint graph has")
        raise EmittedFault("a graph returns nothing")

    def _check_order(self, node: fx.Node) -> None:
        for source in node.all_input_nodes:
            if source not in self.values or source.graph is not node.graph:
                raise EmittedFault(f"{told(node)} reads {told(source)} before it is computed")

    def _run_call(self, node: fx.Node) -> None:
        target = node.target
        if target is numbered:
            if node.args != (self.number,) or node.graph is not self.emitted.forward:
                raise EmittedFault(f"{told(node)} marks plan {node.args}; this is plan {self.number}")
            self.values[node] = self.mark
        elif self.emitted.moved.knows(node, self.values):
            self._run_move(node)
        elif target is digest:
            self.values[node] = self.known.number(self._key(node))
        elif target is compare:
            tensor, expected = node.all_input_nodes
            if self.known.known.get(key_of(digest, (tensor,), {}, self._version)) != self.values[expected]:
                raise EmittedFault(f"{told(node)} compares {told(tensor)} with the digest of another value")
        elif is_effect(node):
            self._run_effect(node)
        else:
            self.values[node] = self._find(node, self._key(node), key_of(target, node.args, node.kwargs, self.values.__getitem__))

    def _run_move(self, node: fx.Node) -> None:
        moved = self.emitted.moved
        if moved.is_parcel(node):
            if node.args[0] != self.number or node.graph is not self.emitted.forward:
                raise EmittedFault(f"{told(node)} marks plan {node.args[0]}; this is plan {self.number}")
            self.values[node] = moved.pack(node, self.values, self.mark)
        else:
            found = moved.run(node, self.values, self._version, self.known.new)
            if found is not None:
                self.values[node] = found

    def _run_effect(self, node: fx.Node) -> None:
        key = self._key(node)
        place = getattr(node.target, "remat_gives_away", None)
        if place is not None:
            effect = self.known.givers.get(node.target)
            if effect is None or key != effect.key or node.target in self.given:
                raise EmittedFault(f"{told(node)} gives a gradient away twice, or another one than that of input {place}")
            self.given.add(node.target)
            self.versions[self.known.roots[self.known.of[self.region.primals[place]]]] += 1
        else:
            effect = self.known.effects[self.n_effects] if self.n_effects < len(self.known.effects) else None
            if effect is None or key != effect.key:
                due = "no effect" if effect is None else told(effect.node)
                raise EmittedFault(f"{told(node)} runs on {self._inputs(node)} where {due} is due")
            if effect.is_backward and node.graph is self.emitted.forward:
                raise EmittedFault(f"{told(node)} belongs to backward and runs in forward")
            self.n_effects += 1
        self.values[node] = effect.value
        self.versions.update(self.known.roots[self.values[source]] for source in written_by(node))

    def _key(self, node: fx.Node) -> Hashable:
        return key_of(node.target, node.args, node.kwargs, self._version)

    def _version(self, node: fx.Node) -> Hashable:
        value = self.values[node]
        return versioned(value, self.versions[self.known.roots[value]])

    def _find(self, node: fx.Node, key: Hashable, without_versions: Hashable | None) -> int:
        """The number of a value of the joint graph. What reads no element is the same after a write."""
        found = self.known.known.get(key)
        if found is None and without_versions is not None:
            found = self.known.known.get(without_versions)
            original = None if found is None else self.known.nodes.get(found)
            if original is None or not originals.reads_nothing(original):
                found = None
        if found is None:
            raise EmittedFault(f"{told(node)} on {self._inputs(node)} is no value of the joint graph")
        return found

    def _inputs(self, node: fx.Node) -> str:
        """The inputs of a node for a message, each with what it stands for."""
        names = [f"{source.name} (for {self._original(source)})" for source in node.all_input_nodes]
        return ", ".join(names) or "no inputs"

    def _original(self, node: fx.Node) -> str:
        value = self.values[node]
        original = self.known.nodes.get(value)
        version = self.versions[self.known.roots[value]]
        name = f"value {value}" if original is None else original.name
        return f"{name}, overwritten" if version else name

    def _check_results(self, results: list[Any], expected: list[Any], name: str) -> None:
        if len(results) != len(expected):
            raise EmittedFault(f"{name} returns {len(results)} results, not {len(expected)}")
        for place, (result, original) in enumerate(zip(results, expected, strict=True)):
            found = key_of(None, (result,), {}, self.values.__getitem__)
            if found != key_of(None, (original,), {}, self.known.of.__getitem__):
                what = told(result) + f", which stands for {self._original(result)}" if isinstance(result, fx.Node) else repr(result)
                wanted = told(original) if isinstance(original, fx.Node) else repr(original)
                raise EmittedFault(f"result {place} of {name} is {what}, not {wanted}")
