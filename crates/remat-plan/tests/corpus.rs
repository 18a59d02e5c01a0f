//! The text cases in tests/corpus/: every fault of validator and checker, text errors, plans of every planner, traces.
//!
//! Sections (the form of a case is told in tests/common/corpus.rs):
//!
//! | input | what it is |
//! |---|---|
//! | `problem`, `plan` | in text form or JSON |
//!
//! | expected | what is answered |
//! |---|---|
//! | `error` | why the problem, or else the plan, is not read |
//! | `ids` | the faults of the problem or of the plan with bare ids |
//! | `check` | what the checker says of the plan |
//! | `solve PLANNER BUDGET` | the plan in text form, or why there is none |
//! | `simulate` | the steps of the plan with their memory |
//! | `floor` | the memory floor |
//! | `json`, `text` | the problem in the other form |

mod common;

use common::corpus::{Case, Section, replay};
use common::node;
use remat_plan::{
    Bytes, Fault, Outcome, PLANNERS, Phase, Plan, Problem, ProblemError, ProblemFaultKind, Request, Status,
    Step, Value, ValueId, check, memory_floor, proves_optimal, simulate_with, solve,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn cases_are_answered_as_written() {
    let seen = Seen::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let n_cases = replay(&folder, |case, section| answer(case, section, &seen));
    assert!(n_cases >= 60, "{n_cases} cases");
    seen.assert_complete();
}

fn answer(case: &Case, section: &Section, seen: &Seen) -> Option<String> {
    let problem = || Problem::parse(case.section("problem"));
    let sound = || problem().unwrap_or_else(|error| panic!("{}: {error}", case.file.display()));
    let plan = |problem: &Problem| {
        Plan::parse(case.section("plan"), &stretched(problem, case.section("plan")))
            .unwrap_or_else(|error| panic!("{}: {error}", case.file.display()))
    };
    let (command, arguments) = section.name.split_once(' ').unwrap_or((&section.name, ""));
    Some(match command {
        "problem" | "plan" => return None,
        "error" => match problem() {
            Err(error) => {
                seen.note_problem(&error);
                error.to_string()
            }
            Ok(problem) => match Plan::parse(case.section("plan"), &problem) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{}: there is no error", case.file.display()),
            },
        },
        "ids" => match problem() {
            Err(ProblemError::Invalid { faults, .. }) => lines(&faults),
            Err(error) => panic!("{}: {error}", case.file.display()),
            Ok(problem) => lines(&check(&problem, &plan(&problem))),
        },
        "check" => {
            let problem = sound();
            let plan = plan(&problem);
            let faults = check(&problem, &plan);
            faults.iter().for_each(|fault| seen.note_plan(fault));
            if faults.is_empty() {
                let proof = match plan.status {
                    Status::Optimal if proves_optimal(&problem, &plan) => ", which is proved",
                    Status::Optimal => ", which is a claim",
                    Status::Feasible | Status::Infeasible => "",
                };
                format!("valid, {}{proof}", plan.status.name())
            } else {
                lines(&faults.iter().map(|fault| fault.with_names(&problem).to_string()).collect::<Vec<_>>())
            }
        }
        "solve" => solved(&sound(), arguments),
        "simulate" => {
            let problem = sound();
            trace(&problem, &plan(&problem))
        }
        "floor" => memory_floor(&sound()).to_string(),
        "json" => sound().to_json(),
        "text" => sound().to_text(),
        other => panic!("{}: unknown section `{other}`", case.file.display()),
    })
}

/// The problem with the name that the plan gives and some more values, nodes and stores, so that reading lets plans pass whose
/// faults the checker has to find.
fn stretched(problem: &Problem, plan: &str) -> Problem {
    let mut spec = problem.spec().clone();
    let name = plan.lines().find_map(|line| line.strip_prefix("problem "));
    spec.name = name.unwrap_or(&spec.name).to_string();
    for i in 0..10 {
        let value = ValueId::new(spec.values.len());
        spec.values.push(Value::new(format!("more {i}"), Bytes(0)));
        spec.nodes.push(node(format!("more {i}"), Phase::Forward, 0.0, vec![], vec![value]));
    }
    if let Some(store) = spec.stores.last().cloned() {
        spec.stores.extend(std::iter::repeat_n(store, 10));
    }
    Problem::new(spec).expect("further values and nodes do no harm")
}

