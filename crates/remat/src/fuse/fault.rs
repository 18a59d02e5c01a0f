//! What can be wrong with a fused step: faults that name ids, and the sentence for each.

use crate::graph::{Names, Tell, tells};
use crate::ids::{NodeId, ValueId};
use std::fmt;

/// Something of a step that somebody outside of the graph asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The role `loss`.
    Loss,
    /// The role `accuracy`.
    Accuracy,
    /// The role `prediction`.
    Prediction,
    /// The role `gradient_norm`.
    GradientNorm,
    /// A parameter in the role `gradients`, by its place.
    Parameter(usize),
    /// A gradient in the role `gradients`, by its place.
    Gradient(usize),
    /// An output of the graph, by its place.
    Output(usize),
    /// What is in the place of this state after the step.
    NewState(ValueId),
}

/// One way in which a fused step does not compute what the step before computed. Ids are those of the fused step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The sentences below say what the variants and their fields mean.
pub enum FusionFault {
    OtherSources,
    NewValue { node: NodeId, value: ValueId },
    Other { asked: Asked, value: Option<ValueId> },
    OtherOptimizer,
}

tells!(FusionFault);

impl Tell for FusionFault {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        match *self {
            FusionFault::OtherSources => f.write_str("the sources are not those of the step before"),
            FusionFault::NewValue { node, value } => {
                write!(f, "{} makes {value}, which the step before does not compute", names.node(node))
            }
            FusionFault::Other { asked, value } => {
                match asked {
                    Asked::Loss => f.write_str("the loss")?,
                    Asked::Accuracy => f.write_str("the accuracy")?,
                    Asked::Prediction => f.write_str("the prediction")?,
                    Asked::GradientNorm => f.write_str("the norm of the gradients")?,
                    Asked::Parameter(position) => write!(f, "trained parameter {position}")?,
                    Asked::Gradient(position) => write!(f, "gradient {position}")?,
                    Asked::Output(position) => write!(f, "output {position}")?,
                    Asked::NewState(state) => write!(f, "the new {}", names.value(state))?,
                }
                match value {
                    None => f.write_str(" is missing"),
                    Some(value) => {
                        write!(f, " is {}, which is another value than before", names.value(value))
                    }
                }
            }
            FusionFault::OtherOptimizer => f.write_str("the optimizer is not that of the step before"),
        }
    }
}
