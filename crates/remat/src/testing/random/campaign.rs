//! One random step through the whole pipeline, in every way, against the oracle; and what a failure tells.

use super::plans::stores;
use super::{Choices, RandomStep, WAYS, evaluation, random_step, shrink};
use crate::graph::Graph;
use crate::op::fused::Fused;
use crate::pipeline::{Costs, prepare};
use crate::profile::Machine;
use crate::step::training_step;
use crate::testing::Oracle;
use crate::testing::mutation::Specimen;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Steps of each run: the second sees what the first has left behind.
const N_STEPS: u64 = 2;
/// Tries to make a failing case smaller.
const SHRINK_TRIES: usize = 400;
/// Keeps the choices of plans apart from those of models.
const PLANS: u64 = 0x504C_414E;

/// What was run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    /// Steps.
    pub n_steps: usize,
    /// Programs that were run, each different from the others of its step.
    pub n_programs: usize,
    /// Of these, programs that compute something again.
    pub n_recomputing: usize,
    /// Programs that copy something to or from a store.
    pub n_moving: usize,
    /// Programs whose state, or some of it, rests in a store between steps.
    pub n_resting: usize,
    /// Evaluations in the memory of a program.
    pub n_evaluations: usize,
    /// Steps whose loss is not finite.
    pub n_endless: usize,
    /// Names of all ops, fused or not.
    pub ops: BTreeSet<&'static str>,
    /// Names of the ways that gave a program.
    pub ways: BTreeSet<&'static str>,
}

impl Seen {
    /// Both together.
    pub fn add(&mut self, other: Seen) {
        self.n_steps += other.n_steps;
        self.n_programs += other.n_programs;
        self.n_recomputing += other.n_recomputing;
        self.n_moving += other.n_moving;
        self.n_resting += other.n_resting;
        self.n_evaluations += other.n_evaluations;
        self.n_endless += other.n_endless;
        self.ops.extend(other.ops);
        self.ways.extend(other.ways);
    }

    fn add_ops(&mut self, graph: &Graph) {
        for node in graph.nodes.iter() {
            self.ops.insert(node.op.name());
            let steps = node.op.get::<Fused>().into_iter().flat_map(|fused| &fused.steps);
            self.ops.extend(steps.map(|step| step.op.name()));
        }
    }
}

/// Carries a step through the pipeline in every way and holds each program against the oracle of the step before fusion.
pub fn check_step(of: &RandomStep, choices: &mut Choices) -> Result<Seen, String> {
    let says = |error: crate::Error| error.to_string();
    let mut seen = Seen { n_steps: 1, ..Seen::default() };
    let apart = training_step(&of.forward, &of.optimizer).map_err(says)?;
    let costs = Costs::Analytic(Machine::nominal(2));
    let prepared = prepare(&of.forward, &of.optimizer, costs, |_, _| {}).map_err(says)?;
    let prepared = prepared.with_stores(&stores(choices)).map_err(says)?;
    for graph in [&apart.graph, &prepared.step.graph] {
        seen.add_ops(graph);
        let read = Graph::from_text(&graph.to_text()).map_err(says)?;
        if read != *graph {
            return Err("the text of a graph is read as another graph".to_owned());
        }
    }
    let oracle = Oracle::of(&apart, N_STEPS, 1).map_err(says)?;
    seen.n_endless = usize::from(!oracle.is_finite());
    let mut done = HashSet::new();
    let mut evaluated = Vec::new();
    for way in WAYS {
        let programs = (way.make)(&prepared, choices).map_err(says)?;
        for (name, program) in programs {
            // Plans that differ only in their budget are run once.
            if !done.insert(format!("{:?} {:?}", program.plan().stored, program.plan().steps)) {
                continue;
            }
            seen.ways.insert(way.name);
            seen.n_programs += 1;
            seen.n_recomputing += usize::from(program.schedule().n_recomputes() > 0);
            seen.n_moving += usize::from(program.schedule().n_copies() > 0);
            seen.n_resting += usize::from(!program.schedule().carried.is_empty());
            let n_threads = 1 + choices.below(2);
            oracle.check(&program, n_threads).map_err(|fault| format!("{name}: {fault}"))?;
            // The largest arena, and some others.
            if evaluated.is_empty() || choices.once_in(3) {
                evaluated.push((name, program));
            }
        }
    }
    seen.n_evaluations = evaluation::check(&of.forward, &evaluated)?;
    Ok(seen)
}

/// A step that breaks a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that makes it.
    pub seed: u64,
    /// What is wrong with it.
    pub message: String,
    /// What is wrong with the smaller step.
    pub message_of_shrunk: String,
    /// The model after shrinking, as text, and its optimizer.
    pub shrunk: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, message, message_of_shrunk, shrunk } = self;
        write!(f, "seed {seed}: {message}\nmade smaller: {message_of_shrunk}\n{shrunk}")
    }
}

/// Checks the step of a seed; what fails is made smaller before it is told.
pub fn check_seed(seed: u64) -> Result<Seen, Box<Failure>> {
    let mut choices = Choices::of_seed(seed);
    let message = match check(&mut choices, seed) {
        Ok(seen) => return Ok(seen),
        Err(message) => message,
    };
    let fails = |numbers: &[u32]| check(&mut Choices::of_numbers(numbers.to_vec()), seed).is_err();
    let small = shrink(choices.drawn(), SHRINK_TRIES, fails);
    let message_of_shrunk = check(&mut Choices::of_numbers(small.clone()), seed).err();
    let shrunk = random_step(&mut Choices::of_numbers(small)).map_or_else(
        |error| error.to_string(),
        |step| format!("{:?}\n{}", step.optimizer, step.forward.to_text()),
    );
    let message_of_shrunk = message_of_shrunk.unwrap_or_else(|| "nothing".to_owned());
    Err(Box::new(Failure { seed, message, message_of_shrunk, shrunk }))
}

/// The step of a seed with one program of it that recomputes something, for mutations; `None` if it has none.
pub fn specimen(seed: u64) -> crate::Result<Option<Specimen>> {
    let step = random_step(&mut Choices::of_seed(seed))?;
    let before = training_step(&step.forward, &step.optimizer)?;
    let costs = Costs::Analytic(Machine::nominal(2));
    let mut choices = Choices::of_seed(seed ^ PLANS);
    let prepared =
        prepare(&step.forward, &step.optimizer, costs, |_, _| {})?.with_stores(&stores(&mut choices))?;
    // Plans of any order have more that can be broken than those of planners.
    for way in WAYS.iter().rev() {
        let programs = (way.make)(&prepared, &mut choices)?;
        let found = programs.into_iter().find(|(_, program)| program.schedule().n_recomputes() > 0);
        if let Some((way, program)) = found {
            let name = format!("seed {seed}, {way}");
            return Ok(Some(Specimen { name, before, prepared, program }));
        }
    }
    Ok(None)
}

/// A panic anywhere in the pipeline is a failure, too.
fn check(choices: &mut Choices, seed: u64) -> Result<Seen, String> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let step = random_step(choices).map_err(|error| error.to_string())?;
        check_step(&step, &mut Choices::of_seed(seed ^ PLANS))
    }));
    checked.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}
