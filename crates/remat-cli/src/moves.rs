//! What a plan moves to stores and back, for people and for programs that read JSON.

use crate::format::{cost, plural};
use anyhow::{Context as _, Result};
use remat_plan::{Bytes, LinkUse, Moves, Plan, Problem, Way};
use serde::{Deserialize, Serialize};

/// What a plan copies to and from stores in a step.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Copied {
    pub(crate) out_bytes: Bytes,
    pub(crate) in_bytes: Bytes,
    /// State that is in a store between steps.
    pub(crate) resting_bytes: Bytes,
    pub(crate) copying_seconds: f64,
    pub(crate) planned_waiting_seconds: f64,
    pub(crate) planned_hidden_percent: f64,
}

impl Copied {
    pub(crate) fn of(moves: &Moves) -> Copied {
        Copied {
            out_bytes: moves.bytes(Way::Out),
            in_bytes: moves.bytes(Way::In),
            resting_bytes: moves.resting_bytes,
            copying_seconds: moves.copying,
            planned_waiting_seconds: moves.waiting,
            planned_hidden_percent: moves.hidden_percent,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let Copied { out_bytes, in_bytes, planned_hidden_percent, .. } = self;
        format!("{out_bytes} out, {in_bytes} in, {planned_hidden_percent:.0} % hidden")
    }
}

/// By how much copies are made faster to tell what that would save, in percent.
pub(crate) const FASTER_PERCENT: [f64; 2] = [10.0, 100.0];

/// The moves of a plan, with what faster stores would save.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct MovesReport {
    #[serde(flatten)]
    pub(crate) moves: Moves,
    /// What the same steps save with faster copies.
    faster: Vec<Faster>,
}

/// What the same steps would save if stores moved more bytes in the same time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Faster {
    percent: f64,
    saves: f64,
}

/// How many times as fast copies are that are faster by so many percent.
pub(crate) fn factor(percent: f64) -> f64 {
    1.0 + percent / 100.0
}

/// A speed of so many bytes per second.
pub(crate) fn speed(bytes_per_second: f64) -> String {
    format!("{:.2} GB/s", bytes_per_second / 1e9)
}

impl MovesReport {
    /// Of a valid plan; nothing where it uses no store.
    pub(crate) fn of(problem: &Problem, plan: &Plan) -> Result<Option<MovesReport>> {
        let Some(moves) = Moves::of(problem, plan).context("looking at the copies of the plan")? else {
            return Ok(None);
        };
        let saved = |percent: f64| {
            let saves = Moves::saved_by_faster_copies(problem, plan, factor(percent))?;
            Ok(Faster { percent, saves })
        };
        let faster = FASTER_PERCENT.into_iter().map(saved).collect::<Result<_>>()?;
        Ok(Some(MovesReport { moves, faster }))
    }

    /// Rows of a list of facts.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let Moves { links, values, cost_unit, n_resting, resting_bytes, .. } = &self.moves;
        let links: Vec<String> = links.iter().map(|link| link_text(link, cost_unit)).collect();
        let mut facts = vec![
            ("moved", format!("{}: {}", plural(values.len(), "value"), links.join("; "))),
            ("copying", self.hidden()),
        ];
        if *n_resting > 0 {
            facts.push((
                "in a store between steps",
                format!("{}, {resting_bytes}", plural(*n_resting, "value")),
            ));
        }
        facts.push(("a faster store", self.faster()));
        facts
    }

    /// How much of the copying takes place while nodes run.
    pub(crate) fn hidden(&self) -> String {
        let Moves { copying, waiting, hidden_percent, cost_unit, .. } = &self.moves;
        let (copying, waiting) = (cost(*copying, cost_unit), cost(*waiting, cost_unit));
        format!("{copying}, {hidden_percent:.1} % of it hidden behind nodes; a step waits {waiting}")
    }

    /// What faster copies save.
    pub(crate) fn faster(&self) -> String {
        let save = |faster: &Faster| {
            let Faster { percent, saves } = faster;
            format!("{} with {percent} % more GB/s", cost(*saves, &self.moves.cost_unit))
        };
        format!(
            "would save, with the same plan, {}",
            self.faster.iter().map(save).collect::<Vec<_>>().join(", ")
        )
    }
}

/// One direction of a store, with the speed that the plan counts on.
fn link_text(link: &LinkUse, unit: &str) -> String {
    // Only with costs in seconds a speed means something.
    let bytes_per_second = link.bytes_per_cost.filter(|_| unit == "s");
    let at = bytes_per_second.map_or_else(String::new, |bytes| format!(" at {}", speed(bytes)));
    format!("{link} in {}{at}", cost(link.busy, unit))
}
