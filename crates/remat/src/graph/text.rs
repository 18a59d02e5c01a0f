//! The text form: one line per source, node and output; what is printed parses back to an equal graph.
//!
//! ```text
//! graph "mlp"
//! %0: f32[4,8] = input "input" "batch"
//! %1: f32[8,8] = parameter "fc1.weight" {"uniform":0.35}
//! %2: f32[4,8] = linear {} %0 %1 @fc1 forward
//! output %2
//! ```
//! A source line ends with `conv_weight` when weight files order its elements differently; a node line ends with
//! `of nK` when it recomputes node `K`. Ids stand in the order of the lines.

use super::{FileLayout, Graph, Init, Kind, Node, Op, Phase, Source, Type};
use crate::error::{Error, Result};
use crate::ids::{Id, NodeId, ValueId};
use remat_plan::Shown;
use std::fmt::Write as _;

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
    }
}

/// Makes the op of a name from its attributes, or says what is wrong with them.
pub(crate) type ReadOp<'a> = dyn Fn(&str, serde_json::Value) -> std::result::Result<Op, String> + 'a;

impl Graph {
    /// Prints the graph.
    pub fn to_text(&self) -> String {
        // As JSON, which is how names are read.
        let quoted = |name: &str| serde_json::to_string(name).expect("a name is plain data");
        let mut text = format!("graph {}\n", quoted(&self.name));
        let mut sources = self.sources.iter().peekable();
        let print_source = |text: &mut String, source: &Source| {
            let value = &self.values[source.value];
            let init = serde_json::to_string(&source.init).expect("an init is plain data");
            let _ = write!(
                text,
                "{}: {} = {} {} {init}",
                source.value,
                value.ty,
                value.kind.name(),
                quoted(&source.name)
            );
            text.push_str(if source.file_layout == FileLayout::ConvWeight { " conv_weight\n" } else { "\n" });
        };
        for node in self.nodes.iter() {
            let first = node.outputs.first().copied();
            while let Some(source) = sources.next_if(|s| first.is_some_and(|v| s.value < v)) {
                print_source(&mut text, source);
            }
            text.push_str(&self.node_text(node));
            text.push('\n');
        }
        sources.for_each(|source| print_source(&mut text, source));
        for v in &self.outputs {
            let _ = writeln!(text, "output {v}");
        }
        text
    }

    /// The line of one node, without its end.
    pub fn node_text(&self, node: &Node) -> String {
        let outputs: Vec<String> =
            node.outputs.iter().map(|&v| format!("{v}: {}", self.values[v].ty)).collect();
        let mut text = format!("{} = {} {}", outputs.join(", "), node.op.name(), node.op.attributes());
        for v in &node.inputs {
            let _ = write!(text, " {v}");
        }
        let _ = write!(text, " @{} {}", node.scope, phase_name(node.phase));
        if let Some(origin) = node.origin {
            let _ = write!(text, " of {origin}");
        }
        text
    }

    /// Reads the text form; `read_op` knows the ops. See [`Graph::from_text`] for those of this crate.
    pub(crate) fn from_text_with(text: &str, read_op: &ReadOp<'_>) -> Result<Graph> {
        let mut graph = Graph::default();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let fail = |message: String| Error::Parse { line: line_number, message };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix("graph ") {
                graph.name = serde_json::from_str(name).map_err(|e| fail(format!("the name: {e}")))?;
                Shown::make(&mut graph.name);
            } else if let Some(value) = line.strip_prefix("output ") {
                let value = parse_value(value, &graph).map_err(fail)?;
                graph.push_output(value);
            } else {
                parse_definition(line, &mut graph, read_op).map_err(fail)?;
            }
        }
        let faults = graph.verify();
        if faults.is_empty() {
            Ok(graph)
        } else {
            let sentences: Vec<String> =
                faults.iter().map(|fault| fault.with_names(&graph).to_string()).collect();
            Err(Error::Parse { line: text.lines().count(), message: sentences.join("; ") })
        }
    }
}

fn parse_id(text: &str, prefix: char) -> std::result::Result<usize, String> {
    let digits = text.strip_prefix(prefix).ok_or_else(|| format!("expected {prefix}ID, found `{text}`"))?;
    match digits.parse::<u32>() {
        Ok(id) => Ok(id as usize),
        Err(_) => Err(format!("`{text}` is not an id")),
    }
}

