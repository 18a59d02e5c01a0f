//! Softmax over the last dimension, and its gradient from the output alone.
//!
//! In: `x: [rows, cols]`. Out: `y` of the same shape; it may be `x`. `dx` may be `y` or `dy`. The maximum of a row is
//! subtracted first, so no exponential overflows. Each exponential is computed once, written to `y`, and scaled there
//! when the sum of its row is known. Sums are made in `f32` within a block and in `f64` beyond it. Time O(rows · cols),
//! no workspace.

use std::marker::PhantomData;
use std::ops::Range;

use crate::base::math::{BUNDLE, Lanes, exp_of_weight, exp_of_weight_bounded};
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::base::vector::{Kernel, Vector, dispatch};
use crate::loops::map::{LanesMap, Map, at_bundle, map_run};
use crate::loops::rows::{fold_lanes, for_each_rows, larger, max_row, sum_of_lanes, sum_row};

/// `y[r, c] = e^x[r, c] / Σ_k e^x[r, k]`.
pub fn forward(x: Src<'_>, cols: usize, y: Dst<'_>) {
    assert!(x.len() == y.len() && x.len().is_multiple_of(cols.max(1)), "input and output are [rows, cols]");
    for_each_rows(x.len() / cols.max(1), cols, |rows| forward_rows(x, cols, y, rows));
}

wide! {
    fn forward_rows(x: Src<'_>, cols: usize, y: Dst<'_>, rows: Range<usize>) {
        for_each_sum_of_exp(x, cols, rows, Some(y), |row, _, sum| {
            let (start, factor) = (row * cols, (1.0 / sum) as f32);
            map_run([(y.as_src(), start)], (y, start), cols, move |[e]: [f32; 1]| e * factor);
        });
    }
}

/// `dx = y (dy - Σ_k y[r, k] dy[r, k])`.
pub fn grad(y: Src<'_>, dy: Src<'_>, cols: usize, dx: Dst<'_>) {
    assert!(
        y.len() == dx.len() && dy.len() == dx.len() && dx.len().is_multiple_of(cols.max(1)),
        "all are [rows, cols]"
    );
    for_each_rows(dx.len() / cols.max(1), cols, |rows| grad_rows(y, dy, cols, dx, rows));
}

wide! {
    fn grad_rows(y: Src<'_>, dy: Src<'_>, cols: usize, dx: Dst<'_>, rows: Range<usize>) {
        for row in rows {
            let start = row * cols;
            let inputs = [(y, start), (dy, start)];
            let [inner] = sum_row(inputs, cols, |[y, dy], [sum]| [y.mul_add(dy, sum)]);
            let inner = inner as f32;
            map_run(inputs, (dx, start), cols, |[y, dy]: [f32; 2]| y * (dy - inner));
        }
    }
}

/// Calls `task(row, max, sum)` with the maximum of each row and `Σ e^(x - max)`; the exponentials are written to the same
/// place of `y`, if there is one.
#[inline(always)]
pub(crate) fn for_each_sum_of_exp(
    x: Src<'_>,
    cols: usize,
    rows: Range<usize>,
    y: Option<Dst<'_>>,
    task: impl Fn(usize, f32, f64),
) {
    let mut max = max_row(x, rows.start * cols, cols);
    for row in rows.clone() {
        // Behind the last row comes the last row once more, for nothing.
        let next = (row + 1).min(rows.end - 1);
        let (sum, max_of_next) = sum_of_exp(x, cols, [row, next], max, y);
        task(row, max, sum);
        max = max_of_next;
    }
}

/// `Σ e^(x - max)` over a row, and the maximum of the next one: while exponentials are computed, memory has time.
fn sum_of_exp(x: Src<'_>, cols: usize, rows: [usize; 2], max: f32, y: Option<Dst<'_>>) -> (f64, f32) {
    dispatch(SumOfExp { x, cols, rows, max, y })
}

