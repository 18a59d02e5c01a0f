//! Copies that change a tensor's shape: transpose, slice, pad and concatenate.
//!
//! In and out: contiguous row-major tensors. Around an axis a tensor is `[outer, axis, inner]`, so slice, pad and
//! concatenate copy runs of `inner` elements; the gradient of each of the three is another of them. Every task writes
//! its own stretch of the output. Time O(elements), no workspace.

use crate::base::par;

/// Side of the square that a transpose copies at a time, so that both sides of the copy stay in the cache.
const SQUARE: usize = 32;

/// A tensor seen around one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisShape {
    /// Product of the dimensions before the axis.
    pub outer: usize,
    /// Size of the axis.
    pub axis: usize,
    /// Product of the dimensions behind the axis.
    pub inner: usize,
}

/// `y[o, i, :] = x[o, start + i, :]` for the whole of `y: [outer, len, inner]`; `shape` describes `x`.
pub fn slice(shape: AxisShape, x: &[f32], start: usize, len: usize, y: &mut [f32]) {
    let AxisShape { outer, axis, inner } = shape;
    assert!(
        start + len <= axis && x.len() == outer * axis * inner && y.len() == outer * len * inner,
        "sizes"
    );
    for_each_row(y, len * inner, |o, row| {
        row.copy_from_slice(&x[(o * axis + start) * inner..][..len * inner]);
    });
}

/// `y[o, before + i, :] = x[o, i, :]` and zero elsewhere; `shape` describes `x`, `y: [outer, before + axis + after, inner]`.
pub fn pad(shape: AxisShape, x: &[f32], before: usize, after: usize, y: &mut [f32]) {
    let AxisShape { outer, axis, inner } = shape;
    let padded = before + axis + after;
    assert!(x.len() == outer * axis * inner && y.len() == outer * padded * inner, "sizes");
    for_each_row(y, padded * inner, |o, row| {
        let (head, rest) = row.split_at_mut(before * inner);
        let (body, tail) = rest.split_at_mut(axis * inner);
        head.fill(0.0);
        body.copy_from_slice(&x[o * axis * inner..][..axis * inner]);
        tail.fill(0.0);
    });
}

/// The tensors `xs`, each `[outer, axis_i, inner]`, one behind the other along the axis.
pub fn concat(outer: usize, inner: usize, xs: &[&[f32]], y: &mut [f32]) {
    let total: usize = xs.iter().map(|x| x.len()).sum();
    assert_eq!(total, y.len(), "size of the concatenation");
    assert!(xs.iter().all(|x| x.len() % (outer * inner).max(1) == 0), "sizes of the parts");
    for_each_row(y, total / outer.max(1), |o, mut row| {
        for x in xs {
            let len = x.len() / outer;
            let (part, rest) = row.split_at_mut(len);
            part.copy_from_slice(&x[o * len..][..len]);
            row = rest;
        }
    });
}

/// Calls `task(i, row)` for every row of `y`, several rows per task if they are short.
fn for_each_row(y: &mut [f32], row: usize, task: impl Fn(usize, &mut [f32]) + Sync + Send) {
    if y.is_empty() {
        return;
    }
    let rows_per_task = par::ELEMENTS_PER_TASK.div_ceil(row);
    par::for_each_chunk(y, rows_per_task * row, |chunk, rows| {
        for (i, row) in rows.chunks_exact_mut(row).enumerate() {
            task(chunk * rows_per_task + i, row);
        }
    });
}

/// `y[i_perm[0], i_perm[1], …] = x[i_0, i_1, …]`: dimension `d` of `y` is dimension `permutation[d]` of `x`.
pub fn transpose(dims: &[usize], permutation: &[usize], x: &[f32], y: &mut [f32]) {
    let n_elements: usize = dims.iter().product();
    assert!(x.len() == n_elements && y.len() == n_elements && dims.len() == permutation.len(), "sizes");
    if n_elements == 0 {
        return;
    }
    let axes = merged_axes(dims, permutation);
    // The dimension of the output that is contiguous in the input; blocks of it are the tasks.
    let Some(fast) = axes.iter().position(|axis| axis.stride == 1).filter(|&fast| fast + 1 < axes.len())
    else {
        // The last dimension stays the last: runs of it are copied whole.
        let run = axes.last().map_or(1, |axis| axis.len);
        let outer = &axes[..axes.len().saturating_sub(1)];
        for_each_row(y, run, |i, row| row.copy_from_slice(&x[input_offset(outer, i)..][..run]));
        return;
    };
    let (outer, last) = (&axes[..fast], axes[axes.len() - 1]);
    let between = &axes[fast + 1..axes.len() - 1];
    let n_between: usize = between.iter().map(|axis| axis.len).product();
    let inner = n_between * last.len;
    par::for_each_chunk(y, axes[fast].len * inner, |o, y| {
        par::for_each_chunk(y, SQUARE * inner, |block, y| {
            let x = &x[input_offset(outer, o) + block * SQUARE..];
            for b in 0..n_between {
                let x = &x[input_offset(between, b)..];
                for start in (0..last.len).step_by(SQUARE) {
                    let end = last.len.min(start + SQUARE);
                    for (row, y) in y.chunks_exact_mut(inner).enumerate() {
                        let y = &mut y[b * last.len..][start..end];
                        for (i, y) in y.iter_mut().enumerate() {
                            *y = x[row + (start + i) * last.stride];
                        }
                    }
                }
            }
        });
    });
}

