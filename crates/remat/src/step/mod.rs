//! The training step: forward, backward and the optimizer's updates as one graph that knows what its values are for.
//!
//! In: a forward graph whose only output is a scalar loss, and an [`Optimizer`]. Out: a [`TrainingStep`]. Its [`Roles`]
//! travel with it through fusion, planning and execution, so that no later stage has to guess which output is the loss.

mod autodiff;
mod evaluation;

mod updates;

pub use crate::optimizer::{Optimizer, Rule};
pub use autodiff::{differentiate, training_step};
pub use evaluation::{ForwardPass, evaluation_pass, prediction_pass};

use crate::graph::{Graph, Storage};
use crate::ids::ValueId;
use std::collections::HashMap;

/// A whole training step.
#[derive(Clone, PartialEq, Debug)]
pub struct TrainingStep {
    /// Forward and backward nodes and, unless it was made by [`differentiate`], the optimizer's updates.
    pub graph: Graph,
    /// What its values are for.
    pub roles: Roles,
}

/// What the values of a step are for. Ids belong to the step's own graph; a plan's clones do not change them.
#[derive(Clone, PartialEq, Debug)]
pub struct Roles {
    /// The scalar loss.
    pub loss: ValueId,
    /// The share of right answers, where a classifier is evaluated.
    pub accuracy: Option<ValueId>,
    /// What the model predicts, where it is asked to.
    pub prediction: Option<ValueId>,
    /// The norm of all gradients together, where gradients are clipped.
    pub gradient_norm: Option<ValueId>,
    /// Each trained parameter with its gradient.
    pub gradients: Vec<(ValueId, ValueId)>,
    /// How gradients become updates; `None` for a step that updates nothing.
    pub optimizer: Option<Optimizer>,
}

impl Roles {
    /// The roles of a step of which only the loss is known.
    pub fn of_loss(loss: ValueId) -> Roles {
        Roles {
            loss,
            accuracy: None,
            prediction: None,
            gradient_norm: None,
            gradients: Vec::new(),
            optimizer: None,
        }
    }

    /// The places in the list of gradients that each storage has: a gradient may be a view, and that of several parameters.
    /// Where `graph` is a schedule's, a view may look at a clone; then the storage is that of the original.
    pub fn gradient_places(&self, graph: &Graph) -> HashMap<ValueId, Vec<usize>> {
        let storage = Storage::compute(graph);
        let mut places: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (place, &(_, gradient)) in self.gradients.iter().enumerate() {
            let root = storage.root[gradient];
            let original = match graph.values[root].producer {
                Some((node, position)) => {
                    graph.nodes[graph.nodes[node].origin.unwrap_or(node)].outputs[position]
                }
                None => root,
            };
            places.entry(original).or_default().push(place);
        }
        places
    }

    /// Batches whose mean gradient makes one update.
    pub fn micro_batches(&self) -> u64 {
        self.optimizer.map_or(1, |optimizer| optimizer.micro_batches.max(1))
    }

    /// The same roles after values were given other ids.
    pub fn renamed(&self, new: impl Fn(ValueId) -> ValueId) -> Roles {
        Roles {
            loss: new(self.loss),
            accuracy: self.accuracy.map(&new),
            prediction: self.prediction.map(&new),
            gradient_norm: self.gradient_norm.map(&new),
            gradients: self.gradients.iter().map(|&(p, g)| (new(p), new(g))).collect(),
            optimizer: self.optimizer,
        }
    }
}
