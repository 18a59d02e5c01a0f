//! The text form of a problem: one line per value and per node. What is printed parses back to an equal problem.

use super::stores;
use crate::ids::ValueId;
use crate::lines::{Line, TextError, Word, lines};
use crate::problem::{PROBLEM_SCHEMA, PROBLEM_SCHEMA_2, Problem, ProblemError};
use crate::spec::{Node, Phase, ProblemSpec, Value};
use crate::units::Bytes;
use std::fmt::Write as _;

const KEYWORDS: [(&str, Keyword); 13] = [
    ("name", Keyword::Name),
    ("cost_unit", Keyword::CostUnit),
    ("fixed_bytes", Keyword::FixedBytes),
    ("value", Keyword::Value),
    ("inputs", Keyword::Inputs),
    ("forward", Keyword::Node(Phase::Forward)),
    ("backward", Keyword::Node(Phase::Backward)),
    ("optimizer", Keyword::Node(Phase::Optimizer)),
    ("outputs", Keyword::Outputs),
    ("channel", Keyword::Channel),
    ("store", Keyword::Store),
    ("carries", Keyword::Carries),
    ("budget_bytes", Keyword::Budget),
];

/// After the name of a value that may not be copied to a store.
const STAYS: &str = "stays";

#[derive(Clone, Copy)]
enum Keyword {
    Name,
    CostUnit,
    FixedBytes,
    Value,
    Inputs,
    Node(Phase),
    Outputs,
    Channel,
    Store,
    Carries,
    Budget,
}

const FIELDS: [(&str, Field); 9] = [
    ("op", Field::Op),
    ("cost", Field::Cost),
    ("workspace", Field::Workspace),
    ("reads", Field::Reads),
    ("makes", Field::Makes),
    ("once", Field::Once),
    ("consumes", Field::Consumes),
    ("reuse", Field::Reuse),
    ("module", Field::Module),
];

#[derive(Clone, Copy)]
enum Field {
    Op,
    Cost,
    Workspace,
    Reads,
    Makes,
    Once,
    Consumes,
    Reuse,
    Module,
}

impl Problem {
    /// Reads the text form of `remat.problem/1` or `/2`.
    pub fn from_text(text: &str) -> Result<Problem, ProblemError> {
        let (is_first, spec) = parse(text)?;
        Problem::of_version(is_first, spec)
    }

    /// Writes the text form, of the first version where that can hold the problem.
    pub fn to_text(&self) -> String {
        print(self.schema(), self.spec())
    }
}

/// Whether the file is of the first version, and what is in it.
fn parse(text: &str) -> Result<(bool, ProblemSpec), TextError> {
    let mut spec = ProblemSpec::default();
    let mut lines = lines(text);
    let is_first = header(&mut lines, [PROBLEM_SCHEMA, PROBLEM_SCHEMA_2])?;
    for mut line in lines {
        match line.one_of("the beginning of a line", &KEYWORDS)? {
            Keyword::Name => spec.name = line.word("a name")?,
            Keyword::CostUnit => spec.cost_unit = line.word("a unit")?,
            Keyword::FixedBytes => spec.fixed_bytes = line.bytes("a number of bytes")?,
            Keyword::Value => spec.values.push(value(&mut line, spec.values.len())?),
            Keyword::Inputs => spec.inputs.extend(line.values()?),
            Keyword::Outputs => spec.outputs.extend(line.values()?),
            Keyword::Node(phase) => spec.nodes.push(node(&mut line, phase)?),
            Keyword::Channel => spec.channels.push(stores::channel(&mut line)?),
            Keyword::Store => spec.stores.push(stores::store(&mut line)?),
            Keyword::Carries => spec.carries.extend(line.pairs()?),
            Keyword::Budget => spec.budget_bytes = Some(line.bytes("a number of bytes")?),
        }
        line.end()?;
    }
    Ok((is_first, spec))
}

/// The first line must name one of the two versions of the format; whether it is the first one.
pub(super) fn header<'a>(
    lines: &mut impl Iterator<Item = Line<'a>>,
    schemas: [&str; 2],
) -> Result<bool, TextError> {
    let advice = format!("begin the file with the line {} or {}", schemas[0], schemas[1]);
    let Some(mut line) = lines.next() else {
        return Err(TextError { line: 1, what: "the file is empty".to_string(), advice });
    };
    let start = line.clone();
    let schema = line.word("the format")?;
    if !schemas.contains(&schema.as_str()) {
        return Err(start.error("the first line does not name the format", advice));
    }
    line.end()?;
    Ok(schema == schemas[0])
}

