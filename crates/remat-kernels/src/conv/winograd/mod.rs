//! Winograd's algorithm for 3×3 kernels with stride 1: a quarter of the multiplications.
//!
//! In: an image and the weight. Out: the target image, or the gradient of the weight. A tile of 4×4 outputs sees 6×6 inputs.
//! Both are transformed (`transform`), and what is left are 36 matrix products of `[tiles, channels]`, one for every
//! element of a transformed tile. Of the transformed images only what a task works on exists: some tiles in the
//! memory of its thread, less than the second-level cache holds. The transformed weight, which all tasks read, is in the workspace, already in
//! the panels that `micro` reads.
//!
//! It is another order of sums, with other rounding: it has an error of about 1.5 times that of the plain sum, for which see
//! `transform`. So it is used where a node asks for it (`ConvShape::winograd`), never as a matter of speed alone.
//!
//! Time O(tiles · 36 · c · o); workspace 36 · c · o, and a bounded number of tiles for the gradient of the weight.

mod grad_weight;
mod tiles;
mod transform;

pub(super) use grad_weight::{grad_weight, grad_weight_workspace};

use super::ConvShape;
use super::indirect::Direction;
use crate::base::cache::second_level_bytes;
use crate::base::par;
use crate::base::raw::Dst;
use crate::base::scratch::with_scratch;
use crate::base::vector::{Kernel, Vector, dispatch};
use crate::product::micro::{self, COLS, Panels, ROWS, Shape, Steps, Strip, Write};
use crate::product::panel::{Strides, pack_right, right_stride};
use crate::product::prefetch::{Prefetch, Region};
use std::ops::Range;
use tiles::{Image, Place, Tiles};
use transform::{INPUTS, PRODUCTS, TAPS, Weight, both_ways};

/// Elements of transformed input that a task keeps, twice as many where the second-level cache has two megabytes. Every task
/// reads the whole transformed weight, so few of them, with many tiles each, read less.
const KEPT: usize = 160_000;
/// Most and fewest tiles of a task.
const MAX_TILES: usize = 48;
const MIN_TILES: usize = 6;
/// Most rows of a product: tiles of a task, or output channels of one.
const MOST_ROWS: usize = if MAX_TILES > grad_weight::OUTPUTS { MAX_TILES } else { grad_weight::OUTPUTS };
/// Tasks come in multiples, so that two or four threads share them evenly.
const TASKS: usize = 4;

impl ConvShape {
    fn tiles(&self, direction: Direction) -> Tiles {
        let input = Image { h: self.h, w: self.w, c: self.c };
        let output = Image { h: self.out_h(), w: self.out_w(), c: self.o };
        match direction {
            Direction::Forward => Tiles { source: input, padding: self.padding, target: output },
            // Taps are turned around, and zeros on one side are those that the other side lacks.
            Direction::InputGradient => {
                let padding = (TAPS - 1 - self.padding.0, TAPS - 1 - self.padding.1);
                Tiles { source: output, padding, target: input }
            }
        }
    }
}

/// Elements from one panel of the transformed weight to the next: all of its products lie together, as they are read.
fn panel_stride(tiles: &Tiles) -> usize {
    PRODUCTS * right_stride(tiles.source.c)
}

/// Elements of workspace that [`run`] needs.
pub(super) fn workspace(shape: &ConvShape, direction: Direction) -> usize {
    let tiles = shape.tiles(direction);
    tiles.target.c.div_ceil(COLS) * panel_stride(&tiles)
}

/// `target = source ∗ weight` (or added to it), in one direction or the other.
pub(super) fn run(
    shape: &ConvShape,
    direction: Direction,
    source: &[f32],
    weight: &[f32],
    write: Write,
    target: &mut [f32],
    workspace: &mut [f32],
) {
    let tiles = shape.tiles(direction);
    let packed = &mut workspace[..tiles.target.c.div_ceil(COLS) * panel_stride(&tiles)];
    par::for_each_chunk(packed, panel_stride(&tiles), |panel, packed| {
        transform_panel(shape, direction, &tiles, weight, panel, packed);
    });
    let packed = &*packed;
    let n_tiles = shape.n * tiles.per_image();
    let kept = KEPT * if second_level_bytes() >= 2 << 20 { 2 } else { 1 };
    let most = (kept / (PRODUCTS * row_stride(tiles.source.c))).clamp(MIN_TILES, MAX_TILES);
    let n_tasks = n_tiles.div_ceil(most).next_multiple_of(TASKS);
    let per_task = n_tiles.div_ceil(n_tasks);
    let target = Dst::from(target);
    par::for_each_range(n_tiles, per_task, |range| {
        multiply_tiles(&tiles, range, source, packed, target, write);
    });
}

