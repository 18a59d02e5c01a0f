//! Fusion of real models: neither bits nor memory suffer, and its checker sees every wrong turn. What becomes one node and
//! what must not are text cases in tests/corpus/.

mod common;

use common::{MACHINE, N_STEPS, check_run, reference};
use remat::fuse::{self, fuse};
use remat::graph::Graph;
use remat::ids::{Id, NodeId, ValueId};
use remat::model::{self, Options};
use remat::op::fused::{Fused, Operand};
use remat::op::{self, Op};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Prepared, prepare_step};
use remat::step::{TrainingStep, training_step};

type Sizes = &'static [(&'static str, usize)];

const LANGUAGE: Sizes =
    &[("batch", 2), ("seq", 24), ("vocab", 101), ("dim", 32), ("layers", 2), ("heads", 4)];
const MODELS: [(&str, Sizes); 6] = [
    ("resnet18", &[("batch", 2), ("image", 32), ("classes", 10)]),
    ("resnet50", &[("batch", 2), ("image", 64), ("classes", 10)]),
    ("unet", &[("batch", 2), ("image", 32), ("width", 8)]),
    ("transformer", LANGUAGE),
    ("bert", LANGUAGE),
    ("gpt", LANGUAGE),
];

/// The training step of a model before and after fusion.
fn before_and_after(name: &str, sizes: Sizes) -> [TrainingStep; 2] {
    let options = sizes.iter().fold(Options::new(), |options, &(name, value)| options.with(name, value));
    let forward =
        model::find(name).expect("a known model").build(&options).expect("valid options").into_graph();
    let step = training_step(&forward, &Optimizer::adam(1e-3)).expect("a valid step");
    let fused = fuse(&step);
    assert_eq!(fused.graph.verify(), Vec::new(), "{name}");
    assert_eq!(fuse::check(&step, &fused), Vec::new(), "{name}");
    [step, fused]
}

