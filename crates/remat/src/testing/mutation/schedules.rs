//! Schedules with one thing wrong.

use super::attributes::{other_attributes, other_stream};
use super::{Artefact, Kind, Mutant, Specimen, moves, mutant, pairs, position, replay};
use crate::graph::{Init, Kind as ValueKind, Node};
use crate::ids::{Id, NodeId, ValueId};
use crate::op::Effect;
use crate::rewrite::{Schedule, Step, check};
use crate::testing::Choices;

/// All kinds of wrong schedules.
pub const SCHEDULES: &[Kind<Schedule>] = &[
    Kind { name: "dropped run", make: |of, c| change(of, c, |s, c| Some(s.steps.remove(run(s, c)?))) },
    Kind { name: "repeated run", make: |of, c| change(of, c, |s, c| insert(s, s.steps[run(s, c)?], c)) },
    Kind { name: "moved run", make: |of, c| change(of, c, |s, c| move_step(s, run(s, c)?, c)) },
    Kind { name: "swapped steps", make: |of, c| change(of, c, swap) },
    Kind { name: "early update", make: |of, c| change(of, c, early_update) },
    Kind { name: "second update", make: |of, c| change(of, c, second_update) },
    Kind { name: "dropped free", make: |of, c| change(of, c, |s, c| Some(s.steps.remove(free(s, c)?))) },
    Kind { name: "double free", make: |of, c| change(of, c, |s, c| insert(s, s.steps[free(s, c)?], c)) },
    Kind { name: "moved free", make: |of, c| change(of, c, |s, c| move_step(s, free(s, c)?, c)) },
    Kind { name: "early free", make: |of, c| change(of, c, early_free) },
    Kind { name: "freed state", make: |of, c| change(of, c, freed_state) },
    Kind { name: "lost output", make: |of, c| change(of, c, |s, _| push(s, Step::Free(s.graph.outputs[0]))) },
    Kind { name: "stale clone", make: |of, c| change(of, c, stale_clone) },
    Kind { name: "another input", make: |of, c| change(of, c, another_input) },
    Kind { name: "swapped inputs", make: |of, c| change(of, c, swapped_inputs) },
    Kind { name: "dropped input", make: |of, c| node(of, c, |s, n, _| s.graph.nodes[n].inputs.pop()) },
    Kind { name: "input beyond all", make: |of, c| change(of, c, input_beyond_all) },
    Kind {
        name: "lost output of a node",
        make: |of, c| node(of, c, |s, n, _| s.graph.nodes[n].outputs.pop()),
    },
    Kind { name: "another producer", make: |of, c| change(of, c, another_producer) },
    Kind { name: "another type", make: |of, c| change(of, c, another_type) },
    Kind { name: "another kind of value", make: |of, c| change(of, c, another_kind) },
    Kind { name: "another origin", make: |of, c| change(of, c, another_origin) },
    Kind { name: "no origin", make: |of, c| change(of, c, no_origin) },
    Kind {
        name: "another stream",
        make: |of, c| change(of, c, |s, c| another_op(s, c, |op| other_stream(op).into_iter().collect())),
    },
    Kind {
        name: "another attribute",
        make: |of, c| change(of, c, |s, c| another_op(s, c, other_attributes)),
    },
    Kind { name: "dropped result", make: |of, c| change(of, c, |s, _| s.graph.outputs.pop()) },
    Kind { name: "another result", make: |of, c| change(of, c, another_result) },
    Kind { name: "another source", make: |of, c| change(of, c, another_source) },
    Kind {
        name: "no such node",
        make: |of, c| change(of, c, |s, c| insert(s, Step::Run(NodeId::new(s.graph.nodes.len())), c)),
    },
    Kind {
        name: "no such value",
        make: |of, c| change(of, c, |s, c| insert(s, Step::Free(ValueId::new(s.graph.values.len())), c)),
    },
    Kind {
        name: "dropped copy out",
        make: |of, c| change(of, c, |s, c| moves::dropped(s, c, moves::is_out)),
    },
    Kind { name: "dropped copy in", make: |of, c| change(of, c, |s, c| moves::dropped(s, c, moves::is_in)) },
    Kind {
        name: "lost discard",
        make: |of, c| change(of, c, |s, c| moves::dropped(s, c, moves::is_discard)),
    },
    Kind {
        name: "second copy out",
        make: |of, c| change(of, c, |s, c| moves::repeated(s, c, moves::is_out)),
    },
    Kind { name: "second copy in", make: |of, c| change(of, c, |s, c| moves::repeated(s, c, moves::is_in)) },
    Kind {
        name: "second discard",
        make: |of, c| change(of, c, |s, c| moves::repeated(s, c, moves::is_discard)),
    },
    Kind { name: "moved copy", make: |of, c| change(of, c, moves::moved) },
    Kind { name: "read before arrival", make: |of, c| change(of, c, moves::read_before_arrival) },
    Kind { name: "freed before the copy", make: |of, c| change(of, c, moves::freed_before_copy) },
    Kind { name: "discarded before it is read", make: |of, c| change(of, c, moves::early_discard) },
    Kind { name: "another slot", make: |of, c| change(of, c, moves::another_slot) },
    Kind { name: "another store", make: |of, c| change(of, c, moves::another_store) },
    Kind { name: "slot of another value", make: |of, c| change(of, c, moves::slot_of_another) },
    Kind { name: "copy of another value", make: |of, c| change(of, c, moves::copy_of_another) },
    Kind { name: "stale buffer", make: |of, c| change(of, c, moves::stale_buffer) },
    Kind { name: "state not carried", make: |of, c| change(of, c, moves::not_carried) },
    Kind { name: "carried from another slot", make: |of, c| change(of, c, moves::carried_from_another) },
];

