//! All plans: the oracle on tiny graphs.
//!
//! Dijkstra's algorithm over states (set of live values, set of nodes that have run). The first run of a node is part of every
//! plan, so it counts nothing; a further run costs the node's cost. Values die as soon as nothing can need them any more,
//! and otherwise only to make room for a run: before it those that it does not read, with it those inputs that can
//! hand their storage over; and no more of them than necessary, because a state with more live values can do all that one
//! with fewer can. The first final state that is taken from the queue has the least extra cost of all plans in all
//! orders. Of states with equal cost those with more nodes done come first: where nothing need be recomputed, the search goes
//! straight to the end. The number of states is exponential: the planner declines problems with more than 64 nodes or
//! values, and stops after a number of states, or of sets of values that it has tried to let die. Problems with stores have more to a state: stores.rs.

mod stores;

use crate::answer::{not_reached, outcome_with_bound};
use crate::outcome::{Outcome, StopReason, Why};
use crate::plan::{Plan, Status};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, NONE};
use crate::simulate::simulate_with;
use crate::units::Bytes;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// States after which the search gives up at effort 1.
const MOST_STATES: f64 = 3e6;

/// Sets of dying values that are tried for every state that the search may meet: where many small values are live and several
/// must die, one state alone may take millions.
const TRIALS_PER_STATE: usize = 100;

/// What matters of the past.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    live: u64,
    done: u64,
}

/// The least cost of each state met so far, the state before it and the node that led from there to it.
type Known = HashMap<State, (f64, State, u32), BuildHasherDefault<Mixer>>;

/// A hash of a few words by multiplication, several times as fast as the default one; the table holds no input that could be chosen to collide.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 29;
    }

    fn finish(&self) -> u64 {
        self.0
    }
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
    if (flat.n_nodes() > 64 || flat.n_values() > 64) && problem.stores.is_empty() {
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
    if !problem.stores.is_empty() {
        return answer_from(problem, request, planner, flat, None, most);
    }
    if flat.n_nodes() > 64 || flat.n_values() > 64 {
        return None;
    }
    match search(flat, request.budget.0.min(i64::MAX as u64) as i64, most) {
        Answer::Found(computes, extra) => {
            let stop = StopReason::SearchExhausted;
            Some(outcome_with_bound(problem, request, planner, &computes, stop, Some(extra)))
        }
        Answer::None => Some(no_plan(problem, request, flat)),
        Answer::TooLarge => None,
    }
}

/// The same where values can be moved; a plan that is known already is the answer unless there is a cheaper one.
pub(crate) fn answer_from(
    problem: &Problem,
    request: &Request,
    planner: &str,
    flat: &Flat,
    known: Option<&Plan>,
    most: usize,
) -> Option<Outcome> {
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    // Rounding of sums is no improvement.
    let below = known.map_or(f64::INFINITY, |plan| plan.cost * (1.0 - 1e-9));
    let (stored, steps, cost) = match stores::search(problem, flat, budget, below, most) {
        stores::Answer::Found(stored, steps, cost) => (stored, steps, cost),
        stores::Answer::None => {
            let optimal =
                |plan: &Plan| Plan { status: Status::Optimal, lower_bound: Some(plan.cost), ..plan.clone() };
            return Some(
                known.map_or_else(|| no_plan(problem, request, flat), |plan| Outcome::Optimal(optimal(plan))),
            );
        }
        stores::Answer::TooLarge => return None,
    };
    let result = simulate_with(problem, &stored, &steps).expect("the search takes valid steps only");
    // The search and the simulator count the same, and the search is of no use where they do not.
    assert!(
        (result.cost - cost).abs() <= 1e-9 * cost,
        "exhaustive says {cost}, the simulator {}",
        result.cost
    );
    Some(Outcome::Optimal(Plan {
        problem: problem.name.clone(),
        planner: planner.to_string(),
        status: Status::Optimal,
        budget_bytes: request.budget,
        peak_bytes: result.peak,
        cost: result.cost,
        lower_bound: Some(result.cost),
        stored,
        steps,
    }))
}

/// All plans were searched, and none is within the budget.
fn no_plan(problem: &Problem, request: &Request, flat: &Flat) -> Outcome {
    let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
    let keep_all_peak = flat.measure(&order, &mut Vec::new()).peak;
    match not_reached(problem, request, keep_all_peak) {
        Outcome::Infeasible { lowest_peak, why: Why::NotReached } => {
            Outcome::Infeasible { lowest_peak, why: Why::Exhausted }
        }
        proved => proved,
    }
}

enum Answer {
    /// The computes and what they cost beyond running every node once.
    Found(Vec<u32>, f64),
    None,
    TooLarge,
}

