//! Recomputed values against their first computation, while a run trains.
//!
//! A plan is right if computing a value again gives the bits that it had. Ops promise that; an op of one's own may not keep
//! it, and neither may a machine with bad memory. [`Verifier`] hashes every value that a pass makes more than once and
//! compares. It sees values as they are made, before anything can overwrite them, and needs eight bytes for each.

use crate::graph::Graph;
use crate::hash;
use crate::ids::{IdVec, NodeId};
use crate::pipeline::Program;
use std::collections::HashMap;
use std::fmt;

/// A value that was not the same when it was computed again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The training step, from 1.
    pub step: u64,
    /// The op.
    pub op: String,
    /// The module of its node.
    pub module: String,
    /// Which output of the op.
    pub output: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { step, op, module, output } = self;
        write!(f, "step {step}: `{op}` of module `{module}` gave other bits when it was computed again")?;
        if *output > 0 { write!(f, " (output {output})") } else { Ok(()) }
    }
}

/// Remembers the first computation of what is computed again.
#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    /// How often each node of the original graph runs in a pass; 0 for those that nothing repeats.
    n_runs: IdVec<NodeId, u32>,
    /// Hash and number of runs so far, by node and output.
    seen: HashMap<(NodeId, usize), (u64, u32)>,
    /// Values that were compared.
    pub(crate) n_compared: u64,
    /// The first node and output that differed.
    different: Option<(NodeId, usize)>,
}

impl Verifier {
    pub(crate) fn new(program: &Program) -> Verifier {
        let schedule = program.schedule();
        let mut n_runs = IdVec::filled(schedule.graph.nodes.len(), 0);
        schedule.runs().for_each(|node| n_runs[schedule.origin(node)] += 1);
        n_runs.enumerate_mut().for_each(|(_, n)| *n = if *n > 1 { *n } else { 0 });
        Verifier { n_runs, seen: HashMap::new(), n_compared: 0, different: None }
    }

    /// Sees a value as soon as it is made.
    pub(crate) fn see(&mut self, node: NodeId, output: usize, bytes: &[u8]) {
        let n_runs = self.n_runs[node];
        if n_runs == 0 {
            return;
        }
        let hash = hash::lanes(bytes);
        let (first, n_seen) = self.seen.entry((node, output)).or_insert((hash, 0));
        *n_seen += 1;
        if *n_seen > 1 {
            self.n_compared += 1;
        }
        if *first != hash {
            self.different.get_or_insert((node, output));
        }
        // The next pass has another batch.
        if *n_seen == n_runs {
            self.seen.remove(&(node, output));
        }
    }

    /// Forgets a step that did not end.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
        self.different = None;
    }

    /// What differed first since it was asked last.
    pub(crate) fn difference(&mut self, graph: &Graph, step: u64) -> Option<Difference> {
        let (node, output) = self.different.take()?;
        let of = &graph.nodes[node];
        Some(Difference { step, op: of.op.label(), module: of.scope.clone(), output })
    }
}
