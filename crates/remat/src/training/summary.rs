//! The answer to "does it fit, and at what price", in a few lines.

use crate::pipeline::{Prepared, Program};
use remat_plan::{Bytes, Status};

/// What a plan means for a step.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanSummary {
    /// The model.
    pub model: String,
    /// The budget, where there is one.
    pub budget: Option<Bytes>,
    /// The peak of the step, to the byte.
    pub peak: Bytes,
    /// The peak of the step that keeps everything.
    pub keep_all_peak: Bytes,
    /// No plan needs less than this.
    pub floor: Bytes,
    /// The node that sets the floor.
    pub floor_node: String,
    /// Nodes that run again.
    pub n_recomputes: usize,
    /// How much longer the step takes than one that keeps everything, in percent, as calculated.
    pub overhead_percent: f64,
    /// At most this much above the cheapest plan, in percent, where that is known.
    pub gap_percent: Option<f64>,
}

impl PlanSummary {
    pub(super) fn of(prepared: &Prepared, program: &Program) -> PlanSummary {
        let (plan, base) = (program.plan(), prepared.problem.problem.base_cost());
        let percent = |more: f64, of: f64| if of > 0.0 { 100.0 * (more / of - 1.0) } else { 0.0 };
        let gap_percent = match (plan.status, plan.lower_bound) {
            (Status::Optimal, _) => Some(0.0),
            (_, Some(bound)) if bound > 0.0 => Some(percent(plan.cost, bound)),
            _ => None,
        };
        PlanSummary {
            model: prepared.step.graph.name.clone(),
            budget: Some(plan.budget_bytes).filter(|budget| budget.0 < u64::MAX),
            peak: program.peak(),
            keep_all_peak: prepared.keep_all.peak(),
            floor: prepared.floor.bytes,
            floor_node: prepared.floor.node_name.clone(),
            n_recomputes: program.schedule().n_recomputes(),
            overhead_percent: percent(plan.cost, base),
            gap_percent,
        }
    }
}

impl std::fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PlanSummary { model, peak, keep_all_peak, floor, floor_node, .. } = self;
        match self.budget {
            Some(budget) => writeln!(f, "fits: {model} within {budget}, peak {peak}")?,
            None => writeln!(f, "{model} with everything kept, peak {peak}")?,
        }
        writeln!(f, "  peak without recomputation  {keep_all_peak}")?;
        writeln!(f, "  floor                       {floor}, set by {floor_node}")?;
        writeln!(f, "  recomputed nodes            {}", self.n_recomputes)?;
        write!(f, "  calculated cost             {:+.1} %", self.overhead_percent)?;
        match self.gap_percent {
            Some(0.0) => write!(f, ", optimal"),
            Some(gap) => write!(f, ", at most {gap:.2} % above the cheapest plan"),
            None => Ok(()),
        }
    }
}
