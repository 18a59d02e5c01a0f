//! When a value is in a store only, and what that makes room for. Time: O(moved values * steps).

use super::Away;
use crate::ids::ValueId;
use crate::plan::{Plan, Step};
use crate::problem::Problem;
use crate::simulate::Simulation;
use std::collections::BTreeMap;

/// The tightest stretch of each value that leaves memory while it is in a store.
pub(super) fn stretches(problem: &Problem, plan: &Plan, result: &Simulation) -> BTreeMap<ValueId, Away> {
    let mut found: BTreeMap<ValueId, Away> = BTreeMap::new();
    // Copies that are in a store now, and when values that have one left memory.
    let mut n_copies: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut left: BTreeMap<ValueId, usize> = BTreeMap::new();
    for &(value, _) in &plan.stored {
        *n_copies.entry(value).or_default() += 1;
        left.insert(value, 0);
    }
    let mut end = |value: ValueId, from: usize, to: usize| {
        let first = result.curve.partition_point(|&(at, _)| at < from);
        let last = result.curve.partition_point(|&(at, _)| at < to);
        let tightest = result.curve[first..last].iter().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let Some(&(at, used)) = tightest else { return };
        if found.get(&value).is_some_and(|known| known.used_bytes >= used) {
            return;
        }
        let name = match plan.steps[at] {
            Step::Compute(node) => problem.node(node).name.clone(),
            Step::In(value, _) | Step::Out(value, _) | Step::Discard(value, _) | Step::Free(value) => {
                format!("the copy into {}", problem.value(value).name)
            }
        };
        let excess = (used + problem.bytes(value)).saturating_sub(plan.budget_bytes);
        let away = Away {
            from_step: from,
            to_step: to,
            tightest_step: at,
            tightest_name: name,
            used_bytes: used,
            excess_if_kept_bytes: excess,
        };
        found.insert(value, away);
    };
    for (at, &step) in plan.steps.iter().enumerate() {
        match step {
            Step::Out(value, _) => *n_copies.entry(value).or_default() += 1,
            Step::Free(value) if n_copies.get(&value).is_some_and(|&n| n > 0) => {
                left.insert(value, at);
            }
            Step::In(value, _) => {
                if let Some(from) = left.remove(&value) {
                    end(value, from, at);
                }
            }
            Step::Discard(value, _) => {
                n_copies.entry(value).and_modify(|n| *n = n.saturating_sub(1));
            }
            Step::Compute(node) => {
                for value in problem.node(node).consumes.iter().chain(&problem.node(node).outputs) {
                    left.remove(value);
                    if problem.node(node).consumes.contains(value) {
                        n_copies.remove(value);
                    }
                }
            }
            Step::Free(_) => {}
        }
    }
    for (value, from) in left {
        if n_copies.get(&value).is_some_and(|&n| n > 0) {
            end(value, from, plan.steps.len());
        }
    }
    found
}
