//! How often the largest logit is the label's: what a person asks of a classifier.
//!
//! In: `logits: [rows, cols]` and a label per row; a negative label marks a row to ignore. Out: a share of rows. Of
//! equal logits the first counts, as in PyTorch's `argmax`. Time O(elements), no workspace.

/// The share of rows with a label whose largest logit is at the label; not a number without such a row.
pub fn accuracy(logits: &[f32], labels: &[i32]) -> f32 {
    let cols = logits.len() / labels.len().max(1);
    let (mut correct, mut counted) = (0u64, 0u64);
    for (row, &label) in labels.iter().enumerate() {
        let Ok(label) = usize::try_from(label) else { continue };
        counted += 1;
        correct += u64::from(first_largest(&logits[row * cols..][..cols]) == label);
    }
    (correct as f64 / counted as f64) as f32
}

fn first_largest(row: &[f32]) -> usize {
    let mut best = 0;
    for (i, &x) in row.iter().enumerate() {
        if x > row[best] {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_first_and_ignored_rows_do_not_count() {
        let logits = [1.0, 3.0, 2.0, 5.0, 5.0, 5.0, 9.0, 0.0, 0.0, -3.0, -2.0, -1.0];
        assert_eq!(accuracy(&logits, &[1, 0, -1, 0]), 2.0 / 3.0);
        assert!(accuracy(&logits, &[-1; 4]).is_nan());
    }
}
