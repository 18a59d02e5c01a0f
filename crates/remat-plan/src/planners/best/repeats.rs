//! Identical layers, found in the graph itself.
//!
//! In: a problem, without any annotation. Out: classes of values that play the same role in successive layers, in the
//! order of the layers. A node's label is a hash of its cost and sizes, refined a few times by the labels of its
//! neighbours, so equal labels mean equal surroundings. A layer is then a period of the sequence of labels: nodes i and i + p
//! with equal labels over a long stretch. The first and the last layer have other neighbours and may not belong to it.
//! Labels could collide without harm: a class is only a proposal to decide about its values together.
//! Time: O(edges) per refinement, and one pass over the labels for each candidate period.

use crate::schedule::flat::{Flat, NONE};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Rounds of refinement: how far a label looks.
const N_ROUNDS: usize = 3;
/// Fewer layers than this are not worth a class.
const FEWEST_LAYERS: usize = 3;
/// Candidate periods, the most frequent distances between equal labels.
const N_PERIODS: usize = 8;

/// Values of equal role, each class in the order of the layers.
pub(crate) fn classes(flat: &Flat) -> Vec<Vec<u32>> {
    let mut classes = Vec::new();
    for run in runs(&labels(flat)) {
        for first in run.begin..run.begin + run.period {
            let layers = (first..run.end).step_by(run.period);
            for k in 0..flat.outputs.get(first).len() {
                let outputs = layers.clone().filter_map(|n| flat.outputs.get(n).get(k).copied());
                classes.push(outputs.collect());
            }
        }
    }
    classes
}

/// A stretch of the order in which the labels repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    begin: usize,
    end: usize,
    period: usize,
}

fn hash(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

fn labels(flat: &Flat) -> Vec<u64> {
    let bytes = |list: &[u32]| list.iter().map(|&v| flat.bytes[v as usize]).collect::<Vec<_>>();
    let mut labels: Vec<u64> = (0..flat.n_nodes())
        .map(|n| {
            hash((
                flat.cost[n].to_bits(),
                flat.extra[n],
                bytes(flat.inputs.get(n)),
                bytes(flat.outputs.get(n)),
            ))
        })
        .collect();
    for _ in 0..N_ROUNDS {
        labels = (0..flat.n_nodes())
            .map(|n| {
                let maker = |&v: &u32| flat.producer[v as usize];
                let label = |m: u32| if m == NONE { 0 } else { labels[m as usize] };
                let inputs: Vec<u64> = flat.inputs.get(n).iter().map(maker).map(label).collect();
                let readers = flat.outputs.get(n).iter().flat_map(|&v| flat.readers.get(v as usize));
                let mut readers: Vec<u64> = readers.map(|&m| label(m)).collect();
                readers.sort_unstable();
                hash((labels[n], inputs, readers))
            })
            .collect();
    }
    labels
}

/// Periodic stretches that do not overlap, the longest first.
fn runs(labels: &[u64]) -> Vec<Run> {
    let mut last_seen: HashMap<u64, usize> = HashMap::new();
    let mut distances: HashMap<usize, usize> = HashMap::new();
    for (i, &label) in labels.iter().enumerate() {
        if let Some(before) = last_seen.insert(label, i) {
            *distances.entry(i - before).or_default() += 1;
        }
    }
    let mut periods: Vec<(usize, usize)> = distances.into_iter().collect();
    periods.sort_unstable_by_key(|&(distance, count)| (std::cmp::Reverse(count), distance));
    let mut found: Vec<Run> = Vec::new();
    for &(period, _) in periods.iter().take(N_PERIODS) {
        let mut begin = 0;
        for end in period..=labels.len() {
            // The stretch begin..end repeats with the period as far as `end`.
            if end == labels.len() || labels[end] != labels[end - period] {
                if end - begin >= FEWEST_LAYERS * period {
                    found.push(Run { begin, end, period });
                }
                begin = end + 1 - period;
            }
        }
    }
    found.sort_unstable_by_key(|run| (std::cmp::Reverse(run.end - run.begin), run.period, run.begin));
    let mut chosen: Vec<Run> = Vec::new();
    for run in found {
        if chosen.iter().all(|other| run.end <= other.begin || other.end <= run.begin) {
            chosen.push(run);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_found_and_do_not_overlap() {
        let labels = [9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 8, 5, 5, 5, 5, 7];
        let expected = [Run { begin: 1, end: 11, period: 3 }, Run { begin: 12, end: 16, period: 1 }];
        assert_eq!(runs(&labels), expected);
        assert_eq!(runs(&[1, 2, 3, 4]), []);
        assert_eq!(runs(&[]), []);
    }
}
