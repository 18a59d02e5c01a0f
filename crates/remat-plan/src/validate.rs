//! Every way in which a problem can be malformed.
//!
//! In: a [`ProblemSpec`]. Out: the faults, each with its place; beyond a thousand they are counted only. Time and memory are
//! linear in the size of the problem, whatever it contains. Checks that need ids in range are skipped for the offending id
//! only, so that one pass reports as much as the structure allows.
//!
//! What holds when no fault is found:
//! - every id is in range and no list names an id twice;
//! - every value that is read or is an output of the problem is an input of the problem or has exactly one producer;
//! - nodes are listed in topological order;
//! - costs are finite and not negative, and so is their sum;
//! - twice the bytes of all values plus the fixed bytes plus the largest workspace fit in 63 bits, so that memory
//!   and signed differences of memory never overflow in any plan;
//! - `consumes` names inputs of a node that runs once, the last reader of each, and at most as many bytes as the
//!   node's outputs hold; `reuse` names pairs of an input and an output;
//! - the links of stores name channels, and their costs are finite and not negative; `carries` names pairs of an input and
//!   an output of the problem with the same bytes, each value once on its side.

use crate::ids::{NodeId, StoreId, ValueId};
use crate::names::Capped;
use crate::problem_fault::{List, Origin, Place, ProblemFault, ProblemFaultKind};
use crate::spec::{ProblemSpec, Way};

/// The faults of a problem, in the order of the file.
pub fn validate(spec: &ProblemSpec) -> Vec<ProblemFault> {
    let n_values = spec.values.len();
    let mut checker =
        Validator { spec, faults: Capped::new(), seen: vec![0; n_values], made: vec![0; n_values], mark: 0 };
    checker.ids();
    let producer = checker.producers();
    checker.order(&producer);
    checker.consumption();
    checker.stores();
    checker.carries();
    checker.sums();
    checker.faults.finish(|n| ProblemFault { place: Place::Problem, kind: ProblemFaultKind::More { n } })
}

struct Validator<'a> {
    spec: &'a ProblemSpec,
    faults: Capped<ProblemFault>,
    /// `seen[v] == mark` when `v` occurred in the list that is being read.
    seen: Vec<u32>,
    /// The same for the outputs of a node, while its other lists are read.
    made: Vec<u32>,
    mark: u32,
}

