//! Normalisations: over the columns of a matrix (batch norm) or along its rows (layer norm, RMS norm, softmax).

pub mod batch_norm;
pub mod fused_batch_norm;
pub mod layer_norm;
pub mod rms_norm;
mod row_norm;
pub mod softmax;

/// The variance, which is not negative but may come out so; `max` would leave the sign of a zero open.
#[inline(always)]
fn not_negative(var: f64) -> f64 {
    if var > 0.0 { var } else { 0.0 }
}

/// `1 / sqrt(var + eps)`, the factor that every normalisation scales by; in `f64`, so that it is rounded once.
#[inline(always)]
fn inverse_deviation(var: f64, eps: f32) -> f32 {
    (1.0 / (var + f64::from(eps)).sqrt()) as f32
}
