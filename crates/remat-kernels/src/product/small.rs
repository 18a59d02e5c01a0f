//! Products of matrices that lie in the caches, with a right operand that was packed once for several of them.
//!
//! In: a strided left operand and a [`Packed`] right one. Out: a matrix whose columns are neighbours. Nothing is packed
//! or divided among tasks here: for sums of a hundred terms that would take longer than the sums. What comes after the
//! products can be asked for meanwhile ([`Ahead`]).
//!
//! The bits are those of [`gemm`](crate::product::gemm): every sum is one chain of fused multiply-adds in the order of its
//! steps, as many as a visit has there, and tiles change none of them. Time O(rows · columns · depth).

use std::ops::Range;

use crate::base::cache::prefetch_for_writing;
use crate::base::vector::{Kernel, Vector, dispatch};
use crate::product::gemm::{Mat, MatMut, Write};
use crate::product::micro::{COLS, DEPTH};
use crate::product::panel::{Strides, pack_right, right_stride};
use crate::product::prefetch::{Prefetch, Region};

/// Rows of a tile: with four vectors of sixteen there are 24 sums, four vectors and a broadcast in 32 registers, with two
/// vectors of eight twelve, two and one in 16.
const ROWS: usize = 6;

/// A right operand, packed; or some of its rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    panels: &'a [f32],
    panel_stride: usize,
    depth: usize,
    cols: usize,
}

impl<'a> Packed<'a> {
    /// Elements of space that a matrix needs.
    pub(crate) fn space(depth: usize, cols: usize) -> usize {
        cols.div_ceil(COLS) * right_stride(depth)
    }

    /// Packs a matrix into the space.
    pub(crate) fn new(from: Mat<'_>, space: &'a mut [f32]) -> Packed<'a> {
        let Mat { data, rows: depth, cols, row_stride, col_stride } = from;
        let panels = &mut space[..Packed::space(depth, cols)];
        if depth > 0 && cols > 0 {
            pack_right(data, Strides { step: row_stride, across: col_stride }, depth, cols, panels);
        }
        Packed { panels, panel_stride: right_stride(depth), depth, cols }
    }

    /// Some rows of the matrix, which are steps of a product with it.
    pub(crate) fn steps(self, steps: Range<usize>) -> Packed<'a> {
        assert!(steps.start <= steps.end && steps.end <= self.depth, "steps beyond the operand");
        let panels = if self.panels.is_empty() { self.panels } else { &self.panels[steps.start * COLS..] };
        Packed { panels, depth: steps.len(), ..self }
    }

    /// Some columns of the matrix, from the first one of a panel on. Columns beyond the last are zeros up to the end of
    /// a panel.
    pub(crate) fn cols(self, cols: Range<usize>) -> Packed<'a> {
        let end = self.cols.next_multiple_of(COLS);
        assert!(
            cols.start.is_multiple_of(COLS) && cols.start <= cols.end && cols.end <= end,
            "columns of panels"
        );
        let first = (cols.start / COLS * self.panel_stride).min(self.panels.len());
        Packed { panels: &self.panels[first..], cols: cols.len(), ..self }
    }

    /// One element.
    pub(crate) fn at(&self, step: usize, col: usize) -> *const f32 {
        self.panels[col / COLS * self.panel_stride + step * COLS + col % COLS..].as_ptr()
    }
}

/// Asks for memory that will be needed after some tiles of products.
pub(crate) struct Ahead<const N: usize>([Prefetch; N]);

impl<const N: usize> Ahead<N> {
    /// Asks for the regions, a part before each tile of products that make up `n_rows` rows together.
    pub(crate) fn new(regions: [Region; N], n_rows: usize) -> Self {
        Ahead(regions.map(|region| Prefetch::new([region, Region::NONE], n_rows / ROWS)))
    }
}

/// Where a matrix lies whose columns are neighbours.
impl From<Mat<'_>> for Region {
    fn from(Mat { data, rows, cols, row_stride, .. }: Mat<'_>) -> Region {
        Region { start: data.as_ptr(), n_runs: rows, stride: row_stride, run_len: cols }
    }
}