impl Validator<'_> {
    fn push(&mut self, node: Option<usize>, kind: ProblemFaultKind) {
        let place = node.map_or(Place::Problem, |n| Place::Node(NodeId::new(n)));
        self.faults.push(ProblemFault { place, kind });
    }

    fn in_range(&self, value: ValueId) -> bool {
        value.index() < self.spec.values.len()
    }

    fn ids(&mut self) {
        let spec = self.spec;
        self.list(None, List::Input, &spec.inputs);
        self.list(None, List::Output, &spec.outputs);
        for (n, node) in spec.nodes.iter().enumerate() {
            self.list(Some(n), List::Input, &node.inputs);
            let inputs_mark = self.mark;
            for &value in &node.consumes {
                if self.in_range(value) && self.seen[value.index()] != inputs_mark {
                    self.push(Some(n), ProblemFaultKind::ConsumesOther { value });
                }
            }
            for &value in node.outputs.iter().filter(|v| v.index() < spec.values.len()) {
                self.made[value.index()] = inputs_mark;
            }
            for &(input, output) in &node.reuse {
                let is_input = self.in_range(input) && self.seen[input.index()] == inputs_mark;
                let is_output = self.in_range(output) && self.made[output.index()] == inputs_mark;
                if !is_input || !is_output {
                    self.push(Some(n), ProblemFaultKind::BadReuse { input, output });
                }
            }
            self.list(Some(n), List::Output, &node.outputs);
            self.list(Some(n), List::Consumed, &node.consumes);
            if !(node.cost.is_finite() && node.cost >= 0.0) {
                self.push(Some(n), ProblemFaultKind::BadCost { cost: node.cost });
            }
        }
    }

    /// Range and duplicates of one list; afterwards `seen == mark` for its members.
    fn list(&mut self, node: Option<usize>, list: List, values: &[ValueId]) {
        self.mark += 1;
        for &value in values {
            if !self.in_range(value) {
                let n_values = self.spec.values.len();
                self.push(node, ProblemFaultKind::OutOfRange { list, value, n_values });
            } else if self.seen[value.index()] == self.mark {
                self.push(node, ProblemFaultKind::Duplicate { list, value });
            } else {
                self.seen[value.index()] = self.mark;
            }
        }
    }

    fn producers(&mut self) -> Vec<Producer> {
        let mut producer = vec![Producer::None; self.spec.values.len()];
        for &value in self.spec.inputs.iter().filter(|v| v.index() < self.spec.values.len()) {
            producer[value.index()] = Producer::Input;
        }
        for (n, node) in self.spec.nodes.iter().enumerate() {
            for &value in &node.outputs {
                if !self.in_range(value) {
                    continue;
                }
                let other = match producer[value.index()] {
                    Producer::None => {
                        producer[value.index()] = Producer::Node(n);
                        continue;
                    }
                    Producer::Node(m) if m == n => continue, // Reported as a duplicate.
                    Producer::Node(m) => Origin::Node(NodeId::new(m)),
                    Producer::Input => Origin::Input,
                };
                self.push(Some(n), ProblemFaultKind::SecondProducer { value, other });
            }
        }
        producer
    }

    fn order(&mut self, producer: &[Producer]) {
        let mut in_order = true;
        for (n, node) in self.spec.nodes.iter().enumerate() {
            for &value in node.inputs.iter().filter(|v| v.index() < self.spec.values.len()) {
                match producer[value.index()] {
                    Producer::Input => {}
                    Producer::Node(m) if m < n => {}
                    Producer::Node(m) => {
                        in_order = false;
                        let producer = NodeId::new(m);
                        self.push(Some(n), ProblemFaultKind::OutOfOrder { value, producer });
                    }
                    Producer::None => {
                        self.push(Some(n), ProblemFaultKind::NoProducer { list: List::Input, value });
                    }
                }
            }
        }
        for &value in self.spec.outputs.iter().filter(|v| v.index() < self.spec.values.len()) {
            if producer[value.index()] == Producer::None {
                self.push(None, ProblemFaultKind::NoProducer { list: List::Output, value });
            }
        }
        if !in_order && let Some(path) = self.find_cycle(producer) {
            self.push(None, ProblemFaultKind::Cycle { path });
        }
    }

    /// The nodes along one cycle, or nothing when the nodes are merely in the wrong order.
    fn find_cycle(&self, producer: &[Producer]) -> Option<Vec<NodeId>> {
        let nodes = &self.spec.nodes;
        let predecessors = |n: usize| {
            nodes[n].inputs.iter().filter_map(|v| match producer.get(v.index()) {
                Some(&Producer::Node(m)) => Some(m),
                _ => None,
            })
        };
        // Depth-first with an explicit stack of (node, predecessors still to visit).
        let mut state = vec![Visit::New; nodes.len()];
        for root in 0..nodes.len() {
            let mut stack = vec![(root, predecessors(root))];
            if state[root] != Visit::New {
                continue;
            }
            state[root] = Visit::Open;
            while let Some((n, rest)) = stack.last_mut() {
                match rest.next() {
                    Some(m) if state[m] == Visit::New => {
                        state[m] = Visit::Open;
                        stack.push((m, predecessors(m)));
                    }
                    Some(m) if state[m] == Visit::Open => {
                        let from =
                            stack.iter().position(|&(n, _)| n == m).expect("open nodes are on the stack");
                        let mut path: Vec<usize> = stack[from..].iter().map(|&(n, _)| n).collect();
                        path.push(m);
                        path.reverse();
                        return Some(path.into_iter().map(NodeId::new).collect());
                    }
                    Some(_) => {}
                    None => {
                        state[*n] = Visit::Done;
                        stack.pop();
                    }
                }
            }
        }
        None
    }

    fn consumption(&mut self) {
        let spec = self.spec;
        let n_values = spec.values.len();
        let mut last_reader = vec![None; n_values];
        for (n, node) in spec.nodes.iter().enumerate() {
            for value in node.inputs.iter().filter(|v| v.index() < n_values) {
                last_reader[value.index()] = Some(n);
            }
        }
        let mut is_output = vec![false; n_values];
        for value in spec.outputs.iter().filter(|v| v.index() < n_values) {
            is_output[value.index()] = true;
        }
        for (n, node) in spec.nodes.iter().enumerate().filter(|(_, node)| !node.consumes.is_empty()) {
            if node.recompute {
                self.push(Some(n), ProblemFaultKind::ConsumesAndRecomputes);
            }
            let valid: Vec<ValueId> = node.consumes.iter().copied().filter(|&v| self.in_range(v)).collect();
            for &value in &valid {
                if is_output[value.index()] {
                    self.push(Some(n), ProblemFaultKind::ConsumesOutput { value });
                } else if let Some(reader) = last_reader[value.index()].filter(|&reader| reader > n) {
                    let reader = NodeId::new(reader);
                    self.push(Some(n), ProblemFaultKind::ConsumesTooEarly { value, reader });
                }
            }
            let total = |values: &[ValueId]| {
                values
                    .iter()
                    .filter(|v| v.index() < n_values)
                    .fold(0u64, |sum, v| sum.saturating_add(spec.values[v.index()].bytes.0))
            };
            let (consumed, made) = (total(&valid), total(&node.outputs));
            if consumed > made {
                self.push(Some(n), ProblemFaultKind::ConsumesTooMuch { consumed, made });
            }
        }
    }

    fn stores(&mut self) {
        let n_channels = self.spec.channels.len();
        for (s, store) in self.spec.stores.iter().enumerate() {
            let mut push =
                |kind| self.faults.push(ProblemFault { place: Place::Store(StoreId::new(s)), kind });
            for way in [Way::Out, Way::In] {
                let link = store.link(way);
                let channel = link.channel;
                if channel.index() >= n_channels {
                    push(ProblemFaultKind::NoSuchChannel { way, channel, n_channels });
                }
                for cost in [link.latency, link.cost_per_byte] {
                    if !(cost.is_finite() && cost >= 0.0) {
                        push(ProblemFaultKind::BadTransferCost { way, cost });
                    }
                }
            }
        }
    }

    fn carries(&mut self) {
        let spec = self.spec;
        let n_values = spec.values.len();
        let is_in = |list: &[ValueId]| {
            let mut is_in = vec![false; n_values];
            list.iter().filter(|v| v.index() < n_values).for_each(|v| is_in[v.index()] = true);
            is_in
        };
        let (is_input, is_output) = (is_in(&spec.inputs), is_in(&spec.outputs));
        let mut is_taken = [vec![false; n_values], vec![false; n_values]];
        for &(input, output) in &spec.carries {
            let is_pair = self.in_range(input)
                && self.in_range(output)
                && is_input[input.index()]
                && is_output[output.index()];
            if !is_pair {
                self.push(None, ProblemFaultKind::CarriesNoPair { input, output });
                continue;
            }
            for (value, is_taken) in [input, output].into_iter().zip(&mut is_taken) {
                if std::mem::replace(&mut is_taken[value.index()], true) {
                    let kind = ProblemFaultKind::CarriesTwice { value };
                    self.faults.push(ProblemFault { place: Place::Problem, kind });
                }
            }
            if spec.values[input.index()].bytes != spec.values[output.index()].bytes {
                self.push(None, ProblemFaultKind::CarriesOtherSize { input, output });
            }
        }
    }

    fn sums(&mut self) {
        let spec = self.spec;
        let values: u128 = spec.values.iter().map(|value| u128::from(value.bytes.0)).sum();
        let workspace = spec.nodes.iter().map(|node| u128::from(node.workspace_bytes.0)).max().unwrap_or(0);
        if 2 * values + workspace + u128::from(spec.fixed_bytes.0) > i64::MAX as u128 {
            self.push(None, ProblemFaultKind::SizeOverflow);
        }
        let costs: f64 = spec.nodes.iter().map(|node| node.cost).filter(|cost| cost.is_finite()).sum();
        if !costs.is_finite() {
            self.push(None, ProblemFaultKind::CostOverflow);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Producer {
    None,
    Input,
    Node(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    Open,
    Done,
}
