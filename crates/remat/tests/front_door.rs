//! The front door as a user's crate sees it: an empty crate with one path dependency, and nothing but public names.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of a user, its most lines and its arguments.
struct Program<'a> {
    example: &'a str,
    most_lines: usize,
    arguments: &'a [&'a str],
}

/// An empty crate whose only dependency is `remat`, with these programs.
fn users_crate(programs: &[Program<'_>]) -> tempfile::TempDir {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir_all(folder.path().join("src/bin")).expect("writable");
    for Program { example, most_lines, .. } in programs {
        let source = std::fs::read_to_string(here.join(format!("examples/{example}.rs"))).expect(example);
        let n_lines = source.lines().count();
        assert!(n_lines <= *most_lines, "{example} takes {n_lines} lines, more than {most_lines}");
        std::fs::write(folder.path().join(format!("src/bin/{example}.rs")), source).expect("writable");
    }
    // The profile is the workspace's, so that what is built already is used again.
    let manifest = format!(
        "[package]\nname = \"users_crate\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         remat = {{ path = {here:?} }}\n\n[profile.release]\ndebug = \"line-tables-only\"\n\n[workspace]\n"
    );
    std::fs::write(folder.path().join("Cargo.toml"), manifest).expect("writable");
    std::fs::copy(here.join("../../Cargo.lock"), folder.path().join("Cargo.lock")).expect("a lock file");
    folder
}

/// What a program of the crate prints.
fn run(folder: &Path, program: &Program<'_>) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "--offline", "--bin", program.example, "--"])
        .args(program.arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target())
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Where this test was built: its program lies in `TARGET/release/deps`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it is");
    program.ancestors().nth(3).expect("TARGET/release/deps/NAME").to_owned()
}

#[test]
fn models_and_ops_of_ones_own_work_from_an_empty_crate() {
    let runs = tempfile::tempdir().expect("a temporary folder");
    let stripes = runs.path().join("stripes");
    let cnn = Program { example: "own_cnn", most_lines: 60, arguments: &[stripes.to_str().expect("UTF-8")] };
    let op = Program { example: "own_op", most_lines: 100, arguments: &[] };
    let folder = users_crate(&[Program { arguments: &[], ..cnn }, Program { arguments: &[], ..op }]);

    // A network with batch norm and dropout trains within half of its memory, evaluates and predicts.
    let text = run(folder.path(), &cnn);
    assert!(text.starts_with("fits: stripes within"), "{text}");
    let loss = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.first()?.parse::<u64>().ok()?;
        words.get(1)?.parse::<f32>().ok()
    };
    let losses: Vec<f32> = text.lines().filter_map(loss).collect();
    assert_eq!(losses.len(), 40, "{text}");
    assert!(losses[39] < 0.5 * losses[0], "{losses:?}");
    assert!(text.contains("accuracy: Some("), "{text}");
    assert!(text.contains("level stripes are class [(\"1\", "), "{text}");

    // An op from outside is checked, planned and computed again.
    let text = run(folder.path(), &op);
    assert!(text.contains("fits: softsign within"), "{text}");
    let recomputed = text.lines().find_map(|line| line.trim().strip_prefix("recomputed nodes"));
    assert!(recomputed.is_some_and(|n| n.trim().parse::<usize>().is_ok_and(|n| n > 0)), "{text}");
}
