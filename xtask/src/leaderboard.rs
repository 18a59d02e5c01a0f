//! `cargo xtask leaderboard`: every planner on the problems of our own models, side by side.
//!
//! The command line writes the planning problem of each model into the build folder; the example `leaderboard` of
//! remat-plan plans them. Further arguments go to the example: problem files, budgets, `--planners`, `--time-limit`.

use crate::repository::{cargo, target_folder};
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::Command;

/// File, model and options: deep, wide and with long skips; batches at which activations are most of the memory.
const MODELS: &[(&str, &str, &[&str])] = &[
    ("resnet152", "resnet152", &["--batch", "32"]),
    ("unet", "unet", &["--batch", "16"]),
    ("transformer-6", "transformer", &["--batch", "64", "--layers", "6"]),
    ("transformer-24", "transformer", &["--batch", "64", "--layers", "24"]),
    ("transformer-96", "transformer", &["--batch", "64", "--layers", "96"]),
    ("gpt", "gpt", &["--batch", "8"]),
];

/// Writes the problems and prints the table.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let folder = target_folder(root).join("leaderboard");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut files = Vec::new();
    for (name, model, options) in MODELS {
        let file = folder.join(format!("{name}.json"));
        let mut command =
            cargo(root, &["run", "--quiet", "--release", "-p", "remat-cli", "--", "plan", model]);
        command.args(["--budget", "100%", "--planner", "save-all"]).args(*options);
        command.arg("--problem-out").arg(&file);
        succeed(command.stdout(std::process::Stdio::null()))?;
        files.push(file);
    }
    let mut command =
        cargo(root, &["run", "--release", "-p", "remat-plan", "--example", "leaderboard", "--"]);
    succeed(command.args(files).args(arguments))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
