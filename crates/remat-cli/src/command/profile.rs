//! `remat profile`: where the time and the memory of a training step go when nothing is recomputed.

use super::profile_check::Check;
use super::profile_swap::Swap;
use crate::answer::Answer;
use crate::draw::{byte_unit, memory_over_ranks, time_unit, top_bars};
use crate::environment::Environment;
use crate::flags::{CostKind, Model, StepFlags, model_parser};
use crate::folder::Folder;
use crate::format::{Align, count, facts, seconds, share, table};
use crate::output::{Output, Paint, Report};
use anyhow::Result;
use clap::Args;
use remat::graph::{Kind, Phase};
use remat::ids::NodeId;
use remat::pipeline::Prepared;
use remat::report::{self, ActivationRow, ModuleRow, Timeline, Timelines};
use remat_plan::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Shows where the time and the memory of a training step go.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// How many nodes the lists show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Also run this many steps, and show the predicted and the measured time of every kind of op.
    #[arg(long, value_name = "N")]
    check: Option<NonZeroUsize>,
    /// Write tables (CSV), plots (SVG and PNG), the timeline and traces into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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
    modules: Vec<ModuleRow>,
    ops: Vec<OpRow>,
    slowest: Vec<NodeRow>,
    largest: Vec<NodeRow>,
    /// What moving activations would take, with a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<Swap>,
    /// The profile held against real steps, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
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
    op: String,
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
        let mut folder = self.out.as_deref().map(Folder::create).transpose()?;
        let model = self.step.build(&self.model, CostKind::Measured)?;
        let prepared = model.prepare()?;
        let mut report = Profile::of(&model, &prepared, self.top);
        let check = |n: NonZeroUsize| Check::run(&model, &prepared, n.get(), report.step_seconds);
        report.check = self.check.map(check).transpose()?;
        if let Some(folder) = &mut folder {
            write_files(folder, &report, &prepared)?;
        }
        out.report(&report)?;
        if let Some(folder) = folder.filter(|_| !out.is_json()) {
            out.text(&folder.summary())?;
        }
        Ok(Answer::Yes)
    }
}

/// How many bars a plot shows.
const BARS: usize = 20;

fn write_files(folder: &mut Folder, profile: &Profile, prepared: &Prepared) -> Result<()> {
    let (nodes, activations) = (report::nodes(prepared), report::activations(prepared));
    folder.csv("profiler_stats_node_stats.csv", &nodes)?;
    folder.csv("profiler_stats_activation_stats.csv", &activations)?;
    folder.csv("module_stats.csv", &profile.modules)?;
    folder.json("environment.json", &Environment::now())?;
    folder.json("profile.json", profile)?;
    let timeline = Timeline::predicted(&prepared.keep_all, &prepared.seconds);
    let title = format!("{}: memory over the step, everything kept", profile.model);
    folder.picture("memory_timeline", &memory_over_ranks(&title, &timeline, None)?)?;
    let times: Vec<_> = nodes.iter().map(|n| (n.node_name.clone(), n.median_run_time_s)).collect();
    folder.picture("node_run_time", &top_times("slowest nodes", times)?)?;
    let peaks: Vec<_> = nodes.iter().map(|n| (n.node_name.clone(), n.median_peak_mem_bytes)).collect();
    folder.picture("node_peak_memory", &top_bytes("memory in use while a node runs", peaks)?)?;
    let size = |a: &ActivationRow| (a.activation_name.clone(), a.median_mem_size_bytes);
    let sizes: Vec<_> = activations.iter().map(size).collect();
    folder.picture("activation_size", &top_bytes("largest activations", sizes)?)?;
    let idle: Vec<_> = activations.iter().map(|a| (a.activation_name.clone(), a.inactive_time_s)).collect();
    folder.picture("activation_inactive_time", &top_times("longest idle activations", idle)?)?;
    folder.write("trace.json", report::chrome_trace(&timeline, profile.model))?;
    let snapshot = report::memory_snapshot(&timeline, prepared.keep_all.peak().0);
    folder.write("memory_snapshot.pickle", snapshot)?;
    folder.json("timeline.json", &Timelines::keep_all(profile.model, timeline))
}

fn top_times(what: &str, rows: Vec<(String, f64)>) -> Result<crate::draw::Picture> {
    let (unit, scale) = time_unit(rows.iter().map(|row| row.1).fold(0.0, f64::max));
    let rows = rows.into_iter().map(|(name, time)| (name, time / scale)).collect();
    top_bars(&format!("{what} (top {BARS})"), &format!("time ({unit})"), &largest(rows))
}

fn top_bytes(what: &str, rows: Vec<(String, Bytes)>) -> Result<crate::draw::Picture> {
    let (unit, scale) = byte_unit(rows.iter().map(|row| row.1).max().unwrap_or(Bytes(0)));
    let rows = rows.into_iter().map(|(name, bytes)| (name, bytes.0 as f64 / scale)).collect();
    top_bars(&format!("{what} (top {BARS})"), &format!("memory ({unit})"), &largest(rows))
}

