//! What bounds and planners share: the problem in arrays, and the ways to write down a schedule.
//!
//! `flat` is the problem in arrays with the exact peak of a sequence of computes; `moving` adds copies from stores to it and
//! gives them their time; `gaps` turns decisions (keep, drop, move) into such a sequence; `tape` is a sequence that can be changed piece by piece; `precedence` says what runs before what;
//! `order` gives other orders; `limits` says when to stop; `random` is the generator of randomised searches.

pub(crate) mod flat;
pub(crate) mod gaps;
pub(crate) mod limits;
pub(crate) mod moving;
pub(crate) mod order;
pub(crate) mod precedence;
pub(crate) mod random;
pub(crate) mod tape;
