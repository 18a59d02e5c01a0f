"""Faults in emitted graphs, each a change of the forward or the backward graph of a plan. See `mutations`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from mutate_sources import NotPossible, Random, pick
from remat import release
from remat.capture import tensor_of
from remat.checks import originals
from remat.offload.steps import packed
from remat.plan_number import numbered
from remat.rewrites import draw_mask
from remat.verify import compare, digest
from subjects import Written
from torch import fx

aten = torch.ops.aten


def calls(graph: fx.Graph) -> list[fx.Node]:
    """The operations of a graph; not the number of the plan, nor what only verifies."""
    aside = (numbered, packed, digest, compare)
    return [node for node in graph.nodes if node.op == "call_function" and node.target not in aside]


def either(rng: Random, written: Written) -> fx.Graph:
    """One of the two graphs."""
    return rng.choice([written.forward, written.backward])


def is_alike(a: fx.Node, b: fx.Node) -> bool:
    """Whether one tensor could be taken for another."""
    x, y = tensor_of(a), tensor_of(b)
    return a is not b and x is not None and y is not None and x.shape == y.shape and x.dtype == y.dtype


def output(graph: fx.Graph) -> tuple[fx.Node, list[Any]]:
    """What a graph returns."""
    node = next(iter(graph.find_nodes(op="output")))
    return node, list(node.args[0])


def set_output(graph: fx.Graph, results: list[Any]) -> None:
    output(graph)[0].args = (results,)


def origin(node: fx.Node) -> int:
    """The same for all copies of a node of the joint graph."""
    return id(node.meta.get("val"))


def replaced_input(written: Written, rng: Random) -> None:
    """An operation reads another tensor of the same shape, that was computed before it."""
    graph = either(rng, written)
    order = {node: place for place, node in enumerate(graph.nodes)}
    node = pick(rng, [node for node in calls(graph) if node.all_input_nodes])
    old = pick(rng, node.all_input_nodes)
    new = pick(rng, [other for other in graph.nodes if is_alike(old, other) and order[other] < order[node]])
    node.replace_input_with(old, new)


def swapped_inputs(written: Written, rng: Random) -> None:
    """Two inputs of an operation trade places."""
    graph = either(rng, written)
    node = pick(rng, [node for node in calls(graph) if len(node.args) > 1 and all(isinstance(a, fx.Node) for a in node.args[:2])])
    node.args = (node.args[1], node.args[0], *node.args[2:])


def swapped_steps(written: Written, rng: Random) -> None:
    """Two neighbours in the order of the plan trade places."""
    graph = either(rng, written)
    order = calls(graph)
    place = rng.randrange(max(len(order) - 1, 1))
    if len(order) < 2:
        raise NotPossible
    order[place + 1].append(order[place])


def moved_step(written: Written, rng: Random) -> None:
    """An operation runs somewhere else."""
    order = calls(either(rng, written))
    node, place = pick(rng, order), pick(rng, order)
    place.prepend(node)


def dropped_step(written: Written, rng: Random) -> None:
    """An operation does not run, and its readers read another tensor."""
    graph = either(rng, written)
    node = pick(rng, calls(graph))
    if node.users:
        order = {item: place for place, item in enumerate(graph.nodes)}
        node.replace_all_uses_with(pick(rng, [item for item in graph.nodes if is_alike(item, node) and order[item] < order[node]]))
    graph.erase_node(node)


def repeated_step(written: Written, rng: Random) -> None:
    """An operation runs once more than planned."""
    graph = either(rng, written)
    node = pick(rng, [node for node in calls(graph) if not originals.reads_nothing(node)])
    with graph.inserting_after(node):
        copy = graph.create_node("call_function", node.target, node.args, node.kwargs)
    copy.meta = dict(node.meta)


def changed_attribute(written: Written, rng: Random) -> None:
    """A number, a flag or a type among the arguments is another one."""

    def other(value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + rng.choice([-1, 1])
        return value * 1.5 + 0.25 if isinstance(value, float) else torch.float64

    graph = either(rng, written)
    kinds = (bool, int, float, torch.dtype)
    places = [(node, place) for node in calls(graph) for place, value in enumerate(node.args) if isinstance(value, kinds)]
    node, place = pick(rng, places)
    node.update_arg(place, other(node.args[place]))


def changed_operation(written: Written, rng: Random) -> None:
    """An operation is replaced by another with the same signature."""
    others = {
        aten.add.Tensor: aten.sub.Tensor, aten.mul.Tensor: aten.div.Tensor, aten.mm.default: aten.matmul.default,
        aten.tanh.default: aten.sin.default, aten.relu.default: aten.neg.default, aten.t.default: aten.detach.default,
        aten.gelu.default: aten.tanh.default, aten.expand.default: aten.view.default, aten.view.default: aten.expand.default,
    }  # fmt: skip
    node = pick(rng, [node for node in calls(either(rng, written)) if node.target in others])
    node.target = others[node.target]


def changed_part(written: Written, rng: Random) -> None:
    """Another part of a result is read."""
    parts = [node for node in calls(either(rng, written)) if node.target is operator.getitem and "val" in node.args[0].meta]
    node = pick(rng, parts)
    n_parts = len(node.args[0].meta["val"])
    if n_parts < 2:
        raise NotPossible
    node.args = (node.args[0], (node.args[1] + rng.randrange(1, n_parts)) % n_parts)


def stale_clone(written: Written, rng: Random) -> None:
    """The readers of a recomputed tensor read the copy from before, which the plan has freed."""
    graph = either(rng, written)
    first: dict[int, fx.Node] = {}
    copies = [node for node in calls(graph) if first.setdefault(origin(node), node) is not node and node.users]
    new = pick(rng, copies)
    old = first[origin(new)]
    new.replace_all_uses_with(old)


def saved_instead(written: Written, rng: Random) -> None:
    """Forward saves a tensor that backward should compute again."""
    made = {origin(node): node for node in calls(written.forward) if tensor_of(node) is not None}
    node = pick(rng, [node for node in calls(written.backward) if origin(node) in made and node.users and node.meta.get("remat_run")])
    _, results = output(written.forward)
    n_numbers = sum(isinstance(r, fx.Node) and originals.is_number(r) for r in results[written.n_results :])
    results.insert(len(results) - n_numbers, made[origin(node)])
    set_output(written.forward, results)
    tangent = list(written.backward.find_nodes(op="placeholder"))[-written.n_tangents]
    with written.backward.inserting_before(tangent):
        place = written.backward.placeholder("saved_instead")
    place.meta = dict(node.meta)
    node.replace_all_uses_with(place)
    if node.target is not operator.getitem:
        written.backward.erase_node(node)


def lost_result(written: Written, rng: Random) -> None:
    """A result is missing."""
    graph = either(rng, written)
    _, results = output(graph)
    place = pick(rng, [place for place, result in enumerate(results) if result is not None])
    results[place] = None
    set_output(graph, results)


def cut_results(written: Written, rng: Random) -> None:
    """The last result is not returned."""
    graph = either(rng, written)
    _, results = output(graph)
    set_output(graph, results[:-1])


def swapped_results(written: Written, rng: Random) -> None:
    """Two results of a pass trade places."""
    graph = either(rng, written)
    _, results = output(graph)
    n_results = written.n_results if graph is written.forward else len(results)
    a = pick(rng, range(n_results))
    b = pick(rng, [place for place in range(n_results) if results[place] is not results[a]])
    results[a], results[b] = results[b], results[a]
    set_output(graph, results)


def stale_buffer(written: Written, rng: Random) -> None:
    """An input keeps its old content: the result that overwrites it is the input itself."""
    _, results = output(written.forward)
    inputs = written.forward.find_nodes(op="placeholder")
    places = [(p, i) for p, r in enumerate(results[: written.n_results]) for i in inputs if isinstance(r, fx.Node) and is_alike(r, i)]
    place, old = pick(rng, places)
    results[place] = old
    set_output(written.forward, results)


def swapped_saved(written: Written, rng: Random) -> None:
    """Forward saves two tensors in each other's place."""
    _, results = output(written.forward)
    a = pick(rng, range(written.n_results, len(results)))
    b = pick(rng, [place for place in range(written.n_results, len(results)) if results[place] is not results[a]])
    results[a], results[b] = results[b], results[a]
    set_output(written.forward, results)


