//! Files made to hurt, through the command: each is read or refused with exit code 0, 1 or 2, with two seconds of time and
//! 256 MiB of address space, and says why without a panic. The files are the corpus of the fuzzers.
#![cfg(target_os = "linux")]

mod common;

use common::{Folder, Ran};
use std::path::{Path, PathBuf};
use std::process::Command;

const SECONDS: u32 = 2;
const KIBIBYTES: u32 = 256 << 10;

/// The model and the run that the checkpoints of the corpus belong to.
const MLP: &str = "mlp --batch 2 --features 3 --width 3 --layers 1 --classes 2 --threads 1";
/// The problems that the plans of the corpus are for.
const PROBLEMS: [(&str, &str); 2] = [
    ("small.txt", include_str!("../../../fuzz/problems/small.txt")),
    ("moved.txt", include_str!("../../../fuzz/problems/moved.txt")),
];

/// The files of one kind.
fn corpus(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(kind);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect(kind).map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Runs the command within the limits. Processor time is what counts: the machine may be busy.
fn limited(folder: &Folder, words: &str, what: &Path) -> Ran {
    let script = format!("ulimit -v {KIBIBYTES}; ulimit -t {SECONDS}; exec \"$0\" {words}");
    let mut command = Command::new("sh");
    command.current_dir(folder.path(".")).args(["-c", &script, env!("CARGO_BIN_EXE_remat")]);
    let output = command.output().expect("sh runs");
    assert!(output.status.code().is_some_and(|code| code <= 2), "{}: {words}: {output:?}", what.display());
    let ran = Ran::of(output);
    assert!(ran.code == 0 || ran.code == 1 || ran.stderr.contains("error:"), "{}: {ran:?}", what.display());
    ran
}

#[test]
fn hostile_files_end_in_a_message() {
    let folder = Folder::new();
    PROBLEMS.iter().for_each(|(name, text)| folder.write(name, text));
    let (mut n_runs, mut n_refused) = (0, 0);
    let mut run = |words: &str, what: &Path| {
        n_runs += 1;
        n_refused += usize::from(limited(&folder, words, what).code == 2);
    };
    let copy = |path: &Path, name: &str| {
        let to = folder.path(name);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        std::fs::copy(path, to).expect("a copy");
    };
    for path in corpus("problem") {
        copy(&path, "problem");
        run("graph --problem problem", &path);
    }
    for path in corpus("plan") {
        copy(&path, "plan");
        let problem = if name(&path).starts_with("moved-") { "moved.txt" } else { "small.txt" };
        run(&format!("check {problem} plan"), &path);
    }
    for path in corpus("safetensors") {
        copy(&path, "weights");
        run(&format!("train {MLP} --steps 1 --weights weights"), &path);
    }
    for path in corpus("checkpoint") {
        copy(&path, "run/step-00000003.safetensors");
        run(&format!("train {MLP} --lr 0.01 --seed 1 --steps 3 --resume run"), &path);
        run("generate run --tokens 1", &path);
    }
    for (kind, describes) in [("run_folder", true), ("graph", false)] {
        for path in corpus(kind) {
            std::fs::create_dir_all(folder.path("described")).expect("a folder");
            std::fs::write(folder.path("described/step-00000001.safetensors"), b"\x02\0\0\0\0\0\0\0{}")
                .expect("a file");
            if describes {
                copy(&path, "described/run.json");
            } else {
                let text = String::from_utf8_lossy(&std::fs::read(&path).expect("a file")).into_owned();
                let json = serde_json::json!({"format": "remat.run/1", "graph": text, "data": "numbers"});
                folder.write("described/run.json", &json.to_string());
            }
            run("generate described --tokens 1", &path);
        }
    }
    for path in corpus("idx") {
        let bytes = std::fs::read(&path).expect("a file");
        let [is_packed, n_labels, rest @ ..] = &bytes[..] else { continue };
        let (labels, images) = rest.split_at(rest.len().min(usize::from(*n_labels)));
        let ending = if is_packed % 2 == 1 { ".gz" } else { "" };
        let data = Folder::new();
        for (name, bytes) in [("images-idx3", images), ("labels-idx1", labels)] {
            std::fs::write(data.path(&format!("train-{name}-ubyte{ending}")), bytes).expect("a file");
        }
        run(&format!("train {MLP} --steps 1 --data {}", data.path("").display()), &path);
    }
    // Pictures are read by a classifier, which has to be there.
    for class in ["a", "b"] {
        for (i, picture) in
            corpus("png").iter().filter(|p| name(p).starts_with("valid")).cycle().take(12).enumerate()
        {
            copy(picture, &format!("pictures/{class}/{i}.png"));
        }
    }
    let train = "train mlp --features 16 --width 4 --layers 1 --batch 2 --steps 1 --threads 1";
    folder.run(&format!("{train} --data pictures --checkpoint classifier"), &[]).exits(0);
    for path in corpus("png").into_iter().chain(corpus("jpeg")) {
        copy(&path, "picture");
        run("predict classifier picture", &path);
    }
    assert!(n_runs > 60 && n_refused > n_runs / 2, "{n_refused} of {n_runs} were refused");
    println!("{n_runs} runs, {n_refused} refused");
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
