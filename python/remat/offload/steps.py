"""The functions that emitted graphs call where a plan moves a value.

| step of the plan | what is called |
|---|---|
| `["out", v, s]` | `stored = out(tensor)` of store s |
| `["in", v, s]` | `arriving = bring(stored)`, and before the first reader `tensor = arrived(arriving)` |
| `["free", v]` after an `out` | `settle(stored, tensor)`: the tensor lives until its copy has ended |
| `["discard", v, s]` | `discard(stored)` |

What is stored when forward ends travels to backward in a *parcel*: autograd only knows tensors, so the objects are kept here under
the empty tensor that carries the number of the plan (`plan_number`), for as long as autograd holds that one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_compat
from ..errors import OffloadError
from .store import Arriving, Store, Stored


@dataclass(frozen=True, repr=False)
class Moves:
    """The functions of one store. Each carries what it does and the store as `remat_moves`."""

    store: Store
    out: Callable[[torch.Tensor], Stored]
    bring: Callable[[Stored], Arriving]
    arrived: Callable[[Arriving], torch.Tensor]
    settle: Callable[[Stored, torch.Tensor], None]
    discard: Callable[[Stored], None]

    @staticmethod
    def of(store: Store, index: int) -> Moves:
        """The functions of a store, which has this number in the problem."""
        names = ("out", "bring", "arrived", "settle", "discard")
        return Moves(store, *(_function(store, name, index) for name in names))


def _function(store: Store, name: str, index: int) -> Any:
    method = getattr(store, name)

    # A function and not the method: the text of a graph names it, and equal methods of one store are different objects.
    def move(*arguments: Any) -> Any:
        return method(*arguments)

    move.__name__ = move.__qualname__ = f"{name}_{index}"
    move.remat_moves = (name, index)  # type: ignore[attr-defined]
    return move


def kind_of(target: Any) -> str | None:
    """What a function of a graph moves: `out`, `bring`, `arrived`, `settle`, `discard`, or nothing."""
    found = getattr(target, "remat_moves", None)
    return None if found is None else found[0]


_parcels: dict[int, tuple[Any, list[Any]]] = {}


def packed(number: int, items: list[Any]) -> torch.Tensor:
    """An empty tensor that carries a number in its shape, as `numbered` does, and objects that live as long as it does."""
    mark = torch.empty((0, number))
    storage = mark.untyped_storage()
    key = storage._cdata
    _parcels[key] = (weakref.ref(storage, lambda _: _parcels.pop(key, None)), list(items))
    return mark


def unpacked(mark: torch.Tensor) -> list[Any]:
    """The objects behind the tensor of `packed`. They stay there only if the graph is retained for another backward."""
    key = mark.untyped_storage()._cdata
    if key not in _parcels:
        raise OffloadError(
            "what forward has offloaded is gone: backward ran twice, or on a copy of what it saved; keep the graph with retain_graph=True"
        )
    if torch_compat.keeps_graph():
        return [item.again() for item in _parcels[key][1]]
    return _parcels.pop(key)[1]


def n_parcels() -> int:
    """How many forwards with offloaded values wait for their backward."""
    return len(_parcels)
