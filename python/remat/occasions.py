"""When a step is measured.

Measuring slows every operation down, so it is done on occasion. It must begin before the module is called (`watch`), when it is not
known yet which region will run and with which sizes. So the module's arguments foretell it: the first call with shapes that
are new is measured. What they do not foretell is noticed when the step begins, and measured when a step of its kind comes next:

- another region or size with the same arguments, as where parameters were frozen;
- a step with more calls of the model than any that was measured;
- the 16th, 32nd, 64th, ... step of a kind, because callers change: a loss gets another term, tensors are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

Key = tuple[Any, ...]
# The first step of a kind that is measured once more.
FIRST_AGAIN = 16
# Where measurements end with nothing learnt, since no backward comes, or nothing of that kind comes again, it is given up.
MAX_MEASUREMENTS = 8
MAX_IN_VAIN = 64
# Shapes that are remembered; beyond them, new ones are measured when they are noticed.
MAX_FORESEEN = 4096


class Occasions:
    """What a model was measured for, and what it should be measured for."""

    def __init__(self) -> None:
        self._foreseen: set[Any] = set()
        # How many steps were measured.
        self.n_measured = 0
        # Kinds of steps to be measured, and how often others came instead.
        self._pending: set[Key] = set()
        self._n_in_vain = 0
        # Steps of all kinds, and of each.
        self.n_steps = 0
        self._n_steps: Counter[Key] = Counter()
        self._n_measurements: Counter[Key] = Counter()
        # Calls of the largest step that was measured, and of the largest one that was seen.
        self._n_known: dict[Key, int] = {}
        self._n_seen: Counter[Key] = Counter()

    def is_foreseen(self, shapes: Any) -> bool:
        """Before a call with arguments of these shapes: whether the step that it begins may have to be measured."""
        if shapes not in self._foreseen and len(self._foreseen) < MAX_FORESEEN:
            self._foreseen.add(shapes)
            return True
        self._n_in_vain += bool(self._pending)
        if self._n_in_vain > MAX_IN_VAIN:
            self._n_measurements.update(dict.fromkeys(self._pending, MAX_MEASUREMENTS))
            self._pending.clear()
        return bool(self._pending)

    def begin(self, key: Key) -> bool:
        """When a step begins: whether it should be measured."""
        self.n_steps += 1
        self._n_steps[key] += 1
        n_steps = self._n_steps[key]
        is_again = n_steps >= FIRST_AGAIN and n_steps.bit_count() == 1
        is_unknown = key not in self._n_known and self._n_measurements[key] < MAX_MEASUREMENTS
        if is_again or is_unknown:
            self._want(key)
        return key in self._pending

    def begin_measuring(self, key: Key) -> None:
        """A step is being measured."""
        self._pending.discard(key)
        self._n_measurements[key] += 1
        self.n_measured += 1

    def see_calls(self, key: Key, n_calls: int) -> bool:
        """When a call begins: whether its step has more calls than were measured."""
        if n_calls <= self._n_known.get(key, n_calls):
            return False
        if n_calls > self._n_seen[key] and self._n_measurements[key] < MAX_MEASUREMENTS:
            self._want(key)
        self._n_seen[key] = max(self._n_seen[key], n_calls)
        return True

    def learn(self, key: Key, n_calls: int) -> None:
        """A step was measured to its end; where larger ones were seen, one of those is waited for."""
        self._n_known[key] = n_calls
        if n_calls < self._n_seen[key] and self._n_measurements[key] < MAX_MEASUREMENTS:
            self._want(key)

    def _want(self, key: Key) -> None:
        if key not in self._pending:
            self._pending.add(key)
            self._n_in_vain = 0


def shapes_of(arguments: Iterable[Any]) -> tuple[Any, ...]:
    """What tells calls apart, of all that a module is called with."""
    return tuple((tuple(a.shape), a.requires_grad) if isinstance(a, torch.Tensor) else None for a in arguments)
