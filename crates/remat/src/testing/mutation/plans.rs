//! Plans with one thing wrong.

use super::recount::count;
use super::{Artefact, Kind, Mutant, Specimen, mutant, pairs, position};
use crate::testing::Choices;
use remat_plan::{Bytes, NodeId, Plan, Problem, Status, Step, StoreId, ValueId, check};

/// All kinds of wrong plans.
pub const PLANS: &[Kind<Plan>] = &[
    Kind {
        name: "dropped compute",
        make: |of, c| steps(of, c, |of, s, c| Some(s.remove(compute(of, s, c)?))),
    },
    Kind { name: "repeated compute", make: |of, c| steps(of, c, repeat) },
    Kind { name: "another node", make: |of, c| steps(of, c, |of, all, c| another_node(of, all, c)) },
    Kind {
        name: "moved compute",
        make: |of, c| steps(of, c, |of, s, c| move_step(s, compute(of, s, c)?, c)),
    },
    Kind { name: "swapped steps", make: |of, c| steps(of, c, |_, all, c| swap(all, c)) },
    Kind { name: "early update", make: |of, c| steps(of, c, early_update) },
    Kind { name: "second update", make: |of, c| steps(of, c, second_update) },
    Kind { name: "dropped free", make: |of, c| steps(of, c, |_, s, c| Some(s.remove(free(s, c)?))) },
    Kind { name: "double free", make: |of, c| steps(of, c, double_free) },
    Kind { name: "moved free", make: |of, c| steps(of, c, |_, s, c| move_step(s, free(s, c)?, c)) },
    Kind { name: "early free", make: |of, c| steps(of, c, early_free) },
    Kind { name: "lost output", make: |of, c| steps(of, c, lost_output) },
    Kind {
        name: "no such node",
        make: |of, c| steps(of, c, |of, s, c| insert(s, c, Step::Compute(past_nodes(of)))),
    },
    Kind {
        name: "no such value",
        make: |of, c| steps(of, c, |of, s, c| insert(s, c, Step::Free(past_values(of)))),
    },
    Kind { name: "dropped copy", make: |of, c| steps(of, c, |_, s, c| Some(s.remove(copy(s, c)?))) },
    Kind { name: "second copy", make: |of, c| steps(of, c, second_copy) },
    Kind { name: "moved copy", make: |of, c| steps(of, c, |_, s, c| move_step(s, copy(s, c)?, c)) },
    Kind { name: "another store", make: |of, c| steps(of, c, |_, s, c| another_store(s, c)) },
    Kind { name: "freed before the copy", make: |of, c| steps(of, c, freed_before_copy) },
    Kind {
        name: "state not stored",
        make: |of, c| stored(of, c, |plan, c| Some(plan.stored.remove(c.below(plan.stored.len())))),
    },
    Kind {
        name: "state stored twice",
        make: |of, c| {
            stored(of, c, |plan, c| {
                let again = plan.stored[c.below(plan.stored.len())];
                plan.stored.push(again);
                Some(again)
            })
        },
    },
    Kind {
        name: "state stored elsewhere",
        make: |of, c| {
            stored(of, c, |plan, c| {
                let at = c.below(plan.stored.len());
                plan.stored[at].1 = StoreId::new(plan.stored[at].1.index() + 1);
                Some(plan.stored[at])
            })
        },
    },
    Kind { name: "claimed peak", make: |of, c| claim(of, |p| p.peak_bytes = other_bytes(p.peak_bytes, c)) },
    Kind {
        name: "claimed cost",
        make: |of, c| claim(of, |p| p.cost *= c.one_of(&[0.99, 1.01, 0.0, f64::NAN])),
    },
    Kind {
        name: "claimed bound",
        make: |of, c| claim(of, |p| p.lower_bound = Some(c.one_of(&[2.0 * p.cost + 1.0, f64::NAN]))),
    },
    Kind {
        name: "claimed optimum",
        make: |of, _| claim(of, |p| (p.status, p.lower_bound) = (Status::Optimal, None)),
    },
    Kind { name: "claimed impossible", make: |of, _| claim(of, |p| p.status = Status::Infeasible) },
    Kind { name: "smaller budget", make: |of, _| claim(of, |p| p.budget_bytes = Bytes(p.peak_bytes.0 - 1)) },
    Kind { name: "another problem", make: |of, _| claim(of, |p| p.problem.push('\'')) },
];

impl Artefact for Plan {
    const NAME: &'static str = "plan";
    const KINDS: &'static [Kind<Plan>] = PLANS;

    fn is_caught(&self, of: &Specimen) -> bool {
        !check(&of.prepared.problem.problem, self).is_empty()
    }

    fn is_right(&self, of: &Specimen) -> bool {
        let problem = &of.prepared.problem.problem;
        let is_close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        // What it claims about itself was not changed, so only the steps can be wrong.
        count(problem, self).is_some_and(|(peak, cost)| {
            peak == self.peak_bytes.0 && peak <= self.budget_bytes.0 && is_close(cost, self.cost)
        })
    }
}

type Change<T> = fn(&Specimen, &mut Vec<Step>, &mut Choices) -> Option<T>;

fn steps<T: std::fmt::Debug>(
    of: &Specimen,
    choices: &mut Choices,
    change: Change<T>,
) -> Option<Mutant<Plan>> {
    let right = of.program.plan();
    let mut plan = right.clone();
    let changed = change(of, &mut plan.steps, choices)?;
    if plan.steps == right.steps {
        return None;
    }
    mutant(format!("{changed:?} of {:?}", plan.steps), plan)
}

