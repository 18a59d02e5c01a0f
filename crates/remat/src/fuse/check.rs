//! Checks that a fused step computes what the step before computed. Shares no code with the rewrites.
//!
//! The argument: every value is an expression over the sources, made of ops with their attributes. Both steps are read into
//! one table of expressions in which equal ones have one number; an op that fusion puts in is read as what it stands for:
//!
//! * a fused node as its steps;
//! * `batch_norm` as `batch_stats` and `batch_norm_apply`, on both sides;
//! * `batch_norm_relu_grad` as the norm and the ReLU again, then `relu_grad` and `batch_norm_grad`;
//! * `linear_cross_entropy_with_grad` as the loss and its gradient;
//! * `relu_grad(dropout(r), dropout(dy))` as `relu_grad(r, dropout(dy))` where both drop the same elements and not all: a
//!   dropped element passes on zero either way, and a kept one has its sign.
//!
//! Then fusion was right if every value it kept is a value of the step before, and what anybody asks for (outputs, roles,
//! new state) is the same expression. That kernels of fused ops have the bits of what they stand for is the business of the
//! tests of ops. Time O(nodes + edges).

use super::FusionFault;
use super::fault::Asked;
use crate::graph::{Graph, Kind, Node};
use crate::ids::{IdVec, ValueId};
use crate::op::Op;
use crate::op::batch_norm::{BatchNorm, BatchNormGrad};
use crate::op::batch_norm_split::{BatchNormApply, BatchNormReluGrad, BatchStats};
use crate::op::dropout::Dropout;
use crate::op::fused::{Fused, Operand};
use crate::op::linear_cross_entropy::{
    LinearCrossEntropy, LinearCrossEntropyGrad, LinearCrossEntropyWithGrad,
};
use crate::op::relu::{Relu, ReluGrad};
use crate::step::TrainingStep;
use std::collections::{HashMap, HashSet};

/// Every fault of `after` as the fused form of `before`; both are verified graphs.
pub fn check(before: &TrainingStep, after: &TrainingStep) -> Vec<FusionFault> {
    let mut faults = Vec::new();
    if !same_sources(&before.graph, &after.graph) {
        // Sources are what expressions are made of.
        return vec![FusionFault::OtherSources];
    }
    let mut table = Expressions::default();
    let old = table.read(&before.graph);
    let new = table.read(&after.graph);
    check_values(&after.graph, &old, &new, &mut faults);

    let mut compare = |asked: Asked, a: Option<ValueId>, b: Option<ValueId>| {
        if a.map(|v| old[v]) != b.map(|v| new[v]) {
            faults.push(FusionFault::Other { asked, value: b });
        }
    };
    let (a, b) = (&before.roles, &after.roles);
    compare(Asked::Loss, Some(a.loss), Some(b.loss));
    compare(Asked::Accuracy, a.accuracy, b.accuracy);
    compare(Asked::Prediction, a.prediction, b.prediction);
    compare(Asked::GradientNorm, a.gradient_norm, b.gradient_norm);
    for position in 0..a.gradients.len().max(b.gradients.len()) {
        let (a, b) = (a.gradients.get(position), b.gradients.get(position));
        compare(Asked::Parameter(position), a.map(|pair| pair.0), b.map(|pair| pair.0));
        compare(Asked::Gradient(position), a.map(|pair| pair.1), b.map(|pair| pair.1));
    }
    let (a, b) = (&before.graph, &after.graph);
    for position in 0..a.outputs.len().max(b.outputs.len()) {
        compare(Asked::Output(position), a.outputs.get(position).copied(), b.outputs.get(position).copied());
    }
    let (old_state, new_state) = (final_state(a), final_state(b));
    for (x, y) in a.sources.iter().zip(&b.sources) {
        let (x, y) = (old_state.get(&x.value).copied(), (y.value, new_state.get(&y.value).copied()));
        compare(Asked::NewState(y.0), x, y.1);
    }
    if before.roles.optimizer != after.roles.optimizer {
        faults.push(FusionFault::OtherOptimizer);
    }
    faults
}

