//! The innermost loop of every product: a tile of sums that stays in registers.
//!
//! In: runs of products. In a run, each row of the left operand has a pointer and the right operand is a sequence of vectors
//! of 16 neighbours; step `k` adds `left[i][k · left_step] · right[k · 16 + j]` to the sum `(i, j)`. Out: the
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

use crate::base::cache::prefetch_for_writing;
use crate::base::isa::{self, Isa};
use crate::base::vector::{Kernel, Vector, dispatch_to};
use crate::product::prefetch::Prefetch;

/// Rows of a block.
pub(crate) const ROWS: usize = 6;
/// Columns of a panel.
pub(crate) const COLS: usize = 16;
/// Blocks and panels of the largest tile.
const MAX_BLOCKS: usize = 2;
const MAX_PANELS: usize = 2;
/// Rows of the largest tile.
pub(crate) const MAX_ROWS: usize = MAX_BLOCKS * ROWS;
/// Steps that are worth one visit of the output, and few enough for a panel of the right operand to stay in the
/// first-level cache.
pub(crate) const DEPTH: usize = 320;
/// Most steps between which memory is asked for.
const PART: usize = 64;

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
        Shape::of(isa::current())
    }

    fn of(isa: Isa) -> Shape {
        match isa {
            Isa::Portable | Isa::Avx2 => Shape { isa, blocks: 1, panels: 1 },
            Isa::Emulated512 | Isa::Avx512 => Shape { isa, blocks: MAX_BLOCKS, panels: MAX_PANELS },
        }
    }

    /// Rows of a tile.
    pub(crate) fn tile_rows(self) -> usize {
        self.blocks * ROWS
    }

    /// Columns of a tile.
    pub(crate) fn tile_cols(self) -> usize {
        self.panels * COLS
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

/// The pointers of a block of rows of the left operand for one run.
pub(crate) type RowPointers = [*const f32; ROWS];

/// The steps of every run of a strip.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// Steps of a run.
    pub(crate) len: usize,
    /// Elements from one step to the next along a row of the left operand. Vectors of a panel are neighbours.
    pub(crate) left: usize,
}

/// The panels of a tile, for every run.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    /// From the first panel of the first run on.
    pub(crate) data: &'a [f32],
    /// Elements from a run to the next.
    pub(crate) run_stride: usize,
    /// Elements from a panel to the next.
    pub(crate) panel_stride: usize,
}

/// Some rows of a product with the panels of one tile: tiles below each other. One call computes all of them, because what
/// a call costs is a tenth of what a tile takes.
#[derive(Clone, Copy)]
pub(crate) struct Strip<'a> {
    /// Runs of every sum.
    pub(crate) n_runs: usize,
    pub(crate) steps: Steps,
    /// The pointers of every block of rows and run, blocks outermost. Rows beyond the last point to anything readable.
    pub(crate) left: &'a [RowPointers],
    pub(crate) right: Panels<'a>,
    /// The first element of every row of the output.
    pub(crate) targets: &'a [*mut f32],
    /// The first column of the sums in every row of the output, and how many there are.
    pub(crate) first_col: usize,
    pub(crate) n_cols: usize,
    /// Elements from one column of the output to the next.
    pub(crate) col_stride: usize,
    pub(crate) write: Write,
    /// Factor of the sums.
    pub(crate) alpha: f32,
    /// Rows of a tile: even, at most those of the shape, and whole blocks if there are several runs.
    pub(crate) tile_rows: usize,
}

