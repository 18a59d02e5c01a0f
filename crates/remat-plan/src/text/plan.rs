//! The text form of a plan: one line per step, with the names of nodes and values as comments.

use super::problem::header;
use crate::ids::{NodeId, StoreId, ValueId};
use crate::lines::{Line, TextError, Word, lines};
use crate::plan::{PLAN_SCHEMA, PLAN_SCHEMA_2, Plan, PlanError, Status, Step};
use crate::problem::Problem;
use crate::units::Bytes;
use std::fmt::Write as _;

const KEYWORDS: [(&str, Keyword); 13] = [
    ("problem", Keyword::Problem),
    ("planner", Keyword::Planner),
    ("status", Keyword::Status),
    ("budget_bytes", Keyword::Budget),
    ("peak_bytes", Keyword::Peak),
    ("cost", Keyword::Cost),
    ("lower_bound", Keyword::LowerBound),
    ("compute", Keyword::Compute),
    ("free", Keyword::Free),
    ("out", Keyword::Out),
    ("in", Keyword::In),
    ("discard", Keyword::Discard),
    ("stored", Keyword::Stored),
];

#[derive(Clone, Copy, PartialEq)]
enum Keyword {
    Problem,
    Planner,
    Status,
    Budget,
    Peak,
    Cost,
    LowerBound,
    Compute,
    Free,
    Out,
    In,
    Discard,
    Stored,
}

/// What every plan has to say of itself.
const REQUIRED: [Keyword; 6] =
    [Keyword::Problem, Keyword::Planner, Keyword::Status, Keyword::Budget, Keyword::Peak, Keyword::Cost];

impl Plan {
    /// Reads the text form of `remat.plan/1` or `/2` for the given problem.
    pub fn from_text(text: &str, problem: &Problem) -> Result<Plan, PlanError> {
        let (is_first, plan) = parse(text)?;
        plan.for_problem(is_first, problem)
    }

    /// Writes the text form, of the first version where that can hold the plan. The problem gives the names in the comments.
    pub fn to_text(&self, problem: &Problem) -> String {
        let mut text = format!("{}\nproblem {}\n", self.schema(), Word(&self.problem));
        let _ = writeln!(text, "planner {}\nstatus {}", Word(&self.planner), self.status.name());
        let _ = writeln!(text, "budget_bytes {}\npeak_bytes {}", self.budget_bytes.0, self.peak_bytes.0);
        let _ = writeln!(text, "cost {:?}", self.cost);
        if let Some(bound) = self.lower_bound {
            let _ = writeln!(text, "lower_bound {bound:?}");
        }
        if !(self.steps.is_empty() && self.stored.is_empty()) {
            text.push('\n');
        }
        for &(value, store) in &self.stored {
            write_line(&mut text, &format!("stored %{value} {store}"), value_name(problem, value));
        }
        for step in &self.steps {
            let (start, name) = match *step {
                Step::Compute(node) => {
                    let name = problem.nodes.get(node.index()).map(|node| node.name.as_str());
                    (format!("compute {node}"), name)
                }
                Step::Free(value) => (format!("free %{value}"), value_name(problem, value)),
                Step::Out(value, store) => (format!("out %{value} {store}"), value_name(problem, value)),
                Step::In(value, store) => (format!("in %{value} {store}"), value_name(problem, value)),
                Step::Discard(value, store) => {
                    (format!("discard %{value} {store}"), value_name(problem, value))
                }
            };
            write_line(&mut text, &start, name);
        }
        text
    }
}

fn value_name(problem: &Problem, value: ValueId) -> Option<&str> {
    problem.values.get(value.index()).map(|value| value.name.as_str())
}

fn write_line(text: &mut String, start: &str, name: Option<&str>) {
    let _ = match name {
        Some(name) => writeln!(text, "{start:<16}# {}", Word(name)),
        None => writeln!(text, "{start}"),
    };
}

/// What is made of a value and the number of a store.
fn copy<T>(line: &mut Line<'_>, make: impl FnOnce(ValueId, StoreId) -> T) -> Result<T, TextError> {
    Ok(make(line.value()?, StoreId(line.index("a store")?)))
}

/// Whether the file is of the first version, and what is in it.
fn parse(text: &str) -> Result<(bool, Plan), TextError> {
    let mut plan = Plan {
        problem: String::new(),
        planner: String::new(),
        status: Status::Feasible,
        budget_bytes: Bytes::ZERO,
        peak_bytes: Bytes::ZERO,
        cost: 0.0,
        lower_bound: None,
        stored: Vec::new(),
        steps: Vec::new(),
    };
    let statuses = Status::ALL.map(|status| (status.name(), status));
    let mut missing = REQUIRED.to_vec();
    let mut lines = lines(text);
    let is_first = header(&mut lines, [PLAN_SCHEMA, PLAN_SCHEMA_2])?;
    for mut line in lines {
        let keyword = line.one_of("the beginning of a line", &KEYWORDS)?;
        missing.retain(|&other| other != keyword);
        match keyword {
            Keyword::Problem => plan.problem = line.word("the name of the problem")?,
            Keyword::Planner => plan.planner = line.word("the name of the planner")?,
            Keyword::Status => plan.status = line.one_of("a status", &statuses)?,
            Keyword::Budget => plan.budget_bytes = line.bytes("a number of bytes")?,
            Keyword::Peak => plan.peak_bytes = line.bytes("a number of bytes")?,
            Keyword::Cost => plan.cost = line.number("a cost")?,
            Keyword::LowerBound => plan.lower_bound = Some(line.number("a cost")?),
            Keyword::Compute => plan.steps.push(Step::Compute(NodeId(line.index("a node")?))),
            Keyword::Free => plan.steps.push(Step::Free(line.value()?)),
            Keyword::Out => plan.steps.push(copy(&mut line, Step::Out)?),
            Keyword::In => plan.steps.push(copy(&mut line, Step::In)?),
            Keyword::Discard => plan.steps.push(copy(&mut line, Step::Discard)?),
            Keyword::Stored => plan.stored.push(copy(&mut line, |value, store| (value, store))?),
        }
        line.end()?;
    }
    if let Some(keyword) = missing.first() {
        let name = KEYWORDS.iter().find(|(_, other)| other == keyword).map_or("", |(name, _)| name);
        let what = format!("the plan has no line `{name}`");
        let advice = "begin with problem, planner, status, budget_bytes, peak_bytes and cost".to_string();
        return Err(TextError { line: text.lines().count().max(1), what, advice });
    }
    Ok((is_first, plan))
}