impl Artefact for Schedule {
    const NAME: &'static str = "schedule";
    const KINDS: &'static [Kind<Schedule>] = SCHEDULES;

    fn is_caught(&self, of: &Specimen) -> bool {
        !check(&of.prepared.step.graph, self).is_empty()
    }

    fn is_right(&self, of: &Specimen) -> bool {
        let original = &of.prepared.step.graph;
        let right = replay::results(original, of.program.schedule());
        right.is_some() && replay::results(original, self) == right
    }
}

type Change<T> = fn(&mut Schedule, &mut Choices) -> Option<T>;

fn change<T: std::fmt::Debug>(
    of: &Specimen,
    choices: &mut Choices,
    edit: Change<T>,
) -> Option<Mutant<Schedule>> {
    let mut schedule = of.program.schedule().clone();
    let changed = edit(&mut schedule, choices)?;
    if schedule == *of.program.schedule() {
        return None;
    }
    mutant(format!("{changed:?}"), schedule)
}

/// A change of a node that runs.
fn node<T: std::fmt::Debug>(
    of: &Specimen,
    choices: &mut Choices,
    edit: fn(&mut Schedule, NodeId, &mut Choices) -> Option<T>,
) -> Option<Mutant<Schedule>> {
    let mut schedule = of.program.schedule().clone();
    let id = node_that(&schedule, choices, |_, _| true)?;
    let changed = edit(&mut schedule, id, choices)?;
    mutant(format!("{id}: {changed:?}"), schedule)
}

fn node_that(s: &Schedule, choices: &mut Choices, suits: impl Fn(NodeId, &Node) -> bool) -> Option<NodeId> {
    let runs: Vec<NodeId> = s.runs().collect();
    position(&runs, choices, |_, &id| suits(id, &s.graph.nodes[id])).map(|at| runs[at])
}

fn run(s: &Schedule, choices: &mut Choices) -> Option<usize> {
    position(&s.steps, choices, |_, step| matches!(step, Step::Run(_)))
}

fn free(s: &Schedule, choices: &mut Choices) -> Option<usize> {
    position(&s.steps, choices, |_, step| matches!(step, Step::Free(_)))
}

fn push(s: &mut Schedule, step: Step) -> Option<Step> {
    s.steps.push(step);
    Some(step)
}

