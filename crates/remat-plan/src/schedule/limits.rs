//! When to stop: a deadline in time, or an amount of work that is the same on every machine.

use crate::outcome::StopReason;
use crate::request::Request;
use std::time::{Duration, Instant};

/// Typical speed of one processor.
const WORK_PER_SECOND: f64 = 2e8;

/// Work is counted in touched operands, about a nanosecond or ten each.
pub(crate) struct Limits {
    begin: Instant,
    deadline: Option<Instant>,
    work_left: f64,
    spent: f64,
    stopped: Option<StopReason>,
}

impl Limits {
    /// Limits of a whole request; `unit_work` is the work of effort 1.
    pub(crate) fn new(request: &Request, unit_work: f64) -> Limits {
        let effort = match (request.effort, request.time_limit) {
            (Some(effort), _) => effort.max(0.0),
            (None, None) => 1.0,
            (None, Some(_)) => f64::INFINITY,
        };
        let deadline = request.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        Limits { begin: Instant::now(), deadline, work_left: effort * unit_work, spent: 0.0, stopped: None }
    }

    /// A limit on work alone.
    pub(crate) fn of_work(work: f64) -> Limits {
        Limits { begin: Instant::now(), deadline: None, work_left: work, spent: 0.0, stopped: None }
    }

    /// Takes time away from the deadline, for what has to be done afterwards.
    pub(crate) fn reserve(&mut self, time: Duration) {
        self.deadline = self.deadline.map(|deadline| deadline.checked_sub(time).unwrap_or(self.begin));
    }

    /// What is left until the deadline, if there is one.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The work that can be done within the limits, where time is converted at a typical speed.
    pub(crate) fn expected_work(&self) -> f64 {
        let within_time = self.time_left().map_or(f64::INFINITY, |time| time.as_secs_f64() * WORK_PER_SECOND);
        self.work_left.min(within_time).max(0.0)
    }

    /// Limits for a part of the work: a share of what is left of the work and of the time.
    pub(crate) fn part(&self, share: f64) -> Limits {
        let begin = Instant::now();
        let deadline = self
            .deadline
            .map(|deadline| begin + deadline.saturating_duration_since(begin).mul_f64(share.clamp(0.0, 1.0)));
        Limits { begin, deadline, work_left: self.work_left * share, spent: 0.0, stopped: None }
    }

    /// Limits for a part of at most this much work.
    pub(crate) fn part_of_work(&self, work: f64) -> Limits {
        Limits {
            begin: Instant::now(),
            deadline: self.deadline,
            work_left: work.min(self.work_left),
            spent: 0.0,
            stopped: None,
        }
    }

    /// Runs a part of the work within a share of what is left.
    pub(crate) fn within<T>(&mut self, share: f64, run: impl FnOnce(&mut Limits) -> T) -> T {
        let mut part = self.part(share);
        let result = run(&mut part);
        self.absorb(&part);
        result
    }

    /// Work that was done within these limits.
    pub(crate) fn spent(&self) -> f64 {
        self.spent
    }

    /// Counts the work of a part.
    pub(crate) fn absorb(&mut self, part: &Limits) {
        self.spend(part.spent);
    }

    /// Counts work; says whether to continue.
    pub(crate) fn spend(&mut self, work: f64) -> bool {
        self.work_left -= work;
        self.spent += work;
        if self.stopped.is_none() {
            if self.work_left < 0.0 {
                self.stopped = Some(StopReason::WorkLimit);
            } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.stopped = Some(StopReason::TimeLimit);
            }
        }
        self.stopped.is_none()
    }

    /// The part of the limits that is used up, from 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        let of_work = if self.work_left.is_finite() {
            self.spent / (self.spent + self.work_left).max(1.0)
        } else {
            0.0
        };
        let of_time = self.deadline.map_or(0.0, |deadline| {
            let whole = deadline.saturating_duration_since(self.begin).as_secs_f64();
            if whole > 0.0 { self.begin.elapsed().as_secs_f64() / whole } else { 1.0 }
        });
        of_work.max(of_time).clamp(0.0, 1.0)
    }

    /// Why the work stopped; the search is exhausted if no limit was reached.
    pub(crate) fn reason(&self) -> StopReason {
        self.stopped.unwrap_or(StopReason::SearchExhausted)
    }
}
