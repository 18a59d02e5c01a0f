//! Twins of the losses.

/// Mean loss over the rows with a label, and the log of the sum of exponentials of every row.
pub fn cross_entropy(logits: &[f64], labels: &[i32]) -> (f64, Vec<f64>) {
    let cols = logits.len() / labels.len();
    let lse: Vec<f64> = logits.chunks_exact(cols).map(log_sum_exp).collect();
    let counted: Vec<usize> = (0..labels.len()).filter(|&r| labels[r] >= 0).collect();
    let sum: f64 = counted.iter().map(|&r| lse[r] - logits[r * cols + labels[r] as usize]).sum();
    (sum / counted.len() as f64, lse)
}

/// `(e^(logit - lse) - one-hot) dloss / (rows with a label)`, and 0 in rows without.
pub fn cross_entropy_grad(logits: &[f64], labels: &[i32], lse: &[f64], dloss: f64) -> Vec<f64> {
    let cols = logits.len() / labels.len();
    let factor = dloss / labels.iter().filter(|&&label| label >= 0).count() as f64;
    let element = |(i, x): (usize, &f64)| {
        let (row, col) = (i / cols, i % cols);
        let hot = f64::from(labels[row] == col as i32);
        let probability = libm::exp(x - lse[row]);
        if labels[row] < 0 { 0.0 } else { factor * (probability - hot) }
    };
    logits.iter().enumerate().map(element).collect()
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + libm::log(row.iter().map(|x| libm::exp(x - max)).sum())
}

/// The mean of `(x - target)²`.
pub fn mse(x: &[f64], target: &[f64]) -> f64 {
    x.iter().zip(target).map(|(x, target)| (x - target).powi(2)).sum::<f64>() / x.len() as f64
}

/// `2 (x - target) dloss / n`.
pub fn mse_grad(x: &[f64], target: &[f64], dloss: f64) -> Vec<f64> {
    let factor = 2.0 * dloss / x.len() as f64;
    x.iter().zip(target).map(|(x, target)| factor * (x - target)).collect()
}