fn insert(s: &mut Schedule, step: Step, choices: &mut Choices) -> Option<Step> {
    s.steps.insert(choices.below(s.steps.len() + 1), step);
    Some(step)
}

fn move_step(s: &mut Schedule, at: usize, choices: &mut Choices) -> Option<Step> {
    let step = s.steps.remove(at);
    insert(s, step, choices)
}

fn swap(s: &mut Schedule, choices: &mut Choices) -> Option<usize> {
    let at = choices.below(pairs(s.steps.len())?);
    s.steps.swap(at, at + 1);
    Some(at)
}

fn reads(s: &Schedule, step: &Step, value: ValueId) -> bool {
    matches!(step, Step::Run(node) if s.graph.nodes[*node].inputs.contains(&value))
}

fn update(s: &Schedule, choices: &mut Choices) -> Option<usize> {
    let is_update = |node: NodeId| s.graph.nodes[node].op.def().effect() == Effect::Update;
    position(&s.steps, choices, |_, step| matches!(step, Step::Run(node) if is_update(*node)))
}

fn early_update(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let at = update(s, choices)?;
    let Step::Run(id) = s.steps[at] else { return None };
    let state = s.graph.nodes[id].inputs[0];
    let reader = position(&s.steps[..at], choices, |_, step| reads(s, step, state))?;
    let step = s.steps.remove(at);
    s.steps.insert(reader, step);
    Some(step)
}

/// A clone of an update, which reads and replaces the state once more.
fn second_update(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let at = update(s, choices)?;
    let Step::Run(id) = s.steps[at] else { return None };
    let mut clone = s.graph.nodes[id].clone();
    clone.origin = Some(id);
    let copy = NodeId::new(s.graph.nodes.len());
    for (place, output) in clone.outputs.iter_mut().enumerate() {
        let mut value = s.graph.values[*output].clone();
        value.producer = Some((copy, place));
        *output = s.graph.values.push(value);
    }
    s.graph.nodes.push(clone);
    s.steps.insert(at, Step::Run(copy));
    Some(s.steps[at])
}

/// A free in front of the last node that reads the value.
fn early_free(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let at = free(s, choices)?;
    let Step::Free(value) = s.steps[at] else { return None };
    let reader = s.steps[..at].iter().rposition(|step| reads(s, step, value))?;
    let step = s.steps.remove(at);
    s.steps.insert(reader, step);
    Some(step)
}

fn freed_state(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let is_state = |value: ValueId| s.graph.values[value].kind.is_state();
    let at = position(&s.graph.sources, choices, |_, source| is_state(source.value))?;
    let state = s.graph.sources[at].value;
    let new = s.graph.updates().into_iter().find(|pair| pair.0 == state).map_or(state, |pair| pair.1);
    push(s, Step::Free(new))
}

/// A reader of one copy reads another copy of the same value, which is dead or not there yet.
fn stale_clone(s: &mut Schedule, choices: &mut Choices) -> Option<(NodeId, ValueId)> {
    let copies = |value: ValueId| -> Vec<ValueId> {
        let is_copy = |&v: &ValueId| v != value && s.graph.values[v].producer.is_some();
        s.graph.values.ids().filter(is_copy).filter(|&v| s.original(v) == s.original(value)).collect()
    };
    let id = node_that(s, choices, |_, node| node.inputs.iter().any(|&v| !copies(v).is_empty()))?;
    let inputs = s.graph.nodes[id].inputs.clone();
    let at = position(&inputs, choices, |_, &v| !copies(v).is_empty())?;
    let others = copies(inputs[at]);
    let other = others[choices.below(others.len())];
    s.graph.nodes[id].inputs[at] = other;
    Some((id, other))
}

/// Any other value of the same type.
fn another_input(s: &mut Schedule, choices: &mut Choices) -> Option<(NodeId, ValueId)> {
    let id = node_that(s, choices, |_, node| !node.inputs.is_empty())?;
    let at = choices.below(s.graph.nodes[id].inputs.len());
    let input = s.graph.nodes[id].inputs[at];
    let values: Vec<ValueId> = s.graph.values.ids().collect();
    let is_alike = |&v: &ValueId| v != input && s.graph.values[v].ty == s.graph.values[input].ty;
    let other = values[position(&values, choices, |_, v| is_alike(v))?];
    s.graph.nodes[id].inputs[at] = other;
    Some((id, other))
}

