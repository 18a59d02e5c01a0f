"""The name `remat` in accelerate's list of backends."""

from __future__ import annotations

from typing import Any


def accept_name(backends: type[Any]) -> None:
    """Lets accelerate's list of backends accept `"remat"`, which it checks and cannot be told otherwise."""

    def missing(cls: Any, value: object) -> Any:
        if value != "REMAT":
            return None
        import torch
        from torch._dynamo.backends.registry import list_backends

        from .. import torch_compat
        from ..backend import backend

        # The backend may have been loaded before the library that has these warnings.
        torch_compat.ignore_repeated_warnings()
        if "remat" not in list_backends(exclude_tags=()):
            torch._dynamo.register_backend(backend, name="remat")
        member = str.__new__(cls, "REMAT")
        member._name_, member._value_ = "REMAT", "REMAT"
        return member

    backends._missing_ = classmethod(missing)
