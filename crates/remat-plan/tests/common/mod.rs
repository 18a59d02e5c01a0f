//! Random problems and shorthands shared by the tests.
#![allow(dead_code)] // Each test file is a crate of its own and uses a part of this.

pub(crate) mod campaign;
pub(crate) mod corpus;
pub(crate) mod external;
pub(crate) mod naive;
pub(crate) mod store_campaign;
pub(crate) mod stores;

use remat_plan::{Bytes, Node, NodeId, Phase, Problem, ProblemSpec, Step, Value, ValueId};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A small deterministic generator (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// A node with the usual defaults.
pub(crate) fn node(
    name: String,
    phase: Phase,
    cost: f64,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
) -> Node {
    Node {
        op: "op".to_string(),
        name,
        phase,
        cost,
        workspace_bytes: Bytes(0),
        inputs,
        outputs,
        recompute: true,
        consumes: vec![],
        reuse: vec![],
        module: None,
    }
}

/// A random graph with everything that the format allows: several outputs per node, nodes that run once, free
/// nodes, values of size zero, shared inputs, unread values, state that updates overwrite, and reuse.
pub(crate) fn random_problem(seed: u64, max_nodes: usize) -> Problem {
    let mut random = Random(seed);
    let n_nodes = 1 + random.below(max_nodes);
    let mut spec = ProblemSpec {
        name: format!("random-{seed}"),
        cost_unit: "1".to_string(),
        fixed_bytes: Bytes(random.below(3) as u64 * 5),
        values: vec![],
        inputs: vec![],
        nodes: vec![],
        outputs: vec![],
        ..ProblemSpec::default()
    };
    let mut state = Vec::new();
    for i in 0..random.below(3) {
        let v = add_value(&mut spec, format!("x{i}"), random.below(6) as u64);
        spec.inputs.push(v);
        if random.chance(50) {
            state.push(v);
        }
    }
    let extended = random.chance(50);
    for n in 0..n_nodes {
        let known = spec.values.len();
        let mut inputs: Vec<ValueId> = Vec::new();
        for _ in 0..random.below(4).min(known) {
            // Mostly recent values, as in real graphs, and sometimes far ones, as in backward.
            let reach = if random.chance(60) { known.min(3) } else { known };
            let v = ValueId::new(known - 1 - random.below(reach));
            if !inputs.contains(&v) {
                inputs.push(v);
            }
        }
        let n_outputs = if random.chance(20) { random.below(3) } else { 1 };
        let outputs: Vec<ValueId> = (0..n_outputs)
            .map(|k| add_value(&mut spec, format!("v{n}.{k}"), random.below(9) as u64))
            .collect();
        let phase = if 2 * n < n_nodes { Phase::Forward } else { Phase::Backward };
        let cost = if random.chance(20) { 0.0 } else { random.below(10) as f64 };
        let mut next = node(format!("n{n}"), phase, cost, inputs, outputs);
        next.workspace_bytes = Bytes(if random.chance(20) { random.below(6) as u64 } else { 0 });
        next.recompute = !random.chance(20);
        if extended {
            for &i in &next.inputs {
                for &o in &next.outputs {
                    if random.chance(40) {
                        next.reuse.push((i, o));
                    }
                }
            }
        }
        spec.nodes.push(next);
    }
    for v in 0..spec.values.len() {
        if random.chance(15) {
            spec.outputs.push(ValueId::new(v));
        }
    }
    if extended {
        for (i, v) in state.into_iter().enumerate() {
            if spec.outputs.contains(&v) {
                continue;
            }
            let gradient = ValueId::new(random.below(spec.values.len()));
            let bytes = spec.values[v.index()].bytes.0;
            let new = add_value(&mut spec, format!("x{i}.new"), bytes);
            let inputs = if gradient == v { vec![v] } else { vec![v, gradient] };
            let mut update = node(format!("update{i}"), Phase::Optimizer, 1.0, inputs, vec![new]);
            // A gradient that is the state of an earlier update has been overwritten already.
            if spec.nodes.iter().any(|node| node.consumes.contains(&gradient)) {
                update.inputs = vec![v];
            }
            update.consumes = vec![v];
            update.recompute = false;
            spec.nodes.push(update);
            spec.outputs.push(new);
        }
    }
    Problem::new(spec).expect("the generator makes valid problems")
}

fn add_value(spec: &mut ProblemSpec, name: String, bytes: u64) -> ValueId {
    spec.values.push(Value::new(name, Bytes(bytes)));
    ValueId::new(spec.values.len() - 1)
}

/// A training step of a chain of `n_layers` blocks with skips: forward, backward and an update per layer, with
/// module names. Sizes vary with the seed.
pub(crate) fn network(seed: u64, n_layers: usize) -> Problem {
    let mut random = Random(seed);
    let mut spec = ProblemSpec {
        name: format!("network-{seed}-{n_layers}"),
        cost_unit: "us".to_string(),
        fixed_bytes: Bytes(0),
        values: vec![],
        inputs: vec![],
        nodes: vec![],
        outputs: vec![],
        ..ProblemSpec::default()
    };
    let mut x = add_value(&mut spec, "x".into(), 1000);
    spec.inputs.push(x);
    let mut layers = Vec::new();
    for i in 0..n_layers {
        let w = add_value(&mut spec, format!("w{i}"), 50 + random.below(200) as u64);
        spec.inputs.push(w);
        let size = 300 + random.below(1000) as u64;
        let a = add_value(&mut spec, format!("a{i}"), size);
        let b = add_value(&mut spec, format!("b{i}"), size);
        let y = add_value(&mut spec, format!("y{i}"), size);
        let module = Some(format!("layers.{i}"));
        let mut linear = node(format!("linear{i}"), Phase::Forward, size as f64, vec![x, w], vec![a]);
        let mut gelu = node(format!("gelu{i}"), Phase::Forward, size as f64 / 10.0, vec![a], vec![b]);
        let mut add = node(format!("add{i}"), Phase::Forward, size as f64 / 20.0, vec![b, x], vec![y]);
        add.reuse = vec![(b, y)];
        for n in [&mut linear, &mut gelu, &mut add] {
            n.module = module.clone();
        }
        spec.nodes.extend([linear, gelu, add]);
        layers.push((x, w, a, b, size));
        x = y;
    }
    let loss = add_value(&mut spec, "loss".into(), 4);
    let mut dy = add_value(&mut spec, "dy".into(), layers.last().map_or(4, |layer| layer.4));
    spec.nodes.push(node("loss".into(), Phase::Forward, 1.0, vec![x], vec![loss]));
    spec.nodes.push(node("dloss".into(), Phase::Backward, 1.0, vec![x, loss], vec![dy]));
    spec.outputs.push(loss);
    let mut updates = Vec::new();
    for (i, &(x, w, a, _, size)) in layers.iter().enumerate().rev() {
        let da = add_value(&mut spec, format!("da{i}"), size);
        let (w_bytes, x_bytes) = (spec.values[w.index()].bytes.0, spec.values[x.index()].bytes.0);
        let dw = add_value(&mut spec, format!("dw{i}"), w_bytes);
        let dx = add_value(&mut spec, format!("dx{i}"), x_bytes);
        let mut gelu = node(format!("dgelu{i}"), Phase::Backward, size as f64 / 10.0, vec![a, dy], vec![da]);
        gelu.reuse = vec![(a, da)];
        let linear_w = node(format!("dw{i}"), Phase::Backward, size as f64, vec![x, da], vec![dw]);
        let linear_x = node(format!("dx{i}"), Phase::Backward, size as f64, vec![w, da, dy], vec![dx]);
        spec.nodes.extend([gelu, linear_w, linear_x]);
        updates.push((i, w, dw));
        dy = dx;
    }
    for (i, w, dw) in updates {
        let bytes = spec.values[w.index()].bytes.0;
        let new = add_value(&mut spec, format!("w{i}.new"), bytes);
        let mut update = node(format!("sgd{i}"), Phase::Optimizer, 1.0, vec![w, dw], vec![new]);
        update.consumes = vec![w];
        update.recompute = false;
        spec.nodes.push(update);
        spec.outputs.push(new);
    }
    Problem::new(spec).expect("the generator makes valid problems")
}

/// Memory and cost of steps, counted a third way: for every compute step the set of live values is rebuilt from
/// the start, so the time is quadratic.
pub(crate) fn count(problem: &Problem, steps: &[Step]) -> (u64, f64) {
    let bytes = |v: &ValueId| problem.values[v.index()].bytes.0;
    let mut peak = 0;
    let mut cost = 0.0;
    for at in 0..steps.len() {
        let Step::Compute(n) = steps[at] else { continue };
        let node = &problem.nodes[n.index()];
        let mut live: Vec<ValueId> = problem.inputs.clone();
        for step in &steps[..at] {
            match step {
                Step::Free(v) => live.retain(|w| w != v),
                Step::Compute(NodeId(m)) => {
                    let earlier = &problem.nodes[*m as usize];
                    live.retain(|w| !earlier.consumes.contains(w) && !earlier.outputs.contains(w));
                    live.extend(&earlier.outputs);
                }
                Step::Out(..) | Step::In(..) | Step::Discard(..) => panic!("a plan without stores"),
            }
        }
        let mut used = problem.fixed_bytes.0 + node.workspace_bytes.0;
        used += live.iter().filter(|v| !node.consumes.contains(v)).map(bytes).sum::<u64>();
        used += node.outputs.iter().map(bytes).sum::<u64>();
        let frees: Vec<&Step> = steps[at + 1..].iter().take_while(|s| matches!(s, Step::Free(_))).collect();
        let mut taken: Vec<ValueId> = Vec::new();
        for (i, o) in &node.reuse {
            let dies = frees.contains(&&Step::Free(*i)) && !node.consumes.contains(i);
            let fits = bytes(o) <= bytes(i) && !live.contains(o);
            if dies && fits && !taken.contains(i) && !taken.contains(o) {
                taken.extend([*i, *o]);
                used -= bytes(o);
            }
        }
        peak = peak.max(used);
        cost += node.cost;
    }
    (peak, cost)
}

/// Says that a test cannot run here, and why. Written past the harness, which hides what passing tests print, in the
/// form that `cargo xtask test` counts.
pub(crate) fn skip(test: &str, why: &str) {
    writeln!(std::io::stdout().lock(), "SKIPPED {test}: {why}").expect("the harness reads its output");
}

/// Why there is no [`planning_dir`].
pub(crate) const NO_INSTANCES: &str = "no planning instances are here; set REMAT_PLANNING_DIR";

/// The folder of the public instances with their checker, where it is present.
pub(crate) fn planning_dir() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/planning");
    let dir = std::env::var_os("REMAT_PLANNING_DIR").map_or(beside, PathBuf::from);
    dir.join("check_plan.py").exists().then_some(dir)
}
