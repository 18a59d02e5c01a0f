//! Training as a whole: micro-batches, clipping, evaluation in the training arena, and runs that resume where another
//! stopped. All of it under budgets too, and all of it to the bit.

use remat::exec::{Engine, Reference};
use remat::graph::{Builder, Graph, Kind};
use remat::model::{self, Options};
use remat::nn::Model;
use remat::op::{MicroBatch, Run};
use remat::optimizer::{Optimizer, Rule};
use remat::pipeline::{Costs, Fit, Prepared, Program, compile, prepare};
use remat::profile::Machine;
use remat::step::evaluation_pass;
use remat::train::{Batch, Batches, Part, StepResult};
use remat::train::{Checkpoints, Decay, Evaluation, Identity, LearningRate, Schedule, Session, Synthetic};
use remat_plan::{Bytes, Request};
use std::path::Path;

const SEED: u64 = 11;

fn forward(name: &str, options: &[(&str, &str)]) -> Graph {
    let options = options.iter().fold(Options::new(), |all, &(name, value)| all.with(name, value));
    model::find(name).expect("a known model").build(&options).expect("valid options").into_graph()
}

fn mlp(batch: usize) -> Graph {
    forward("mlp", &[("batch", &batch.to_string()), ("features", "12"), ("width", "16"), ("layers", "3")])
}

fn gpt() -> Graph {
    let small =
        [("batch", "2"), ("seq", "12"), ("dim", "16"), ("heads", "2"), ("layers", "2"), ("vocab", "31")];
    forward("gpt", &[&small[..], &[("dropout", "0.1")]].concat())
}

fn resnet() -> Graph {
    forward("resnet18", &[("batch", "2"), ("image", "32"), ("classes", "5")])
}

fn prepared(forward: &Graph, optimizer: &Optimizer) -> Prepared {
    prepare(forward, optimizer, Costs::Analytic(Machine::nominal(2)), |_, _| {}).expect("a valid step")
}

/// A program under the lowest budget that the planner reaches.
fn tight(prepared: &Prepared) -> Program {
    let request = |budget| Request { effort: Some(0.02), ..Request::new(budget) };
    let fit = |budget| compile(prepared, "best", &request(budget)).expect("no internal error");
    match fit(prepared.floor.bytes) {
        Fit::Fits(program) => *program,
        Fit::Refused(refusal) => match fit(refusal.lowest_peak) {
            Fit::Fits(program) => *program,
            Fit::Refused(refusal) => panic!("{refusal}"),
        },
    }
}

fn session(program: &Program) -> Session {
    Session::new(program.clone(), Box::new(Synthetic { seed: SEED }), SEED, 2).expect("memory")
}

/// All state with its bits.
fn state(engine: &dyn Engine) -> Vec<(String, Vec<u32>)> {
    let graph = engine.graph();
    let states = graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state());
    states.map(|s| (s.name.clone(), engine.floats(s.value).iter().map(|x| x.to_bits()).collect())).collect()
}

/// What must not change in a bit.
fn log(results: &[StepResult]) -> Vec<(u64, u32, u64, Option<u32>)> {
    let bits = |r: &StepResult| {
        (r.step, r.loss.to_bits(), r.learning_rate.to_bits(), r.gradient_norm.map(f32::to_bits))
    };
    results.iter().map(bits).collect()
}

const ACCUMULATING: Optimizer =
    Optimizer { clip_norm: Some(0.05), micro_batches: 3, ..Optimizer::adamw(1e-2) };

