//! The bounds against the oracle: on small random problems no chain of cuts exceeds the optimum.
//!
//! Beside the bounds and not in them, because the exhaustive planner comes later than they do.

use crate::bounds::cut_chain::Growth;
use crate::bounds::memory_floor::memory_floor;
use crate::bounds::moving::cost_bound;
use crate::bounds::one_cut::{Cuts, round_up};
use crate::bounds::several_cuts::SeveralCuts;
use crate::common::stores::random_problem_with_stores;
use crate::common::{NO_INSTANCES, planning_dir, random_problem, skip};
use crate::planners::exhaustive;
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::Flat;
use crate::schedule::limits::Limits;
use crate::units::Bytes;

/// The extra cost of the cheapest plan; infinite when there is none. Nothing where the search gives up.
fn optimum(problem: &Problem, budget: Bytes) -> Option<f64> {
    let outcome = exhaustive::answer(problem, &Request::new(budget), "test", &Flat::new(problem), 20_000)?;
    Some(outcome.plan().map_or(f64::INFINITY, |plan| plan.cost - problem.base_cost()))
}

/// Calls `visit` with a name, the cuts and the optimum of small random problems, each at three budgets.
fn for_each_small_request(mut visit: impl FnMut(&str, &Cuts, f64)) {
    for seed in 0..2_000 {
        let problem = random_problem(seed, 10);
        let flat = Flat::new(&problem);
        let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
        let (least, most) =
            (memory_floor(&problem).bytes.0 as i64, flat.measure(&order, &mut Vec::new()).peak);
        for budget in [least, (2 * least + most) / 3, (least + 2 * most) / 3] {
            let Some(want) = optimum(&problem, Bytes(budget as u64)) else { continue };
            let cuts = Cuts::scan(&flat, budget, f64::INFINITY, &mut Limits::of_work(1e7));
            visit(&format!("seed {seed}, budget {budget}"), &cuts, want);
        }
    }
}

#[test]
fn no_chain_of_cuts_exceeds_the_optimum() {
    let (mut n_chains, mut n_useful, mut n_stronger) = (0, 0, 0);
    for_each_small_request(|name, cuts, want| {
        let flat = cuts.flat;
        let mut bound_of = |chain: &[usize]| {
            let bound = SeveralCuts::new(cuts, chain)?.advance(f64::INFINITY, &mut Limits::of_work(1e7));
            assert!(bound <= want + 1e-6, "{name}: bound {bound} of {chain:?}, optimum {want}");
            n_chains += 1;
            n_useful += u32::from(bound > 0.0);
            Some(bound)
        };
        let singles: Vec<f64> =
            (0..flat.n_nodes()).map(|c| bound_of(&[c]).unwrap_or(f64::INFINITY)).collect();
        for a in 0..flat.n_nodes() {
            for b in a + 1..flat.n_nodes() {
                let Some(bound) = bound_of(&[a, b]) else { continue };
                // A later cut never weakens the bound.
                assert!(bound >= singles[a] - 1e-6, "{name}, {a} {b}: {bound}, {singles:?}");
                n_stronger += u32::from(bound > singles.iter().copied().fold(0.0, f64::max) + 1e-6);
                for c in b + 1..flat.n_nodes() {
                    bound_of(&[a, b, c]);
                }
            }
        }
    });
    assert!(n_chains > 10_000 && n_useful > 500 && n_stronger > 10, "{n_chains} {n_useful} {n_stronger}");
}

#[test]
fn a_bound_in_slices_and_with_changing_targets_never_exceeds_the_optimum() {
    let mut n_useful = 0;
    for_each_small_request(|name, cuts, want| {
        let mut growth = Growth::new(cuts);
        for target in [1.0, 0.5 * want, want, 2.0 * want, want, f64::INFINITY] {
            growth.advance(target, &mut Limits::of_work(3e4));
        }
        let bound = growth.advance(f64::INFINITY, &mut Limits::of_work(1e8));
        assert!(bound <= round_up(cuts.flat, want) + 1e-6, "{name}: {bound}, optimum {want}");
        n_useful += u32::from(bound > 0.0);
    });
    assert!(n_useful > 100, "{n_useful}");
}

/// No bound of a problem with stores exceeds the optimum.
#[test]
fn no_cut_with_channels_exceeds_the_optimum() {
    let (mut n_known, mut n_useful, mut n_exact, mut n_hard, mut n_impossible) = (0, 0, 0, 0, 0);
    for seed in 0..1_500 {
        let problem = random_problem_with_stores(seed, 6);
        let flat = Flat::new(&problem);
        let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
        let least = memory_floor(&problem).bytes.0 as i64;
        let most = flat.measure(&order, &mut Vec::new()).peak;
        for budget in [least, (2 * least + most) / 3] {
            let request = Request::new(Bytes(budget as u64));
            let Some(outcome) = exhaustive::answer(&problem, &request, "test", &flat, 100_000) else {
                continue;
            };
            let want = outcome.plan().map_or(f64::INFINITY, |plan| plan.cost);
            let bound = cost_bound(&problem, budget, f64::INFINITY, &mut Limits::of_work(1e7));
            assert!(bound <= want * (1.0 + 1e-9), "seed {seed}, budget {budget}: {bound}, optimum {want}");
            n_known += 1;
            n_impossible += u32::from(want.is_infinite());
            let base = problem.base_cost();
            if want.is_finite() && want > base {
                n_hard += 1;
                n_useful += u32::from(bound > base * (1.0 + 1e-9));
                n_exact += u32::from(bound >= want * (1.0 - 1e-6));
            }
        }
    }
    let counts = [n_known, n_hard, n_useful, n_exact, n_impossible];
    let is_enough = counts.iter().zip([2_000, 300, 200, 120, 20]).all(|(&n, least)| n > least);
    assert!(is_enough, "known, above the base, useful, exact, impossible: {counts:?}");
}

/// The public instances with stores: budget, the overhead in % of the best plan known, and one that the bound must reach.
const INSTANCES: &[(&str, u64, f64, f64)] = &[
    ("poet_transformer", 33_344_716, 2.8031, 2.80),
    ("poet_transformer", 34_603_008, 0.0247, 0.024),
    ("poet_transformer", 35_861_299, 0.0247, 0.024),
    ("poet_resnet18_cifar", 919_628, 0.1721, 0.17),
    ("poet_resnet18_cifar", 1_357_952, 0.1048, 0.103),
    ("poet_resnet18_cifar", 1_796_275, 0.0518, 0.0517),
    ("g10_bert_b256_ssd", 42_949_672_960, 0.0111, 0.0059),
    ("g10_resnet152_b1280", 42_949_672_960, 0.0994, 0.0),
    ("g10_resnet152_b1280_ssd", 42_949_672_960, 2.7947, 0.97),
];

#[test]
fn bounds_of_the_public_instances_are_below_their_best_plans() {
    let Some(folder) = planning_dir().map(|folder| folder.join("swap")).filter(|folder| folder.exists())
    else {
        return skip("bounds_of_the_public_instances_are_below_their_best_plans", NO_INSTANCES);
    };
    for &(name, budget, known, least) in INSTANCES {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("the instance");
        let problem = Problem::parse(&text).expect("a valid instance");
        let bound = cost_bound(&problem, budget as i64, f64::INFINITY, &mut Limits::of_work(4e8));
        let overhead = 100.0 * (bound / problem.base_cost() - 1.0);
        println!("{name} {budget}: {overhead:.4} %, the best plan {known} %");
        assert!(least <= overhead && overhead <= known + 5e-4, "{name}, {budget}: {overhead} %");
    }
}
