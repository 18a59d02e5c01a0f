//! How much slower one program is than another, and whether that is more than noise.

use crate::format::change;
use remat::profile::Sample;

/// Below this number of runs a difference must be twice the spread to count.
const FEW_RUNS: usize = 6;

/// A difference between two timings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Slowdown {
    /// Of the medians.
    pub(crate) percent: f64,
    /// The medians are closer to each other than single steps typically are to their median, or nothing is known about
    /// single steps because only one was timed.
    pub(crate) is_within_spread: bool,
}

impl Slowdown {
    /// How much longer `after` takes than `before`.
    pub(crate) fn of(after: Sample, before: Sample) -> Slowdown {
        let difference = after.median - before.median;
        let n_runs = after.n_runs.min(before.n_runs);
        let spread = after.spread + before.spread;
        // Quartiles of a few runs are themselves uncertain.
        let allowed = if n_runs < FEW_RUNS { 2.0 * spread } else { spread };
        Slowdown {
            percent: if before.median > 0.0 { 100.0 * difference / before.median } else { 0.0 },
            is_within_spread: n_runs < 2 || difference.abs() <= allowed,
        }
    }
}

/// A slowdown for people.
pub(crate) fn text(percent: f64, is_within_spread: bool) -> String {
    change(percent) + if is_within_spread { " (noise)" } else { "" }
}

/// What the mark means, for below a table that has one.
pub(crate) const NOISE: &str =
    "(noise): the difference is not larger than the spread of single steps; more steps tell more\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_within_the_spread_are_marked() {
        let sample = |median, spread, n_runs| Sample { median, spread, n_runs };
        let noisy = Slowdown::of(sample(0.654, 0.2, 8), sample(1.0, 0.2, 8));
        let shown = |slowdown: Slowdown| text(slowdown.percent, slowdown.is_within_spread);
        assert_eq!(shown(noisy), "-34.6 % (noise)");
        let clear = Slowdown::of(sample(1.1, 0.01, 8), sample(1.0, 0.02, 8));
        assert_eq!(shown(clear), "+10.0 %");
        let few = Slowdown::of(sample(0.848, 0.05, 4), sample(1.0, 0.05, 4));
        assert_eq!(shown(few), "-15.2 % (noise)");
        assert!(Slowdown::of(sample(1.1, 0.0, 1), sample(1.0, 0.0, 1)).is_within_spread);
        assert_eq!(Slowdown::of(sample(1.0, 0.0, 3), sample(0.0, 0.0, 3)).percent, 0.0);
    }
}
