//! `remat graph`: the training step as text or for Graphviz, before planning or as it runs inside a budget.

use crate::Answer;
use crate::flags::{CostKind, PlannerFlags, StepFlags, model_parser};
use crate::output::{Output, Paint, Report};
use anyhow::Result;
use clap::{Args, ValueEnum};
use remat::pipeline::{Fit, compile};
use remat::rewrite::{Schedule, Step};
use remat_plan::Budget;
use serde::Serialize;
use std::fmt::Write as _;

/// Prints the training step: forward, backward and optimizer.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// The form to print.
    #[arg(long, value_name = "NAME", default_value = "text")]
    format: Format,
    /// Print the step as it runs inside this budget, with recomputes and frees in their order.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Option<Budget>,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// One line per value and node, which `remat` can also read.
    Text,
    /// Graphviz.
    Dot,
}

#[derive(Serialize)]
struct Printed {
    model: &'static str,
    format: Format,
    graph: String,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let model = self.step.build(&self.model, CostKind::Analytic)?;
        let prepared = model.prepare()?;
        let graph = match (self.budget, self.format) {
            (None, Format::Text) => prepared.step.graph.to_text(),
            (None, Format::Dot) => prepared.step.graph.to_dot(),
            (Some(budget), format) => {
                let request = self.planner.request(budget.resolve(prepared.keep_all.peak()));
                match (compile(&prepared, &self.planner.planner, &request)?, format) {
                    (Fit::Fits(program), Format::Text) => schedule_text(&program.schedule),
                    (Fit::Fits(program), Format::Dot) => program.schedule.graph.to_dot(),
                    (Fit::Refused(refusal), _) => {
                        eprintln!("does not fit: {refusal}");
                        return Ok(Answer::No);
                    }
                }
            }
        };
        out.report(&Printed { model: model.info.name, format: self.format, graph })?;
        Ok(Answer::Yes)
    }
}

/// The steps in order of execution. The graph's own text form lists clones last, because they have the last ids.
fn schedule_text(schedule: &Schedule) -> String {
    let graph = &schedule.graph;
    let mut text = format!("graph {:?}\n", graph.name);
    for source in &graph.sources {
        let value = &graph.values[source.value];
        let _ = writeln!(text, "{}: {} = {} {:?}", source.value, value.ty, value.kind.name(), source.name);
    }
    for step in &schedule.steps {
        let _ = match *step {
            Step::Run(node) => writeln!(text, "{}", graph.node_text(&graph.nodes[node])),
            Step::Free(value) => writeln!(text, "free {value}"),
        };
    }
    for value in &graph.outputs {
        let _ = writeln!(text, "output {value}");
    }
    text
}

impl Report for Printed {
    const SCHEMA: &'static str = "remat.graph/1";

    fn text(&self, _: Paint) -> String {
        self.graph.clone()
    }
}
