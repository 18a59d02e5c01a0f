//! Weights and data computed from names, bit for bit as `bench/pytorch/weights.py` computes them; its header states
//! the formula. Positions count in PyTorch's layout: OIHW for convolutions, NCHW for images.

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn fnv1a64(text: &str) -> u64 {
    text.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// `u(name, i)` for `i` in `0..n`.
fn bits24(name: &str, n: usize) -> impl Iterator<Item = u64> {
    let start = fnv1a64(name);
    (0..n as u64).map(move |i| {
        let z = start.wrapping_add(i.wrapping_mul(GOLDEN)).wrapping_add(GOLDEN);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) >> 40
    })
}

/// `r(name, i)` for `i` in `0..n`.
pub(crate) fn centred(name: &str, n: usize) -> impl Iterator<Item = f64> {
    bits24(name, n).map(|u| u as f64 / (1 << 24) as f64 - 0.5)
}

/// The values of a parameter of this PyTorch shape.
pub(crate) fn parameter(name: &str, shape: &[usize]) -> Vec<f32> {
    let r = centred(name, shape.iter().product());
    if shape.len() > 1 {
        let fan_in: usize = shape[1..].iter().product();
        r.map(|r| (r * (12.0 / fan_in as f64).sqrt()) as f32).collect()
    } else if name.ends_with("bias") {
        r.map(|r| (0.1 * r) as f32).collect()
    } else if name.ends_with("bn3.weight") {
        r.map(|r| ((1.0 + 0.2 * r) / 8.0) as f32).collect()
    } else {
        r.map(|r| (1.0 + 0.2 * r) as f32).collect()
    }
}

/// Floats of unit variance.
pub(crate) fn image(name: &str, n: usize) -> Vec<f32> {
    centred(name, n).map(|r| (r * 12f64.sqrt()) as f32).collect()
}

/// Whole numbers in `0..limit`.
pub(crate) fn ids(name: &str, n: usize, limit: usize) -> Vec<i32> {
    bits24(name, n).map(|u| ((u * limit as u64) >> 24) as i32).collect()
}
