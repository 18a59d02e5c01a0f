//! The text form of a problem: one line per value and per node. What is printed parses back to an equal problem.

use crate::ids::ValueId;
use crate::lines::{Line, TextError, Word, lines};
use crate::problem::{PROBLEM_SCHEMA, Problem, ProblemError};
use crate::spec::{Node, Phase, ProblemSpec, Value};
use crate::units::Bytes;
use std::fmt::Write as _;

const KEYWORDS: [(&str, Keyword); 9] = [
    ("name", Keyword::Name),
    ("cost_unit", Keyword::CostUnit),
    ("fixed_bytes", Keyword::FixedBytes),
    ("value", Keyword::Value),
    ("inputs", Keyword::Inputs),
    ("forward", Keyword::Node(Phase::Forward)),
    ("backward", Keyword::Node(Phase::Backward)),
    ("optimizer", Keyword::Node(Phase::Optimizer)),
    ("outputs", Keyword::Outputs),
];

#[derive(Clone, Copy)]
enum Keyword {
    Name,
    CostUnit,
    FixedBytes,
    Value,
    Inputs,
    Node(Phase),
    Outputs,
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
    /// Reads the text form of `remat.problem/1`.
    pub fn from_text(text: &str) -> Result<Problem, ProblemError> {
        Problem::new(parse(text)?)
    }

    /// Writes the text form of `remat.problem/1`.
    pub fn to_text(&self) -> String {
        print(self.spec())
    }
}

fn parse(text: &str) -> Result<ProblemSpec, TextError> {
    let mut spec = ProblemSpec {
        name: String::new(),
        cost_unit: "s".to_string(),
        fixed_bytes: Bytes::ZERO,
        values: Vec::new(),
        inputs: Vec::new(),
        nodes: Vec::new(),
        outputs: Vec::new(),
    };
    let mut lines = lines(text);
    header(&mut lines, PROBLEM_SCHEMA)?;
    for mut line in lines {
        match line.one_of("the beginning of a line", &KEYWORDS)? {
            Keyword::Name => spec.name = line.word("a name")?,
            Keyword::CostUnit => spec.cost_unit = line.word("a unit")?,
            Keyword::FixedBytes => spec.fixed_bytes = line.bytes("a number of bytes")?,
            Keyword::Value => spec.values.push(value(&mut line, spec.values.len())?),
            Keyword::Inputs => spec.inputs.extend(line.values()?),
            Keyword::Outputs => spec.outputs.extend(line.values()?),
            Keyword::Node(phase) => spec.nodes.push(node(&mut line, phase)?),
        }
        line.end()?;
    }
    Ok(spec)
}

/// The first line must name the format.
pub(super) fn header<'a>(lines: &mut impl Iterator<Item = Line<'a>>, schema: &str) -> Result<(), TextError> {
    let advice = format!("begin the file with the line {schema}");
    let Some(mut line) = lines.next() else {
        return Err(TextError { line: 1, what: "the file is empty".to_string(), advice });
    };
    let start = line.clone();
    if line.word("the format")? != schema {
        return Err(start.error("the first line does not name the format", advice));
    }
    line.end()
}

fn value(line: &mut Line<'_>, n_before: usize) -> Result<Value, TextError> {
    let start = line.clone();
    let id = line.value()?;
    if id.index() != n_before {
        let what = format!("value %{id} is out of order");
        return Err(start.error(what, format!("values are numbered from %0 on; the next one is %{n_before}")));
    }
    let bytes = line.bytes("a number of bytes")?;
    Ok(Value { name: line.word("the name of the value")?, bytes })
}

fn node(line: &mut Line<'_>, phase: Phase) -> Result<Node, TextError> {
    let name = line.word("the name of the node")?;
    let mut node = Node {
        op: name.clone(),
        name,
        phase,
        cost: 0.0,
        workspace_bytes: Bytes::ZERO,
        inputs: Vec::new(),
        outputs: Vec::new(),
        recompute: true,
        consumes: Vec::new(),
        reuse: Vec::new(),
        module: None,
    };
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

fn print(spec: &ProblemSpec) -> String {
    let mut text = format!("{PROBLEM_SCHEMA}\nname {}\n", Word(&spec.name));
    let _ = writeln!(text, "cost_unit {}\nfixed_bytes {}\n", Word(&spec.cost_unit), spec.fixed_bytes.0);
    for (i, value) in spec.values.iter().enumerate() {
        let _ = writeln!(text, "value %{i} {} {}", value.bytes.0, Word(&value.name));
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
        for (input, output) in &node.reuse {
            let _ = write!(text, " %{input}>%{output}");
        }
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
