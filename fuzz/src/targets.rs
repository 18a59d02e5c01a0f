//! What is done with bytes from anywhere, one function per kind of file. Fuzzers call these functions, and the tests call
//! them with every file of the corpus. A function returns whether the bytes were accepted; it panics when a promise is
//! broken: what is printed is read back equal, a message holds nothing that takes a terminal over, nothing is allocated
//! on the word of a file.

use remat::exec::{Engine as _, as_floats_mut};
use remat::graph::Graph;
use remat::inference::Inference;
use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, prepare};
use remat::profile::Machine;
use remat::testing::random::{Choices, check_step, random_step};
use remat::train::{
    BytePairs, Checkpoints, Identity, Images, LearningRate, RunFolder, Schedule, Session, Synthetic,
    Tokenizer, decode_image,
};
use remat::weights::WeightFile;
use remat_plan::{
    Budget, Bytes, Plan, Problem, Status, check, explain, is_unprintable, memory_floor, proves_optimal,
    simulate_with,
};
use std::cell::RefCell;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A kind of file, with what is done with it.
pub type Target = (&'static str, fn(&[u8]));

/// All of them, by the name of their folder in the corpus.
pub const TARGETS: [Target; 12] = [
    ("problem", problem),
    ("plan", plan),
    ("graph", graph),
    ("safetensors", safetensors),
    ("idx", idx),
    ("png", image),
    ("jpeg", image),
    ("configuration", configuration),
    ("sizes", sizes),
    ("checkpoint", checkpoint),
    ("run_folder", run_folder),
    ("step", step),
];

pub use image as png;
pub use image as jpeg;

/// A refusal must be fit for a terminal, and not too long to read.
fn refused(error: impl Display) {
    let message = error.to_string();
    assert!(message.len() < 100_000, "{} bytes of message", message.len());
    // The command escapes what names bring into messages; here they must at least be lines.
    assert!(!message.is_empty());
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn is_clean(text: &str) -> bool {
    !text.contains(|c: char| is_unprintable(c) && c != '\n' && c != '\t')
}

/// A planning problem in either form.
pub fn problem(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Problem::parse(text) {
        Err(error) => refused(error),
        Ok(problem) => {
            let printed = problem.to_text();
            assert!(is_clean(&printed), "{printed:?}");
            assert_eq!(Problem::from_text(&printed).expect("it was printed"), problem);
            assert_eq!(Problem::from_json(&problem.to_json()).expect("it was printed"), problem);
            let _ = memory_floor(&problem);
        }
    }
}

/// A small problem for plans.
const SMALL: &str = include_str!("../problems/small.txt");

/// A small problem with a store, for plans that move values.
const MOVED: &str = include_str!("../problems/moved.txt");

/// A plan in either form for one of two small problems; it names its problem.
pub fn plan(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for problem in [SMALL, MOVED] {
        plan_for(text, &Problem::from_text(problem).expect("a valid problem"));
    }
}

fn plan_for(text: &str, problem: &Problem) {
    match Plan::parse(text, problem) {
        Err(error) => refused(error),
        Ok(plan) => {
            let faults = check(problem, &plan);
            faults.iter().for_each(|fault| refused(fault.with_names(problem)));
            let is_valid = faults.is_empty();
            let _ = proves_optimal(problem, &plan);
            match simulate_with(problem, &plan.stored, &plan.steps) {
                Ok(_) => {}
                Err(error) => {
                    // An answer that there is no plan has no steps.
                    let is_plan = plan.status != Status::Infeasible;
                    assert!(!is_valid || !is_plan, "the checker passes what the simulator refuses: {error}");
                    refused(error);
                }
            }
            if is_valid && plan.status != Status::Infeasible {
                let _ = explain(problem, &plan);
            }
            // A cost that is no number is not equal to itself.
            if plan.cost.is_finite() && plan.lower_bound.is_none_or(f64::is_finite) {
                assert_eq!(Plan::from_text(&plan.to_text(problem), problem).expect("it was printed"), plan);
                assert_eq!(Plan::from_json(&plan.to_json(), problem).expect("it was printed"), plan);
            }
        }
    }
}

/// The text of a graph.
pub fn graph(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Graph::from_text(text) {
        Err(error) => refused(error),
        Ok(graph) => {
            let printed = graph.to_text();
            assert!(is_clean(&printed) && is_clean(&graph.to_dot()), "{printed:?}");
            assert_eq!(Graph::from_text(&printed).expect("it was printed").to_text(), printed);
        }
    }
}

thread_local! {
    /// Where files are put; made once, since most of the time of a run would be spent on it.
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
    static SESSION: RefCell<Session> = RefCell::new(session());
}

/// Writes bytes where readers that want a path find them.
fn with_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path, &Path) -> T) -> T {
    FOLDER.with(|folder| {
        let path: PathBuf = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, bytes).expect("a file");
        read(&path, path.parent().expect("a folder"))
    })
}

fn small_model() -> Graph {
    let options = [("batch", "2"), ("features", "3"), ("width", "3"), ("layers", "1"), ("classes", "2")];
    let options = options.iter().fold(Options::new(), |all, &(name, value)| all.with(name, value));
    model::find("mlp").expect("a known model").build(&options).expect("valid options").into_graph()
}

const OPTIMIZER: Optimizer = Optimizer::adam(1e-2);

/// The session that the checkpoints of the corpus belong to.
pub fn session() -> Session {
    let costs = Costs::Analytic(Machine::nominal(1));
    let program = prepare(&small_model(), &OPTIMIZER, costs, |_, _| {}).expect("a valid step").keep_all;
    Session::new(program, Box::new(Synthetic { seed: 1 }), 1, 1).expect("memory")
}

