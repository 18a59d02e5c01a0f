//! The innermost loop of every product: a tile of sums that stays in registers.
//!
//! In: runs of products. In a run, each row of the left operand has a pointer and the right operand is a sequence of vectors
//! of 16 neighbours; step `k` adds `left[i][k · left_step] · right[k · right_step + j]` to the sum `(i, j)`. Out: the
//! sums, written or added to rows of the output.
//!
//! The left operand is read where it lies: an image, whose receptive field is one run of channels for every tap.
//!
//! Operands are laid out in blocks of `ROWS` rows and panels of `COLS` columns for every instruction set. A tile is one block
//! and one panel with vectors of eight: twelve sums, two right vectors and a broadcast fill 15 of the 16 registers of AVX2,
//! and 12 multiply-adds hide the 8 loads that feed them. With vectors of sixteen it is two blocks and two panels: 24 sums,
//! 2 vectors and a broadcast of 32 registers, and 24 multiply-adds for 14 loads.
//!
//! Invariant: a sum depends on the order of its runs and steps alone, not on which other sums share the tile; so neither how
//! the output is cut into tiles nor the width of vectors changes a bit. Products are fused into the sums on every processor.

use crate::base::isa::{self, Isa};
use crate::base::vector::{Kernel, Vector, dispatch_to};

/// Rows of a block.
pub(crate) const ROWS: usize = 6;
/// Columns of a panel.
pub(crate) const COLS: usize = 16;
/// Blocks and panels of the largest tile.
const MAX_BLOCKS: usize = 2;
const MAX_PANELS: usize = 2;
/// Rows of the largest tile.
const MAX_ROWS: usize = MAX_BLOCKS * ROWS;
/// Steps that are worth one visit of the output, and few enough for a panel of the right operand to stay in the
/// first-level cache.
pub(crate) const DEPTH: usize = 320;

/// The tile of an instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    isa: Isa,
    pub(crate) blocks: usize,
    pub(crate) panels: usize,
}

impl Shape {
    /// The tile of the chosen instruction set.
    pub(crate) fn current() -> Shape {
        let isa = isa::current();
        match isa {
            Isa::Portable | Isa::Avx2 => Shape { isa, blocks: 1, panels: 1 },
            Isa::Emulated512 | Isa::Avx512 => Shape { isa, blocks: MAX_BLOCKS, panels: MAX_PANELS },
        }
    }
}

/// What happens to the old contents of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// They are not read.
    Overwrite,
    /// The product is added to them.
    Accumulate,
}

/// Where a run reads: one pointer for every row of the left operand, and the first vector of every panel of the right one.
/// Those beyond the tile are not used.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) left: [*const f32; MAX_ROWS],
    pub(crate) right: [*const f32; MAX_PANELS],
}

impl Run {
    /// The run of neighbouring blocks and panels; those beyond the first that do not exist are the first.
    #[inline(always)]
    pub(crate) fn new(blocks: [&[*const f32; ROWS]; MAX_BLOCKS], right: [*const f32; MAX_PANELS]) -> Run {
        let mut left = [std::ptr::null(); MAX_ROWS];
        left[..ROWS].copy_from_slice(blocks[0]);
        left[ROWS..].copy_from_slice(blocks[1]);
        Run { left, right }
    }
}

/// The steps of every run of a call.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// Steps of a run.
    pub(crate) len: usize,
    /// Elements from one step to the next along a row of the left operand.
    pub(crate) left: usize,
    /// Elements from one vector of the right operand to the next.
    pub(crate) right: usize,
}

/// Where the sums of a tile go.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// The first element of every row; those from `n_rows` on are not used.
    pub(crate) rows: [*mut f32; MAX_ROWS],
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    /// Elements from one column to the next.
    pub(crate) col_stride: usize,
    pub(crate) write: Write,
    /// Factor of the sums.
    pub(crate) alpha: f32,
}

