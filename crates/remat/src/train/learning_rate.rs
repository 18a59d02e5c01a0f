//! The learning rate of every step: a pure function of the step, so a resumed run needs to know nothing else.

/// How the rate falls after the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Not at all.
    Constant,
    /// Half a period of the cosine, from the peak to the floor.
    Cosine,
    /// A straight line from the peak to the floor.
    Linear,
}

/// A linear warm-up, then a decay.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LearningRate {
    /// The highest rate.
    pub peak: f64,
    /// Steps of the warm-up: step `i` of them has the rate `peak i / warmup`.
    pub warmup: u64,
    /// What comes after the warm-up.
    pub decay: Decay,
    /// The rate at the end, as a share of the peak.
    pub floor: f64,
    /// The step at which the floor is reached; it holds for all later steps too.
    pub end: u64,
}

impl LearningRate {
    /// The same rate for all steps.
    pub const fn constant(rate: f64) -> LearningRate {
        LearningRate { peak: rate, warmup: 0, decay: Decay::Constant, floor: 0.0, end: 0 }
    }

    /// The rate of a step, which counts from 1.
    pub fn at(&self, step: u64) -> f64 {
        if step <= self.warmup {
            return self.peak * step as f64 / self.warmup as f64;
        }
        let length = self.end.saturating_sub(self.warmup);
        let gone = if step >= self.end { 1.0 } else { (step - self.warmup) as f64 / length as f64 };
        let share = match self.decay {
            Decay::Constant => 1.0,
            Decay::Linear => 1.0 - gone,
            Decay::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * gone)),
        };
        let floor = if self.decay == Decay::Constant { 0.0 } else { self.floor };
        self.peak * (floor + (1.0 - floor) * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_then_fall_to_the_floor_and_stay() {
        let schedule = |decay| LearningRate { peak: 2.0, warmup: 4, decay, floor: 0.1, end: 14 };
        for decay in [Decay::Constant, Decay::Linear, Decay::Cosine] {
            let rate = schedule(decay);
            assert_eq!([1, 2, 4].map(|step| rate.at(step)), [0.5, 1.0, 2.0], "{decay:?}");
        }
        assert_eq!([5, 14, 99].map(|step| schedule(Decay::Constant).at(step)), [2.0; 3]);
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got} is not {want}");
        close(schedule(Decay::Linear).at(9), 2.0 * (0.1 + 0.9 * 0.5));
        close(schedule(Decay::Cosine).at(9), 2.0 * (0.1 + 0.9 * 0.5));
        for decay in [Decay::Linear, Decay::Cosine] {
            close(schedule(decay).at(14), 0.2);
            close(schedule(decay).at(1000), 0.2);
            let rates: Vec<f64> = (4..=14).map(|step| schedule(decay).at(step)).collect();
            assert!(rates.windows(2).all(|pair| pair[0] > pair[1]), "{rates:?}");
        }
    }

    #[test]
    fn degenerate_schedules_are_defined() {
        assert_eq!(LearningRate::constant(0.3).at(1), 0.3);
        let warm_to_the_end = LearningRate { peak: 1.0, warmup: 5, decay: Decay::Cosine, floor: 0.0, end: 5 };
        assert_eq!([5, 6].map(|step| warm_to_the_end.at(step)), [1.0, 0.0]);
    }
}
