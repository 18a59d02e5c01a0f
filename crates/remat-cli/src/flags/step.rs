//! What decides the training step of a model: its options, its optimizer, and where costs come from.

use super::ModelOptions;
use crate::progress::Progress;
use crate::{speeds, threads};
use anyhow::Result;
use clap::{Args, ValueEnum};
use remat::graph::Graph;
use remat::model::{self, ModelInfo};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Prepared, prepare, prepare_step};
use remat::profile::Machine;
use remat::step::training_step;
use remat::store::{Kind, Setup};
use std::num::NonZeroUsize;

/// Flags of commands that look at a model's training step.
#[derive(Clone, PartialEq, Debug, Args)]
pub(crate) struct StepFlags {
    #[command(flatten)]
    options: ModelOptions,
    #[command(flatten)]
    training: TrainingFlags,
}

#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Training step")]
struct TrainingFlags {
    /// The update rule; each model has a default of its own.
    #[arg(long, value_name = "NAME")]
    optimizer: Option<OptimizerKind>,
    /// Learning rate; by default the one of the model's default optimizer.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = parse_learning_rate)]
    lr: Option<f64>,
    /// Where the seconds of each node come from: calculated from the machine's speeds, or each node run alone.
    #[arg(long, value_name = "KIND")]
    cost: Option<CostKind>,
    /// Threads that kernels use; by default as many as the machine runs at once. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads::parse)]
    threads: Option<NonZeroUsize>,
    /// Values may also be moved: to a scratch file in this directory, or to memory that the budget does not count (`host`).
    /// Give it twice for two stores.
    #[arg(long, value_name = "DIR|host")]
    store: Vec<Kind>,
    /// Leave every op a node of its own, to see what fusion gains. Results do not depend on it.
    #[arg(long)]
    no_fusion: bool,
}

/// Where costs come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CostKind {
    /// From flops and bytes: quick, and nothing is run.
    Analytic,
    /// Each node alone, several times: takes a while, and is what this machine really does.
    Measured,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OptimizerKind {
    Sgd,
    Adam,
    Adamw,
}

/// A model that was built, with how it is to be trained.
#[derive(Debug)]
pub(crate) struct Model {
    /// Its line in the table.
    pub(crate) info: &'static ModelInfo,
    /// The forward graph.
    pub(crate) forward: Graph,
    /// How parameters are updated.
    pub(crate) optimizer: Optimizer,
    /// Threads for kernels.
    pub(crate) n_threads: usize,
    /// Where costs come from.
    pub(crate) cost: CostKind,
    /// Whether ops are joined.
    pub(crate) fusion: bool,
    /// Where values may be moved to.
    pub(crate) stores: Vec<Kind>,
}