#[test]
fn every_plan_gives_the_bits_of_the_reference_with_micro_batches_and_clipping() {
    for (name, forward) in [("mlp", mlp(4)), ("gpt", gpt()), ("resnet18", resnet())] {
        let prepared = prepared(&forward, &ACCUMULATING);
        let mut oracle = Reference::new(prepared.step.graph.clone(), 1).expect("memory");
        oracle.initialise(SEED).expect("no store is involved");
        let mut losses = Vec::new();
        for step in 1..=2 {
            let mut sum = 0.0;
            for index in 0..ACCUMULATING.micro_batches {
                let micro = MicroBatch { index, count: ACCUMULATING.micro_batches };
                let run = Run { seed: SEED, step, learning_rate: ACCUMULATING.learning_rate, micro };
                let mut batch = Batch::new(run.batch(), Part::Training, SEED, oracle.batch_mut());
                Synthetic { seed: SEED }.fill(&mut batch).expect("synthetic");
                oracle.step(&run, None);
                sum += f64::from(oracle.floats(prepared.step.roles.loss)[0]);
            }
            losses.push((sum / ACCUMULATING.micro_batches as f64) as f32);
        }
        for program in [&prepared.keep_all, &tight(&prepared)] {
            let mut session = session(program);
            session.executor_mut().poison = true;
            for &loss in &losses {
                let result = session.step(None).expect("a step");
                assert_eq!(result.loss.to_bits(), loss.to_bits(), "{name}: the loss of step {}", result.step);
                assert_eq!(result.stats.peak, program.peak(), "{name}: measured and predicted peak");
                let norm = result.gradient_norm.expect("clipping knows the norm");
                assert!(norm > 0.05, "{name}: nothing was clipped, the norm is {norm}");
            }
            assert!(state(session.executor()) == state(&oracle), "{name}: a bit of the state changed");
        }
    }
}

/// Batches of `large` cut into `n` pieces: batch `b` of the pieces is piece `(b - 1) % n` of batch `(b - 1) / n + 1`.
#[derive(Debug)]
struct Pieces {
    n: u64,
}

impl Batches for Pieces {
    fn fill(&mut self, batch: &mut Batch<'_>) -> remat::Result<()> {
        let (whole, piece) = ((batch.number() - 1) / self.n + 1, ((batch.number() - 1) % self.n) as usize);
        // The whole batch has the same inputs with more rows.
        let mut b = Builder::new("whole");
        for input in batch.inputs() {
            let mut shape = input.shape().to_vec();
            shape[0] *= self.n as usize;
            match input.limit() {
                Some(limit) => b.labels(input.name(), &shape, limit)?,
                None => b.input(input.name(), &shape)?,
            };
        }
        let mut engine = Reference::new(b.finish(), 1)?;
        let mut all = Batch::new(whole, Part::Training, SEED, engine.batch_mut());
        Synthetic { seed: SEED }.fill(&mut all)?;
        for (input, all) in batch.inputs().iter_mut().zip(all.inputs()) {
            match input.limit() {
                Some(_) => copy_piece(all.integers()?, piece, input.integers()?),
                None => copy_piece(all.floats()?, piece, input.floats()?),
            }
        }
        Ok(())
    }
}

fn copy_piece<T: Copy>(all: &[T], piece: usize, to: &mut [T]) {
    to.copy_from_slice(&all[piece * to.len()..][..to.len()]);
}

#[test]
fn micro_batches_make_the_update_of_the_whole_batch() {
    let sgd = Optimizer {
        rule: Rule::Sgd { momentum: 0.9, weight_decay: 0.01, nesterov: false },
        clip_norm: Some(0.5),
        ..Optimizer::sgd(0.1)
    };
    let in_pieces = Optimizer { micro_batches: 4, ..sgd };
    let whole = prepared(&mlp(16), &sgd).keep_all;
    let pieces = prepared(&mlp(4), &in_pieces).keep_all;
    let mut whole = session(&whole);
    let mut pieces = Session::new(pieces, Box::new(Pieces { n: 4 }), SEED, 2).expect("memory");
    for _ in 0..3 {
        let (a, b) = (whole.step(None).expect("a step"), pieces.step(None).expect("a step"));
        assert!((a.loss - b.loss).abs() < 1e-5, "{} and {}", a.loss, b.loss);
        let norms = a.gradient_norm.zip(b.gradient_norm).expect("clipping knows the norm");
        assert!((norms.0 - norms.1).abs() < 1e-4 * norms.0, "{norms:?}");
    }
    let floats = |session: &Session| -> Vec<(String, Vec<f32>)> {
        let graph = session.executor().graph();
        let is_parameter = |s: &&remat::graph::Source| graph.values[s.value].kind == Kind::Parameter;
        let parameters = graph.sources.iter().filter(is_parameter);
        parameters.map(|s| (s.name.clone(), session.executor().floats(s.value).to_vec())).collect()
    };
    for ((name, a), (_, b)) in floats(&whole).into_iter().zip(floats(&pieces)) {
        let difference = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-5, "{name} differs by {difference}");
    }
}

