//! Speeds that a machine can have. What was kept and lies outside was damaged, and is measured again.
//!
//! Each range goes some decades beyond the slowest and the fastest machines there are: it refuses no measurement, and costs
//! that come from it are numbers that can be added up.

use super::{Machine, Speed, StoreSpeed, Way};
use std::ops::RangeInclusive;

/// Operations per second. An emulated processor without vectors reaches 10^7, all cores of a large server 10^13.
const FLOPS: RangeInclusive<f64> = 1e5..=1e16;

/// Bytes per second that an op passes over. One with much arithmetic for each byte reaches 10^6 on an emulated processor, and
/// one that stays in the caches of all cores of a large server 10^13.
const BANDWIDTH: RangeInclusive<f64> = 1e4..=1e16;

/// Seconds of a call. It takes some ten nanoseconds, and under emulation on a busy machine some milliseconds.
const OVERHEAD: RangeInclusive<f64> = 1e-10..=1.0;

/// The part of the time for which each thread waited for other programs. It can be above one where a process has more
/// threads than those that were measured.
const DISTURBED: RangeInclusive<f64> = 0.0..=1e3;

/// Seconds of an empty copy. What is measured of it can be nothing; a disk of a network that has to be waited for may take
/// a second.
const LATENCY: RangeInclusive<f64> = 0.0..=100.0;

/// Seconds of each byte of a copy. Memory takes 10^-11, a disk behind a slow network 10^-6.
const SECONDS_PER_BYTE: RangeInclusive<f64> = 1e-14..=1e-3;

impl Machine {
    /// False for speeds that no measurement gives, such as those in a damaged file.
    pub(super) fn is_plausible(&self) -> bool {
        let is_plausible = |speed: &Speed| match speed {
            Speed::Flops(flops) => FLOPS.contains(flops),
            Speed::Bytes { near, far } => BANDWIDTH.contains(near) && BANDWIDTH.contains(far),
        };
        FLOPS.contains(&self.flops)
            && BANDWIDTH.contains(&self.bandwidth)
            && OVERHEAD.contains(&self.overhead)
            && self.disturbed.is_none_or(|share| DISTURBED.contains(&share))
            && self.speeds.values().all(is_plausible)
    }
}

impl StoreSpeed {
    /// False for speeds that no measurement gives, such as those in a damaged file.
    pub(super) fn is_plausible(&self) -> bool {
        let is_plausible =
            |way: &Way| LATENCY.contains(&way.latency) && SECONDS_PER_BYTE.contains(&way.seconds_per_byte);
        [self.out, self.back].iter().all(is_plausible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_speeds_are_plausible_and_damaged_ones_are_not() {
        let known = Machine::nominal(2);
        let op = |speed| Machine { speeds: [("relu".to_owned(), speed)].into(), ..known.clone() };
        let machines = [
            known.clone(),
            Machine { flops: 1e7, bandwidth: 1e7, overhead: 1e-3, ..known.clone() },
            op(Speed::Bytes { near: 1e13, far: 1e11 }),
            op(Speed::Flops(1e6)),
            Machine { disturbed: Some(1.5), ..known.clone() },
        ];
        for machine in machines {
            assert!(machine.is_plausible(), "{machine:?}");
        }
        for wrong in [1e308, 1e-300, 0.0, -1.0, f64::NAN, f64::INFINITY] {
            let machines = [
                Machine { flops: wrong, ..known.clone() },
                Machine { bandwidth: wrong, ..known.clone() },
                Machine { overhead: wrong, ..known.clone() },
                op(Speed::Flops(wrong)),
                op(Speed::Bytes { near: wrong, far: 1e10 }),
                op(Speed::Bytes { near: 1e10, far: wrong }),
            ];
            for machine in machines {
                assert!(!machine.is_plausible(), "{machine:?}");
            }
            let (mut out, mut back) = (StoreSpeed::nominal(), StoreSpeed::nominal());
            (out.out.seconds_per_byte, back.back.seconds_per_byte) = (wrong, wrong);
            assert!(!out.is_plausible() && !back.is_plausible(), "{wrong}");
        }
        let mut store = StoreSpeed::nominal();
        assert!(store.is_plausible());
        store.out.latency = 1e308;
        assert!(!store.is_plausible());
        assert!(!Machine { disturbed: Some(1e308), ..known }.is_plausible());
    }

    /// The slowest op there can be, on the largest tensors there can be.
    #[test]
    fn costs_of_plausible_speeds_can_be_added_up() {
        let slowest =
            u64::MAX as f64 / BANDWIDTH.start().min(*FLOPS.start()) + OVERHEAD.end() + LATENCY.end();
        assert!((slowest * u64::MAX as f64).is_finite());
    }
}
