//! Building graphs in Rust: scopes, sources and ops, with errors instead of panics.

use super::{FileLayout, Graph, Init, Kind, Op, Phase, Type};
use crate::error::Result;
use crate::ids::ValueId;

/// Adds sources and nodes to a graph, naming them by the current module scope.
#[derive(Debug)]
pub struct Builder {
    graph: Graph,
    scope: Vec<String>,
    phase: Phase,
}

impl Builder {
    /// A builder of a new, empty graph.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder::extend(Graph::new(name), Phase::Forward)
    }

    /// A builder that appends nodes of `phase` to an existing graph.
    pub fn extend(graph: Graph, phase: Phase) -> Builder {
        Builder { graph, scope: Vec::new(), phase }
    }

    /// The graph as built so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    /// Runs `build` with `name` appended to the module path.
    pub fn scope<R>(&mut self, name: impl Into<String>, build: impl FnOnce(&mut Self) -> R) -> R {
        self.enter(name);
        let result = build(self);
        self.leave();
        result
    }

    /// Appends `name` to the module path until [`Builder::leave`].
    pub(crate) fn enter(&mut self, name: impl Into<String>) {
        self.scope.push(name.into());
    }

    /// Undoes the last [`Builder::enter`].
    pub(crate) fn leave(&mut self) {
        self.scope.pop();
    }

    /// Runs `build` with the module path replaced: backward nodes carry the scope of their forward node.
    pub fn at_scope<R>(&mut self, path: &str, build: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.scope, vec![path.to_owned()]);
        let result = build(self);
        self.scope = outer;
        result
    }

    /// The module path, with `name` appended unless it is empty.
    pub(crate) fn path(&self, name: &str) -> String {
        let mut parts: Vec<&str> = self.scope.iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
        if !name.is_empty() {
            parts.push(name);
        }
        parts.join(".")
    }

    /// A float tensor of the batch, filled by the host before every step.
    pub fn input(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        Ok(self.source(name, Kind::Input, Type::f32(shape)?, Init::Batch, FileLayout::Same))
    }

    /// Labels of the batch: in `0..limit`, or negative for elements that the loss ignores.
    pub fn labels(&mut self, name: &str, shape: &[usize], limit: usize) -> Result<ValueId> {
        Ok(self.source(name, Kind::Input, Type::i32(shape)?, Init::Labels(limit), FileLayout::Same))
    }

    /// Token ids of the batch in `0..limit`, filled by the host before every step.
    pub fn indices(&mut self, name: &str, shape: &[usize], limit: usize) -> Result<ValueId> {
        Ok(self.source(name, Kind::Input, Type::i32(shape)?, Init::Indices(limit), FileLayout::Same))
    }

    /// Trained weights, named under the current scope.
    pub fn parameter(&mut self, name: &str, ty: Type, init: Init) -> ValueId {
        self.source(name, Kind::Parameter, ty, init, FileLayout::Same)
    }

    /// Running statistics, named under the current scope.
    pub fn buffer(&mut self, name: &str, ty: Type, init: Init) -> ValueId {
        self.source(name, Kind::Buffer, ty, init, FileLayout::Same)
    }

    /// Any source, named under the current scope.
    pub fn source(
        &mut self,
        name: &str,
        kind: Kind,
        ty: Type,
        init: Init,
        file_layout: FileLayout,
    ) -> ValueId {
        let name = self.path(name);
        self.graph.push_source(name, kind, ty, init, file_layout)
    }

    /// The stream of random numbers for the op added next: its node id. Recomputes and gradients share it.
    pub fn random_stream(&self) -> u64 {
        self.graph.nodes.len() as u64
    }

    /// Adds an op and returns its first output.
    pub fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId> {
        Ok(self.add_all(op, inputs)?[0])
    }

    /// Adds an op and returns all its outputs.
    pub fn add_all(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let scope = self.path("");
        let node = self.graph.push_node(op.into(), inputs, self.phase, &scope)?;
        Ok(self.graph.nodes[node].outputs.clone())
    }

    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> &Type {
        &self.graph.values[value].ty
    }

    /// Names a value as something the host reads after the step.
    pub fn output(&mut self, value: ValueId) {
        self.graph.push_output(value);
    }
}
