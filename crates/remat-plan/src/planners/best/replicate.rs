//! Plans for problems with many identical layers: one decision per role, and the number of layers it is for.
//!
//! In: classes of values with the same role in successive layers (repeats.rs), a node at which memory is short, and the
//! values that a first plan drops there. Out: a cheaper plan within the budget, if one is found. The state is one number per
//! class: in how many layers, from the first on, its value is dropped at the cut. So a problem of thirty thousand nodes has
//! a dozen variables, and each trial is simulated exactly, temporaries included. A step drops one class in more layers
//! and keeps another one in as many more as then fit; it is taken if that is cheaper.
//!
//! Time: O(classes^2 * log(layers)) simulations for one pass over all pairs, or until the limits are reached.

use crate::planners::best::keep_set::dropped_at;
use crate::schedule::flat::{Flat, Measure};
use crate::schedule::gaps::schedule;
use crate::schedule::limits::Limits;

/// More classes than this take too long; the search on the sequence is better then.
const MOST_CLASSES: usize = 60;

/// Improves the plan that drops `dropped` at node `at`; nothing when the classes do not cover what matters, or when
/// there is no plan within the budget to begin with.
pub(crate) fn improve(
    flat: &Flat,
    classes: &[Vec<u32>],
    at: usize,
    dropped: &[u32],
    budget: i64,
    limits: &mut Limits,
) -> Option<(Vec<u32>, Measure)> {
    let crosses = |v: u32| {
        let is_read_later = flat.readers.get(v as usize).last().is_some_and(|&reader| reader >= at as u32);
        flat.producer[v as usize] < at as u32 && is_read_later && !flat.lasting[v as usize]
    };
    let classes: Vec<&Vec<u32>> =
        classes.iter().filter(|class| class.len() > 1 && class.iter().all(|&v| crosses(v))).collect();
    if classes.is_empty() || classes.len() > MOST_CLASSES {
        return None;
    }
    let mut is_dropped = vec![false; flat.n_values()];
    dropped.iter().for_each(|&v| is_dropped[v as usize] = true);
    let counts: Vec<usize> =
        classes.iter().map(|class| class.iter().filter(|&&v| is_dropped[v as usize]).count()).collect();
    classes.iter().for_each(|class| class.iter().for_each(|&v| is_dropped[v as usize] = false));
    let singles: Vec<u32> = dropped.iter().copied().filter(|&v| is_dropped[v as usize]).collect();
    let mut pattern = Pattern { flat, classes, singles, at: at as u32, budget, scratch: Vec::new() };
    let mut now = pattern.try_counts(&counts, limits).filter(|(_, measure)| measure.peak <= budget)?;
    let mut counts = counts;
    while pattern.improve_once(&mut counts, &mut now, limits) {}
    Some(now)
}

struct Pattern<'a> {
    flat: &'a Flat,
    classes: Vec<&'a Vec<u32>>,
    /// Dropped values that belong to no class.
    singles: Vec<u32>,
    at: u32,
    budget: i64,
    scratch: Vec<bool>,
}

