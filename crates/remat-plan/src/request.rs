//! What a planner is asked: a budget and the limits of the search, and an observer of its progress.

use crate::units::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What is asked of a planner.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The peak that must not be exceeded, fixed bytes included.
    pub budget: Bytes,
    /// When to stop searching; the best plan so far is returned.
    pub time_limit: Option<Duration>,
    /// How much to search at most, in work that is the same on every machine. `None` is 1, or no limit where time is
    /// limited.
    pub effort: Option<f64>,
    /// Seed of randomised searches.
    pub seed: u64,
    /// Hears how a long search goes. It has no influence on the plan.
    pub observer: Option<Observer>,
}

impl Request {
    /// A request with the default effort and no limit on time.
    pub fn new(budget: Bytes) -> Request {
        Request { budget, time_limit: None, effort: None, seed: 0, observer: None }
    }

    /// Searches this much: 1 is the default, 2 twice as much.
    pub fn effort(self, effort: f64) -> Request {
        Request { effort: Some(effort), ..self }
    }

    /// Starts randomised searches from this seed.
    pub fn seed(self, seed: u64) -> Request {
        Request { seed, ..self }
    }

    /// Stops after this time with the best plan so far.
    pub fn time_limit(self, limit: Duration) -> Request {
        Request { time_limit: Some(limit), ..self }
    }

    /// Calls this function whenever the search knows more.
    pub fn observer(self, call: impl Fn(&Progress) + Send + Sync + 'static) -> Request {
        Request { observer: Some(Observer::new(call)), ..self }
    }
}

/// How far a search has come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Since the search began.
    pub elapsed: Duration,
    /// The cost of the best plan within the budget; none as long as there is no such plan.
    pub cost: Option<f64>,
    /// No plan within the budget costs less than this.
    pub lower_bound: f64,
}

impl Progress {
    /// By how much the best plan can be above the cheapest one: 0.02 is 2 %.
    pub fn gap(&self) -> Option<f64> {
        let cost = self.cost?;
        (self.lower_bound > 0.0).then(|| (cost / self.lower_bound - 1.0).max(0.0))
    }
}

/// A function that hears of progress, possibly from several threads.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Progress) + Send + Sync>);

impl Observer {
    /// Wraps a function.
    pub fn new(call: impl Fn(&Progress) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(call))
    }

    /// Calls it.
    pub fn call(&self, progress: &Progress) {
        (self.0)(progress);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// The same function, not an equal one.
impl PartialEq for Observer {
    fn eq(&self, other: &Observer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
