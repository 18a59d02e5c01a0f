//! Transpose, slice, pad and concatenate, element by element.

/// Dimension `d` of the result is dimension `permutation[d]` of `x`.
pub fn transpose(dims: &[usize], permutation: &[usize], x: &[f64]) -> Vec<f64> {
    let out_dims: Vec<usize> = permutation.iter().map(|&d| dims[d]).collect();
    let mut y = Vec::new();
    for mut index in 0..x.len() {
        let mut coordinates = vec![0; dims.len()];
        for (&d, &len) in permutation.iter().zip(&out_dims).rev() {
            coordinates[d] = index % len;
            index /= len;
        }
        let at = coordinates.iter().zip(dims).fold(0, |at, (&coordinate, &len)| at * len + coordinate);
        y.push(x[at]);
    }
    y
}

/// `[outer, start..start + len, inner]` of `x: [outer, axis, inner]`.
pub fn slice(x: &[f64], outer: usize, axis: usize, inner: usize, start: usize, len: usize) -> Vec<f64> {
    let at = |i: usize| (i / (len * inner) * axis + start) * inner + i % (len * inner);
    (0..outer * len * inner).map(|i| x[at(i)]).collect()
}

/// `x: [outer, axis, inner]` with zeros before and after it along the axis.
pub fn pad(x: &[f64], outer: usize, axis: usize, inner: usize, before: usize, after: usize) -> Vec<f64> {
    let row = (before + axis + after) * inner;
    let value = |i: usize| {
        let inside = (i % row).checked_sub(before * inner).filter(|&at| at < axis * inner);
        inside.map_or(0.0, |at| x[i / row * axis * inner + at])
    };
    (0..outer * row).map(value).collect()
}

/// The parts, each `[outer, …]`, side by side in every row.
pub fn concat(outer: usize, parts: &[Vec<f64>]) -> Vec<f64> {
    let row = |o: usize, part: &Vec<f64>| part[o * part.len() / outer..(o + 1) * part.len() / outer].to_vec();
    (0..outer).flat_map(|o| parts.iter().flat_map(move |part| row(o, part))).collect()
}
