"""The state of an optimizer, which rests in a store between its steps.

Adam keeps two tensors beside each parameter and needs them once in a step. Here they come back for the update only, a few parameters at a
time: `optimizer.step` runs over *chunks* of its parameters, the state of the next chunk comes in and that of the last one goes out
while one is updated, and at most a *window* of it is in memory. Every parameter is updated by the same code with the same
numbers, so the bits are those of the plain optimizer.

It works through the hooks of torch's optimizers, so a scheduler or a trainer around them sees one step. `state_dict` has the whole state, and
`load_state_dict` takes one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from ..errors import OffloadError
from ..optimizer import parameter_bytes
from .places import store_at
from .store import Arriving, Stored

# State below this stays where it is: counters.
SMALLEST = 4 << 10
# The window is this part of the state, or what the largest parameter needs.
PART = 8
Parameters = list[torch.Tensor]
Chunk = list[tuple[int, torch.Tensor]]


def needed_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes to reserve for an optimizer whose state rests in a store: its window, temporaries, and what is too small to move."""
    known = getattr(optimizer, "remat_moments", None)
    return known.needed if known is not None else _Sizes(optimizer).needed


def offload_optimizer(optimizer: torch.optim.Optimizer, place: str | os.PathLike[str] = "host") -> int:
    """Has the state of `optimizer` rest at a place (`"host"` or a folder) between steps, and returns the bytes that a step needs.

    Pass these as `reserved`. With `remat.compile(..., offload=..., offload_optimizer=True)` both happen by themselves.
    """
    if getattr(optimizer, "remat_moments", None) is None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise OffloadError("LBFGS updates all parameters together, so its state cannot be offloaded")
        optimizer.remat_moments = Moments(optimizer, place)  # type: ignore[attr-defined]
    return int(optimizer.remat_moments.needed)  # type: ignore[attr-defined]


