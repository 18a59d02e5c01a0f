//! Layouts with one thing wrong, and schedules that do not belong to their layout.

use super::{Artefact, Kind, Mutant, Specimen, lines, moves, mutant, position};
use crate::ids::{Id, IdVec, NodeId, ValueId};
use crate::layout::{Layout, check};
use crate::rewrite::{Schedule, Step};
use crate::testing::Choices;

/// A layout with what it is for.
#[derive(Clone, PartialEq, Debug)]
pub struct Laid {
    /// What is laid out.
    pub schedule: Schedule,
    /// Where it lies.
    pub layout: Layout,
    /// Sources that lay somewhere before.
    pub placed: Vec<(ValueId, u64)>,
}

/// All kinds of wrong layouts.
pub const LAYOUTS: &[Kind<Laid>] = &[
    Kind { name: "no place", make: |of, c| value(of, c, |l, v, _| l.layout.offset[v] = None) },
    Kind {
        name: "wraps around",
        make: |of, c| value(of, c, |l, v, _| l.layout.offset[v] = Some(u64::MAX - 63)),
    },
    Kind {
        name: "underflow",
        make: |of, c| value(of, c, |l, v, _| shift(&mut l.layout.offset[v], l.layout.arena.0.wrapping_neg())),
    },
    Kind {
        name: "outside",
        make: |of, c| value(of, c, |l, v, _| l.layout.offset[v] = Some(l.layout.arena.0)),
    },
    Kind { name: "not aligned", make: |of, c| value(of, c, |l, v, _| shift(&mut l.layout.offset[v], 4)) },
    Kind {
        name: "moved value",
        make: |of, c| {
            value(of, c, |l, v, c| {
                l.layout.offset[v] = Some(64 * c.below(l.layout.arena.0 as usize / 64) as u64);
            })
        },
    },
    Kind { name: "swapped values", make: |of, c| change(of, c, swapped) },
    Kind { name: "overlap", make: |of, c| change(of, c, overlap) },
    Kind { name: "state moved", make: |of, c| change(of, c, state_moved) },
    Kind { name: "state displaced", make: |of, c| change(of, c, state_displaced) },
    Kind { name: "view apart", make: |of, c| change(of, c, view_apart) },
    Kind { name: "no workspace", make: |of, c| workspace(of, c, |l, n, _| l.layout.workspace[n] = None) },
    Kind {
        name: "workspace outside",
        make: |of, c| workspace(of, c, |l, n, _| l.layout.workspace[n] = Some(l.layout.arena.0)),
    },
    Kind {
        name: "workspace wraps around",
        make: |of, c| workspace(of, c, |l, n, _| l.layout.workspace[n] = Some(u64::MAX - 63)),
    },
    Kind { name: "workspace on an operand", make: |of, c| workspace(of, c, on_an_operand) },
    Kind { name: "reuse not taken", make: |of, c| change(of, c, not_taken) },
    Kind { name: "reuse not allowed", make: |of, c| change(of, c, not_allowed) },
    Kind { name: "reuse twice", make: |of, c| change(of, c, twice) },
    Kind {
        name: "smaller arena",
        make: |of, c| {
            change(of, c, |l, _| {
                l.layout.arena.0 -= 64;
                Some(())
            })
        },
    },
    Kind {
        name: "larger arena",
        make: |of, c| {
            change(of, c, |l, _| {
                l.layout.arena.0 += 64;
                Some(())
            })
        },
    },
    Kind {
        name: "other bytes in use",
        make: |of, c| {
            change(of, c, |l, c| {
                shift_bytes(&mut l.layout.used.0, c);
                Some(())
            })
        },
    },
    Kind { name: "short table", make: |of, c| change(of, c, short_table) },
    Kind { name: "early free", make: |of, c| change(of, c, |l, c| moved_free(l, c, false)) },
    Kind { name: "late free", make: |of, c| change(of, c, |l, c| moved_free(l, c, true)) },
    Kind { name: "dropped free", make: |of, c| change(of, c, dropped_free) },
    Kind { name: "double free", make: |of, c| change(of, c, double_free) },
    Kind { name: "moved slot", make: |of, c| moves::slot(of, c, moves::slot_anywhere) },
    Kind { name: "slot outside", make: |of, c| moves::slot(of, c, moves::slot_outside) },
    Kind { name: "slot not aligned", make: |of, c| moves::slot(of, c, |l, s, _| l.layout.slots[s] += 64) },
    Kind {
        name: "slot wraps around",
        make: |of, c| moves::slot(of, c, |l, s, _| l.layout.slots[s] = u64::MAX - 4095),
    },
    Kind { name: "other size of a store", make: |of, c| change(of, c, moves::other_store_size) },
    Kind {
        name: "dropped copy in",
        make: |of, c| change(of, c, |l, c| moves::dropped(&mut l.schedule, c, moves::is_in)),
    },
    Kind {
        name: "lost discard",
        make: |of, c| change(of, c, |l, c| moves::dropped(&mut l.schedule, c, moves::is_discard)),
    },
    Kind { name: "moved copy", make: |of, c| change(of, c, |l, c| moves::moved(&mut l.schedule, c)) },
    Kind {
        name: "freed before the copy",
        make: |of, c| change(of, c, |l, c| moves::freed_before_copy(&mut l.schedule, c)),
    },
    Kind {
        name: "slot of another value",
        make: |of, c| change(of, c, |l, c| moves::slot_of_another(&mut l.schedule, c)),
    },
];

