//! Dynamic programming over a chain of segments (Rotor, Revolve): optimal nesting of checkpoints.
//!
//! The forward nodes are cut into segments where few bytes cross; the rest of the order is divided accordingly, so that
//! the part B(i) contains the last read of what only segment i needs. To process segments s..=t with m bytes, either
//!
//! - run s and keep all its values until B(s), and process s+1..=t with what is left of m; or
//! - run s..j-1 keeping only what crosses into j, process j..=t with the rest, and then process s..=j-1 with m.
//!
//! The table over (s, t, m) holds the least cost of forward runs. Its sizes are estimates, so plans for several m are
//! made and measured exactly, and the cheapest one within the budget is taken. Time O(L^3 M) for L segments and M
//! sizes of memory, both bounded. Sources: Griewank and Walther, Revolve, 2000; Beaumont et al., Rotor, 2019.

use crate::answer::{not_reached, outcome};
use crate::outcome::{Outcome, StopReason};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, Measure, NONE};
use crate::schedule::limits::Limits;
use crate::schedule::order;
use crate::spec::Phase;

/// Numbers of segments that are tried, and sizes of memory in the table.
const N_SEGMENTS: [usize; 5] = [4, 8, 16, 32, 64];
const SIZES: usize = 160;
/// Work of effort 1: a few seconds, which only problems of many thousands of nodes need.
const UNIT_WORK: f64 = 2e9;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let (computes, measure) = best_chain(problem, budget, &mut Limits::new(request, UNIT_WORK));
    if measure.peak <= budget {
        outcome(problem, request, "chain-dp", &computes, StopReason::SearchExhausted)
    } else {
        not_reached(problem, request, measure.peak)
    }
}

/// The cheapest nested plan within the budget, or the lowest one, in the problem's order or with eager updates.
pub(crate) fn best_chain(problem: &Problem, budget: i64, limits: &mut Limits) -> (Vec<u32>, Measure) {
    let flat = Flat::new(problem);
    let mut best = in_order(problem, &flat, budget, limits);
    if let Some(other) = order::eager(problem) {
        let (computes, measure) = in_order(&other.problem, &Flat::new(&other.problem), budget, limits);
        if measure.rank(budget) < best.1.rank(budget) {
            best = (other.restore(&computes), measure);
        }
    }
    best
}

fn in_order(problem: &Problem, flat: &Flat, budget: i64, limits: &mut Limits) -> (Vec<u32>, Measure) {
    let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
    let mut scratch = Vec::new();
    let measure = flat.measure(&order, &mut scratch);
    let mut best = (order, measure);
    if measure.peak <= budget {
        return best;
    }
    for n_segments in N_SEGMENTS {
        let chain = Chain::new(problem, flat, n_segments);
        if chain.segments.len() < 2 {
            continue;
        }
        let table = Table::fill(&chain.segments);
        let mut offer = |size: usize, limits: &mut Limits| {
            // Less than the table needs: look among the larger sizes.
            let Some(mut computes) = chain.computes(flat, &table, size) else { return true };
            flat.prune(&mut computes);
            limits.spend(20.0 * computes.len() as f64);
            if !flat.is_valid(&computes) {
                return false;
            }
            let measure = flat.measure(&computes, &mut scratch);
            if measure.rank(budget) < best.1.rank(budget) {
                best = (computes, measure);
            }
            measure.peak <= budget
        };
        // The largest size whose plan fits: by bisection, and a few above it, since the true peak is not quite monotone.
        let (mut fits, mut too_large) = (0, SIZES + 1);
        while too_large - fits > 1 {
            let middle = (fits + too_large) / 2;
            if offer(middle, limits) {
                fits = middle
            } else {
                too_large = middle
            }
            if !limits.spend(0.0) {
                return best;
            }
        }
        for size in fits + 1..(fits + 6).min(SIZES + 1) {
            offer(size, limits);
        }
        if !limits.spend(0.0) {
            return best;
        }
    }
    best
}

/// A stretch of the forward pass and the stretch of the rest of the order that undoes it.
struct Segment {
    forward: Vec<u32>,
    backward: Vec<u32>,
    cost: f64,
    /// Bytes that a later segment reads in forward.
    crossing: i64,
    /// Bytes made here that are read after the forward pass.
    kept: i64,
    /// Bytes beside these while its nodes run.
    forward_extra: i64,
    backward_extra: i64,
}

struct Chain {
    segments: Vec<Segment>,
}

