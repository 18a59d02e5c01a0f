"""Copies to stores and back, as the emitted graphs start them, wait for them and pass them on.

A graph holds three kinds of things that are no tensors: what was copied out (*stored*), what is on its way back (*arriving*), and the parcel
in which both travel from forward to backward. Each has a number that no tensor has, so an operation that reads one of them
is found. A tensor comes back as the value that was copied out, from the same store, by the only way: `arrived`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from torch import fx

from ..offload.steps import kind_of, packed, unpacked
from ..stores import Stores
from .fault import EmittedFault, told

Values = dict[fx.Node, int]


@dataclass(frozen=True)
class Copy:
    """A value in a store, or on its way back from it, with the content that it had when the copy began."""

    value: int
    store: int
    version: Hashable


class Moved:
    """What the things that are no tensors stand for, by their numbers."""

    def __init__(self, stores: Stores | None = None) -> None:
        moves = () if stores is None else stores.moves
        self.functions: dict[Any, tuple[str, int]] = {
            function: (kind, index)
            for index, of_store in enumerate(moves)
            for kind, function in (
                ("out", of_store.out), ("bring", of_store.bring), ("arrived", of_store.arrived),
                ("settle", of_store.settle), ("discard", of_store.discard),
            )
        }  # fmt: skip
        self.stored: dict[int, Copy] = {}
        self.arriving: dict[int, Copy] = {}
        self.discarded: set[int] = set()
        self.mark: int | None = None
        self.contents: list[int] = []
        self.opened: int | None = None

    def knows(self, node: fx.Node, values: Values) -> bool:
        """Whether a call is one of those that are read here."""
        if node.target is operator.getitem:
            return self.opened is not None and values.get(node.all_input_nodes[0]) == self.opened
        return node.target in (packed, unpacked) or kind_of(node.target) is not None

    def is_parcel(self, node: fx.Node) -> bool:
        """Whether a call makes the parcel for backward."""
        return node.target is packed

    def pack(self, node: fx.Node, values: Values, mark: int) -> int:
        """Reads what is put into the parcel."""
        items: Any = node.args[1]
        if self.mark is not None or not isinstance(items, list) or not all(isinstance(item, fx.Node) for item in items):
            raise EmittedFault(f"{told(node)} is not the only parcel, or has no list of things that were moved")
        self.mark, self.contents = mark, [values[item] for item in items]
        foreign = [item for item in items if values[item] not in self.stored and values[item] not in self.arriving]
        if foreign:
            raise EmittedFault(f"{told(node)} passes {told(foreign[0])} on, which no store has")
        return mark

    def run(self, node: fx.Node, values: Values, version: Callable[[fx.Node], Hashable], new: Callable[[], int]) -> int | None:
        """The number of what a call returns; nothing for calls that return nothing."""
        if node.target is operator.getitem:
            place: Any = node.args[1]
            if type(place) is not int or not 0 <= place < len(self.contents):
                raise EmittedFault(f"{told(node)} takes item {place!r} of a parcel of {len(self.contents)}")
            return self.contents[place]
        if node.target is unpacked:
            if self.mark is None or self.opened is not None or [values[item] for item in node.all_input_nodes] != [self.mark]:
                raise EmittedFault(f"{told(node)} does not open the parcel of forward, or opens it again")
            self.opened = new()
            return self.opened
        if node.target not in self.functions:
            raise EmittedFault(f"{told(node)} belongs to a store that the step does not have")
        kind, store = self.functions[node.target]
        if len(node.args) != (2 if kind == "settle" else 1) or node.kwargs or not all(isinstance(item, fx.Node) for item in node.args):
            raise EmittedFault(f"{told(node)} has other arguments than a {kind} takes")
        if kind == "out":
            (tensor,) = node.all_input_nodes
            number = new()
            self.stored[number] = Copy(values[tensor], store, version(tensor))
            return number
        return self._use(node, kind, store, values, version, new)

    def _use(
        self, node: fx.Node, kind: str, store: int, values: Values, version: Callable[[fx.Node], Hashable], new: Callable[[], int]
    ) -> int | None:
        source: Any = node.args[0]
        number = values[source]
        copy = (self.arriving if kind == "arrived" else self.stored).get(number)
        if copy is None or copy.store != store or number in self.discarded:
            raise EmittedFault(f"{told(node)} takes {told(source)}, which is not in that store or on its way from there")
        if kind == "arrived":
            return copy.value
        if kind == "bring":
            number = new()
            self.arriving[number] = copy
            return number
        if kind == "discard":
            self.discarded.add(number)
        else:
            tensor: Any = node.args[1]
            if values[tensor] != copy.value or version(tensor) != copy.version:
                raise EmittedFault(f"{told(node)} waits for the copy of another tensor than {told(tensor)}")
        return None