fn lines<T: ToString>(list: &[T]) -> String {
    list.iter().map(|item| item.to_string() + "\n").collect()
}

fn solved(problem: &Problem, arguments: &str) -> String {
    let (planner, budget) = arguments.split_once(' ').expect("solve PLANNER BUDGET");
    let request = Request::new(Bytes(budget.parse().expect("a number of bytes"))).effort(0.1).seed(1);
    match solve(problem, planner, &request).expect("the planner is known and its plan valid") {
        Outcome::Optimal(plan) => plan.to_text(problem),
        Outcome::Feasible(plan, stop) => format!("# {stop}\n{}", plan.to_text(problem)),
        Outcome::Infeasible { lowest_peak, why } => format!("lowest peak {}: {why}", lowest_peak.0),
    }
}

/// One line per step; the memory while a node runs, a star at the peak.
fn trace(problem: &Problem, plan: &Plan) -> String {
    let result = match simulate_with(problem, &plan.stored, &plan.steps) {
        Ok(result) => result,
        Err(error) => return error.with_names(problem).to_string(),
    };
    assert!(result.waits.iter().all(|wait| wait.start < wait.end), "to wait takes time: {:?}", result.waits);
    let mut text = String::new();
    let mut curve = result.curve.iter();
    let mut transfers = result.transfers.iter();
    for (at, step) in plan.steps.iter().enumerate() {
        let star = if result.peak_step == Some(at) { " *" } else { "" };
        let mut used = || curve.next().expect("one entry per step that counts").1.0;
        let mut during = || {
            let transfer = transfers.next().expect("one entry per copy");
            format!("from {} to {}", transfer.start, transfer.end)
        };
        let name = |value: ValueId| &problem.value(value).name;
        let _ = match *step {
            Step::Compute(node) => {
                writeln!(text, "compute {:<10} {:>6}{star}", problem.node(node).name, used())
            }
            Step::Free(value) => writeln!(text, "free    {}", name(value)),
            Step::Out(value, _) => writeln!(text, "out     {:<10} {}", name(value), during()),
            Step::In(value, _) => {
                writeln!(text, "in      {:<10} {:>6}{star} {}", name(value), used(), during())
            }
            Step::Discard(value, _) => writeln!(text, "discard {}", name(value)),
        };
    }
    let live: Vec<&str> = result.live_at_peak.iter().map(|&v| problem.value(v).name.as_str()).collect();
    let _ =
        writeln!(text, "cost {} peak {} live at the peak: {}", result.cost, result.peak.0, live.join(" "));
    if plan.uses_stores() {
        let _ = writeln!(text, "waits {}", result.stalls);
    }
    text
}

