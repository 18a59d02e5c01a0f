//! How the next token is drawn from what a language model predicts.

use remat_kernels::rng::{Key, uniform_f32};

/// Settings of text generation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// How many tokens are added to the prompt.
    pub tokens: usize,
    /// Below 1 likely tokens become likelier, above 1 less so; 0 always takes the likeliest.
    pub temperature: f32,
    /// Only so many of the likeliest tokens are considered; `None` considers all.
    pub top_k: Option<usize>,
    /// The same seed gives the same text.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { tokens: 100, temperature: 1.0, top_k: None, seed: 1 }
    }
}

impl Sampling {
    /// How many tokens are added to the prompt.
    pub fn tokens(self, tokens: usize) -> Sampling {
        Sampling { tokens, ..self }
    }

    /// Below 1 likely tokens become likelier; 0 always takes the likeliest.
    pub fn temperature(self, temperature: f32) -> Sampling {
        Sampling { temperature, ..self }
    }

    /// Considers only so many of the likeliest tokens.
    pub fn top_k(self, k: usize) -> Sampling {
        Sampling { top_k: Some(k), ..self }
    }

    /// The same seed gives the same text.
    pub fn seed(self, seed: u64) -> Sampling {
        Sampling { seed, ..self }
    }

    /// Draws the token at `position` of the text from the model's logits.
    pub(super) fn draw(&self, logits: &[f32], position: usize) -> usize {
        let mut tokens: Vec<usize> = (0..logits.len()).collect();
        // Of equal logits the smaller id comes first, so that the order is one and the same everywhere.
        tokens.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        tokens.truncate(self.top_k.unwrap_or(usize::MAX).max(1));
        if self.temperature <= 0.0 {
            return tokens[0];
        }
        let weight = |&token: &usize| {
            libm::exp(f64::from(logits[token] - logits[tokens[0]]) / f64::from(self.temperature))
        };
        let weights: Vec<f64> = tokens.iter().map(weight).collect();
        let key = Key::new(self.seed, position as u64, 0);
        let mut left = f64::from(uniform_f32(key, 0)) * weights.iter().sum::<f64>();
        for (&token, weight) in tokens.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return token;
            }
        }
        // Rounding can leave a little; the likeliest token is as good as any.
        tokens[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_temperature_the_likeliest_token_wins_and_the_first_of_equals() {
        let greedy = Sampling::default().temperature(0.0);
        assert_eq!(greedy.draw(&[0.0, 2.0, 1.0, 2.0], 7), 1);
    }

    #[test]
    fn draws_follow_the_probabilities_and_stay_within_the_best() {
        let logits = [0.0, libm::logf(3.0), -50.0, libm::logf(6.0)];
        let n = 20_000;
        let counts = |sampling: Sampling| {
            let mut counts = [0usize; 4];
            (0..n).for_each(|position| counts[sampling.draw(&logits, position)] += 1);
            counts.map(|count| count as f64 / n as f64)
        };
        let all = counts(Sampling::default());
        for (got, want) in all.iter().zip([0.1, 0.3, 0.0, 0.6]) {
            assert!((got - want).abs() < 0.02, "{all:?}");
        }
        let two = counts(Sampling::default().top_k(2));
        assert!(two[0] == 0.0 && (two[1] - 1.0 / 3.0).abs() < 0.02, "{two:?}");
        let cold = counts(Sampling::default().temperature(0.1));
        assert!(cold[3] > 0.99, "{cold:?}");
        assert_ne!(
            (0..20).map(|p| Sampling::default().seed(1).draw(&logits, p)).collect::<Vec<_>>(),
            (0..20).map(|p| Sampling::default().seed(2).draw(&logits, p)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn odd_logits_end_in_a_token_and_not_in_a_panic() {
        for logits in [&[f32::NAN, 1.0][..], &[f32::NEG_INFINITY, 0.0], &[f32::INFINITY, f32::INFINITY]] {
            assert!(Sampling::default().draw(logits, 1) < logits.len());
        }
    }
}