struct SumOfExp<'a> {
    x: Src<'a>,
    cols: usize,
    rows: [usize; 2],
    max: f32,
    y: Option<Dst<'a>>,
}

impl Kernel for SumOfExp<'_> {
    type Output = (f64, f32);

    #[inline(always)]
    fn run<V: Vector>(self) -> (f64, f32) {
        let exp = WithVectors::<V> { f: ExpBelow { max: self.max }, _vector: PhantomData };
        sum_blocks(self.x, self.cols, self.rows, exp, self.y)
    }
}

/// The exponentials of a block; a trait rather than a closure, which would not always be compiled into the vector code
/// around it.
trait OfBlock: Copy {
    fn at(self, block: [f32; BLOCK]) -> [f32; BLOCK];
}

#[derive(Clone, Copy)]
struct WithVectors<V> {
    f: ExpBelow,
    _vector: PhantomData<V>,
}

impl<V: Vector> OfBlock for WithVectors<V> {
    #[inline(always)]
    fn at(self, block: [f32; BLOCK]) -> [f32; BLOCK] {
        at_bundle::<V, 1>(&[block], self.f)
    }
}

#[inline(always)]
fn sum_blocks(
    x: Src<'_>,
    cols: usize,
    rows: [usize; 2],
    exp: impl OfBlock,
    y: Option<Dst<'_>>,
) -> (f64, f32) {
    let [start, next] = rows.map(|row| row * cols);
    let (mut sums, mut maxima) = ([0.0f64; LANES], [f32::NEG_INFINITY; LANES]);
    let whole = cols / BLOCK * BLOCK;
    for first in (0..whole).step_by(WIDEN) {
        let mut partial = [0.0; LANES];
        for at in (first..whole.min(first + WIDEN)).step_by(BLOCK) {
            fold(&x.array(next + at), &mut maxima, larger);
            let block = exp.at(x.array(start + at));
            if let Some(y) = y {
                // SAFETY: the row belongs to this task alone, and these elements of `x` have been read.
                unsafe { y.write(start + at, &block) }
            }
            fold(&block, &mut partial, |a, b| a + b);
        }
        widen(partial, &mut sums);
    }
    if whole < cols {
        // Minus infinity is never the maximum, and its exponential adds nothing.
        let read = |start: usize| {
            let mut block = [f32::NEG_INFINITY; BLOCK];
            x.read(start + whole, &mut block[..cols - whole]);
            block
        };
        fold(&read(next), &mut maxima, larger);
        let block = exp.at(read(start));
        if let Some(y) = y {
            // SAFETY: as above.
            unsafe { y.write(start + whole, &block[..cols - whole]) }
        }
        let mut partial = [0.0; LANES];
        fold(&block, &mut partial, |a, b| a + b);
        widen(partial, &mut sums);
    }
    (sum_of_lanes(sums), fold_lanes(maxima, larger))
}

/// Joins a block with what is kept side by side.
#[inline(always)]
fn fold(block: &[f32; BLOCK], lanes: &mut [f32; LANES], join: impl Fn(f32, f32) -> f32) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        let low = join(block[i], block[i + LANES]);
        let high = join(block[i + 2 * LANES], block[i + 3 * LANES]);
        *lane = join(*lane, join(low, high));
    }
}

/// Adds sums in `f32` to those in `f64`.
#[inline(always)]
fn widen(partial: [f32; LANES], sums: &mut [f64; LANES]) {
    for (sum, partial) in sums.iter_mut().zip(partial) {
        *sum += f64::from(partial);
    }
}

/// `e^(x - max)` for `x <= max`; zero below 2^-100.
#[derive(Clone, Copy)]
struct ExpBelow {
    max: f32,
}

impl LanesMap<1> for ExpBelow {
    #[inline(always)]
    fn at<T: Lanes>(self, [x]: [T; 1]) -> T {
        exp_of_weight_bounded(x - T::splat(self.max))
    }
}

