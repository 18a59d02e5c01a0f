//! Pooling against its definition, over windows with overlap, gaps and padding.

use super::*;
use crate::naive::pool as naive;
use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

fn shapes() -> Vec<PoolShape> {
    let cases = [
        // n, h, w, c, kernel, stride, padding
        (1, 1, 1, 1, (1, 1), (1, 1), (0, 0)),
        (2, 8, 8, 64, (3, 3), (2, 2), (1, 1)),
        (1, 7, 9, 65, (3, 2), (2, 3), (1, 0)),
        (3, 5, 6, 3, (2, 2), (2, 2), (0, 0)),
        (1, 10, 4, 5, (4, 4), (1, 1), (2, 2)),
        (2, 9, 9, 7, (2, 2), (4, 4), (0, 0)),
        (2, 33, 31, 70, (3, 3), (1, 2), (1, 1)),
    ];
    cases
        .map(|(n, h, w, c, kernel, stride, padding)| {
            PoolShape { n, h, w, c, kernel, stride, padding }.checked().expect("a valid shape")
        })
        .to_vec()
}

#[test]
fn max_pool_agrees_with_the_definition() {
    for shape in shapes() {
        // Few different values, so that ties are common.
        let x: Vec<f32> = random(shape.input_len(), 1).iter().map(|x| (4.0 * x).round()).collect();
        let both = same_bits_in_any_pool(|| {
            let (mut y, mut idx) = (vec![f32::NAN; shape.output_len()], vec![0; shape.output_len()]);
            max_pool(&shape, &x, &mut y, &mut idx);
            y.extend(idx.iter().map(|&place| f32::from(place)));
            y
        });
        let (want, want_idx) = naive::max_pool(&shape, &wide(&x));
        assert_close(&both[..shape.output_len()], &want, 0.0);
        let idx: Vec<u8> = both[shape.output_len()..].iter().map(|&place| place as u8).collect();
        assert_eq!(idx, want_idx, "{shape:?}");

        let dy = random(shape.output_len(), 2);
        let dx = same_bits_in_any_pool(|| {
            let mut dx = vec![f32::NAN; shape.input_len()];
            max_pool_grad(&shape, &dy, &idx, &mut dx);
            dx
        });
        assert_close(&dx, &naive::max_pool_grad(&shape, &wide(&dy), &want_idx), 1e-6);
    }
}

#[test]
fn max_pool_of_infinities_and_not_a_number() {
    let shape = PoolShape { n: 1, h: 1, w: 3, c: 1, kernel: (1, 3), stride: (1, 1), padding: (0, 0) };
    let run = |x: [f32; 3]| {
        let (mut y, mut idx) = ([0.0], [9]);
        max_pool(&shape, &x, &mut y, &mut idx);
        (y[0], idx[0])
    };
    assert_eq!(run([f32::NEG_INFINITY; 3]), (f32::NEG_INFINITY, 0));
    assert!(run([1.0, f32::NAN, 2.0]).0.is_nan());
}

#[test]
fn avg_pool_agrees_with_the_definition() {
    for shape in shapes() {
        let (x, dy) = (random(shape.input_len(), 1), random(shape.output_len(), 2));
        let y = same_bits_in_any_pool(|| {
            let mut y = vec![f32::NAN; shape.output_len()];
            avg_pool(&shape, &x, &mut y);
            y
        });
        assert_close(&y, &naive::avg_pool(&shape, &wide(&x)), 1e-6);
        let dx = same_bits_in_any_pool(|| {
            let mut dx = vec![f32::NAN; shape.input_len()];
            avg_pool_grad(&shape, &dy, &mut dx);
            dx
        });
        assert_close(&dx, &naive::avg_pool_grad(&shape, &wide(&dy)), 1e-6);
    }
}

#[test]
fn global_avg_pool_agrees_with_the_definition() {
    for (images, positions, channels) in [(1, 1, 1), (2, 49, 65), (3, 7, 64), (2, 5000, 3), (4, 16, 300)] {
        let x = random(images * positions * channels, 1);
        let y = same_bits_in_any_pool(|| {
            let mut y = vec![f32::NAN; images * channels];
            global_avg_pool(positions, channels, &x, &mut y);
            y
        });
        assert_close(&y, &naive::global_avg_pool(positions, channels, &wide(&x)), 1e-6);
        let dx = same_bits_in_any_pool(|| {
            let mut dx = vec![f32::NAN; x.len()];
            global_avg_pool_grad(positions, channels, &y, &mut dx);
            dx
        });
        assert_close(&dx, &naive::global_avg_pool_grad(positions, channels, &wide(&y)), 1e-6);
    }
}

#[test]
fn bad_sizes_are_refused_with_a_reason() {
    let good = PoolShape { n: 1, h: 4, w: 4, c: 1, kernel: (2, 2), stride: (1, 1), padding: (0, 0) };
    let cases = [
        (PoolShape { stride: (0, 1), ..good }, "the stride of a pooling must be at least 1"),
        (PoolShape { padding: (2, 0), ..good }, "padding 2 is more than half of the window's 2"),
        (PoolShape { kernel: (2, 9), ..good }, "window has 9 in width, but the padded image has only 4"),
        (PoolShape { n: usize::MAX, ..good }, "sizes of a pooling overflow"),
        (
            PoolShape { kernel: (usize::MAX, 1), padding: (usize::MAX / 2, 0), ..good },
            "sizes of a pooling overflow",
        ),
    ];
    for (shape, message) in cases {
        assert_eq!(shape.checked().map_err(|error| error.to_string()), Err(message.to_owned()));
    }
}
