//! The problem with its stores in arrays: a copy back from a store is one more way to make a value.
//!
//! Beside the nodes of the problem there is a node `in` for each value that may move and each store that can hold it. It
//! makes the value and reads a *token* of no size, which the producer of the value makes along with it: so a value comes
//! back only after it existed. An update that overwrites the value overwrites its token as well. A node `rest` makes an
//! output that the next step carries at the very end, at no memory: it says that the output rests in a store.
//!
//! With these nodes a sequence of computes says what is kept, made again or moved, its memory is that of any sequence
//! ([`Flat`]), and every search over sequences applies. When copies take place is not part of it; [`timetable`] decides that.

mod cover;
mod peaks;
pub(crate) mod spans;
pub(crate) mod timetable;
mod uses;

use crate::ids::{StoreId, ValueId};
use crate::problem::Problem;
use crate::schedule::flat::{Flat, Lists, NONE};

/// What a node of the wider problem is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A node of the problem.
    Compute,
    /// A copy of a value from a store.
    In(u32, u32),
    /// The value rests in a store at the end.
    Rest(u32),
}

/// The problem in arrays with the nodes `in` and `rest` after its own.
pub(crate) struct Moving<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) flat: Flat,
    /// Nodes of the problem itself.
    pub(crate) n_nodes: usize,
    /// Values of the problem itself; the others are tokens.
    pub(crate) n_values: usize,
    pub(crate) n_stores: usize,
    kinds: Vec<Kind>,
    /// The node `in` of each value and store, or `NONE`.
    in_node: Vec<u32>,
    /// The node `rest` of each value, or `NONE`.
    pub(crate) rest_node: Vec<u32>,
    /// What carries each input into the next step, or `NONE`, and the other way round.
    pub(crate) carried_by: Vec<u32>,
    pub(crate) carries: Vec<u32>,
    /// What copies of each value to and from each store take.
    out_cost: Vec<f64>,
    back_cost: Vec<f64>,
}

/// Takes all memory away: nothing that the end of a step needs from a store has to fit in memory.
const OUTSIDE: i64 = i64::MIN / 4;

