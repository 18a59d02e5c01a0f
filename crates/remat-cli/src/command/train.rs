//! `remat train`: trains a model, inside a budget when one is given, and leaves checkpoints and logs behind.
//!
//! Exit codes beyond the common ones: 130 when a signal stopped the run in order.

use crate::answer::Answer;
use crate::flags::{CostKind, Model, PlannerFlags, StepFlags, model_parser};
use crate::loss_log::LossWriter;
use crate::moves::Copied;
use crate::output::{Output, say};
use crate::planning::compile;
use crate::training::{
    Data, DataFlags, EvaluationFlags, Events, HeldOut, OptimizationFlags, RecordFlags, Run, Training,
    batch_size,
};
use crate::{files, memory};
use anyhow::{Context as _, Result};
use clap::Args;
use remat::exec::Engine as _;
use remat::graph::{Graph, Kind};
use remat::pipeline::{Fit, Prepared, Program};
use remat::profile::Sample;
use remat::train::{Batches, Checkpoints, Evaluation, Identity, Part, RunFolder, Session};
use remat::weights::{self, WeightFile};
use remat_plan::{Budget, Bytes, Moves};
use std::path::Path;

/// Trains a model on text, images or random data, one line per step.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 does not fit, has diverged or was found wrong by --verify, 2 bad input or failure, 130 stopped by a signal \
                  after finishing the step and writing a checkpoint where one was asked for."
)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// Memory for the whole step: 8GiB, 8GB, 123456789B, or 50% of the peak without recomputation. Without it
    /// everything is kept.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Option<Budget>,
    /// Steps to train, counted from the beginning of the run, also when it is resumed.
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: u64,
    /// Hash every value that is computed again and compare it with its first computation; the first difference ends the
    /// run.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    data: DataFlags,
    #[command(flatten)]
    optimization: OptimizationFlags,
    #[command(flatten)]
    evaluation: EvaluationFlags,
    #[command(flatten)]
    record: RecordFlags,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        for path in [&self.record.save, &self.record.log].into_iter().flatten() {
            files::check_writable(path)?;
        }
        let seed = self.planner.seed();
        let forward = self.step.build(&self.model, CostKind::Analytic)?.forward;
        let (data, step) = self.data.open(&forward, &self.step, seed)?;
        let mut model = step.build(&self.model, CostKind::Analytic)?;
        self.optimization.apply(&mut model.optimizer);
        if let Some(path) = &self.record.weights {
            // A wrong file is refused before anything is planned or measured.
            WeightFile::open(&model.forward, path)?.verify()?;
        }
        // So is data that is too short.
        let batches = data.batches(&model.forward, Part::Training)?;
        let prepared =
            if self.budget.is_some() { model.prepare()? } else { model.prepare_without_costs()? };
        let mut report = self.report(&model, &data, &prepared)?;
        let program = match self.program(&prepared, &report)? {
            Ok(program) => program,
            Err(refusal) => {
                report.refusal = Some(refusal);
                out.report(&report)?;
                return Ok(Answer::No);
            }
        };
        report.copied = Moves::of(&prepared.problem.problem, program.plan())?.as_ref().map(Copied::of);
        // Only the program is needed from here on; what planning used need not stay beside it.
        drop(prepared);
        let held_out = match self.held_out(&step, &data, &program)? {
            Ok(held_out) => held_out,
            Err(refusal) => {
                report.refusal = Some(refusal);
                out.report(&report)?;
                return Ok(Answer::No);
            }
        };
        report.fits = true;
        report.predicted_peak_bytes = Some(program.peak());
        report.n_recomputes = program.schedule().n_recomputes();
        let session = self.session(&model, program, batches)?;
        self.train(&model, &data, session, held_out, &mut report, out)?;
        out.report(&report)?;
        Ok(match report.stopped {
            true => Answer::Stopped,
            false => Answer::of(report.diverged.is_none() && report.unrepeatable.is_none()),
        })
    }

    /// The program for what the data leaves of the budget, or why there is none.
    fn program(&self, prepared: &Prepared, report: &Training) -> Result<Result<Program, String>> {
        let Some(budget) = report.budget_bytes else { return Ok(Ok(prepared.keep_all.clone())) };
        let data = report.data_bytes;
        let Some(left) = budget.checked_sub(data).filter(|left| *left > Bytes::ZERO) else {
            return Ok(Err(format!("the data alone takes {data} of the budget of {budget}")));
        };
        Ok(match compile(prepared, &self.planner.planner, self.planner.request(left))? {
            Fit::Fits(program) => Ok(*program),
            Fit::Refused(refusal) if data > Bytes::ZERO => {
                Err(format!("{refusal}; beside it, the data takes {data} of the budget of {budget}"))
            }
            Fit::Refused(refusal) => Err(refusal.to_string()),
        })
    }

    /// The evaluation in the arena of the program, or why there is no place for it.
    fn held_out(
        &self,
        step: &StepFlags,
        data: &Data,
        program: &Program,
    ) -> Result<Result<Option<HeldOut>, String>> {
        if self.evaluation.eval_every.is_none() {
            return Ok(Ok(None));
        }
        let forward = |batch: Option<u64>| -> Result<Graph> {
            let flags = batch.map_or_else(|| step.clone(), |batch| step.with_batch(batch));
            Ok(flags.build(&self.model, CostKind::Analytic)?.forward)
        };
        let asked = forward(self.evaluation.eval_batch.map(u64::from))?;
        if let Some(evaluation) = Evaluation::fit(&asked, program)? {
            return Ok(Ok(Some(HeldOut { evaluation, batches: data.batches(&asked, Part::HeldOut)? })));
        }
        // Halving finds a size that fits, if there is one.
        let size =
            asked.sources.iter().find(|s| s.name == "input").map(|s| asked.values[s.value].ty.shape()[0]);
        let mut smaller = size.unwrap_or(1) as u64 / 2;
        let mut advice = "no smaller batch does either; raise the budget".to_owned();
        while smaller > 0 {
            // Some models refuse tiny batches; then that is where the search ends.
            let Ok(graph) = forward(Some(smaller)) else { break };
            if Evaluation::fit(&graph, program)?.is_some() {
                advice = format!("--eval-batch {smaller} does");
                break;
            }
            smaller /= 2;
        }
        let arena = program.peak();
        Ok(Err(format!("evaluation does not fit into the {arena} that training uses; {advice}")))
    }

    fn session(&self, model: &Model, program: Program, batches: Box<dyn Batches>) -> Result<Session> {
        memory::check_available(program.peak() + program.host_bytes())?;
        memory::reset_peak();
        let seed = self.planner.seed();
        let mut session = Session::new(program, batches, seed, model.n_threads)?;
        for warning in session.executor().warnings() {
            say(format_args!("warning: {warning}"));
        }
        session.learning_rate = self.optimization.learning_rate(model.optimizer.learning_rate, self.steps);
        if let Some(path) = &self.record.weights {
            load_weights(&mut session, path)?;
        }
        if self.verify {
            session.verify();
        }
        Ok(session)
    }

    fn train(
        &self,
        model: &Model,
        data: &Data,
        mut session: Session,
        held_out: Option<HeldOut>,
        report: &mut Training,
        out: &mut Output,
    ) -> Result<()> {
        let checkpoints = self.checkpoints(model, data, &mut session, report)?;
        let begin = session.steps_done();
        let (per_batch, unit) = batch_size(&model.forward)?;
        let RecordFlags { log, tensorboard, .. } = &self.record;
        let mut run = Run {
            session,
            n_steps: self.steps,
            data,
            per_step: (per_batch * model.optimizer.micro_batches) as f64,
            unit,
            held_out,
            evaluation: &self.evaluation,
            record: &self.record,
            saved_step: if self.record.resumes_in_place() { begin } else { 0 },
            checkpoints,
            log: log.as_deref().map(|path| LossWriter::open(path, begin, unit)).transpose()?,
            events: tensorboard.as_deref().map(|folder| Events::create(folder, begin)).transpose()?,
        };
        run.train(report, out)?;
        self.finish(&run.session, report)
    }

    /// The folder for checkpoints, if there is one, and a session that continues from the newest where that is asked for.
    fn checkpoints(
        &self,
        model: &Model,
        data: &Data,
        session: &mut Session,
        report: &mut Training,
    ) -> Result<Option<Checkpoints>> {
        let (rate, seed) = (session.learning_rate, self.planner.seed());
        let identity = Identity::of(&model.forward, model.optimizer, rate, seed, data.identity());
        if let Some(resume) = self.record.resume.as_deref() {
            anyhow::ensure!(resume.is_dir(), "there is no folder {} to resume from", resume.display());
        }
        let keep = usize::try_from(u64::from(self.record.keep)).context("--keep is too large")?;
        let open = if self.record.resumes_in_place() { Checkpoints::open } else { Checkpoints::create };
        let folder = self.record.checkpoint_folder();
        let checkpoints = folder.map(|folder| open(folder, identity.clone(), keep)).transpose()?;
        if let Some(folder) = self.record.resume.as_deref() {
            let warn = |warning: String| say(format_args!("warning: {warning}"));
            let schedule = self.optimization.schedule();
            let found = Checkpoints::resume(folder, &identity, schedule, session, warn)?;
            report.resumed_from_step = Some(found.unwrap_or(0));
            if found.is_none() {
                say(format_args!("warning: {} has no checkpoint; beginning with step 1", folder.display()));
            }
        }
        if let Some(checkpoints) = &checkpoints {
            // So that the model can be used without this program's flags. What another run has left there is refused before.
            RunFolder::of(&model.forward, None, data.about()).write(checkpoints.folder())?;
        }
        Ok(checkpoints)
    }

    /// Sums the run up and saves the weights.
    fn finish(&self, session: &Session, report: &mut Training) -> Result<()> {
        report.n_verified = session.n_verified();
        report.peak_resident_bytes = memory::peak_resident();
        report.measured_peak_bytes = report.steps.iter().map(|row| row.peak_bytes).max();
        // The first step touches memory that was never used before; it counts only when there is no other.
        let skip = usize::from(report.steps.len() > 1);
        let times: Vec<f64> = report.steps.iter().skip(skip).map(|row| row.seconds).collect();
        report.step_seconds = Some(Sample::of(times)).filter(|sample| sample.n_runs > 0);
        if let Some(path) = self.record.save.as_ref().filter(|_| is_sound(report)) {
            let executor = session.executor();
            weights::save(executor.graph(), path, |source, first, out| {
                executor.read_floats(source.value, first, out)
            })?;
            report.saved = Some(path.clone());
        }
        Ok(())
    }

    fn report(&self, model: &Model, data: &Data, prepared: &Prepared) -> Result<Training> {
        let keep_all_peak_bytes = prepared.keep_all.peak();
        // A share is one of the step; a size is for everything.
        let is_size = matches!(self.budget, Some(Budget::Bytes(_)));
        let data_bytes = if is_size { data.memory(&model.forward)? } else { Bytes::ZERO };
        Ok(Training {
            data_bytes,
            fits: false,
            model: model.info.name,
            optimizer: model.optimizer.name(),
            learning_rate: model.optimizer.learning_rate,
            seed: self.planner.seed(),
            threads: model.n_threads,
            data: data.identity(),
            n_parameters: model.forward.n_parameters(),
            budget_bytes: self.budget.map(|budget| budget.resolve(keep_all_peak_bytes)),
            floor_bytes: prepared.floor.bytes,
            floor_node: prepared.floor.node_name.clone(),
            keep_all_peak_bytes,
            predicted_peak_bytes: None,
            measured_peak_bytes: None,
            peak_resident_bytes: None,
            n_recomputes: 0,
            copied: None,
            resumed_from_step: None,
            stopped: false,
            diverged: None,
            unrepeatable: None,
            n_verified: None,
            skipped_images: Vec::new(),
            step_seconds: None,
            unit: batch_size(&model.forward)?.1,
            steps: Vec::new(),
            checkpoint: None,
            saved: None,
            refusal: None,
        })
    }
}