impl From<MatMut<'_>> for Region {
    fn from(matrix: MatMut<'_>) -> Region {
        let MatMut { ptr, rows, cols, row_stride, .. } = matrix;
        Region { start: ptr, n_runs: rows, stride: row_stride, run_len: cols }
    }
}

/// `c = alpha · a · b` (or `c += …`) on the current thread.
pub(crate) fn multiply<const P: usize>(
    write: Write,
    alpha: f32,
    a: Mat<'_>,
    b: Packed<'_>,
    c: MatMut<'_>,
    ahead: &mut Ahead<P>,
) {
    assert!(a.rows == c.rows && b.cols == c.cols && a.cols == b.depth, "shapes of a matrix product disagree");
    assert!(c.col_stride == 1 || c.cols <= 1, "columns of the output are neighbours");
    if c.rows > 0 && c.cols > 0 {
        dispatch(Product { write, alpha, a, b, c, ahead });
    }
}

struct Product<'a, const P: usize> {
    write: Write,
    alpha: f32,
    a: Mat<'a>,
    b: Packed<'a>,
    c: MatMut<'a>,
    ahead: &'a mut Ahead<P>,
}

impl<const P: usize> Kernel for Product<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(mut self) {
        // Visits as in `gemm`: as even as possible, of at most `DEPTH` steps.
        let depth = self.b.depth;
        let len = depth.div_ceil(depth.div_ceil(DEPTH).max(1)).max(1);
        for start in (0..depth.max(1)).step_by(len) {
            let steps = start..depth.min(start + len);
            if V::LANES == 16 {
                self.panels::<V, 4>(steps);
            } else {
                self.panels::<V, 2>(steps);
            }
            self.write = Write::Accumulate;
        }
    }
}

