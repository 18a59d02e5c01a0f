//! How messages name nodes, values and stores.
//!
//! A fault holds ids, never names: thousands of faults about one node with a long name must not cost thousands of copies of
//! it. `Display` of a fault prints the bare ids; `with_names` of a fault and its problem adds the names, shortened and with
//! control characters escaped, so that a message is one line whatever a file contains.

use crate::ids::{NodeId, StoreId, ValueId};
use crate::short::Short;
use crate::spec::ProblemSpec;
use std::fmt;

/// Where the names come from, if they are at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a>(Option<&'a ProblemSpec>);

impl<'a> Names<'a> {
    pub(crate) const NONE: Names<'static> = Names(None);

    pub(crate) fn node(self, id: NodeId) -> Named<'a> {
        let node = self.0.and_then(|spec| spec.nodes.get(id.index()));
        Named { id: id.0, name: node.map(|node| node.name.as_str()) }
    }

    pub(crate) fn store(self, id: StoreId) -> Named<'a> {
        let store = self.0.and_then(|spec| spec.stores.get(id.index()));
        Named { id: id.0, name: store.map(|store| store.name.as_str()) }
    }

    pub(crate) fn value(self, id: ValueId) -> Named<'a> {
        let value = self.0.and_then(|spec| spec.values.get(id.index()));
        Named { id: id.0, name: value.map(|value| value.name.as_str()) }
    }
}

/// An id, with its name in parentheses where that is known.
pub(crate) struct Named<'a> {
    id: u32,
    name: Option<&'a str>,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            None => write!(f, "{}", self.id),
            Some(name) => write!(f, "{} ({})", self.id, Short(name)),
        }
    }
}

/// What can be told with or without names.
pub(crate) trait Tell {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result;
}

/// A fault together with the names of its problem.
pub(crate) struct Told<'a, T> {
    what: &'a T,
    names: Names<'a>,
}

impl<'a, T: Tell> Told<'a, T> {
    pub(crate) fn new(what: &'a T, spec: &'a ProblemSpec) -> Told<'a, T> {
        Told { what, names: Names(Some(spec)) }
    }
}

impl<T: Tell> fmt::Display for Told<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.tell(f, self.names)
    }
}

/// `Display` with bare ids and `with_names` for a type that implements [`Tell`].
macro_rules! tells {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::names::Tell::tell(self, f, $crate::names::Names::NONE)
            }
        }

        impl $name {
            /// The sentence with the names of nodes and values beside their ids.
            pub fn with_names<'a>(
                &'a self,
                problem: &'a $crate::spec::ProblemSpec,
            ) -> impl std::fmt::Display + 'a {
                $crate::names::Told::new(self, problem)
            }
        }
    };
}
pub(crate) use tells;

/// A list of faults that stops growing: what comes after [`Capped::MOST`] is counted only.
#[derive(Debug)]
pub(crate) struct Capped<T> {
    list: Vec<T>,
    n_more: usize,
}

impl<T> Capped<T> {
    /// Nobody reads more.
    pub(crate) const MOST: usize = 1000;

    pub(crate) fn new() -> Capped<T> {
        Capped { list: Vec::new(), n_more: 0 }
    }

    pub(crate) fn push(&mut self, fault: T) {
        if self.list.len() < Capped::<T>::MOST {
            self.list.push(fault);
        } else {
            self.n_more += 1;
        }
    }

    /// The faults; where some were only counted, a last one says how many.
    pub(crate) fn finish(mut self, more: impl FnOnce(usize) -> T) -> Vec<T> {
        if self.n_more > 0 {
            self.list.push(more(self.n_more));
        }
        self.list
    }
}