/// Whether the state at the end is worth keeping.
fn is_sound(report: &Training) -> bool {
    report.diverged.is_none() && report.unrepeatable.is_none()
}

/// Reads parameters and buffers straight to where they rest.
fn load_weights(session: &mut Session, path: &Path) -> Result<()> {
    let executor = session.executor_mut();
    let mut file = WeightFile::open(executor.graph(), path)?;
    let sources = executor.graph().sources.clone();
    for source in &sources {
        let value = executor.graph().values[source.value].clone();
        if matches!(value.kind, Kind::Parameter | Kind::Buffer) {
            let row = weights::row_elements(source, &value.ty);
            let mut read = |first: usize, out: &mut [f32]| file.read(source, &value.ty, first, out);
            executor.fill_floats(source.value, row, &mut read)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use remat::graph::{Builder, Init, NaiveIo, Type};
    use remat::ids::ValueId;
    use remat::op::add::Add;
    use remat::op::gelu::Gelu;
    use remat::op::mse::Mse;
    use remat::op::scale::Scale;
    use remat::op::{Cost, Example, GradArgs, Io, OpDef};
    use remat::optimizer::Optimizer;
    use remat::pipeline::{Costs, checkpoint, prepare};
    use remat::profile::Machine;
    use remat::train::Synthetic;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        flags: Flags,
    }

    /// `y = x`, except for one bit in its fourth run: the recompute of step 2.
    #[derive(Clone, PartialEq, Debug, serde::Serialize)]
    struct Forgetful {}

    static RUNS: AtomicU64 = AtomicU64::new(0);

    impl OpDef for Forgetful {
        fn name() -> &'static str {
            "forgetful"
        }

        fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
            Ok(vec![x[0].clone()])
        }

        fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> remat::Result<Vec<Option<ValueId>>> {
            Ok(vec![Some(b.add(Scale { factor: 1.0 }, &[args.dy0()])?)])
        }

        fn differentiable_outputs(&self) -> Option<&'static [usize]> {
            Some(&[0])
        }

        fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
            Cost::element_wise(x, y, 1)
        }

        fn run(&self, io: &mut Io<'_>) {
            let (x, y) = (io.f32(0), io.out(0));
            y.copy_from_slice(x);
            if RUNS.fetch_add(1, Ordering::Relaxed) == 3 {
                y[0] = f32::from_bits(y[0].to_bits() ^ 1);
            }
        }

        fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
            vec![io.x[0].to_vec()]
        }

        fn examples() -> Vec<Example> {
            Vec::new()
        }
    }

    fn forgetful_program() -> remat::Result<(Prepared, Program)> {
        let mut b = Builder::new("forgetful");
        let x = b.input("x", &[4, 4])?;
        let weight = b.parameter("weight", Type::f32(&[4, 4])?, Init::Normal(1.0));
        let y = b.scope("block", |b| {
            let sum = b.add(Add {}, &[x, weight])?;
            let same = b.add(Forgetful {}, &[sum])?;
            b.add(Gelu { tanh: false }, &[same])
        })?;
        let loss = b.add(Mse {}, &[y, x])?;
        b.output(loss);
        let costs = Costs::Analytic(Machine::nominal(1));
        let prepared = prepare(&b.finish(), &Optimizer::adam(1e-2), costs, |_, _| {})?;
        let program = checkpoint(&prepared, &["block"])?;
        Ok((prepared, program))
    }

    #[test]
    fn a_value_that_is_not_repeated_ends_the_run_and_saves_nothing_of_the_step() {
        let folder = tempfile::tempdir().unwrap();
        let typed =
            ["train", "mlp", "--verify", "--steps", "5", "--checkpoint-every", "1", "--on-nan", "continue"];
        let run = folder.path().join("run").display().to_string();
        let saved = folder.path().join("saved.st").display().to_string();
        let paths = ["--checkpoint", run.as_str(), "--save", saved.as_str()];
        let Typed { flags } = Typed::try_parse_from(typed.iter().chain(&paths)).unwrap();
        let model = flags.step.build("mlp", CostKind::Analytic).unwrap();
        let (data, _) = flags.data.open(&model.forward, &flags.step, 1).unwrap();
        let (prepared, program) = forgetful_program().unwrap();
        let mut report = flags.report(&model, &data, &prepared).unwrap();
        let session = flags.session(&model, program, Box::new(Synthetic { seed: 1 })).unwrap();
        flags.train(&model, &data, session, None, &mut report, &mut Output::stdout(true)).unwrap();
        let why = report.unrepeatable.as_deref().unwrap();
        assert!(why.starts_with("step 2: `forgetful` of module `block` gave other bits"), "{why}");
        assert!(why.ends_with("the last checkpoint is that of step 1"), "{why}");
        assert_eq!((report.steps.len(), report.saved.is_some(), is_sound(&report)), (2, false, false));
        assert!(report.n_verified.is_some_and(|n| n >= 2), "{:?}", report.n_verified);
        let left: Vec<String> = std::fs::read_dir(folder.path().join("run"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".safetensors"))
            .collect();
        assert_eq!(left, ["step-00000001.safetensors"]);
    }
}
