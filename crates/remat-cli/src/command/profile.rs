//! `remat profile`: where the time and the memory of a training step go when nothing is recomputed.

use crate::Answer;
use crate::flags::{CostKind, Model, StepFlags, model_parser};
use crate::format::{Align, count, facts, seconds, share, table};
use crate::output::{Output, Paint, Report};
use anyhow::Result;
use clap::Args;
use remat::analysis::{MemoryCurve, MemoryPoint};
use remat::graph::{Kind, Phase};
use remat::ids::NodeId;
use remat::pipeline::Prepared;
use remat_plan::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Shows where the time and the memory of a training step go.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// How many nodes the lists show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    step: StepFlags,
}

#[derive(Serialize)]
struct Profile {
    model: &'static str,
    optimizer: &'static str,
    cost: CostKind,
    threads: usize,
    n_parameters: usize,
    n_nodes: usize,
    step_seconds: f64,
    keep_all_peak_bytes: Bytes,
    floor_bytes: Bytes,
    floor_node: String,
    /// Where memory is highest.
    peak: Option<Peak>,
    phases: Vec<PhaseRow>,
    ops: Vec<OpRow>,
    slowest: Vec<NodeRow>,
    largest: Vec<NodeRow>,
}

#[derive(Serialize)]
struct Peak {
    node: String,
    total_bytes: Bytes,
    by_kind_bytes: BTreeMap<&'static str, Bytes>,
}

#[derive(Serialize)]
struct PhaseRow {
    phase: Phase,
    n_nodes: usize,
    seconds: f64,
    peak_bytes: Bytes,
}

#[derive(Serialize)]
struct OpRow {
    op: &'static str,
    n_nodes: usize,
    seconds: f64,
    output_bytes: Bytes,
}

#[derive(Clone, Serialize)]
struct NodeRow {
    node: String,
    seconds: f64,
    output_bytes: Bytes,
    workspace_bytes: Bytes,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let model = self.step.build(&self.model, CostKind::Measured)?;
        let prepared = model.prepare()?;
        out.report(&Profile::of(&model, &prepared, self.top))?;
        Ok(Answer::Yes)
    }
}

impl Profile {
    fn of(model: &Model, prepared: &Prepared, top: usize) -> Profile {
        let graph = &prepared.step.graph;
        let curve = MemoryCurve::compute(&prepared.keep_all.schedule, &prepared.keep_all.layout);
        let nodes: Vec<NodeId> = prepared.problem.node_of.clone();
        let mut by_time: Vec<NodeRow> = nodes.iter().map(|&id| node_row(prepared, id)).collect();
        let mut by_memory = by_time.clone();
        by_time.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        by_memory.sort_by_key(|row| std::cmp::Reverse(row.output_bytes + row.workspace_bytes));
        by_time.truncate(top);
        by_memory.truncate(top);
        Profile {
            model: model.info.name,
            optimizer: model.optimizer.name(),
            cost: model.cost,
            threads: model.n_threads,
            n_parameters: graph.n_parameters(),
            n_nodes: nodes.len(),
            step_seconds: nodes.iter().map(|&id| prepared.seconds[id]).sum(),
            keep_all_peak_bytes: prepared.keep_all.peak(),
            floor_bytes: prepared.floor.bytes,
            floor_node: prepared.floor.node_name.clone(),
            peak: curve.peak().map(|point| Peak::of(prepared, point)),
            phases: phase_rows(prepared, &nodes, &curve),
            ops: op_rows(prepared, &nodes),
            slowest: by_time,
            largest: by_memory,
        }
    }
}

impl Peak {
    fn of(prepared: &Prepared, point: &MemoryPoint) -> Peak {
        let kinds = Kind::ALL.iter().map(|kind| kind.name()).zip(point.by_kind);
        Peak {
            node: prepared.step.graph.node_name(point.node),
            total_bytes: point.total(),
            by_kind_bytes: kinds
                .chain([("workspace", point.workspace)])
                .filter(|entry| entry.1 > Bytes(0))
                .collect(),
        }
    }
}

fn node_row(prepared: &Prepared, id: NodeId) -> NodeRow {
    NodeRow {
        node: prepared.step.graph.node_name(id),
        seconds: prepared.seconds[id],
        output_bytes: output_bytes(prepared, id),
        workspace_bytes: prepared.keep_all.schedule.workspace_bytes(id),
    }
}

fn output_bytes(prepared: &Prepared, id: NodeId) -> Bytes {
    let graph = &prepared.step.graph;
    graph.nodes[id].outputs.iter().map(|&v| graph.values[v].ty.buffer_bytes()).sum()
}