impl<const P: usize> Product<'_, P> {
    /// Tiles of `N` vectors, or fewer behind the last whole one.
    #[inline(always)]
    fn panels<V: Vector, const N: usize>(&mut self, steps: Range<usize>) {
        for col in (0..self.c.cols).step_by(N * V::LANES) {
            let n_cols = (self.c.cols - col).min(N * V::LANES);
            match n_cols.div_ceil(V::LANES) {
                1 => self.rows::<V, 1>(col, n_cols, steps.clone()),
                2 => self.rows::<V, 2>(col, n_cols, steps.clone()),
                3 if N > 2 => self.rows::<V, 3>(col, n_cols, steps.clone()),
                _ => self.rows::<V, N>(col, n_cols, steps.clone()),
            }
        }
    }

    #[inline(always)]
    fn rows<V: Vector, const N: usize>(&mut self, col: usize, n_cols: usize, steps: Range<usize>) {
        for row in (0..self.c.rows).step_by(ROWS) {
            let n_rows = (self.c.rows - row).min(ROWS);
            self.ahead.0.iter_mut().for_each(Prefetch::ask_for_tile);
            match n_rows {
                1 | 2 => self.tile::<V, N, 2>(row..row + n_rows, col, n_cols, steps.clone()),
                3 | 4 => self.tile::<V, N, 4>(row..row + n_rows, col, n_cols, steps.clone()),
                _ => self.tile::<V, N, ROWS>(row..row + n_rows, col, n_cols, steps.clone()),
            }
        }
    }

    /// A tile of `R` rows, or one row less, and `N` vectors.
    #[inline(always)]
    fn tile<V: Vector, const N: usize, const R: usize>(
        &self,
        rows: Range<usize>,
        col: usize,
        n_cols: usize,
        steps: Range<usize>,
    ) {
        let Product { write, alpha, a, b, c, .. } = self;
        if *write == Write::Accumulate {
            for row in rows.clone() {
                (col..col + n_cols)
                    .step_by(COLS)
                    .for_each(|col| prefetch_for_writing(c.ptr.wrapping_add(row * c.row_stride + col)));
            }
        }
        let mut left = [a.data.as_ptr(); R];
        for (i, left) in left.iter_mut().enumerate() {
            // A row beyond the last is the last.
            let row = (rows.start + i).min(rows.end - 1);
            *left = left.wrapping_add(row * a.row_stride + steps.start * a.col_stride);
        }
        let mut right = [b.panels.as_ptr(); N];
        for (j, right) in right.iter_mut().enumerate() {
            let col = col + j * V::LANES;
            *right = right.wrapping_add(col / COLS * b.panel_stride + steps.start * COLS + col % COLS);
        }
        let (mut sums, mut left_at) = ([[V::splat(0.0); N]; R], 0);
        for _ in steps {
            // SAFETY: `a` has all of its rows and columns by the promise of its constructors; `b` has a whole panel for
            // every step and every `COLS` columns or less.
            unsafe {
                let mut vectors = [V::splat(0.0); N];
                for (vector, right) in vectors.iter_mut().zip(&mut right) {
                    *vector = V::load(*right);
                    *right = right.wrapping_add(COLS);
                }
                for (sums, left) in sums.iter_mut().zip(left) {
                    let left = V::splat(left.add(left_at).read());
                    for (sum, vector) in sums.iter_mut().zip(vectors) {
                        *sum = left.mul_add(vector, *sum);
                    }
                }
            }
            left_at += a.col_stride;
        }
        let alpha = V::splat(*alpha);
        for (i, sums) in sums.into_iter().enumerate().take(rows.len()) {
            for (j, sum) in sums.into_iter().enumerate() {
                let out = c.ptr.wrapping_add((rows.start + i) * c.row_stride + col + j * V::LANES);
                let (product, n) = (alpha * sum, n_cols - j * V::LANES);
                // SAFETY: elements of `c`, writable by the promise of its constructors.
                unsafe {
                    if n >= V::LANES {
                        match write {
                            Write::Overwrite => product.store(out),
                            Write::Accumulate => (V::load(out) + product).store(out),
                        }
                    } else {
                        match write {
                            Write::Overwrite => product.store_first(out, n),
                            Write::Accumulate => (V::load_first(out, n) + product).store_first(out, n),
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::gemm::gemm_serial;
    use crate::testing::random;

    #[test]
    fn the_bits_are_those_of_other_products() {
        for (rows, depth, cols) in
            [(1, 1, 1), (6, 7, 16), (7, 40, 64), (128, 64, 128), (65, 3, 33), (5, 700, 81), (4, 0, 20)]
        {
            let (a, b) = (random(rows * depth, 1), random(depth * cols, 2));
            let a = [Mat::new(&a, rows, depth), Mat::strided(&a, rows, depth, 1, rows)];
            let b = [Mat::new(&b, depth, cols), Mat::strided(&b, depth, cols, 1, depth)];
            for (a, b) in a.into_iter().zip(b) {
                for write in [Write::Overwrite, Write::Accumulate] {
                    let old = random(rows * (cols + 3), 3);
                    let (mut got, mut want) = (old.clone(), old);
                    let mut space = vec![f32::NAN; Packed::space(depth, cols)];
                    let out = MatMut::strided(&mut got, rows, cols, cols + 3, 1);
                    multiply(
                        write,
                        0.3,
                        a,
                        Packed::new(b, &mut space),
                        out,
                        &mut Ahead::new([Region::from(a)], rows),
                    );
                    gemm_serial(write, 0.3, a, b, MatMut::strided(&mut want, rows, cols, cols + 3, 1));
                    assert!(got.iter().zip(&want).all(|(got, want)| got.to_bits() == want.to_bits()));
                }
            }
        }
    }

    #[test]
    fn parts_of_an_operand_are_its_rows_and_columns() {
        let (depth, cols) = (10, 40);
        let b = random(depth * cols, 1);
        let mut space = vec![f32::NAN; Packed::space(depth, cols)];
        let packed = Packed::new(Mat::new(&b, depth, cols), &mut space);
        let part = packed.steps(3..7).cols(16..48);
        let mut got = vec![f32::NAN; 4 * 32];
        let mut unit = vec![0.0; 16];
        unit.iter_mut().step_by(5).for_each(|element| *element = 1.0);
        let out = MatMut::new(&mut got, 4, 32);
        multiply(Write::Overwrite, 1.0, Mat::new(&unit, 4, 4), part, out, &mut Ahead::new([], 0));
        for (i, &got) in got.iter().enumerate() {
            let (row, col) = (3 + i / 32, 16 + i % 32);
            assert_eq!(got, if col < cols { b[row * cols + col] } else { 0.0 });
        }
    }
}
