//! The network under construction: a graph builder that many handles share, and the first mistake made in it.

use super::Tensor;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Init, Kind, Type};
use crate::ids::ValueId;
use crate::op::Op;
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::Location;

/// A line of source code.
pub(super) type Line = &'static Location<'static>;

/// A network under construction. [`Model::build`](super::Model::build) makes one and hands it to your function.
///
/// It is used through a shared reference, so that handles into it can be copied and layers chain. After the first
/// mistake all calls do nothing, and the handles that they return refer to nothing.
#[derive(Debug)]
pub struct Net {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    builder: Builder,
    /// Names of all sources: two parameters of one name could not be told apart in a weight file.
    names: HashSet<String>,
    /// The call of the ready-made block that is being built: mistakes inside belong to that line.
    block: Option<Line>,
    mistake: Option<Mistake>,
}

/// What went wrong, where in the network, and at which line.
#[derive(Debug)]
pub(super) struct Mistake {
    error: Error,
    path: String,
    line: Line,
}

impl Mistake {
    /// Without the line, for models that the user did not write.
    pub(super) fn without_line(self) -> Error {
        self.error
    }

    /// With module, file and line.
    pub(super) fn with_line(self) -> Error {
        let location = format!("{}:{}", self.line.file(), self.line.line());
        let (place, message) = match self.error {
            Error::Type { op, scope, message } if scope.is_empty() => (op.to_string(), message),
            Error::Type { scope, message, .. } => (scope, message),
            other => (self.path, other.to_string()),
        };
        Error::Model { place, location, message }
    }
}

impl Net {
    pub(super) fn new(name: impl Into<String>) -> Net {
        let builder = Builder::new(name);
        let state = State { builder, names: HashSet::new(), block: None, mistake: None };
        Net { state: RefCell::new(state) }
    }

