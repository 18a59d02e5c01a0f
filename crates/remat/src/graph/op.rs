//! The contract of an op: what a graph knows about what its nodes compute.
//!
//! An op is a small plain struct of attributes with an [`OpDef`]: type rule, gradient, cost, kernel, slow twin and
//! examples. [`Op`] is a handle to any of them, so a graph holds ops of this crate and of its users alike. The ops that
//! come with the crate, and the list that names them, are in [`op`](crate::op).

use super::{Builder, ElementWise, Example, Io, NaiveIo, Type};
use crate::ids::ValueId;
use serde::Serialize;
use std::any::Any;
use std::sync::Arc;

/// What a node may do besides computing its outputs from its inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: it can run again at any time with the same result. Random ops are pure too, since their numbers are
    /// a function of seed, step and stream.
    Pure,
    /// It replaces persistent state and must run exactly once.
    Update,
}

/// Work of one run, for the analytic profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Multiplications and additions.
    pub flops: u64,
    /// Bytes read from and written to memory, each tensor once.
    pub bytes: u64,
}

impl Cost {
    /// Every input read once, every output written once, and `flops_per_element` for each element of the largest tensor.
    pub fn element_wise(x: &[&Type], y: &[&Type], flops_per_element: u64) -> Cost {
        let largest = x.iter().chain(y).map(|t| t.numel() as u64).max().unwrap_or(0);
        Cost { flops: flops_per_element.saturating_mul(largest), bytes: traffic(x, y) }
    }

    /// Every input read once, every output written once, and this many flops.
    pub fn with_flops(x: &[&Type], y: &[&Type], flops: u64) -> Cost {
        Cost { flops, bytes: traffic(x, y) }
    }

    /// Every input read once, every output written once, and as many multiply-adds as the product of `sizes`.
    pub fn of_products(x: &[&Type], y: &[&Type], sizes: &[usize]) -> Cost {
        let flops = sizes.iter().fold(2, |flops: u64, &size| flops.saturating_mul(size as u64));
        Cost { flops, bytes: traffic(x, y) }
    }
}

fn traffic(x: &[&Type], y: &[&Type]) -> u64 {
    x.iter().chain(y).fold(0, |sum: u64, t| sum.saturating_add(t.bytes()))
}

/// What [`OpDef::grad`] is given: the node to differentiate and what is wanted.
#[derive(Debug)]
pub struct GradArgs<'a> {
    /// The node's inputs.
    pub x: &'a [ValueId],
    /// The node's outputs.
    pub y: &'a [ValueId],
    /// The gradient of each output, or `None` where the loss does not depend on it.
    pub dy: &'a [Option<ValueId>],
    /// Which inputs need a gradient. Nodes for the others would be wasted work.
    pub wants: &'a [bool],
}

impl GradArgs<'_> {
    /// The gradient of the first output. The reverse walk only visits nodes with a gradient, and an op whose only
    /// differentiable output is the first can rely on it.
    pub fn dy0(&self) -> ValueId {
        self.dy[0].expect("a visited node has a gradient for its differentiable output")
    }
}

/// How the analytic profile learns what an op reaches on a machine: by running it alone on a few ordinary sizes.
#[derive(Clone, Debug)]
pub enum Calibration {
    /// Limited by arithmetic: one rate over these cases together.
    Arithmetic(Vec<Case>),
    /// Limited by memory: a rate for a working set inside the caches and one for a working set far beyond them. The
    /// function makes the case for so many rows and columns.
    Memory(fn(rows: usize, columns: usize) -> Case),
}

/// An op with the types of its inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The op with its attributes.
    pub op: Op,
    /// What it is given.
    pub inputs: Vec<Type>,
}

impl Case {
    /// A case whose inputs are float tensors.
    pub fn floats(op: impl Into<Op>, shapes: &[&[usize]]) -> Case {
        let input = |shape: &&[usize]| Type::f32(shape).expect("calibration uses small shapes");
        Case { op: op.into(), inputs: shapes.iter().map(input).collect() }
    }

    /// The same case with whole numbers as input `i`.
    pub fn with_labels(mut self, i: usize) -> Case {
        self.inputs[i] = Type::i32(self.inputs[i].shape()).expect("the shape is small already");
        self
    }
}

/// What evaluation runs in place of a node of the forward pass.
#[derive(Clone, PartialEq, Debug)]
pub enum InEvaluation {
    /// The same op.
    Same,
    /// Nothing: readers of its first output read its first input instead.
    PassThrough,
    /// Nothing: it only updates state, which evaluation leaves alone.
    Skip,
    /// Another op, which makes the first output.
    Instead {
        /// What runs.
        op: Op,
        /// Outputs of the original that are statistics of the batch. The running statistics that stand for them follow
        /// the original's inputs.
        statistics: &'static [usize],
    },
}

/// What a loss compares with the truth, so that the same model can predict.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// The op that makes the prediction from these inputs of the loss; `None` when the only one of them is it already.
    pub op: Option<Op>,
    /// Inputs of the loss.
    pub inputs: Vec<usize>,
    /// Which input holds the right classes, for a classifier.
    pub labels: Option<usize>,
}