/// Sums the runs `run(0)`, `run(1)`, … `run(n_runs - 1)` into `target`.
///
/// # Safety
/// The target has no more rows and columns than the shape. All steps of all runs are readable (16 elements of every panel
/// in each), also for rows and columns of blocks and panels that reach beyond the target; the used elements of the target
/// are writable and touched by nothing else.
#[inline]
pub(crate) unsafe fn tile(
    shape: Shape,
    n_runs: usize,
    run: impl Fn(usize) -> Run,
    steps: Steps,
    target: &Target,
) {
    debug_assert!(target.n_rows <= shape.blocks * ROWS && target.n_cols <= shape.panels * COLS);
    // As few rows as the target has, or one more: of 64 rows, which many layers have, the last four make a tile.
    macro_rules! rows {
        ($vectors:literal: $($rows:literal)*) => {
            match target.n_rows.next_multiple_of(2) {
                $($rows => dispatch_to(shape.isa, Tile::<_, $rows, $vectors> { n_runs, run, steps, target }),)*
                _ => unreachable!("a tile has 1 to {MAX_ROWS} rows"),
            }
        };
    }
    match shape.panels {
        1 => rows!(2: 2 4 6),
        _ if target.n_cols <= COLS => rows!(1: 2 4 6 8 10 12),
        _ => rows!(2: 2 4 6 8 10 12),
    }
}

/// A tile of `R` rows of `N` vectors.
struct Tile<'a, F, const R: usize, const N: usize> {
    n_runs: usize,
    run: F,
    steps: Steps,
    target: &'a Target,
}

impl<F: Fn(usize) -> Run, const R: usize, const N: usize> Kernel for Tile<'_, F, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Tile { n_runs, run, steps, target } = self;
        let in_rows = target.col_stride == 1;
        if in_rows {
            target.rows[..R].iter().take(target.n_rows).for_each(|row| prefetch_for_writing(*row));
        }
        let mut sums = [[V::splat(0.0); N]; R];
        for r in 0..n_runs {
            let run = run(r);
            let left: [*const f32; R] = std::array::from_fn(|i| run.left[i]);
            // Panels are one after the other, and a vector is a panel or a part of one.
            let mut right: [*const f32; N] =
                std::array::from_fn(|j| run.right[j * V::LANES / COLS].wrapping_add(j * V::LANES % COLS));
            let mut left_at = 0;
            for _ in 0..steps.len {
                // SAFETY: in range by the promise to `tile`.
                unsafe {
                    let mut vectors = [V::splat(0.0); N];
                    for (vector, right) in vectors.iter_mut().zip(right) {
                        *vector = V::load(right);
                    }
                    for (sums, left) in sums.iter_mut().zip(left) {
                        let left = V::splat(left.add(left_at).read());
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = left.mul_add(vector, *sum);
                        }
                    }
                }
                left_at += steps.left;
                right = right.map(|right| right.wrapping_add(steps.right));
            }
        }
        let alpha = V::splat(target.alpha);
        if !in_rows {
            let mut part = [[0.0; MAX_PANELS * COLS]; R];
            for (part, sums) in part.iter_mut().zip(sums) {
                for (part, sum) in part.chunks_exact_mut(V::LANES).zip(sums) {
                    // SAFETY: a chunk has as many elements as a vector.
                    unsafe { (alpha * sum).store(part.as_mut_ptr()) };
                }
            }
            // SAFETY: the promise to `tile`.
            return unsafe { write_apart(&part, target) };
        }
        let whole = target.n_rows == R && target.n_cols == N * V::LANES;
        for (i, sums) in sums.into_iter().enumerate() {
            if !whole && i >= target.n_rows {
                break;
            }
            for (j, sum) in sums.into_iter().enumerate() {
                let (out, product) = (target.rows[i].wrapping_add(j * V::LANES), alpha * sum);
                let n =
                    if whole { V::LANES } else { target.n_cols.saturating_sub(j * V::LANES).min(V::LANES) };
                // SAFETY: used elements of the target, by the promise to `tile`.
                unsafe {
                    if n == V::LANES {
                        match target.write {
                            Write::Overwrite => product.store(out),
                            Write::Accumulate => (V::load(out) + product).store(out),
                        }
                    } else {
                        match target.write {
                            Write::Overwrite => product.store_first(out, n),
                            Write::Accumulate => (V::load_first(out, n) + product).store_first(out, n),
                        }
                    }
                }
            }
        }
    }
}

