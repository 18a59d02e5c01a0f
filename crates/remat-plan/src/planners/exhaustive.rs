//! All plans: the oracle on tiny graphs.
//!
//! Dijkstra's algorithm over states (set of live values, set of nodes that have run). A compute costs the node's cost and
//! may let inputs die with it (only those that a reuse pair can profit from); a free costs nothing. The first final
//! state that is taken from the queue has the least cost of all plans in all orders. The number of states is exponential:
//! the planner declines problems with more than 64 nodes or values, and stops after a number of states.

use crate::outcome::{Outcome, StopReason, Why};
use crate::planners::flat::{Flat, NONE};
use crate::planners::{Request, not_reached, outcome_with_bound};
use crate::problem::Problem;
use crate::units::Bytes;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// States after which the search gives up at effort 1.
const MOST_STATES: f64 = 3e6;

/// What matters of the past.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    live: u64,
    done: u64,
}

/// A cost as a number that sorts; costs are not negative and finite.
#[derive(Clone, Copy, PartialEq)]
struct Cost(f64);

impl Eq for Cost {}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Cost) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cost {
    fn cmp(&self, other: &Cost) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let flat = Flat::new(problem);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
    let keep_all_peak = flat.measure(&order, &mut Vec::new()).peak;
    let decline = |why: &str| {
        if keep_all_peak <= budget {
            return outcome_with_bound(problem, request, "exhaustive", &order, StopReason::BudgetMet, None);
        }
        Outcome::Infeasible {
            lowest_peak: Bytes(keep_all_peak.max(0) as u64),
            why: Why::NotApplicable(why.into()),
        }
    };
    if flat.n_nodes() > 64 || flat.n_values() > 64 {
        return decline("the problem has more than 64 nodes or values; exhaustive search is for tiny ones");
    }
    let most = (request.effort.unwrap_or(1.0) * MOST_STATES) as usize;
    answer(problem, request, "exhaustive", &flat, most)
        .unwrap_or_else(|| decline("the problem has too many states for exhaustive search"))
}

/// The proved answer, or nothing if it takes more than `most` states or the problem is too large.
pub(crate) fn answer(
    problem: &Problem,
    request: &Request,
    planner: &str,
    flat: &Flat,
    most: usize,
) -> Option<Outcome> {
    if flat.n_nodes() > 64 || flat.n_values() > 64 {
        return None;
    }
    match search(flat, request.budget.0.min(i64::MAX as u64) as i64, most) {
        Answer::Found(computes, cost) => {
            let extra = cost - problem.base_cost();
            let stop = StopReason::SearchExhausted;
            Some(outcome_with_bound(problem, request, planner, &computes, stop, Some(extra)))
        }
        Answer::None => {
            let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
            let keep_all_peak = flat.measure(&order, &mut Vec::new()).peak;
            Some(match not_reached(problem, request, keep_all_peak) {
                Outcome::Infeasible { lowest_peak, why: Why::NotReached } => {
                    Outcome::Infeasible { lowest_peak, why: Why::Exhausted }
                }
                proved => proved,
            })
        }
        Answer::TooLarge => None,
    }
}

enum Answer {
    Found(Vec<u32>, f64),
    None,
    TooLarge,
}

fn search(flat: &Flat, budget: i64, most: usize) -> Answer {
    let bit = |i: u32| 1u64 << i;
    let set = |list: &[u32]| list.iter().fold(0, |bits, &i| bits | bit(i));
    let n_nodes = flat.n_nodes() as u32;
    let all_done = if n_nodes == 64 { u64::MAX } else { bit(n_nodes) - 1 };
    let outputs: u64 = (0..flat.n_values() as u32).filter(|&v| flat.is_output[v as usize]).map(bit).sum();
    let inputs: u64 =
        (0..flat.n_values() as u32).filter(|&v| flat.producer[v as usize] == NONE).map(bit).sum();
    let bytes = |live: u64| ones(live).map(|v| flat.bytes[v as usize]).sum::<i64>();
    let may_repeat: Vec<bool> = (0..n_nodes as usize)
        .map(|n| flat.outputs.get(n).iter().any(|&v| !flat.lasting[v as usize]))
        .collect();

    let start = State { live: inputs, done: 0 };
    let mut known: HashMap<State, (f64, State, u32)> = HashMap::from([(start, (0.0, start, NONE))]);
    let mut queue = BinaryHeap::from([Reverse((Cost(0.0), start))]);
    while let Some(Reverse((Cost(cost), state))) = queue.pop() {
        if known[&state].0 < cost {
            continue;
        }
        if state.done == all_done && state.live & outputs == outputs {
            return Answer::Found(path(&known, state), cost);
        }
        if known.len() > most {
            return Answer::TooLarge;
        }
        let mut reach = |next: State, cost: f64, node: u32| {
            if known.get(&next).is_none_or(|old| cost < old.0) {
                known.insert(next, (cost, state, node));
                queue.push(Reverse((Cost(cost), next)));
            }
        };
        for v in ones(state.live) {
            reach(State { live: state.live & !bit(v), ..state }, cost, NONE);
        }
        for n in 0..n_nodes {
            let node = n as usize;
            let has_run = state.done & bit(n) != 0;
            let reads = set(flat.inputs.get(node));
            if state.live & reads != reads || (has_run && !may_repeat[node]) {
                continue;
            }
            let used = flat.fixed + bytes(state.live) + flat.extra[node];
            let after = (state.live & !set(flat.consumes.get(node))) | set(flat.outputs.get(node));
            let done = state.done | bit(n);
            if used <= budget {
                reach(State { live: after, done }, cost + flat.cost[node], n);
            }
            // Let every subset of the inputs that could give their storage away die with the step.
            let donors = flat.reuse.get(node).chunks_exact(2).fold(0, |bits, pair| bits | bit(pair[0]));
            let mut dying = donors;
            while dying != 0 {
                let shared = flat.shared_new(node, |v| dying & bit(v) == 0, |v| state.live & bit(v) == 0);
                if used - shared <= budget {
                    reach(State { live: after & !dying, done }, cost + flat.cost[node], n);
                }
                dying = (dying - 1) & donors;
            }
        }
    }
    Answer::None
}

fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        next
    })
}

/// The computes that lead to a state.
fn path(known: &HashMap<State, (f64, State, u32)>, mut state: State) -> Vec<u32> {
    let mut computes = Vec::new();
    loop {
        let (_, before, node) = known[&state];
        if node != NONE {
            computes.push(node);
        }
        if before == state {
            computes.reverse();
            return computes;
        }
        state = before;
    }
}
