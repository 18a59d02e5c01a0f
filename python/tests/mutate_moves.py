"""Faults in how emitted graphs move values to stores and back. See `mutations`."""

from __future__ import annotations

import operator
from typing import Any

from mutate_sources import NotPossible, Random, pick
from remat.capture import tensor_of
from remat.offload.steps import kind_of, packed, unpacked
from subjects import Written
from torch import fx


def moves(graph: fx.Graph, *kinds: str) -> list[fx.Node]:
    """The calls of these kinds in a graph."""
    return [node for node in graph.nodes if kind_of(node.target) in (kinds or ("out", "bring", "arrived", "settle", "discard"))]


def some(written: Written, rng: Random, *kinds: str) -> fx.Node:
    """One call of these kinds in one of the graphs."""
    node: fx.Node = pick(rng, [*moves(written.forward, *kinds), *moves(written.backward, *kinds)])
    return node


def place(node: fx.Node) -> int:
    """Where a call is in its graph."""
    return list(node.graph.nodes).index(node)


def read_before_arrival(written: Written, rng: Random) -> None:
    """A reader does not wait for the copy back."""
    node = some(written, rng, "arrived")
    reader = pick(rng, node.users)
    reader.replace_input_with(node, node.args[0])


def read_from_before(written: Written, rng: Random) -> None:
    """The readers of what came back read the memory from before, which the plan has freed."""
    node = some(written, rng, "arrived")
    alike = [item for item in node.graph.nodes if tensor_of(item) is tensor_of(node) and place(item) < place(node)]
    node.replace_all_uses_with(pick(rng, alike))


def freed_before_the_end(written: Written, rng: Random) -> None:
    """A tensor is freed without waiting for its copy."""
    node = some(written, rng, "settle")
    node.graph.erase_node(node)


def settled_too_early(written: Written, rng: Random) -> None:
    """The wait before a free comes earlier, so that the tensor may die before what the plan says, or the program waits."""
    node = some(written, rng, "settle")
    others = [item for item in node.graph.nodes if item.op == "call_function" and place(node.args[1]) < place(item) < place(node) - 1]
    pick(rng, others).append(node)


def settled_for_another(written: Written, rng: Random) -> None:
    """A free waits for the copy of another value."""
    node = some(written, rng, "settle")
    other = pick(rng, [item for item in moves(node.graph, "settle") if item.args[0] is not node.args[0]])
    node.args = (other.args[0], node.args[1])


def settled_without_tensor(written: Written, rng: Random) -> None:
    """A free waits for its copy, but holds another tensor meanwhile."""
    node = some(written, rng, "settle")
    others = [item for item in node.graph.nodes if tensor_of(item) is not None and item is not node.args[1] and place(item) < place(node)]
    node.args = (node.args[0], pick(rng, others))


def wrong_store(written: Written, rng: Random) -> None:
    """A copy goes to another store, comes from one, or is given up there."""
    node = some(written, rng)
    kind = kind_of(node.target)
    others = [item.target for graph in (written.forward, written.backward) for item in moves(graph, str(kind))]
    node.target = pick(rng, [target for target in others if target is not node.target])


def lost_discard(written: Written, rng: Random) -> None:
    """Room in a store is never given back."""
    node = some(written, rng, "discard")
    node.graph.erase_node(node)


def early_discard(written: Written, rng: Random) -> None:
    """A value is discarded before it is read from there."""
    node = some(written, rng, "discard")
    back = pick(rng, [item for item in moves(node.graph, "bring") if item.args[0] is node.args[0] and place(item) < place(node)])
    back.prepend(node)


def other_discard(written: Written, rng: Random) -> None:
    """Another value is discarded."""
    node = some(written, rng, "discard")
    other = pick(rng, [item for item in moves(node.graph, "discard", "bring") if item.args[0] is not node.args[0]])
    node.args = (other.args[0],)


def in_without_out(written: Written, rng: Random) -> None:
    """A value is brought that was never copied out: another one comes in its place."""
    node = some(written, rng, "out")
    other = pick(rng, [item for item in moves(node.graph, "out") if item is not node and place(item) < place(node)])
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)


def brought_another(written: Written, rng: Random) -> None:
    """Another value is brought than the plan says."""
    node = some(written, rng, "bring")
    others = [item.args[0] for item in moves(node.graph, "bring", "settle") if item.args[0] is not node.args[0]]
    node.args = (pick(rng, [item for item in others if place(item) < place(node)]),)


def brought_twice(written: Written, rng: Random) -> None:
    """A value is brought once more than planned."""
    node = some(written, rng, "bring")
    with node.graph.inserting_after(node):
        node.graph.call_function(node.target, node.args)


def out_again(written: Written, rng: Random) -> None:
    """A value is copied out once more than planned."""
    node = some(written, rng, "out")
    with node.graph.inserting_after(node):
        node.graph.call_function(node.target, node.args)


def out_another(written: Written, rng: Random) -> None:
    """Another tensor of the same shape is copied out."""
    node = some(written, rng, "out")
    mine: Any = tensor_of(node.args[0])
    alike = [item for item in node.graph.nodes if (t := tensor_of(item)) is not None and t is not mine and t.shape == mine.shape and t.dtype == mine.dtype]
    node.args = (pick(rng, [item for item in alike if place(item) < place(node)]),)


def moved_copy(written: Written, rng: Random) -> None:
    """A copy begins, or room is given back, at another place."""
    node = some(written, rng, "out", "bring", "discard")
    calls = [item for item in node.graph.nodes if item.op == "call_function" and item not in (node, *node.all_input_nodes)]
    pick(rng, calls).append(node)


def swapped_parcel(written: Written, rng: Random) -> None:
    """Two things that travel to backward are exchanged."""
    node = pick(rng, written.forward.find_nodes(op="call_function", target=packed))
    items = list(node.args[1])
    if len(items) < 2:
        raise NotPossible
    a, b = rng.sample(range(len(items)), 2)
    items[a], items[b] = items[b], items[a]
    node.args = (node.args[0], items)


def short_parcel(written: Written, rng: Random) -> None:
    """Something that backward needs does not travel."""
    node = pick(rng, written.forward.find_nodes(op="call_function", target=packed))
    node.args = (node.args[0], list(node.args[1])[:-1])


def other_item(written: Written, rng: Random) -> None:
    """Backward takes another thing out of the parcel."""
    parts = [n for n in written.backward.nodes if n.target is operator.getitem and n.args[0].target is unpacked]
    node = pick(rng, parts)
    node.args = (node.args[0], pick(rng, [item.args[1] for item in parts if item is not node]))


def tensor_in_parcel(written: Written, rng: Random) -> None:
    """A tensor travels in the parcel, where nobody counts it."""
    node = pick(rng, written.forward.find_nodes(op="call_function", target=packed))
    tensors = [item for item in written.forward.nodes if tensor_of(item) is not None and place(item) < place(node)]
    node.args = (node.args[0], [*list(node.args[1])[:-1], pick(rng, tensors)])


MOVES = [
    read_before_arrival, read_from_before, freed_before_the_end, settled_too_early, settled_for_another, settled_without_tensor,
    wrong_store, lost_discard, early_discard, other_discard, in_without_out, brought_another, brought_twice, out_again, out_another,
    moved_copy, swapped_parcel, short_parcel, other_item, tensor_in_parcel,
]  # fmt: skip