fn swapped_inputs(s: &mut Schedule, choices: &mut Choices) -> Option<NodeId> {
    let id = node_that(s, choices, |_, node| node.inputs.len() > 1)?;
    s.graph.nodes[id].inputs.rotate_left(1);
    Some(id)
}

fn input_beyond_all(s: &mut Schedule, choices: &mut Choices) -> Option<NodeId> {
    let id = node_that(s, choices, |_, node| !node.inputs.is_empty())?;
    let at = choices.below(s.graph.nodes[id].inputs.len());
    s.graph.nodes[id].inputs[at] = ValueId::new(s.graph.values.len());
    Some(id)
}

/// An output of a node that runs.
fn output(s: &Schedule, choices: &mut Choices) -> Option<ValueId> {
    let id = node_that(s, choices, |_, node| !node.outputs.is_empty())?;
    let outputs = &s.graph.nodes[id].outputs;
    Some(outputs[choices.below(outputs.len())])
}

fn another_producer(s: &mut Schedule, choices: &mut Choices) -> Option<ValueId> {
    let value = output(s, choices)?;
    let (node, position) = s.graph.values[value].producer?;
    s.graph.values[value].producer = Some(match choices.below(2) {
        0 => (node, position + 1),
        _ => (NodeId::new(node.index() + 1), position),
    });
    Some(value)
}

fn another_type(s: &mut Schedule, choices: &mut Choices) -> Option<ValueId> {
    let value = output(s, choices)?;
    let shape = [s.graph.values[value].ty.shape(), &[2]].concat();
    s.graph.values[value].ty = crate::graph::Type::f32(&shape).ok()?;
    Some(value)
}

fn another_kind(s: &mut Schedule, choices: &mut Choices) -> Option<ValueId> {
    let value = output(s, choices)?;
    let is_state = s.graph.values[value].kind.is_state();
    s.graph.values[value].kind = if is_state { ValueKind::Activation } else { ValueKind::Parameter };
    Some(value)
}

fn another_origin(s: &mut Schedule, choices: &mut Choices) -> Option<NodeId> {
    let id = node_that(s, choices, |_, _| true)?;
    let other = NodeId::new(choices.below(s.graph.nodes.len() + 1));
    if s.origin(id) == other {
        return None;
    }
    s.graph.nodes[id].origin = Some(other);
    Some(id)
}

fn no_origin(s: &mut Schedule, choices: &mut Choices) -> Option<NodeId> {
    let id = node_that(s, choices, |_, node| node.origin.is_some())?;
    s.graph.nodes[id].origin = None;
    Some(id)
}

fn another_op(
    s: &mut Schedule,
    choices: &mut Choices,
    others: fn(&crate::op::Op) -> Vec<crate::op::Op>,
) -> Option<NodeId> {
    let id = node_that(s, choices, |_, node| !others(&node.op).is_empty())?;
    let list = others(&s.graph.nodes[id].op);
    s.graph.nodes[id].op = list[choices.below(list.len())].clone();
    Some(id)
}

fn another_result(s: &mut Schedule, choices: &mut Choices) -> Option<ValueId> {
    let other = output(s, choices)?;
    let right = s.graph.outputs[0];
    if s.original(other) == s.original(right) {
        return None;
    }
    s.graph.outputs[0] = other;
    Some(other)
}

fn another_source(s: &mut Schedule, choices: &mut Choices) -> Option<usize> {
    let at = position(&s.graph.sources, choices, |_, _| true)?;
    match choices.below(4) {
        0 => s.graph.sources[at].name.push('\''),
        1 => s.graph.sources[at].init = Init::Constant(0.125),
        2 => s.graph.sources[at].value = ValueId::new(s.graph.values.len()),
        _ => drop(s.graph.sources.remove(at)),
    }
    Some(at)
}
