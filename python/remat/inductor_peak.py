"""What the code of Inductor holds, read from its wrappers before any kernel is compiled.

In: the wrappers of forward and backward, and the tensors of their graphs. Out: the peaks of both passes and the bytes that
wait between them. The wrappers are run as they will run, with tensors that have sizes and storages but no memory. Kernels
are left out: they allocate nothing. What Inductor leaves to torch (convolutions, attention) runs on such tensors, too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from . import inductor
from .capture import Region
from .inductor import Draft
from .measure import LiveStorages
from .together import Phases

# Parts of a wrapper that compile and wait for kernels, or are there for people.
COMPILER = "async_compile"


class _Paper(LiveStorages):
    """Counts the storages of tensors without memory, apart from those that somebody else owns."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.owned: set[int] = set()
        self.highest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            self.see(tensor, is_new=True)
        self.highest = max(self.highest, self.current)
        return result

    def see(self, tensor: Any, *, is_new: bool) -> None:
        if isinstance(tensor, FakeTensor) and tensor.untyped_storage()._cdata not in self.owned:
            self.count(tensor.untyped_storage())

    def own(self, tensor: Any) -> Any:
        """Takes a tensor out of the count; its storage must outlive the paper."""
        if isinstance(tensor, torch.Tensor):
            key = tensor.untyped_storage()._cdata
            self.owned.add(key)
            self._forget(key)
        return tensor

    def mark(self) -> int:
        """The highest count since the last mark."""
        highest, self.highest = self.highest, self.current
        return highest


class Written:
    """A forward and a backward graph with their wrappers."""

    def __init__(self, region: Region, forward: fx.GraphModule, backward: fx.GraphModule) -> None:
        self.region = region
        self.n_outputs = len(region.forward_outputs)
        self.forward, self.backward = forward, backward
        self.forward_inputs = _values(forward)
        with _disable_current_modes(), torch.no_grad():
            self.backward_inputs, self.phases = self._run()

    def _run(self) -> tuple[list[Any], Phases]:
        """Runs a step on paper. The wrapper of backward depends on the layout in which forward leaves what it saves."""
        number = self.region.shapes.number
        paper, mode = _Paper(), FakeTensorMode()
        draft = inductor.draft(self.forward, self.forward_inputs, **self.forward_way)
        first = _function(self.forward, draft, paper, mode)
        with mode, paper:
            primals = [paper.own(_fresh(value, number)) for value in self.forward_inputs]
            results = list(first(list(primals)))
            highest = paper.mark()
            saved = results[self.n_outputs :]
            kept = zip(results, self.region.overwrites_input, strict=False)
            outputs = [result for result, is_overwrite in kept if not is_overwrite]
            del results, kept
            waiting = paper.current - _bytes(paper, outputs)
        inputs = _values(self.backward)
        # Integers come first, then what was saved, then the gradients of the outputs.
        numbers = [value for value in inputs if not isinstance(value, torch.Tensor)]
        tensors = [value for value in saved if isinstance(value, torch.Tensor)]
        begin = len(numbers)
        inputs[begin : begin + len(tensors)] = [
            _restrided(value, tensor) for value, tensor in zip(inputs[begin:], tensors, strict=False)
        ]
        second = _function(self.backward, inductor.draft(self.backward, inputs, is_backward=True), paper, mode)
        with mode, paper:
            paper.mark()
            tangents = [_fresh(value, number) for value in inputs[begin + len(tensors) :]]
            arguments = [*(number(value) for value in numbers), *tensors, *tangents]
            del saved, tensors
            gradients = second(arguments)
            phases = Phases(highest, waiting, paper.mark())
            del gradients
        return inputs, phases

    @property
    def forward_way(self) -> dict[str, Any]:
        """How forward is compiled."""
        return {"is_backward": False, "n_visible": self.n_outputs}


def _values(module: fx.GraphModule) -> list[Any]:
    return [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]


def _fresh(value: Any, number: Callable[[Any], int]) -> Any:
    """A tensor like this one, without symbols; an integer for a symbol."""
    if not isinstance(value, torch.Tensor):
        return number(value)
    size, stride = [number(s) for s in value.size()], [number(s) for s in value.stride()]
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)


def _restrided(value: Any, like: torch.Tensor) -> Any:
    """An example of an input in the layout that it will have; symbolic layouts stay as they were traced."""
    is_symbolic = any(isinstance(size, torch.SymInt) for size in (*value.size(), *value.stride()))
    if is_symbolic or value.stride() == like.stride():
        return value
    with value.fake_mode:
        return torch.empty_strided(value.size(), like.stride(), dtype=value.dtype, device=value.device)


def _bytes(paper: _Paper, tensors: Sequence[Any]) -> int:
    """What these tensors take of the count."""
    keys = {tensor.untyped_storage()._cdata for tensor in tensors if isinstance(tensor, torch.Tensor)}
    return sum(paper.live[key][1] for key in keys if key in paper.live)


def _function(module: fx.GraphModule, draft: Draft, paper: _Paper, mode: FakeTensorMode) -> Callable[[list[Any]], Any]:
    """The function of a wrapper, for tensors without memory."""
    if not draft.source:
        return lambda arguments: module(*arguments)
    scope: dict[str, Any] = {"__name__": "remat_wrapper"}
    code, kernels = _without_kernels(draft.source)
    exec(code, scope)  # noqa: S102
    checks = [name for name in scope if name.startswith("assert_")]
    scope.update(dict.fromkeys((*kernels, *checks), _nothing))
    scope.update(
        empty_strided_cpu=_allocate,
        empty_strided_cpu_pinned=_allocate,
        empty_strided_cuda=partial(_allocate, device="cuda"),
        reinterpret_tensor=torch.as_strided,
        extern_kernels=_Extern(scope["extern_kernels"]),
    )
    with mode:
        constants = {name: _fresh(value, int) for name, value in draft.constants.items() if isinstance(value, torch.Tensor)}
    scope.update({name: paper.own(value) for name, value in constants.items()})
    return scope["call"]


def _without_kernels(source: str) -> tuple[CodeType, list[str]]:
    """The code of a wrapper without the kernels, and their names."""
    kept: list[ast.stmt] = []
    kernels: list[str] = []
    for statement in ast.parse(source).body:
        is_compiler = any(isinstance(part, ast.Name) and part.id == COMPILER for part in ast.walk(statement))
        if isinstance(statement, ast.Assign) and is_compiler:
            kernels += [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif not is_compiler and not isinstance(statement, ast.If):
            kept.append(statement)
    return compile(ast.Module(kept, []), "<wrapper of Inductor>", "exec"), kernels


def _allocate(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def _nothing(*_: Any, **__: Any) -> None:
    """A kernel: it writes into buffers that are there."""


class _Extern:
    """Kernels of torch that write into a buffer or return a new one."""

    def __init__(self, kernels: Any) -> None:
        self.kernels = kernels

    def __getattr__(self, name: str) -> Callable[..., Any]:
        kernel = getattr(self.kernels, name)
        return lambda *args, out=None, **kwargs: kernel(*args, **kwargs) if out is None else out
