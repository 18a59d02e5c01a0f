//! Why a plan looks as it does: what sets its peak, what it recomputes and moves, and at what price.
//!
//! In: a problem and a valid plan for it. Out: plain data, with a `Display` for people. Time: linear in the plan.

use crate::bounds::memory_floor::memory_floor;
use crate::ids::{NodeId, ValueId};
use crate::moves::Moves;
use crate::outcome::Floor;
use crate::plan::{Plan, Step};
use crate::problem::Problem;
use crate::reasons::{Reason, reasons};
use crate::simulate::{SimulationError, simulate_with};
use crate::units::Bytes;
use std::fmt;

/// How many entries of each list the text shows.
const SHOWN: usize = 10;
const MIB: f64 = (1u64 << 20) as f64;

/// What sets the peak of a plan, and what it recomputes and moves.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The budget of the plan.
    pub budget: Bytes,
    /// The peak of the plan.
    pub peak: Bytes,
    /// No plan has a lower peak than this.
    pub floor: Floor,
    /// The unit of all costs.
    pub cost_unit: String,
    /// The cost of the plan.
    pub cost: f64,
    /// The cost of running every node once.
    pub base_cost: f64,
    /// No plan within the budget costs less, if known.
    pub lower_bound: Option<f64>,
    /// The step that sets the peak; `None` when the problem has no nodes.
    pub peak_step: Option<PeakStep>,
    /// Nodes that run more than once, the most expensive first.
    pub recomputed: Vec<Recomputed>,
    /// What is copied to and from stores; nothing where the plan uses none.
    pub moves: Option<Moves>,
}

/// The step with the largest memory.
#[derive(Clone, PartialEq, Debug)]
pub struct PeakStep {
    /// Index into the plan's steps.
    pub at: usize,
    /// The node that runs; `None` where a value is copied into memory.
    pub node: Option<NodeId>,
    /// The name of the node or value.
    pub name: String,
    /// The module of the node, if known.
    pub module: Option<String>,
    /// Whether this is a repeated run.
    pub is_recompute: bool,
    /// The workspace of the node.
    pub workspace: Bytes,
    /// Bytes of what the node makes, or of the value.
    pub outputs: Bytes,
    /// The live values, the largest first.
    pub live: Vec<Live>,
}

/// A value that is live at the peak.
#[derive(Clone, PartialEq, Debug)]
pub struct Live {
    /// The value.
    pub value: ValueId,
    /// Its name.
    pub name: String,
    /// The module that made it, if known.
    pub module: Option<String>,
    /// Its size.
    pub bytes: Bytes,
    /// Whether the node at the peak reads it; otherwise it only waits for a later use.
    pub is_operand: bool,
}

/// A node that runs more than once.
#[derive(Clone, PartialEq, Debug)]
pub struct Recomputed {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its module, if known.
    pub module: Option<String>,
    /// Runs beyond the first.
    pub extra_runs: usize,
    /// What the extra runs cost together.
    pub extra_cost: f64,
    /// Bytes of its outputs, which need not be held in the meantime.
    pub bytes: Bytes,
    /// Over which steps they are not held, and what that makes room for; none for a node without outputs.
    pub reason: Option<Reason>,
}

impl Recomputed {
    /// What each MiB that is not held costs; nothing for outputs without bytes.
    pub fn cost_per_mib(&self) -> Option<f64> {
        (self.bytes > Bytes::ZERO).then(|| self.extra_cost / (self.bytes.0 as f64 / MIB))
    }
}

/// Explains a plan; fails where the plan is not valid.
pub fn explain(problem: &Problem, plan: &Plan) -> Result<Explanation, SimulationError> {
    let result = simulate_with(problem, &plan.stored, &plan.steps)?;
    let mut runs = vec![0usize; problem.nodes.len()];
    for node in plan.computes() {
        runs[node.index()] += 1;
    }
    let mut why = reasons(problem, plan, &result.curve);
    let made = |node: NodeId| problem.node(node).outputs.iter().map(|&v| problem.bytes(v)).sum();
    let mut recomputed: Vec<Recomputed> = problem
        .node_ids()
        .filter(|node| runs[node.index()] > 1)
        .map(|id| {
            let (node, extra_runs) = (problem.node(id), runs[id.index()] - 1);
            Recomputed {
                node: id,
                name: node.name.clone(),
                module: node.module.clone(),
                extra_runs,
                extra_cost: node.cost * extra_runs as f64,
                bytes: made(id),
                reason: why.remove(&id),
            }
        })
        .collect();
    recomputed.sort_by(|a, b| b.extra_cost.total_cmp(&a.extra_cost).then(a.node.cmp(&b.node)));

    let peak_step = result.peak_step.map(|at| {
        // Only computes and copies into memory count; of a copy there is no more to say than its value.
        let node = match plan.steps[at] {
            Step::Compute(node) => Some(node),
            _ => None,
        };
        let copied = match plan.steps[at] {
            Step::In(value, _) => Some(problem.value(value)),
            _ => None,
        };
        let name = node.map(|node| &problem.node(node).name).or(copied.map(|value| &value.name));
        let outputs = node.map(made).or(copied.map(|value| value.bytes));
        let mut live: Vec<Live> = result.live_at_peak.iter().map(|&v| live_value(problem, node, v)).collect();
        live.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.value.cmp(&b.value)));
        PeakStep {
            at,
            node,
            name: name.cloned().unwrap_or_default(),
            module: node.and_then(|node| problem.node(node).module.clone()),
            is_recompute: node.is_some() && plan.steps[..at].contains(&plan.steps[at]),
            workspace: node.map_or(Bytes::ZERO, |node| problem.node(node).workspace_bytes),
            outputs: outputs.unwrap_or_default(),
            live,
        }
    });
    Ok(Explanation {
        budget: plan.budget_bytes,
        peak: result.peak,
        floor: memory_floor(problem),
        cost_unit: problem.cost_unit.clone(),
        cost: result.cost,
        base_cost: problem.base_cost(),
        lower_bound: plan.lower_bound,
        peak_step,
        recomputed,
        moves: plan.uses_stores().then(|| Moves::of_simulated(problem, plan, &result)),
    })
}

