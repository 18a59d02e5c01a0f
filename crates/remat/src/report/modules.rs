//! The step by module: time, kept bytes and parameters of each block, identical neighbours folded into one row.
//!
//! A block is a module path up to and including its first number (`layer3.12`, `encoder.layers.0`), or its first name
//! when it has no number. Neighbours `0, 1, 2, ...` under one parent are folded when their nodes are the same ops on
//! the same types in the same order, so twelve equal layers are one row, `layers.0-11 (×12)`. O(nodes + values).

use crate::graph::{Graph, Kind};
use crate::pipeline::Prepared;
use crate::report::Timeline;
use remat_plan::{Bytes, Phase};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// One block, or several equal ones.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModuleRow {
    /// Path, with the range of numbers when several are folded.
    pub module: String,
    /// How many equal blocks the row stands for.
    pub n_blocks: usize,
    /// Nodes of all of them, over the whole step.
    pub n_nodes: usize,
    /// Seconds of all of them, over the whole step.
    pub seconds: f64,
    /// Bytes of their parameters.
    pub parameter_bytes: Bytes,
    /// Bytes of their values, parameters not counted, that are in use at the peak.
    pub bytes_at_peak: Bytes,
}

/// The blocks in order of first execution.
pub fn modules(prepared: &Prepared) -> Vec<ModuleRow> {
    let graph = &prepared.step.graph;
    let mut blocks = Blocks::default();
    for &id in &prepared.problem.node_of {
        let node = &graph.nodes[id];
        let block = blocks.of(&node.scope);
        block.n_nodes += 1;
        block.seconds += prepared.seconds[id];
        if node.phase == Phase::Forward {
            let types: Vec<String> = graph.output_types(node).iter().map(ToString::to_string).collect();
            block.signature.push(format!("{} {}", node.op.name(), types.join(" ")));
        }
    }
    add_memory(&mut blocks, prepared, graph);
    blocks.folded()
}

fn add_memory(blocks: &mut Blocks, prepared: &Prepared, graph: &Graph) {
    for source in graph.sources.iter().filter(|s| graph.values[s.value].kind == Kind::Parameter) {
        let module = source.name.rsplit_once('.').map_or(source.name.as_str(), |(module, _)| module);
        blocks.of(module).parameter_bytes += graph.values[source.value].ty.buffer_bytes();
    }
    let timeline = Timeline::predicted(&prepared.keep_all, &prepared.seconds);
    let Some((peak, _)) = timeline.peak() else { return };
    for life in timeline.live_at(peak).into_iter().filter(|life| !life.module.is_empty()) {
        if !life.kind.is_state() {
            blocks.of(&life.module).bytes_at_peak += life.bytes;
        }
    }
}

#[derive(Default)]
struct Block {
    n_nodes: usize,
    seconds: f64,
    parameter_bytes: Bytes,
    bytes_at_peak: Bytes,
    /// What makes two blocks equal: the forward nodes with the types they make.
    signature: Vec<String>,
}

#[derive(Default)]
struct Blocks {
    in_order: Vec<(Path, Block)>,
    index: HashMap<Path, usize>,
}

/// The path of a block: parent and number, or a name alone.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Path {
    parent: String,
    number: Option<usize>,
}

impl Path {
    fn of(module: &str) -> Path {
        let mut parent: Vec<&str> = Vec::new();
        for part in module.split('.') {
            if let Ok(number) = part.parse::<usize>() {
                return Path { parent: parent.join("."), number: Some(number) };
            }
            parent.push(part);
        }
        Path { parent: parent.first().copied().unwrap_or("").to_owned(), number: None }
    }
}

impl Blocks {
    fn of(&mut self, module: &str) -> &mut Block {
        let path = Path::of(module);
        let at = *self.index.entry(path.clone()).or_insert_with(|| {
            self.in_order.push((path, Block::default()));
            self.in_order.len() - 1
        });
        &mut self.in_order[at].1
    }

    /// Joins each block to the row of its left neighbour when the two are equal.
    fn folded(self) -> Vec<ModuleRow> {
        let mut rows: Vec<Row> = Vec::new();
        // The row that a parent's blocks were last added to.
        let mut open: BTreeMap<String, usize> = BTreeMap::new();
        for (path, block) in self.in_order {
            let neighbour = open.get(&path.parent).copied().filter(|&at| {
                let row: &Row = &rows[at];
                path.number.is_some()
                    && row.last.map(|last| last + 1) == path.number
                    && row.signature == block.signature
            });
            match neighbour {
                Some(at) => rows[at].add(path.number, &block),
                None => {
                    open.insert(path.parent.clone(), rows.len());
                    rows.push(Row::of(path, block));
                }
            }
        }
        rows.into_iter().map(Row::finish).collect()
    }
}

struct Row {
    parent: String,
    first: Option<usize>,
    last: Option<usize>,
    signature: Vec<String>,
    row: ModuleRow,
}

impl Row {
    fn of(path: Path, block: Block) -> Row {
        let row = ModuleRow {
            module: String::new(),
            n_blocks: 1,
            n_nodes: block.n_nodes,
            seconds: block.seconds,
            parameter_bytes: block.parameter_bytes,
            bytes_at_peak: block.bytes_at_peak,
        };
        Row { parent: path.parent, first: path.number, last: path.number, signature: block.signature, row }
    }

    fn add(&mut self, number: Option<usize>, block: &Block) {
        self.last = number;
        self.row.n_blocks += 1;
        self.row.n_nodes += block.n_nodes;
        self.row.seconds += block.seconds;
        self.row.parameter_bytes += block.parameter_bytes;
        self.row.bytes_at_peak += block.bytes_at_peak;
    }

    fn finish(self) -> ModuleRow {
        let dot = if self.parent.is_empty() { "" } else { "." };
        let module = match (self.first, self.last) {
            (Some(first), Some(last)) if first < last => {
                format!("{}{dot}{first}-{last} (×{})", self.parent, self.row.n_blocks)
            }
            (Some(first), _) => format!("{}{dot}{first}", self.parent),
            _ => self.parent,
        };
        ModuleRow { module, ..self.row }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Options, find};
    use crate::pipeline::{Costs, prepare};
    use crate::profile::Machine;

    fn rows(name: &str, options: &Options) -> Vec<ModuleRow> {
        let info = find(name).unwrap();
        let forward = info.build(options).unwrap();
        let costs = Costs::Analytic(Machine::nominal(1));
        modules(&prepare(forward.graph(), &info.optimizer, costs, |_, _| {}).unwrap())
    }

    #[test]
    fn equal_layers_are_one_row_and_nothing_is_lost() {
        let options = Options::new().with("layers", 5).with("dim", 16).with("heads", 2).with("ff", 32);
        let options = options.with("vocab", 40).with("seq", 8).with("batch", 2);
        let rows = rows("transformer", &options);
        let names: Vec<&str> = rows.iter().map(|r| r.module.as_str()).collect();
        assert!(names.contains(&"encoder.layers.0-4 (×5)"), "{names:?}");
        let folded = rows.iter().find(|r| r.n_blocks == 5).unwrap();
        assert!(folded.parameter_bytes > Bytes(0) && folded.seconds > 0.0);
    }

    #[test]
    fn a_block_that_changes_the_shape_has_a_row_of_its_own() {
        let rows = rows("resnet50", &Options::new().with("batch", 2).with("image", 64));
        let names: Vec<&str> = rows.iter().map(|r| r.module.as_str()).collect();
        for name in ["layer1.0", "layer1.1-2 (×2)", "layer3.1-5 (×5)"] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
    }
}
