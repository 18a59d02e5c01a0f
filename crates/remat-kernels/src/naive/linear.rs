//! Matrix products, column sums and the linear + cross-entropy loss, from their definitions.

/// `a · b` for row-major `a: [m, k]` and `b: [k, n]`.
pub fn matmul(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            c[i * n + j] = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
        }
    }
    c
}

/// The transpose of a row-major `[rows, cols]` matrix.
pub fn transpose(a: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    (0..rows * cols).map(|i| a[i % rows * cols + i / rows]).collect()
}

/// Sums over the rows of `x: [rows, cols]`.
pub fn sum_rows(x: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    (0..cols).map(|c| (0..rows).map(|r| x[r * cols + c]).sum()).collect()
}

/// `x · weightᵀ + bias` for `x: [rows, inputs]`, `weight: [outputs, inputs]`, `bias: [outputs]`.
pub fn linear(x: &[f64], weight: &[f64], bias: &[f64], rows: usize, inputs: usize) -> Vec<f64> {
    let outputs = bias.len();
    let mut y = matmul(x, &transpose(weight, outputs, inputs), rows, inputs, outputs);
    for (i, y) in y.iter_mut().enumerate() {
        *y += bias[i % outputs];
    }
    y
}

/// Mean over the rows with a label of `-log softmax(x · weightᵀ + bias)[label]`; negative labels are left out.
pub fn linear_cross_entropy(x: &[f64], weight: &[f64], bias: &[f64], labels: &[i32]) -> f64 {
    let (rows, classes) = (labels.len(), bias.len());
    let logits = linear(x, weight, bias, rows, x.len() / rows);
    let lse = log_sum_exp(&logits, classes);
    let row_loss = |r: usize| Some(lse[r] - logits[r * classes + usize::try_from(labels[r]).ok()?]);
    let losses: Vec<f64> = (0..rows).filter_map(row_loss).collect();
    losses.iter().sum::<f64>() / losses.len() as f64
}

/// Of every row of logits, the logarithm of its softmax's denominator.
pub fn log_sum_exp(logits: &[f64], classes: usize) -> Vec<f64> {
    let row_lse = |row: &[f64]| {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        top + libm::log(row.iter().map(|l| libm::exp(l - top)).sum())
    };
    logits.chunks(classes).map(row_lse).collect()
}

/// `[dx, dweight, dbias]` of [`linear_cross_entropy`], times `dloss`, from `lse` of its logits.
pub fn linear_cross_entropy_grad(
    x: &[f64],
    weight: &[f64],
    bias: &[f64],
    labels: &[i32],
    lse: &[f64],
    dloss: f64,
) -> [Vec<f64>; 3] {
    let (rows, classes) = (labels.len(), bias.len());
    let inputs = x.len() / rows;
    let n_labels = labels.iter().filter(|&&label| label >= 0).count();
    let mut dlogits = linear(x, weight, bias, rows, inputs);
    for (row, (&label, lse)) in dlogits.chunks_mut(classes).zip(labels.iter().zip(lse)) {
        for (class, logit) in row.iter_mut().enumerate() {
            let target = f64::from(u8::from(usize::try_from(label) == Ok(class)));
            let labelled = f64::from(u8::from(label >= 0));
            *logit = labelled * (libm::exp(*logit - lse) - target) * dloss / n_labels as f64;
        }
    }
    let dx = matmul(&dlogits, weight, rows, classes, inputs);
    let dweight = matmul(&transpose(&dlogits, rows, classes), x, classes, rows, inputs);
    let dbias = sum_rows(&dlogits, rows, classes);
    [dx, dweight, dbias]
}
