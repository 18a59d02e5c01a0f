//! Twins of the kernels between backward and update.

/// `sum + factor * gradient`, or without the sum for the first micro-batch.
pub fn accumulate(sum: &[f64], gradient: &[f64], factor: f64, is_first: bool) -> Vec<f64> {
    sum.iter().zip(gradient).map(|(sum, g)| if is_first { factor * g } else { sum + factor * g }).collect()
}

/// `Σ x²`.
pub fn sum_squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}
