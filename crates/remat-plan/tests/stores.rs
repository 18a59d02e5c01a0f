//! Plans that use stores: the simulator, the checker and the external checker say the same of valid and of broken ones.

mod common;

use common::stores::{claimed, random_plan, random_problem_with_stores};
use common::{NO_INSTANCES, Random, planning_dir, skip};
use remat_plan::{
    NodeId, Outcome, PLAN_SCHEMA_2, Plan, Problem, Request, Step, StoreId, ValueId, check, memory_floor,
    solve,
};
use std::io::Write as _;
use std::process::{Command, Stdio};

const N_CASES: u64 = 400;

fn cases() -> impl Iterator<Item = (Problem, Plan, Random)> {
    (0..N_CASES).map(|seed| {
        let problem = random_problem_with_stores(seed, 12);
        let mut random = Random(seed);
        let plan = random_plan(&problem, &mut random);
        (problem, plan, random)
    })
}

#[test]
fn the_checker_agrees_with_the_simulator() {
    let (mut n_copies, mut n_stored, mut n_valid, mut n_broken) = (0, 0, 0, 0);
    for (problem, plan, mut random) in cases() {
        let names = |faults: Vec<_>| {
            faults.iter().map(|f: &remat_plan::Fault| f.with_names(&problem).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(check(&problem, &plan)), [""; 0], "{}", plan.to_text(&problem));
        n_copies += plan.steps.iter().filter(|step| step.uses_store()).count();
        n_stored += plan.stored.len();
        assert!(memory_floor(&problem).bytes <= plan.peak_bytes, "{}", plan.to_text(&problem));
        for _ in 0..20 {
            let (stored, steps) = mutated(&problem, &plan, &mut random);
            match claimed(&problem, stored.clone(), steps.clone()) {
                Some(other) => {
                    assert_eq!(names(check(&problem, &other)), [""; 0], "{}", other.to_text(&problem));
                    n_valid += 1;
                }
                None => {
                    let other = Plan { stored, steps, ..plan.clone() };
                    assert_ne!(check(&problem, &other), [], "{}", other.to_text(&problem));
                    n_broken += 1;
                }
            }
        }
    }
    let counts = [n_copies, n_stored, n_valid, n_broken];
    let is_enough = counts.iter().zip([1000, 20, 500, 2000]).all(|(&n, least)| n > least);
    assert!(is_enough, "copies, stored inputs, valid and broken mutants: {counts:?}");
}

/// One step more, less, changed or elsewhere.
fn mutated(problem: &Problem, plan: &Plan, random: &mut Random) -> (Vec<(ValueId, StoreId)>, Vec<Step>) {
    let (mut stored, mut steps) = (plan.stored.clone(), plan.steps.clone());
    let value = ValueId::new(random.below(problem.values.len()));
    let store = StoreId::new(random.below(problem.stores.len() + 1));
    let at = random.below(steps.len());
    let new = match random.below(5) {
        0 => Step::Compute(NodeId::new(random.below(problem.nodes.len()))),
        1 => Step::Free(value),
        2 => Step::Out(value, store),
        3 => Step::In(value, store),
        _ => Step::Discard(value, store),
    };
    match random.below(6) {
        0 => steps.insert(at, new),
        1 => steps[at] = new,
        2 => drop(steps.remove(at)),
        3 => {
            let other = random.below(steps.len());
            steps.swap(at, other);
        }
        4 if !stored.is_empty() => drop(stored.swap_remove(0)),
        _ => {
            let step = steps.remove(at);
            let other = random.below(steps.len() + 1);
            steps.insert(other, step);
        }
    }
    (stored, steps)
}

#[test]
fn both_forms_hold_the_same() {
    for (problem, plan, _) in cases() {
        assert_eq!(Problem::parse(&problem.to_json()).unwrap(), problem);
        assert_eq!(Problem::parse(&problem.to_text()).unwrap(), problem);
        assert_eq!(Plan::parse(&plan.to_json(), &problem).unwrap(), plan);
        assert_eq!(Plan::parse(&plan.to_text(&problem), &problem).unwrap(), plan);
        assert_eq!(plan.to_json().contains(PLAN_SCHEMA_2), plan.uses_stores());
    }
}

/// Reads lines of [problem, plan] and answers each with whether it is valid, its peak and its cost.
const ASK: &str = "
import json, sys
sys.path.insert(0, sys.argv[1])
from check_plan2 import check
for line in sys.stdin:
    report = check(*json.loads(line))
    print(int(report.ok), report.peak, float(report.cost).hex(), *report.faults[:2], flush=True)
";

#[test]
fn the_external_checker_agrees() {
    const NAME: &str = "the_external_checker_agrees";
    let Some(folder) = planning_dir().filter(|folder| folder.join("check_plan2.py").exists()) else {
        return skip(NAME, NO_INSTANCES);
    };
    let mut lines = String::new();
    let mut expected = Vec::new();
    for (problem, plan, mut random) in cases() {
        let (stored, steps) = mutated(&problem, &plan, &mut random);
        let broken = Plan { stored, steps, ..plan.clone() };
        for plan in [plan, broken] {
            // Names of stores that do not exist are no plan for either of them.
            let text = plan.to_json().replace("remat.plan/1", PLAN_SCHEMA_2);
            expected.push((check(&problem, &plan).is_empty(), plan.clone()));
            lines += &format!("[{},{text}]\n", problem.to_json());
        }
    }
    let child = Command::new("python3")
        .args(["-c", ASK])
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return skip(NAME, "no python3 was found") };
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("python3 ends");
    writer.join().expect("the writer ends").expect("python3 reads everything");
    let answers = String::from_utf8(output.stdout).expect("text");
    assert_eq!(answers.lines().count(), expected.len());
    for (answer, (is_valid, plan)) in answers.lines().zip(&expected) {
        let said = answer.starts_with('1');
        assert_eq!(said, *is_valid, "{answer}\n{}", plan.to_json());
    }
}

#[test]
fn planners_without_stores_claim_no_more_than_they_know() {
    for seed in 0..60 {
        let problem = random_problem_with_stores(seed, 10);
        let budget = memory_floor(&problem.without_stores()).bytes;
        for planner in ["chain-dp", "save-all", "exhaustive"] {
            let outcome = solve(&problem, planner, &Request::new(budget).effort(0.1)).expect("a valid plan");
            match outcome.plan() {
                Some(plan) => {
                    assert!(!plan.uses_stores());
                    assert!(plan.lower_bound.expect("a bound") <= problem.base_cost() + 1e-9);
                }
                None => {
                    let Outcome::Infeasible { why, .. } = &outcome else { unreachable!("there is no plan") };
                    assert!(!why.is_proof(), "{why}");
                }
            }
        }
    }
}
