//! A finished model: its forward graph and the roles of the tensors in it.

use super::net::Mistake;
use super::{Loss, Net};
use crate::error::{Error, Result};
use crate::graph::{Graph, Kind, Node};
use crate::ids::{NodeId, ValueId};
use std::collections::HashMap;
use std::fmt::Write as _;

/// A network and its loss, ready to be trained.
///
/// ```
/// use remat::nn::Model;
///
/// let model = Model::build("two layers", |g| {
///     let x = g.input("input", [64, 784]);
///     let labels = g.labels("labels", [64], 10);
///     x.linear("fc1", 256).relu().linear("fc2", 10).cross_entropy(labels)
/// })?;
/// assert_eq!(model.n_parameters(), 203_530);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    graph: Graph,
    roles: ModelRoles,
}

/// Which parts of a model's graph are what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelRoles {
    /// The number that training makes smaller: the graph's only output.
    pub loss: ValueId,
    /// The node that compares predictions with labels. It makes the loss, or the first part of it.
    pub compares: NodeId,
    /// Logits or predicted values, where they exist as a whole.
    pub prediction: Option<ValueId>,
    /// What predictions are compared with.
    pub labels: Option<ValueId>,
}

/// Bytes of all values of a forward graph together. Backward and optimizer add a small multiple, so below this limit
/// no later sum of sizes can overflow.
const MAX_TOTAL_BYTES: u64 = 1 << 56;

impl Model {
    /// The model that `build` describes. The first mistake in it is returned with its module and its line.
    ///
    /// The name tells one planning problem from another: let it contain what the model's sizes depend on.
    #[track_caller]
    pub fn build<F>(name: impl Into<String>, build: F) -> Result<Model>
    where
        F: for<'g> FnOnce(&'g Net) -> Loss<'g>,
    {
        Model::try_build(name, |g| Ok(build(g)))
    }

    /// As [`Model::build`], for a function that can fail for reasons of its own.
    #[track_caller]
    pub fn try_build<F>(name: impl Into<String>, build: F) -> Result<Model>
    where
        F: for<'g> FnOnce(&'g Net) -> Result<Loss<'g>>,
    {
        Model::assemble(name.into(), build, Mistake::with_line)
    }

    /// As [`Model::try_build`], without lines: lines of a model that the user did not write would not help.
    pub(crate) fn build_known<F>(name: String, build: F) -> Result<Model>
    where
        F: for<'g> FnOnce(&'g Net) -> Result<Loss<'g>>,
    {
        Model::assemble(name, build, Mistake::without_line)
    }

    #[track_caller]
    fn assemble<F>(name: String, build: F, explain: fn(Mistake) -> Error) -> Result<Model>
    where
        F: for<'g> FnOnce(&'g Net) -> Result<Loss<'g>>,
    {
        let net = Net::new(name);
        let roles = match build(&net) {
            Ok(loss) => Ok(loss.roles(&net)),
            Err(error) => Err(error),
        };
        // A mistake came before whatever the function made of it.
        let mut graph = net.finish().map_err(explain)?;
        let roles = roles?.expect("without a mistake the loss is part of the graph");
        graph.push_output(roles.loss);
        check_total(&graph)?;
        Ok(Model { graph, roles })
    }

    /// As given to [`Model::build`]; for a listed model, its options too.
    pub fn name(&self) -> &str {
        &self.graph.name
    }

    /// The forward graph. Its only output is the loss.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The forward graph by itself.
    pub fn into_graph(self) -> Graph {
        self.graph
    }

    /// Which parts of the graph are what.
    pub fn roles(&self) -> ModelRoles {
        self.roles
    }

    /// Total elements of all parameters.
    pub fn n_parameters(&self) -> usize {
        self.graph.n_parameters()
    }

    /// A table of all nodes with their modules, outputs and parameters, and their sum.
    ///
    /// ```
    /// # use remat::nn::Model;
    /// let model = Model::build("tiny", |g| {
    ///     g.input("x", [2, 3]).linear("fc", 4).relu().mse(g.input("y", [2, 4]))
    /// })?;
    /// assert_eq!(model.summary(), "\
    /// tiny: 16 parameters
    /// module  op      output    parameters
    /// fc      linear  f32[2,4]          16
    ///         relu    f32[2,4]           0
    ///         mse     f32[]              0
    /// ");
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn summary(&self) -> String {
        // A parameter is counted once, where it is read first.
        let mut parameters: HashMap<ValueId, usize> = HashMap::new();
        for source in &self.graph.sources {
            let value = &self.graph.values[source.value];
            if value.kind == Kind::Parameter {
                parameters.insert(source.value, value.ty.numel());
            }
        }
        let mut rows = vec![["module", "op", "output", "parameters"].map(str::to_owned)];
        // Updates of running statistics belong to the norm above them.
        let is_update = |node: &Node| node.outputs.iter().any(|&v| self.graph.values[v].kind.is_state());
        for node in self.graph.nodes.iter().filter(|node| !is_update(node)) {
            let n: usize = node.inputs.iter().filter_map(|input| parameters.remove(input)).sum();
            rows.push([node.scope.clone(), node.op.name().to_string(), self.output(node), n.to_string()]);
        }
        let mut text = format!("{}: {} parameters\n", self.name(), self.n_parameters());
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3].map(width);
        for [module, op, output, n] in &rows {
            let [a, b, c, d] = widths;
            let _ = writeln!(text, "{module:a$}  {op:b$}  {output:c$}  {n:>d$}");
        }
        text
    }

    /// The type of a node's first output.
    fn output(&self, node: &Node) -> String {
        node.outputs.first().map_or_else(String::new, |&value| self.graph.values[value].ty.to_string())
    }
}

/// Fails when the sizes of all values cannot be added up.
fn check_total(graph: &Graph) -> Result<()> {
    let total = graph.values.iter().fold(0u64, |sum, v| sum.saturating_add(v.ty.bytes()));
    match graph.values.iter().map(|v| &v.ty).max_by_key(|ty| ty.bytes()) {
        Some(largest) if total > MAX_TOTAL_BYTES => Err(Error::TooLarge { shape: largest.shape().to_vec() }),
        _ => Ok(()),
    }
}
