//! Evaluation inside the memory of training.
//!
//! In: the forward graph of a model and a program that trains it. Out: an [`Evaluation`], which runs between two steps in
//! the training arena: parameters and statistics are read where training keeps them, and everything that evaluation
//! makes lies in the rest of the arena, which training does not need between steps. The layout's checker knows all
//! training state as live, so evaluation cannot touch it. When the values do not fit as they are, they are planned with
//! recomputation; when that does not fit either, the answer says so.
//!
//! Evaluation differs from the forward pass of training: nothing is dropped, and batch norms use the running statistics.

use super::data::check_source;
use super::{Batches, Session};
use crate::analysis::Storage;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Kind};
use crate::ids::{IdVec, ValueId};
use crate::layout::{Layout, assign_around};
use crate::op::accuracy::Accuracy;
use crate::op::attention::Attention;
use crate::op::batch_norm_inference::BatchNormInference;
use crate::op::{MicroBatch, Op, Run};
use crate::pipeline::Program;
use crate::rewrite::Schedule;
use crate::{profile, rewrite};
use remat_plan::{Bytes, Outcome, Request, solve};
use std::collections::HashMap;

/// The forward graph as evaluation runs it. Its first output is the loss; a second, where the model ends in a classifier,
/// is the accuracy. State of `training` that the model does not have (that of the optimizer) becomes a source that nobody
/// reads, so that everyone knows it is there.
pub fn evaluation_graph(forward: &Graph, training: &Graph) -> Result<Graph> {
    let mut b = Builder::new(format!("evaluation of {}", forward.name));
    let mut renamed = IdVec::<ValueId, Option<ValueId>>::filled(forward.values.len(), None);
    for source in &forward.sources {
        let value = &forward.values[source.value];
        let copy = b.source(&source.name, value.kind, value.ty.clone(), source.init, source.file_layout);
        renamed[source.value] = Some(copy);
    }
    for source in &training.sources {
        let value = &training.values[source.value];
        if value.kind.is_state() && !forward.sources.iter().any(|s| s.name == source.name) {
            b.source(&source.name, value.kind, value.ty.clone(), source.init, source.file_layout);
        }
    }
    // The running statistic that belongs to each statistic of a batch.
    let mut running = HashMap::new();
    for node in forward.nodes.iter().filter(|node| matches!(node.op, Op::RunningUpdate(_))) {
        running.insert(node.inputs[1], node.inputs[0]);
    }
    let mut accuracy = None;
    for node in forward.nodes.iter().filter(|node| !matches!(node.op, Op::RunningUpdate(_))) {
        let mut inputs: Vec<ValueId> = node
            .inputs
            .iter()
            .map(|&v| renamed[v].ok_or_else(|| missing(forward, v)))
            .collect::<Result<_>>()?;
        let op: Op = match &node.op {
            Op::Dropout(_) => {
                renamed[node.outputs[0]] = Some(inputs[0]);
                continue;
            }
            Op::BatchNorm(norm) => {
                for statistic in &node.outputs[1..] {
                    let kept = running.get(statistic).ok_or_else(|| missing(forward, *statistic))?;
                    inputs.extend(renamed[*kept]);
                }
                BatchNormInference { eps: norm.eps }.into()
            }
            Op::Attention(attention) => Attention { dropout: 0.0, ..*attention }.into(),
            other => other.clone(),
        };
        let is_classifier = matches!(op, Op::CrossEntropy(_));
        let outputs = b.at_scope(&node.scope, |b| b.add_all(op, &inputs))?;
        if is_classifier {
            accuracy = Some(b.at_scope(&node.scope, |b| b.add(Accuracy {}, &inputs))?);
        }
        for (&old, new) in node.outputs.iter().zip(outputs) {
            renamed[old] = Some(new);
        }
    }
    let loss = forward.outputs[0];
    b.output(renamed[loss].ok_or_else(|| missing(forward, loss))?);
    accuracy.into_iter().for_each(|value| b.output(value));
    let graph = b.finish();
    let faults = graph.verify();
    if faults.is_empty() { Ok(graph) } else { Err(Error::Bug { stage: "evaluation", faults }) }
}

fn missing(forward: &Graph, value: ValueId) -> Error {
    let fault = format!("evaluation has no {}", forward.value_name(value));
    Error::Bug { stage: "evaluation", faults: vec![fault] }
}

