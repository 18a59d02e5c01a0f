//! Normalisations: over the columns of a matrix (batch norm) or along its rows (layer norm, RMS norm, softmax).

pub mod batch_norm;
pub mod fused_batch_norm;
pub mod layer_norm;
pub mod rms_norm;
mod row_norm;
pub mod softmax;

/// `1 / sqrt(var + eps)`, the factor that every normalisation scales by; in `f64`, so that it is rounded once.
#[inline(always)]
fn inverse_deviation(var: f64, eps: f32) -> f32 {
    (1.0 / (var + f64::from(eps)).sqrt()) as f32
}
