//! Element-wise arithmetic: sums, products, scaling and filling.
//!
//! In: inputs of the same length, or one that repeats. Out: `y`, which may be the storage of any input. Time O(n), no
//! workspace.

use std::ops::Range;

use crate::base::par;
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::loops::map::{map, map_run};

/// `y = a + b`, where `b` repeats every `b.len()` elements: it has the shape of `a` or of its last dimensions.
pub fn add(a: Src<'_>, b: Src<'_>, y: Dst<'_>) {
    if a.len() == b.len() {
        return map([a, b], y, |[a, b]: [f32; 2]| a + b);
    }
    assert_eq!(a.len(), y.len(), "the first term and the sum have the same length");
    assert!(b.len() > 0 && a.len().is_multiple_of(b.len()), "the second term fits a whole number of times");
    par::for_each_range(y.len(), par::ELEMENTS_PER_TASK, |range| add_range(a, b, y, range));
}

wide! {
    fn add_range(a: Src<'_>, b: Src<'_>, y: Dst<'_>, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let start = at % b.len();
            let len = (b.len() - start).min(range.end - at);
            map_run([(a, at), (b, start)], (y, at), len, |[a, b]: [f32; 2]| a + b);
            at += len;
        }
    }
}

/// `y = a * b`, element by element.
pub fn mul(a: Src<'_>, b: Src<'_>, y: Dst<'_>) {
    map([a, b], y, |[a, b]: [f32; 2]| a * b);
}

/// `y = factor * x`.
pub fn scale(x: Src<'_>, factor: f32, y: Dst<'_>) {
    map([x], y, move |[x]: [f32; 1]| factor * x);
}

/// Sets every element to `value`.
pub fn fill(value: f32, y: &mut [f32]) {
    par::for_each_chunk(y, par::ELEMENTS_PER_TASK, |_, chunk| chunk.fill(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::elementwise as naive;
    use crate::testing::{LENGTHS, assert_close, out_of_place_and_in_place, random, wide};

    #[test]
    fn arithmetic_agrees_with_the_definition() {
        for n in LENGTHS {
            let inputs = [random(n, 1), random(n, 2)];
            let (a, b) = (wide(&inputs[0]), wide(&inputs[1]));
            let sum = out_of_place_and_in_place(inputs.each_ref(), |[a, b], y| add(a, b, y));
            assert_close(&sum, &naive::add(&a, &b), 1e-7);
            let product = out_of_place_and_in_place(inputs.each_ref(), |[a, b], y| mul(a, b, y));
            assert_close(&product, &naive::mul(&a, &b), 1e-7);
            let scaled = out_of_place_and_in_place([&inputs[0]], |[x], y| scale(x, 0.3, y));
            assert_close(&scaled, &naive::scale(&a, 0.3), 1e-7);
        }
    }

    #[test]
    fn the_second_term_is_repeated_over_leading_dimensions() {
        for (rows, cols) in [(1, 1), (5, 1), (7, 3), (300, 64), (3, 65), (1000, 77), (2, 40_000)] {
            let inputs = [random(rows * cols, 1), random(cols, 2)];
            let sum = out_of_place_and_in_place(inputs.each_ref(), |[a, b], y| add(a, b, y));
            assert_close(&sum, &naive::add(&wide(&inputs[0]), &wide(&inputs[1])), 1e-7);
        }
    }

    #[test]
    fn fill_reaches_every_element() {
        let mut y = vec![f32::NAN; 3 * par::ELEMENTS_PER_TASK + 1];
        fill(2.5, &mut y);
        assert!(y.iter().all(|&y| y == 2.5));
    }
}
