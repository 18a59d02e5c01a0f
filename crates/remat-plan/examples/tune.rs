//! One number for the quality of a planner: the geometric mean of its overhead over generated training steps.
//!
//! `cargo run --release -p remat-plan --example tune -- [--planner best] [--effort 1] [--seeds 1] [--only NAME] [PROBLEM.json...]`
//!
//! The steps are residual networks, U-Nets, transformers and layered random graphs of several sizes, each at a tight and
//! a medium budget; problem files are added to them. Limits are in work, so two versions can be compared on a busy
//! machine; the seconds are of the processor, all threads together.

#![allow(clippy::disallowed_methods)] // Only a summary for people.

use remat_plan::{
    Bytes, Node, Phase, Problem, ProblemSpec, Request, Value, ValueId, memory_floor, simulate, solve,
};
use std::error::Error;

/// Shares of the way from the memory floor to the peak of keeping everything.
const TIGHTNESS: [f64; 2] = [0.08, 0.25];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut planner, mut effort, mut n_seeds, mut only) = ("best".to_string(), 1.0, 1, String::new());
    let mut problems = generated();
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--planner" => planner = next()?,
            "--effort" => effort = next()?.parse()?,
            "--seeds" => n_seeds = next()?.parse()?,
            "--only" => only = next()?,
            path => problems.push(Problem::from_json(&std::fs::read_to_string(path)?)?),
        }
    }
    problems.retain(|problem| problem.name.contains(&only));
    let (mut sum_of_logs, mut sum_of_gaps, mut count) = (0.0, 0.0, 0.0);
    println!("{:<24}{:>8}{:>8}{:>12}{:>10}", "problem", "nodes", "memory", "overhead %", "gap %");
    for problem in &problems {
        let order: Vec<_> = problem.node_ids().collect();
        let keep_all = simulate(problem, &remat_plan::free_early(problem, &order))?.peak.0 as f64;
        let floor = memory_floor(problem).bytes.0 as f64;
        for share in TIGHTNESS {
            for seed in 0..n_seeds {
                let budget = Bytes((floor + share * (keep_all - floor)) as u64);
                let request = Request { effort: Some(effort), seed, ..Request::new(budget) };
                let outcome = solve(problem, &planner, &request)?;
                print!("{:<24}{:>8}{share:>8}", problem.name, problem.nodes.len());
                let Some(plan) = outcome.plan() else {
                    println!("  no plan");
                    continue;
                };
                let overhead = plan.cost / problem.base_cost() - 1.0;
                let gap = plan.lower_bound.map_or(f64::NAN, |bound| plan.cost / bound - 1.0);
                println!("{:>12.4}{:>10.3}", 100.0 * overhead, 100.0 * gap);
                sum_of_logs += overhead.max(1e-6).ln();
                sum_of_gaps += gap;
                count += 1.0;
            }
        }
    }
    println!(
        "{planner}, effort {effort}: {count} plans, geometric mean of the overhead {:.4} %, mean gap {:.4} %",
        100.0 * f64::exp(sum_of_logs / count),
        100.0 * sum_of_gaps / count
    );
    Ok(())
}

/// The steps on which the search was tuned.
fn generated() -> Vec<Problem> {
    let mut problems = Vec::new();
    for (n_blocks, batch) in [(4, 8), (8, 16), (16, 8)] {
        problems.push(residual(n_blocks, batch).step(&format!("residual-{n_blocks}-{batch}")));
    }
    for n_levels in [3, 4, 6] {
        problems.push(u_net(n_levels).step(&format!("unet-{n_levels}")));
    }
    for (n_layers, ratio) in [(4, 1), (12, 4)] {
        problems.push(transformer(n_layers, ratio).step(&format!("transformer-{n_layers}-{ratio}")));
    }
    for seed in 0..4 {
        let n = 30 + 25 * seed as usize;
        problems.push(layered(seed, n).step(&format!("layered-{n}")));
    }
    problems
}

