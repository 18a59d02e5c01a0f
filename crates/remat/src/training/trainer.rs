//! A run: steps, evaluation, checkpoints, and answers about its plan.

use super::{PlanSummary, Training};
use crate::error::{Error, Result};
use crate::files;
use crate::graph::Graph;
use crate::ids::ValueId;
use crate::pipeline::{Prepared, Program};
use crate::report;
use crate::train::{
    Batches, Checkpoints, Dataset, Evaluation, Identity, Part, RunFolder, Schedule, Score, Session,
    StepResult,
};
use remat_plan::{Explanation, Frontier, Request, explain, frontier};
use std::path::{Path, PathBuf};

/// A compiled training run. [`Training::compile`] makes it.
#[derive(Debug)]
pub struct Trainer {
    prepared: Prepared,
    program: Program,
    session: Session,
    forward: Graph,
    /// What the model predicts, where it says so itself.
    prediction: Option<ValueId>,
    data: Box<dyn Dataset>,
    seed: u64,
    planner: String,
    effort: Option<f64>,
    held_out: Option<(Evaluation, Box<dyn Batches>)>,
    checkpoints: Option<Checkpoints>,
    warnings: Vec<String>,
}

/// Checkpoints that stay in a run's folder.
const KEPT: usize = 2;

impl Trainer {
    pub(super) fn new(training: Training, prepared: Prepared, program: Program) -> Result<Trainer> {
        let Training { model, learning_rate, data, seed, n_threads, planner, effort, verify, .. } = training;
        let prediction = model.roles().prediction;
        let forward = model.into_graph();
        let batches = data.batches(&forward, Part::Training, seed)?;
        let mut session = Session::new(program.clone(), batches, seed, n_threads)?;
        if let Some(rate) = learning_rate {
            session.learning_rate = rate;
        }
        if verify {
            session.verify();
        }
        let warnings = session.executor().warnings();
        Ok(Trainer {
            prepared,
            program,
            session,
            forward,
            prediction,
            data,
            seed,
            planner,
            effort,
            held_out: None,
            checkpoints: None,
            warnings,
        })
    }

    /// Whether it fits, at what peak and price.
    pub fn plan(&self) -> PlanSummary {
        PlanSummary::of(&self.prepared, &self.program)
    }

    /// What you should know and what stops nothing: a store that is slower than it could be, damaged checkpoints that
    /// [`resume`](Trainer::resume) has passed over, a state that was trained with other arithmetic.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Runs the next step.
    pub fn step(&mut self) -> Result<StepResult> {
        let result = self.session.step(None)?;
        match result.difference {
            None => Ok(result),
            Some(difference) => Err(Error::Unrepeatable { difference: difference.to_string() }),
        }
    }

    /// The next `n` steps, one after the other.
    pub fn steps(&mut self, n: u64) -> impl Iterator<Item = Result<StepResult>> + '_ {
        (0..n).map(|_| self.step())
    }

    /// Runs `n` steps and returns the last.
    pub fn run(&mut self, n: u64) -> Result<StepResult> {
        let mut last = None;
        for step in self.steps(n) {
            last = Some(step?);
        }
        last.ok_or_else(|| Error::Budget { message: "a run has at least one step".to_owned() })
    }

    /// Steps done so far, including the steps before a resume.
    pub fn steps_done(&self) -> u64 {
        self.session.steps_done()
    }

    /// The loss (and for a classifier the accuracy) over the first `n_batches` batches of the data that is held out, with
    /// running statistics and without dropout. It runs in the memory of training and changes nothing in it.
    pub fn evaluate(&mut self, n_batches: u64) -> Result<Score> {
        if self.held_out.is_none() {
            let evaluation = Evaluation::fit(&self.forward, &self.program)?.ok_or_else(|| {
                let message =
                    "evaluation does not fit into the memory of training; raise the budget".to_owned();
                Error::Budget { message }
            })?;
            self.held_out = Some((evaluation, self.data.batches(&self.forward, Part::HeldOut, self.seed)?));
        }
        let (evaluation, batches) = self.held_out.as_mut().expect("it was made above");
        evaluation.run(&mut self.session, &mut **batches, n_batches.max(1))
    }

    /// Writes a checkpoint into the folder of this run, and what [`Inference::load`](crate::inference::Inference::load)
    /// needs. A folder that holds another run is refused, and so is the state that a failed step has left.
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        let folder = folder.as_ref();
        self.session.check_state()?;
        if self.checkpoints.as_ref().is_none_or(|open| open.folder() != folder) {
            // A folder that is open already is closed first, so that its lock is given back.
            self.checkpoints = None;
            self.checkpoints = Some(Checkpoints::create(folder, self.identity(), KEPT)?);
        }
        let checkpoints = self.checkpoints.as_ref().expect("it was opened above");
        RunFolder::of(&self.forward, self.prediction, self.data.about()).write(folder)?;
        checkpoints.write(&self.session)
    }

    /// Continues the run of a folder with the bits of one that never stopped, and returns the step it had reached.
    /// Budget, planner and threads may differ; model, optimizer, rates, seed and data may not. What was noticed on the way is
    /// among the [`warnings`](Trainer::warnings).
    pub fn resume(&mut self, folder: impl AsRef<Path>) -> Result<u64> {
        let folder = folder.as_ref();
        let identity = self.identity();
        self.checkpoints = None;
        let checkpoints = Checkpoints::open(folder, identity.clone(), KEPT)?;
        let warnings = &mut self.warnings;
        let warn = |warning| warnings.push(warning);
        let found = Checkpoints::resume(folder, &identity, Schedule::Same, &mut self.session, warn)?;
        self.checkpoints = Some(checkpoints);
        found.ok_or_else(|| Error::Checkpoint {
            place: folder.display().to_string(),
            message: "holds no checkpoint".to_owned(),
        })
    }

    /// What sets the peak, what is computed again and what it costs.
    pub fn explain(&self) -> Result<Explanation> {
        let found = explain(&self.prepared.problem.problem, self.program.plan());
        found.map_err(|fault| Error::Bug { stage: "explain", faults: vec![fault.to_string()] })
    }

    /// What each amount of memory costs, at `n_points` budgets between the floor and keeping everything.
    pub fn frontier(&self, n_points: usize) -> Result<Frontier> {
        let request =
            Request { effort: self.effort, seed: self.seed, ..Request::new(self.prepared.keep_all.peak()) };
        Ok(frontier(&self.prepared.problem.problem, &self.planner, n_points, &request, |_| {})?)
    }

    /// Writes one self-contained HTML page: memory over the step with and without the plan, and every decision.
    pub fn report(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let page = report::page(&report::documents(&self.prepared, &self.program));
        files::replace_bytes(path, page).map_err(Error::io(format!("write {}", path.display())))
    }

    fn identity(&self) -> Identity {
        let optimizer = self.program.roles().optimizer.expect("a training step has an optimizer");
        let data = self.data.identity();
        Identity::of(&self.forward, optimizer, self.session.learning_rate, self.seed, data)
    }
}
