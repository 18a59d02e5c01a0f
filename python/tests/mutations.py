"""Seeds faults into emitted graphs and generated functions, and counts which of them the checks find.

    python python/tests/mutations.py [--minutes 10] [--seed 0] [--models dropout,batch_norm]

In: small models, each traced once and planned for random budgets. Every mutation of the tables `GRAPHS`, `MOVES` and `SOURCES` is applied to
the forward and backward graphs of such a plan, or to a function that was written for one of them. A fault that no check
finds is run: where loss, gradients, buffers and random state have the bits of the original and the peak is not above the planned one, it was no
fault. Anything else was missed, and the command ends with exit code 1.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from mutate_graphs import GRAPHS, Graphs, either
from mutate_moves import MOVES
from mutate_sources import SOURCES, NotPossible, Random, Sources
from remat import checks
from remat.checks.fault import EmittedFault
from remat.codegen import boxed
from subjects import Subject, Written, results_of, subjects
from torch import fx


@dataclass
class Tally:
    """What became of the faults of one kind."""

    applied: int = 0
    caught: int = 0
    harmless: int = 0
    missed: list[str] = field(default_factory=list)


def mutate_graphs(subject: Subject, written: Written, mutation: Graphs, rng: Random, tally: Tally) -> None:
    """Applies a mutation to a copy of the graphs."""
    mutant = written.copy()
    try:
        mutation(mutant, rng)
    except NotPossible:
        return
    tally.applied += 1
    try:
        checks.check_graphs(subject.step, written.plan, mutant.forward, mutant.backward, written.number)
    except EmittedFault:
        tally.caught += 1
        return
    _judge(subject, written, mutant, tally, mutation.__name__)


def mutate_source(subject: Subject, written: Written, mutation: Sources, rng: Random, tally: Tally) -> None:
    """Applies a mutation to the function of one of the graphs."""
    module = fx.GraphModule(subject.step.region.module, either(rng, written))
    function: Any = boxed(module)
    constants = {name: value for name, value in function.__globals__.items() if name.startswith("constant")}
    try:
        source = mutation(function.source, rng)
        if ast.dump(ast.parse(source)) == ast.dump(ast.parse(function.source)):
            return
    except (NotPossible, SyntaxError, ValueError):
        return
    tally.applied += 1
    try:
        checks.check_source(source, constants, module)
    except EmittedFault:
        tally.caught += 1
    else:
        tally.missed.append(f"{subject.name}: {mutation.__name__}\n{source}")


def _judge(subject: Subject, written: Written, mutant: Written, tally: Tally, name: str) -> None:
    try:
        expected, own_peak = results_of(subject, written)
        found, peak = results_of(subject, mutant)
    except Exception as error:  # noqa: BLE001
        tally.missed.append(f"{subject.name}: {name} ends in {type(error).__name__}: {error}")
        return
    # A verified run holds digests beside the plan, so its own peak may be above the planned one.
    if found == expected and peak <= max(own_peak, written.peak):
        tally.harmless += 1
    else:
        tally.missed.append(f"{subject.name}: {name}")


def campaign(names: list[str] | None, seed: int, seconds: float, n_rounds: int | None = None) -> dict[str, Tally]:
    """Random budgets of random models until the time is over."""
    rng = random.Random(seed)
    found = subjects(names)
    tallies = {mutation.__name__: Tally() for mutation in (*GRAPHS, *MOVES, *SOURCES)}
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end and (n_rounds is None or rounds < n_rounds):
        subject = found[rounds % len(found)]
        rounds += 1
        written = subject.write(rng)
        checks.check_graphs(subject.step, written.plan, written.forward, written.backward, written.number)
        for mutation in (*GRAPHS, *(MOVES if subject.step.stores is not None else ())):
            mutate_graphs(subject, written, mutation, rng, tallies[mutation.__name__])
        for change in SOURCES:
            mutate_source(subject, written, change, rng, tallies[change.__name__])
    print(f"{rounds} plans of {len(found)} models")
    return tallies


def table(tallies: dict[str, Tally]) -> str:
    """The tallies as text."""
    lines = ["| fault | seeded | caught | harmless | missed |", "|---|---|---|---|---|"]
    total: Counter[str] = Counter()
    for name, tally in tallies.items():
        row = {"seeded": tally.applied, "caught": tally.caught, "harmless": tally.harmless, "missed": len(tally.missed)}
        total.update(row)
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(str(number) for number in row.values())} |")
    return "\n".join([*lines, f"| all | {' | '.join(str(total[key]) for key in ('seeded', 'caught', 'harmless', 'missed'))} |"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tallies = campaign(arguments.models, arguments.seed, 60 * arguments.minutes)
    print(table(tallies))
    missed = [text for tally in tallies.values() for text in tally.missed]
    for text in missed[:10]:
        print(f"MISSED {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
