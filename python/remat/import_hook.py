"""Tells accelerate about the backend when, and only when, somebody imports accelerate.

`TrainingArguments(torch_compile_backend="remat")` and `Accelerator(dynamo_backend="remat")` check the name against a fixed list,
before torch is asked. Neither library has a plugin mechanism, so importing remat must be enough, in either order and
without importing anything heavy: a finder waits for the one module that has the list.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODULE = "accelerate.utils.dataclasses"
LIST = "DynamoBackend"


def install() -> None:
    """Registers the name now, or when the module is imported."""
    module = sys.modules.get(MODULE)
    if module is not None and hasattr(module, LIST):
        _register(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(module: ModuleType) -> None:
    from .trainers.dynamo_name import accept_name

    accept_name(getattr(module, LIST))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it lets the others find the module and has it registered after it was loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load: Any = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                if hasattr(module, LIST):
                    _register(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
