"""One budget for all regions of a model: plans that hold it together.

In: the problems of the regions, and a profile of one training step: every call of a region, what was held outside of it in
forward and in backward, and what was used between the calls. Out: one plan per region. What a profile says does not depend
on the plans it was made with: bytes that a plan keeps from forward to backward (*saved*) are taken out and stand as the list
of calls that were waiting for their backward.

What is left above everything that no plan changes is shared by need: each region may save the same fraction of what lies
between the least it can save and what it would save without recomputation. The largest fraction that fits is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .budget import format_bytes
from .errors import BudgetTooSmall
from .options import Options
from .planner import Planned, book_of, find_if_any, lowest, proven_floor
from .problem import Outside, Step, output_values, with_outside

# Fractions of their need that regions may save, tried from the top.
FRACTIONS = (1.0, 0.7, 0.5, 0.35, 0.2, 0.1, 0.0)
# Budgets above the least conceivable one that are tried when a floor is sought.
FLOOR_STEPS = (1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)


@dataclass(frozen=True)
class Call:
    """One call of a region in a step; `waiting` are the regions of other calls between their forward and their backward."""

    region: int
    forward: int
    forward_waiting: tuple[int, ...]
    backward: int = 0
    backward_waiting: tuple[int, ...] = ()
    # Whether the gradients that backward was given were gone when it returned.
    frees_tangents: bool = False


@dataclass(frozen=True)
class Gap:
    """Bytes in use between calls."""

    bytes: int
    waiting: tuple[int, ...]


@dataclass
class Profile:
    """What was seen of one training step."""

    calls: list[Call] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def localized(profile: Profile) -> tuple[list[int], Profile]:
    """The regions of a profile, and the same profile with places in this list instead of regions."""
    regions = sorted({call.region for call in profile.calls})
    place = {region: index for index, region in enumerate(regions)}
    there: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda waiting: tuple(place[region] for region in waiting)  # noqa: E731
    calls = [
        replace(c, region=place[c.region], forward_waiting=there(c.forward_waiting), backward_waiting=there(c.backward_waiting))
        for c in profile.calls
    ]
    return regions, Profile(calls, [Gap(gap.bytes, there(gap.waiting)) for gap in profile.gaps])


@dataclass(frozen=True)
class Phases:
    """Bytes that a plan needs beside what the caller owns: peaks of the passes, and what waits between them."""

    forward: int
    saved: int
    backward: int


def phases(step: Step, planned: Planned) -> Phases:
    """Runs a plan on paper. Outputs, which the caller holds, count in both passes but not as saved."""
    region = step.region
    outputs = output_values(region)
    size = lambda values: sum(region.values[v].bytes for v in values if v < len(region.values))  # noqa: E731
    live: set[int] = set()
    peaks = {"forward": 0, "backward": 0}
    phase, saved = "forward", 0
    for kind, index, *_ in planned.steps:
        if kind != "compute":
            if kind == "free":
                live.discard(index)
            elif kind == "in":
                live.add(index)
                peaks[phase] = max(peaks[phase], size(live))
            continue
        op = step.ops[index]
        if op is None:
            saved = size(live - outputs)
            phase = "backward"
            live.update(value for node in region.tangents for value in region.needs[node])
        else:
            live.update(op.makes)
        workspace = 0 if op is None else step.workspaces.get(op.node, 0)
        peaks[phase] = max(peaks[phase], size(live) + workspace)
    return Phases(peaks["forward"], saved, peaks["backward"])


def peak(steps: list[Step], of_region: list[Phases], profile: Profile, always: int) -> int:
    """The peak of a whole step with these plans."""
    held = [0]
    for call in profile.calls:
        fixed, own = steps[call.region].region.fixed_bytes, of_region[call.region]
        waiting = lambda regions: sum(of_region[r].saved for r in regions)  # noqa: E731
        held.append(fixed + own.forward + call.forward + waiting(call.forward_waiting))
        held.append(fixed + own.backward + call.backward + waiting(call.backward_waiting))
    held += [gap.bytes + sum(of_region[r].saved for r in gap.waiting) for gap in profile.gaps]
    return always + max(held)


def keep_all_peak(steps: list[Step], profile: Profile, always: int) -> int:
    """The peak of a whole step without recomputation."""
    return peak(steps, [phases(step, Planned.read(step.keep_all, 0)) for step in steps], profile, always)


class Together:
    """Plans for the regions of one profile."""

    def __init__(self, steps: list[Step], profile: Profile, always: int, options: Options) -> None:
        self.steps = steps
        self.profile = profile
        self.always = always
        self.options = options
        self.most = [phases(step, Planned.read(step.keep_all, 0)).saved for step in steps]
        self.least_plans = [least_saving(step, options) for step in steps]
        self.least = [phases(step, plan).saved for step, plan in zip(steps, self.least_plans, strict=True)]

    def plan(self, budget: int) -> list[Planned]:
        """The plans for a budget, or an error with one that works."""
        plans = self._within(budget)
        if plans is None:
            raise self._too_small(budget)
        return plans

    def _within(self, budget: int) -> list[Planned] | None:
        above = 1.0
        for fraction in FRACTIONS if self._has_waiting else FRACTIONS[:1]:
            plans = self._at(fraction, budget)
            if plans is not None:
                # The truth lies between the last two.
                middle = self._at((above + fraction) / 2, budget) if above > fraction else None
                return middle or plans
            above = fraction
        return None

    def _at(self, fraction: float, budget: int) -> list[Planned] | None:
        """Plans that save this fraction of their need, where they keep the budget."""
        limits = [low + int(fraction * max(high - low, 0)) for low, high in zip(self.least, self.most, strict=True)]
        if self._is_hopeless(limits, budget):
            return None
        plans: list[Planned] = []
        for index in range(len(self.steps)):
            planned = self._plan_region(index, limits, budget)
            if planned is None:
                return None
            plans.append(planned)
        reached = [phases(step, plan) for step, plan in zip(self.steps, plans, strict=True)]
        return plans if peak(self.steps, reached, self.profile, self.always) <= budget else None

    @property
    def _has_waiting(self) -> bool:
        calls = self.profile.calls
        return len(calls) > 1 or any(call.forward_waiting or call.backward_waiting for call in calls)

    def _is_hopeless(self, limits: list[int], budget: int) -> bool:
        """Whether what is held between calls alone is above the budget."""
        if not self._has_waiting:
            return False
        return any(self.always + gap.bytes + sum(limits[r] for r in gap.waiting) > budget for gap in self.profile.gaps)

    def _plan_region(self, index: int, limits: list[int], budget: int) -> Planned | None:
        step = with_outside(self.steps[index], self._outside(index, limits, budget))
        return find_if_any(step, budget, self.options, book_of(step, self.options))

    def _outside(self, index: int, limits: list[int], budget: int) -> Outside:
        """What a region must leave free, when every region saves as much as its limit."""
        waiting = lambda regions: sum(limits[r] for r in regions)  # noqa: E731
        calls = [call for call in self.profile.calls if call.region == index]
        region = self.steps[index].region
        # Less than nothing: outputs that the caller has dropped. Among several calls it may also be what two of them share.
        least = 0 if self._has_waiting else -(region.fixed_bytes + self.always)
        forward = max(max(call.forward + waiting(call.forward_waiting), least) for call in calls)
        backward = max(max(call.backward + waiting(call.backward_waiting), least) for call in calls)
        always = self.always + min(forward, backward)
        tangents = frozenset().union(*(region.needs[node] for node in region.tangents))
        lasting = sum(region.values[v].bytes for v in output_values(region) | tangents)
        at_boundary = region.fixed_bytes + self.always + max(forward, backward) + lasting
        gaps = [gap for gap in self.profile.gaps if index in gap.waiting]
        need = max((self.always + gap.bytes + waiting(gap.waiting) - limits[index] for gap in gaps), default=0)
        if self._has_waiting:
            need = max(need, budget - limits[index])
        return Outside(
            always=always,
            forward=max(forward - backward, 0),
            backward=max(backward - forward, 0),
            between=max(need - at_boundary, 0),
            frees_tangents=all(call.frees_tangents for call in calls),
            kept=self.steps[index].outside.kept,
        )

    def _too_small(self, budget: int) -> BudgetTooSmall:
        least = [phases(step, plan) for step, plan in zip(self.steps, self.least_plans, strict=True)]
        start = max(peak(self.steps, least, self.profile, self.always), budget + 1)
        highest = max(keep_all_peak(self.steps, self.profile, self.always), start)
        floor, reached = highest, None
        for factor in FLOOR_STEPS:
            floor = min(int(start * factor), highest)
            reached = self._within(floor)
            if reached is not None or floor == highest:
                break
        parts = f"the {len(self.steps)} parts of the model together" if len(self.steps) > 1 else "the step"
        message = (
            f"the budget of {format_bytes(budget)} is too small: no plan was found for {parts} with what is held outside"
            f" of them; the floor is {format_bytes(floor)} ({floor} bytes); raise the budget, make the batch smaller,"
            " or lower the reserved memory"
        )
        tightest = max((proven_floor(step) for step in self.steps), key=lambda bound: int(bound["bytes"]))
        return BudgetTooSmall(
            message, budget=budget, lowest_peak=floor, proven_floor=tightest["bytes"], op=tightest["name"], source=None
        )


def least_saving(step: Step, options: Options) -> Planned:
    """A plan that saves as little as possible between the passes, without a much higher peak than there must be."""
    kept = step.outside.kept
    free = with_outside(step, Outside(between=0, kept=kept))
    need = lowest(free, options, book_of(free, options)).peak - step.region.fixed_bytes
    step = with_outside(step, Outside(between=max(need, 0), kept=kept))
    return lowest(step, options, book_of(step, options))