impl Artefact for Laid {
    const NAME: &'static str = "layout";
    const KINDS: &'static [Kind<Laid>] = LAYOUTS;

    fn is_caught(&self, _of: &Specimen) -> bool {
        !check(&self.schedule, &self.layout, &self.placed).is_empty()
    }

    fn is_right(&self, _of: &Specimen) -> bool {
        lines::is_right(self)
    }
}

fn right(of: &Specimen) -> Laid {
    let (schedule, layout) = (of.program.schedule().clone(), of.program.layout().clone());
    Laid { schedule, layout, placed: Vec::new() }
}

fn change<T: std::fmt::Debug>(
    of: &Specimen,
    choices: &mut Choices,
    edit: fn(&mut Laid, &mut Choices) -> Option<T>,
) -> Option<Mutant<Laid>> {
    let mut laid = right(of);
    let changed = edit(&mut laid, choices)?;
    if laid == right(of) {
        return None;
    }
    mutant(format!("{changed:?}"), laid)
}

/// A change of the place of a source or of something that a run makes, if it has any bytes.
fn value(
    of: &Specimen,
    choices: &mut Choices,
    edit: fn(&mut Laid, ValueId, &mut Choices),
) -> Option<Mutant<Laid>> {
    let mut laid = right(of);
    let graph = &laid.schedule.graph;
    let made = laid.schedule.runs().flat_map(|node| graph.nodes[node].outputs.clone());
    let mut values: Vec<ValueId> = graph.sources.iter().map(|source| source.value).chain(made).collect();
    values.retain(|&v| graph.values[v].ty.bytes() > 0);
    let value = values[position(&values, choices, |_, _| true)?];
    edit(&mut laid, value, choices);
    if laid == right(of) {
        return None;
    }
    mutant(value, laid)
}

fn workspace(
    of: &Specimen,
    choices: &mut Choices,
    edit: fn(&mut Laid, NodeId, &mut Choices),
) -> Option<Mutant<Laid>> {
    let mut laid = right(of);
    let nodes: Vec<NodeId> = laid.schedule.runs().collect();
    let node = nodes[position(&nodes, choices, |_, &n| laid.layout.workspace[n].is_some())?];
    edit(&mut laid, node, choices);
    mutant(node, laid)
}

fn shift(offset: &mut Option<u64>, by: u64) {
    *offset = offset.map(|offset| offset.wrapping_add(by));
}

fn shift_bytes(bytes: &mut u64, choices: &mut Choices) {
    *bytes = if choices.below(2) == 0 { *bytes - 64 } else { *bytes + 64 };
}

fn on_an_operand(l: &mut Laid, node: NodeId, choices: &mut Choices) {
    let of = &l.schedule.graph.nodes[node];
    let operands: Vec<ValueId> = of.inputs.iter().chain(&of.outputs).copied().collect();
    let has_bytes = |&v: &ValueId| l.schedule.graph.values[v].ty.bytes() > 0;
    if let Some(at) = position(&operands, choices, |_, v| has_bytes(v)) {
        l.layout.workspace[node] = l.layout.offset[operands[at]];
    }
}

fn a_run(l: &Laid, choices: &mut Choices, suits: impl Fn(NodeId) -> bool) -> Option<NodeId> {
    let runs: Vec<NodeId> = l.schedule.runs().collect();
    let is_view = |n: NodeId| l.schedule.graph.nodes[n].op.def().is_view();
    position(&runs, choices, |_, &n| !is_view(n) && suits(n)).map(|at| runs[at])
}

fn swapped(l: &mut Laid, choices: &mut Choices) -> Option<(ValueId, ValueId)> {
    let placed: Vec<ValueId> =
        l.schedule.graph.values.ids().filter(|&v| l.layout.offset[v].is_some()).collect();
    let (a, b) = (placed[choices.below(placed.len())], placed[choices.below(placed.len())]);
    let moved = l.layout.offset[a];
    l.layout.offset[a] = l.layout.offset[b];
    l.layout.offset[b] = moved;
    Some((a, b))
}