/// Elements that are read, computed and written together, and the sums that they are first added to.
const BLOCK: usize = BUNDLE;
const LANES: usize = BLOCK / 4;
/// Elements of a row whose exponentials are added in `f32`: conversions take longer than additions.
const WIDEN: usize = 8 * BLOCK;

/// `factor e^(x - shift)`.
#[derive(Clone, Copy)]
pub(crate) struct ScaledExp {
    pub(crate) shift: f32,
    pub(crate) factor: f32,
}

impl Map<1> for ScaledExp {
    #[inline(always)]
    fn at(self, [x]: [f32; 1]) -> f32 {
        exp_of_weight(x - self.shift) * self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::norm as naive;
    use crate::testing::{assert_close, out_of_place_and_in_place, random, wide};

    const SHAPES: [(usize, usize); 7] =
        [(1, 1), (3, 5), (10, 64), (7, 65), (100, 130), (3000, 33), (3, 20_000)];

    #[test]
    fn forward_agrees_with_the_definition() {
        for (rows, cols) in SHAPES {
            // Shifted so far that exponentials without the subtraction of the maximum would overflow.
            let x: Vec<f32> = random(rows * cols, 1).iter().map(|x| 20.0 * x + 200.0).collect();
            let y = out_of_place_and_in_place([&x], |[x], y| forward(x, cols, y));
            assert_close(&y, &naive::softmax(&wide(&x), cols), 1e-6);
        }
    }

    #[derive(Clone, Copy)]
    struct OneByOne(ExpBelow);

    impl OfBlock for OneByOne {
        fn at(self, block: [f32; BLOCK]) -> [f32; BLOCK] {
            block.map(|x| self.0.at([x]))
        }
    }

    #[test]
    fn vectors_change_no_bit() {
        for cols in [1, 31, 32, 33, 255, 300, 1000] {
            let x: Vec<f32> = random(2 * cols, 1).iter().map(|x| 30.0 * x).collect();
            let x = Src::from(&x[..]);
            let max = max_row(x, 0, cols);
            let f = ExpBelow { max };
            let (mut with_vectors, mut one_by_one) = (vec![f32::NAN; 2 * cols], vec![f32::NAN; 2 * cols]);
            let got = sum_of_exp(x, cols, [0, 1], max, Some(Dst::from(&mut with_vectors[..])));
            let y = Some(Dst::from(&mut one_by_one[..]));
            let want = sum_blocks(x, cols, [0, 1], OneByOne(f), y);
            assert_eq!((got.0.to_bits(), got.1.to_bits()), (want.0.to_bits(), want.1.to_bits()), "{cols}");
            let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            assert!(bits(&with_vectors) == bits(&one_by_one), "{cols}");
        }
    }

    #[test]
    fn not_a_number_spoils_its_own_row_only() {
        let (rows, cols) = (3, 70);
        let mut x = random(rows * cols, 1);
        x[cols + 40] = f32::NAN;
        let mut y = vec![0.0; x.len()];
        forward(Src::from(&x[..]), cols, Dst::from(&mut y[..]));
        for (row, y) in y.chunks_exact(cols).enumerate() {
            assert!(y.iter().all(|y| y.is_nan() == (row == 1)), "row {row}");
        }
    }

    #[test]
    fn gradient_agrees_with_the_definition() {
        for (rows, cols) in SHAPES.into_iter().filter(|&(_, cols)| cols > 1) {
            let y = naive::softmax(&wide(&random(rows * cols, 1)), cols).iter().map(|&y| y as f32).collect();
            let inputs = [y, random(rows * cols, 2)];
            let dx = out_of_place_and_in_place(inputs.each_ref(), |[y, dy], dx| grad(y, dy, cols, dx));
            assert_close(&dx, &naive::softmax_grad(&wide(&inputs[0]), &wide(&inputs[1]), cols), 1e-6);
        }
    }
}
