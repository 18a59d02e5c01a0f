//! Matrix product on strided views: `c = alpha · a · b`, or added to what `c` holds.
//!
//! In: two [`Mat`] views and where to write. Out: a filled [`MatMut`]. Time O(rows · cols · depth).
//!
//! The loops are in `task`: `b` is packed into panels; rows of `a` are read where they lie if that
//! suits the caches, else copied, a group of rows at a time.

use crate::product::micro::ROWS;
use crate::product::operands::{Operands, RowPointers, Size, Visit};
use crate::product::panel::{
    FAR_APART, Strides, pack_left, pack_right, point_at_neighbours, point_at_panels, rows_keep_apart,
};
use crate::product::prefetch::Region;
use crate::product::task::{product, product_serial};
use std::marker::PhantomData;
use std::ops::Range;

pub use crate::product::micro::Write;

/// A matrix that is read: element `(i, j)` is `data[i * row_stride + j * col_stride]`.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    pub(super) data: &'a [f32],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a> Mat<'a> {
    /// A contiguous row-major matrix.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Mat::strided(data, rows, cols, cols, 1)
    }

    /// A matrix with any strides, all of whose elements lie in `data`.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> Self {
        assert!(span(rows, cols, row_stride, col_stride) <= data.len(), "matrix reaches beyond its data");
        Mat { data, rows, cols, row_stride, col_stride }
    }

    /// The transposed view.
    pub fn t(self) -> Self {
        Mat {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// Where a part of the matrix lies.
    fn region(&self, rows: Range<usize>, cols: Range<usize>) -> Region {
        let at = rows.start * self.row_stride + cols.start * self.col_stride;
        let start = self.data.as_ptr().wrapping_add(at);
        if self.col_stride == 1 {
            Region { start, n_runs: rows.len(), stride: self.row_stride, run_len: cols.len() }
        } else {
            Region { start, n_runs: cols.len(), stride: self.col_stride, run_len: rows.len() }
        }
    }
}

/// A matrix that is written; like [`Mat`], but no two elements share storage.
pub struct MatMut<'a> {
    pub(super) ptr: *mut f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
    _life: PhantomData<&'a mut [f32]>,
}

// SAFETY: like the exclusive slice it stands for; a product gives each task its own elements.
unsafe impl Send for MatMut<'_> {}
// SAFETY: as above; only products write through a shared `MatMut`.
unsafe impl Sync for MatMut<'_> {}

impl<'a> MatMut<'a> {
    /// A contiguous row-major matrix.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        MatMut::strided(data, rows, cols, cols, 1)
    }

    /// A matrix with strides that keep its elements apart and inside `data`.
    pub fn strided(
        data: &'a mut [f32],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        assert!(span(rows, cols, row_stride, col_stride) <= data.len(), "matrix reaches beyond its data");
        // SAFETY: the elements lie in `data` by the assertion and are borrowed exclusively.
        unsafe { MatMut::from_raw(data.as_mut_ptr(), rows, cols, row_stride, col_stride) }
    }

    /// A matrix over memory that is shared with others, element by element.
    ///
    /// # Safety
    /// Every element is writable for `'a`, and nothing else touches these elements (others between them may be
    /// touched) during `'a`.
    pub unsafe fn from_raw(
        ptr: *mut f32,
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        // Along one of the two dimensions, every step leaves all elements of the other one behind.
        let apart = |inner: usize, stride: usize, outer_stride: usize| {
            stride >= 1 && outer_stride > inner.saturating_sub(1).saturating_mul(stride)
        };
        let one_at_most = rows == 0 || cols == 0 || (rows == 1 && cols == 1);
        let distinct =
            one_at_most || apart(cols, col_stride, row_stride) || apart(rows, row_stride, col_stride);
        assert!(distinct, "elements of an output matrix overlap");
        MatMut { ptr, rows, cols, row_stride, col_stride, _life: PhantomData }
    }
}

/// Elements from the first to behind the last one of a strided matrix.
fn span(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> usize {
    if rows == 0 || cols == 0 {
        return 0;
    }
    let last_row = (rows - 1).saturating_mul(row_stride);
    last_row.saturating_add((cols - 1).saturating_mul(col_stride)).saturating_add(1)
}

/// `c = alpha · a · b` (or `c += …`) on the current pool.
pub fn gemm(write: Write, alpha: f32, a: Mat<'_>, b: Mat<'_>, c: MatMut<'_>) {
    let operands = Matrices::new(a, b, c);
    product(operands.size(), &operands, write, alpha);
}

/// Like [`gemm()`], on the current thread; for use inside a task. The bits are the same.
pub fn gemm_serial(write: Write, alpha: f32, a: Mat<'_>, b: Mat<'_>, c: MatMut<'_>) {
    let operands = Matrices::new(a, b, c);
    product_serial(operands.size(), &operands, write, alpha);
}

struct Matrices<'a> {
    a: Mat<'a>,
    b: Mat<'a>,
    c: MatMut<'a>,
}

