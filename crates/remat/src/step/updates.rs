//! From gradients to updates, as nodes of the step's graph: sums over micro-batches, clipping, the optimizer.
//!
//! In: a differentiated step and an [`Optimizer`]. Out: the step with its optimizer phase. One graph serves every
//! micro-batch: `accumulate` adds to a sum that is state, and all but the last micro-batch leave parameters as they
//! are. So one plan, one layout and one arena hold for the whole run, and every promise with them.
//!
//! With clipping the norm of all gradients together is an output, too: the role `gradient_norm`.

use super::{Optimizer, Roles, TrainingStep};
use crate::error::Result;
use crate::graph::{Builder, FileLayout, Init, Kind, Phase};
use crate::ids::ValueId;
use crate::op::accumulate::Accumulate;
use crate::op::clip_factor::ClipFactor;
use crate::op::sum_squares::SumSquares;

/// Names of sums over micro-batches begin with this.
const ACCUMULATED: &str = "accumulated.";

/// Appends everything between a gradient and the new parameter.
pub(crate) fn append(step: TrainingStep, optimizer: &Optimizer) -> Result<TrainingStep> {
    let mut b = Builder::extend(step.graph, Phase::Optimizer);
    let mut ready: Vec<(ValueId, ValueId)> = step.roles.gradients.clone();
    if optimizer.micro_batches > 1 {
        for (parameter, gradient) in &mut ready {
            let sum = state(&mut b, *parameter, |name| format!("{ACCUMULATED}{name}"));
            *gradient = at_module(&mut b, *parameter, |b| b.add(Accumulate {}, &[sum, *gradient]))?;
        }
    }
    let (factor, gradient_norm) = match optimizer.clip_norm {
        Some(max_norm) if !ready.is_empty() => {
            let (factor, norm) = clip(&mut b, max_norm, &ready)?;
            (Some(factor), Some(norm))
        }
        _ => (None, None),
    };
    for (parameter, gradient) in ready {
        let mut inputs = vec![parameter, gradient];
        for kept in optimizer.state_names() {
            inputs.push(state(&mut b, parameter, |name| format!("optimizer.{name}.{kept}")));
        }
        inputs.extend(factor);
        at_module(&mut b, parameter, |b| b.add_all(optimizer.op(), &inputs))?;
    }
    let roles = Roles { gradient_norm, optimizer: Some(*optimizer), ..step.roles };
    Ok(TrainingStep { graph: b.finish(), roles })
}

/// The factor of all gradients, and their norm, which becomes an output.
fn clip(b: &mut Builder, max_norm: f64, gradients: &[(ValueId, ValueId)]) -> Result<(ValueId, ValueId)> {
    let mut squares = Vec::with_capacity(gradients.len());
    for &(parameter, gradient) in gradients {
        squares.push(at_module(b, parameter, |b| b.add(SumSquares {}, &[gradient]))?);
    }
    let outputs = b.at_scope("clip", |b| b.add_all(ClipFactor { max_norm }, &squares))?;
    b.output(outputs[1]);
    Ok((outputs[0], outputs[1]))
}

/// Optimizer state of a parameter, zero before the first step.
fn state(b: &mut Builder, parameter: ValueId, name: impl FnOnce(&str) -> String) -> ValueId {
    let path = name(&b.graph().value_name(parameter));
    let file_layout = b.graph().source(parameter).map_or(FileLayout::Same, |s| s.file_layout);
    let ty = b.ty(parameter).clone();
    b.source(&path, Kind::OptimizerState, ty, Init::Constant(0.0), file_layout)
}

/// Builds under the module of a parameter.
fn at_module<T>(b: &mut Builder, parameter: ValueId, build: impl FnOnce(&mut Builder) -> T) -> T {
    let name = b.graph().value_name(parameter);
    b.at_scope(name.rsplit_once('.').map_or(name.as_str(), |(module, _)| module), build)
}
