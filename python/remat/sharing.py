"""One budget for everything that a call of torch.compile captures, and a watch over what it does not.

A session is one call of torch.compile; all regions that Dynamo captures for it get the same options object. Usually that is one
region, the whole model, which is planned before it runs. Where Python code cannot be traced, the model comes in parts, one
by one and while the first step runs. So the parts of a first step save as little as they can, and when it ends, all are
planned together (`together`).

Some memory belongs to no region: a loss outside of the module, work between parts, gradients of earlier backwards. The first
step of each shape and some later ones are measured (`watch`, `occasions`), gradients are looked at before every step. What is found
is counted, by another plan; what does not fit is said once, with the number and the remedy, or raised with `strict=True`.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import inductor_fit, messages, neighbours, torch_compat, watch
from .budget import in_bytes
from .errors import BudgetExceeded, BudgetTooSmall, BudgetWarning
from .measure import local
from .occasions import Occasions
from .options import Options
from .pipeline import decide, report
from .planner import Planned, book_of, find, lowest
from .problem import Outside, gradient_bytes, with_outside
from .release import leaves_of
from .runner import Runner, Variant, buckets
from .schedule import number_of
from .together import Call, Gap, Profile, Together, keep_all_peak, least_saving, localized, peak
from .under_way import Running, TrainingStep, all_gradients, gradients_of, held_gradients, held_in_backward
from .under_way import kept_beyond_plan, note_leaves, storage_keys
from .unknown_loss import UNSEEN, attempts, held_always, is_relaxed, with_room
from .watch import Watch

# Plans that are kept for a model, one for each shape and amount of gradients; the least recently used goes first.
MAX_PLANS = 8
# Measuring slows every operation down. A step that other models have overtaken so often may never have its backward.
MAX_OVERTAKEN = 8

_sessions: dict[int, Session] = {}
# What is measured now. Steps of several models may overlap, as those of the two halves of a GAN do; each has its own watch.
_measuring: list[Session] = []
Key = tuple[Any, ...]


class Session:
    """The regions of one model, under one budget."""

    def __init__(self, options: Any) -> None:
        # Kept alive, because the identity of the options names the session.
        self.options = options
        self.model: Callable[[], nn.Module | None] = lambda: None
        # Whether any region so far was only a part of the model.
        self.is_cut = False
        # Regions that were captured while gradients were wanted, and runs of all of them.
        self.n_regions = 0
        self.n_runs = 0
        self.n_outside = 0
        self.n_overtaken = 0
        self.occasions = Occasions()
        # Whether calls go through `enter` and `leave`, as those of modules that are compiled in place do.
        self.is_measurable = False
        self.meter: Watch | None = None
        self.said: set[str] = set()
        self.runners: list[Runner] = []
        self.waiting: dict[int, Running] = {}
        self.leaves: dict[int, Any] = {}
        self.step: TrainingStep | None = None
        # A measured step whose last results were dropped without a backward.
        self.unlearnt: TrainingStep | None = None
        # `None`: as assumed.
        self.profiles: dict[Key, Profile | None] = {}
        self.sizes: dict[Key, dict[int, tuple[int, ...]]] = {}
        self.budgets: dict[Key, int] = {}
        self.plans: OrderedDict[tuple[Key, int], dict[int, Variant]] = OrderedDict()

    def know(self, model: Any) -> None:
        """Tells which model is compiled, where that is known."""
        if isinstance(model, nn.Module):
            options = self.options
            self.model = weakref.ref(model, lambda _: forget(options))

    def share(self) -> None:
        """Says that the regions to come are parts of one model, as the caller wants it."""
        self.is_cut = True
        self.said.add("cut")

    # While compiling.

    def add(self, runner: Runner, *, is_part: bool) -> Variant:
        """Takes a region in and gives its first plan."""
        self.runners.append(runner)
        options = runner.options
        if is_part and options.budget is not None:
            self.say("cut", messages.CUT)
            return runner.write(runner.step, least_saving(runner.step, options))
        sizes = runner.example_sizes() if runner.can_switch else ()
        return self._plan_whole(runner, sizes, gradients=0, is_first=True)

    def _plan_whole(self, runner: Runner, sizes: tuple[int, ...], *, gradients: int, is_first: bool = False) -> Variant:
        """A plan for a region that is the whole model, at the top of its bucket or, where that does not fit, for its size.

        What is assumed of the caller is left to the measured first step where only that keeps a plan from fitting.
        """
        options, first_error = runner.options, None
        if runner.is_fused:
            return self._fit_whole(runner, gradients, is_first=is_first)
        for attempt, step in attempts(runner, sizes):
            if not gradients:
                self.budgets.setdefault((runner.index, attempt), _budget(options, step.keep_all_peak))
            step = with_outside(step, dataclasses.replace(step.outside, always=step.outside.always + gradients))
            try:
                if is_first:
                    variant = runner.write(step, decide(step, options))
                else:
                    budget = self.budgets.get((runner.index, attempt)) or _budget(options, step.keep_all_peak - gradients)
                    begin = time.perf_counter()
                    variant = runner.write(step, find(step, budget, options, book_of(step, options)))
                    report(step, variant.planned, options, time.perf_counter() - begin)
            except BudgetTooSmall as error:
                if attempt == sizes:
                    first_error = first_error or error
            else:
                if is_relaxed(step) and self.meter is None:
                    self.say("assumed", UNSEEN)
                self._keep((runner.index, attempt), gradients, {runner.index: variant})
                # Otherwise the error and this frame would hold each other, and with it all that called it and their tensors.
                del first_error
                return variant
        assert first_error is not None
        try:
            raise first_error
        finally:
            del first_error

    def _fit_whole(self, runner: Runner, gradients: int, *, is_first: bool) -> Variant:
        """The same for Inductor, whose code decides what a plan holds."""
        key, begin = (runner.index, ()), time.perf_counter()
        budget_of: Callable[[int], int] = lambda plain: self.budgets.setdefault(key, _budget(runner.options, plain))  # noqa: E731
        variant = inductor_fit.whole(runner, gradients, budget_of, self.say)
        self._keep(key, gradients, {runner.index: variant})
        if not is_first:
            report(variant.step, variant.planned, runner.options, time.perf_counter() - begin, variant.keep_all_peak)
        return variant

    # While running.

    def enter(self, device_type: str, shapes: Any) -> None:
        """Called before each call of the compiled module, with the shapes of its arguments: begins and ends measuring.

        Inside, torch.compile and autograd keep the modes and restore them, so it is too late there.
        """
        if torch_compat.is_in_backward():
            return
        step, self.unlearnt = self.unlearnt, None
        if step is not None:
            self._learn(step)
        if not self.waiting:
            for other in list(_measuring):
                other._overtake(self)
        watch.clear()
        if torch.is_grad_enabled() and self not in _measuring and self.occasions.is_foreseen(shapes):
            meter = Watch(device_type)
            if meter.start():
                self.meter = meter
                _measuring.append(self)

    def leave(self) -> None:
        """Called after each call of the compiled module: ends measuring where no region ran, or one that need not be measured."""
        if self.meter is not None:
            self.meter.stop()
            self.meter = None
            _measuring.remove(self)
        if not torch_compat.is_in_backward():
            watch.clear()

    def forward(self, runner: Runner, arguments: list[Any]) -> Any:
        """Runs the forward of a region."""
        self.n_runs += 1
        step = self._current_step(runner, arguments)
        index = step.n_calls
        step.n_calls += 1
        variant = step.choice.get(runner.index) or runner.variants[0]
        running = Running(runner, variant)
        if self.occasions.see_calls(step.key, step.n_calls) and step.meter is None:
            self.say("calls", messages.waiting_calls(variant, self.saved_bytes(), self._budget_of(step, variant)))
        if not self.is_measurable and not self.is_cut and "neighbours" not in self.said:
            message = neighbours.excess(variant, runner.options, arguments, [s for s in _sessions.values() if s.waiting])
            note_leaves(self.leaves, arguments)
            self.say("neighbours", message)
        if runner.receiver is not None and not self.waiting:
            running.leaves = leaves_of(arguments)
        meter = step.meter
        if meter is not None:
            step.sizes[runner.index] = buckets(runner.sizes(arguments))
            self._note_gap(step, meter)
            own = meter.own(arguments)
            outside = meter.current - own - step.seen_gradients
            waiting = self._waiting()
            step.profile.calls.append(Call(runner.index, outside - self.saved_bytes(), waiting))
            running.profile_index = index
        results = variant.forward(arguments)
        mark = results[runner.n_outputs].untyped_storage()
        key = mark._cdata
        running.reference = weakref.ref(mark, lambda _: self._forget(key))
        self.waiting[key] = running
        if meter is not None:
            meter.mark()
        return results

    def backward(self, runner: Runner, arguments: list[Any]) -> Any:
        """Runs the backward of a region, by the plan of its forward."""
        mark = arguments[runner.n_numbers]
        variant = runner.variants[number_of(mark)]
        key = mark.untyped_storage()._cdata
        del mark
        step = self.step
        meter = None if step is None else step.meter
        if meter is not None and step is not None:
            self._note_gap(step, meter)
        running = self.waiting.pop(key, None)
        place, expected = None if running is None else running.profile_index, 0
        if step is not None and meter is not None and running is not None and running.profile_index is not None:
            expected = self._note_backward(step, meter, running)
            if not step.is_ending:
                step.is_ending = True
                torch_compat.after_backward(lambda: self._end_backward(step))
        is_alone = running is not None and step is not None and step.n_calls == 1
        leaves = running.leaves if running is not None and is_alone else {}
        given = storage_keys(arguments[-len(variant.step.region.tangents) :]) if meter is not None else set()
        del running
        results = runner.run_backward(variant, arguments, leaves)
        kept = kept_beyond_plan(runner, variant)
        if kept:
            # They are in every plan from now on.
            self.plans.clear()
        if meter is not None and step is not None:
            excess = meter.mark() - expected - kept
            if place is not None:
                # More than expected is what hooks use while gradients are given away.
                call, is_free = step.profile.calls[place], given.isdisjoint(meter.live)
                call = dataclasses.replace(call, backward=call.backward + max(excess, 0), frees_tangents=is_free)
                step.profile.calls[place] = call
        elif kept:
            self.say("hooks", messages.kept_by_hooks(kept))
        return results

    def _current_step(self, runner: Runner, arguments: list[Any]) -> TrainingStep:
        step = self.step
        if step is None or (not self.waiting and not torch_compat.is_in_backward()):
            self.step = step = self._begin_step(runner, arguments)
        return step

    def _begin_step(self, runner: Runner, arguments: list[Any]) -> TrainingStep:
        if self.step is not None and self.step.meter is not None:
            # Its backward never came.
            self._stop(self.step)
        note_leaves(self.leaves, arguments)
        sizes = runner.sizes(arguments)
        key = (runner.index, buckets(sizes))
        gradients = held_gradients(self.leaves, runner.options)
        step = TrainingStep(key, gradients, gradients_of(self.leaves), self._choice(runner, sizes, key, gradients))
        step.is_inside = any(other is not self and other.waiting for other in _sessions.values())
        is_due = self.occasions.begin(key)
        if self.meter is not None and is_due:
            self._adopt(step)
        if self.occasions.n_steps == 2 or (is_due and self.occasions.n_steps > 2):
            # From the second step on, optimizers have their state.
            self.say("optimizer", messages.forgotten_optimizer(runner.options, self.leaves, step.choice.values()))
        step.later = step.choice
        if step.meter is not None and key not in self.profiles:
            step.choice = {i: with_room(self.runners[i], v, self._budget_of(step, v)) for i, v in step.later.items()}
        return step

    def _budget_of(self, step: TrainingStep, variant: Variant) -> int:
        """The budget of a step with one region."""
        return self.budgets.get(step.key) or _budget(self.runners[step.key[0]].options, variant.step.keep_all_peak)

    def _choice(self, runner: Runner, sizes: tuple[int, ...], key: Key, gradients: int) -> dict[int, Variant]:
        """The plans for a step."""
        known = self.plans.get((key, gradients)) or self.plans.get(((runner.index, sizes), gradients))
        if known is not None:
            self._keep(key if (key, gradients) in self.plans else (runner.index, sizes), gradients, known)
            return known
        profile = self.profiles.get(key)
        if profile is None and self.is_cut:
            return {}
        try:
            if profile is not None:
                return self._plan_together(key, profile, gradients)
            return {runner.index: self._plan_whole(runner, sizes, gradients=gradients)}
        except BudgetTooSmall as error:
            if not gradients:
                raise
            choice = self._lowest(runner, sizes)
            self.say("gradients", messages.earlier_gradients(gradients, error), error)
        self._keep(key, gradients, choice)
        return choice

    def _keep(self, key: Key, gradients: int, choice: dict[int, Variant]) -> None:
        self.plans[(key, gradients)] = choice
        self.plans.move_to_end((key, gradients))
        if len(self.plans) > MAX_PLANS:
            self.plans.popitem(last=False)

    def _lowest(self, runner: Runner, sizes: tuple[int, ...]) -> dict[int, Variant]:
        if self.is_cut:
            return {}
        step = runner.step_for(buckets(sizes))
        return {runner.index: runner.write(step, lowest(step, runner.options, book_of(step, runner.options)))}

    def _forget(self, key: int) -> None:
        self.waiting.pop(key, None)
        step = self.step
        if not self.waiting and step is not None and step.meter is not None and not step.is_ending:
            # The results were dropped without a backward. Nothing can be planned here, in the middle of anything.
            self._stop(step)
            self.unlearnt = step if step.measured else None

    # Measuring.

    def _adopt(self, step: TrainingStep) -> None:
        """Measures a step."""
        meter = self.meter
        assert meter is not None
        step.meter, self.meter = meter, None
        self.occasions.begin_measuring(step.key)
        self.n_overtaken = 0
        model = self.model()
        known = [] if model is None else [local(t) for t in (*model.parameters(), *model.buffers())]
        leaves = [leaf for reference in self.leaves.values() if (leaf := reference()) is not None]
        meter.own([*known, *leaves, *(local(leaf.grad) for leaf in leaves if leaf.grad is not None)])
        meter.mark()

    def _waiting(self) -> tuple[int, ...]:
        return tuple(running.runner.index for running in self.waiting.values())

    def saved_bytes(self) -> int:
        """What the regions that wait for their backward have saved."""
        return sum(running.variant.phases.saved for running in self.waiting.values())

    def _note_gap(self, step: TrainingStep, meter: Watch) -> None:
        if step.n_calls > 1 or step.profile.calls:
            highest = meter.mark()
            step.profile.gaps.append(Gap(highest - step.seen_gradients - self.saved_bytes(), self._waiting()))

    def _note_backward(self, step: TrainingStep, meter: Watch, running: Running) -> int:
        """Notes what is held outside of a backward, and returns the peak that its plan has with that."""
        place = running.profile_index
        assert place is not None
        held = held_in_backward(running.variant)
        outside = meter.current - held - step.seen_gradients - self.saved_bytes()
        call = dataclasses.replace(step.profile.calls[place], backward=outside, backward_waiting=self._waiting())
        step.profile.calls[place] = call
        return meter.current + running.variant.phases.backward - held + running.variant.step.region.fixed_bytes

    def _overtake(self, other: Session) -> None:
        """Called when another model begins a step while one of this model is measured."""
        if other is self or self.step is None:
            return
        self.n_overtaken += 1
        if self.n_overtaken > MAX_OVERTAKEN:
            self._stop(self.step)

    def _stop(self, step: TrainingStep) -> None:
        if step.meter is not None:
            step.meter.stop()
            step.meter = None
            _measuring.remove(self)

    def _end_backward(self, step: TrainingStep) -> None:
        """Called when autograd has finished; a step that still waits for another backward continues."""
        step.is_ending = False
        meter = step.meter
        if meter is None:
            return
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            # Among several ranks the buckets of the gradients would be seen here, which are reserved already.
            self._note_gap(step, meter)
        step.measured = meter.peak
        if not self.waiting:
            self._stop(step)
            self._learn(step)

    def _learn(self, step: TrainingStep) -> None:
        """Plans again where the measured step shows that the plans do not hold the budget."""
        key, profile, gradients, measured = step.key, step.profile, step.gradients, step.measured
        self.occasions.learn(key, len(profile.calls))
        is_first = key not in self.profiles
        if not is_first and measured <= (self.budgets.get(key) or measured):
            return
        first = self.runners[profile.calls[0].region]
        is_simple = not self.is_cut and len(profile.calls) == 1
        if is_simple:
            variant = step.later[first.index]
            always = held_always(variant.step)
            budget = self._budget_of(step, variant)
            _, local = localized(profile)
            is_known = variant.step.outside.kept == first.kept
            if is_known and peak([variant.step], [variant.phases], local, always) <= budget and measured <= budget:
                self.profiles[key] = None
                return
        self.profiles[key], self.sizes[key] = profile, step.sizes
        for known in [known for known in self.plans if (known[0][0], buckets(known[0][1])) == key]:
            del self.plans[known]
        try:
            self._plan_together(key, profile, gradients)
        except BudgetTooSmall as error:
            if self.is_cut:
                raise
            self.say("outside", messages.too_much_outside(measured, error, has_hooks=bool(first.kept)), error)
            self.profiles[key] = None
            self._keep(key, gradients, step.choice)
            return
        budget = self.budgets[key]
        if measured > budget:
            has_neighbours = self.n_overtaken > 0 or step.is_inside
            message = messages.found_outside(measured, budget, is_first=is_first, has_neighbours=has_neighbours)
            self.say("first" if is_first else f"again {measured}", message)

    def _plan_together(self, key: Key, profile: Profile, gradients: int) -> dict[int, Variant]:
        """Plans for all regions of a profile."""
        regions, local = localized(profile)
        runners = [self.runners[region] for region in regions]
        steps = [runner.step_for(self.sizes[key][runner.index]) for runner in runners]
        options = runners[0].options
        # With `accumulates`, each step counts the gradients of its own region, but those of all regions are there.
        earlier = [gradient_bytes(step.region) if options.accumulates else 0 for step in steps]
        always = max(step.outside.always - own for step, own in zip(steps, earlier, strict=True))
        always += int(min(sum(earlier), all_gradients(self.model()))) + gradients
        keep_all = keep_all_peak(steps, local, always)
        if key not in self.budgets:
            self.budgets[key] = _budget(options, keep_all - gradients)
        begin = time.perf_counter()
        if options.compiler == "inductor":
            variants = inductor_fit.together(runners, steps, local, always, self.budgets[key], options)
        else:
            plans: list[Planned] = Together(steps, local, always, options).plan(self.budgets[key])
            variants = [runner.write(step, plan) for runner, step, plan in zip(runners, steps, plans, strict=True)]
        choice = {}
        for runner, step, variant in zip(runners, steps, variants, strict=True):
            choice[runner.index] = variant
            report(step, variant.planned, options, time.perf_counter() - begin, keep_all)
        self._keep(key, gradients, choice)
        return choice

    def say(self, kind: str, message: str | None, error: Exception | None = None) -> None:
        """Warns once of each kind, if there is anything to say; with `strict`, raises where a budget is not kept."""
        if message is None:
            return
        is_strict = bool(self.runners) and self.runners[0].options.strict
        if is_strict and kind != "cut":
            raise error or BudgetExceeded(message)
        if kind not in self.said:
            self.said.add(kind)
            warnings.warn(message, BudgetWarning, stacklevel=2)


def _budget(options: Options, keep_all: int) -> int:
    return keep_all if options.budget is None else in_bytes(options.budget, keep_all)


def session(options: Any) -> Session:
    """The session of a call of torch.compile."""
    if id(options) not in _sessions:
        _sessions[id(options)] = Session(options)
    return _sessions[id(options)]


def forget(options: Any) -> None:
    """Ends the session of these options, so that the next region with them begins one of its own."""
    ended = _sessions.pop(id(options), None)
    if ended is not None and ended.step is not None:
        ended._stop(ended.step)