/// Elements from one tile of the transformed input to the next: whole vectors, and not a power of two, because rows
/// must not fall into the same sets of the caches.
fn row_stride(channels: usize) -> usize {
    channels.next_multiple_of(COLS) + COLS
}

/// Packs and transforms the weights of one panel of target channels.
fn transform_panel(
    shape: &ConvShape,
    direction: Direction,
    tiles: &Tiles,
    weight: &[f32],
    panel: usize,
    packed: &mut [f32],
) {
    let (steps, first) = (tiles.source.c, panel * COLS);
    let n_cols = COLS.min(tiles.target.c - first);
    let patch = TAPS * TAPS * shape.c;
    with_scratch(TAPS * TAPS * right_stride(steps), |taps| {
        for (tap, block) in taps.chunks_exact_mut(right_stride(steps)).enumerate() {
            let (from, strides) = match direction {
                Direction::Forward => (first * patch + tap * shape.c, Strides { step: 1, across: patch }),
                Direction::InputGradient => {
                    let turned = TAPS * TAPS - 1 - tap;
                    (turned * shape.c + first, Strides { step: patch, across: 1 })
                }
            };
            pack_right(&weight[from..], strides, steps, n_cols, block);
        }
        dispatch(TransformWeights { taps, steps, packed });
    });
}

/// Transforms the packed taps of a panel.
struct TransformWeights<'a> {
    taps: &'a [f32],
    steps: usize,
    packed: &'a mut [f32],
}

impl Kernel for TransformWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let stride = right_stride(self.steps);
        assert_eq!([self.taps.len(), self.packed.len()], [TAPS * TAPS * stride, PRODUCTS * stride], "panels");
        let mut at = 0;
        while at < self.steps * COLS {
            let mut g = [[V::splat(0.0); TAPS]; TAPS];
            for (tap, g) in g.as_flattened_mut().iter_mut().enumerate() {
                // SAFETY: a vector of a step of a tap.
                *g = unsafe { V::load(self.taps.as_ptr().add(tap * stride + at)) };
            }
            let u = both_ways::<Weight, V, TAPS, INPUTS>(&g);
            for (e, u) in u.as_flattened().iter().enumerate() {
                // SAFETY: a vector of a step of a product.
                unsafe { u.store(self.packed.as_mut_ptr().add(e * stride + at)) };
            }
            at += V::LANES;
        }
    }
}

/// Some tiles from beginning to end.
fn multiply_tiles(
    tiles: &Tiles,
    range: Range<usize>,
    source: &[f32],
    packed: &[f32],
    target: Dst<'_>,
    write: Write,
) {
    let shape = Shape::current();
    let (depth, n_tiles) = (tiles.source.c, range.len());
    let (row, width) = (row_stride(depth), shape.tile_cols());
    with_scratch(PRODUCTS * n_tiles * (row + width), |scratch| {
        let (inputs, products) = scratch.split_at_mut(PRODUCTS * n_tiles * row);
        dispatch(TransformInputs { tiles, range: range.clone(), source, row, inputs });
        let inputs = &*inputs;
        for first in (0..tiles.target.c).step_by(width) {
            let n_cols = width.min(tiles.target.c - first);
            for e in 0..PRODUCTS {
                let panels = &packed[first / COLS * panel_stride(tiles) + e * right_stride(depth)..];
                let operands = Operands {
                    left: &inputs[e * n_tiles * row..][..n_tiles * row],
                    left_row: row,
                    left_step: 1,
                    right: panels,
                    right_stride: panel_stride(tiles),
                    next: right_stride(depth),
                    n_rows: n_tiles,
                    n_panels: n_cols.div_ceil(COLS),
                    depth,
                };
                multiply(shape, &operands, &mut products[e * n_tiles * width..][..n_tiles * width]);
            }
            let products = &*products;
            dispatch(WriteOutputs {
                tiles,
                range: range.clone(),
                products,
                width,
                first,
                n_cols,
                target,
                write,
            });
        }
    });
}