fn value(line: &mut Line<'_>, n_before: usize) -> Result<Value, TextError> {
    let start = line.clone();
    let id = line.value()?;
    if id.index() != n_before {
        let what = format!("value %{id} is out of order");
        return Err(start.error(what, format!("values are numbered from %0 on; the next one is %{n_before}")));
    }
    let bytes = line.bytes("a number of bytes")?;
    let mut value = Value::new(line.word("the name of the value")?, bytes);
    let mut after = line.clone();
    if !after.is_at_end() && after.word("the end")? == STAYS {
        value.swap = false;
        *line = after;
    }
    Ok(value)
}

fn node(line: &mut Line<'_>, phase: Phase) -> Result<Node, TextError> {
    let mut node = Node::new(line.word("the name of the node")?, phase, 0.0);
    let mut has_cost = false;
    while !line.is_at_end() {
        match line.one_of("part of a node", &FIELDS)? {
            Field::Op => node.op = line.word("the kind of operation")?,
            Field::Cost => {
                node.cost = line.number("a cost")?;
                has_cost = true;
            }
            Field::Workspace => node.workspace_bytes = line.bytes("a number of bytes")?,
            Field::Reads => node.inputs.extend(line.values()?),
            Field::Makes => node.outputs.extend(line.values()?),
            Field::Once => node.recompute = false,
            Field::Consumes => node.consumes.extend(line.values()?),
            Field::Reuse => node.reuse.extend(line.pairs()?),
            Field::Module => node.module = Some(line.word("the name of the module")?),
        }
    }
    if !has_cost {
        return Err(line.error("the node has no cost", "add `cost` and a number, 0 if it is free"));
    }
    Ok(node)
}

fn print(schema: &str, spec: &ProblemSpec) -> String {
    let mut text = format!("{schema}\nname {}\n", Word(&spec.name));
    let _ = writeln!(text, "cost_unit {}\nfixed_bytes {}", Word(&spec.cost_unit), spec.fixed_bytes.0);
    if let Some(budget) = spec.budget_bytes {
        let _ = writeln!(text, "budget_bytes {}", budget.0);
    }
    text.push('\n');
    stores::print(&mut text, &spec.channels, &spec.stores);
    for (i, value) in spec.values.iter().enumerate() {
        let _ = write!(text, "value %{i} {} {}", value.bytes.0, Word(&value.name));
        if !value.swap {
            let _ = write!(text, " {STAYS}");
        }
        text.push('\n');
    }
    print_list(&mut text, "inputs", &spec.inputs);
    text.push_str("\n\n");
    for node in &spec.nodes {
        print_node(&mut text, node);
        text.push('\n');
    }
    if !spec.nodes.is_empty() {
        text.push('\n');
    }
    print_list(&mut text, "outputs", &spec.outputs);
    text.push('\n');
    if !spec.carries.is_empty() {
        text.push_str("carries");
        print_pairs(&mut text, &spec.carries);
        text.push('\n');
    }
    text
}

fn print_node(text: &mut String, node: &Node) {
    let _ = write!(text, "{} {}", node.phase, Word(&node.name));
    if node.op != node.name {
        let _ = write!(text, " op {}", Word(&node.op));
    }
    let _ = write!(text, " cost {:?}", node.cost);
    if node.workspace_bytes > Bytes::ZERO {
        let _ = write!(text, " workspace {}", node.workspace_bytes.0);
    }
    for (word, list) in [("reads", &node.inputs), ("makes", &node.outputs), ("consumes", &node.consumes)] {
        if !list.is_empty() {
            text.push(' ');
            print_list(text, word, list);
        }
    }
    if !node.reuse.is_empty() {
        text.push_str(" reuse");
        print_pairs(text, &node.reuse);
    }
    if !node.recompute {
        text.push_str(" once");
    }
    if let Some(module) = &node.module {
        let _ = write!(text, " module {}", Word(module));
    }
}

fn print_list(text: &mut String, word: &str, values: &[ValueId]) {
    text.push_str(word);
    for value in values {
        let _ = write!(text, " %{value}");
    }
}

fn print_pairs(text: &mut String, pairs: &[(ValueId, ValueId)]) {
    for (input, output) in pairs {
        let _ = write!(text, " %{input}>%{output}");
    }
}
