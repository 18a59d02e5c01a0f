"""The generated Python does what its graph says.

In: the source of a function, the constants that it sees, and the graph that it was written for. The source is parsed, so
what Python would run is compared with the graph: each statement is the call of the next node, each name is bound to the tensor
or the object that the node takes, and each tensor is deleted directly after its last use. A name that the function
assigns is its own everywhere in it, so a constant of the same name is never taken for the object behind it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import fx

from .fault import EmittedFault, told

LITERALS = (bool, int, str, type(None))


def check_source(source: str, constants: Mapping[str, Any], module: fx.GraphModule) -> None:
    """Raises unless the source computes the graph of the module."""
    _Reader(source, constants, module).read()


class _Reader:
    def __init__(self, source: str, constants: Mapping[str, Any], module: fx.GraphModule) -> None:
        (function,) = ast.parse(source).body
        if not isinstance(function, ast.FunctionDef) or len(function.args.args) != 1:
            raise EmittedFault("the generated source is no function of one list")
        self.lines = source.splitlines()
        self.module = module
        self.constants = constants
        self.given = function.args.args[0].arg
        self.body: Iterator[ast.stmt] = iter(function.body)
        self.bound: dict[str, fx.Node] = {}
        names = (item for item in ast.walk(function) if isinstance(item, ast.Name))
        self.own = {self.given} | {name.id for name in names if isinstance(name.ctx, ast.Store)}

    def read(self) -> None:
        nodes = list(self.module.graph.nodes)
        dying = _deaths(nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        if inputs:
            self._read_inputs(self._next(), inputs)
        self._expect(self._next(), f"{self.given}.clear()")
        for source in inputs:
            self._read_deaths(dying.get(source, []))
        for node in nodes:
            if node.op == "output":
                statement = self._next()
                if not isinstance(statement, ast.Return) or not self._is(statement.value, node.args[0]):
                    self._refuse(statement, node)
            elif node.op != "placeholder":
                self._read_node(self._next(), node)
                self._read_deaths(dying.get(node, []))
        for statement in self.body:
            raise EmittedFault(f"{self._text(statement)!r} follows the end of the generated function")

    def _next(self) -> ast.stmt:
        statement = next(self.body, None)
        if statement is None:
            raise EmittedFault("the generated source ends before its graph")
        return statement

    def _read_inputs(self, statement: ast.stmt, inputs: list[fx.Node]) -> None:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        names = [item.id for item in getattr(target, "elts", ()) if isinstance(item, ast.Name)]
        is_list = isinstance(statement, ast.Assign) and _is_name(statement.value, self.given)
        if not isinstance(target, ast.Tuple) or not is_list or len(names) != len(inputs) or len(set(names)) != len(names):
            raise EmittedFault(f"{self._text(statement)!r} does not take the {len(inputs)} inputs of the graph")
        if self.given in names:
            raise EmittedFault(f"an input is bound to {self.given}, which is the name of the list of inputs")
        self.bound.update(zip(names, inputs, strict=True))

    def _expect(self, statement: ast.stmt, text: str) -> None:
        if ast.unparse(statement) != text:
            raise EmittedFault(f"the generated source has {self._text(statement)!r} in the place of {text!r}")

    def _read_deaths(self, dying: Sequence[fx.Node]) -> None:
        if not dying:
            return
        statement = self._next()
        targets = statement.targets if isinstance(statement, ast.Delete) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        dead = [self.bound.pop(name, None) for name in names]
        if len(names) != len(dying) or set(dead) != set(dying):
            wanted = ", ".join(sorted(node.name for node in dying))
            raise EmittedFault(f"{self._text(statement)!r} should delete {wanted}, which nobody reads from there on")

    def _read_node(self, statement: ast.stmt, node: fx.Node) -> None:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name) or not self._computes(statement.value, node):
            self._refuse(statement, node)
        elif target.id in self.bound:
            raise EmittedFault(f"{self._text(statement)!r} overwrites {told(self.bound[target.id])}, which is still read")
        else:
            self.bound[target.id] = node

    def _computes(self, value: ast.expr, node: fx.Node) -> bool:
        if node.op == "get_attr":
            return self._is(value, operator.attrgetter(str(node.target))(self.module))
        if node.op != "call_function":
            return False
        if isinstance(value, ast.Subscript):
            is_part = node.target is operator.getitem and not node.kwargs and len(node.args) == 2
            return is_part and self._is(value.value, node.args[0]) and self._is(value.slice, node.args[1])
        if not isinstance(value, ast.Call) or not self._is(value.func, node.target):
            return False
        given = {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg is not None}
        named = len(given) == len(value.keywords) and given.keys() == node.kwargs.keys()
        return named and self._are(value.args, node.args) and all(self._is(given[key], node.kwargs[key]) for key in given)

    def _are(self, values: Sequence[ast.expr], arguments: Sequence[Any]) -> bool:
        return len(values) == len(arguments) and all(map(self._is, values, arguments))

    def _is(self, value: ast.expr | None, argument: Any) -> bool:
        """Whether an expression gives an argument of a node."""
        if isinstance(argument, fx.Node):
            return isinstance(value, ast.Name) and self.bound.get(value.id) is argument
        if type(argument) in LITERALS:
            return isinstance(value, (ast.Constant, ast.UnaryOp)) and _literal(value) == (type(argument), argument)
        if isinstance(argument, (list, tuple)):
            kind = ast.List if isinstance(argument, list) else ast.Tuple
            return isinstance(value, kind) and self._are(value.elts, argument)
        if isinstance(argument, slice) and isinstance(value, ast.Call):
            is_builtin = _is_name(value.func, "slice") and "slice" not in self.own and "slice" not in self.constants
            return is_builtin and not value.keywords and self._are(value.args, (argument.start, argument.stop, argument.step))
        is_constant = isinstance(value, ast.Name) and value.id not in self.own
        return isinstance(value, ast.Name) and is_constant and self.constants.get(value.id, self) is argument

    def _refuse(self, statement: ast.stmt, node: fx.Node) -> None:
        raise EmittedFault(f"the generated statement {self._text(statement)!r} is not what {told(node)} computes: {node.format_node()}")

    def _text(self, statement: ast.stmt) -> str:
        return self.lines[statement.lineno - 1].strip()


def _is_name(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Name) and value.id == name


def _literal(value: ast.expr) -> tuple[type, Any]:
    found = ast.literal_eval(value)
    return type(found), found


def _deaths(nodes: list[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node, those that nobody reads after it; what the graph returns does not die in it."""
    dying: dict[fx.Node, list[fx.Node]] = {}
    seen: set[fx.Node] = set()
    for node in reversed(nodes):
        for item in (*node.all_input_nodes, node):
            if item not in seen:
                seen.add(item)
                if node.op != "output":
                    dying.setdefault(node, []).append(item)
    return dying