/// A dimension of the output: its length and the distance of its neighbours in the input.
#[derive(Clone, Copy)]
struct Axis {
    len: usize,
    stride: usize,
}

/// The output's dimensions longer than one, and with neighbours that move together as one.
fn merged_axes(dims: &[usize], permutation: &[usize]) -> Vec<Axis> {
    let stride = |d: usize| dims[d + 1..].iter().product();
    let mut axes: Vec<Axis> = Vec::new();
    for &d in permutation.iter().filter(|&&d| dims[d] != 1) {
        let axis = Axis { len: dims[d], stride: stride(d) };
        match axes.last_mut() {
            Some(left) if left.stride == axis.len * axis.stride => {
                *left = Axis { len: left.len * axis.len, stride: axis.stride };
            }
            _ => axes.push(axis),
        }
    }
    axes
}

/// Where in the input the element with row-major number `index` over `axes` begins.
fn input_offset(axes: &[Axis], mut index: usize) -> usize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += index % axis.len * axis.stride;
        index /= axis.len;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::shape as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    #[test]
    fn transposes_of_every_kind() {
        let cases: [(&[usize], &[usize]); 12] = [
            (&[], &[]),
            (&[5], &[0]),
            (&[3, 4], &[0, 1]),
            (&[70, 45], &[1, 0]),
            (&[6, 33, 40], &[0, 2, 1]),
            (&[6, 33, 40], &[2, 1, 0]),
            (&[6, 33, 40], &[1, 0, 2]),
            (&[6, 7, 8], &[1, 2, 0]),
            (&[2, 3, 4, 5], &[0, 2, 1, 3]),
            (&[2, 3, 4, 5], &[3, 1, 0, 2]),
            (&[1, 3, 1, 5], &[3, 2, 1, 0]),
            (&[4, 0, 3], &[2, 0, 1]),
        ];
        for (dims, permutation) in cases {
            let x = random(dims.iter().product(), 1);
            let got = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; x.len()];
                transpose(dims, permutation, &x, &mut y);
                y
            });
            assert_close(&got, &naive::transpose(dims, permutation, &wide(&x)), 0.0);
        }
    }

    #[test]
    fn slices_and_pads_are_adjoint_copies() {
        for (outer, axis, inner) in [(1, 5, 1), (3, 7, 2), (1000, 3, 33), (2, 9, 9000)] {
            let shape = AxisShape { outer, axis, inner };
            let x = random(outer * axis * inner, 1);
            let (start, len) = (axis / 3, axis / 2);
            let got = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; outer * len * inner];
                slice(shape, &x, start, len, &mut y);
                y
            });
            assert_close(&got, &naive::slice(&wide(&x), outer, axis, inner, start, len), 0.0);

            let padded = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; x.len()];
                pad(AxisShape { axis: len, ..shape }, &got, start, axis - start - len, &mut y);
                y
            });
            assert_close(
                &padded,
                &naive::pad(&wide(&got), outer, len, inner, start, axis - start - len),
                0.0,
            );
        }
    }

    #[test]
    fn concatenation_puts_the_parts_side_by_side() {
        for (outer, inner) in [(1, 1), (4, 3), (300, 70)] {
            let parts = [1, 4, 2].map(|axis| random(outer * axis * inner, axis as u64));
            let got = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; outer * 7 * inner];
                concat(outer, inner, &[&parts[0], &parts[1], &parts[2]], &mut y);
                y
            });
            let wide_parts = parts.each_ref().map(|part| wide(part));
            assert_close(&got, &naive::concat(outer, &wide_parts), 0.0);
        }
    }
}
