//! The table of losses that random models end in.

use super::{Growth, Layer};
use crate::error::Result;
use crate::graph::Init;
use crate::op::constant::Constant;
use crate::op::cross_entropy::CrossEntropy;
use crate::op::linear_cross_entropy::LinearCrossEntropy;
use crate::op::mse::Mse;

/// All kinds of losses.
pub const LOSSES: &[Layer] = &[
    Layer { name: "mse", grow: mse },
    Layer { name: "cross_entropy", grow: cross_entropy },
    Layer { name: "linear_cross_entropy", grow: linear_cross_entropy },
];

fn push(g: &mut Growth<'_>, loss: crate::ids::ValueId) -> Option<()> {
    g.losses.push(loss);
    Some(())
}

/// The distance to the batch, to a constant, or to another value of the model.
fn mse(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let shape = g.shape(x);
    let target = match g.choices.below(3) {
        0 => g.b.input("target", &shape)?,
        1 => g.b.add(Constant { value: 0.5, shape }, &[])?,
        _ => g.alike(x),
    };
    Ok(g.try_add(Mse {}, &[x, target]).and_then(|loss| push(g, loss)))
}

fn cross_entropy(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(logits) = g.any() else { return Ok(None) };
    let shape = g.shape(logits);
    let (classes, rows) = shape.split_last().expect("the pool has no scalars");
    let labels = g.b.labels("labels", rows, *classes)?;
    Ok(g.try_add(CrossEntropy {}, &[logits, labels]).and_then(|loss| push(g, loss)))
}

/// A classifier whose weights may be the table of an embedding.
fn linear_cross_entropy(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let shape = g.shape(x);
    let (width, rows) = shape.split_last().expect("the pool has no scalars");
    let classes = 1 + g.extent();
    let weight = g.parameter("table", &[classes, *width], Init::Normal(0.3))?;
    let labels = g.b.labels("labels", rows, classes)?;
    let operands: Vec<_> = [x, weight, labels].into_iter().chain(g.perhaps_bias(classes)?).collect();
    Ok(g.try_add(LinearCrossEntropy {}, &operands).and_then(|loss| push(g, loss)))
}
