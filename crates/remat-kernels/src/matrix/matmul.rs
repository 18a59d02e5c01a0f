//! Batched matrix product, each operand optionally stored transposed; its gradients are calls of itself.
//!
//! In: `a: [batch, m, k]` and `b: [batch, k, n]` (with the last two swapped if stored transposed). Out:
//! `c: [batch, m, n]`. For `c = a · b`: `da = dc · bᵀ` and `db = aᵀ · dc`. No workspace.

use crate::base::par;
use crate::product::gemm::{Mat, MatMut, Write, gemm};

/// The sizes of a batched product and how its operands are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulShape {
    /// Number of independent products.
    pub batch: usize,
    /// Rows of a result.
    pub m: usize,
    /// Length of the sums.
    pub k: usize,
    /// Columns of a result.
    pub n: usize,
    /// `a` is stored as `[batch, k, m]`.
    pub transpose_a: bool,
    /// `b` is stored as `[batch, n, k]`.
    pub transpose_b: bool,
}

/// `c = a · b` for every member of the batch.
pub fn matmul(shape: MatmulShape, a: &[f32], b: &[f32], c: &mut [f32]) {
    let MatmulShape { batch, m, k, n, transpose_a, transpose_b } = shape;
    assert!(
        a.len() == batch * m * k && b.len() == batch * k * n && c.len() == batch * m * n,
        "operand sizes"
    );
    if c.is_empty() {
        return;
    }
    par::for_each_chunk(c, m * n, |i, c| {
        let (a, b) = (&a[i * m * k..][..m * k], &b[i * k * n..][..k * n]);
        let a = if transpose_a { Mat::new(a, k, m).t() } else { Mat::new(a, m, k) };
        let b = if transpose_b { Mat::new(b, n, k).t() } else { Mat::new(b, k, n) };
        gemm(Write::Overwrite, 1.0, a, b, MatMut::new(c, m, n));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::linear as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    #[test]
    fn every_storage_of_the_operands_gives_the_product() {
        for (batch, m, k, n) in [(1, 1, 1, 1), (3, 4, 5, 6), (2, 70, 130, 90), (17, 9, 1, 8)] {
            for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let shape = MatmulShape { batch, m, k, n, transpose_a, transpose_b };
                let (a, b) = (random(batch * m * k, 1), random(batch * k * n, 2));
                let mut want = Vec::new();
                for i in 0..batch {
                    let mut a = wide(&a[i * m * k..][..m * k]);
                    let mut b = wide(&b[i * k * n..][..k * n]);
                    if transpose_a {
                        a = naive::transpose(&a, k, m);
                    }
                    if transpose_b {
                        b = naive::transpose(&b, n, k);
                    }
                    want.extend(naive::matmul(&a, &b, m, k, n));
                }
                let got = same_bits_in_any_pool(|| {
                    let mut c = vec![f32::NAN; batch * m * n];
                    matmul(shape, &a, &b, &mut c);
                    c
                });
                assert_close(&got, &want, 1e-5);
            }
        }
    }
}
