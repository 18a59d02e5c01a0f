//! The public Checkmate instances, where they are present: every plan passes the external checker.
//!
//! The files are looked for in REMAT_PLANNING_DIR, or in ../shared/planning beside the workspace. Where they are absent
//! the test says so and is counted as skipped, because they are not ours to distribute.

mod common;

use common::{NO_INSTANCES, planning_dir, skip};
use remat_plan::{Bytes, PLANNERS, Problem, Request, solve};
use std::path::Path;
use std::process::Command;

#[test]
fn every_planner_passes_the_external_checker() {
    let Some(dir) = planning_dir() else {
        return skip("every_planner_passes_the_external_checker", NO_INSTANCES);
    };
    for instance in ["resnet50_b184", "unet_b11"] {
        let path = dir.join(format!("{instance}.json"));
        let problem = Problem::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for info in PLANNERS {
            for gib in [6, 10, 16] {
                let request = Request { effort: Some(0.1), ..Request::new(Bytes(gib << 30)) };
                let outcome = solve(&problem, info.name, &request).unwrap();
                let Some(plan) = outcome.plan() else { continue };
                let file = format!("{}-{instance}-{gib}.json", info.name);
                let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
                std::fs::write(&file, plan.to_json()).unwrap();
                let Ok(output) =
                    Command::new("python3").arg(dir.join("check_plan.py")).arg(&path).arg(&file).output()
                else {
                    return skip("every_planner_passes_the_external_checker", "no python3 was found");
                };
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{} at {gib} GiB: {said}", info.name);
            }
        }
    }
}
