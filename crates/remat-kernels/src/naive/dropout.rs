//! Twin of the dropout kernel; it shares the random numbers, which have known answers of their own.

use crate::rng::{Key, uniform_u32};

/// `x / (1 - p)` where the draw is at least `p`, else 0.
pub fn dropout(x: &[f64], p: f64, key: Key) -> Vec<f64> {
    let keep = |i: usize| f64::from(uniform_u32(key, i as u64)) >= (p * 2f64.powi(32)).floor();
    x.iter().enumerate().map(|(i, x)| if keep(i) { x / (1.0 - p) } else { 0.0 }).collect()
}
