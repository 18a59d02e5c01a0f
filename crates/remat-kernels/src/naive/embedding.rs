//! Twins of the embedding kernels.

/// `table[ids[r]]` for every row `r`.
pub fn embedding(cols: usize, ids: &[i32], table: &[f64]) -> Vec<f64> {
    ids.iter().flat_map(|&id| &table[id as usize * cols..][..cols]).copied().collect()
}

/// The sum of the rows of `dy` with each id.
pub fn embedding_grad(cols: usize, ids: &[i32], dy: &[f64], n: usize) -> Vec<f64> {
    let mut dtable = vec![0.0; n * cols];
    for (r, &id) in ids.iter().enumerate() {
        for c in 0..cols {
            dtable[id as usize * cols + c] += dy[r * cols + c];
        }
    }
    dtable
}
