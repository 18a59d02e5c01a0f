"""Ranks that agree on plans, with a store and a clock that are made up: every run is given by its seed.

    python python/tests/rank_simulator.py [--seeds 10000] [--first 0]

In: a seed, which decides how many ranks there are, how long every request takes, which of them fail or are answered with an error after
they were carried out, which ranks pause, die, compile another graph or fail to plan, and in which calls which ranks compile.
Out: `Broken` with the first promise that does not hold:

- the ranks that compile in a call all get the same plan, or all plan for themselves, or all fail;
- nobody waits longer than the timeout;
- without a fault all get a plan, also in the call after one that failed;
- where a rank cannot plan, all are told its reason;
- a rank that compiles alone knows it long before the timeout.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from remat.agreement import SILENCE_SECONDS, STORE_SECONDS, Member, Pause, Read, Say, Settle, StoreError, Write
from remat.errors import RankFailure

LONG = 60.0
N_CALLS = 6
# What a request may take beyond the timeout: retries, slow answers and the pauses of a rank.
SLACK = 4 * STORE_SECONDS + SILENCE_SECONDS
# How soon a rank must know that it compiles alone, counted from the moment at which the others have passed the call.
ALONE_SECONDS = 12.0


class Broken(AssertionError):
    """A promise that does not hold."""


class PlanningError(Exception):
    """What a rank may die of while it plans."""


@dataclass
class Faults:
    """What happens in a run."""

    slow: float = 0.0
    lost: float = 0.0
    # Seconds and length of a pause of a rank, and the second in which one dies.
    pauses: dict[int, tuple[float, float]] = field(default_factory=dict)
    deaths: dict[int, float] = field(default_factory=dict)
    # The ranks that compile in a call; those that compile another graph there; and the one that fails there.
    compiles: list[frozenset[int]] = field(default_factory=list)
    others: list[frozenset[int]] = field(default_factory=list)
    fails: list[int | None] = field(default_factory=list)
    is_shared: bool = False
    # A short one ends many rounds at the moment in which they succeed.
    timeout: float = LONG

    @property
    def is_sound(self) -> bool:
        """Whether nothing happens that a plan could fail for."""
        is_disturbed = self.timeout < LONG or self.lost or self.deaths
        return not is_disturbed and all(length < SILENCE_SECONDS - 2 for _, length in self.pauses.values())


@dataclass
class Outcome:
    """What a rank got in a call in which it compiled."""

    kind: str
    text: str
    began: float
    ended: float


class Process:
    """A rank: a program and its beat, which pause and die together."""

    def __init__(self, simulation: Simulation, rank: int, member: type[Member]) -> None:
        self.simulation = simulation
        self.rank = rank
        self.is_alive = True
        self.member = member(rank, simulation.n_ranks, lambda: simulation.time)
        self.outcomes: dict[int, Outcome] = {}
        self.passed: dict[int, float] = {}

    def program(self) -> Generator[Any, Any, None]:
        """Calls a compiled module a few times, and meets the other ranks after each call."""
        simulation, faults = self.simulation, self.simulation.faults
        for call in range(N_CALLS):
            yield Pause(simulation.rng.expovariate(2.0))
            has_failed = False
            if self.rank in faults.compiles[call]:
                has_failed = yield from self._compile(call)
            if has_failed and not simulation.all_failed(call):
                # A rank that cannot run a call which the others run ends, as a program does that catches nothing.
                yield from self.member.depart(RuntimeError("cannot run the call"))
                self.is_alive = False
                return
            if not has_failed:
                self.member.n_calls += 1
            self.passed[call] = simulation.time
            while not simulation.have_met(call):
                if simulation.someone_is_gone(call):
                    self.is_alive = False
                    return
                yield Pause(0.2)

    def _compile(self, call: int) -> Generator[Any, Any, bool]:
        simulation, faults = self.simulation, self.simulation.faults
        graph = "other" if self.rank in faults.others[call] else "same"
        own = {"hash": graph, "budget": 1, "costs": [float(self.rank)], "is_shared": faults.is_shared}

        def make(costs: list[list[float]]) -> str:
            if faults.fails[call] == 0:
                raise PlanningError("no plan")
            return f"plan {call} {max(cost for (cost,) in costs)}"

        def check(plan: str) -> None:
            if faults.fails[call] == self.rank:
                raise PlanningError("not valid")

        began = simulation.time
        kind, text = "", ""
        try:
            plan = yield from self.member.agree(own, make, check, faults.timeout)
            kind, text = ("alone", "") if plan is None else ("plan", plan)
        except (RankFailure, PlanningError) as error:
            kind, text = "failed", str(error)
        self.outcomes[call] = Outcome(kind, text, began, simulation.time)
        return kind == "failed"


class Simulation:
    """A group of ranks."""

    def __init__(self, seed: int, member: type[Member] = Member) -> None:
        self.rng = random.Random(seed)
        self.n_ranks = self.rng.choice([2, 2, 3, 4, 8])
        self.faults = _faults(self.rng, self.n_ranks)
        self.time = 0.0
        self.store: dict[str, str] = {}
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.processes = [Process(self, rank, member) for rank in range(self.n_ranks)]

    def run(self) -> None:
        """Runs until nothing is left to do, and checks what came out."""
        for process in self.processes:
            for generator in (process.program(), process.member.beat()):
                self._resume(process, generator, 0.0, None, None)
        end = N_CALLS * (LONG + SLACK + 60)
        while self.events and self.time < end and any(process.is_alive and len(process.passed) < N_CALLS for process in self.processes):
            self.time, _, action = heapq.heappop(self.events)
            action()
        if self.time >= end:
            raise Broken("a rank waits for ever")
        for call in range(N_CALLS):
            self._check(call)

    def have_met(self, call: int) -> bool:
        """Whether all ranks are done with a call."""
        return all(call in process.passed for process in self.processes)

    def someone_is_gone(self, call: int) -> bool:
        """Whether a rank will never be done with a call."""
        return any(not process.is_alive and call not in process.passed for process in self.processes)

    def all_failed(self, call: int) -> bool:
        """Whether a call failed on all ranks, so that they can go to the next one together."""
        if self.faults.compiles[call] != frozenset(range(self.n_ranks)):
            return False
        return all(process.outcomes[call].kind == "failed" for process in self.processes if call in process.outcomes)

    def _resume(self, process: Process, generator: Any, delay: float, answer: Any, error: Exception | None) -> None:
        heapq.heappush(self.events, (self.time + delay, next(self.order), lambda: self._step(process, generator, answer, error)))

    def _step(self, process: Process, generator: Any, answer: Any, error: Exception | None) -> None:
        death = self.faults.deaths.get(process.rank)
        if death is not None and self.time >= death:
            process.is_alive = False
        if not process.is_alive:
            return
        begin, length = self.faults.pauses.get(process.rank, (0.0, 0.0))
        if begin <= self.time < begin + length:
            self._resume(process, generator, begin + length - self.time, answer, error)
            return
        try:
            request = generator.send(answer) if error is None else generator.throw(error)
        except StopIteration:
            return
        if isinstance(request, Pause):
            self._resume(process, generator, request.seconds, None, None)
        elif isinstance(request, Say):
            self._resume(process, generator, 0.0, None, None)
        else:
            self._request(process, generator, request)

    def _request(self, process: Process, generator: Any, request: Any) -> None:
        """Carries a request out after a while, and answers after another."""
        rng, faults = self.rng, self.faults
        there, back = (rng.expovariate(1 / (0.001 + faults.slow)) for _ in range(2))
        lost = rng.random() if faults.lost else 1.0
        if lost < faults.lost / 2:
            self._resume(process, generator, there + back, None, StoreError("lost"))
            return

        def arrive() -> None:
            answer = self._carry_out(request)
            error = StoreError("no answer") if lost < faults.lost else None
            self._resume(process, generator, back, answer, error)

        heapq.heappush(self.events, (self.time + there, next(self.order), arrive))

    def _carry_out(self, request: Any) -> str | None:
        if isinstance(request, Write):
            self.store[request.key] = request.text
        elif isinstance(request, Settle):
            return self.store.setdefault(request.key, request.text)
        elif isinstance(request, Read):
            return self.store.get(request.key)
        return None

    def _check(self, call: int) -> None:
        found = {p.rank: p.outcomes[call] for p in self.processes if call in p.outcomes}
        kinds = {outcome.kind for outcome in found.values()}
        if len(kinds) > 1 or len({outcome.text for outcome in found.values() if outcome.kind == "plan"}) > 1:
            raise Broken(f"call {call}: the ranks got {found}")
        is_reached = all(call in p.passed or call in p.outcomes or not p.is_alive for p in self.processes)
        everybody = self.faults.compiles[call] == frozenset(range(self.n_ranks))
        if kinds == {"plan"} and not everybody:
            raise Broken(f"call {call}: a plan without rank {set(range(self.n_ranks)) - self.faults.compiles[call]}")
        for rank, outcome in found.items():
            pause = self.faults.pauses.get(rank, (0.0, 0.0))[1]
            if outcome.ended - outcome.began > self.faults.timeout + SLACK + pause:
                raise Broken(f"call {call}: rank {rank} waited for {outcome.ended - outcome.began:.1f} s")
        if self.faults.is_sound and is_reached and found:
            self._check_sound(call, found, kinds, everybody)

    def _check_sound(self, call: int, found: dict[int, Outcome], kinds: set[str], everybody: bool) -> None:
        others, fails, is_shared = self.faults.others[call], self.faults.fails[call], self.faults.is_shared
        if everybody:
            # Another graph is a fault where nothing was agreed on before, or where all must run the same plan.
            had_plan = any(p.outcomes[c].kind == "plan" for p in self.processes for c in range(call) if c in p.outcomes)
            expected = "failed" if others and (is_shared or not had_plan) else "alone" if others else "failed" if fails is not None else "plan"
        else:
            expected = "failed" if is_shared else "alone"
            others_passed = [p.passed[call] for p in self.processes if call in p.passed and p.rank not in found]
            for rank, outcome in found.items():
                since = max(outcome.began, min(others_passed, default=outcome.began))
                if outcome.ended - since > ALONE_SECONDS + sum(length for _, length in self.faults.pauses.values()):
                    raise Broken(f"call {call}: rank {rank} compiled alone and noticed after {outcome.ended - since:.1f} s")
        if kinds != {expected}:
            raise Broken(f"call {call}: expected {expected}, got {found}")
        if everybody and fails is not None and not others and not all("PlanningError" in o.text or rank == fails for rank, o in found.items()):
            raise Broken(f"call {call}: not all were told why rank {fails} failed: {found}")


def _faults(rng: random.Random, n_ranks: int) -> Faults:
    everybody = frozenset(range(n_ranks))
    faults = Faults(slow=rng.choice([0.0, 0.002, 0.02, 0.1]), is_shared=rng.random() < 0.3)
    if rng.random() < 0.3:
        faults.timeout = rng.choice([0.2, 0.5, 1.0, 2.0])
    if rng.random() < 0.3:
        faults.lost = rng.choice([0.001, 0.01, 0.1])
    if rng.random() < 0.4:
        faults.pauses[rng.randrange(n_ranks)] = (rng.uniform(0, 30), rng.choice([1.0, 3.0, 8.0, 30.0]))
    if rng.random() < 0.25:
        faults.deaths[rng.randrange(n_ranks)] = rng.uniform(0, 30)
    for call in range(N_CALLS):
        draw = rng.random()
        compiles = everybody if call == 0 or draw < 0.5 else frozenset(r for r in everybody if rng.random() < 0.4)
        faults.compiles.append(compiles if draw < 0.8 or call == 0 else frozenset())
        faults.others.append(frozenset({rng.randrange(n_ranks)}) if rng.random() < 0.1 else frozenset())
        faults.fails.append(rng.randrange(n_ranks) if rng.random() < 0.15 else None)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    n_broken = 0
    kinds: dict[str, int] = {}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Broken as broken:
            n_broken += 1
            print(f"seed {seed}: {broken}")
        for outcome in (outcome for process in simulation.processes for outcome in process.outcomes.values()):
            kinds[outcome.kind] = kinds.get(outcome.kind, 0) + 1
    text = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    print(f"{arguments.seeds} seeds, {n_broken} broken; ranks in rounds: {text}")
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())