impl Chain {
    fn new(problem: &Problem, flat: &Flat, n_segments: usize) -> Chain {
        let forward: Vec<u32> =
            problem.node_ids().filter(|&n| problem.node(n).phase == Phase::Forward).map(|n| n.0).collect();
        let rest: Vec<u32> =
            problem.node_ids().filter(|&n| problem.node(n).phase != Phase::Forward).map(|n| n.0).collect();
        let segment_of = segments(flat, &forward, n_segments);
        let n_segments =
            segment_of.iter().filter(|&&s| s != NONE).map(|&s| s as usize + 1).max().unwrap_or(0);
        let mut chain = Chain { segments: Vec::new() };
        // The last read, after the forward pass, of a value that only its own segment reads in forward.
        let mut last_read = vec![0usize; n_segments];
        let mut crossing = vec![0i64; n_segments];
        let mut kept = vec![0i64; n_segments];
        for v in (0..flat.n_values()).filter(|&v| flat.producer[v] != NONE) {
            let segment = segment_of[flat.producer[v] as usize];
            if segment == NONE || flat.lasting[v] {
                continue;
            }
            let readers = flat.readers.get(v);
            let crosses =
                readers.iter().any(|&n| segment_of[n as usize] != NONE && segment_of[n as usize] != segment);
            let read_later = readers.iter().rev().find(|&&n| segment_of[n as usize] == NONE);
            let segment = segment as usize;
            if crosses {
                crossing[segment] += flat.bytes[v];
            }
            if let Some(&reader) = read_later {
                kept[segment] += flat.bytes[v];
                if !crosses {
                    last_read[segment] = last_read[segment].max(reader as usize);
                }
            }
        }
        let mut taken = 0;
        for s in (0..n_segments).rev() {
            let end = if s == 0 { rest.len() } else { rest.partition_point(|&n| n as usize <= last_read[s]) };
            let backward = rest[taken.min(end)..end].to_vec();
            taken = taken.max(end);
            let forward: Vec<u32> =
                forward.iter().copied().filter(|&n| segment_of[n as usize] == s as u32).collect();
            chain.segments.push(Segment {
                cost: forward.iter().map(|&n| flat.cost[n as usize]).sum(),
                crossing: crossing[s],
                kept: kept[s],
                forward_extra: forward.iter().map(|&n| operands(flat, n, |_| true)).max().unwrap_or(0),
                backward_extra: backward
                    .iter()
                    .map(|&n| {
                        operands(flat, n, |v| {
                            flat.producer[v] == NONE || segment_of[flat.producer[v] as usize] == NONE
                        })
                    })
                    .max()
                    .unwrap_or(0),
                forward,
                backward,
            });
        }
        chain.segments.reverse();
        chain
    }

    /// The computes of the plan for one size of memory, or nothing if that is too little.
    fn computes(&self, flat: &Flat, table: &Table, size: usize) -> Option<Vec<u32>> {
        let last = self.segments.len() - 1;
        table.cost(0, last, size).is_finite().then_some(())?;
        let mut computes = Vec::new();
        let mut has_run = vec![false; flat.n_nodes()];
        let mut run = |nodes: &[u32]| {
            for &n in nodes {
                // What runs once has been kept.
                let again = std::mem::replace(&mut has_run[n as usize], true);
                let may_repeat = flat.outputs.get(n as usize).iter().any(|&v| !flat.lasting[v as usize]);
                if !again || may_repeat {
                    computes.push(n);
                }
            }
        };
        /// What remains to be done, last first.
        enum Task {
            Process(usize, usize, usize),
            Backward(usize),
        }
        let mut tasks = vec![Task::Process(0, last, size)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Backward(s) => run(&self.segments[s].backward),
                Task::Process(s, t, size) => match table.choice(s, t, size) {
                    Choice::KeepAll => {
                        run(&self.segments[s].forward);
                        tasks.push(Task::Backward(s));
                        if s < t {
                            tasks.push(Task::Process(s + 1, t, size - table.units(self.segments[s].kept)));
                        }
                    }
                    Choice::Checkpoint(j) => {
                        (s..j).for_each(|i| run(&self.segments[i].forward));
                        tasks.push(Task::Process(s, j - 1, size));
                        tasks.push(Task::Process(j, t, size - table.units(self.segments[j - 1].crossing)));
                    }
                },
            }
        }
        Some(computes)
    }
}

/// Bytes of a node's chosen inputs, outputs and workspace.
fn operands(flat: &Flat, n: u32, count: impl Fn(usize) -> bool) -> i64 {
    let inputs =
        flat.inputs.get(n as usize).iter().filter(|&&v| !flat.lasting[v as usize] && count(v as usize));
    flat.extra[n as usize] + inputs.map(|&v| flat.bytes[v as usize]).sum::<i64>()
}