/// Whether the sources are the same, one after the other; their ids may differ.
fn same_sources(a: &Graph, b: &Graph) -> bool {
    a.sources.len() == b.sources.len()
        && a.sources.iter().zip(&b.sources).all(|(x, y)| {
            let ((ty, kind), (other_ty, other_kind)) = (typed(a, x.value), typed(b, y.value));
            (&x.name, x.init, x.file_layout, ty, kind)
                == (&y.name, y.init, y.file_layout, other_ty, other_kind)
        })
}

fn typed(graph: &Graph, value: ValueId) -> (&crate::graph::Type, Kind) {
    (&graph.values[value].ty, graph.values[value].kind)
}

/// What is in the place of each state after the step.
fn final_state(graph: &Graph) -> HashMap<ValueId, ValueId> {
    let replaced: HashMap<ValueId, ValueId> = graph.updates().into_iter().collect();
    let states = graph.sources.iter().map(|s| s.value).filter(|&v| graph.values[v].kind.is_state());
    states.map(|state| (state, replaced.get(&state).copied().unwrap_or(state))).collect()
}

/// Fusion takes values away and adds none. Where one is new, so is all that is made of it; the first is told.
fn check_values(
    graph: &Graph,
    old: &IdVec<ValueId, Expression>,
    new: &IdVec<ValueId, Expression>,
    faults: &mut Vec<FusionFault>,
) {
    let known: HashSet<Expression> = old.iter().copied().collect();
    for (node, made) in graph.nodes.enumerate() {
        if made.inputs.iter().all(|&v| known.contains(&new[v])) {
            let unknown = made.outputs.iter().filter(|&&v| !known.contains(&new[v]));
            faults.extend(unknown.map(|&value| FusionFault::NewValue { node, value }));
        }
    }
}

/// The number of an expression.
type Expression = u32;

/// What an expression is made of.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// A value that no node makes, by its place in the list of sources.
    Source(usize),
    /// An output of an op.
    Output { op: usize, inputs: Vec<Expression>, position: usize },
}

/// All expressions seen so far, each once.
#[derive(Default)]
struct Expressions {
    numbers: HashMap<Form, Expression>,
    forms: Vec<Form>,
    /// Ops seen so far, found by name and attributes.
    ops: Vec<Op>,
    op_numbers: HashMap<(&'static str, String), Vec<usize>>,
}

impl Expressions {
    /// The expression of every value of a verified graph.
    fn read(&mut self, graph: &Graph) -> IdVec<ValueId, Expression> {
        let unmade = Expression::MAX;
        let mut of = IdVec::<ValueId, Expression>::filled(graph.values.len(), unmade);
        for (position, source) in graph.sources.iter().enumerate() {
            of[source.value] = self.number(Form::Source(position));
        }
        for node in graph.nodes.iter() {
            let inputs: Vec<Expression> = node.inputs.iter().map(|&v| of[v]).collect();
            for (&value, made) in node.outputs.iter().zip(self.node(node, &inputs)) {
                of[value] = made;
            }
        }
        of
    }