fn search(flat: &Flat, budget: i64, most: usize) -> Answer {
    let n_nodes = flat.n_nodes() as u32;
    let all_done = if n_nodes == 64 { u64::MAX } else { bit(n_nodes) - 1 };
    let values = 0..flat.n_values() as u32;
    let outputs: u64 = values.clone().filter(|&v| flat.is_output[v as usize]).map(bit).sum();
    let inputs: u64 = values.filter(|&v| flat.producer[v as usize] == NONE).map(bit).sum();
    let nodes: Vec<Node> = (0..n_nodes as usize).map(|n| Node::new(flat, n)).collect();
    // What some plan can still need: a node that has run runs again only for one of its outputs.
    let useful = |done: u64| {
        nodes.iter().zip(0..n_nodes).rev().fold(outputs, |useful, (node, n)| {
            let may_run = done & bit(n) == 0 || (node.may_repeat && node.makes & useful != 0);
            if may_run { useful | node.reads } else { useful }
        })
    };

    let start = State { live: inputs, done: 0 };
    let mut known = Known::from_iter([(start, (0.0, start, NONE))]);
    let mut queue = BinaryHeap::from([Reverse((Cost(0.0), n_nodes, start))]);
    let mut trials = most.saturating_mul(TRIALS_PER_STATE);
    while let Some(Reverse((Cost(cost), _, state))) = queue.pop() {
        if known[&state].0 < cost {
            continue;
        }
        if state.done == all_done && state.live & outputs == outputs {
            return Answer::Found(path(&known, state), cost);
        }
        if known.len() > most {
            return Answer::TooLarge;
        }
        for (node, n) in nodes.iter().zip(0..) {
            let has_run = state.done & bit(n) != 0;
            let is_idle = has_run && (!node.may_repeat || node.makes & !state.live == 0);
            if is_idle || node.reads & !state.live != 0 {
                continue;
            }
            let cost = if has_run { cost + flat.cost[n as usize] } else { cost };
            let done = state.done | bit(n);
            let useful = useful(done);
            let is_whole = node.run(flat, n as usize, budget, state.live, &mut trials, |live| {
                let next = State { live: live & useful, done };
                if known.get(&next).is_none_or(|old| cost < old.0) {
                    known.insert(next, (cost, state, n));
                    queue.push(Reverse((Cost(cost), n_nodes - done.count_ones(), next)));
                }
            });
            if !is_whole {
                return Answer::TooLarge;
            }
        }
    }
    Answer::None
}

fn bit(i: u32) -> u64 {
    1 << i
}

/// A node in terms of sets of values.
struct Node {
    reads: u64,
    makes: u64,
    consumes: u64,
    /// Inputs whose storage an output may take over.
    donors: u64,
    may_repeat: bool,
}

impl Node {
    fn new(flat: &Flat, n: usize) -> Node {
        let set = |list: &[u32]| list.iter().fold(0, |bits, &i| bits | bit(i));
        Node {
            reads: set(flat.inputs.get(n)),
            makes: set(flat.outputs.get(n)),
            consumes: set(flat.consumes.get(n)),
            donors: flat.reuse.get(n).chunks_exact(2).fold(0, |bits, pair| bits | bit(pair[0])),
            may_repeat: flat.outputs.get(n).iter().any(|&v| !flat.lasting[v as usize]),
        }
    }

    /// The live sets after a run, one for each smallest set of values that must die for it to fit. Whether these are all: each
    /// set that is looked at takes one of the `trials`.
    #[must_use]
    fn run(
        &self,
        flat: &Flat,
        n: usize,
        budget: i64,
        live: u64,
        trials: &mut usize,
        mut reach: impl FnMut(u64),
    ) -> bool {
        let bytes = |values: u64| ones(values).map(|v| flat.bytes[v as usize]).sum::<i64>();
        let base = flat.fixed + bytes(live) + flat.extra[n] - budget;
        // The bytes above the budget when some values die: the read ones with the run, the others before it.
        let excess = |dying: u64| {
            let shared = flat.shared_new(n, |v| dying & bit(v) == 0, |v| live & !dying & bit(v) == 0);
            base - bytes(dying & !self.reads) - shared
        };
        let mut open = vec![(0u64, live & (!self.reads | self.donors))];
        while let Some((dying, mut rest)) = open.pop() {
            if *trials == 0 {
                return false;
            }
            *trials -= 1;
            if excess(dying) <= 0 {
                if ones(dying).all(|v| excess(dying & !bit(v)) > 0) {
                    // What the node makes is live afterwards, even if an earlier copy had to die.
                    reach(live & !self.consumes & !dying | self.makes);
                }
            } else if base - bytes((dying | rest) & !self.reads) - bytes(self.makes) <= 0 {
                while rest != 0 {
                    let first = rest & rest.wrapping_neg();
                    rest &= !first;
                    open.push((dying | first, rest));
                }
            }
        }
        true
    }
}

fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        next
    })
}

/// The computes that lead to a state.
fn path(known: &Known, mut state: State) -> Vec<u32> {
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
