//! Random problems with stores, and random plans that use them.

use super::{Random, network, random_problem};
use remat_plan::{
    Bytes, Channel, ChannelId, Link, NodeId, Plan, Problem, Status, Step, Store, StoreId, ValueId,
    memory_floor, simulate_with,
};

/// A random problem with one or two stores of any kind: fast and slow, small and without limit, half and full duplex, channels
/// that overlap and that do not; values that stay; state that may rest in a store.
pub(crate) fn random_problem_with_stores(seed: u64, max_nodes: usize) -> Problem {
    let mut random = Random(seed ^ 0x5707_0000);
    let mut spec = random_problem(seed, max_nodes).spec().clone();
    let n_channels = 1 + random.below(3);
    for c in 0..n_channels {
        spec.channels.push(Channel { name: format!("c{c}"), overlaps: random.chance(75) });
    }
    // Quarters and eighths add up without rounding.
    let link = |random: &mut Random| Link {
        channel: ChannelId::new(random.below(n_channels)),
        latency: random.below(4) as f64 * 0.25,
        cost_per_byte: random.below(5) as f64 * 0.125,
    };
    for s in 0..1 + random.below(2) {
        let capacity_bytes = random.chance(30).then(|| Bytes(random.below(30) as u64));
        let (out, back) = (link(&mut random), link(&mut random));
        spec.stores.push(Store { name: format!("s{s}"), capacity_bytes, out, back });
    }
    for value in &mut spec.values {
        value.swap = !random.chance(10);
    }
    let updated: Vec<(ValueId, ValueId)> = spec
        .nodes
        .iter()
        .filter(|node| !node.consumes.is_empty())
        .map(|n| (n.consumes[0], n.outputs[0]))
        .collect();
    for pair in updated.into_iter().filter(|pair| spec.inputs.contains(&pair.0)) {
        if random.chance(70) {
            spec.carries.push(pair);
            // Some state is larger than everything else.
            let more = if random.chance(40) { random.below(30) as u64 } else { 0 };
            for v in [pair.0, pair.1] {
                spec.values[v.index()].bytes += Bytes(more);
            }
        }
    }
    Problem::new(spec).expect("the generator makes valid problems")
}

/// A training step of so many layers with a file beside it that copies while nodes run; what is updated may rest there.
pub(crate) fn network_with_store(seed: u64, n_layers: usize) -> Problem {
    let mut spec = network(seed, n_layers).spec().clone();
    spec.channels = ["to the file", "from the file"]
        .map(|name| Channel { name: name.to_string(), overlaps: true })
        .into();
    let link = |channel: usize| Link { channel: ChannelId::new(channel), latency: 5.0, cost_per_byte: 0.5 };
    let (out, back) = (link(0), link(1));
    spec.stores = vec![Store { name: "file".to_string(), capacity_bytes: None, out, back }];
    let updates = spec.nodes.iter().filter(|node| !node.consumes.is_empty());
    spec.carries = updates.map(|node| (node.consumes[0], node.outputs[0])).collect();
    Problem::new(spec).expect("the generator makes valid problems")
}

/// A budget half of the way from the floor to the state, which is parameters and what an optimizer keeps.
pub(crate) fn budget_below_state(problem: &Problem) -> Bytes {
    let floor = memory_floor(problem).bytes.0;
    let state = problem.carries.iter().map(|pair| problem.bytes(pair.0).0).sum::<u64>();
    Bytes(u64::midpoint(floor, problem.fixed_bytes.0 + state))
}

/// A valid plan for a problem: nodes in their order, some again, values kept, dropped or moved at random. Its claims are those of
/// the simulator, its budget is its peak.
pub(crate) fn random_plan(problem: &Problem, random: &mut Random) -> Plan {
    let mut writer = Writer::new(problem, random);
    for n in 0..problem.nodes.len() {
        writer.run(NodeId::new(n), random);
    }
    writer.end();
    let (stored, steps) = (writer.stored_at_start, writer.steps);
    claimed(problem, stored, steps).expect("the generator makes valid plans")
}

/// The plan with the claims that the simulator makes; `None` where it says that the steps are not valid.
pub(crate) fn claimed(problem: &Problem, stored: Vec<(ValueId, StoreId)>, steps: Vec<Step>) -> Option<Plan> {
    let result = simulate_with(problem, &stored, &steps).ok()?;
    Some(Plan {
        problem: problem.name.clone(),
        planner: "random".to_string(),
        status: Status::Feasible,
        budget_bytes: result.peak,
        peak_bytes: result.peak,
        cost: result.cost,
        lower_bound: None,
        stored,
        steps,
    })
}