impl StepFlags {
    /// The first flag that was typed, for commands where they make no sense together with another.
    pub(crate) fn first_typed(&self) -> Option<&'static str> {
        let TrainingFlags { optimizer, lr, cost, threads, store, no_fusion } = &self.training;
        let flags = [
            ("optimizer", optimizer.is_some()),
            ("lr", lr.is_some()),
            ("cost", cost.is_some()),
            ("threads", threads.is_some()),
            ("store", !store.is_empty()),
            ("no-fusion", *no_fusion),
        ];
        let option = self.options.typed.first().map(|(name, _)| *name);
        option.or_else(|| flags.into_iter().find(|flag| flag.1).map(|flag| flag.0))
    }

    /// Threads for kernels.
    pub(crate) fn n_threads(&self) -> usize {
        threads::usable(self.training.threads)
    }

    /// One set of flags per combination of the values between commas in model options, each with a name of
    /// all that was typed, so that a sweep can be taken up again with more values.
    pub(crate) fn cases(&self) -> Vec<(String, StepFlags)> {
        let mut cases = vec![(Vec::new(), self.clone())];
        for (index, (name, values)) in self.options.typed.iter().enumerate() {
            let values: Vec<&str> = values.split(',').collect();
            let with = |case: &(Vec<String>, StepFlags), value: &str| {
                let (mut words, mut flags) = case.clone();
                flags.options.typed[index].1 = value.trim().to_owned();
                words.push(format!("{name} {}", value.trim()));
                (words, flags)
            };
            cases = cases
                .iter()
                .flat_map(|case| values.iter().map(|value| with(case, value)).collect::<Vec<_>>())
                .collect();
        }
        let name =
            |words: Vec<String>| if words.is_empty() { "default".to_owned() } else { words.join(", ") };
        cases.into_iter().map(|(words, flags)| (name(words), flags)).collect()
    }

    /// Whether a model option was typed.
    pub(crate) fn has_typed(&self, name: &str) -> bool {
        self.options.typed.iter().any(|(typed, _)| *typed == name)
    }

    /// The same flags with a model option that was not typed.
    pub(crate) fn with_default(&self, name: &'static str, value: usize) -> StepFlags {
        let mut flags = self.clone();
        if !self.has_typed(name) {
            flags.options.typed.push((name, value.to_string()));
        }
        flags
    }

    /// The same flags with another batch size.
    pub(crate) fn with_batch(&self, batch: u64) -> StepFlags {
        let mut flags = self.clone();
        flags.options.typed.retain(|(name, _)| *name != "batch");
        flags.options.typed.push(("batch", batch.to_string()));
        flags
    }

    /// Whether a model option was typed.
    pub(crate) fn has_option(&self, name: &str) -> bool {
        self.options.typed.iter().any(|(typed, _)| *typed == name)
    }

    /// Builds the model. Costs come from `default_cost` unless something else was typed.
    pub(crate) fn build(&self, name: &str, default_cost: CostKind) -> Result<Model> {
        let info = model::find(name)?;
        let forward = info.build(&self.options.options())?.into_graph();
        Ok(Model {
            info,
            forward,
            optimizer: self.optimizer(info.optimizer),
            n_threads: self.n_threads(),
            cost: self.training.cost.unwrap_or(default_cost),
            fusion: !self.training.no_fusion,
            stores: self.training.store.clone(),
        })
    }

    fn optimizer(&self, default: Optimizer) -> Optimizer {
        let learning_rate = self.training.lr.unwrap_or(default.learning_rate);
        match self.training.optimizer {
            None => Optimizer { learning_rate, ..default },
            Some(OptimizerKind::Sgd) => Optimizer::sgd(learning_rate),
            Some(OptimizerKind::Adam) => Optimizer::adam(learning_rate),
            Some(OptimizerKind::Adamw) => Optimizer::adamw(learning_rate),
        }
    }
}

impl Model {
    /// Differentiates and profiles the step.
    pub(crate) fn prepare(&self) -> Result<Prepared> {
        let costs = match self.cost {
            CostKind::Analytic => Costs::Analytic(speeds::load(self.n_threads)?.0),
            CostKind::Measured => Costs::Measured(self.n_threads),
        };
        let prepared = self.prepare_with(costs)?;
        if self.stores.is_empty() {
            return Ok(prepared);
        }
        let speed = |kind: &Kind| Ok((Setup::new(kind.clone()), speeds::of_store(kind, self.n_threads)?.0));
        let stores = self.stores.iter().map(speed).collect::<Result<Vec<_>>>()?;
        Ok(prepared.with_stores(&stores)?)
    }

    /// The same where nothing is planned, so that costs do not matter: nothing is measured.
    pub(crate) fn prepare_without_costs(&self) -> Result<Prepared> {
        self.prepare_with(Costs::Analytic(Machine::nominal(self.n_threads)))
    }

    fn prepare_with(&self, costs: Costs) -> Result<Prepared> {
        let progress = Progress::new("measuring every node", 0);
        let report = |done, of| progress.set(done, of);
        if self.fusion {
            return Ok(prepare(&self.forward, &self.optimizer, costs, report)?);
        }
        Ok(prepare_step(training_step(&self.forward, &self.optimizer)?, costs, report)?)
    }
}

fn parse_learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate >= 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("the learning rate must be a number of at least zero".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_make_every_combination_once() {
        let typed = vec![("batch", "4,8".to_owned()), ("dim", "16".to_owned()), ("seq", "32, 64".to_owned())];
        let training = TrainingFlags {
            optimizer: None,
            lr: None,
            cost: None,
            threads: None,
            store: Vec::new(),
            no_fusion: false,
        };
        let flags = StepFlags { options: ModelOptions { typed }, training };
        let names: Vec<String> = flags.cases().into_iter().map(|case| case.0).collect();
        let expected = ["4, dim 16, seq 32", "4, dim 16, seq 64", "8, dim 16, seq 32", "8, dim 16, seq 64"];
        assert_eq!(names, expected.map(|rest| format!("batch {rest}")));
        let last = &flags.cases()[3].1.options.typed;
        assert_eq!(last[..], [("batch", "8".into()), ("dim", "16".into()), ("seq", "64".into())]);
        assert_eq!(flags.with_batch(3).cases().len(), 2);
    }
}
