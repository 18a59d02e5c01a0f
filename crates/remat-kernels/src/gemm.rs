//! Matrix product on strided views: `c = alpha · a · b`, or added to what `c` holds.
//!
//! In: two [`Mat`] views and where to write. Out: a filled [`MatMut`]. Time O(rows · cols · depth).
//!
//! The output is cut into tiles by its shape alone and every tile is one single-threaded call of the `gemm` crate,
//! so the bits depend neither on the number of threads nor on how the crate would split the work. Tiles also bound
//! what the crate allocates for packing, to about 3 MiB for every thread: with its own threading it packs a whole
//! operand, which is of step size. A tile is long in rows because the crate packs the operand of the columns again
//! for every tile.

use crate::par;
use std::marker::PhantomData;

/// Largest tile, in rows and columns of the output.
const TILE: (usize, usize) = (1024, 384);
/// Tiles wanted when there is enough work, so that a handful of threads is kept busy to the end.
const WANTED_TILES: usize = 8;
/// A tile whose longer side is at most this is not cut further: packing would cost more than the threads gain.
const MIN_LONGER_SIDE: usize = 192;
/// Multiply-adds below which a tile is not worth a task of its own.
const MIN_TILE_WORK: usize = 1 << 20;
/// Tile sizes are multiples of this, a multiple of every register block of the `gemm` crate's common kernels.
const TILE_STEP: usize = 48;

/// A matrix that is read: element `(i, j)` is `data[i * row_stride + j * col_stride]`.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
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
}

/// A matrix that is written; like [`Mat`], but no two elements share storage.
pub struct MatMut<'a> {
    ptr: *mut f32,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    _life: PhantomData<&'a mut [f32]>,
}

// SAFETY: like the exclusive slice it stands for; `gemm` gives each task its own elements.
unsafe impl Send for MatMut<'_> {}
// SAFETY: as above; only `gemm` writes through a shared `MatMut`.
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
    /// Every element is writable for `'a`, and nobody else touches these elements (others between them may be
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

    /// The part of `rows × cols` elements whose first one is `(row, col)`.
    ///
    /// # Safety
    /// The part lies in the matrix, and nobody else touches its elements while it lives.
    unsafe fn tile(&self, row: usize, col: usize, rows: usize, cols: usize) -> MatMut<'_> {
        // SAFETY: a part of this matrix, exclusive by the caller's promise.
        unsafe {
            let corner = self.ptr.add(row * self.row_stride + col * self.col_stride);
            MatMut::from_raw(corner, rows, cols, self.row_stride, self.col_stride)
        }
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

/// What happens to the old contents of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// They are not read.
    Overwrite,
    /// The product is added to them.
    Accumulate,
}

/// `c = alpha · a · b` (or `c += …`) on the current pool.
pub fn gemm(write: Write, alpha: f32, a: Mat<'_>, b: Mat<'_>, c: MatMut<'_>) {
    check_shapes(&a, &b, &c);
    let (tile_rows, tile_cols) = tile_size(c.rows, c.cols, a.cols);
    let n_col_tiles = c.cols.div_ceil(tile_cols);
    let n_tiles = c.rows.div_ceil(tile_rows) * n_col_tiles;
    par::for_each(n_tiles, |tile| {
        let (row, col) = (tile / n_col_tiles * tile_rows, tile % n_col_tiles * tile_cols);
        let (rows, cols) = (tile_rows.min(c.rows - row), tile_cols.min(c.cols - col));
        let a = Mat { data: &a.data[offset(row * a.row_stride, a.data)..], rows, ..a };
        let b = Mat { data: &b.data[offset(col * b.col_stride, b.data)..], cols, ..b };
        // SAFETY: tiles are disjoint, and `c` is borrowed by this call alone.
        let c = unsafe { c.tile(row, col, rows, cols) };
        gemm_serial(write, alpha, a, b, c);
    });
}

fn check_shapes(a: &Mat<'_>, b: &Mat<'_>, c: &MatMut<'_>) {
    assert!(a.rows == c.rows && b.cols == c.cols && a.cols == b.rows, "shapes of a matrix product disagree");
}

/// An offset clamped to the data, which matters only for matrices without elements.
fn offset(at: usize, data: &[f32]) -> usize {
    at.min(data.len())
}

/// Like [`gemm()`], as a single call on the current thread; for use inside a task.
pub fn gemm_serial(write: Write, alpha: f32, a: Mat<'_>, b: Mat<'_>, c: MatMut<'_>) {
    check_shapes(&a, &b, &c);
    let old = if write == Write::Accumulate { 1.0 } else { 0.0 };
    // SAFETY: the views' constructors checked that all elements are in range, that those of `c` do not overlap,
    // and that `c` is exclusive. Strides of existing slices fit in `isize`.
    unsafe {
        gemm::gemm(
            c.rows,
            c.cols,
            a.cols,
            c.ptr,
            c.col_stride as isize,
            c.row_stride as isize,
            write == Write::Accumulate,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            old,
            alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Rows and columns of a tile: the largest allowed, halved along the longer side while that yields useful tasks.
fn tile_size(rows: usize, cols: usize, depth: usize) -> (usize, usize) {
    let (mut tile_rows, mut tile_cols) = (even_part(rows, TILE.0), even_part(cols, TILE.1));
    loop {
        let n_tiles = rows.div_ceil(tile_rows) * cols.div_ceil(tile_cols);
        let work = tile_rows.saturating_mul(tile_cols).saturating_mul(depth);
        let small = work < 2 * MIN_TILE_WORK || tile_rows.max(tile_cols) <= MIN_LONGER_SIDE;
        if n_tiles >= WANTED_TILES || small {
            return (tile_rows, tile_cols);
        }
        if tile_rows >= tile_cols {
            tile_rows = even_part(rows, tile_rows / 2);
        } else {
            tile_cols = even_part(cols, tile_cols / 2);
        }
    }
}

/// Size of the parts when `len` is cut as evenly as possible into parts of about `limit`, in whole steps.
fn even_part(len: usize, limit: usize) -> usize {
    let parts = len.div_ceil(limit.max(1)).max(1);
    len.div_ceil(parts).max(1).next_multiple_of(TILE_STEP.min(len.max(1)))
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

    #[test]
    fn tiles_cover_the_output_and_stay_bounded() {
        for (rows, cols, depth) in
            [(1, 1, 1), (5000, 64, 64), (64, 576, 100_000), (83, 50_257, 768), (7, 0, 3)]
        {
            let (tile_rows, tile_cols) = tile_size(rows, cols, depth);
            assert!(tile_rows >= 1 && tile_cols >= 1);
            assert!(tile_rows <= TILE.0 + TILE_STEP && tile_cols <= TILE.1 + TILE_STEP);
        }
        let (tile_rows, tile_cols) = tile_size(64, 576, 100_000);
        assert!(64usize.div_ceil(tile_rows) * 576usize.div_ceil(tile_cols) >= 3, "large work is shared");
    }
}