struct TransformInputs<'a> {
    tiles: &'a Tiles,
    range: Range<usize>,
    source: &'a [f32],
    row: usize,
    inputs: &'a mut [f32],
}

impl Kernel for TransformInputs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let TransformInputs { tiles, range, source, row, inputs } = self;
        let of_product = range.len() * row;
        assert_eq!(inputs.len(), PRODUCTS * of_product, "room for all tiles");
        let first_tile = range.start;
        for tile in range {
            let first = inputs[(tile - first_tile) * row..].as_mut_ptr();
            let place = Place { first, of_product, of_panel: COLS };
            // SAFETY: the tiles are those of the source; rows have room for whole vectors.
            unsafe { tiles.transform_input::<V>(source.as_ptr(), tile, place) };
        }
    }
}

struct WriteOutputs<'a> {
    tiles: &'a Tiles,
    range: Range<usize>,
    products: &'a [f32],
    width: usize,
    first: usize,
    n_cols: usize,
    target: Dst<'a>,
    write: Write,
}

impl Kernel for WriteOutputs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let WriteOutputs { tiles, range, products, width, first, n_cols, target, write } = self;
        let (n_tiles, of_product) = (range.len(), range.len() * width);
        assert_eq!(products.len(), PRODUCTS * of_product, "products of all tiles");
        for (i, tile) in range.enumerate().take(n_tiles) {
            let products = products[i * width..].as_ptr();
            // SAFETY: rows of products are whole vectors; tiles are different positions, and each has one task.
            unsafe { tiles.write_outputs::<V>(products, of_product, tile, first, n_cols, target, write) };
        }
    }
}

/// The operands of one of the products: rows `left_row` apart with steps `left_step` apart, and panels.
struct Operands<'a> {
    left: &'a [f32],
    left_row: usize,
    left_step: usize,
    right: &'a [f32],
    right_stride: usize,
    /// Elements from here to the panels of the next product, which are asked for meanwhile.
    next: usize,
    n_rows: usize,
    n_panels: usize,
    depth: usize,
}

/// A product with the panels of a tile of the innermost loop, into rows of as many columns.
fn multiply(shape: Shape, operands: &Operands<'_>, out: &mut [f32]) {
    let &Operands { left, left_row, left_step, right, right_stride, next, n_rows, n_panels, depth } =
        operands;
    let width = shape.tile_cols();
    assert!(left.len() > (n_rows - 1) * left_row + (depth - 1) * left_step, "rows of the left operand");
    assert!(right.len() >= (n_panels - 1) * right_stride + depth * COLS, "panels of the right operand");
    assert!(out.len() >= n_rows * width && n_panels <= shape.panels, "room for the products");
    assert!(n_rows <= MOST_ROWS, "rows of a product");
    let mut pointers = [[std::ptr::null(); ROWS]; MOST_ROWS.div_ceil(ROWS)];
    let mut targets = [std::ptr::null_mut(); MOST_ROWS];
    let out = out.as_mut_ptr();
    for (i, pointer) in pointers.as_flattened_mut().iter_mut().enumerate() {
        // Rows beyond the last are the last.
        *pointer = left[i.min(n_rows - 1) * left_row..].as_ptr();
    }
    for (i, target) in targets[..n_rows].iter_mut().enumerate() {
        *target = out.wrapping_add(i * width);
    }
    // Tiles as even as possible, in pairs of rows.
    let tile_rows = n_rows.div_ceil(n_rows.div_ceil(shape.tile_rows())).next_multiple_of(2);
    let start = right.as_ptr().wrapping_add(next);
    let next = Region { start, n_runs: n_panels, stride: right_stride, run_len: depth * COLS };
    let mut prefetch = Prefetch::new([next, Region::NONE], n_rows.div_ceil(tile_rows));
    let strip = Strip {
        n_runs: 1,
        steps: Steps { len: depth, left: left_step },
        left: &pointers,
        right: Panels { data: right, run_stride: 0, panel_stride: right_stride },
        targets: &targets[..n_rows],
        first_col: 0,
        n_cols: n_panels * COLS,
        col_stride: 1,
        write: Write::Overwrite,
        alpha: 1.0,
        tile_rows,
    };
    // SAFETY: by the assertions above.
    unsafe { micro::multiply(shape, &strip, &mut prefetch) };
}
