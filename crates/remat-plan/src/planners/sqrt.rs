//! Chen's segments: keep only what crosses a segment boundary of the forward pass, recompute the rest.
//!
//! The forward nodes are cut into k segments of about equal bytes. A value that a later segment reads in forward is
//! kept; every other value that backward reads is dropped after its last forward read and recomputed when
//! backward first reads it, from the values kept at the start of its segment. All k up to 2 sqrt(n) are tried, each
//! also with the last segment kept, since backward reads it at once; the cheapest plan that fits is taken. With n equal layers k = sqrt(n) gives O(sqrt(n)) memory at one extra forward
//! pass. Time: O(n sqrt(n)). Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.

use crate::answer::Candidates;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, NONE};
use crate::schedule::gaps::{Gap, drop_at_the_turn, keep_all};
use crate::spec::Phase;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let flat = Flat::new(problem);
    let is_forward: Vec<bool> = problem.nodes.iter().map(|node| node.phase == Phase::Forward).collect();
    let n_forward = is_forward.iter().filter(|forward| **forward).count();
    let mut candidates = Candidates::new(&flat, request);
    candidates.offer(&keep_all(&flat));
    for n_segments in 1..=(2.0 * (n_forward as f64).sqrt()).ceil() as usize {
        for keeps_last in [true, false] {
            candidates.offer(&segmented(&flat, &is_forward, n_segments, keeps_last));
        }
    }
    candidates.finish(problem, "sqrt")
}

/// Keeps the values that cross a boundary between `n_segments` segments of the forward nodes, and all values of the last
/// segment if asked to.
fn segmented(flat: &Flat, is_forward: &[bool], n_segments: usize, keeps_last: bool) -> Vec<Gap> {
    let made: Vec<i64> = (0..flat.n_nodes())
        .map(|n| {
            if is_forward[n] { flat.outputs.get(n).iter().map(|&v| flat.bytes[v as usize]).sum() } else { 0 }
        })
        .collect();
    let total: i64 = made.iter().sum();
    let mut segment = vec![0usize; flat.n_nodes()];
    let mut so_far = 0;
    for n in 0..flat.n_nodes() {
        segment[n] = (so_far as i128 * n_segments as i128 / i128::from(total.max(1))) as usize;
        so_far += made[n];
    }
    let mut gaps = keep_all(flat);
    for v in 0..flat.n_values() {
        let maker = flat.producer[v];
        if maker == NONE || flat.lasting[v] {
            continue;
        }
        let crosses = flat.readers.get(v).iter().any(|&reader| {
            is_forward[reader as usize] && segment[reader as usize] != segment[maker as usize]
        });
        let stays = keeps_last && segment[maker as usize] + 1 >= n_segments;
        if !crosses && !stays {
            drop_at_the_turn(flat, is_forward, v, &mut gaps, Gap::Share);
        }
    }
    gaps
}
