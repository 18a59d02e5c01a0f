//! The promises hold with stores, down to budgets below the state. The example `swaps` tries all budgets, threads, stores and
//! delays.

#[path = "common/swaps.rs"]
mod swaps;

use std::time::Duration;
use swaps::{MODELS, Trial, check_model};

/// Late enough that a reader which does not wait is found out, and early enough for a test.
const DELAY: Duration = Duration::from_micros(500);

fn check(name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, typed) = MODELS.into_iter().find(|model| model.0 == name).expect("a model");
    let seen = check_model(name, typed, directory.path(), Trial { n_budgets: 3, delay: DELAY, all: false });
    println!("{name}: {seen:?}");
    assert!(seen.n_moving > 0, "{name}: nothing is moved: {seen:?}");
    assert!(seen.n_below_state > 0, "{name}: no arena is smaller than the state: {seen:?}");
    let left = std::fs::read_dir(directory.path()).expect("readable").count();
    assert_eq!(left, 0, "scratch files are left behind");
}

#[test]
fn mlp() {
    check("mlp");
}

#[test]
fn resnet18() {
    check("resnet18");
}

#[test]
fn resnet50() {
    check("resnet50");
}

#[test]
fn unet() {
    check("unet");
}

#[test]
fn transformer() {
    check("transformer");
}

#[test]
fn bert() {
    check("bert");
}

#[test]
fn gpt() {
    check("gpt");
}

/// Copies that are up to 50 ms late.
#[test]
fn late_copies() {
    let directory = tempfile::tempdir().expect("a directory");
    let trial = Trial { n_budgets: 3, delay: Duration::from_millis(50), all: false };
    let seen = check_model("mlp", "batch=32", directory.path(), trial);
    assert!(seen.n_moving > 0, "{seen:?}");
}