/// Computes a strip, and meanwhile asks for memory.
///
/// # Safety
/// All steps of all runs are readable, also for rows beyond the last that share a block with it; the rows of the output are
/// writable in the columns of the strip, and touched by nothing else. What is said at the fields holds.
#[inline]
pub(crate) unsafe fn multiply(shape: Shape, strip: &Strip<'_>, prefetch: &mut Prefetch) {
    debug_assert!(strip.n_cols <= shape.tile_cols());
    debug_assert!(strip.tile_rows <= shape.tile_rows() && strip.tile_rows.is_multiple_of(2));
    debug_assert!(strip.n_runs <= 1 || strip.tile_rows.is_multiple_of(ROWS));
    if shape.panels > 1 && strip.n_cols <= COLS {
        dispatch_to(shape.isa, Tiles::<1> { strip, prefetch });
    } else {
        dispatch_to(shape.isa, Tiles::<2> { strip, prefetch });
    }
}

/// The tiles of a strip, of `N` vectors across.
struct Tiles<'a, const N: usize> {
    strip: &'a Strip<'a>,
    prefetch: &'a mut Prefetch,
}

impl<const N: usize> Kernel for Tiles<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Tiles { strip, prefetch } = self;
        let n_rows = strip.targets.len();
        let mut first = 0;
        while first < n_rows {
            let n = strip.tile_rows.min(n_rows - first);
            // As few rows as there are, or one more: of 64 rows, which many layers have, the last four make a tile.
            // SAFETY: the promise to `multiply`.
            unsafe {
                match n.next_multiple_of(2) {
                    2 => tile::<V, 2, N>(strip, first, n, prefetch),
                    4 => tile::<V, 4, N>(strip, first, n, prefetch),
                    6 => tile::<V, 6, N>(strip, first, n, prefetch),
                    8 if V::LANES == COLS => tile::<V, 8, N>(strip, first, n, prefetch),
                    10 if V::LANES == COLS => tile::<V, 10, N>(strip, first, n, prefetch),
                    12 if V::LANES == COLS => tile::<V, 12, N>(strip, first, n, prefetch),
                    _ => unreachable!("a tile has 1 to {MAX_ROWS} rows"),
                }
            }
            first += n;
        }
    }
}