#[test]
fn clipping_scales_the_gradient_and_leaves_small_ones_alone() {
    let with = |clip_norm| Optimizer { clip_norm, ..Optimizer::sgd(0.1) };
    let after = |clip_norm| {
        let optimizer = with(clip_norm);
        let mut session = session(&prepared(&mlp(8), &optimizer).keep_all);
        let result = session.step(None).expect("a step");
        (state(session.executor()), result.gradient_norm)
    };
    let (free, unknown) = after(None);
    let (loose, norm) = after(Some(1e6));
    let norm = norm.expect("clipping knows the norm");
    assert!(free == loose && unknown.is_none() && norm > 0.0);
    // Half the norm is half the update.
    let (clipped, same) = after(Some(f64::from(norm) / 2.0));
    assert_eq!(same, Some(norm));
    assert!(clipped != free);
    let buffer = |state: &[(String, Vec<u32>)]| -> Vec<f32> {
        let buffers = state.iter().filter(|(name, _)| name.ends_with("momentum_buffer"));
        buffers.flat_map(|(_, bits)| bits.iter().map(|&b| f32::from_bits(b))).collect()
    };
    for (free, clipped) in buffer(&free).into_iter().zip(buffer(&clipped)) {
        assert!((0.5 * free - clipped).abs() <= 1e-5 * free.abs(), "{free} became {clipped}");
    }
}

#[test]
fn evaluation_fits_into_the_smallest_arena_and_changes_nothing() {
    let optimizer = Optimizer { micro_batches: 2, ..Optimizer::adam(1e-2) };
    for (name, forward) in [("mlp", mlp(8)), ("gpt", gpt()), ("resnet18", resnet())] {
        let prepared = prepared(&forward, &optimizer);
        let mut scores = Vec::new();
        for program in [&prepared.keep_all, &tight(&prepared)] {
            let evaluation = Evaluation::fit(&forward, program).expect("no internal error");
            let evaluation = evaluation.unwrap_or_else(|| panic!("{name}: no place for evaluation"));
            assert!(evaluation.peak() <= program.peak());
            let mut session = session(program);
            session.step(None).expect("a step");
            let before = state(session.executor());
            let score = evaluation.run(&mut session, &mut Synthetic { seed: 99 }, 3).expect("batches");
            assert!(state(session.executor()) == before, "{name}: evaluation changed the state");
            assert!(
                score.loss.is_finite() && score.accuracy.is_some() == (name != "gpt"),
                "{name}: {score:?}"
            );
            scores.push((score.loss.to_bits(), score.accuracy.map(f32::to_bits)));
            // Training continues as if nothing had happened.
            let mut undisturbed = self::session(program);
            undisturbed.step(None).expect("a step");
            let both =
                [session.step(None), undisturbed.step(None)].map(|r| r.expect("a step").loss.to_bits());
            assert_eq!(both[0], both[1], "{name}");
        }
        assert_eq!(scores[0], scores[1], "{name}: the score depends on the plan");
    }
}

/// In another arena it would write over parameters.
#[test]
fn an_evaluation_of_another_program_is_refused() {
    let (small, large) = (mlp(8), mlp(256));
    let [adam, sgd] = [Optimizer::adam(1e-2), Optimizer::sgd(1e-2)];
    // One with other state, and one with a smaller arena.
    let (other, smaller) = (prepared(&large, &adam).keep_all, prepared(&small, &sgd).keep_all);
    let made_for = prepared(&large, &sgd).keep_all;
    let evaluation = Evaluation::fit(&large, &made_for).expect("no internal error").expect("it fits");
    assert!(evaluation.peak() > smaller.peak());
    for program in [&other, &smaller] {
        let mut session = session(program);
        let before = state(session.executor());
        let refused = evaluation.run(&mut session, &mut Synthetic { seed: 99 }, 1);
        let message = refused.expect_err("another program").to_string();
        assert!(message.contains("another training program"), "{message}");
        assert!(state(session.executor()) == before, "the state has changed");
    }
}