struct Writer<'a> {
    problem: &'a Problem,
    steps: Vec<Step>,
    stored_at_start: Vec<(ValueId, StoreId)>,
    live: Vec<bool>,
    stored: Vec<(ValueId, StoreId)>,
    filled: Vec<u64>,
}

impl<'a> Writer<'a> {
    fn new(problem: &'a Problem, random: &mut Random) -> Writer<'a> {
        let mut writer = Writer {
            problem,
            steps: Vec::new(),
            stored_at_start: Vec::new(),
            live: problem.value_ids().map(|v| problem.is_input(v)).collect(),
            stored: Vec::new(),
            filled: vec![0; problem.stores.len()],
        };
        for &(input, output) in &problem.carries {
            let store = StoreId::new(random.below(problem.stores.len()));
            let may_move = problem.value(input).swap && problem.value(output).swap;
            // State in a store of limited size might not find room there at the end.
            if may_move && random.chance(90) && problem.store(store).capacity_bytes.is_none() {
                writer.put(input, store);
                writer.stored_at_start.push((input, store));
                writer.live[input.index()] = false;
            }
        }
        writer
    }

    fn put(&mut self, value: ValueId, store: StoreId) {
        self.filled[store.index()] += self.problem.bytes(value).0;
        self.stored.push((value, store));
    }

    fn take(&mut self, value: ValueId, store: StoreId) {
        self.filled[store.index()] -= self.problem.bytes(value).0;
        self.stored.retain(|&place| place != (value, store));
    }

    fn place_of(&self, value: ValueId) -> Option<StoreId> {
        self.stored.iter().find(|place| place.0 == value).map(|place| place.1)
    }

    fn has_room(&self, value: ValueId, store: StoreId) -> bool {
        let filled = self.filled[store.index()] + self.problem.bytes(value).0;
        self.problem.store(store).capacity_bytes.is_none_or(|capacity| filled <= capacity.0)
    }

    /// Makes a value live: it is copied in, or made again. Nothing is dropped that could not come back.
    fn fetch(&mut self, value: ValueId) {
        if self.live[value.index()] {
            return;
        }
        if let Some(store) = self.place_of(value) {
            self.steps.push(Step::In(value, store));
            self.live[value.index()] = true;
        } else {
            self.compute(self.problem.producer(value).expect("only what can be made again is dropped"));
        }
    }

    fn compute(&mut self, id: NodeId) {
        let node = self.problem.node(id);
        for &value in &node.inputs {
            self.fetch(value);
        }
        self.steps.push(Step::Compute(id));
        for &value in &node.consumes {
            self.live[value.index()] = false;
            while let Some(store) = self.place_of(value) {
                self.take(value, store);
            }
        }
        for &value in &node.outputs {
            self.live[value.index()] = true;
        }
    }

    /// Runs a node, and then moves or drops some values.
    fn run(&mut self, id: NodeId, random: &mut Random) {
        self.compute(id);
        for _ in 0..random.below(4) {
            let value = ValueId::new(random.below(self.problem.values.len()));
            let store = StoreId::new(random.below(self.problem.stores.len()));
            let is_there = self.stored.contains(&(value, store));
            if self.live[value.index()]
                && !is_there
                && self.problem.value(value).swap
                && self.has_room(value, store)
            {
                self.steps.push(Step::Out(value, store));
                self.put(value, store);
            }
            if self.live[value.index()] && self.place_of(value).is_some() && random.chance(60) {
                self.steps.push(Step::Free(value));
                self.live[value.index()] = false;
            }
            if is_there && self.live[value.index()] && random.chance(30) {
                self.steps.push(Step::Discard(value, store));
                self.take(value, store);
            }
        }
    }

    /// Outputs are live, and state is where it was at the start.
    fn end(&mut self) {
        let carried: Vec<(ValueId, StoreId)> = (self.stored_at_start.iter())
            .map(|&(input, store)| {
                let pair = self.problem.carries.iter().find(|pair| pair.0 == input);
                (pair.expect("what is stored is carried").1, store)
            })
            .collect();
        for &(value, store) in &carried {
            if !self.stored.contains(&(value, store)) {
                self.fetch(value);
                self.steps.push(Step::Out(value, store));
                self.put(value, store);
            }
        }
        for &value in &self.problem.outputs {
            if !carried.iter().any(|pair| pair.0 == value) {
                self.fetch(value);
            }
        }
    }
}