fn live_value(problem: &Problem, running: Option<NodeId>, value: ValueId) -> Live {
    Live {
        value,
        name: problem.value(value).name.clone(),
        module: problem.producer(value).and_then(|node| problem.node(node).module.clone()),
        bytes: problem.bytes(value),
        is_operand: running.is_some_and(|node| problem.node(node).inputs.contains(&value)),
    }
}

impl Explanation {
    /// Extra cost in percent of the cost of running every node once.
    pub fn overhead_percent(&self) -> f64 {
        percent_above(self.cost, self.base_cost)
    }

    /// How far the cost is above its lower bound, in percent; `None` without a bound.
    pub fn gap_percent(&self) -> Option<f64> {
        self.lower_bound.map(|bound| percent_above(self.cost, bound))
    }
}

impl Explanation {
    /// One line below a recomputed node: what dropping it makes room for.
    fn write_reason(&self, f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
        let (from, to) = (reason.dropped_at, reason.again_at);
        write!(f, "                dropped from step {from} to {to}: ")?;
        let Some(step) = &reason.relieved else { return writeln!(f, "nothing runs in between") };
        let (at, node, used) = (step.at, &step.name, step.used);
        match reason.excess(self.budget) {
            Bytes::ZERO => write!(f, "kept, step {at} ({node}, {used}) would still fit")?,
            excess => {
                write!(f, "kept, step {at} ({node}, {used}) would be {excess} over the budget")?;
            }
        }
        match &step.alternative {
            Some(other) => writeln!(
                f,
                "; instead {} ({}) could go for {:.6} {} and what its maker reads",
                other.name, other.bytes, other.cost, self.cost_unit
            ),
            None => writeln!(f, "; nothing else of that size could go there"),
        }
    }
}

fn percent_above(cost: f64, base: f64) -> f64 {
    if base > 0.0 { 100.0 * (cost / base - 1.0) } else { 0.0 }
}

fn place(name: &str, module: &Option<String>) -> String {
    module.as_ref().map_or_else(|| name.to_string(), |module| format!("{name} in {module}"))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "peak {} of a budget of {}; no plan is below {}",
            self.peak, self.budget, self.floor.bytes
        )?;
        writeln!(f, "the floor: {}", self.floor)?;
        write!(
            f,
            "cost {:.6} {}, {:.2} % above no recomputation",
            self.cost,
            self.cost_unit,
            self.overhead_percent()
        )?;
        match self.gap_percent() {
            Some(gap) if gap <= 0.0 => writeln!(f, "; no plan within the budget costs less")?,
            Some(gap) => writeln!(f, "; at most {gap:.2} % above the cheapest plan")?,
            None => writeln!(f)?,
        }
        if let Some(peak) = &self.peak_step {
            let (at, name, made) = (peak.at, place(&peak.name, &peak.module), peak.outputs);
            if peak.node.is_none() {
                writeln!(f, "the peak is at step {at}, where {name} is copied in from a store: {made}")?;
            } else {
                let again = if peak.is_recompute { "recomputing " } else { "" };
                let workspace = peak.workspace;
                writeln!(
                    f,
                    "the peak is at step {at}, {again}{name}: {made} outputs, {workspace} workspace"
                )?;
            }
            for live in peak.live.iter().take(SHOWN) {
                let use_ = if live.is_operand { "read there" } else { "waits for a later use" };
                writeln!(f, "  {:>12}  {}, {use_}", live.bytes.to_string(), place(&live.name, &live.module))?;
            }
            more(f, peak.live.len(), "live values")?;
        }
        if let Some(moves) = &self.moves {
            write!(f, "{moves}")?;
        }
        if self.recomputed.is_empty() {
            return writeln!(f, "nothing is recomputed");
        }
        writeln!(f, "recomputed nodes: {}", self.recomputed.len())?;
        for node in self.recomputed.iter().take(SHOWN) {
            let name = place(&node.name, &node.module);
            let (runs, bytes) = (node.extra_runs, node.bytes.to_string());
            write!(f, "  {bytes:>12}  {name}, {runs} extra, {:.6} {}", node.extra_cost, self.cost_unit)?;
            match node.cost_per_mib() {
                Some(price) => writeln!(f, ", {price:.6} {} per MiB", self.cost_unit)?,
                None => writeln!(f)?,
            }
            if let Some(reason) = &node.reason {
                self.write_reason(f, reason)?;
            }
        }
        more(f, self.recomputed.len(), "recomputed nodes")
    }
}

fn more(f: &mut fmt::Formatter<'_>, n: usize, what: &str) -> fmt::Result {
    if n > SHOWN { writeln!(f, "  ... and {} more {what}", n - SHOWN) } else { Ok(()) }
}