#[test]
fn evaluation_drops_nothing_and_uses_running_statistics() {
    let optimizer = Optimizer::adam(1e-3);
    for forward in [gpt(), resnet(), forward("bert", &[("batch", "2"), ("seq", "8"), ("layers", "1")])] {
        let step = prepared(&forward, &optimizer).step;
        let graph = evaluation_pass(&forward, &step.graph).expect("a graph").graph;
        let text = graph.to_text();
        for absent in ["= dropout ", "= running_update ", "= batch_norm {"] {
            assert!(!text.contains(absent), "{absent} in {}", forward.name);
        }
        assert!(!text.contains("\"dropout\":0.1"), "attention drops in {}", forward.name);
        let states = |graph: &Graph| {
            let mut names: Vec<String> = graph
                .sources
                .iter()
                .filter(|s| graph.values[s.value].kind.is_state())
                .map(|s| s.name.clone())
                .collect();
            names.sort();
            names
        };
        assert_eq!(states(&graph), states(&step.graph), "all state is known");
    }
}

#[test]
fn a_batch_that_is_too_large_for_the_arena_has_no_evaluation() {
    let optimizer = Optimizer::sgd(0.1);
    let program = prepared(&mlp(4), &optimizer).keep_all;
    assert!(Evaluation::fit(&mlp(4), &program).expect("no internal error").is_some());
    assert!(Evaluation::fit(&mlp(4096), &program).expect("no internal error").is_none());
}

fn identity(forward: &Graph, optimizer: &Optimizer) -> Identity {
    Identity::of(forward, *optimizer, schedule(), SEED, "synthetic")
}

fn schedule() -> LearningRate {
    LearningRate { peak: 1e-2, warmup: 2, decay: Decay::Cosine, floor: 0.1, end: 6 }
}

fn resume(
    folder: &Path,
    identity: &Identity,
    session: &mut Session,
) -> (remat::Result<Option<u64>>, Vec<String>) {
    let mut warnings = Vec::new();
    let warn = |warning| warnings.push(warning);
    let step = Checkpoints::resume(folder, identity, Schedule::Same, session, warn);
    (step, warnings)
}

#[test]
fn a_run_that_goes_on_has_the_bits_of_one_that_never_stopped() {
    for (name, forward) in [("mlp", mlp(4)), ("gpt", gpt()), ("resnet18", resnet())] {
        let prepared = prepared(&forward, &ACCUMULATING);
        let identity = identity(&forward, &ACCUMULATING);
        let start = |program: &Program| {
            let mut session = session(program);
            session.learning_rate = schedule();
            session
        };
        let mut whole = start(&prepared.keep_all);
        let results: Vec<StepResult> = (0..5).map(|_| whole.step(None).expect("a step")).collect();

        let folder = tempfile::tempdir().expect("a folder");
        let mut first = start(&prepared.keep_all);
        let mut both: Vec<StepResult> = (0..2).map(|_| first.step(None).expect("a step")).collect();
        let checkpoints = Checkpoints::open(folder.path(), identity.clone(), 2).expect("a folder");
        checkpoints.write(&first).expect("a checkpoint");
        // It resumes under another plan, which changes no result.
        let mut second = start(&tight(&prepared));
        let (step, warnings) = resume(folder.path(), &identity, &mut second);
        assert_eq!((step.expect("a checkpoint"), warnings), (Some(2), vec![]), "{name}");
        both.extend((0..3).map(|_| second.step(None).expect("a step")));
        assert_eq!(log(&both), log(&results), "{name}");
        assert!(state(second.executor()) == state(whole.executor()), "{name}: a bit of the state changed");
    }
}

