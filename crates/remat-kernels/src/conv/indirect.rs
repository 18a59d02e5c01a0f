//! Convolution forward and input gradient as a product whose left operand is read where it lies in the image.
//!
//! In: a source image, a packed weight. Out: a target image. The left operand of the product has a row for every
//! position of the target; the row is one run of channels for every tap of the kernel, found through a pointer into
//! the source (or to zeros, beyond its border). So no receptive field is ever copied. The weight is packed once per
//! call into the workspace, as `[group][panel of 16 channels of the target][tap][channel of the source][16]`.
//!
//! The input gradient is the same product with the images exchanged. With a stride, a position of the input is seen
//! only by the taps that hit it; positions fall into [`Phase`]s, each with taps of its own, and no product with a zero
//! between the strides is computed. Time O(positions · taps · channels²); sums run over channels in parts of `DEPTH`,
//! then over taps, in an order fixed by the shape.

use std::cell::RefCell;
use std::ops::Range;

use super::ConvShape;
use crate::gemm::Write;
use crate::micro::{self, COLS, DEPTH, ROWS, Run, Steps, Target};
use crate::panel::{Strides, pack_right};
use crate::par;
use crate::raw::Dst;

/// Blocks of `ROWS` positions in a task: they read one panel of the weight from the first-level cache.
const BLOCKS: usize = 16;
/// Panels of the weight in a task.
const PANELS: usize = 8;

/// What positions beyond the border of an image see.
static ZEROS: [f32; DEPTH] = [0.0; DEPTH];

/// Which image is read and which is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    InputGradient,
}

#[derive(Clone, Copy)]
struct Image {
    h: usize,
    w: usize,
    /// Channels of all groups.
    c: usize,
}

/// The sizes of a convolution as seen from one direction.
struct Sizes {
    source: Image,
    target: Image,
    /// Channels of the source in a group: the length of a run.
    depth: usize,
    /// Channels of the target in a group.
    cols: usize,
    taps: usize,
}

impl Sizes {
    fn of(shape: &ConvShape, direction: Direction) -> Sizes {
        let input = Image { h: shape.h, w: shape.w, c: shape.c };
        let output = Image { h: shape.out_h(), w: shape.out_w(), c: shape.o };
        let (source, target) = match direction {
            Direction::Forward => (input, output),
            Direction::InputGradient => (output, input),
        };
        let (depth, cols) = (source.c / shape.groups, target.c / shape.groups);
        Sizes { source, target, depth, cols, taps: shape.kh * shape.kw }
    }

    fn panels(&self) -> usize {
        self.cols.div_ceil(COLS)
    }

    fn panel_len(&self) -> usize {
        self.taps * self.depth * COLS
    }
}

/// Elements of workspace: the packed weight.
pub(super) fn workspace(shape: &ConvShape, direction: Direction) -> usize {
    let sizes = Sizes::of(shape, direction);
    shape.groups * sizes.panels() * sizes.panel_len()
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
    let sizes = Sizes::of(shape, direction);
    let packed = &mut workspace[..shape.groups * sizes.panels() * sizes.panel_len()];
    pack_weight(shape, direction, &sizes, weight, packed);
    let packed = &*packed;
    let target = Dst::from(target);
    let col_tiles = sizes.panels().div_ceil(PANELS);
    for phase in phases(shape, direction) {
        let positions = shape.n * phase.count.0 * phase.count.1;
        let row_tiles = positions.div_ceil(BLOCKS * ROWS);
        par::for_each(row_tiles * col_tiles * shape.groups, |task| {
            let (group, tile) = (task % shape.groups, task / shape.groups);
            let (row_tile, col_tile) = (tile / col_tiles, tile % col_tiles);
            let tile = Tile {
                group,
                positions: row_tile * BLOCKS * ROWS..positions.min((row_tile + 1) * BLOCKS * ROWS),
                panels: col_tile * PANELS..sizes.panels().min((col_tile + 1) * PANELS),
            };
            one_tile(&sizes, &phase, &tile, source, packed, write, target);
        });
    }
}