def wrong_saved(written: Written, rng: Random) -> None:
    """Forward saves another tensor of the same shape."""
    _, results = output(written.forward)
    place = pick(rng, [p for p in range(written.n_results, len(results)) if tensor_of(results[p]) is not None])
    results[place] = pick(rng, [node for node in written.forward.nodes if is_alike(node, results[place])])
    set_output(written.forward, results)


def swapped_places(written: Written, rng: Random) -> None:
    """Two inputs of backward trade places."""
    places = list(written.backward.find_nodes(op="placeholder"))
    a = pick(rng, places[:-1])
    b = places[places.index(a) + 1]
    b.append(a)


def dropped_place(written: Written, rng: Random) -> None:
    """Backward does not take one of its inputs."""
    places = [node for node in written.backward.find_nodes(op="placeholder") if not node.users]
    place = pick(rng, places)
    written.backward.erase_node(place)


def marks(written: Written) -> list[fx.Node]:
    """What carries the number of the plan."""
    return [node for node in written.forward.nodes if node.target in (numbered, packed)]


def wrong_number(written: Written, rng: Random) -> None:
    """Forward passes on the number of another plan."""
    node = pick(rng, marks(written))
    node.args = (node.args[0] + 1, *node.args[1:])


def displaced_number(written: Written, rng: Random) -> None:
    """The number of the plan is not the first tensor that is saved."""
    node = pick(rng, marks(written))
    _, results = output(written.forward)
    results.remove(node)
    results.insert(rng.randrange(written.n_results + 1, len(results) + 1), node)
    set_output(written.forward, results)