impl<'a> Matrices<'a> {
    fn new(a: Mat<'a>, b: Mat<'a>, c: MatMut<'a>) -> Self {
        assert!(
            a.rows == c.rows && b.cols == c.cols && a.cols == b.rows,
            "shapes of a matrix product disagree"
        );
        Matrices { a, b, c }
    }

    fn size(&self) -> Size {
        Size { rows: self.c.rows, cols: self.c.cols, taps: 1, depth: self.a.cols }
    }
}

// SAFETY: `left` points into `a` or into the space it has filled; the rows of `c` are writable and apart by the promise
// of its constructors.
unsafe impl Operands for Matrices<'_> {
    fn pack_right(&self, _tap: usize, steps: Range<usize>, cols: Range<usize>, block: &mut [f32]) {
        if steps.is_empty() || cols.is_empty() {
            return;
        }
        let Mat { data, row_stride, col_stride, .. } = self.b;
        let from = &data[steps.start * row_stride + cols.start * col_stride..];
        let strides = Strides { step: row_stride, across: col_stride };
        pack_right(from, strides, steps.len(), cols.len(), block);
    }

    fn left(
        &self,
        rows: Range<usize>,
        visit: &Visit,
        pointers: &mut [RowPointers],
        space: &mut [f32],
    ) -> usize {
        let len = visit.steps.len();
        if len == 0 {
            pointers.fill([space.as_ptr(); ROWS]);
            return 1;
        }
        let Mat { data, row_stride, col_stride, .. } = self.a;
        let from = &data[rows.start * row_stride + visit.steps.start * col_stride..];
        if row_stride == 1 {
            return point_at_neighbours(from, col_stride, len, rows.len(), pointers, space);
        }
        if col_stride != 1 {
            pack_left(from, Strides { step: col_stride, across: row_stride }, len, rows.len(), space);
            return point_at_panels(pointers, space);
        }
        // All copies are made before the first pointer, which a later `&mut` to the same memory would end.
        let (from, row_stride) = if row_stride < FAR_APART || rows_keep_apart(rows.len(), row_stride) {
            (from, row_stride)
        } else {
            for (i, copy) in space.chunks_exact_mut(len).enumerate().take(rows.len()) {
                copy.copy_from_slice(&from[i * row_stride..][..len]);
            }
            (&*space, len)
        };
        for (block, pointers) in pointers.iter_mut().enumerate() {
            // Rows beyond the last are the last.
            let row = |i: usize| (block * ROWS + i).min(rows.len() - 1);
            *pointers = std::array::from_fn(|i| from[row(i) * row_stride..][..len].as_ptr());
        }
        1
    }

    fn left_region(&self, rows: Range<usize>, visit: &Visit) -> Region {
        self.a.region(rows, visit.steps.clone())
    }

    fn right_region(&self, cols: Range<usize>, visit: &Visit) -> Region {
        self.b.region(visit.steps.clone(), cols)
    }

    fn target(&self, row: usize) -> *mut f32 {
        self.c.ptr.wrapping_add(row * self.c.row_stride)
    }

    fn col_stride(&self) -> usize {
        self.c.col_stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::linear as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    #[test]
    fn agrees_with_the_definition_for_any_strides_and_pool() {
        // (rows, depth, cols): below, at and above the tile sizes, vectors, and empty depth.
        let shapes = [
            (1, 1, 1),
            (3, 5, 7),
            (64, 64, 64),
            (1, 300, 200),
            (200, 300, 1),
            (129, 1100, 97),
            (1100, 33, 450),
        ];
        for (rows, depth, cols) in shapes {
            let (a, b) = (random(rows * depth, 1), random(depth * cols, 2));
            let want = naive::matmul(&wide(&a), &wide(&b), rows, depth, cols);
            let row_major = (Mat::new(&a, rows, depth), Mat::new(&b, depth, cols));
            let got = same_bits_in_any_pool(|| {
                let mut c = vec![f32::NAN; rows * cols];
                gemm(Write::Overwrite, 1.0, row_major.0, row_major.1, MatMut::new(&mut c, rows, cols));
                c
            });
            assert_close(&got, &want, 1e-5);

            // The transposed product bᵀ·aᵀ, written column-major, is the same buffer, twice added.
            let got = same_bits_in_any_pool(|| {
                let mut c = vec![0.0; rows * cols];
                for _ in 0..2 {
                    let out = MatMut::strided(&mut c, cols, rows, 1, cols);
                    gemm(Write::Accumulate, 0.5, row_major.1.t(), row_major.0.t(), out);
                }
                c
            });
            assert_close(&got, &want, 1e-5);
        }
    }

    #[test]
    fn an_empty_depth_clears_or_keeps_the_output() {
        let mut c = [7.0; 6];
        gemm(Write::Accumulate, 1.0, Mat::new(&[], 2, 0), Mat::new(&[], 0, 3), MatMut::new(&mut c, 2, 3));
        assert_eq!(c, [7.0; 6]);
        gemm(Write::Overwrite, 1.0, Mat::new(&[], 2, 0), Mat::new(&[], 0, 3), MatMut::new(&mut c, 2, 3));
        assert_eq!(c, [0.0; 6]);
    }
}