impl<'a> Moving<'a> {
    pub(crate) fn new(problem: &'a Problem) -> Moving<'a> {
        let mut flat = Flat::new(problem);
        let (n_nodes, n_values, n_stores) = (problem.nodes.len(), problem.values.len(), problem.stores.len());
        let holds = |v: usize, s: usize| {
            let capacity = problem.stores[s].capacity_bytes;
            capacity.is_none_or(|capacity| problem.values[v].bytes <= capacity)
        };
        let may_move = |v: usize| {
            problem.values[v].swap && problem.values[v].bytes.0 > 0 && (0..n_stores).any(|s| holds(v, s))
        };
        let mut token = vec![NONE; n_values];
        let mut n_tokens = 0;
        for v in (0..n_values).filter(|&v| may_move(v)) {
            token[v] = (n_values + n_tokens) as u32;
            n_tokens += 1;
        }
        let mut carried_by = vec![NONE; n_values];
        let mut carries = vec![NONE; n_values];
        for &(input, output) in &problem.carries {
            carried_by[input.index()] = output.0;
            carries[output.index()] = input.0;
        }

        let mut kinds = vec![Kind::Compute; n_nodes];
        let mut in_node = vec![NONE; n_values * n_stores];
        let mut rest_node = vec![NONE; n_values];
        for v in (0..n_values).filter(|&v| token[v] != NONE) {
            for s in (0..n_stores).filter(|&s| holds(v, s)) {
                in_node[v * n_stores + s] = kinds.len() as u32;
                kinds.push(Kind::In(v as u32, s as u32));
            }
            let partner = carries[v];
            if partner != NONE && token[partner as usize] != NONE {
                rest_node[v] = kinds.len() as u32;
                kinds.push(Kind::Rest(v as u32));
            }
        }
        let tokens_of = |list: &[u32]| -> Vec<u32> {
            list.iter().map(|&v| token[v as usize]).filter(|&t| t != NONE).collect()
        };
        let value_of = |kind: &Kind| match *kind {
            Kind::In(v, _) | Kind::Rest(v) => v,
            Kind::Compute => NONE,
        };
        let with = |own: &Lists, more: &dyn Fn(usize) -> Vec<u32>, added: &dyn Fn(&Kind) -> Vec<u32>| {
            Lists::new(kinds.iter().enumerate().map(|(n, kind)| {
                let list = match kind {
                    Kind::Compute => [own.get(n).to_vec(), more(n)].concat(),
                    _ => added(kind),
                };
                list.into_iter()
            }))
        };
        let consumed = |n: usize| tokens_of(flat.consumes.get(n));
        let made = |n: usize| tokens_of(flat.outputs.get(n));
        let inputs = with(&flat.inputs, &consumed, &|kind| vec![token[value_of(kind) as usize]]);
        let outputs = with(&flat.outputs, &made, &|kind| vec![value_of(kind)]);
        let consumes = with(&flat.consumes, &consumed, &|_| Vec::new());
        let reuse = with(&flat.reuse, &|_| Vec::new(), &|_| Vec::new());
        let mut readers = vec![Vec::new(); n_values + n_tokens];
        for n in 0..kinds.len() {
            inputs.get(n).iter().for_each(|&v| readers[v as usize].push(n as u32));
        }
        let producers: Vec<u32> =
            (0..n_values).filter(|&v| token[v] != NONE).map(|v| flat.producer[v]).collect();
        flat.producer.extend(producers);
        flat.bytes.resize(n_values + n_tokens, 0);
        flat.lasting.resize(n_values + n_tokens, true);
        flat.is_output.resize(n_values + n_tokens, false);
        for kind in &kinds[n_nodes..] {
            let bytes = flat.bytes[value_of(kind) as usize];
            flat.cost.push(0.0);
            flat.extra.push(if matches!(kind, Kind::Rest(_)) { OUTSIDE } else { bytes });
            flat.least_runs.push(0);
        }
        (flat.inputs, flat.outputs, flat.consumes, flat.reuse) = (inputs, outputs, consumes, reuse);
        flat.readers = Lists::new(readers.into_iter().map(Vec::into_iter));
        let costs = |way: fn(&crate::spec::Store) -> &crate::spec::Link| {
            let pairs = (0..n_values).flat_map(|v| (0..n_stores).map(move |s| (v, s)));
            pairs.map(|(v, s)| way(&problem.stores[s]).cost(problem.values[v].bytes)).collect()
        };
        let (out_cost, back_cost) = (costs(|store| &store.out), costs(|store| &store.back));
        Moving {
            problem,
            flat,
            n_nodes,
            n_values,
            n_stores,
            kinds,
            in_node,
            rest_node,
            carried_by,
            carries,
            out_cost,
            back_cost,
        }
    }

    pub(crate) fn kind(&self, n: u32) -> Kind {
        self.kinds[n as usize]
    }

    /// The node that copies a value from a store, where that is possible.
    pub(crate) fn in_node(&self, v: u32, s: u32) -> Option<u32> {
        let node = self.in_node[v as usize * self.n_stores + s as usize];
        (node != NONE).then_some(node)
    }

    /// The stores that can hold a value.
    pub(crate) fn stores_of(&self, v: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.n_stores as u32).filter(move |&s| self.in_node(v, s).is_some())
    }

    pub(crate) fn may_move(&self, v: u32) -> bool {
        (v as usize) < self.n_values && self.stores_of(v).next().is_some()
    }

    pub(crate) fn out_cost(&self, v: u32, s: u32) -> f64 {
        self.out_cost[v as usize * self.n_stores + s as usize]
    }

    pub(crate) fn back_cost(&self, v: u32, s: u32) -> f64 {
        self.back_cost[v as usize * self.n_stores + s as usize]
    }

    fn value_id(v: u32) -> ValueId {
        ValueId(v)
    }

    fn store_id(s: u32) -> StoreId {
        StoreId(s)
    }
}
