"""Runs a graph op by op, through a Python function that is written for it.

In: a graph of placeholders, function calls and attributes, in the order in which it must run. Out: a function of one
list (the *boxed* convention: it empties the list, so that nobody but the function holds the arguments). Every tensor is
deleted directly after its last use, which is where the plan frees it. Written instead of interpreted, because the
loop and the dictionaries of an interpreter would cost more than many small operations.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from .checks import check_source

LITERALS = (bool, int, str, type(None))


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Compiles the graph of a module."""
    writer = _Writer(module)
    source = writer.write()
    scope: dict[str, Any] = dict(writer.constants)
    check_source(source, scope, module)
    exec(compile(source, "<remat schedule>", "exec"), scope)  # noqa: S102
    function = scope["run"]
    function._boxed_call = True
    function.source = source
    return function


class _Writer:
    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.constants: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        # Names of nodes come from operations and inputs, which anyone may name; the other names keep clear of them.
        self.taken = {node.name for node in module.graph.nodes}
        self.arguments = self._fresh("args")

    def write(self) -> str:
        nodes = list(self.module.graph.nodes)
        dying = _last_uses(nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        lines = [f"def run({self.arguments}):"]
        if inputs:
            lines.append(f"    {', '.join(node.name for node in inputs)}, = {self.arguments}")
        lines.append(f"    {self.arguments}.clear()")
        for node in nodes:
            if node.op != "placeholder":
                lines.append("    " + self._line(node))
            dead = dying.get(node, [])
            if dead and node.op != "output":
                lines.append(f"    del {', '.join(sorted(item.name for item in dead))}")
        return "\n".join(lines) + "\n"

    def _line(self, node: fx.Node) -> str:
        if node.op == "output":
            return f"return {self._text(node.args[0])}"
        if node.op == "get_attr":
            return f"{node.name} = {self._constant(operator.attrgetter(str(node.target))(self.module))}"
        if node.op != "call_function":
            raise NotImplementedError(f"a joint graph has no node of the kind {node.op}: {node.format_node()}")
        if node.target is operator.getitem:
            return f"{node.name} = {self._text(node.args[0])}[{self._text(node.args[1])}]"
        arguments = [self._text(argument) for argument in node.args]
        arguments += [f"{key}={self._text(argument)}" for key, argument in node.kwargs.items()]
        return f"{node.name} = {self._constant(node.target)}({', '.join(arguments)})"

    def _text(self, argument: Any) -> str:
        if isinstance(argument, fx.Node):
            return argument.name
        if type(argument) in LITERALS:
            return repr(argument)
        if isinstance(argument, (list, tuple)):
            inner = "".join(self._text(item) + ", " for item in argument)
            return f"[{inner}]" if isinstance(argument, list) else f"({inner})"
        if isinstance(argument, slice):
            return f"slice({self._text(argument.start)}, {self._text(argument.stop)}, {self._text(argument.step)})"
        return self._constant(argument)

    def _constant(self, value: Any) -> str:
        """A name for an object; floats too, because a text might not be the same number (`inf`, `nan`)."""
        if id(value) not in self.names:
            self.names[id(value)] = self._fresh(f"constant_{len(self.names)}")
            self.constants[self.names[id(value)]] = value
        return self.names[id(value)]

    def _fresh(self, name: str) -> str:
        """A name that nothing else has."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _last_uses(nodes: list[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node, what dies after it; a result that nobody reads dies at once."""
    last: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        last[node] = node
        for source in node.all_input_nodes:
            last[source] = node
    dying: dict[fx.Node, list[fx.Node]] = {}
    for node, user in last.items():
        if node.op != "output":
            dying.setdefault(user, []).append(node)
    return dying