/// The segment of each forward node, `NONE` for the others: cut where the fewest bytes cross, once in each of as many
/// stretches of equal bytes as there are segments.
fn segments(flat: &Flat, forward: &[u32], n_segments: usize) -> Vec<u32> {
    let mut place = vec![NONE; flat.n_nodes()];
    for (i, &n) in forward.iter().enumerate() {
        place[n as usize] = i as u32;
    }
    // crosses[i]: bytes alive in forward between forward node i and the next one.
    let mut change = vec![0i64; forward.len() + 1];
    let mut made = vec![0i64; forward.len()];
    for v in (0..flat.n_values()).filter(|&v| flat.producer[v] != NONE) {
        let maker = place[flat.producer[v] as usize];
        if maker == NONE {
            continue;
        }
        made[maker as usize] += flat.bytes[v];
        if let Some(last) =
            flat.readers.get(v).iter().map(|&n| place[n as usize]).filter(|&p| p != NONE).max()
        {
            change[maker as usize] += flat.bytes[v];
            change[last as usize] -= flat.bytes[v];
        }
    }
    let mut crosses = vec![0i64; forward.len()];
    let mut now = 0;
    for (i, crossing) in crosses.iter_mut().enumerate() {
        now += change[i];
        *crossing = now;
    }
    let total: i64 = made.iter().sum::<i64>().max(1);
    let n_segments = n_segments.min(forward.len()).max(1) as i128;
    let mut segment_of = vec![NONE; flat.n_nodes()];
    let (mut segment, mut begin, mut so_far) = (0u32, 0usize, 0i64);
    let mut stretch_begin = 0usize;
    for (i, &bytes) in made.iter().enumerate() {
        let stretch = |so_far: i64| i128::from(so_far) * n_segments / i128::from(total);
        so_far += bytes;
        let stretch_ends = stretch(so_far) > stretch(so_far - bytes);
        if stretch_ends || i + 1 == forward.len() {
            // The last of the cheapest places, so that a segment ends with its block.
            let cut = (stretch_begin..=i).rev().reduce(|a, b| if crosses[b] < crosses[a] { b } else { a });
            let cut = if i + 1 == forward.len() { i } else { cut.expect("the stretch is not empty") };
            for &n in &forward[begin..=cut] {
                segment_of[n as usize] = segment;
            }
            (begin, stretch_begin, segment) = (cut + 1, i + 1, segment + 1);
        }
    }
    segment_of
}

/// How to process a range of segments.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Choice {
    KeepAll,
    Checkpoint(usize),
}

/// The least cost of forward runs for each range of segments and size of memory.
struct Table {
    n: usize,
    bytes_per_unit: i64,
    costs: Vec<f64>,
    choices: Vec<u8>,
}

impl Table {
    fn at(&self, s: usize, t: usize, size: usize) -> usize {
        (s * self.n + t) * (SIZES + 1) + size
    }

    fn cost(&self, s: usize, t: usize, size: usize) -> f64 {
        self.costs[self.at(s, t, size)]
    }

    fn choice(&self, s: usize, t: usize, size: usize) -> Choice {
        match self.choices[self.at(s, t, size)] {
            0 => Choice::KeepAll,
            j => Choice::Checkpoint(j as usize),
        }
    }

    /// Bytes as a number of units, rounded up.
    fn units(&self, bytes: i64) -> usize {
        (bytes.max(0) as u64).div_ceil(self.bytes_per_unit as u64) as usize
    }

    fn fill(segments: &[Segment]) -> Table {
        let n = segments.len();
        let most: i64 = segments.iter().map(|s| s.kept + s.crossing).sum::<i64>()
            + segments.iter().map(|s| s.forward_extra.max(s.backward_extra)).max().unwrap_or(0);
        let bytes_per_unit = (most.max(1) as u64).div_ceil(SIZES as u64) as i64;
        let size = n * n * (SIZES + 1);
        let mut table = Table { n, bytes_per_unit, costs: vec![f64::INFINITY; size], choices: vec![0; size] };
        let kept: Vec<usize> = segments.iter().map(|s| table.units(s.kept)).collect();
        let crossing: Vec<usize> = segments.iter().map(|s| table.units(s.crossing)).collect();
        let forward: Vec<usize> = segments.iter().map(|s| table.units(s.forward_extra)).collect();
        let backward: Vec<usize> = segments.iter().map(|s| table.units(s.backward_extra)).collect();
        for length in 0..n {
            for s in 0..n - length {
                let t = s + length;
                for size in 0..=SIZES {
                    let mut best = (f64::INFINITY, 0u8);
                    if size >= kept[s] + backward[s] && size >= forward[s] {
                        let rest = if s == t { 0.0 } else { table.cost(s + 1, t, size - kept[s]) };
                        best = (segments[s].cost + rest, 0);
                    }
                    let mut forward_cost = 0.0;
                    for j in s + 1..=t {
                        forward_cost += segments[j - 1].cost;
                        if size < forward[j - 1] {
                            break;
                        }
                        if size < crossing[j - 1] {
                            continue;
                        }
                        let cost = forward_cost
                            + table.cost(j, t, size - crossing[j - 1])
                            + table.cost(s, j - 1, size);
                        if cost < best.0 {
                            best = (cost, j as u8);
                        }
                    }
                    let at = table.at(s, t, size);
                    (table.costs[at], table.choices[at]) = best;
                }
            }
        }
        table
    }
}