/// One operation of a forward pass, with one output of the same number.
struct Operation {
    inputs: Vec<usize>,
    bytes: u64,
    cost: f64,
    /// What its gradient reads beside the gradient of the output.
    reads_inputs: bool,
    reads_output: bool,
    has_weights: bool,
}

/// A forward pass from which a training step is made.
#[derive(Default)]
struct Forward {
    operations: Vec<Operation>,
}

impl Forward {
    fn add(&mut self, inputs: &[usize], bytes: u64, cost: f64) -> usize {
        self.operations.push(Operation {
            inputs: inputs.to_vec(),
            bytes,
            cost,
            reads_inputs: true,
            reads_output: false,
            has_weights: false,
        });
        self.operations.len() - 1
    }

    /// A product with weights: its cost depends on the work per byte.
    fn product(&mut self, input: usize, bytes: u64, intensity: f64) -> usize {
        let cost = (bytes + self.operations[input].bytes) as f64 * intensity;
        let id = self.add(&[input], bytes, cost);
        self.operations[id].has_weights = true;
        id
    }

    /// An operation that reads and writes every element once.
    fn map(&mut self, input: usize, reads_inputs: bool) -> usize {
        let bytes = self.operations[input].bytes;
        let id = self.add(&[input], bytes, 2.0 * bytes as f64);
        self.operations[id].reads_inputs = reads_inputs;
        self.operations[id].reads_output = !reads_inputs;
        id
    }

    fn sum(&mut self, a: usize, b: usize) -> usize {
        let bytes = self.operations[a].bytes;
        let id = self.add(&[a, b], bytes, 3.0 * bytes as f64);
        self.operations[id].reads_inputs = false;
        id
    }

    /// Forward, loss and backward: per operation one node for the gradients of its inputs, and one for the gradient of
    /// its weights. A value with several readers has one gradient from each.
    fn step(&self, name: &str) -> Problem {
        let mut spec = ProblemSpec {
            name: name.to_string(),
            cost_unit: "1".to_string(),
            fixed_bytes: Bytes(0),
            values: vec![],
            inputs: vec![],
            nodes: vec![],
            outputs: vec![],
            ..ProblemSpec::default()
        };
        let mut add = |name: String, phase, cost: f64, inputs: Vec<ValueId>, bytes: u64| {
            let value = ValueId::new(spec.values.len());
            spec.values.push(Value::new(name.clone(), Bytes(bytes)));
            spec.nodes.push(Node {
                op: "op".to_string(),
                name,
                phase,
                cost: cost.round(),
                workspace_bytes: Bytes(0),
                inputs,
                outputs: vec![value],
                recompute: true,
                consumes: vec![],
                reuse: vec![],
                module: None,
            });
            value
        };
        let mut values = Vec::new();
        for (i, operation) in self.operations.iter().enumerate() {
            let inputs = operation.inputs.iter().map(|&input| values[input]).collect();
            values.push(add(format!("f{i}"), Phase::Forward, operation.cost, inputs, operation.bytes));
        }
        let last = values[values.len() - 1];
        let loss = add("loss".to_string(), Phase::Forward, 1.0, vec![last], 4);
        let mut outputs = vec![loss];
        let mut gradients: Vec<Vec<ValueId>> = vec![Vec::new(); values.len()];
        gradients[values.len() - 1].push(loss);
        for (i, operation) in self.operations.iter().enumerate().rev() {
            let mut reads = gradients[i].clone();
            if operation.reads_inputs {
                reads.extend(operation.inputs.iter().map(|&input| values[input]));
            }
            if operation.reads_output {
                reads.push(values[i]);
            }
            if operation.has_weights {
                outputs.push(add(format!("w{i}"), Phase::Backward, operation.cost, reads.clone(), 64));
                // The gradient of the input needs the weights only.
                reads.retain(|&v| v.index() >= loss.index());
            }
            for &input in &operation.inputs {
                let bytes = self.operations[input].bytes;
                let name = format!("g{i}.{input}");
                gradients[input].push(add(name, Phase::Backward, operation.cost, reads.clone(), bytes));
            }
        }
        spec.outputs = outputs;
        Problem::new(spec).expect("the generator makes valid problems")
    }
}

