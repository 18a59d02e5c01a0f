"""The agreement of ranks in a simulator: all agree or all fail, whatever the store, the clock and the other ranks do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rank_simulator import Broken, Simulation
from remat.agreement import Member, _Ended


def test_all_ranks_agree_or_all_fail() -> None:
    for seed in range(300):
        try:
            Simulation(seed).run()
        except Broken as broken:
            raise AssertionError(f"python python/tests/rank_simulator.py --first {seed} --seeds 1: {broken}") from broken


class OwnWord(Member):
    """Believes its own end of a round instead of the one that everybody sees."""

    def _settle(self, kind: str, **details: Any) -> Any:
        yield from super()._settle(kind, **details)
        return {"kind": kind, "from": self.rank, "calls": self.n_calls, **details}


class Impatient(Member):
    """Uses a plan without waiting for the others to confirm it."""

    def _wait(self, name: str, owner: int, own: Any, deadline: float) -> Any:
        if name == "end":
            raise _Ended({"kind": "go"})
        return (yield from super()._wait(name, owner, own, deadline))


class Silent(Member):
    """Fails without a word to the others."""

    def _leave(self, error: BaseException) -> Any:
        self.round += 1
        self.n_calls += 1
        return
        yield


class Patient(Member):
    """Does not look whether the others have passed its call."""

    def _check_alive(self, rank: int, own: Any) -> Any:
        n_calls, self.n_calls = self.n_calls, 10**9
        try:
            yield from super()._check_alive(rank, own)
        finally:
            self.n_calls = n_calls


class Deaf(Member):
    """Does not notice that another rank has ended."""

    def _check_alive(self, rank: int, own: Any) -> Any:
        return
        yield


class Forgetful(Member):
    """Takes part in rounds that ended before the call in which it compiles."""

    def _enter(self) -> Any:
        text = yield from self._end()
        return text


@pytest.mark.parametrize("member", [OwnWord, Impatient, Silent, Patient, Deaf, Forgetful])
def test_the_simulator_finds_protocols_that_are_broken(member: type[Member]) -> None:
    def is_broken(seed: int) -> bool:
        try:
            Simulation(seed, member).run()
        except (Broken, json.JSONDecodeError):
            return True
        return False

    assert any(is_broken(seed) for seed in range(300))
