//! The commands, one file each: the flags, what they do, and the report they make.

mod check;
mod compare;
mod compare_moved;
mod completions;
mod doctor;
mod explain;
mod frontier;
mod generate;
mod graph;
mod losses;
mod max_batch;
mod models;
mod plan;
mod predict;
mod profile;
mod profile_check;
mod profile_swap;
mod report;
mod sweep;
mod train;

use crate::answer::Answer;
use crate::output::Output;
use anyhow::Result;
use clap::Subcommand;

/// A command with its flags, in the order of a first acquaintance.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Models(models::Flags),
    Compare(compare::Flags),
    Train(Box<train::Flags>),
    Generate(generate::Flags),
    Predict(predict::Flags),
    Profile(profile::Flags),
    Plan(plan::Flags),
    Explain(explain::Flags),
    Frontier(frontier::Flags),
    Sweep(sweep::Flags),
    MaxBatch(max_batch::Flags),
    Losses(losses::Flags),
    Report(report::Flags),
    Check(check::Flags),
    Graph(graph::Flags),
    Doctor(doctor::Flags),
    Completions(completions::Flags),
}

impl Command {
    /// Runs the command; `whole` is the command line that it is part of.
    pub(crate) fn run(&self, out: &mut Output, whole: clap::Command) -> Result<Answer> {
        match self {
            Command::Models(flags) => flags.run(out),
            Command::Compare(flags) => flags.run(out),
            Command::Train(flags) => flags.run(out),
            Command::Generate(flags) => flags.run(out),
            Command::Predict(flags) => flags.run(out),
            Command::Profile(flags) => flags.run(out),
            Command::Plan(flags) => flags.run(out),
            Command::Explain(flags) => flags.run(out),
            Command::Frontier(flags) => flags.run(out),
            Command::Sweep(flags) => flags.run(out),
            Command::MaxBatch(flags) => flags.run(out),
            Command::Losses(flags) => flags.run(out),
            Command::Report(flags) => flags.run(out),
            Command::Check(flags) => flags.run(out),
            Command::Graph(flags) => flags.run(out),
            Command::Doctor(flags) => flags.run(out),
            Command::Completions(flags) => flags.run(out, whole),
        }
    }
}