fn parse_value(text: &str, graph: &Graph) -> std::result::Result<ValueId, String> {
    let index = parse_id(text.trim(), '%')?;
    if index < graph.values.len() {
        Ok(ValueId::new(index))
    } else {
        Err(format!("%{index} is not defined yet"))
    }
}

fn parse_definition(line: &str, graph: &mut Graph, read_op: &ReadOp<'_>) -> std::result::Result<(), String> {
    let (left, right) = line.split_once(" = ").ok_or("expected `%ID: TYPE = OP ...`")?;
    let mut declared = Vec::new();
    for part in left.split(", ") {
        let (id, ty) =
            part.split_once(": ").ok_or_else(|| format!("expected `%ID: TYPE`, found `{part}`"))?;
        let expected = graph.values.len() + declared.len();
        if parse_id(id, '%')? != expected {
            return Err(format!("values are numbered in order: expected %{expected}, found {id}"));
        }
        declared.push(ty.parse::<Type>()?);
    }
    let (word, rest) = right.split_once(' ').ok_or("expected an op and its operands")?;
    match Kind::ALL.into_iter().find(|k| k.name() == word) {
        Some(kind) if kind.is_of_sources() => parse_source(kind, declared, rest, graph),
        Some(kind) => Err(format!("only a node makes values of the kind {}", kind.name())),
        None => parse_node(word, declared, rest, graph, read_op),
    }
}

fn parse_source(
    kind: Kind,
    mut types: Vec<Type>,
    rest: &str,
    graph: &mut Graph,
) -> std::result::Result<(), String> {
    let mut tokens = serde_json::Deserializer::from_str(rest).into_iter::<serde_json::Value>();
    let name = match tokens.next() {
        Some(Ok(serde_json::Value::String(name))) => Shown(&name).to_string(),
        _ => return Err("a source needs a quoted name".into()),
    };
    let init = tokens.next().ok_or("a source needs an init")?.map_err(|e| e.to_string())?;
    let init: Init = serde_json::from_value(init).map_err(|e| format!("init: {e}"))?;
    if let Init::Constant(x) | Init::Uniform(x) | Init::Normal(x) = init
        && !x.is_finite()
    {
        return Err("init: the number is too large".into());
    }
    let file_layout = match rest[tokens.byte_offset()..].trim() {
        "" => FileLayout::Same,
        "conv_weight" => FileLayout::ConvWeight,
        other => return Err(format!("unexpected `{other}`")),
    };
    match types.pop() {
        Some(ty) if types.is_empty() => {
            graph.push_source(name, kind, ty, init, file_layout);
            Ok(())
        }
        _ => Err("a source defines one value".into()),
    }
}

fn parse_node(
    op: &str,
    declared: Vec<Type>,
    rest: &str,
    graph: &mut Graph,
    read_op: &ReadOp<'_>,
) -> std::result::Result<(), String> {
    let mut tokens = serde_json::Deserializer::from_str(rest).into_iter::<serde_json::Value>();
    let attributes =
        tokens.next().ok_or("an op needs attributes, at least {}")?.map_err(|e| e.to_string())?;
    let rest = &rest[tokens.byte_offset()..];
    let (name, op) = (op, read_op(op, attributes)?);
    // A number that is too large for its attribute is printed as none.
    if read_op(name, op.attributes()).is_err() {
        return Err(format!("an attribute of {name} is too large"));
    }
    let (operands, tail) = rest.split_once('@').ok_or("expected `@SCOPE PHASE`")?;
    let inputs: Vec<ValueId> =
        operands.split_whitespace().map(|v| parse_value(v, graph)).collect::<std::result::Result<_, _>>()?;
    let mut words = tail.split(' ');
    let scope = Shown(words.next().unwrap_or("")).to_string();
    let phase = match words.next() {
        Some("forward") => Phase::Forward,
        Some("backward") => Phase::Backward,
        Some("optimizer") => Phase::Optimizer,
        other => return Err(format!("expected a phase, found `{}`", other.unwrap_or(""))),
    };
    let origin = match (words.next(), words.next(), words.next()) {
        (None, None, None) => None,
        (Some("of"), Some(node), None) => Some(NodeId::new(parse_id(node, 'n')?)),
        _ => return Err("unexpected words after the phase".into()),
    };
    let node = graph.push_node(op, &inputs, phase, &scope).map_err(|e| e.to_string())?;
    if !graph.output_types(&graph.nodes[node]).into_iter().eq(&declared) {
        return Err("the declared types differ from the op's type rule".into());
    }
    graph.nodes[node].origin = origin;
    Ok(())
}
