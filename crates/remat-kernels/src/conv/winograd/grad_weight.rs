//! The gradient of the weight by Winograd's algorithm.
//!
//! Inputs and gradients of the outputs are transformed for a piece of the tiles, whose size follows from the shape alone,
//! into the workspace; then tasks take some output channels and a panel or two of input channels each, multiply over the
//! tiles of the piece and add the transformed sums to the gradient. Pieces come in order, so every element is added to in
//! a fixed order.

use std::ops::Range;

use super::tiles::{Place, Tiles};
use super::transform::{INPUTS, PRODUCTS, TAPS, WeightGrad, both_ways};
use super::{Operands, multiply, row_stride};
use crate::base::par;
use crate::base::raw::Dst;
use crate::base::scratch::with_scratch;
use crate::base::vector::{Kernel, Vector, dispatch};
use crate::conv::ConvShape;
use crate::conv::indirect::Direction;
use crate::product::micro::{COLS, Shape, Write};
use crate::product::panel::right_stride;

/// Elements (8 MiB) that the transformed tiles of a piece may fill.
const PIECE: usize = 1 << 21;
/// Tiles that a task transforms.
const TILES_PER_TASK: usize = 4;
/// Output channels of a task.
pub(super) const OUTPUTS: usize = 48;

/// Tiles of a piece.
fn piece(shape: &ConvShape) -> usize {
    let n_tiles = shape.n * shape.tiles(Direction::Forward).per_image();
    let per_tile = PRODUCTS * (row_stride(shape.c) + row_stride(shape.o));
    let most = (PIECE / per_tile).clamp(1, n_tiles);
    n_tiles.div_ceil(n_tiles.div_ceil(most))
}

/// Elements from the transformed inputs of one product to those of the next, and the same for transformed gradients: odd numbers
/// of lines, because all products of a tile are written side by side and must not fall into the same sets of the caches.
fn strides(shape: &ConvShape) -> (usize, usize) {
    let piece = piece(shape);
    let panels = shape.c.div_ceil(COLS) * right_stride(piece) / COLS;
    let rows = piece * row_stride(shape.o) / COLS;
    (right_stride(panels), right_stride(rows))
}

/// Elements of workspace that [`grad_weight`] needs.
pub(in crate::conv) fn grad_weight_workspace(shape: &ConvShape) -> usize {
    let (of_input, of_output) = strides(shape);
    PRODUCTS * (of_input + of_output)
}

/// `dweight` from `dy` and `x`.
pub(in crate::conv) fn grad_weight(
    shape: &ConvShape,
    dy: &[f32],
    x: &[f32],
    dweight: &mut [f32],
    workspace: &mut [f32],
) {
    let tiles = shape.tiles(Direction::Forward);
    let n_tiles = shape.n * tiles.per_image();
    let (of_input, of_output) = strides(shape);
    let (inputs, outputs) = workspace[..PRODUCTS * (of_input + of_output)].split_at_mut(PRODUCTS * of_input);
    let dweight = Dst::from(dweight);
    let mut write = Write::Overwrite;
    for start in (0..n_tiles).step_by(piece(shape)) {
        let n_piece = piece(shape).min(n_tiles - start);
        let (to_inputs, to_outputs) = (Dst::from(&mut *inputs), Dst::from(&mut *outputs));
        par::for_each_range(n_piece, TILES_PER_TASK, |range| {
            dispatch(TransformTiles { shape, tiles: &tiles, start, range, x, dy, to_inputs, to_outputs });
        });
        let piece = Piece { shape, n_tiles: n_piece, inputs: &*inputs, outputs: &*outputs, write, dweight };
        let across = shape.c.div_ceil(2 * COLS);
        par::for_each(shape.o.div_ceil(OUTPUTS) * across, |task| {
            let rows = task / across * OUTPUTS..shape.o.min((task / across + 1) * OUTPUTS);
            let cols = task % across * 2 * COLS..shape.c.min((task % across + 1) * 2 * COLS);
            piece.run(rows, cols);
        });
        write = Write::Accumulate;
    }
}

