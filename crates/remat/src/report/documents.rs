//! A plan as the documents that the report page reads.

use super::{DecisionRow, Document, Timeline, decisions};
use crate::pipeline::{Prepared, Program};
use remat_plan::Bytes;
use serde::Serialize;

/// Timelines of one step under different plans.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Timelines {
    model: String,
    programs: Vec<ProgramTimeline>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct ProgramTimeline {
    name: String,
    budget_bytes: Option<Bytes>,
    #[serde(flatten)]
    timeline: Timeline,
}

impl Timelines {
    /// Name and version of the JSON form.
    pub const SCHEMA: &'static str = "remat.timeline/1";

    /// The step without recomputation.
    pub fn keep_all(model: &str, timeline: Timeline) -> Timelines {
        let keep_all = ProgramTimeline { name: "keep all".to_owned(), budget_bytes: None, timeline };
        Timelines { model: model.to_owned(), programs: vec![keep_all] }
    }

    /// The same step under a plan.
    pub fn with(mut self, planner: &str, budget: Bytes, timeline: Timeline) -> Timelines {
        self.programs.push(ProgramTimeline {
            name: planner.to_owned(),
            budget_bytes: Some(budget),
            timeline,
        });
        self
    }

    /// The step without recomputation and under a plan.
    pub fn of(prepared: &Prepared, program: &Program) -> Timelines {
        let before = Timeline::predicted(&prepared.keep_all, &prepared.seconds);
        let plan = program.plan();
        let after = Timeline::planned(prepared, program);
        Timelines::keep_all(&prepared.step.graph.name, before).with(&plan.planner, plan.budget_bytes, after)
    }
}

/// The decisions of a plan as a document of their own.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Decisions {
    /// One row per activation.
    pub rows: Vec<DecisionRow>,
}

impl Decisions {
    /// Name and version of the JSON form.
    pub const SCHEMA: &'static str = "remat.decisions/1";
}

/// What a plan makes of a step, ready for [`page`](super::page).
pub fn documents(prepared: &Prepared, program: &Program) -> Vec<Document> {
    let timelines = Document::of("timeline", Timelines::SCHEMA, &Timelines::of(prepared, program));
    let rows = decisions(prepared, program);
    vec![timelines, Document::of("decisions", Decisions::SCHEMA, &Decisions { rows })]
}