fn phase_rows(prepared: &Prepared, nodes: &[NodeId], curve: &MemoryCurve) -> Vec<PhaseRow> {
    let row = |phase: Phase| {
        let of_phase = || nodes.iter().filter(|&&id| prepared.step.graph.nodes[id].phase == phase);
        let points = curve.points.iter().filter(|point| point.phase == phase);
        PhaseRow {
            phase,
            n_nodes: of_phase().count(),
            seconds: of_phase().map(|&id| prepared.seconds[id]).sum(),
            peak_bytes: points.map(MemoryPoint::total).max().unwrap_or(Bytes(0)),
        }
    };
    [Phase::Forward, Phase::Backward, Phase::Optimizer].map(row).into()
}

/// Totals of each kind of op, the slowest first.
fn op_rows(prepared: &Prepared, nodes: &[NodeId]) -> Vec<OpRow> {
    let mut by_op: BTreeMap<&'static str, OpRow> = BTreeMap::new();
    for &id in nodes {
        let op = prepared.step.graph.nodes[id].op.name();
        let row = by_op.entry(op).or_insert(OpRow { op, n_nodes: 0, seconds: 0.0, output_bytes: Bytes(0) });
        row.n_nodes += 1;
        row.seconds += prepared.seconds[id];
        row.output_bytes += output_bytes(prepared, id);
    }
    let mut rows: Vec<OpRow> = by_op.into_values().collect();
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    rows
}

impl Report for Profile {
    const SCHEMA: &'static str = "remat.profile/1";

    fn text(&self, paint: Paint) -> String {
        let costs = match self.cost {
            CostKind::Analytic => "calculated",
            CostKind::Measured => "each node measured alone",
        };
        let mut text = format!(
            "{}: {} parameters, {} nodes, {}\n",
            paint.heading(self.model),
            count(self.n_parameters),
            count(self.n_nodes),
            self.optimizer
        );
        text += &facts([
            ("peak without recomputation", self.keep_all_peak_bytes.to_string()),
            ("floor of every plan", format!("{}, set by {}", self.floor_bytes, self.floor_node)),
            ("time of a step", format!("{} ({costs}, {} threads)", seconds(self.step_seconds), self.threads)),
        ]);
        if let Some(peak) = &self.peak {
            text += &format!("\n{} while {} runs\n", paint.heading("memory at the peak"), peak.node);
            let mut kinds: Vec<_> = peak.by_kind_bytes.iter().collect();
            kinds.sort_by_key(|entry| std::cmp::Reverse(entry.1));
            let total = peak.total_bytes.0 as f64;
            let row = |(kind, bytes): (&&str, &Bytes)| {
                vec![kind.to_string(), bytes.to_string(), share(bytes.0 as f64, total)]
            };
            let columns = [("kind", Align::Left), ("bytes", Align::Right), ("share", Align::Right)];
            text += &table(&columns, kinds.into_iter().map(row));
        }
        text += &format!("\n{}\n", paint.heading("phases"));
        text += &self.phase_table();
        text += &format!("\n{}\n", paint.heading("ops"));
        text += &self.op_table();
        text += &format!("\n{}\n", paint.heading("slowest nodes"));
        text += &self.node_table(&self.slowest);
        text += &format!("\n{}\n", paint.heading("nodes that make the most memory"));
        text + &self.node_table(&self.largest)
    }
}

impl Profile {
    fn phase_table(&self) -> String {
        let columns = [
            ("phase", Align::Left),
            ("nodes", Align::Right),
            ("time", Align::Right),
            ("share", Align::Right),
            ("peak", Align::Right),
        ];
        let row = |row: &PhaseRow| {
            let name = format!("{:?}", row.phase).to_lowercase();
            let time_share = share(row.seconds, self.step_seconds);
            vec![name, count(row.n_nodes), seconds(row.seconds), time_share, row.peak_bytes.to_string()]
        };
        table(&columns, self.phases.iter().map(row))
    }

    fn op_table(&self) -> String {
        let columns = [
            ("op", Align::Left),
            ("nodes", Align::Right),
            ("time", Align::Right),
            ("share", Align::Right),
            ("outputs", Align::Right),
        ];
        let row = |row: &OpRow| {
            let time_share = share(row.seconds, self.step_seconds);
            vec![
                row.op.to_owned(),
                count(row.n_nodes),
                seconds(row.seconds),
                time_share,
                row.output_bytes.to_string(),
            ]
        };
        table(&columns, self.ops.iter().map(row))
    }

    fn node_table(&self, rows: &[NodeRow]) -> String {
        let columns = [
            ("node", Align::Left),
            ("time", Align::Right),
            ("share", Align::Right),
            ("outputs", Align::Right),
            ("workspace", Align::Right),
        ];
        let row = |row: &NodeRow| {
            let time_share = share(row.seconds, self.step_seconds);
            let (outputs, workspace) = (row.output_bytes.to_string(), row.workspace_bytes.to_string());
            vec![row.node.clone(), seconds(row.seconds), time_share, outputs, workspace]
        };
        table(&columns, rows.iter().map(row))
    }
}