def second_draw(written: Written, rng: Random) -> None:
    """Backward draws random numbers again in place of reading those of forward."""
    draws = {origin(node): node for node in calls(written.forward) if originals.is_effect(node)}
    place = pick(rng, [node for node in written.backward.find_nodes(op="placeholder") if origin(node) in draws and node.users])
    source = pick(rng, [node for node in written.backward.nodes if tensor_of(node) is not None and node.op == "placeholder"])
    node = draws[origin(place)]
    with written.backward.inserting_before(next(iter(place.users))):
        draw = written.backward.call_function(node.target, (source, *node.args[1:]), node.kwargs)
    draw.meta = dict(node.meta)
    place.replace_all_uses_with(draw)


def exchanged_draws(written: Written, rng: Random) -> None:
    """Two random draws run in the other order, each for the readers of the other."""
    graph = either(rng, written)
    draws = [node for node in calls(graph) if originals.is_effect(node) and tensor_of(node) is not None]
    a = pick(rng, draws)
    b = pick(rng, [node for node in draws if is_alike(a, node)])
    readers = list(a.users)
    for user in list(b.users):
        user.replace_input_with(b, a)
    for user in readers:
        user.replace_input_with(a, b)


def other_draw(written: Written, rng: Random) -> None:
    """The readers of a random draw read another one."""
    graph = either(rng, written)
    is_draw = [node for node in graph.nodes if node.target in (draw_mask,) or "mask" in node.name]
    a = pick(rng, [node for node in is_draw if node.users])
    b = pick(rng, [node for node in is_draw if is_alike(a, node)])
    a.replace_all_uses_with(b)


def statistics_again(written: Written, rng: Random) -> None:
    """Batch norm runs again in backward with the running statistics, which are overwritten by then."""
    node = pick(rng, written.backward.find_nodes(op="call_function", target=aten._native_batch_norm_legit.no_stats))
    functional = aten._native_batch_norm_legit_functional.default
    original = pick(rng, written.forward.find_nodes(op="call_function", target=functional))
    tangent = list(written.backward.find_nodes(op="placeholder"))[-written.n_tangents]
    _, results = output(written.forward)
    places = []
    for primal in original.args[3:5]:
        results.append(primal)
        with written.backward.inserting_before(tangent):
            places.append(written.backward.placeholder(primal.name))
        places[-1].meta = dict(primal.meta)
    set_output(written.forward, results)
    x, weight, bias, *rest = node.args
    node.target, node.args = functional, (x, weight, bias, *places, *rest)


def gradient_too_early(written: Written, rng: Random) -> None:
    """A gradient is given away as soon as it is made, although its parameter may still be read."""
    order = calls(written.backward)
    node = pick(rng, [node for node in order if release.place_of(node) is not None])
    chain = [node]
    while originals.reads_nothing(chain[-1]) or chain[-1] is node:
        chain.append(chain[-1].args[0])
    maker = chain.pop()
    if order.index(node) - order.index(maker) <= len(chain):
        raise NotPossible
    for item in chain:
        maker.append(item)


def gradient_exchanged(written: Written, rng: Random) -> None:
    """The gradients of two parameters are given to each other."""
    givers = [node for node in calls(written.backward) if release.place_of(node) is not None]
    a = pick(rng, givers)
    b = pick(rng, [node for node in givers if node is not a])
    a.target, b.target = b.target, a.target


def gradient_kept(written: Written, rng: Random) -> None:
    """A gradient is not given away."""
    node = pick(rng, [node for node in calls(written.backward) if release.place_of(node) is not None])
    written.backward.erase_node(node)


def other_digest(written: Written, rng: Random) -> None:
    """A recomputed tensor is compared with the digest of another one."""
    compares = [node for node in written.backward.nodes if node.target is compare]
    a = pick(rng, compares)
    b = pick(rng, [node for node in compares if node.args[1] is not a.args[1]])
    a.args = (a.args[0], b.args[1], *a.args[2:])


Graphs = Callable[[Written, Random], None]
GRAPHS: list[Graphs] = [
    replaced_input, swapped_inputs, swapped_steps, moved_step, dropped_step, repeated_step, changed_attribute, changed_operation,
    changed_part, stale_clone, saved_instead, lost_result, cut_results, swapped_results, stale_buffer, swapped_saved, wrong_saved,
    swapped_places, dropped_place, wrong_number, displaced_number, second_draw, exchanged_draws, other_draw, statistics_again,
    gradient_too_early, gradient_exchanged, gradient_kept, other_digest,
]  # fmt: skip
