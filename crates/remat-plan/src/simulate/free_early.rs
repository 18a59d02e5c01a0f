//! The earliest frees for a sequence of computes.
//!
//! They are also the best possible: a value that is not read before it is made again or before the end adds nothing to any
//! later step but its bytes.

use crate::ids::{NodeId, ValueId};
use crate::plan::Step;
use crate::problem::Problem;

/// Turns a sequence of computes into steps: every value is freed as soon as it is not read again before it is made
/// again or before the end. Values that nothing reads are freed right after they are made, inputs that nothing reads at
/// the very start. The frees after one compute are in ascending order of id.
pub fn free_early(problem: &Problem, computes: &[NodeId]) -> Vec<Step> {
    // Backwards: `needed[v]` says that the copy of v which is live at this point is still read later.
    let mut needed: Vec<bool> = problem.value_ids().map(|v| problem.is_output(v)).collect();
    // `frees[i]` are the values to free right after compute i - 1; index 0 is the start.
    let mut frees: Vec<Vec<ValueId>> = vec![Vec::new(); computes.len() + 1];
    for (i, &id) in computes.iter().enumerate().rev() {
        let node = problem.node(id);
        for &value in &node.outputs {
            if !std::mem::replace(&mut needed[value.index()], false) {
                frees[i + 1].push(value);
            }
        }
        for &value in &node.inputs {
            let is_last_use = !std::mem::replace(&mut needed[value.index()], true);
            if is_last_use && !node.consumes.contains(&value) {
                frees[i + 1].push(value);
            }
        }
    }
    frees[0].extend(problem.inputs.iter().filter(|v| !needed[v.index()]));

    let mut steps = Vec::with_capacity(computes.len() * 2 + frees[0].len());
    for (i, list) in frees.iter_mut().enumerate() {
        if i > 0 {
            steps.push(Step::Compute(computes[i - 1]));
        }
        list.sort_unstable();
        steps.extend(list.iter().map(|&value| Step::Free(value)));
    }
    steps
}
