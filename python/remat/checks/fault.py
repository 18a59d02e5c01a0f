"""The error of a check."""

from __future__ import annotations

from torch import fx

from ..capture import op_name
from ..errors import RematError


class EmittedFault(RematError):
    """What was emitted is not what was planned."""

    def __init__(self, message: str) -> None:
        super().__init__(f"bug: {message}; please report it with the model and the budget")


def told(node: fx.Node) -> str:
    """A node for a message."""
    return f"{node.name} ({op_name(node) if node.op == 'call_function' else node.op})"