fn largest(mut rows: Vec<(String, f64)>) -> Vec<(String, f64)> {
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    rows.truncate(BARS);
    rows
}

impl Profile {
    fn of(model: &Model, prepared: &Prepared, top: usize) -> Profile {
        let graph = &prepared.step.graph;
        let timeline = Timeline::predicted(&prepared.keep_all, &prepared.seconds);
        let nodes: Vec<NodeId> = prepared.problem.node_of.clone();
        let mut by_time: Vec<NodeRow> = nodes.iter().map(|&id| node_row(prepared, id)).collect();
        let mut by_memory = by_time.clone();
        by_time.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        by_memory.sort_by_key(|row| std::cmp::Reverse(row.output_bytes + row.workspace_bytes));
        by_time.truncate(top);
        by_memory.truncate(top);
        let stores = model.stores.iter().map(ToString::to_string).collect();
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
            peak: timeline.peak().map(|(run, total)| Peak::of(&timeline, run, total)),
            phases: phase_rows(prepared, &nodes, &timeline),
            modules: report::modules(prepared),
            ops: op_rows(prepared, &nodes),
            slowest: by_time,
            largest: by_memory,
            swap: Swap::of(stores, &report::activations(prepared)),
            check: None,
        }
    }
}

impl Peak {
    fn of(timeline: &Timeline, run: usize, total_bytes: Bytes) -> Peak {
        let of_kind =
            |kind: Kind| timeline.live_at(run).iter().filter(|l| l.kind == kind).map(|l| l.bytes).sum();
        let kinds = Kind::ALL.iter().map(|&kind| (kind.name(), of_kind(kind)));
        Peak {
            node: timeline.runs[run].node.clone(),
            total_bytes,
            by_kind_bytes: kinds
                .chain([("workspace", timeline.runs[run].workspace_bytes)])
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
        workspace_bytes: prepared.keep_all.schedule().workspace_bytes(id),
    }
}

fn output_bytes(prepared: &Prepared, id: NodeId) -> Bytes {
    let graph = &prepared.step.graph;
    graph.nodes[id].outputs.iter().map(|&v| graph.values[v].ty.buffer_bytes()).sum()
}

fn phase_rows(prepared: &Prepared, nodes: &[NodeId], timeline: &Timeline) -> Vec<PhaseRow> {
    let totals = timeline.total_bytes();
    let row = |phase: Phase| {
        let of_phase = || nodes.iter().filter(|&&id| prepared.step.graph.nodes[id].phase == phase);
        let runs = timeline.runs.iter().zip(&totals).filter(|(run, _)| run.phase == phase);
        PhaseRow {
            phase,
            n_nodes: of_phase().count(),
            seconds: of_phase().map(|&id| prepared.seconds[id]).sum(),
            peak_bytes: runs.map(|(_, &bytes)| bytes).max().unwrap_or(Bytes(0)),
        }
    };
    [Phase::Forward, Phase::Backward, Phase::Optimizer].map(row).into()
}

/// Totals of each kind of op, the slowest first.
fn op_rows(prepared: &Prepared, nodes: &[NodeId]) -> Vec<OpRow> {
    let mut by_op: BTreeMap<String, OpRow> = BTreeMap::new();
    for &id in nodes {
        let op = prepared.step.graph.nodes[id].op.label();
        let row =
            by_op.entry(op.clone()).or_insert(OpRow { op, n_nodes: 0, seconds: 0.0, output_bytes: Bytes(0) });
        row.n_nodes += 1;
        row.seconds += prepared.seconds[id];
        row.output_bytes += output_bytes(prepared, id);
    }
    let mut rows: Vec<OpRow> = by_op.into_values().collect();
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    rows
}

impl Report for Profile {
    const SCHEMA: &'static str = "remat.profile/2";

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
        text += &format!("\n{}\n", paint.heading("modules"));
        text += &self.module_table();
        text += &format!("\n{}\n", paint.heading("ops"));
        text += &self.op_table();
        text += &format!("\n{}\n", paint.heading("slowest nodes"));
        text += &self.node_table(&self.slowest);
        text += &format!("\n{}\n", paint.heading("nodes that make the most memory"));
        text += &self.node_table(&self.largest);
        if let Some(swap) = &self.swap {
            text += &format!("\n{}\n{}", paint.heading("moving"), swap.text());
        }
        text + &self.check.as_ref().map_or_else(String::new, |check| check.text(paint))
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

    fn module_table(&self) -> String {
        let columns = [
            ("module", Align::Left),
            ("nodes", Align::Right),
            ("time", Align::Right),
            ("share", Align::Right),
            ("parameters", Align::Right),
            ("at the peak", Align::Right),
        ];
        let row = |row: &ModuleRow| {
            vec![
                row.module.clone(),
                count(row.n_nodes),
                seconds(row.seconds),
                share(row.seconds, self.step_seconds),
                row.parameter_bytes.to_string(),
                row.bytes_at_peak.to_string(),
            ]
        };
        table(&columns, self.modules.iter().map(row))
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
                row.op.clone(),
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