struct TransformTiles<'a> {
    shape: &'a ConvShape,
    tiles: &'a Tiles,
    /// The first tile of the piece.
    start: usize,
    range: Range<usize>,
    x: &'a [f32],
    dy: &'a [f32],
    to_inputs: Dst<'a>,
    to_outputs: Dst<'a>,
}

impl Kernel for TransformTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let (of_input, of_output) = strides(self.shape);
        let of_panel = right_stride(piece(self.shape));
        for at in self.range {
            let first = self.to_inputs.at(at * COLS);
            let inputs = Place { first, of_product: of_input, of_panel };
            let first = self.to_outputs.at(at * row_stride(self.shape.o));
            let outputs = Place { first, of_product: of_output, of_panel: COLS };
            // SAFETY: the tile is one of the images; a panel has a vector for every tile of the piece, a row has room for
            // whole vectors, and both belong to this tile alone.
            unsafe {
                self.tiles.transform_input::<V>(self.x.as_ptr(), self.start + at, inputs);
                self.tiles.transform_output_grad::<V>(self.dy.as_ptr(), self.start + at, outputs);
            }
        }
    }
}

/// The transformed tiles of a piece.
struct Piece<'a> {
    shape: &'a ConvShape,
    n_tiles: usize,
    inputs: &'a [f32],
    outputs: &'a [f32],
    write: Write,
    dweight: Dst<'a>,
}

impl Piece<'_> {
    /// The gradient for some output channels and the input channels of two panels.
    fn run(&self, rows: Range<usize>, cols: Range<usize>) {
        let shape = Shape::current();
        let width = shape.tile_cols();
        let (of_input, of_output) = strides(self.shape);
        let panel = right_stride(piece(self.shape));
        with_scratch(PRODUCTS * rows.len() * width, |products| {
            for first in cols.clone().step_by(width) {
                let n_cols = width.min(cols.end - first);
                for (e, products) in products.chunks_exact_mut(rows.len() * width).enumerate() {
                    let operands = Operands {
                        left: &self.outputs[e * of_output + rows.start..],
                        left_row: 1,
                        left_step: row_stride(self.shape.o),
                        right: &self.inputs[e * of_input + first / COLS * panel..],
                        right_stride: panel,
                        next: of_input,
                        n_rows: rows.len(),
                        n_panels: n_cols.div_ceil(COLS),
                        depth: self.n_tiles,
                    };
                    multiply(shape, &operands, products);
                }
                let products = &*products;
                dispatch(WriteWeights { piece: self, rows: rows.clone(), first, n_cols, width, products });
            }
        });
    }
}

struct WriteWeights<'a> {
    piece: &'a Piece<'a>,
    rows: Range<usize>,
    first: usize,
    n_cols: usize,
    width: usize,
    products: &'a [f32],
}

impl Kernel for WriteWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let WriteWeights { piece, rows, first, n_cols, width, products } = self;
        let (n_rows, channels) = (rows.len(), piece.shape.c);
        assert_eq!(products.len(), PRODUCTS * n_rows * width, "products of all rows");
        for (i, row) in rows.enumerate() {
            let mut lane = 0;
            while lane < n_cols {
                let n = V::LANES.min(n_cols - lane);
                let mut m = [[V::splat(0.0); INPUTS]; INPUTS];
                for (e, m) in m.as_flattened_mut().iter_mut().enumerate() {
                    // SAFETY: rows of products are whole vectors.
                    *m = unsafe { V::load(products.as_ptr().add((e * n_rows + i) * width + lane)) };
                }
                let g = both_ways::<WeightGrad, V, INPUTS, TAPS>(&m);
                for (tap, &g) in g.as_flattened().iter().enumerate() {
                    let out = piece.dweight.at((row * TAPS * TAPS + tap) * channels + first + lane);
                    // SAFETY: as many channels of a tap of a row, which belong to this task alone.
                    unsafe {
                        let sum = match piece.write {
                            Write::Overwrite => g,
                            Write::Accumulate => V::load_first(out, n) + g,
                        };
                        sum.store_first(out, n);
                    }
                }
                lane += V::LANES;
            }
        }
    }
}