#[test]
fn losses_gradients_and_state_keep_every_bit() {
    for (name, sizes) in MODELS {
        let steps = before_and_after(name, sizes);
        let oracles = steps.each_ref().map(|step| reference(step, 2));
        let [apart, fused] = oracles.each_ref().map(|oracle| &oracle.bits);
        assert_eq!(apart.losses, fused.losses, "{name}: the loss changed");
        assert_eq!(apart.state, fused.state, "{name}: a parameter or its state changed");
        for ((parameter, before), (_, after)) in
            steps[0].roles.gradients.iter().zip(&steps[1].roles.gradients)
        {
            for number in 1..=N_STEPS {
                let parameter = steps[0].graph.value_name(*parameter);
                let (before, after) =
                    (apart.gradients[&(number, *before)], fused.gradients[&(number, *after)]);
                assert_eq!(before, after, "{name}: the gradient of {parameter} changed in step {number}");
            }
        }
        let prepared =
            prepare_step(steps[1].clone(), Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step");
        check_run(&steps[1], &oracles[1], &prepared.keep_all, 1, name);
    }
}

#[test]
fn no_model_needs_more_memory_or_more_time() {
    for (name, sizes) in MODELS {
        let [apart, fused] = before_and_after(name, sizes)
            .map(|step| prepare_step(step, Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step"));
        let facts = |p: &Prepared| (p.keep_all.peak(), p.floor.bytes, p.problem.problem.base_cost());
        let (before, after) = (facts(&apart), facts(&fused));
        assert!(after.0 <= before.0, "{name}: the keep-all peak grew from {} to {}", before.0, after.0);
        assert!(after.1 <= before.1, "{name}: the floor grew from {} to {}", before.1, after.1);
        assert!(after.2 <= before.2, "{name}: the step takes {} s instead of {}", after.2, before.2);
    }
}

/// The same op with another number or flag in one of its attributes.
fn other_attributes(op: &Op) -> Vec<Op> {
    let attributes = op.attributes();
    let fields = attributes.as_object().into_iter().flatten();
    let changed = |value: &serde_json::Value| match value {
        serde_json::Value::Bool(flag) => Some(serde_json::json!(!flag)),
        serde_json::Value::Number(n) if n.is_u64() => n.as_u64().map(|n| serde_json::json!(n + 1)),
        serde_json::Value::Number(n) => n.as_f64().map(|x| serde_json::json!(x / 2.0 + 0.125)),
        _ => None,
    };
    fields
        .filter_map(|(name, value)| {
            let mut attributes = attributes.clone();
            attributes[name] = changed(value)?;
            op::read(op.name(), attributes).ok()
        })
        .collect()
}

/// Programs with another step, a step less, or an operand from elsewhere.
fn other_programs(program: &Fused) -> Vec<Fused> {
    let mut list = Vec::new();
    for (at, step) in program.steps.iter().enumerate() {
        for op in other_attributes(&step.op) {
            let mut other = program.clone();
            other.steps[at].op = op;
            list.push(other);
        }
        for i in 0..step.x.len() {
            let mut other = program.clone();
            other.steps[at].x[i] = match step.x[i] {
                Operand::Input(input) => Operand::Input(input + 1),
                Operand::Step(_) => Operand::Input(0),
            };
            list.push(other);
            let mut swapped = program.clone();
            swapped.steps[at].x.rotate_left(i);
            list.push(swapped);
        }
        if program.steps.len() > 1 {
            // Readers of the step read its first operand instead.
            let mut other = program.clone();
            let first = other.steps.remove(at).x[0];
            for operand in other.steps[at..].iter_mut().flat_map(|step| &mut step.x) {
                *operand = match *operand {
                    Operand::Step(step) if step == at => first,
                    Operand::Step(step) if step > at => Operand::Step(step - 1),
                    operand => operand,
                };
            }
            list.push(other);
        }
    }
    list.retain(|other| other != program);
    list
}

/// Graphs in which one node is another, or reads something else of the same type.
fn other_graphs(graph: &Graph, id: NodeId) -> Vec<Graph> {
    let node = &graph.nodes[id];
    let mut ops = other_attributes(&node.op);
    if let Some(program) = node.op.get::<Fused>() {
        ops.extend(other_programs(program).into_iter().map(Op::from));
    }
    let with_op = |op: Op| {
        let mut other = graph.clone();
        other.nodes[id].op = op;
        other
    };
    let mut list: Vec<Graph> = ops.into_iter().map(with_op).collect();
    for (i, &input) in node.inputs.iter().enumerate() {
        let is_alike = |v: &ValueId| *v != input && graph.values[*v].ty == graph.values[input].ty;
        let made_before = (0..node.outputs[0].index()).rev().map(ValueId::new);
        for other_input in made_before.filter(is_alike).take(2) {
            let mut other = graph.clone();
            other.nodes[id].inputs[i] = other_input;
            list.push(other);
        }
    }
    list
}

/// Swapped operands, other random streams, other numbers, missing steps: whatever the graph verifier lets pass, the checker
/// of fusion reports.
#[test]
fn no_wrong_fusion_passes() {
    for (name, sizes) in MODELS.iter().filter(|model| model.0 != "resnet50") {
        let [before, after] = before_and_after(name, sizes);
        let (mut n_mutants, mut survivors) = (0, Vec::new());
        for id in after.graph.nodes.ids() {
            for graph in other_graphs(&after.graph, id) {
                let line = graph.node_text(&graph.nodes[id]);
                let mutant = TrainingStep { graph, roles: after.roles.clone() };
                if mutant.graph.verify().is_empty() {
                    n_mutants += 1;
                    if fuse::check(&before, &mutant).is_empty() {
                        survivors.push(line);
                    }
                }
            }
        }
        println!("{name}: {n_mutants} wrong fusions");
        assert_eq!(survivors, Vec::<String>::new(), "{name}");
        assert!(n_mutants > 50, "{name}: only {n_mutants}");
    }
}
