//! Follows the steps of a plan: what is live, what is stored, and the memory of every step that counts.

use super::Fault;
use super::clock::Clock;
use crate::ids::{NodeId, StoreId, ValueId};
use crate::names::Capped;
use crate::plan::{Plan, Step};
use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// What following the steps gives.
pub(super) struct Walked {
    /// The largest memory of all computes and copies into memory.
    pub(super) peak: u128,
    /// When everything has ended.
    pub(super) cost: f64,
    /// How often each node ran.
    pub(super) runs: Vec<u64>,
}

/// The live set and what is stored, while the steps are followed.
pub(super) struct Walk<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    faults: &'a mut Capped<Fault>,
    live: Vec<bool>,
    live_bytes: u128,
    peak: Option<u128>,
    runs: Vec<u64>,
    /// What is in a store, or on its way there.
    stored: BTreeSet<(ValueId, StoreId)>,
    /// What each store holds.
    held: Vec<u128>,
    clock: Clock<'a>,
    /// One mark per value and role; a mark that equals the number of the current step (from 1) is set.
    dies: Vec<usize>,
    overwritten: Vec<usize>,
    donor: Vec<usize>,
    placed: Vec<usize>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(problem: &'a Problem, plan: &'a Plan, faults: &'a mut Capped<Fault>) -> Walk<'a> {
        let unmarked = vec![0; problem.values.len()];
        let mut walk = Walk {
            problem,
            plan,
            faults,
            live: vec![false; problem.values.len()],
            live_bytes: 0,
            peak: None,
            runs: vec![0; problem.nodes.len()],
            stored: BTreeSet::new(),
            held: vec![0; problem.stores.len()],
            clock: Clock::new(problem),
            dies: unmarked.clone(),
            overwritten: unmarked.clone(),
            donor: unmarked.clone(),
            placed: unmarked,
        };
        walk.begin();
        walk
    }

    /// What the plan says is in a store at the start is there, and every other input is live.
    fn begin(&mut self) {
        let carried: BTreeSet<ValueId> = self.problem.carries.iter().map(|&(input, _)| input).collect();
        for &(value, store) in &self.plan.stored {
            if !carried.contains(&value) {
                self.faults.push(Fault::StoredNotCarried { value });
            } else if !self.problem.values[value.index()].swap {
                self.faults.push(Fault::StoredMayNotMove { value });
            } else if self.problem.stores.get(store.index()).is_none() {
                self.faults.push(Fault::NoSuchStore { at: 0, store });
            } else if self.stored.contains(&(value, store)) {
                self.faults.push(Fault::StoredTwice { value, store });
            } else {
                self.put(None, value, store);
            }
        }
        for &value in &self.problem.inputs {
            if self.stores_of(value).next().is_none() {
                self.enter(value);
            }
        }
    }

    fn bytes(&self, value: ValueId) -> u128 {
        u128::from(self.problem.values[value.index()].bytes.0)
    }

    fn enter(&mut self, value: ValueId) {
        if !std::mem::replace(&mut self.live[value.index()], true) {
            self.live_bytes += self.bytes(value);
        }
    }

    fn leave(&mut self, value: ValueId) -> bool {
        let was_live = std::mem::replace(&mut self.live[value.index()], false);
        if was_live {
            self.live_bytes -= self.bytes(value);
        }
        was_live
    }

    fn stores_of(&self, value: ValueId) -> impl Iterator<Item = StoreId> + '_ {
        self.stored.range((value, StoreId(0))..=(value, StoreId(u32::MAX))).map(|&(_, store)| store)
    }

    fn put(&mut self, at: Option<usize>, value: ValueId, store: StoreId) {
        self.stored.insert((value, store));
        self.held[store.index()] += self.bytes(value);
        let held = self.held[store.index()];
        if let Some(capacity) = self.problem.stores[store.index()].capacity_bytes
            && held > u128::from(capacity.0)
        {
            self.faults.push(Fault::OverCapacity { at, store, held, capacity: capacity.0 });
        }
    }

    fn drop_from(&mut self, value: ValueId, store: StoreId) {
        if self.stored.remove(&(value, store)) {
            self.held[store.index()] -= self.bytes(value);
        }
    }

    /// Follows the steps.
    pub(super) fn run(mut self) -> Walked {
        // Without anything that counts, what is resident at the start is all there is.
        let at_start = u128::from(self.problem.fixed_bytes.0) + self.live_bytes;
        for (at, &step) in self.plan.steps.iter().enumerate() {
            if let Some(fault) = self.out_of_range(at, step) {
                self.faults.push(fault);
                continue;
            }
            match step {
                Step::Compute(node) => self.compute(node, at),
                Step::Free(value) => {
                    if self.leave(value) {
                        self.clock.free(value);
                    } else {
                        self.faults.push(Fault::FreedWhenDead { at, value });
                    }
                }
                Step::Out(value, store) => self.out(at, value, store),
                Step::In(value, store) => self.back(at, value, store),
                Step::Discard(value, store) => {
                    if self.stored.contains(&(value, store)) {
                        self.clock.discard(value, store);
                        self.drop_from(value, store);
                    } else {
                        self.faults.push(Fault::NotStored { at, value, store });
                    }
                }
            }
        }
        self.end();
        Walked { peak: self.peak.unwrap_or(at_start), cost: self.clock.end(), runs: self.runs }
    }

    fn out_of_range(&self, at: usize, step: Step) -> Option<Fault> {
        let (value, store) = match step {
            Step::Compute(node) => {
                return (node.index() >= self.problem.nodes.len()).then_some(Fault::NoSuchNode { at, node });
            }
            Step::Free(value) => (value, None),
            Step::Out(value, store) | Step::In(value, store) | Step::Discard(value, store) => {
                (value, Some(store))
            }
        };
        if value.index() >= self.problem.values.len() {
            return Some(Fault::NoSuchValue { at, value });
        }
        let store = store.filter(|store| store.index() >= self.problem.stores.len())?;
        Some(Fault::NoSuchStore { at, store })
    }

    /// What must be there at the end is live, or where the next step looks for it.
    fn end(&mut self) {
        let problem = self.problem;
        let partner: BTreeMap<ValueId, ValueId> = problem.carries.iter().copied().collect();
        let mut elsewhere = BTreeSet::new();
        for (input, store) in &self.plan.stored {
            let Some(&value) = partner.get(input) else { continue };
            elsewhere.insert(value);
            if !self.stored.contains(&(value, *store)) {
                self.faults.push(Fault::CarryLost { value, store: *store });
            }
        }
        for &value in &problem.outputs {
            if !self.live[value.index()] && !elsewhere.contains(&value) {
                self.faults.push(Fault::OutputLost { value });
            }
        }
    }

    fn out(&mut self, at: usize, value: ValueId, store: StoreId) {
        if !self.problem.values[value.index()].swap {
            self.faults.push(Fault::MayNotMove { at, value });
        } else if !self.live[value.index()] {
            self.faults.push(Fault::OutWhenDead { at, value });
        } else if self.stored.contains(&(value, store)) {
            self.faults.push(Fault::OutTwice { at, value, store });
        } else {
            self.put(Some(at), value, store);
            self.clock.copy_out(value, store);
        }
    }

    fn back(&mut self, at: usize, value: ValueId, store: StoreId) {
        if !self.problem.values[value.index()].swap {
            self.faults.push(Fault::MayNotMove { at, value });
        } else if self.live[value.index()] {
            self.faults.push(Fault::InWhenLive { at, value });
        } else if !self.stored.contains(&(value, store)) {
            self.faults.push(Fault::NotStored { at, value, store });
        } else {
            self.clock.copy_in(value, store);
            self.enter(value);
            let used = u128::from(self.problem.fixed_bytes.0) + self.live_bytes;
            let budget = self.plan.budget_bytes.0;
            if used > u128::from(budget) {
                self.faults.push(Fault::CopyOverBudget { at, value, used, budget });
            }
            self.peak = self.peak.max(Some(used));
        }
    }

    fn compute(&mut self, id: NodeId, at: usize) {
        let problem = self.problem;
        let node = &problem.nodes[id.index()];
        for &value in node.inputs.iter().filter(|v| !self.live[v.index()]) {
            self.faults.push(Fault::Unavailable { at, node: id, value });
        }
        self.runs[id.index()] += 1;
        if self.runs[id.index()] > 1 && !node.recompute {
            self.faults.push(Fault::RunsAgain { at, node: id });
        }

        // What is in memory while the node runs, item by item: what was live and is not overwritten, ...
        let mark = at + 1;
        let mut used =
            u128::from(problem.fixed_bytes.0) + u128::from(node.workspace_bytes.0) + self.live_bytes;
        for &value in &node.consumes {
            self.overwritten[value.index()] = mark;
            if self.live[value.index()] {
                used -= self.bytes(value);
            }
        }
        // ... and every output, unless it sits in the storage of an input that dies here.
        if !node.reuse.is_empty() {
            for step in &self.plan.steps[at + 1..] {
                let Step::Free(value) = *step else { break };
                if let Some(dies) = self.dies.get_mut(value.index()) {
                    *dies = mark;
                }
            }
        }
        for &(input, output) in &node.reuse {
            let (i, o) = (input.index(), output.index());
            let allowed = self.dies[i] == mark
                && self.bytes(output) <= self.bytes(input)
                && !self.live[o]
                && self.overwritten[i] != mark
                && self.donor[i] != mark
                && self.placed[o] != mark;
            if allowed {
                self.donor[i] = mark;
                self.placed[o] = mark;
            }
        }
        for &value in node.outputs.iter().filter(|v| self.placed[v.index()] != mark) {
            used += self.bytes(value);
        }
        let budget = self.plan.budget_bytes.0;
        if used > u128::from(budget) {
            self.faults.push(Fault::OverBudget { at, node: id, used, budget });
        }
        self.peak = self.peak.max(Some(used));

        let donors = node.reuse.iter().map(|&(input, _)| input).filter(|v| self.donor[v.index()] == mark);
        let overwritten: Vec<ValueId> = node.consumes.iter().copied().chain(donors).collect();
        let read = node.inputs.iter().copied().filter(|v| self.live[v.index()]);
        self.clock.compute(node.cost, read, &overwritten);
        for &value in &node.consumes {
            self.leave(value);
            for store in self.stores_of(value).collect::<Vec<_>>() {
                self.drop_from(value, store);
            }
        }
        for &value in &node.outputs {
            self.enter(value);
        }
    }
}