/// A tile of `R` rows of `N` vectors, of which `n_rows` rows from `first` on are wanted.
///
/// # Safety
/// See [`multiply`].
#[inline(always)]
unsafe fn tile<V: Vector, const R: usize, const N: usize>(
    strip: &Strip<'_>,
    first: usize,
    n_rows: usize,
    prefetch: &mut Prefetch,
) {
    let &Strip { n_runs, steps, targets, n_cols, col_stride, write, .. } = strip;
    let targets = &targets[first..first + n_rows];
    let target = |i: usize| targets[i].wrapping_add(strip.first_col * col_stride);
    let in_rows = col_stride == 1;
    // A panel that does not exist is not used, but is something.
    let last_panel = n_cols.div_ceil(COLS).max(1) - 1;
    // A wide tile asks for a line or two of what comes next and for a row of the output, every few steps. A narrow one has a
    // quarter of the work and needs a quarter of the lines: it asks for several at once, and seldom.
    let is_wide = V::LANES == COLS;
    let (mut walk, n_lines) = prefetch.next_tile();
    let part = (n_runs * steps.len / n_lines.max(R)).clamp(if is_wide { 4 } else { 32 }, PART);
    let lines_per_part = n_lines.div_ceil((n_runs * steps.len.div_ceil(part)).max(1));
    let ask_for_row = |i: usize| {
        (0..N * V::LANES).step_by(COLS).for_each(|j| prefetch_for_writing(target(i).wrapping_add(j)));
    };
    if !is_wide && in_rows {
        (0..n_rows).for_each(ask_for_row);
    }
    let mut n_parts = 0;
    let mut sums = [[V::splat(0.0); N]; R];
    for run in 0..n_runs {
        let left = left_rows::<R>(strip, first, run);
        let panels = &strip.right.data[run * strip.right.run_stride..];
        // Panels are one after the other, and a vector is a panel or a part of one.
        let apart: [usize; N] = std::array::from_fn(|j| {
            (j * V::LANES / COLS).min(last_panel) * strip.right.panel_stride + j * V::LANES % COLS
        });
        let mut right = panels.as_ptr();
        let mut left_at = 0;
        let mut n_left = steps.len;
        while n_left > 0 {
            if is_wide {
                walk.next();
                if lines_per_part > 1 {
                    walk.next();
                }
                ask_for_row(n_parts.min(n_rows - 1));
            } else {
                (0..lines_per_part).for_each(|_| walk.next());
            }
            n_parts += 1;
            let n_steps = n_left.min(part);
            n_left -= n_steps;
            for _ in 0..n_steps {
                // SAFETY: in range by the promise to `multiply`.
                unsafe {
                    let mut vectors = [V::splat(0.0); N];
                    for (vector, apart) in vectors.iter_mut().zip(apart) {
                        *vector = V::load(right.add(apart));
                    }
                    for (sums, left) in sums.iter_mut().zip(left) {
                        let left = V::splat(left.add(left_at).read());
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = left.mul_add(vector, *sum);
                        }
                    }
                }
                left_at += steps.left;
                right = right.wrapping_add(COLS);
            }
        }
    }
    prefetch.asked(walk, n_parts * if is_wide { lines_per_part.clamp(1, 2) } else { lines_per_part });
    let alpha = V::splat(strip.alpha);
    if !in_rows {
        let mut part = [[0.0; MAX_PANELS * COLS]; R];
        for (part, sums) in part.iter_mut().zip(sums) {
            for (part, sum) in part.chunks_exact_mut(V::LANES).zip(sums) {
                // SAFETY: a chunk has as many elements as a vector.
                unsafe { (alpha * sum).store(part.as_mut_ptr()) };
            }
        }
        for (i, part) in part.iter().enumerate().take(n_rows) {
            // SAFETY: the columns of a row of the output.
            unsafe { write_apart(&part[..n_cols], target(i), col_stride, write) };
        }
        return;
    }
    // SAFETY: the columns of rows of the output.
    unsafe {
        if n_rows < R || n_cols < N * V::LANES {
            for (i, sums) in sums.into_iter().enumerate().take(n_rows) {
                for (j, sum) in sums.into_iter().enumerate() {
                    let (out, product) = (target(i).wrapping_add(j * V::LANES), alpha * sum);
                    let n = n_cols.saturating_sub(j * V::LANES).min(V::LANES);
                    match write {
                        Write::Overwrite => product.store_first(out, n),
                        Write::Accumulate => (V::load_first(out, n) + product).store_first(out, n),
                    }
                }
            }
        } else if write == Write::Overwrite {
            // Whole tiles apart from others, without a choice inside, so that sums go from registers to memory.
            for (i, sums) in sums.into_iter().enumerate() {
                for (j, sum) in sums.into_iter().enumerate() {
                    (alpha * sum).store(target(i).wrapping_add(j * V::LANES));
                }
            }
        } else {
            for (i, sums) in sums.into_iter().enumerate() {
                for (j, sum) in sums.into_iter().enumerate() {
                    let out = target(i).wrapping_add(j * V::LANES);
                    (V::load(out) + alpha * sum).store(out);
                }
            }
        }
    }
}

/// The pointers of `R` rows from `first` on, for one run.
#[inline(always)]
fn left_rows<const R: usize>(strip: &Strip<'_>, first: usize, run: usize) -> [*const f32; R] {
    let mut rows = [std::ptr::null(); R];
    if strip.n_runs == 1 {
        rows.copy_from_slice(&strip.left.as_flattened()[first..][..R]);
    } else {
        let blocks = &strip.left[first / ROWS * strip.n_runs + run..];
        for (rows, block) in rows.chunks_mut(ROWS).zip(blocks.iter().step_by(strip.n_runs)) {
            rows.copy_from_slice(&block[..rows.len()]);
        }
    }
    rows
}

