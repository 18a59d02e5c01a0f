//! How sentences about a graph name its nodes and values.
//!
//! A fault holds ids, never names. `Display` prints the bare ids; `with_names` of a fault and its graph adds the names, with
//! control characters escaped, so that a sentence is one line whatever a module is called.

use super::Graph;
use crate::ids::{NodeId, ValueId};
use remat_plan::Shown;
use std::fmt;

/// Where the names come from, if they are at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a>(pub(crate) Option<&'a Graph>);

impl<'a> Names<'a> {
    pub(crate) fn node(self, id: NodeId) -> Named<NodeId> {
        let graph = self.0.filter(|graph| graph.nodes.get(id).is_some());
        Named { id, name: graph.map(|graph| graph.node_name(id)) }
    }

    pub(crate) fn value(self, id: ValueId) -> Named<ValueId> {
        let is_named = |graph: &&Graph| match graph.values.get(id).map(|value| value.producer) {
            None => false,
            Some(None) => graph.source(id).is_some(),
            Some(Some((node, _))) => graph.nodes.get(node).is_some(),
        };
        Named { id, name: self.0.filter(is_named).map(|graph| graph.value_name(id)) }
    }
}

/// An id, with its name in parentheses where that is known.
pub(crate) struct Named<I> {
    id: I,
    name: Option<String>,
}

impl<I: fmt::Display> fmt::Display for Named<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            None => write!(f, "{}", self.id),
            Some(name) => write!(f, "{} ({})", self.id, Shown(name)),
        }
    }
}

/// What can be told with or without names.
pub(crate) trait Tell {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result;
}

/// A fault together with the names of its graph.
pub(crate) struct Told<'a, T> {
    pub(crate) what: &'a T,
    pub(crate) graph: &'a Graph,
}

impl<T: Tell> fmt::Display for Told<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.tell(f, Names(Some(self.graph)))
    }
}

/// `Display` with bare ids and `with_names` for a type that implements [`Tell`].
macro_rules! tells {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::graph::Tell::tell(self, f, $crate::graph::Names(None))
            }
        }

        impl $name {
            /// The sentence with the names of nodes and values beside their ids.
            pub fn with_names<'a>(&'a self, graph: &'a $crate::graph::Graph) -> impl std::fmt::Display + 'a {
                $crate::graph::Told { what: self, graph }
            }
        }
    };
}
pub(crate) use tells;
