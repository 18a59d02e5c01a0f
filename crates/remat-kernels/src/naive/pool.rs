//! Twins of the pooling kernels, all by visiting every (output, window position) pair.

use crate::settings::pool::PoolShape;

/// Calls `visit(output, place in the window, input)` for every window position inside the image, in order.
fn visit_windows(shape: &PoolShape, mut visit: impl FnMut(usize, usize, usize)) {
    let PoolShape { n, h, w, c, kernel, stride, padding } = *shape;
    let mut output = 0;
    for image in 0..n {
        for out_row in 0..shape.out_h() {
            for out_col in 0..shape.out_w() {
                for channel in 0..c {
                    for place in 0..kernel.0 * kernel.1 {
                        let row = out_row * stride.0 + place / kernel.1;
                        let col = out_col * stride.1 + place % kernel.1;
                        let inside = |at: usize, padding, size| (padding..padding + size).contains(&at);
                        if inside(row, padding.0, h) && inside(col, padding.1, w) {
                            let input = ((image * h + row - padding.0) * w + col - padding.1) * c + channel;
                            visit(output, place, input);
                        }
                    }
                    output += 1;
                }
            }
        }
    }
}

/// Maximum of each window and its place; the first maximum wins.
pub fn max_pool(shape: &PoolShape, x: &[f64]) -> (Vec<f64>, Vec<u8>) {
    let mut best: Vec<Option<(f64, u8)>> = vec![None; shape.output_len()];
    visit_windows(shape, |output, place, input| {
        if best[output].is_none_or(|(best, _)| x[input] > best) {
            best[output] = Some((x[input], place as u8));
        }
    });
    best.into_iter().map(|best| best.expect("no window lies in the padding alone")).unzip()
}

/// Adds each `dy` at the place of its maximum.
pub fn max_pool_grad(shape: &PoolShape, dy: &[f64], idx: &[u8]) -> Vec<f64> {
    let mut dx = vec![0.0; shape.input_len()];
    visit_windows(shape, |output, place, input| {
        if usize::from(idx[output]) == place {
            dx[input] += dy[output];
        }
    });
    dx
}

/// Sum of each window over the window's size.
pub fn avg_pool(shape: &PoolShape, x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; shape.output_len()];
    visit_windows(shape, |output, _, input| y[output] += x[input] / (shape.kernel.0 * shape.kernel.1) as f64);
    y
}

/// Gives each position its share of every window that covers it.
pub fn avg_pool_grad(shape: &PoolShape, dy: &[f64]) -> Vec<f64> {
    let mut dx = vec![0.0; shape.input_len()];
    visit_windows(shape, |output, _, input| {
        dx[input] += dy[output] / (shape.kernel.0 * shape.kernel.1) as f64
    });
    dx
}

/// Mean over the positions of `x: [N, positions, channels]`.
pub fn global_avg_pool(positions: usize, channels: usize, x: &[f64]) -> Vec<f64> {
    let image = |x: &[f64]| {
        let column = |c| x.iter().skip(c).step_by(channels).sum::<f64>() / positions as f64;
        (0..channels).map(column).collect::<Vec<_>>()
    };
    x.chunks_exact(positions * channels).flat_map(image).collect()
}

/// `dy / positions` at every position.
pub fn global_avg_pool_grad(positions: usize, channels: usize, dy: &[f64]) -> Vec<f64> {
    let size = dy.len() * positions;
    (0..size).map(|i| dy[i / (positions * channels) * channels + i % channels] / positions as f64).collect()
}
