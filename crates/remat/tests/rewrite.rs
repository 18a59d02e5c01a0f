//! The checker of schedules against the schedules of real models, broken in one place. What the rewriter makes, and one case
//! for every kind of fault, are text cases in tests/corpus/.

#[path = "common/planned.rs"]
mod planned;

use remat::graph::Graph;
use remat::ids::{Id, NodeId, ValueId};
use remat::rewrite::{Schedule, Step, check};

/// Counts broken schedules, and names those that pass.
struct Attack<'a> {
    original: &'a Graph,
    right: &'a Schedule,
    n_mutants: usize,
    survivors: Vec<String>,
}

impl Attack<'_> {
    fn with(&mut self, what: impl std::fmt::Display, change: impl FnOnce(&mut Schedule)) {
        let mut broken = self.right.clone();
        change(&mut broken);
        self.n_mutants += 1;
        if check(self.original, &broken).is_empty() {
            self.survivors.push(what.to_string());
        }
    }
}

/// Drops, repeats and moves steps.
fn attack_steps(attack: &mut Attack<'_>) {
    let right = attack.right;
    for (at, &step) in right.steps.iter().enumerate() {
        attack.with(format!("step {at} twice: {step:?}"), |s| s.steps.insert(at, step));
        match step {
            Step::Run(_) => attack.with(format!("no step {at}: {step:?}"), |s| {
                s.steps.remove(at);
            }),
            Step::Free(value) => {
                let reader = right.steps[..at].iter().rposition(|earlier| match *earlier {
                    Step::Run(node) => right.graph.nodes[node].inputs.contains(&value),
                    Step::Free(_) => false,
                });
                if let Some(reader) = reader {
                    attack.with(format!("{value} freed before its last reader"), |s| {
                        let free = s.steps.remove(at);
                        s.steps.insert(reader, free);
                    });
                }
            }
        }
    }
}

/// Breaks what the rewriter writes about nodes: who reads which copy, and what a clone is.
fn attack_nodes(attack: &mut Attack<'_>) {
    let right = &attack.right.graph;
    let outside = ValueId::new(right.values.len());
    for id in attack.right.runs().collect::<Vec<NodeId>>() {
        let node = &right.nodes[id];
        for (i, &input) in node.inputs.iter().enumerate() {
            // The copy that was live once, or any other value.
            let stale = attack.right.original(input);
            for other in [stale, ValueId::new(0), outside] {
                if other != input {
                    attack.with(format!("{id} reads {other}"), |s| s.graph.nodes[id].inputs[i] = other);
                }
            }
        }
        attack.with(format!("{id} reads less"), |s| {
            if s.graph.nodes[id].inputs.pop().is_none() {
                s.graph.nodes[id].inputs.push(ValueId::new(0));
            }
        });
        attack.with(format!("{id} makes less"), |s| {
            s.graph.nodes[id].outputs.pop();
        });
        for (position, &output) in node.outputs.iter().enumerate() {
            attack.with(format!("{id} makes {outside}"), |s| s.graph.nodes[id].outputs[position] = outside);
            attack.with(format!("{output} has another producer"), |s| {
                s.graph.values[output].producer = Some((NodeId::new(0), position + 1));
            });
            attack.with(format!("{output} has another type"), |s| {
                s.graph.values[output].ty = "f32[3,1,4,1,5]".parse().expect("a type");
            });
        }
        if node.origin.is_some() {
            let other = NodeId::new(usize::from(attack.right.origin(id).index() == 0));
            attack.with(format!("{id} repeats {other}"), |s| s.graph.nodes[id].origin = Some(other));
            attack.with(format!("{id} repeats nothing"), |s| s.graph.nodes[id].origin = None);
        }
    }
    for (i, &output) in right.outputs.iter().enumerate() {
        attack.with(format!("no output {output}"), |s| {
            s.graph.outputs.remove(i);
        });
        attack
            .with(format!("output {output} is a source"), |s| s.graph.outputs[i] = s.graph.sources[0].value);
    }
}

#[test]
fn nothing_broken_passes() {
    for (prepared, program) in planned::programs() {
        let (original, right) = (&prepared.step.graph, program.schedule());
        assert_eq!(check(original, right), Vec::new());
        let mut attack = Attack { original, right, n_mutants: 0, survivors: Vec::new() };
        attack_steps(&mut attack);
        attack_nodes(&mut attack);
        println!("{}: {} broken schedules", original.name, attack.n_mutants);
        assert_eq!(attack.survivors, Vec::<String>::new(), "{}", original.name);
        assert!(attack.n_mutants > 1000);
    }
}
