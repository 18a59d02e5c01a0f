//! Graphviz output: nodes as boxes coloured by phase, recomputes dashed, edges labelled with types.

use super::{Graph, Phase};
use std::fmt::Write as _;

impl Graph {
    /// The graph in DOT, for Graphviz and viewers that read it.
    pub fn to_dot(&self) -> String {
        let mut dot = format!(
            "digraph {:?} {{\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n",
            self.name
        );
        for source in &self.sources {
            let value = &self.values[source.value];
            let _ = writeln!(
                dot,
                "  v{} [label={:?}, shape=ellipse, fillcolor=\"#eeeeee\"];",
                &source.value.to_string()[1..],
                format!("{}\n{} {}", source.name, value.kind.name(), value.ty)
            );
        }
        for (id, node) in self.nodes.enumerate() {
            let colour = match node.phase {
                Phase::Forward => "#d6e8fa",
                Phase::Backward => "#fbe3cc",
                Phase::Optimizer => "#dcefd8",
            };
            let style = if node.origin.is_some() { "filled,dashed" } else { "filled" };
            let label = match node.origin {
                Some(origin) => format!("{}\n{}\nrecomputes {origin}", node.op.name(), node.scope),
                None => format!("{}\n{}", node.op.name(), node.scope),
            };
            let _ = writeln!(dot, "  {id} [label={label:?}, style={style:?}, fillcolor={colour:?}];");
            for &v in &node.inputs {
                let value = &self.values[v];
                let from = match value.producer {
                    Some((producer, _)) => producer.to_string(),
                    None => format!("v{}", &v.to_string()[1..]),
                };
                let _ = writeln!(dot, "  {from} -> {id} [label={:?}];", value.ty.to_string());
            }
        }
        dot.push_str("}\n");
        dot
    }
}