/// The kinds of faults that the cases show, so that none is forgotten.
#[derive(Default)]
struct Seen(RefCell<BTreeSet<&'static str>>);

/// Shown by tests/hostile.rs, since it takes more than a thousand faults.
const SHOWN_ELSEWHERE: &str = "More";

const PROBLEM_FAULTS: [&str; 21] = [
    "OutOfRange",
    "Duplicate",
    "SecondProducer",
    "NoProducer",
    "OutOfOrder",
    "Cycle",
    "BadCost",
    "CostOverflow",
    "SizeOverflow",
    "ConsumesOther",
    "ConsumesAndRecomputes",
    "ConsumesOutput",
    "ConsumesTooEarly",
    "ConsumesTooMuch",
    "BadReuse",
    SHOWN_ELSEWHERE,
    "NoSuchChannel",
    "BadTransferCost",
    "CarriesNoPair",
    "CarriesTwice",
    "CarriesOtherSize",
];

const PLAN_FAULTS: [&str; 28] = [
    "OtherProblem",
    "NoSuchNode",
    "NoSuchValue",
    "Unavailable",
    "RunsAgain",
    "FreedWhenDead",
    "OverBudget",
    "NeverRuns",
    "OutputLost",
    "WrongPeak",
    "WrongCost",
    "EndlessCost",
    "BoundAboveCost",
    "InfeasibleWithSteps",
    "OptimalWithoutBound",
    SHOWN_ELSEWHERE,
    "CopyOverBudget",
    "NoSuchStore",
    "MayNotMove",
    "OutWhenDead",
    "OutTwice",
    "InWhenLive",
    "NotStored",
    "OverCapacity",
    "StoredNotCarried",
    "StoredTwice",
    "StoredMayNotMove",
    "CarryLost",
];

impl Seen {
    fn note_problem(&self, error: &ProblemError) {
        let ProblemError::Invalid { faults, .. } = error else { return };
        for fault in faults {
            // A new kind does not compile before it has a place in the list, and so a case.
            let index = match fault.kind {
                ProblemFaultKind::OutOfRange { .. } => 0,
                ProblemFaultKind::Duplicate { .. } => 1,
                ProblemFaultKind::SecondProducer { .. } => 2,
                ProblemFaultKind::NoProducer { .. } => 3,
                ProblemFaultKind::OutOfOrder { .. } => 4,
                ProblemFaultKind::Cycle { .. } => 5,
                ProblemFaultKind::BadCost { .. } => 6,
                ProblemFaultKind::CostOverflow => 7,
                ProblemFaultKind::SizeOverflow => 8,
                ProblemFaultKind::ConsumesOther { .. } => 9,
                ProblemFaultKind::ConsumesAndRecomputes => 10,
                ProblemFaultKind::ConsumesOutput { .. } => 11,
                ProblemFaultKind::ConsumesTooEarly { .. } => 12,
                ProblemFaultKind::ConsumesTooMuch { .. } => 13,
                ProblemFaultKind::BadReuse { .. } => 14,
                ProblemFaultKind::More { .. } => 15,
                ProblemFaultKind::NoSuchChannel { .. } => 16,
                ProblemFaultKind::BadTransferCost { .. } => 17,
                ProblemFaultKind::CarriesNoPair { .. } => 18,
                ProblemFaultKind::CarriesTwice { .. } => 19,
                ProblemFaultKind::CarriesOtherSize { .. } => 20,
            };
            self.0.borrow_mut().insert(PROBLEM_FAULTS[index]);
        }
    }

    fn note_plan(&self, fault: &Fault) {
        let index = match fault {
            Fault::OtherProblem { .. } => 0,
            Fault::NoSuchNode { .. } => 1,
            Fault::NoSuchValue { .. } => 2,
            Fault::Unavailable { .. } => 3,
            Fault::RunsAgain { .. } => 4,
            Fault::FreedWhenDead { .. } => 5,
            Fault::OverBudget { .. } => 6,
            Fault::NeverRuns { .. } => 7,
            Fault::OutputLost { .. } => 8,
            Fault::WrongPeak { .. } => 9,
            Fault::WrongCost { .. } => 10,
            Fault::EndlessCost { .. } => 11,
            Fault::BoundAboveCost { .. } => 12,
            Fault::InfeasibleWithSteps => 13,
            Fault::OptimalWithoutBound { .. } => 14,
            Fault::More { .. } => 15,
            Fault::CopyOverBudget { .. } => 16,
            Fault::NoSuchStore { .. } => 17,
            Fault::MayNotMove { .. } => 18,
            Fault::OutWhenDead { .. } => 19,
            Fault::OutTwice { .. } => 20,
            Fault::InWhenLive { .. } => 21,
            Fault::NotStored { .. } => 22,
            Fault::OverCapacity { .. } => 23,
            Fault::StoredNotCarried { .. } => 24,
            Fault::StoredTwice { .. } => 25,
            Fault::StoredMayNotMove { .. } => 26,
            Fault::CarryLost { .. } => 27,
        };
        self.0.borrow_mut().insert(PLAN_FAULTS[index]);
    }

    fn assert_complete(&self) {
        let seen = self.0.borrow();
        let all = PROBLEM_FAULTS.iter().chain(&PLAN_FAULTS);
        let missing: Vec<_> = all.filter(|kind| **kind != SHOWN_ELSEWHERE && !seen.contains(*kind)).collect();
        assert!(missing.is_empty(), "no case shows {missing:?}");
    }
}

#[test]
fn every_planner_has_a_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let text: String = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    for info in PLANNERS.iter().filter(|info| info.name != "ilp") {
        assert!(text.contains(&format!("--- solve {} ", info.name)), "no case for {}", info.name);
    }
}