/// The run that they belong to.
pub fn identity() -> Identity {
    Identity::of(&small_model(), OPTIMIZER, LearningRate::constant(1e-2), 1, "synthetic")
}

/// A weight file.
pub fn safetensors(bytes: &[u8]) {
    with_file("weights.safetensors", bytes, |path, _| {
        if let Err(error) = WeightFile::open_any(path) {
            return refused(error);
        }
        SESSION.with_borrow_mut(|session| {
            let executor = session.executor_mut();
            let mut file = match WeightFile::open(executor.graph(), path) {
                Ok(file) => file,
                Err(error) => return refused(error),
            };
            for source in executor.graph().sources.clone() {
                let value = executor.graph().values[source.value].clone();
                if value.kind == remat::graph::Kind::Parameter {
                    let floats = as_floats_mut(executor.bytes_mut(source.value));
                    file.read(&source, &value.ty, 0, floats).expect("a file that fits is read");
                }
            }
        });
    });
}

/// A pair of IDX files: a byte that says whether they are packed, the length of the labels, labels, images.
pub fn idx(bytes: &[u8]) {
    let [is_packed, n_labels, rest @ ..] = bytes else { return };
    let (labels, images) = rest.split_at(rest.len().min(usize::from(*n_labels)));
    let ending = if is_packed % 2 == 1 { ".gz" } else { "" };
    let names = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]
        .map(|name| format!("idx{ending}/{name}{ending}"));
    with_file(&names[1], labels, |_, _| {});
    with_file(&names[0], images, |_, folder| match Images::open(folder) {
        Err(error) => refused(error),
        Ok(images) => assert!(images.n_classes() > 0),
    });
}

/// A picture of either kind: its first bytes say which.
pub fn image(bytes: &[u8]) {
    with_file("picture", bytes, |path, _| match decode_image(path) {
        Err(error) => refused(error),
        Ok((pixels, height, width)) => assert_eq!(pixels.len(), 3 * height * width),
    });
}

/// What configures a run, one per line: a model with its options, an optimizer, a learning rate, a tokenizer.
pub fn configuration(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for line in text.lines().take(4) {
        if let Some((info, options)) = model::of_name(line) {
            match info.build(&options) {
                Err(error) => refused(error),
                Ok(model) => assert!(model.n_parameters() > 0),
            }
        }
        if let Ok(json) = serde_json::from_str::<serde_json::Value>(line) {
            if let Ok(rate) = serde_json::from_value::<LearningRate>(json.clone()) {
                let _ = [0, 1, 2, 1000, u64::MAX].map(|step| rate.at(step));
            }
            if let Ok(optimizer) = serde_json::from_value::<Optimizer>(json.clone()) {
                let _ = (optimizer.name(), optimizer.op());
            }
            match BytePairs::from_json(&json) {
                Err(error) => refused(error),
                Ok(pairs) => {
                    let mut tokens = Vec::new();
                    pairs.encode("some words, more words", |token| tokens.push(token));
                    let back: Vec<u8> = tokens.iter().flat_map(|&token| pairs.bytes(token)).collect();
                    assert_eq!(back, b"some words, more words");
                }
            }
        }
    }
}

/// Sizes, budgets and tokenizers as people type them.
pub fn sizes(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match text.parse::<Bytes>() {
        Err(error) => refused(error),
        Ok(size) => drop(size.to_string()),
    }
    match text.parse::<Budget>() {
        Err(error) => refused(error),
        Ok(budget) => {
            let _ = (budget.resolve(Bytes(1000)), budget.resolve(Bytes(u64::MAX)), budget.to_string());
        }
    }
    match text.parse::<Tokenizer>() {
        Err(error) => refused(error),
        Ok(tokenizer) => assert_eq!(tokenizer.to_string().parse(), Ok(tokenizer)),
    }
}

/// A checkpoint of a small run.
pub fn checkpoint(bytes: &[u8]) {
    with_file("run/step-00000003.safetensors", bytes, |_, folder| {
        if let Err(error) = Checkpoints::newest(folder) {
            refused(error);
        }
        SESSION.with_borrow_mut(|session| {
            match Checkpoints::resume(folder, &identity(), Schedule::Same, session, refused) {
                Err(error) => refused(error),
                Ok(step) => assert_eq!(step, Some(3)),
            }
        });
    });
}

/// What a run says of itself: its `run.json`, and the model that a checkpoint names.
pub fn run_folder(bytes: &[u8]) {
    with_file("described/run.json", bytes, |_, folder| match RunFolder::read(folder) {
        Err(error) => refused(error),
        Ok(found) => {
            let found = found.expect("the file is there");
            if let Err(error) = found.forward() {
                return refused(error);
            }
            let weights = folder.join("step-00000001.safetensors");
            if !weights.exists() {
                // A checkpoint that names no listed model, so that the description counts.
                std::fs::write(weights, b"\x02\0\0\0\0\0\0\0{}").expect("a file");
            }
            match Inference::load(folder) {
                Err(error) => refused(error),
                Ok(model) => drop(model.peak().to_string()),
            }
        }
    });
}

/// A training step of any ops, through the whole pipeline: a byte that says how much of the rest chooses the model, then
/// what chooses the model, then what chooses its plans.
pub fn step(bytes: &[u8]) {
    let [n_of_model, rest @ ..] = bytes else { return };
    let (of_model, of_plans) = rest.split_at(rest.len().min(usize::from(*n_of_model)));
    let step = random_step(&mut Choices::of_bytes(of_model)).expect("any choices make a model");
    if let Err(fault) = check_step(&step, &mut Choices::of_bytes(of_plans)) {
        panic!("{fault}\n{:?}\n{}", step.optimizer, step.forward.to_text());
    }
}
