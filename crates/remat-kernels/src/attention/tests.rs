//! Attention against the definition that holds the whole matrix.

use super::*;
use crate::base::rng::Key;
use crate::naive::attention as naive;
use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

const BASE: AttentionShape = AttentionShape {
    batch: 2,
    heads: 3,
    queries: 5,
    keys: 5,
    head_dim: 4,
    causal: false,
    scale: 0.5,
    dropout: None,
};

/// The dropout factors of all scores, drawn one by one.
fn factors(shape: &AttentionShape) -> Vec<f64> {
    let n_scores = shape.batch * shape.heads * shape.queries * shape.keys;
    let Some(AttentionDropout { probability, key }) = shape.dropout else { return vec![1.0; n_scores] };
    let probability = (f64::from(probability) * 65536.0).round() / 65536.0;
    let kept = |index| f64::from(rng::uniform_u16(key, index as u64)) >= 65536.0 * probability;
    (0..n_scores).map(|i| if kept(i) { 1.0 / (1.0 - probability) } else { 0.0 }).collect()
}

#[track_caller]
fn check(shape: AttentionShape) {
    let width = shape.heads * shape.head_dim;
    let (n_q, n_k) = (shape.batch * shape.queries * width, shape.batch * shape.keys * width);
    let n_lse = shape.batch * shape.heads * shape.queries;
    let (q, k, v, dout) = (random(n_q, 1), random(n_k, 2), random(n_k, 3), random(n_q, 4));
    let factors = factors(&shape);
    let rows = |data| Rows::new(data, width, 0);

    let forward = || {
        let (mut out, mut lse) = (vec![f32::NAN; n_q], vec![f32::NAN; n_lse]);
        attention(&shape, rows(&q), rows(&k), rows(&v), RowsMut::new(&mut out, width), &mut lse);
        [out, lse].concat()
    };
    let both = same_bits_in_any_pool(forward);
    let (out, lse) = both.split_at(n_q);
    assert_close(out, &naive::attention(&shape, &wide(&q), &wide(&k), &wide(&v), &factors), 1e-5);
    assert_close(lse, &naive::probabilities(&shape, &wide(&q), &wide(&k)).1, 1e-5);

    let backward = || {
        let (mut dq, mut dk, mut dv) = (vec![f32::NAN; n_q], vec![f32::NAN; n_k], vec![f32::NAN; n_k]);
        let saved = AttentionSaved { q: rows(&q), k: rows(&k), v: rows(&v), out: rows(out), lse };
        attention_grad(
            &shape,
            &saved,
            rows(&dout),
            RowsMut::new(&mut dq, width),
            RowsMut::new(&mut dk, width),
            RowsMut::new(&mut dv, width),
            &mut vec![f32::NAN; attention_grad_workspace(&shape)],
        );
        [dq, dk, dv].concat()
    };
    let got = same_bits_in_any_pool(backward);
    let (q, k, v, out, lse) = (&wide(&q), &wide(&k), &wide(&v), &wide(out), &wide(lse));
    let want = naive::attention_grad(&shape, &naive::Saved { q, k, v, out, lse }, &factors, &wide(&dout));
    let (dq, rest) = got.split_at(n_q);
    let (dk, dv) = rest.split_at(n_k);
    for (got, want) in [dq, dk, dv].into_iter().zip(&want) {
        assert_close(got, want, 2e-5);
    }
}

fn dropout(probability: f32) -> Option<AttentionDropout> {
    Some(AttentionDropout { probability, key: Key::new(7, 1, 3) })
}

#[test]
fn one_tile() {
    check(BASE);
    check(AttentionShape { causal: true, ..BASE });
    check(AttentionShape { queries: 1, keys: 1, head_dim: 1, ..BASE });
    check(AttentionShape { keys: 9, ..BASE });
}

#[test]
fn several_tiles() {
    let long = AttentionShape { batch: 1, heads: 2, queries: 300, keys: 300, head_dim: 16, ..BASE };
    check(long);
    check(AttentionShape { causal: true, ..long });
    check(AttentionShape { keys: 129, ..long });
    // More keys than queries: the last block of keys is seen by no query.
    check(AttentionShape { causal: true, queries: 100, ..long });
    check(AttentionShape { causal: true, keys: 100, ..long });
}