    /// Floats of the batch, filled before every step: images, features, or the target of a regression.
    #[track_caller]
    pub fn input(&self, name: impl AsRef<str>, shape: impl AsRef<[usize]>) -> Tensor<'_> {
        let shape = shape.as_ref();
        self.node(name.as_ref(), &[], |b, _| b.input("", shape))
    }

    /// Labels of the batch in `0..classes`. A negative label makes the loss ignore its element, as PyTorch's -100 does.
    #[track_caller]
    pub fn labels(&self, name: impl AsRef<str>, shape: impl AsRef<[usize]>, classes: usize) -> Tensor<'_> {
        let shape = shape.as_ref();
        self.node(name.as_ref(), &[], |b, _| b.labels("", shape, classes))
    }

    /// Token ids of the batch in `0..vocab`.
    #[track_caller]
    pub fn tokens(&self, name: impl AsRef<str>, shape: impl AsRef<[usize]>, vocab: usize) -> Tensor<'_> {
        let shape = shape.as_ref();
        self.node(name.as_ref(), &[], |b, _| b.indices("", shape, vocab))
    }

    /// Trained weights of your own: `nn.Parameter`.
    #[track_caller]
    pub fn parameter(&self, name: impl AsRef<str>, shape: impl AsRef<[usize]>, init: Init) -> Tensor<'_> {
        let shape = shape.as_ref();
        self.node(name.as_ref(), &[], |b, _| Ok(b.parameter("", Type::f32(shape)?, init)))
    }

    /// State that is saved but not trained: `register_buffer`. An update op of its own replaces it.
    #[track_caller]
    pub fn buffer(&self, name: impl AsRef<str>, shape: impl AsRef<[usize]>, init: Init) -> Tensor<'_> {
        let shape = shape.as_ref();
        self.node(name.as_ref(), &[], |b, _| Ok(b.buffer("", Type::f32(shape)?, init)))
    }

    /// Builds with `name` appended to the module path; names can hold dots, as in `layer1.0`.
    pub fn scope<R>(&self, name: impl AsRef<str>, build: impl FnOnce() -> R) -> R {
        self.state.borrow_mut().builder.enter(name.as_ref());
        let result = build();
        self.state.borrow_mut().builder.leave();
        result
    }

    /// As [`Net::scope`], for ready-made blocks: a mistake inside is reported at the line that called the block.
    #[track_caller]
    pub(super) fn block<R>(&self, name: impl AsRef<str>, build: impl FnOnce() -> R) -> R {
        let line = Location::caller();
        let outer = self.state.borrow().block;
        self.state.borrow_mut().block = Some(outer.unwrap_or(line));
        let result = self.scope(name, build);
        self.state.borrow_mut().block = outer;
        result
    }

    /// Applies an op, one of ours or of your own, and returns its first output.
    #[track_caller]
    pub fn apply<'g>(&'g self, op: impl Into<Op>, inputs: &[Tensor<'g>]) -> Tensor<'g> {
        self.node("", inputs, |b, inputs| b.add(op, inputs))
    }

    /// Applies an op with `N` outputs and returns them all.
    #[track_caller]
    pub fn apply_all<'g, const N: usize>(
        &'g self,
        op: impl Into<Op>,
        inputs: &[Tensor<'g>],
    ) -> [Tensor<'g>; N] {
        let op = op.into();
        let made = self.build("", inputs, |b, inputs| {
            let name = op.name();
            let outputs = b.add_all(op, inputs)?;
            let n = outputs.len();
            outputs.try_into().map_err(|_| refusal(b, name, format!("has {n} outputs, not {N}")))
        });
        match made {
            Some(values) => <[ValueId; N]>::map(values, |value| Tensor::new(self, Some(value))),
            None => [Tensor::new(self, None); N],
        }
    }

    /// The stream of random numbers for the op that is applied next. Only random ops of your own need it.
    pub fn random_stream(&self) -> u64 {
        self.state.borrow().builder.random_stream()
    }

    /// Several tensors, one after the other along `axis`: `torch.cat`.
    #[track_caller]
    pub fn concat<'g>(&'g self, parts: &[Tensor<'g>], axis: usize) -> Tensor<'g> {
        self.apply(crate::op::concat::Concat { axis }, parts)
    }

    /// Adds nodes under the scope `name` and returns the handle of what they make.
    #[track_caller]
    pub(super) fn node<'g>(
        &'g self,
        name: &str,
        inputs: &[Tensor<'g>],
        build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId>,
    ) -> Tensor<'g> {
        Tensor::new(self, self.build(name, inputs, build))
    }

    /// Adds nodes under the scope `name`; `None` after a mistake, be it this one or an earlier one.
    #[track_caller]
    pub(super) fn build<R>(
        &self,
        name: &str,
        inputs: &[Tensor<'_>],
        build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<R>,
    ) -> Option<R> {
        let line = Location::caller();
        let mut state = self.state.borrow_mut();
        if state.mistake.is_some() {
            return None;
        }
        state.builder.enter(name);
        let n_sources = state.builder.graph().sources.len();
        let made = values_of(self, inputs, &state.builder)
            .and_then(|values| build(&mut state.builder, &values))
            .and_then(|made| state.check_names(n_sources).map(|()| made));
        let path = state.builder.path("");
        state.builder.leave();
        let line = state.block.unwrap_or(line);
        made.map_err(|error| state.mistake = Some(Mistake { error, path, line })).ok()
    }

    /// Reads the type of a value.
    pub(super) fn with_type<R>(&self, value: ValueId, read: impl FnOnce(&Type) -> R) -> R {
        read(self.state.borrow().builder.ty(value))
    }

    /// The graph as built, or the first mistake.
    pub(super) fn finish(self) -> std::result::Result<Graph, Mistake> {
        let state = self.state.into_inner();
        match state.mistake {
            None => Ok(state.builder.finish()),
            Some(mistake) => Err(mistake),
        }
    }
}

impl State {
    /// Fails when one of the sources from the position `first` on has a name that is taken.
    fn check_names(&mut self, first: usize) -> Result<()> {
        let graph = self.builder.graph();
        for source in &graph.sources[first..] {
            if !self.names.insert(source.name.clone()) {
                let what = if graph.values[source.value].kind == Kind::Input { "input" } else { "layer" };
                let message = format!("the name is taken; give this {what} another one");
                return Err(Error::Type { op: "source", scope: source.name.clone(), message });
            }
        }
        Ok(())
    }
}

/// The values behind handles, which must belong to `net`.
fn values_of(net: &Net, tensors: &[Tensor<'_>], b: &Builder) -> Result<Vec<ValueId>> {
    let value = |tensor: &Tensor<'_>| tensor.value().filter(|_| std::ptr::eq(tensor.net(), net));
    let values: Option<Vec<ValueId>> = tensors.iter().map(value).collect();
    values.ok_or_else(|| refusal(b, "network", "a tensor of another network is used here".to_owned()))
}

/// An error at the current module path.
pub(super) fn refusal(b: &Builder, op: &'static str, message: String) -> Error {
    Error::Type { op, scope: b.path(""), message }
}
