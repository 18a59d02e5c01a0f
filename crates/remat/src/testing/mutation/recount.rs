//! Plans counted again, step by step: the rules of docs/formats.md as they are written there, once more.

use remat_plan::{Plan, Problem, Step, StoreId, ValueId, Way};
use std::collections::BTreeMap;

/// Ends of the copies of a value to and from a store.
#[derive(Clone, Copy, Default)]
struct Ends {
    out: f64,
    back: f64,
}

struct Count<'a> {
    problem: &'a Problem,
    live: Vec<bool>,
    has_run: Vec<bool>,
    stored: BTreeMap<(ValueId, StoreId), Ends>,
    /// When the copy into each value has ended.
    ready: Vec<f64>,
    channel_free: Vec<f64>,
    now: f64,
    last_end: f64,
    peak: Option<u64>,
}

/// Peak and cost of a plan, or `None` if its steps are not one.
pub(super) fn count(problem: &Problem, plan: &Plan) -> Option<(u64, f64)> {
    let mut count = Count {
        problem,
        live: vec![false; problem.values.len()],
        has_run: vec![false; problem.nodes.len()],
        stored: BTreeMap::new(),
        ready: vec![0.0; problem.values.len()],
        channel_free: vec![0.0; problem.channels.len()],
        now: 0.0,
        last_end: 0.0,
        peak: None,
    };
    problem.inputs.iter().for_each(|v| count.live[v.index()] = true);
    for &(v, s) in &plan.stored {
        problem.carries.iter().find(|pair| pair.0 == v)?;
        count.live[v.index()] = false;
        let is_new = count.stored.insert((v, s), Ends::default()).is_none();
        (is_new && problem.value(v).swap && s.index() < problem.stores.len()).then_some(())?;
    }
    for (at, step) in plan.steps.iter().enumerate() {
        count.step(*step, &plan.steps[at + 1..])?;
        count.check_capacities()?;
    }
    count.end(plan)
}

impl Count<'_> {
    fn bytes(&self, v: ValueId) -> u64 {
        self.problem.bytes(v).0
    }

    fn live_bytes(&self) -> u64 {
        let live = self.problem.value_ids().filter(|v| self.live[v.index()]);
        self.problem.fixed_bytes.0 + live.map(|v| self.bytes(v)).sum::<u64>()
    }

    fn wait(&mut self, end: f64) {
        self.now = self.now.max(end);
    }

    fn wait_for_outs(&mut self, v: ValueId) {
        let ends = self.stored.iter().filter(|((of, _), _)| *of == v).map(|(_, ends)| ends.out);
        let last = ends.fold(0.0, f64::max);
        self.wait(last);
    }

    fn check_capacities(&self) -> Option<()> {
        let fits = |(number, store): (usize, &remat_plan::Store)| {
            let held = self.stored.keys().filter(|(_, s)| s.index() == number).map(|(v, _)| self.bytes(*v));
            store.capacity_bytes.is_none_or(|capacity| held.sum::<u64>() <= capacity.0)
        };
        self.problem.stores.iter().enumerate().all(fits).then_some(())
    }

    fn copy(&mut self, v: ValueId, s: StoreId, way: Way, ready: f64) -> f64 {
        let link = self.problem.store(s).link(way);
        let channel = link.channel.index();
        let start = self.now.max(self.channel_free[channel]).max(ready);
        let end = start + link.latency + self.bytes(v) as f64 * link.cost_per_byte;
        self.channel_free[channel] = end;
        self.last_end = self.last_end.max(end);
        if !self.problem.channels[channel].overlaps {
            self.now = end;
        }
        end
    }

    fn step(&mut self, step: Step, later: &[Step]) -> Option<()> {
        let is_known = |v: ValueId| v.index() < self.problem.values.len();
        match step {
            Step::Compute(node) if node.index() < self.problem.nodes.len() => self.compute(node, later)?,
            Step::Free(v) if is_known(v) && self.live[v.index()] => {
                self.live[v.index()] = false;
                self.wait(self.ready[v.index()]);
                self.wait_for_outs(v);
            }
            Step::Out(v, s) if is_known(v) && self.live[v.index()] && self.problem.value(v).swap => {
                (s.index() < self.problem.stores.len() && !self.stored.contains_key(&(v, s))).then_some(())?;
                let out = self.copy(v, s, Way::Out, self.ready[v.index()]);
                self.stored.insert((v, s), Ends { out, back: 0.0 });
            }
            Step::In(v, s) if is_known(v) && !self.live[v.index()] && self.problem.value(v).swap => {
                let out = self.stored.get(&(v, s))?.out;
                let back = self.copy(v, s, Way::In, out);
                self.stored.get_mut(&(v, s))?.back = back;
                self.ready[v.index()] = back;
                self.live[v.index()] = true;
                self.peak = self.peak.max(Some(self.live_bytes()));
            }
            Step::Discard(v, s) => {
                let ends = self.stored.remove(&(v, s))?;
                self.wait(ends.out.max(ends.back));
            }
            _ => return None,
        }
        Some(())
    }

    fn compute(&mut self, id: remat_plan::NodeId, later: &[Step]) -> Option<()> {
        let node = self.problem.node(id);
        let is_again = std::mem::replace(&mut self.has_run[id.index()], true);
        if is_again && !node.recompute || !node.inputs.iter().all(|v| self.live[v.index()]) {
            return None;
        }
        let is_freed = |step: &Step| if let Step::Free(v) = step { Some(*v) } else { None };
        let freed: Vec<ValueId> = later.iter().map_while(is_freed).collect();
        let mut used = self.live_bytes() + node.workspace_bytes.0;
        used -= node.consumes.iter().map(|v| self.bytes(*v)).sum::<u64>();
        used += node.outputs.iter().map(|v| self.bytes(*v)).sum::<u64>();
        let (mut donors, mut placed): (Vec<ValueId>, Vec<ValueId>) = (Vec::new(), Vec::new());
        for &(i, o) in &node.reuse {
            let dies = freed.contains(&i) && !node.consumes.contains(&i) && !donors.contains(&i);
            let fits = self.bytes(o) <= self.bytes(i) && !self.live[o.index()] && !placed.contains(&o);
            if dies && fits {
                donors.push(i);
                placed.push(o);
                used -= self.bytes(o);
            }
        }
        self.peak = self.peak.max(Some(used));
        for v in &node.inputs {
            self.wait(self.ready[v.index()]);
        }
        for &v in node.consumes.iter().chain(&donors) {
            self.wait_for_outs(v);
        }
        self.now += node.cost;
        for &v in &node.consumes {
            self.live[v.index()] = false;
            self.stored.retain(|(of, _), _| *of != v);
        }
        for v in &node.outputs {
            if !std::mem::replace(&mut self.live[v.index()], true) {
                self.ready[v.index()] = 0.0;
            }
        }
        Some(())
    }

    fn end(self, plan: &Plan) -> Option<(u64, f64)> {
        let mut elsewhere = Vec::new();
        for &(v, s) in &plan.stored {
            let (_, last) = self.problem.carries.iter().find(|pair| pair.0 == v)?;
            self.stored.get(&(*last, s))?;
            elsewhere.push(*last);
        }
        let is_there = |v: &ValueId| self.live[v.index()] || elsewhere.contains(v);
        let is_done =
            self.has_run.iter().all(|&has_run| has_run) && self.problem.outputs.iter().all(is_there);
        is_done.then_some((self.peak?, self.now.max(self.last_end)))
    }
}