/// An output on an input that it may not overwrite, or on another output.
fn overlap(l: &mut Laid, choices: &mut Choices) -> Option<(NodeId, ValueId)> {
    let graph = &l.schedule.graph;
    let has_bytes = |v: &ValueId| graph.values[*v].ty.bytes() > 0;
    let others = |n: NodeId| -> Vec<ValueId> {
        let node = &graph.nodes[n];
        let output = node.outputs[0];
        let operands = node.inputs.iter().chain(&node.outputs[1..]).copied();
        operands.filter(has_bytes).filter(|&v| l.layout.offset[v] != l.layout.offset[output]).collect()
    };
    let id = a_run(l, choices, |n| has_bytes(&graph.nodes[n].outputs[0]) && !others(n).is_empty())?;
    let (output, list) = (graph.nodes[id].outputs[0], others(id));
    let on = list[choices.below(list.len())];
    l.layout.offset[output] = l.layout.offset[on];
    Some((id, on))
}

fn state_moved(l: &mut Laid, choices: &mut Choices) -> Option<ValueId> {
    let updates = l.schedule.graph.updates();
    let (_, new) = updates[position(&updates, choices, |_, pair| l.layout.offset[pair.1].is_some())?];
    shift(&mut l.layout.offset[new], 64);
    Some(new)
}

fn state_displaced(l: &mut Laid, choices: &mut Choices) -> Option<ValueId> {
    let sources = &l.schedule.graph.sources;
    let source = sources[position(sources, choices, |_, _| true)?].value;
    l.placed.push((source, l.layout.offset[source]? + 64));
    Some(source)
}

fn view_apart(l: &mut Laid, choices: &mut Choices) -> Option<ValueId> {
    let runs: Vec<NodeId> = l.schedule.runs().collect();
    let is_view = |n: NodeId| l.schedule.graph.nodes[n].op.def().is_view();
    let at = position(&runs, choices, |_, &n| is_view(n))?;
    let value = l.schedule.graph.nodes[runs[at]].outputs[0];
    shift(&mut l.layout.offset[value], 64);
    Some(value)
}

fn not_taken(l: &mut Laid, choices: &mut Choices) -> Option<NodeId> {
    let id = a_run(l, choices, |n| !l.layout.shared[n].is_empty())?;
    l.layout.shared[id].clear();
    Some(id)
}

fn not_allowed(l: &mut Laid, choices: &mut Choices) -> Option<(NodeId, (usize, usize))> {
    let id = a_run(l, choices, |_| true)?;
    let node = &l.schedule.graph.nodes[id];
    let pair = (choices.below(node.inputs.len() + 1), choices.below(node.outputs.len() + 1));
    l.layout.shared[id].push(pair);
    Some((id, pair))
}

fn twice(l: &mut Laid, choices: &mut Choices) -> Option<NodeId> {
    let id = a_run(l, choices, |n| !l.layout.shared[n].is_empty())?;
    let pair = l.layout.shared[id][0];
    l.layout.shared[id].push(pair);
    Some(id)
}

fn short_table(l: &mut Laid, choices: &mut Choices) -> Option<usize> {
    fn shorter<I: Id, T: Clone>(table: &IdVec<I, T>) -> IdVec<I, T> {
        table.iter().take(table.len() - 1).cloned().collect()
    }
    let which = choices.below(if l.layout.slots.is_empty() { 3 } else { 4 });
    match which {
        3 => l.layout.slots = shorter(&l.layout.slots),
        0 => l.layout.offset = shorter(&l.layout.offset),
        1 => l.layout.workspace = shorter(&l.layout.workspace),
        _ => l.layout.shared = shorter(&l.layout.shared),
    }
    Some(which)
}

fn a_free(l: &Laid, choices: &mut Choices) -> Option<usize> {
    let has_bytes = |v: ValueId| l.schedule.graph.values[v].ty.bytes() > 0;
    position(&l.schedule.steps, choices, |_, step| matches!(step, Step::Free(v) if has_bytes(*v)))
}

/// A free in front of the last run that reads the value, or behind later runs.
fn moved_free(l: &mut Laid, choices: &mut Choices, is_late: bool) -> Option<Step> {
    let at = a_free(l, choices)?;
    let steps = &l.schedule.steps;
    let Step::Free(value) = steps[at] else { return None };
    let reads =
        |step: &Step| matches!(step, Step::Run(n) if l.schedule.graph.nodes[*n].inputs.contains(&value));
    let to = match is_late {
        true => at + choices.below(steps.len() - at),
        false => steps[..at].iter().rposition(reads)?,
    };
    let step = l.schedule.steps.remove(at);
    l.schedule.steps.insert(to, step);
    Some(step)
}

fn dropped_free(l: &mut Laid, choices: &mut Choices) -> Option<Step> {
    let at = a_free(l, choices)?;
    Some(l.schedule.steps.remove(at))
}

fn double_free(l: &mut Laid, choices: &mut Choices) -> Option<Step> {
    let at = a_free(l, choices)?;
    l.schedule.steps.insert(at, l.schedule.steps[at]);
    Some(l.schedule.steps[at])
}
