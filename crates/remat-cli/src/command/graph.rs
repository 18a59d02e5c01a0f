//! `remat graph`: the training step as text or for Graphviz, before planning or as it runs inside a budget.

use crate::answer::Answer;
use crate::files;
use crate::flags::{CostKind, PlannerFlags, StepFlags, model_parser};
use crate::output::{Output, Paint, Report, say};
use crate::planning::compile;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use remat::pipeline::Fit;
use remat::rewrite::{Schedule, Step};
use remat_plan::Budget;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Prints the training step: forward, backward and optimizer.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true, required_unless_present = "problem")]
    model: Option<String>,
    /// Print the planning problem of the model, or of this `remat.problem` file (JSON or text), in its text form.
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["budget", "format"])]
    problem: Option<Option<PathBuf>>,
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
    model: String,
    format: Format,
    graph: String,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let (name, model) = match (&self.model, &self.problem) {
            (Some(_), Some(Some(path))) => {
                bail!("{}: name a model or a problem file, not both", path.display())
            }
            (Some(name), _) => (name, self.step.build(name, CostKind::Analytic)?),
            (None, Some(Some(path))) => return self.print_file(path, out),
            (None, _) => bail!("name a model or give --problem FILE"),
        };
        let needs_costs = self.budget.is_some() || self.problem.is_some();
        let prepared = if needs_costs { model.prepare()? } else { model.prepare_without_costs()? };
        if self.problem.is_some() {
            let graph = prepared.problem.problem.to_text();
            out.report(&Printed { model: name.clone(), format: Format::Text, graph })?;
            return Ok(Answer::Yes);
        }
        let graph = match (self.budget, self.format) {
            (None, Format::Text) => prepared.step.graph.to_text(),
            (None, Format::Dot) => prepared.step.graph.to_dot(),
            (Some(budget), format) => {
                let request = self.planner.request(budget.resolve(prepared.keep_all.peak()));
                match (compile(&prepared, &self.planner.planner, request)?, format) {
                    (Fit::Fits(program), Format::Text) => schedule_text(program.schedule()),
                    (Fit::Fits(program), Format::Dot) => program.schedule().graph.to_dot(),
                    (Fit::Refused(refusal), _) => {
                        say(format_args!("does not fit: {refusal}"));
                        out.failure(&format!("does not fit: {refusal}"), 1)?;
                        return Ok(Answer::No);
                    }
                }
            }
        };
        out.report(&Printed { model: name.clone(), format: self.format, graph })?;
        Ok(Answer::Yes)
    }

    fn print_file(&self, path: &Path, out: &mut Output) -> Result<Answer> {
        if let Some(flag) = self.step.first_typed() {
            bail!("--{flag} is an option of models; it cannot be used with a problem file");
        }
        let problem = files::read_problem(path)?;
        out.report(&Printed { model: problem.name.clone(), format: Format::Text, graph: problem.to_text() })?;
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
            step => writeln!(text, "{}", schedule.step_text(&step)),
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
