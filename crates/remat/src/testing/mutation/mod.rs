//! Mutation of artefacts: plans, schedules, layouts and fused steps with one thing wrong, which their checkers must report.
//!
//! Each artefact has a table of kinds; a kind makes a random mutant of a valid artefact. A mutant that its checker passes
//! must be right after all, which a second definition decides that shares no code with the checker: plans are counted
//! again step by step, schedules are run with every value in memory of its own, fused steps against the step before
//! fusion, layouts by the owner of every line of memory. What neither catches is a hole in the checker.

mod attributes;
mod fusions;
mod layouts;
mod lines;
mod moves;
mod plans;
mod recount;
mod replay;
mod schedules;

pub use fusions::FUSIONS;
pub use layouts::{LAYOUTS, Laid};
pub use plans::PLANS;
pub use schedules::SCHEDULES;

use super::Choices;
use crate::pipeline::{Prepared, Program};
use crate::step::TrainingStep;
use std::fmt;

/// A valid step with everything that was made of it.
#[derive(Clone, Debug)]
pub struct Specimen {
    /// Names it in messages.
    pub name: String,
    /// The step before fusion.
    pub before: TrainingStep,
    /// The fused step.
    pub prepared: Prepared,
    /// A plan of it, carried out and laid out.
    pub program: Program,
}

/// One way to break an artefact.
#[derive(Clone, Copy, Debug)]
pub struct Kind<A> {
    /// What is done, in a few words.
    pub name: &'static str,
    /// A mutant, and where it was broken; `None` where there is nothing to break this way.
    pub make: fn(&Specimen, &mut Choices) -> Option<Mutant<A>>,
}

/// An artefact with one thing wrong.
#[derive(Clone, Debug)]
pub struct Mutant<A> {
    /// Where.
    pub place: String,
    /// What the checker is given.
    pub artefact: A,
}

fn mutant<A>(place: impl fmt::Display, artefact: A) -> Option<Mutant<A>> {
    Some(Mutant { place: place.to_string(), artefact })
}

/// Something that a checker checks.
pub(crate) trait Artefact: Sized + 'static {
    /// As in the table.
    const NAME: &'static str;
    /// All kinds.
    const KINDS: &'static [Kind<Self>];

    /// Whether the checker reports a fault.
    fn is_caught(&self, of: &Specimen) -> bool;

    /// Whether it is right although it was changed, by a definition of its own.
    fn is_right(&self, of: &Specimen) -> bool;
}

/// What became of the mutants of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Plan, schedule, layout or fusion.
    pub artefact: &'static str,
    /// What was done.
    pub kind: &'static str,
    /// Mutants.
    pub n_seeded: usize,
    /// Reported by the checker.
    pub n_caught: usize,
    /// Right after all.
    pub n_equivalent: usize,
    /// Neither: holes in the checker.
    pub survivors: Vec<String>,
}

/// The table of all kinds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// One row for each kind, in the order of the tables.
    pub rows: Vec<Row>,
}

impl Table {
    /// Makes `n_each` mutants of every kind of a specimen and counts what becomes of them.
    pub fn attack(&mut self, of: &Specimen, n_each: usize, choices: &mut Choices) {
        self.attack_one::<remat_plan::Plan>(of, n_each, choices);
        self.attack_one::<crate::rewrite::Schedule>(of, n_each, choices);
        self.attack_one::<Laid>(of, n_each, choices);
        self.attack_one::<TrainingStep>(of, n_each, choices);
    }

    fn attack_one<A: Artefact>(&mut self, of: &Specimen, n_each: usize, choices: &mut Choices) {
        for kind in A::KINDS {
            let row = self.row(A::NAME, kind.name);
            for _ in 0..n_each {
                let Some(Mutant { place, artefact }) = (kind.make)(of, choices) else { break };
                row.n_seeded += 1;
                if artefact.is_caught(of) {
                    row.n_caught += 1;
                } else if artefact.is_right(of) {
                    row.n_equivalent += 1;
                } else {
                    row.survivors.push(format!("{}: {place}", of.name));
                }
            }
        }
    }

    fn row(&mut self, artefact: &'static str, kind: &'static str) -> &mut Row {
        let found = self.rows.iter().position(|row| (row.artefact, row.kind) == (artefact, kind));
        let at = found.unwrap_or_else(|| {
            let survivors = Vec::new();
            self.rows.push(Row { artefact, kind, n_seeded: 0, n_caught: 0, n_equivalent: 0, survivors });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// Mutants that no checker reported and that are wrong.
    pub fn survivors(&self) -> Vec<String> {
        let tell = |row: &Row| {
            let what = format!("{}, {}", row.artefact, row.kind);
            row.survivors.iter().map(|place| format!("{what}: {place}")).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(tell).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |artefact: &str, kind: &str, counts: [usize; 4]| {
            let [seeded, caught, equivalent, survived] = counts;
            writeln!(f, "| {artefact} | {kind} | {seeded} | {caught} | {equivalent} | {survived} |")
        };
        let counts = |row: &Row| [row.n_seeded, row.n_caught, row.n_equivalent, row.survivors.len()];
        for row in &self.rows {
            line(row.artefact, row.kind, counts(row))?;
        }
        let sum =
            self.rows.iter().map(counts).fold([0; 4], |sum, row| std::array::from_fn(|i| sum[i] + row[i]));
        line("all", "", sum)
    }
}

/// A random position of the list at which the predicate holds.
fn position<T>(list: &[T], choices: &mut Choices, suits: impl Fn(usize, &T) -> bool) -> Option<usize> {
    let suiting: Vec<usize> = (0..list.len()).filter(|&at| suits(at, &list[at])).collect();
    (!suiting.is_empty()).then(|| suiting[choices.below(suiting.len())])
}

/// How many neighbours a list of this length has, if any.
fn pairs(length: usize) -> Option<usize> {
    length.checked_sub(1).filter(|&n| n > 0)
}
