//! Twin of the dropout kernel; it shares the random numbers, which have known answers of their own.

use crate::base::rng::{Key, uniform_u16};

/// `x / (1 - p)` where the draw is at least `p`, else 0; `p` is rounded to a multiple of 2^-16.
pub fn dropout(x: &[f64], p: f64, key: Key) -> Vec<f64> {
    let p = (p * 65536.0).round() / 65536.0;
    let keep = |i: usize| f64::from(uniform_u16(key, i as u64)) / 65536.0 >= p;
    x.iter().enumerate().map(|(i, x)| if keep(i) { x / (1.0 - p) } else { 0.0 }).collect()
}