/// The meaning of an op.
///
/// Implement it for a plain struct that derives `Clone`, `PartialEq`, `Debug` and `serde::Serialize`, and the op can be
/// put into any graph: it is planned, recomputed, checked and (with `remat::testing::check_op`) tested like those of
/// this crate.
pub trait OpDef: std::fmt::Debug + Send + Sync + 'static {
    /// As in the text form, the report and the documentation.
    fn name() -> &'static str
    where
        Self: Sized;

    /// A name for reports, where the attributes say more than the name: `batch_norm_apply+relu`.
    fn label(&self) -> Option<String> {
        None
    }

    /// The type rule: output types, or what is wrong with the inputs.
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String>;

    /// Adds backward nodes and returns the gradient of each input, `None` where it is not wanted or does not exist.
    /// The default returns `None` for all, which makes the op a constant to autodiff.
    fn grad(&self, _b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![None; args.x.len()])
    }

    /// Which outputs a gradient can flow into; the others (statistics, indices) are constants to autodiff.
    /// `None`: the op is not differentiable at all.
    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        None
    }

    /// Work of one run.
    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost;

    /// Bytes of scratch memory, by shape only.
    fn workspace(&self, _x: &[&Type], _y: &[&Type]) -> u64 {
        0
    }

    /// What it does besides computing.
    fn effect(&self) -> Effect {
        Effect::Pure
    }

    /// The output is the input's storage with another shape; nothing runs.
    fn is_view(&self) -> bool {
        false
    }

    /// Pairs (input, output) that may share storage when the input dies here. The kernel must then read through
    /// [`Io::src`] and write through [`Io::dst`].
    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// Pairs (input, output) of state that an update overwrites. The kernel must read through [`Io::src`] and write
    /// through [`Io::dst`].
    fn consumes(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// The op as something that can compute any part of its output, if it works element by element.
    fn element_wise(&self) -> Option<&dyn ElementWise> {
        None
    }

    /// What evaluation runs in its place.
    fn in_evaluation(&self) -> InEvaluation {
        InEvaluation::Same
    }

    /// For an op that keeps a running statistic: which input is the state and which the statistic of this batch.
    fn running_statistic(&self) -> Option<(usize, usize)> {
        None
    }

    /// For a loss with so many inputs: what it compares with the truth.
    fn prediction(&self, _n_inputs: usize) -> Option<Prediction> {
        None
    }

    /// The ops that it runs one after the other on what is in the nearest cache, with the types of their inputs.
    fn parts<'a>(&'a self, _x: &[&'a Type], _y: &[&'a Type]) -> Vec<(&'a Op, Vec<&'a Type>)> {
        Vec::new()
    }

    /// How its speed is measured; `None` for ops that are too rare to matter, which count as fast as the machine.
    fn calibration() -> Option<Calibration>
    where
        Self: Sized,
    {
        None
    }

    /// The kernel call.
    fn run(&self, io: &mut Io<'_>);

    /// The slow twin, straight from the definition in `f64`: an oracle for tests.
    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>>;

    /// Cases for the automatic tests: kernel against slow twin, gradient against finite differences.
    fn examples() -> Vec<Example>
    where
        Self: Sized;
}

/// What a handle needs of an op besides its meaning. Every [`OpDef`] that is plain data has it.
trait AnyOp: OpDef {
    fn name_of(&self) -> &'static str;
    fn attributes(&self) -> serde_json::Value;
    fn equals(&self, other: &dyn AnyOp) -> bool;
    fn as_any(&self) -> &dyn Any;
}

impl<T: OpDef + PartialEq + Serialize> AnyOp for T {
    fn name_of(&self) -> &'static str {
        T::name()
    }

    fn attributes(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("an op is plain data with string keys")
    }

    fn equals(&self, other: &dyn AnyOp) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Any op: a handle that is cheap to copy.
#[derive(Clone)]
pub struct Op(Arc<dyn AnyOp>);

impl<T: OpDef + PartialEq + Serialize> From<T> for Op {
    fn from(op: T) -> Op {
        Op(Arc::new(op))
    }
}

impl Op {
    /// As in the text form, the report and the documentation.
    pub fn name(&self) -> &'static str {
        self.0.name_of()
    }

    /// A name for reports that tells fused nodes apart: `batch_norm_apply+relu`.
    pub fn label(&self) -> String {
        self.0.label().unwrap_or_else(|| self.name().to_owned())
    }

    /// Its meaning.
    pub fn def(&self) -> &dyn OpDef {
        &*self.0
    }

    /// The attributes, if it is this kind of op.
    pub fn get<T: OpDef>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }

    /// Whether it is this kind of op.
    pub fn is<T: OpDef>(&self) -> bool {
        self.get::<T>().is_some()
    }

    /// The attributes as JSON.
    pub fn attributes(&self) -> serde_json::Value {
        self.0.attributes()
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.0.equals(&*other.0)
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