#[test]
fn broken_checkpoints_are_skipped_and_foreign_ones_refused() {
    let optimizer = Optimizer::adam(1e-2);
    let forward = mlp(4);
    let program = prepared(&forward, &optimizer).keep_all;
    let identity = identity(&forward, &optimizer);
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoints = Checkpoints::open(folder.path(), identity.clone(), 2).expect("a folder");
    assert!(
        Checkpoints::open(folder.path(), identity.clone(), 2).unwrap_err().to_string().contains("in use")
    );
    let mut trained = session(&program);
    assert_eq!(resume(folder.path(), &identity, &mut trained).0.expect("an empty folder"), None);
    let mut paths = Vec::new();
    for _ in 0..3 {
        trained.step(None).expect("a step");
        paths.push(checkpoints.write(&trained).expect("a checkpoint"));
    }
    assert!(!paths[0].exists() && paths[1].exists() && paths[2].exists(), "two are kept");

    // A flipped bit, a torn file, and something else under the name of a checkpoint.
    let whole = std::fs::read(&paths[2]).expect("a file");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("bytes") ^= 1;
    for broken in [&flipped[..], &whole[..whole.len() / 2], b"something else"] {
        std::fs::write(&paths[2], broken).expect("a file");
        let mut fresh = session(&program);
        let (step, warnings) = resume(folder.path(), &identity, &mut fresh);
        assert_eq!((step.expect("the older one"), warnings.len()), (Some(2), 1));
        assert!(warnings[0].contains("step-00000003"), "{warnings:?}");
        assert_eq!(fresh.steps_done(), 2);
    }
    std::fs::write(&paths[1], b"").expect("a file");
    let message = resume(folder.path(), &identity, &mut session(&program)).0.unwrap_err().to_string();
    assert!(message.contains("all of them are damaged"), "{message}");

    std::fs::write(&paths[2], whole).expect("a file");
    for (part, other) in [
        ("seed was 11, now it is 12", Identity { seed: 12, ..identity.clone() }),
        ("model was mlp(batch=4", Identity { model: "gpt".to_owned(), ..identity.clone() }),
        ("optimizer was", Identity { optimizer: Optimizer::sgd(1.0), ..identity.clone() }),
        ("learning rate was", Identity { learning_rate: LearningRate::constant(1.0), ..identity.clone() }),
        ("data was synthetic", Identity { data: "text".to_owned(), ..identity.clone() }),
    ] {
        let mut fresh = session(&program);
        let message = resume(folder.path(), &other, &mut fresh).0.unwrap_err().to_string();
        assert!(message.contains("run") && message.contains(part) && !message.contains('{'), "{message}");
    }
}

#[test]
fn a_killed_writer_leaves_nothing_that_anyone_would_read() {
    let optimizer = Optimizer::adam(1e-2);
    let forward = mlp(4);
    let identity = identity(&forward, &optimizer);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("step-00000007.safetensors.123.partial"), b"half").expect("a file");
    std::fs::write(folder.path().join("notes.txt"), b"mine").expect("a file");
    let program = prepared(&forward, &optimizer).keep_all;
    assert_eq!(resume(folder.path(), &identity, &mut session(&program)).0.expect("a folder"), None);
    Checkpoints::open(folder.path(), identity, 1).expect("a folder");
    assert!(!folder.path().join("step-00000007.safetensors.123.partial").exists());
    assert!(folder.path().join("notes.txt").exists(), "what is not ours stays");
    assert!(program.peak() > Bytes(0));
}

#[test]
fn an_input_that_no_node_reads_is_filled_and_counted() {
    let model = Model::build("unread", |g| {
        g.input("unread", [8, 100]);
        g.input("input", [8, 16]).linear("fc", 4).cross_entropy(g.labels("labels", [8], 4))
    });
    let prepared = prepared(model.expect("a model").graph(), &Optimizer::adam(1e-3));
    let mut session = session(&prepared.keep_all);
    assert_eq!(session.step(None).expect("a step").stats.peak, prepared.keep_all.peak());
}