fn pack_weight(
    shape: &ConvShape,
    direction: Direction,
    sizes: &Sizes,
    weight: &[f32],
    packed: &mut [f32],
) {
    let (patch, channels) = (shape.patch_len(), shape.c / shape.groups);
    let group_len = shape.o / shape.groups * patch;
    par::for_each_chunk(packed, sizes.panel_len(), |i, panel| {
        let (group, col) = (i / sizes.panels(), i % sizes.panels() * COLS);
        let weight = &weight[group * group_len..][..group_len];
        let n_cols = COLS.min(sizes.cols - col);
        match direction {
            // The row of an output channel has the order of the runs already.
            Direction::Forward => {
                pack_right(&weight[col * patch..], Strides { step: 1, across: patch }, n_cols, panel);
            }
            Direction::InputGradient => {
                for (tap, panel) in panel.chunks_exact_mut(sizes.depth * COLS).enumerate() {
                    let from = &weight[tap * channels + col..];
                    pack_right(from, Strides { step: patch, across: 1 }, n_cols, panel);
                }
            }
        }
    });
}

/// Positions of the target that are seen by the same taps: `first + step · (a, b)` for `(a, b)` below `count`.
struct Phase {
    first: (usize, usize),
    step: (usize, usize),
    count: (usize, usize),
    /// The source position of a tap is `source_step · (a, b) + shift`.
    source_step: (usize, usize),
    taps: Vec<Tap>,
}

#[derive(Clone, Copy)]
struct Tap {
    index: usize,
    shift: (isize, isize),
}

fn phases(shape: &ConvShape, direction: Direction) -> Vec<Phase> {
    let taps = (0..shape.kh * shape.kw).map(|index| {
        let (row, col) = (index / shape.kw * shape.dilation.0, index % shape.kw * shape.dilation.1);
        (index, row as isize - shape.padding.0 as isize, col as isize - shape.padding.1 as isize)
    });
    match direction {
        Direction::Forward => vec![Phase {
            first: (0, 0),
            step: (1, 1),
            count: (shape.out_h(), shape.out_w()),
            source_step: shape.stride,
            taps: taps.map(|(index, row, col)| Tap { index, shift: (row, col) }).collect(),
        }],
        Direction::InputGradient => {
            let step = shape.stride;
            let firsts = (0..step.0.min(shape.h)).flat_map(|i| (0..step.1.min(shape.w)).map(move |j| (i, j)));
            let phase = |first: (usize, usize)| {
                // Output position · stride + tap = input position; only whole output positions exist.
                let hit = |(index, row, col): (usize, isize, isize)| {
                    let (row, col) = (first.0 as isize - row, first.1 as isize - col);
                    let (step_row, step_col) = (step.0 as isize, step.1 as isize);
                    let whole = row.rem_euclid(step_row) == 0 && col.rem_euclid(step_col) == 0;
                    let shift = (row.div_euclid(step_row), col.div_euclid(step_col));
                    whole.then_some(Tap { index, shift })
                };
                let count = ((shape.h - first.0).div_ceil(step.0), (shape.w - first.1).div_ceil(step.1));
                Phase { first, step, count, source_step: (1, 1), taps: taps.clone().filter_map(hit).collect() }
            };
            firsts.map(phase).collect()
        }
    }
}

/// What one task computes: some positions of a phase by some panels of channels of a group.
struct Tile {
    group: usize,
    positions: Range<usize>,
    panels: Range<usize>,
}