/// Bottleneck blocks in four stages; each stage halves the size of the activations.
fn residual(n_blocks: usize, batch: u64) -> Forward {
    let mut net = Forward::default();
    let image = net.add(&[], batch << 14, 1.0);
    let mut x = net.product(image, batch << 16, 4.0);
    for block in 0..n_blocks {
        let bytes = (batch << 16) >> (4 * block / n_blocks);
        let mut y = x;
        for (size, intensity) in [(bytes / 4, 3.0), (bytes / 4, 20.0), (bytes, 3.0)] {
            let z = net.product(y, size, intensity);
            let z = net.map(z, true);
            y = net.map(z, false);
        }
        if net.operations[x].bytes != bytes {
            x = net.product(x, bytes, 3.0);
        }
        let sum = net.sum(y, x);
        x = net.map(sum, false);
    }
    net.product(x, 64, 2.0);
    net
}

/// Levels of two products on the way down and up, with a skip on each level.
fn u_net(n_levels: usize) -> Forward {
    let mut net = Forward::default();
    let mut x = net.add(&[], 1 << 18, 1.0);
    let mut skips = Vec::new();
    let level = |net: &mut Forward, mut x: usize, bytes: u64, intensity: f64| {
        for _ in 0..2 {
            x = net.product(x, bytes, intensity);
            x = net.map(x, true);
            x = net.map(x, false);
        }
        x
    };
    for depth in 0..n_levels {
        x = level(&mut net, x, (1 << 20) >> depth, 10.0);
        skips.push(x);
        x = net.add(&[x], (1 << 18) >> depth, (1 << 19 >> depth) as f64);
    }
    for (depth, skip) in skips.into_iter().enumerate().rev() {
        let up = net.add(&[x], (1 << 20) >> depth, (1 << 20 >> depth) as f64);
        let both = net.add(&[up, skip], (2 << 20) >> depth, (4 << 20 >> depth) as f64);
        net.operations[both].reads_inputs = false;
        x = level(&mut net, both, (1 << 20) >> depth, 10.0);
    }
    net.product(x, 64, 2.0);
    net
}

/// Attention and a perceptron of `ratio` times the width in every layer.
fn transformer(n_layers: usize, ratio: u64) -> Forward {
    let mut net = Forward::default();
    let bytes = 1 << 20;
    let mut x = net.add(&[], bytes, bytes as f64);
    for _ in 0..n_layers {
        let normal = net.map(x, true);
        let packed = net.product(normal, 3 * bytes, 20.0);
        let mixed = net.add(&[packed], bytes, 30.0 * bytes as f64);
        let projected = net.product(mixed, bytes, 20.0);
        x = net.sum(projected, x);
        let normal = net.map(x, true);
        let wide = net.product(normal, ratio * bytes, 20.0);
        let bent = net.map(wide, true);
        let narrow = net.product(bent, bytes, 20.0);
        x = net.sum(narrow, x);
    }
    net.product(x, 64, 2.0);
    net
}

/// Random layers that read one or two of the last few values, with sizes and costs over two orders of magnitude.
fn layered(seed: u64, n: usize) -> Forward {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = move |n: usize| {
        // Xorshift: good enough for test graphs.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let mut net = Forward::default();
    net.add(&[], 1 << 12, 1.0);
    while net.operations.len() < n {
        let known = net.operations.len();
        let mut inputs = vec![known - 1 - below(known.min(2))];
        if below(3) == 0 {
            let other = known - 1 - below(known.min(10));
            if !inputs.contains(&other) {
                inputs.push(other);
            }
        }
        let (bytes, cost) = (1 << (10 + below(7)), (1 << (4 + below(8))) as f64 + below(16) as f64);
        let id = net.add(&inputs, bytes, cost);
        net.operations[id].reads_inputs = below(3) > 0;
        net.operations[id].reads_output = below(2) == 0;
        net.operations[id].has_weights = below(2) == 0;
    }
    net
}