/// What held-out data gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    /// Mean loss over the batches.
    pub loss: f32,
    /// Mean share of right answers, for classifiers.
    pub accuracy: Option<f32>,
}

/// A compiled evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    schedule: Schedule,
    layout: Layout,
}

/// How often evaluation is planned again with less, when fragmentation pushed it out of the arena.
const MAX_ATTEMPTS: usize = 8;

impl Evaluation {
    /// Compiles the evaluation of a model into the arena of a training program; `None` when it does not fit there.
    pub fn fit(forward: &Graph, training: &Program) -> Result<Option<Evaluation>> {
        let graph = evaluation_graph(forward, &training.schedule.graph)?;
        let arena = training.peak();
        let placed = places(&graph, training)?;
        // Relative work is all the planner needs here.
        let work = graph.nodes.iter().map(|node| {
            let cost = node.op.def().cost(&graph.input_types(node), &graph.output_types(node));
            cost.flops as f64 + cost.bytes as f64
        });
        let problem = profile::problem(&graph, &work.collect())?;
        let mut budget = Bytes(u64::MAX);
        for attempt in 0..MAX_ATTEMPTS {
            let planner = if attempt == 0 { "save-all" } else { "best" };
            let request = Request { effort: Some(0.1), ..Request::new(budget) };
            let plan = match solve(&problem.problem, planner, &request)? {
                Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => plan,
                Outcome::Infeasible { .. } => return Ok(None),
            };
            let schedule = rewrite::apply(&graph, &problem, &plan)?;
            if plan.peak_bytes <= arena
                && let Some(layout) = assign_around(&schedule, &placed, arena)?
            {
                return Ok(Some(Evaluation { schedule, layout }));
            }
            // Fragmentation: every attempt asks for a little less than the last.
            budget = Bytes(arena.0.min(plan.peak_bytes.0 - plan.peak_bytes.0 / 64));
        }
        Ok(None)
    }

    /// The most memory of the arena that it uses, training state included.
    pub fn peak(&self) -> Bytes {
        self.layout.arena
    }

    /// Evaluates the first `n_batches` batches in the session's memory. The state of training does not change.
    pub fn run(&self, session: &mut Session, batches: &mut dyn Batches, n_batches: u64) -> Result<Score> {
        let graph = &self.schedule.graph;
        let executor = session.executor_mut();
        let (mut loss, mut accuracy) = (0.0, 0.0);
        let place = |value: ValueId| {
            let offset = self.layout.offset[value].expect("sources and outputs have a place");
            (offset, graph.values[value].ty.bytes())
        };
        for batch in 1..=n_batches {
            for source in graph.sources.iter().filter(|s| graph.values[s.value].kind == Kind::Input) {
                let (offset, bytes) = place(source.value);
                let bytes = executor.arena_mut().slice_mut(offset, bytes);
                batches.fill(batch, source, bytes)?;
                check_source(source, bytes)?;
            }
            let run = Run { seed: 0, step: batch, learning_rate: 0.0, micro: MicroBatch::ONLY };
            executor.run_other(&self.schedule, &self.layout, &run);
            let number = |value: ValueId| {
                let (offset, bytes) = place(value);
                f64::from(crate::exec::as_floats(executor.arena().slice(offset, bytes))[0])
            };
            loss += number(graph.outputs[0]);
            accuracy += graph.outputs.get(1).map_or(0.0, |&value| number(value));
        }
        let mean = |sum: f64| (sum / n_batches as f64) as f32;
        Ok(Score { loss: mean(loss), accuracy: graph.outputs.get(1).map(|_| mean(accuracy)) })
    }
}

/// Where the training program keeps the state that evaluation finds.
fn places(graph: &Graph, training: &Program) -> Result<Vec<(ValueId, u64)>> {
    let trained = &training.schedule.graph;
    let root = Storage::compute(trained).root;
    let mut placed = Vec::new();
    for source in graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state()) {
        let same = trained
            .sources
            .iter()
            .find(|s| s.name == source.name && trained.values[s.value].ty == graph.values[source.value].ty);
        let offset = same.and_then(|s| training.layout.offset[root[s.value]]);
        let fault = || format!("training has no {}", source.name);
        let offset = offset.ok_or_else(|| Error::Bug { stage: "evaluation", faults: vec![fault()] })?;
        placed.push((source.value, offset));
    }
    Ok(placed)
}