fn one_tile(
    sizes: &Sizes,
    phase: &Phase,
    tile: &Tile,
    source: &[f32],
    packed: &[f32],
    mut write: Write,
    target: Dst<'_>,
) {
    thread_local! {
        static POINTERS: RefCell<Vec<[*const f32; ROWS]>> = const { RefCell::new(Vec::new()) };
    }
    let targets = target_rows(sizes, phase, tile, target);
    let n_blocks = tile.positions.len().div_ceil(ROWS);
    let taps = &phase.taps[..];
    let run_len = sizes.depth.div_ceil(sizes.depth.div_ceil(DEPTH));
    let n_visits = taps.len().div_ceil(DEPTH / run_len).max(1);
    let taps_per_visit = taps.len().div_ceil(n_visits);
    POINTERS.with_borrow_mut(|pointers| {
        for first in (0..sizes.depth).step_by(run_len) {
            let len = run_len.min(sizes.depth - first);
            gather_pointers(sizes, phase, tile, &source[first..], pointers);
            for visit in 0..n_visits {
                let in_visit =
                    (visit * taps_per_visit).min(taps.len())..((visit + 1) * taps_per_visit).min(taps.len());
                for panel in tile.panels.clone() {
                    let weight = &packed[(tile.group * sizes.panels() + panel) * sizes.panel_len()..]
                        [..sizes.panel_len()];
                    for block in 0..n_blocks {
                        let pointers = &pointers[block * taps.len()..][in_visit.clone()];
                        let visited = &taps[in_visit.clone()];
                        let run = |r: usize| Run {
                            left: pointers[r],
                            right: weight[(visited[r].index * sizes.depth + first) * COLS..].as_ptr(),
                        };
                        let out = Target {
                            rows: targets[block].map(|row| row.wrapping_add(panel * COLS)),
                            n_rows: ROWS.min(tile.positions.len() - block * ROWS),
                            n_cols: COLS.min(sizes.cols - panel * COLS),
                            col_stride: 1,
                            write,
                            alpha: 1.0,
                        };
                        // SAFETY: the pointers lead to `len` channels of a position of the source, or to zeros; the
                        // panel holds `depth` vectors for every tap; tasks have disjoint parts of the target.
                        unsafe { micro::tile(visited.len(), run, Steps { len, left: 1, right: COLS }, &out) };
                    }
                }
                write = Write::Accumulate;
            }
        }
    });
}

/// Image, row and column (counted in the phase) of a position of the phase.
fn unravel(phase: &Phase, position: usize) -> (usize, usize, usize) {
    let (row, col) = (position / phase.count.1, position % phase.count.1);
    (row / phase.count.0, row % phase.count.0, col)
}

/// The first channel of the group for every position of the tile, in blocks.
fn target_rows(sizes: &Sizes, phase: &Phase, tile: &Tile, target: Dst<'_>) -> [[*mut f32; ROWS]; BLOCKS] {
    let mut rows = [[std::ptr::null_mut(); ROWS]; BLOCKS];
    for (row, position) in rows.as_flattened_mut().iter_mut().zip(tile.positions.clone()) {
        let (image, a, b) = unravel(phase, position);
        let at = (phase.first.0 + a * phase.step.0, phase.first.1 + b * phase.step.1);
        let pixel = (image * sizes.target.h + at.0) * sizes.target.w + at.1;
        *row = target.at(pixel * sizes.target.c + tile.group * sizes.cols);
    }
    rows
}

/// For every block of positions and every tap, where the runs of the block's rows begin in `source`.
fn gather_pointers(
    sizes: &Sizes,
    phase: &Phase,
    tile: &Tile,
    source: &[f32],
    pointers: &mut Vec<[*const f32; ROWS]>,
) {
    let Image { h, w, c } = sizes.source;
    pointers.clear();
    pointers.resize(tile.positions.len().div_ceil(ROWS) * phase.taps.len(), [ZEROS.as_ptr(); ROWS]);
    for (i, position) in tile.positions.clone().enumerate() {
        let (image, a, b) = unravel(phase, position);
        let origin = ((a * phase.source_step.0) as isize, (b * phase.source_step.1) as isize);
        let of_block = &mut pointers[i / ROWS * phase.taps.len()..][..phase.taps.len()];
        for (rows, tap) in of_block.iter_mut().zip(&phase.taps) {
            // A negative position becomes a huge one.
            let (row, col) = ((origin.0 + tap.shift.0) as usize, (origin.1 + tap.shift.1) as usize);
            if row < h && col < w {
                let pixel = (image * h + row) * w + col;
                rows[i % ROWS] = source[pixel * c + tile.group * sizes.depth..].as_ptr();
            }
        }
    }
}
