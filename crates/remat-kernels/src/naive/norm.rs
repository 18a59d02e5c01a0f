//! Twins of the normalisations and of softmax. Matrices are row-major, `weight.len()` columns wide.

/// Mean and biased variance of each column, in two passes.
pub fn batch_stats(x: &[f64], channels: usize) -> (Vec<f64>, Vec<f64>) {
    let rows = (x.len() / channels) as f64;
    let column = |c: usize| x.iter().skip(c).step_by(channels);
    let mean: Vec<f64> = (0..channels).map(|c| column(c).sum::<f64>() / rows).collect();
    let var = (0..channels).map(|c| column(c).map(|x| (x - mean[c]).powi(2)).sum::<f64>() / rows).collect();
    (mean, var)
}

/// Batch normalisation of the columns.
pub fn batch_norm(x: &[f64], weight: &[f64], bias: &[f64], eps: f64) -> Vec<f64> {
    let channels = weight.len();
    let (mean, var) = batch_stats(x, channels);
    let normal = |(i, x): (usize, &f64)| {
        let c = i % channels;
        (x - mean[c]) / (var[c] + eps).sqrt() * weight[c] + bias[c]
    };
    x.iter().enumerate().map(normal).collect()
}

/// `dx`, `dweight` and `dbias` of [`batch_norm`], with the batch's statistics given: every column is a vector that was
/// normalised.
pub fn batch_norm_grad(
    x: &[f64],
    dy: &[f64],
    weight: &[f64],
    (mean, var): (&[f64], &[f64]),
    eps: f64,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let channels = weight.len();
    let (mut dx, mut dweight, mut dbias) = (vec![0.0; x.len()], vec![], vec![]);
    for c in 0..channels {
        let column = |data: &[f64]| data.iter().skip(c).step_by(channels).copied().collect::<Vec<_>>();
        let rstd = 1.0 / (var[c] + eps).sqrt();
        let normal: Vec<f64> = column(x).iter().map(|x| (x - mean[c]) * rstd).collect();
        let dy = column(dy);
        dweight.push(dot(&normal, &dy));
        dbias.push(dy.iter().sum());
        let dnormal: Vec<f64> = dy.iter().map(|dy| dy * weight[c]).collect();
        for (r, d) in normalised_grad(&normal, &dnormal, rstd).into_iter().enumerate() {
            dx[r * channels + c] = d;
        }
    }
    (dx, dweight, dbias)
}

/// `(1 - momentum) old + momentum correction batch`.
pub fn running_update(old: &[f64], batch: &[f64], momentum: f64, correction: f64) -> Vec<f64> {
    old.iter().zip(batch).map(|(old, batch)| (1.0 - momentum) * old + momentum * correction * batch).collect()
}

/// Mean and inverse deviation of each row.
pub fn layer_stats(x: &[f64], cols: usize, eps: f64) -> (Vec<f64>, Vec<f64>) {
    let row = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / cols as f64;
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / cols as f64;
        (mean, 1.0 / (var + eps).sqrt())
    };
    x.chunks_exact(cols).map(row).unzip()
}

/// Layer normalisation of the rows.
pub fn layer_norm(x: &[f64], weight: &[f64], bias: &[f64], eps: f64) -> Vec<f64> {
    let cols = weight.len();
    let (mean, rstd) = layer_stats(x, cols, eps);
    let normal = |(i, x): (usize, &f64)| {
        let (row, c) = (i / cols, i % cols);
        (x - mean[row]) * rstd[row] * weight[c] + bias[c]
    };
    x.iter().enumerate().map(normal).collect()
}

/// `dx`, `dweight` and `dbias` of [`layer_norm`], with the rows' statistics given.
pub fn layer_norm_grad(
    x: &[f64],
    dy: &[f64],
    weight: &[f64],
    (mean, rstd): (&[f64], &[f64]),
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let cols = weight.len();
    let (mut dx, mut dweight, mut dbias) = (vec![], vec![0.0; cols], vec![0.0; cols]);
    for (row, (x, dy)) in x.chunks_exact(cols).zip(dy.chunks_exact(cols)).enumerate() {
        let normal: Vec<f64> = x.iter().map(|x| (x - mean[row]) * rstd[row]).collect();
        for c in 0..cols {
            dweight[c] += dy[c] * normal[c];
            dbias[c] += dy[c];
        }
        let dnormal: Vec<f64> = dy.iter().zip(weight).map(|(dy, w)| dy * w).collect();
        dx.extend(normalised_grad(&normal, &dnormal, rstd[row]));
    }
    (dx, dweight, dbias)
}

/// Inverse root mean square of each row.
pub fn rms_stats(x: &[f64], cols: usize, eps: f64) -> Vec<f64> {
    x.chunks_exact(cols).map(|x| 1.0 / (dot(x, x) / cols as f64 + eps).sqrt()).collect()
}

/// Root-mean-square normalisation of the rows.
pub fn rms_norm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let cols = weight.len();
    let rstd = rms_stats(x, cols, eps);
    x.iter().enumerate().map(|(i, x)| x * rstd[i / cols] * weight[i % cols]).collect()
}

/// `dx` and `dweight` of [`rms_norm`], with the rows' statistics given.
pub fn rms_norm_grad(x: &[f64], dy: &[f64], weight: &[f64], rstd: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let cols = weight.len();
    let (mut dx, mut dweight) = (vec![], vec![0.0; cols]);
    for (row, (x, dy)) in x.chunks_exact(cols).zip(dy.chunks_exact(cols)).enumerate() {
        let rstd = rstd[row];
        let dnormal: Vec<f64> = dy.iter().zip(weight).map(|(dy, w)| dy * w).collect();
        // d(x_i rstd) / d(x_j) = δ_ij rstd - x_i x_j rstd³ / cols
        let inner = dot(&dnormal, x);
        for c in 0..cols {
            dweight[c] += dy[c] * x[c] * rstd;
            dx.push(dnormal[c] * rstd - x[c] * inner * rstd.powi(3) / cols as f64);
        }
    }
    (dx, dweight)
}

/// Softmax of the rows.
pub fn softmax(x: &[f64], cols: usize) -> Vec<f64> {
    let row = |x: &[f64]| {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| libm::exp(x - max)).sum();
        x.iter().map(|x| libm::exp(x - max) / sum).collect::<Vec<_>>()
    };
    x.chunks_exact(cols).flat_map(row).collect()
}

/// Gradient of [`softmax`] from its output.
pub fn softmax_grad(y: &[f64], dy: &[f64], cols: usize) -> Vec<f64> {
    let row = |(y, dy): (&[f64], &[f64])| {
        let inner = dot(y, dy);
        y.iter().zip(dy).map(|(y, dy)| y * (dy - inner)).collect::<Vec<_>>()
    };
    y.chunks_exact(cols).zip(dy.chunks_exact(cols)).flat_map(row).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The product of `dnormal` with the Jacobian of `n = (x - mean(x)) rstd(x)`, which in terms of `n` is
/// `d(n_i) / d(x_j) = rstd (δ_ij - 1/m - n_i n_j / m)`.
fn normalised_grad(normal: &[f64], dnormal: &[f64], rstd: f64) -> Vec<f64> {
    let m = normal.len() as f64;
    let average = dnormal.iter().sum::<f64>() / m;
    let inner = dot(normal, dnormal) / m;
    normal.iter().zip(dnormal).map(|(n, d)| rstd * (d - average - n * inner)).collect()
}
