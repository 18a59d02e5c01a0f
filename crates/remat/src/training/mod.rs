//! The front door: a model, its data and a number of bytes become a training run.
//!
//! [`Training`] collects what the run is; [`Training::compile`] profiles, plans, rewrites and lays out one whole step
//! and returns a [`Trainer`], which runs it. What does not fit is refused with the smallest budget that would.

mod budget;
mod summary;
mod trainer;

pub use budget::IntoBudget;
pub use summary::PlanSummary;
pub use trainer::Trainer;

use crate::error::{Error, Result};
use crate::nn::Model;
use crate::optimizer::Optimizer;
use crate::pipeline::{Costs, Fit, Prepared, Program, compile, prepare};
use crate::profile::{Machine, StoreSpeed};
use crate::store::{Kind, Setup};
use crate::train::{Dataset, LearningRate, Synthetic};
use remat_plan::{Budget, Request};
use std::path::Path;
use std::time::Duration;

/// What a run is to be. Every setting has a default.
///
/// ```
/// use remat::prelude::*;
///
/// let model = Model::build("two layers", |g| {
///     let x = g.input("input", [64, 784]);
///     x.linear("fc1", 256).relu().linear("fc2", 10).cross_entropy(g.labels("labels", [64], 10))
/// })?;
/// let mut training = Training::new(model).optimizer(adam(1e-3)).budget("4MiB").machine(Machine::nominal(2)).compile()?;
/// for step in training.steps(3) {
///     let step = step?;
///     println!("{} {:.4} {}", step.step, step.loss, step.stats.peak);
/// }
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Debug)]
pub struct Training {
    model: Model,
    optimizer: Optimizer,
    learning_rate: Option<LearningRate>,
    data: Box<dyn Dataset>,
    budget: Option<Result<Budget>>,
    planner: String,
    effort: Option<f64>,
    time_limit: Option<Duration>,
    seed: u64,
    n_threads: usize,
    machine: Option<Machine>,
    stores: Vec<(Setup, Option<StoreSpeed>)>,
    verify: bool,
}

impl Training {
    /// Trains `model` with Adam on random data, with everything kept, on all cores.
    pub fn new(model: Model) -> Training {
        Training {
            model,
            optimizer: Optimizer::adam(1e-3),
            learning_rate: None,
            data: Box::new(Synthetic { seed: 1 }),
            budget: None,
            planner: "best".to_owned(),
            effort: None,
            time_limit: None,
            seed: 1,
            n_threads: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            machine: None,
            stores: Vec::new(),
            verify: false,
        }
    }

    /// How gradients become updates; [`adam`](crate::optimizer::adam) with a rate of 0.001 by default.
    pub fn optimizer(self, optimizer: Optimizer) -> Training {
        Training { optimizer, ..self }
    }

    /// The rate of every step; by default the optimizer's, for all steps.
    pub fn learning_rate(self, rate: LearningRate) -> Training {
        Training { learning_rate: Some(rate), ..self }
    }

    /// What is learned from: text, images, or a loader of your own.
    pub fn data(self, data: impl Dataset + 'static) -> Training {
        Training { data: Box::new(data), ..self }
    }

    /// The memory of the whole step: `"8GiB"`, `"50%"` of what it needs without recomputation, or [`Bytes`](remat_plan::Bytes).
    /// Without a budget everything is kept.
    pub fn budget(self, budget: impl IntoBudget) -> Training {
        Training { budget: Some(budget.into_budget()), ..self }
    }

    /// The planner; `best` by default.
    pub fn planner(self, name: impl Into<String>) -> Training {
        Training { planner: name.into(), ..self }
    }

    /// How hard the planner tries; 1 by default. The same effort and seed give the same plan.
    pub fn effort(self, effort: f64) -> Training {
        Training { effort: Some(effort), ..self }
    }

    /// How long the planner may take.
    pub fn time_limit(self, limit: Duration) -> Training {
        Training { time_limit: Some(limit), ..self }
    }

    /// Seed of weights, data, dropout and planning; 1 by default.
    pub fn seed(self, seed: u64) -> Training {
        Training { seed, ..self }
    }

    /// Threads that kernels use. Results do not depend on it.
    pub fn threads(self, n: usize) -> Training {
        Training { n_threads: n.max(1), ..self }
    }

    /// Speeds that costs are calculated from. By default the speeds of this machine, which are measured once and kept.
    pub fn machine(self, machine: Machine) -> Training {
        Training { machine: Some(machine), ..self }
    }

    /// Lets values leave memory for a store: `"host"`, which is memory that the budget does not count, or a directory, which
    /// gets a scratch file. Its speed is measured once and kept. Give several for several stores.
    pub fn store(self, place: impl AsRef<Path>) -> Training {
        let path = place.as_ref();
        let kind = if path == Path::new("host") { Kind::Host } else { Kind::File(path.to_owned()) };
        self.store_with(Setup::new(kind), None)
    }

    /// As [`store`](Training::store), with a speed that plans are made for instead of a measured one.
    pub fn store_with(mut self, setup: Setup, speed: Option<StoreSpeed>) -> Training {
        self.stores.push((setup, speed));
        self
    }

    /// Holds every value that is computed again against its first computation; the first difference ends the run with an
    /// error. For ops of your own, and for machines that are in doubt.
    pub fn verify(self) -> Training {
        Training { verify: true, ..self }
    }

    /// Plans without reserving memory: whether it fits, at what peak and price.
    pub fn plan(&self) -> Result<PlanSummary> {
        let (prepared, program) = self.fit()?;
        Ok(PlanSummary::of(&prepared, &program))
    }

    /// Plans, reserves the memory and initialises the model.
    pub fn compile(self) -> Result<Trainer> {
        let (prepared, program) = self.fit()?;
        Trainer::new(self, prepared, program)
    }

    fn fit(&self) -> Result<(Prepared, Program)> {
        let machine = match &self.machine {
            Some(machine) => machine.clone(),
            None => Machine::load(self.n_threads, |_, _| {})?.0,
        };
        let prepared = prepare(self.model.graph(), &self.optimizer, Costs::Analytic(machine), |_, _| {})?;
        let speed = |(setup, speed): &(Setup, Option<StoreSpeed>)| {
            let speed = match speed {
                Some(speed) => *speed,
                None => StoreSpeed::load(&setup.kind, self.n_threads)?.0,
            };
            Ok((setup.clone(), speed))
        };
        let prepared = match self.stores.is_empty() {
            true => prepared,
            false => prepared.with_stores(&self.stores.iter().map(speed).collect::<Result<Vec<_>>>()?)?,
        };
        let budget = match &self.budget {
            None => return Ok((prepared.clone(), prepared.keep_all)),
            // A share is one of the step; a size is for everything.
            Some(Ok(Budget::Bytes(size))) => {
                let data = self.data.memory(self.model.graph())?;
                size.checked_sub(data).ok_or_else(|| {
                    let message = format!("the data alone takes {data} of the budget of {size}");
                    Error::Budget { message }
                })?
            }
            Some(Ok(budget)) => budget.resolve(prepared.keep_all.peak()),
            Some(Err(error)) => return Err(Error::Budget { message: error.to_string() }),
        };
        let request = Request {
            effort: self.effort,
            time_limit: self.time_limit,
            seed: self.seed,
            ..Request::new(budget)
        };
        match compile(&prepared, &self.planner, &request)? {
            Fit::Fits(program) => Ok((prepared, *program)),
            Fit::Refused(refusal) => Err(refusal.into()),
        }
    }
}