/// Writes products to a target whose columns are not neighbours.
///
/// # Safety
/// See [`tile`].
unsafe fn write_apart<const R: usize>(products: &[[f32; MAX_PANELS * COLS]; R], target: &Target) {
    for (products, &row) in products.iter().zip(&target.rows).take(target.n_rows) {
        for (j, product) in products.iter().enumerate().take(target.n_cols) {
            // SAFETY: a used element of the target.
            unsafe {
                let out = row.add(j * target.col_stride);
                *out = if target.write == Write::Accumulate { *out + product } else { *product };
            }
        }
    }
}

/// Asks for the line of an address that will be written when the sums are there.
#[inline(always)]
fn prefetch_for_writing(address: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};

    /// The tiles of all instruction sets agree with the definition for any size, and write nothing else.
    #[test]
    fn tiles_agree_with_the_definition() {
        let (n_runs, len) = (3, 7);
        let steps = Steps { len, left: 1, right: COLS };
        let left = random(n_runs * MAX_ROWS * len, 1);
        let right = random(n_runs * MAX_PANELS * len * COLS, 2);
        for isa in Isa::available() {
            let shape = match isa {
                Isa::Portable | Isa::Avx2 => Shape { isa, blocks: 1, panels: 1 },
                Isa::Emulated512 | Isa::Avx512 => Shape { isa, blocks: MAX_BLOCKS, panels: MAX_PANELS },
            };
            let (most_rows, most_cols) = (shape.blocks * ROWS, shape.panels * COLS);
            let sizes = (1..=most_rows).flat_map(|rows| (1..=most_cols).map(move |cols| (rows, cols)));
            for (n_rows, n_cols) in sizes {
                for (write, col_stride) in [
                    (Write::Overwrite, 1),
                    (Write::Accumulate, 1),
                    (Write::Overwrite, 2),
                    (Write::Accumulate, 3),
                ] {
                    let row_len = most_cols * col_stride;
                    let old = random(most_rows * row_len, 3);
                    let mut want: Vec<f64> = old.iter().map(|&x| f64::from(x)).collect();
                    for (i, j) in (0..n_rows).flat_map(|i| (0..n_cols).map(move |j| (i, j))) {
                        let mut sum = 0.0;
                        for (r, k) in (0..n_runs).flat_map(|r| (0..len).map(move |k| (r, k))) {
                            let panel = r * MAX_PANELS + j / COLS;
                            let right = right[(panel * len + k) * COLS + j % COLS];
                            sum += f64::from(left[(r * MAX_ROWS + i) * len + k]) * f64::from(right);
                        }
                        let want = &mut want[i * row_len + j * col_stride];
                        *want = 0.5 * sum + if write == Write::Accumulate { *want } else { 0.0 };
                    }
                    let run = |r: usize| Run {
                        left: std::array::from_fn(|i| left[(r * MAX_ROWS + i) * len..].as_ptr()),
                        right: std::array::from_fn(|p| right[(r * MAX_PANELS + p) * len * COLS..].as_ptr()),
                    };
                    let mut got = old.clone();
                    let base = got.as_mut_ptr();
                    let rows = std::array::from_fn(|i| base.wrapping_add(i * row_len));
                    let target = Target { rows, n_rows, n_cols, col_stride, write, alpha: 0.5 };
                    // SAFETY: all pointers lead into the vectors above, which have a full tile everywhere.
                    unsafe { tile(shape, n_runs, run, steps, &target) };
                    assert_close(&got, &want, 1e-6);
                }
            }
        }
    }
}