/// Writes products to a row of the output whose columns are not neighbours.
///
/// # Safety
/// As many columns are writable.
unsafe fn write_apart(products: &[f32], row: *mut f32, col_stride: usize, write: Write) {
    for (j, product) in products.iter().enumerate() {
        // SAFETY: a column of the row.
        unsafe {
            let out = row.add(j * col_stride);
            *out = if write == Write::Accumulate { *out + product } else { *product };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::prefetch::Region;
    use crate::testing::{assert_close, random};

    /// The tiles of all instruction sets agree with the definition for any size, and write nothing else.
    #[test]
    fn strips_agree_with_the_definition() {
        let (len, most_rows, most_cols) = (7, 2 * MAX_ROWS + 1, MAX_PANELS * COLS);
        for (isa, n_runs) in Isa::available().flat_map(|isa| [1, 3].map(|n_runs| (isa, n_runs))) {
            let shape = Shape::of(isa);
            let n_blocks = most_rows.div_ceil(ROWS);
            let left = random(n_blocks * ROWS * n_runs * len, 1);
            let right = random(n_runs * MAX_PANELS * len * COLS, 2);
            let mut pointers = vec![[std::ptr::null(); ROWS]; n_blocks * n_runs];
            for (i, pointer) in pointers.as_flattened_mut().iter_mut().enumerate() {
                *pointer = left[i * len..].as_ptr();
            }
            let row_of = |row: usize, run: usize| {
                &left[((row / ROWS * n_runs + run) * ROWS + row % ROWS) * len..][..len]
            };
            let rows = [1, 2, 5, 6, 7, 11, 12, 13, 18, 22, most_rows];
            let sizes =
                rows.into_iter().flat_map(|rows| (1..=shape.tile_cols()).map(move |cols| (rows, cols)));
            for (n_rows, n_cols) in sizes {
                for (write, col_stride, tile_rows) in [
                    (Write::Overwrite, 1, shape.tile_rows()),
                    (Write::Accumulate, 1, ROWS),
                    (Write::Overwrite, 2, shape.tile_rows()),
                    (Write::Accumulate, 3, if n_runs == 1 { 4 } else { ROWS }),
                ] {
                    let row_len = (most_cols + 1) * col_stride;
                    let old = random(most_rows * row_len, 3);
                    let mut want: Vec<f64> = old.iter().map(|&x| f64::from(x)).collect();
                    for (i, j) in (0..n_rows).flat_map(|i| (0..n_cols).map(move |j| (i, j))) {
                        let mut sum = 0.0;
                        for (r, k) in (0..n_runs).flat_map(|r| (0..len).map(move |k| (r, k))) {
                            let panel = r * MAX_PANELS + j / COLS;
                            let right = right[(panel * len + k) * COLS + j % COLS];
                            sum += f64::from(row_of(i, r)[k]) * f64::from(right);
                        }
                        let want = &mut want[i * row_len + (j + 1) * col_stride];
                        *want = 0.5 * sum + if write == Write::Accumulate { *want } else { 0.0 };
                    }
                    let mut got = old.clone();
                    let base = got.as_mut_ptr();
                    let targets: Vec<_> = (0..n_rows).map(|i| base.wrapping_add(i * row_len)).collect();
                    let strip = Strip {
                        n_runs,
                        steps: Steps { len, left: 1 },
                        left: &pointers,
                        right: Panels {
                            data: &right,
                            run_stride: MAX_PANELS * len * COLS,
                            panel_stride: len * COLS,
                        },
                        targets: &targets,
                        first_col: 1,
                        n_cols,
                        col_stride,
                        write,
                        alpha: 0.5,
                        tile_rows,
                    };
                    // SAFETY: all pointers lead into the vectors above, which have whole blocks and panels everywhere.
                    unsafe { multiply(shape, &strip, &mut Prefetch::new([Region::NONE; 2], 1)) };
                    assert_close(&got, &want, 1e-6);
                }
            }
        }
    }
}