#[test]
fn dropped_probabilities_are_drawn_by_position() {
    check(AttentionShape { dropout: dropout(0.3), ..BASE });
    check(AttentionShape { batch: 1, queries: 150, keys: 170, causal: true, dropout: dropout(0.5), ..BASE });
}

#[test]
fn large_scores_do_not_overflow() {
    check(AttentionShape { scale: 200.0, ..BASE });
}

#[test]
fn a_packed_projection_gives_the_bits_of_separate_buffers() {
    let shape = AttentionShape { queries: 140, keys: 140, causal: true, dropout: dropout(0.1), ..BASE };
    let (tokens, width) = (shape.batch * shape.queries, shape.heads * shape.head_dim);
    let packed = random(tokens * 3 * width, 5);
    let part = |i: usize| -> Vec<f32> {
        packed.chunks(3 * width).flat_map(|row| row[i * width..(i + 1) * width].to_vec()).collect()
    };
    let parts = [part(0), part(1), part(2)];
    let dout = random(tokens * width, 6);
    let run = |[q, k, v]: [Rows<'_>; 3], dqkv: [RowsMut<'_>; 3]| {
        let mut out = vec![0.0; tokens * width];
        let mut lse = vec![0.0; shape.batch * shape.heads * shape.queries];
        attention(&shape, q, k, v, RowsMut::new(&mut out, width), &mut lse);
        let saved = AttentionSaved { q, k, v, out: Rows::new(&out, width, 0), lse: &lse };
        let [dq, dk, dv] = dqkv;
        let mut workspace = vec![0.0; attention_grad_workspace(&shape)];
        attention_grad(&shape, &saved, Rows::new(&dout, width, 0), dq, dk, dv, &mut workspace);
        out
    };
    let mut dqkv = vec![f32::NAN; packed.len()];
    let views = [0, 1, 2].map(|i| Rows::new(&packed, 3 * width, i * width));
    let out_packed = run(views, RowsMut::packed(&mut dqkv, width));
    let mut separate = [vec![0.0; tokens * width], vec![0.0; tokens * width], vec![0.0; tokens * width]];
    let views = [0, 1, 2].map(|i| Rows::new(&parts[i], width, 0));
    let out_separate = run(views, separate.each_mut().map(|d| RowsMut::new(d, width)));
    assert_eq!(out_packed, out_separate);
    for (i, separate) in separate.iter().enumerate() {
        let part: Vec<f32> =
            dqkv.chunks(3 * width).flat_map(|row| row[i * width..(i + 1) * width].to_vec()).collect();
        assert_eq!(&part, separate);
    }
}

#[test]
fn the_naive_gradient_is_the_slope_of_the_naive_forward() {
    let shape = AttentionShape { batch: 1, heads: 2, queries: 3, keys: 4, dropout: dropout(0.3), ..BASE };
    let width = shape.heads * shape.head_dim;
    let inputs = [3, 4, 4].map(|tokens| wide(&random(tokens * width, tokens as u64)));
    let (factors, dout) = (factors(&shape), wide(&random(3 * width, 9)));
    let loss = |inputs: &[Vec<f64>; 3]| -> f64 {
        let out = naive::attention(&shape, &inputs[0], &inputs[1], &inputs[2], &factors);
        out.iter().zip(&dout).map(|(a, b)| a * b).sum()
    };
    let [q, k, v] = &inputs;
    let (out, lse) = (&naive::attention(&shape, q, k, v, &factors), &naive::probabilities(&shape, q, k).1);
    let grads = naive::attention_grad(&shape, &naive::Saved { q, k, v, out, lse }, &factors, &dout);
    for (which, grad) in grads.iter().enumerate() {
        for (at, &grad) in grad.iter().enumerate() {
            let mut moved = [inputs.clone(), inputs.clone()];
            moved[0][which][at] += 1e-5;
            moved[1][which][at] -= 1e-5;
            let slope = (loss(&moved[0]) - loss(&moved[1])) / 2e-5;
            assert!((slope - grad).abs() < 1e-8, "input {which}, element {at}: {slope} and {grad}");
        }
    }
}