fn claim(of: &Specimen, change: impl FnOnce(&mut Plan)) -> Option<Mutant<Plan>> {
    let mut plan = of.program.plan().clone();
    change(&mut plan);
    mutant("its claims", plan)
}

/// A change of what is stored at the start, where anything is.
fn stored<T: std::fmt::Debug>(
    of: &Specimen,
    choices: &mut Choices,
    change: fn(&mut Plan, &mut Choices) -> Option<T>,
) -> Option<Mutant<Plan>> {
    let mut plan = of.program.plan().clone();
    if plan.stored.is_empty() {
        return None;
    }
    let changed = change(&mut plan, choices)?;
    mutant(format!("{changed:?}"), plan)
}

fn copy(steps: &[Step], choices: &mut Choices) -> Option<usize> {
    position(steps, choices, |_, step| step.uses_store())
}

fn second_copy(_of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let step = steps[copy(steps, choices)?];
    insert(steps, choices, step)
}

fn another_store(steps: &mut [Step], choices: &mut Choices) -> Option<Step> {
    let at = copy(steps, choices)?;
    let other = |store: StoreId| StoreId::new(store.index() ^ 1);
    steps[at] = match steps[at] {
        Step::Out(v, s) => Step::Out(v, other(s)),
        Step::In(v, s) => Step::In(v, other(s)),
        Step::Discard(v, s) => Step::Discard(v, other(s)),
        step => step,
    };
    Some(steps[at])
}

fn freed_before_copy(_of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let at = position(steps, choices, |_, step| matches!(step, Step::Out(..)))?;
    let Step::Out(value, _) = steps[at] else { return None };
    let free = steps[at..].iter().position(|step| *step == Step::Free(value))? + at;
    let step = steps.remove(free);
    steps.insert(at, step);
    Some(step)
}

fn problem(of: &Specimen) -> &Problem {
    &of.prepared.problem.problem
}

fn past_nodes(of: &Specimen) -> NodeId {
    NodeId::new(problem(of).nodes.len())
}

fn past_values(of: &Specimen) -> ValueId {
    ValueId::new(problem(of).values.len())
}

fn other_bytes(bytes: Bytes, choices: &mut Choices) -> Bytes {
    Bytes(choices.one_of(&[bytes.0 + 1, bytes.0 - 1, 0, u64::MAX]))
}

fn compute(_of: &Specimen, steps: &[Step], choices: &mut Choices) -> Option<usize> {
    position(steps, choices, |_, step| matches!(step, Step::Compute(_)))
}

fn free(steps: &[Step], choices: &mut Choices) -> Option<usize> {
    position(steps, choices, |_, step| matches!(step, Step::Free(_)))
}

fn insert(steps: &mut Vec<Step>, choices: &mut Choices, step: Step) -> Option<Step> {
    steps.insert(choices.below(steps.len() + 1), step);
    Some(step)
}

fn move_step(steps: &mut Vec<Step>, at: usize, choices: &mut Choices) -> Option<Step> {
    let step = steps.remove(at);
    insert(steps, choices, step)
}

fn repeat(of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let step = steps[compute(of, steps, choices)?];
    insert(steps, choices, step)
}

fn another_node(of: &Specimen, steps: &mut [Step], choices: &mut Choices) -> Option<Step> {
    let at = compute(of, steps, choices)?;
    steps[at] = Step::Compute(NodeId::new(choices.below(problem(of).nodes.len())));
    Some(steps[at])
}

fn swap(steps: &mut [Step], choices: &mut Choices) -> Option<usize> {
    let at = choices.below(pairs(steps.len())?);
    steps.swap(at, at + 1);
    Some(at)
}

fn update(of: &Specimen, steps: &[Step], choices: &mut Choices) -> Option<usize> {
    let consumes = |node: NodeId| !problem(of).node(node).consumes.is_empty();
    position(steps, choices, |_, step| matches!(step, Step::Compute(node) if consumes(*node)))
}

/// An update before something that reads what it overwrites.
fn early_update(of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let at = update(of, steps, choices)?;
    let Step::Compute(node) = steps[at] else { return None };
    let state = problem(of).node(node).consumes[0];
    let reads =
        |step: &Step| matches!(step, Step::Compute(n) if problem(of).node(*n).inputs.contains(&state));
    let reader = position(&steps[..at], choices, |_, step| reads(step))?;
    let step = steps.remove(at);
    steps.insert(reader, step);
    Some(step)
}

fn second_update(of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let step = steps[update(of, steps, choices)?];
    insert(steps, choices, step)
}

fn double_free(_of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let at = free(steps, choices)?;
    steps.insert(at + 1, steps[at]);
    Some(steps[at])
}

/// A free in front of the last node that reads the value.
fn early_free(of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let at = free(steps, choices)?;
    let Step::Free(value) = steps[at] else { return None };
    let reads =
        |step: &Step| matches!(step, Step::Compute(n) if problem(of).node(*n).inputs.contains(&value));
    let reader = steps[..at].iter().rposition(reads)?;
    let step = steps.remove(at);
    steps.insert(reader, step);
    Some(step)
}

fn lost_output(of: &Specimen, steps: &mut Vec<Step>, choices: &mut Choices) -> Option<Step> {
    let outputs = &problem(of).outputs;
    let step = Step::Free(outputs[position(outputs, choices, |_, _| true)?]);
    steps.push(step);
    Some(step)
}