    fn number(&mut self, form: Form) -> Expression {
        let next = Expression::try_from(self.forms.len()).expect("fewer than 2^32 expressions");
        match self.numbers.entry(form) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                self.forms.push(new.key().clone());
                *new.insert(next)
            }
        }
    }

    fn op_number(&mut self, op: &Op) -> usize {
        // Attributes find candidates quickly; equality decides.
        let alike = self.op_numbers.entry((op.name(), op.attributes().to_string())).or_default();
        if let Some(&known) = alike.iter().find(|&&known| self.ops[known] == *op) {
            return known;
        }
        alike.push(self.ops.len());
        self.ops.push(op.clone());
        self.ops.len() - 1
    }

    /// Outputs of a node, read as what it stands for.
    fn node(&mut self, node: &Node, x: &[Expression]) -> Vec<Expression> {
        if let Some(fused) = node.op.get::<Fused>() {
            return self.fused(fused, x).unwrap_or_else(|| self.plain(&node.op, x, node.outputs.len()));
        }
        if let (Some(norm), &[x, weight, bias]) = (node.op.get::<BatchNorm>(), x) {
            let stats = self.plain(&BatchStats {}.into(), &[x], 2);
            let apply = BatchNormApply { eps: norm.eps };
            return vec![self.one(apply, &[x, stats[0], stats[1], weight, bias]), stats[0], stats[1]];
        }
        if let (Some(grad), &[x, dz, weight, bias, mean, var]) = (node.op.get::<BatchNormReluGrad>(), x) {
            let y = self.one(BatchNormApply { eps: grad.eps }, &[x, mean, var, weight, bias]);
            let z = self.one(Relu {}, &[y]);
            let dy = self.relu_grad(z, dz);
            return self.plain(&BatchNormGrad { eps: grad.eps }.into(), &[x, dy, weight, mean, var], 3);
        }
        if let (true, Some((&dloss, inputs))) = (node.op.is::<LinearCrossEntropyWithGrad>(), x.split_last()) {
            let mut outputs = self.plain(&LinearCrossEntropy {}.into(), inputs, 2);
            let saved = [inputs, &[outputs[1], dloss]].concat();
            let n_gradients = node.outputs.len().saturating_sub(2);
            outputs.extend(self.plain(&LinearCrossEntropyGrad {}.into(), &saved, n_gradients));
            return outputs;
        }
        if let (true, &[y, dy]) = (node.op.is::<ReluGrad>(), x) {
            return vec![self.relu_grad(y, dy)];
        }
        self.plain(&node.op, x, node.outputs.len())
    }

    /// The result of the last step, or `None` for a program that leads nowhere.
    fn fused(&mut self, fused: &Fused, x: &[Expression]) -> Option<Vec<Expression>> {
        let mut made: Vec<Expression> = Vec::with_capacity(fused.steps.len());
        for step in &fused.steps {
            let operand = |operand: &Operand| match *operand {
                Operand::Input(i) => x.get(i).copied(),
                Operand::Step(step) => made.get(step).copied(),
            };
            let operands: Vec<Expression> = step.x.iter().map(operand).collect::<Option<_>>()?;
            let result = match operands[..] {
                [y, dy] if step.op.is::<ReluGrad>() => self.relu_grad(y, dy),
                _ => self.plain(&step.op, &operands, 1)[0],
            };
            made.push(result);
        }
        made.pop().map(|last| vec![last])
    }

    /// `relu_grad`, which reads the input of a dropout instead of its output where `dy` lacks the same elements.
    fn relu_grad(&mut self, y: Expression, dy: Expression) -> Expression {
        let y = match (self.dropped(y), self.dropped(dy)) {
            (Some((dropout, from)), Some((other, _))) if dropout == other && dropout.p < 1.0 => from,
            _ => y,
        };
        self.one(ReluGrad {}, &[y, dy])
    }

    /// If the expression is a dropout: which, and of what.
    fn dropped(&self, expression: Expression) -> Option<(Dropout, Expression)> {
        match self.forms.get(expression as usize)? {
            Form::Output { op, inputs, .. } => Some((*self.ops[*op].get::<Dropout>()?, *inputs.first()?)),
            Form::Source(_) => None,
        }
    }

    fn one(&mut self, op: impl Into<Op>, inputs: &[Expression]) -> Expression {
        self.plain(&op.into(), inputs, 1)[0]
    }

    fn plain(&mut self, op: &Op, inputs: &[Expression], n_outputs: usize) -> Vec<Expression> {
        let op = self.op_number(op);
        let form = |position| Form::Output { op, inputs: inputs.to_vec(), position };
        (0..n_outputs).map(|position| self.number(form(position))).collect()
    }
}