class _Sizes:
    """How much state of each parameter moves, and what follows for a step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.known: dict[int, tuple[int, int, int]] = {}
        everything = [(place, p) for place, g in enumerate(optimizer.param_groups) for p in g["params"] if p.requires_grad]
        sizes = [self.of(place, parameter) for place, parameter in everything]
        self.window = max([sum(moves for moves, _, _ in sizes) // PART, *(moves for moves, _, _ in sizes)])
        stays = sum(stays for _, stays, _ in sizes)
        self.needed = stays + self.window + max((self.temporary(chunk) for chunk in self.chunks(everything)), default=0)

    def of(self, group: int, parameter: torch.Tensor) -> tuple[int, int, int]:
        """Bytes of state that moves, of state that stays, and of temporaries."""
        if id(parameter) not in self.known:
            sizes, temporary = parameter_bytes(self.optimizer, self.optimizer.param_groups[group], parameter)
            moves = sum(size for size in sizes if size >= SMALLEST)
            self.known[id(parameter)] = moves, sum(sizes) - moves, temporary
        return self.known[id(parameter)]

    def state(self, chunk: Chunk) -> int:
        """Bytes of the state of a chunk that moves."""
        return sum(self.of(group, parameter)[0] for group, parameter in chunk)

    def temporary(self, chunk: Chunk) -> int:
        """Bytes that only the update of a chunk needs."""
        together = sum(self.of(g, p)[2] for g, p in chunk if self.optimizer.param_groups[g].get("foreach"))
        return max([together, *(self.of(group, parameter)[2] for group, parameter in chunk)])

    def chunks(self, parameters: Chunk) -> list[Chunk]:
        """Parameters that are updated together: half a window of state, or one."""
        found: list[Chunk] = []
        room = 0
        for group, parameter in parameters:
            size = self.of(group, parameter)[0]
            if not found or size > room:
                found.append([])
                room = self.window // 2
            found[-1].append((group, parameter))
            room -= size
        return found


class Moments:
    """The state of one optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, place: str | os.PathLike[str]) -> None:
        self.optimizer = optimizer
        self.place = place
        self.sizes = _Sizes(optimizer)
        self.needed = self.sizes.needed
        self.stored: dict[torch.Tensor, dict[str, Stored]] = {}
        self.arriving: dict[torch.Tensor, dict[str, Arriving]] = {}
        # Copies out that may be under way: what they are of, and its bytes.
        self.leaving: deque[tuple[Stored, torch.Tensor]] = deque()
        self.groups: list[Parameters] | None = None
        self.last: Chunk = []
        self.hooks = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
            optimizer.register_state_dict_post_hook(self._whole_state),
            optimizer.register_load_state_dict_post_hook(self._loaded),
        ]
        self._out([(place, p) for place, g in enumerate(optimizer.param_groups) for p in g["params"]])
        self._settle()

    def restore(self) -> None:
        """Brings everything back, and lets the optimizer be as it was."""
        self._give_groups_back()
        for parameter in list(self.stored):
            self._bring([(0, parameter)])
            self._arrive([(0, parameter)])
        for hook in self.hooks:
            hook.remove()
        self.optimizer.remat_moments = None  # type: ignore[attr-defined]

    @torch.no_grad()
    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Updates all chunks but the last one, which is left to the step that follows."""
        if len(args) > 1 or kwargs.get("closure") is not None:
            raise OffloadError("an optimizer whose state is offloaded takes no closure; call step() after backward()")
        self._give_groups_back()
        self.groups = [list(group["params"]) for group in optimizer.param_groups]
        with_gradient = [(place, p) for place, params in enumerate(self.groups) for p in params if p.grad is not None]
        chunks = self.sizes.chunks(with_gradient)
        try:
            for index, chunk in enumerate(chunks):
                self._room_for(self.sizes.state(chunk) if not self.arriving else 0)
                self._bring(chunk)
                self._arrive(chunk)
                self._choose(chunk)
                if index + 1 < len(chunks):
                    self._prefetch(chunk, chunks[index + 1])
                    _plain_step(optimizer)
                    self._out(chunk)
        except BaseException:
            self._give_groups_back()
            raise
        self.last = chunks[-1] if chunks else []

    @torch.no_grad()
    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._out(self.last)
        self._settle()
        self._give_groups_back()

    def _choose(self, chunk: Chunk) -> None:
        for place, group in enumerate(self.optimizer.param_groups):
            group["params"] = [parameter for of_group, parameter in chunk if of_group == place]

    def _give_groups_back(self) -> None:
        """Where a step failed between the hooks, its groups are still those of its last chunk."""
        if self.groups is not None:
            for group, parameters in zip(self.optimizer.param_groups, self.groups, strict=False):
                group["params"] = parameters
        self.groups, self.last = None, []

    def _prefetch(self, chunk: Chunk, following: Chunk) -> None:
        """Brings the next chunk while this one is updated, where both fit."""
        size = self.sizes.state(following)
        if self.sizes.state(chunk) + size <= self.sizes.window:
            self._room_for(self.sizes.state(chunk) + size)
            self._bring(following)

    def _room_for(self, size: int) -> None:
        """Waits for copies out until so much fits into the window."""
        while self.leaving and size + sum(tensor.untyped_storage().nbytes() for _, tensor in self.leaving) > self.sizes.window:
            self._settle_first()

    def _settle_first(self) -> None:
        stored, tensor = self.leaving.popleft()
        stored.store.settle(stored, tensor)

    def _settle(self) -> None:
        while self.leaving:
            self._settle_first()

    def _bring(self, chunk: Chunk) -> None:
        for _, parameter in chunk:
            if parameter in self.stored and parameter not in self.arriving:
                state = self.stored[parameter]
                self.arriving[parameter] = {key: stored.store.bring(stored) for key, stored in state.items()}

    def _arrive(self, chunk: Chunk) -> None:
        for _, parameter in chunk:
            for key, arriving in self.arriving.pop(parameter, {}).items():
                self.optimizer.state[parameter][key] = arriving.store.arrived(arriving)
            for stored in self.stored.pop(parameter, {}).values():
                stored.store.discard(stored)

    def _out(self, chunk: Chunk) -> None:
        """Starts copies out of the state of a chunk, and leaves empty tensors in its place."""
        for _, parameter in chunk:
            for key, tensor in list(_large(self.optimizer.state.get(parameter, {}))):
                store = store_at(self.place, tensor.device)
                stored = store.out(tensor)
                self.stored.setdefault(parameter, {})[key] = stored
                self.leaving.append((stored, tensor))
                self.optimizer.state[parameter][key] = torch.empty(0, dtype=tensor.dtype, device=tensor.device)

    @torch.no_grad()
    def _whole_state(self, optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The state dict with what rests in the store, in memory of its own."""
        self._give_groups_back()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        whole = dict(state_dict["state"])
        for index, parameter in enumerate(parameters):
            found = {key: item.store.arrived(item.store.bring(item)) for key, item in self.stored.get(parameter, {}).items()}
            if found:
                whole[index] = {**whole[index], **found}
        return {**state_dict, "state": whole}

    @torch.no_grad()
    def _loaded(self, optimizer: torch.optim.Optimizer) -> None:
        self.stored.clear()
        self._out([(place, p) for place, g in enumerate(optimizer.param_groups) for p in g["params"]])
        self._settle()


def _large(state: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for key, item in state.items():
        if torch.is_tensor(item) and item.layout is torch.strided and item.untyped_storage().nbytes() >= SMALLEST:
            yield key, item


def _plain_step(optimizer: torch.optim.Optimizer) -> None:
    """A step without the hooks, which run once for all chunks."""
    step: Any = type(optimizer).step
    (step.__wrapped__ if getattr(step, "hooked", False) else step)(optimizer)