impl Pattern<'_> {
    /// The plan for the given numbers of layers; nothing when it has no schedule or a limit is reached.
    fn try_counts(&mut self, counts: &[usize], limits: &mut Limits) -> Option<(Vec<u32>, Measure)> {
        let of_classes = self.classes.iter().zip(counts).flat_map(|(class, &count)| &class[..count]);
        let dropped: Vec<u32> = self.singles.iter().chain(of_classes).copied().collect();
        let schedule = schedule(self.flat, &dropped_at(self.flat, self.at, &dropped))?;
        let measure = self.flat.measure(&schedule.computes, &mut self.scratch);
        limits.spend(10.0 * schedule.computes.len() as f64).then_some((schedule.computes, measure))
    }

    /// One pass over all pairs of classes; says whether it gained anything and the limits allow another one.
    fn improve_once(
        &mut self,
        counts: &mut Vec<usize>,
        now: &mut (Vec<u32>, Measure),
        limits: &mut Limits,
    ) -> bool {
        let mut has_gained = false;
        for kept in 0..self.classes.len() {
            for dropped in (0..self.classes.len()).filter(|&class| class != kept) {
                for share in [1.0, 0.25, 0.0] {
                    // A gain changes the counts, so what is left to drop is looked up for each trial.
                    let room = self.classes[dropped].len() - counts[dropped];
                    let more = (share * room as f64) as usize;
                    if counts[kept] == 0 || (more == 0 && dropped > 0) {
                        continue;
                    }
                    let mut trial = counts.clone();
                    trial[dropped] += more;
                    if let Some(better) = self.keep_more(&mut trial, kept, limits)
                        && better.1.cost < now.1.cost
                    {
                        (*now, *counts, has_gained) = (better, trial, true);
                    }
                    if !limits.spend(0.0) {
                        return false;
                    }
                }
            }
        }
        has_gained
    }

    /// Keeps a class in as many layers as fit, by bisection.
    fn keep_more(
        &mut self,
        trial: &mut [usize],
        class: usize,
        limits: &mut Limits,
    ) -> Option<(Vec<u32>, Measure)> {
        let (mut enough, mut too_few) = (trial[class], None);
        let mut best = None;
        loop {
            let next = match too_few {
                None => 0,
                Some(low) if enough - low > 1 => low + (enough - low) / 2,
                Some(_) => break,
            };
            trial[class] = next;
            let found = self.try_counts(trial, limits)?;
            if found.1.peak <= self.budget {
                enough = next;
                best = Some(found);
                if next == 0 {
                    break;
                }
            } else {
                too_few = Some(next);
            }
        }
        trial[class] = enough;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planners::best::{keep_set, repeats};
    use crate::problem::Problem;
    use crate::spec::{Node, Phase, ProblemSpec, Value};
    use crate::{Bytes, ValueId};

    /// Layers of two nodes (an expensive small value, then a cheap large one), and a backward node for each layer.
    fn layers(n_layers: usize) -> Problem {
        let mut spec = ProblemSpec {
            name: "layers".into(),
            cost_unit: "1".into(),
            fixed_bytes: Bytes(0),
            values: vec![],
            inputs: vec![],
            nodes: vec![],
            outputs: vec![],
            ..ProblemSpec::default()
        };
        let mut add = |phase, cost: f64, bytes: u64, inputs: Vec<ValueId>| {
            let made = ValueId::new(spec.values.len());
            spec.values.push(Value::new(made.to_string(), Bytes(bytes)));
            spec.nodes.push(Node {
                name: made.to_string(),
                op: "o".into(),
                phase,
                cost,
                workspace_bytes: Bytes(0),
                inputs,
                outputs: vec![made],
                recompute: true,
                consumes: vec![],
                reuse: vec![],
                module: None,
            });
            made
        };
        let mut last = add(Phase::Forward, 1.0, 8, vec![]);
        let mut saved = Vec::new();
        for _ in 0..n_layers {
            let small = add(Phase::Forward, 50.0, 8, vec![last]);
            last = add(Phase::Forward, 3.0, 16, vec![small]);
            saved.push((small, last));
        }
        last = add(Phase::Forward, 1.0, 8, vec![last]);
        for (small, large) in saved.into_iter().rev() {
            last = add(Phase::Backward, 60.0, 8, vec![last, small, large]);
        }
        spec.outputs.push(last);
        Problem::new(spec).expect("valid")
    }

    #[test]
    fn equal_layers_are_found_and_decided_together() {
        let flat = Flat::new(&layers(40));
        let classes = repeats::classes(&flat);
        let large = classes.iter().find(|class| class.len() >= 30 && flat.bytes[class[0] as usize] == 16);
        let large = large.expect("the large values of the layers are a class");
        assert!(large.windows(2).all(|pair| pair[1] - pair[0] == 2), "{large:?}");

        let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
        let all = flat.measure(&order, &mut Vec::new());
        let budget = all.peak * 2 / 3;
        let mut limits = Limits::of_work(1e9);
        let kept = keep_set::plan_at(&flat, all.at, budget, &mut limits).expect("there is a plan");
        assert!(kept.measure.peak <= budget, "{:?}", kept.measure);
        // From dropping all of them, as many are kept again as fit.
        let (computes, better) = improve(&flat, &classes, all.at, large, budget, &mut limits)
            .expect("dropping all large values is within the budget");
        assert!(flat.is_valid(&computes));
        assert!(better.peak <= budget && better.cost <= kept.measure.cost, "{better:?} {:?}", kept.measure);
        // About half of the large values must go, at a cost of 3 each: none of the expensive small ones.
        assert!(better.cost - all.cost <= 3.0 * 25.0, "{better:?} {all:?}");
    }

    #[test]
    fn a_bad_choice_is_exchanged_class_by_class() {
        let flat = Flat::new(&layers(40));
        let classes = repeats::classes(&flat);
        let is_expensive = |class: &&Vec<u32>| class.len() >= 30 && flat.cost[class[0] as usize] == 50.0;
        let expensive =
            classes.iter().find(is_expensive).expect("the expensive values of the layers are a class");
        let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
        let all = flat.measure(&order, &mut Vec::new());
        let budget = all.peak * 3 / 4;
        // Dropping every cheap value instead of every expensive one is a gain, after which no cheap value is left to drop.
        let (_, better) = improve(&flat, &classes, all.at, expensive, budget, &mut Limits::of_work(1e9))
            .expect("dropping all expensive values is within the budget");
        assert!(better.peak <= budget && better.cost - all.cost <= 3.0 * 40.0, "{better:?} {all:?}");
    }
}
