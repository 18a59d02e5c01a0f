//! A model while it grows: values to build on, and the choices that decide what comes next.

use super::Choices;
use crate::error::Result;
use crate::graph::{Builder, Init, Type};
use crate::ids::ValueId;
use crate::op::Op;

/// Values of the pool have at most so many elements, so that a step takes milliseconds.
const MOST_ELEMENTS: usize = 6000;

/// Extents: small ones, odd ones, and now and then one beyond a block or a vector.
const EXTENTS: [usize; 16] = [2, 3, 4, 1, 5, 7, 8, 9, 2, 3, 4, 6, 16, 17, 33, 65];

/// A model that grows layer by layer.
#[derive(Debug)]
pub struct Growth<'a> {
    /// What it is built with.
    pub b: Builder,
    /// What decides.
    pub choices: &'a mut Choices,
    /// Float values that a layer may read.
    pub pool: Vec<ValueId>,
    /// Losses so far.
    pub losses: Vec<ValueId>,
    parameters: Vec<ValueId>,
}

impl<'a> Growth<'a> {
    /// Nothing yet.
    pub fn new(name: impl Into<String>, choices: &'a mut Choices) -> Growth<'a> {
        let (pool, losses, parameters) = (Vec::new(), Vec::new(), Vec::new());
        Growth { b: Builder::new(name), choices, pool, losses, parameters }
    }

    /// An extent of a tensor.
    pub fn extent(&mut self) -> usize {
        self.choices.one_of(&EXTENTS)
    }

    /// A small extent, for windows and heads.
    pub fn few(&mut self, most: usize) -> usize {
        1 + self.choices.below(most)
    }

    /// The extents of a value.
    pub fn shape(&self, value: ValueId) -> Vec<usize> {
        self.b.ty(value).shape().to_vec()
    }

    /// A value of the pool that suits; mostly a recent one, so that graphs are deep, with some long skips.
    pub fn pick(&mut self, suits: impl Fn(&Type) -> bool) -> Option<ValueId> {
        let suiting: Vec<ValueId> = self.pool.iter().copied().filter(|&v| suits(self.b.ty(v))).collect();
        let recent = suiting.len().saturating_sub(3);
        let from = if self.choices.once_in(3) { 0 } else { recent };
        (!suiting.is_empty()).then(|| suiting[from + self.choices.below(suiting.len() - from)])
    }

    /// Any value of the pool with at least one dimension.
    pub fn any(&mut self) -> Option<ValueId> {
        self.pick(|ty| ty.rank() > 0)
    }

    /// A value with the type of `x`, which may be `x` itself.
    pub fn alike(&mut self, x: ValueId) -> ValueId {
        let ty = self.b.ty(x).clone();
        self.pick(|other| *other == ty).unwrap_or(x)
    }

    /// Trained weights of this shape: new ones, or now and then those of another layer.
    pub fn parameter(&mut self, name: &str, shape: &[usize], init: Init) -> Result<ValueId> {
        let ty = Type::f32(shape)?;
        let known: Vec<ValueId> = self.parameters.iter().copied().filter(|&p| *self.b.ty(p) == ty).collect();
        if !known.is_empty() && self.choices.once_in(4) {
            return Ok(known[self.choices.below(known.len())]);
        }
        // A layer may have several weights.
        let name = format!("{name}{}", self.parameters.len());
        let parameter = self.b.parameter(&name, ty, init);
        self.parameters.push(parameter);
        Ok(parameter)
    }

    /// Weights that keep values about as large as they are, for sums over `terms` products.
    pub fn weight(&mut self, shape: &[usize], terms: usize) -> Result<ValueId> {
        self.parameter("weight", shape, Init::Uniform(1.0 / (terms.max(1) as f32).sqrt()))
    }

    /// A bias, half of the time.
    pub fn perhaps_bias(&mut self, width: usize) -> Result<Option<ValueId>> {
        let has_bias = self.choices.below(2) == 1;
        has_bias.then(|| self.parameter("bias", &[width], Init::Uniform(0.3))).transpose()
    }

    /// Adds an op; `None` where it does not take these inputs.
    pub fn try_add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Option<ValueId> {
        let op = op.into();
        let types: Vec<&Type> = inputs.iter().map(|&v| self.b.ty(v)).collect();
        let made = op.def().infer(&types).ok()?;
        let fits = made.iter().all(|ty| (1..=MOST_ELEMENTS).contains(&ty.numel()));
        if !fits {
            return None;
        }
        self.b.add(op, inputs).ok()
    }

    /// What was made joins the pool.
    pub fn keep(&mut self, value: ValueId) -> Option<()> {
        self.pool.push(value);
        Some(())
    }
}
