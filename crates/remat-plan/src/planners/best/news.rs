//! Tells the observer of a request how the race goes. Nothing of it flows back, so plans do not depend on it.

use crate::request::{Observer, Progress, Request};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What is known so far; shared by the threads of the race.
pub(crate) struct News<'a> {
    observer: Option<&'a Observer>,
    begin: Instant,
    known: Mutex<Known>,
}

struct Known {
    cost: f64,
    bound: f64,
}

impl<'a> News<'a> {
    /// `base_cost`: no plan costs less.
    pub(crate) fn new(request: &'a Request, begin: Instant, base_cost: f64) -> News<'a> {
        let known = Mutex::new(Known { cost: f64::INFINITY, bound: base_cost });
        News { observer: request.observer.as_ref(), begin, known }
    }

    /// A plan of this cost within the budget was found.
    pub(crate) fn plan(&self, cost: f64) {
        self.tell(|known| {
            let is_better = cost < known.cost;
            known.cost = known.cost.min(cost);
            is_better
        });
    }

    /// No plan within the budget costs less than this.
    pub(crate) fn bound(&self, bound: f64) {
        self.tell(|known| {
            let is_better = bound > known.bound;
            known.bound = known.bound.max(bound);
            is_better
        });
    }

    /// Calls the observer if the change is one. Calls come one at a time and in order, since the lock is held meanwhile.
    fn tell(&self, change: impl FnOnce(&mut Known) -> bool) {
        let Some(observer) = self.observer else { return };
        // An observer that panicked ends the search with its own message; the numbers are whole all the same.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut known) {
            let cost = known.cost.is_finite().then_some(known.cost);
            // Rounding of sums may put the bound a little above the cost.
            let lower_bound = known.bound.min(known.cost);
            observer.call(&Progress { elapsed: self.begin.elapsed(), cost, lower_bound });
        }
    }
}
