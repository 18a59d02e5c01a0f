//! Training runs as users start them: data from files, logs, checkpoints, and every way in which a run can end.

mod common;

use common::training::{corpus, results, tensors};
use common::{Folder, QUICK, Ran};

/// A tiny language model whose steps take milliseconds, with everything on that has state or random numbers.
const TINY: &str = "train gpt --batch 2 --seq 16 --dim 16 --heads 2 --layers 2 --dropout 0.1 --data corpus.txt \
                    --accumulate 2 --clip-norm 0.5 --schedule cosine --warmup 2 --lr 0.01 --effort 0.001 --threads 1";

#[test]
fn a_run_in_two_parts_has_the_log_and_the_weights_of_one() {
    let folder = Folder::new();
    corpus(&folder);
    let eval = "--eval-every 3 --eval-batches 2 --steps 8";
    folder.run(&format!("{TINY} {eval} --log whole.csv --save whole.st --checkpoint whole"), &[]).exits(0);
    let parts = "--checkpoint parts --checkpoint-every 2 --log parts.csv";
    // The schedule ends with the last step, so a part of the run is one that was stopped: its checkpoint is removed.
    folder.run(&format!("{TINY} {eval} {parts} --keep 9"), &[]).exits(0);
    for step in [8, 6] {
        std::fs::remove_file(folder.path(&format!("parts/step-{step:08}.safetensors")))
            .expect("a checkpoint");
    }
    let ran = folder
        .run(&format!("{TINY} {eval} --resume parts --log parts.csv --save parts.st --budget 90%"), &[]);
    ran.exits(0).prints(&["resumed after step", "held-out loss"]);
    assert_eq!(results(&folder, "whole.csv"), results(&folder, "parts.csv"));
    assert_eq!(results(&folder, "parts.csv").len(), 9, "a header and eight steps");
    assert!(tensors(&folder.path("whole.st")) == tensors(&folder.path("parts.st")), "a weight differs");
    let last = "step-00000008.safetensors";
    let (whole, parts) = (folder.path("whole").join(last), folder.path("parts").join(last));
    assert!(tensors(&whole) == tensors(&parts), "a checkpointed tensor differs");
    // Another run is refused, and nothing is overwritten.
    let before = std::fs::read(&parts).expect("a checkpoint");
    folder
        .run(&format!("{TINY} {eval} --resume parts --seed 5"), &[])
        .complains(&["another run", "seed was 0"]);
    assert!(std::fs::read(&parts).expect("a checkpoint") == before);
    // A checkpoint is a weight file, too.
    folder.run(&format!("{TINY} --steps 1 --weights whole/{last}"), &[]).exits(0);
}

#[test]
fn recomputed_values_can_be_verified() {
    let folder = Folder::new();
    corpus(&folder);
    let tight = format!("{TINY} --steps 2 --budget 80%");
    folder.run(&format!("{tight} --log plain.csv"), &[]).exits(0);
    let json = folder
        .run(&format!("{tight} --log verified.csv --verify --json"), &[])
        .exits(0)
        .json("remat.train/1");
    assert!(json["n_recomputes"].as_u64() > Some(0), "{json}");
    // Two micro-batches in each of two steps; a node may have several outputs.
    let n_recomputes = json["n_recomputes"].as_u64().expect("a number");
    assert!(json["n_verified"].as_u64() >= Some(4 * n_recomputes), "{json}");
    assert!(json["unrepeatable"].is_null());
    assert_eq!(results(&folder, "plain.csv"), results(&folder, "verified.csv"));
    folder.run(&format!("{tight} --verify"), &[]).exits(0).prints(&["verified", "recomputed values"]);
    let compared = "compare gpt --batch 4 --seq 32 --dim 16 --heads 2 --layers 2 --vocab 64 --budget 80% --effort 0.001 \
                    --threads 1 --verify";
    folder.run(compared, &[]).exits(0).prints(&["bits equal: yes", "verified: "]);
}

#[test]
fn text_and_images_train_and_evaluate() {
    let folder = Folder::new();
    corpus(&folder);
    let json = folder
        .run(&format!("{TINY} --tokenizer bpe:280 --steps 2 --eval-every 1 --json --tensorboard events"), &[])
        .exits(0)
        .json("remat.train/1");
    assert_eq!(json["unit"], "tokens");
    assert!(json["steps"][1]["eval_loss"].is_number() && json["steps"][1]["grad_norm"].is_number(), "{json}");
    assert!(json["data"].as_str().expect("text").contains("bpe:280"), "{json}");
    assert_eq!(json["predicted_peak_bytes"], json["measured_peak_bytes"]);
    let names = folder.names();
    assert_eq!(names, ["corpus.txt", "corpus.txt.bpe-280.json", "corpus.txt.bpe-280.tokens", "events"]);
    // A model that sees both sides predicts hidden tokens.
    let masked = "train transformer --batch 2 --seq 16 --dim 16 --heads 2 --layers 1 --ff 16 --data corpus.txt --steps 1";
    folder.run(masked, &[]).exits(0);

    std::fs::create_dir(folder.path("mnist")).expect("a folder");
    let idx = |extents: &[u32], data: Vec<u8>| {
        let mut bytes = vec![0, 0, 8, extents.len() as u8];
        extents.iter().for_each(|extent| bytes.extend(extent.to_be_bytes()));
        bytes.extend(data);
        bytes
    };
    // Two classes that differ in brightness are soon told apart.
    let pixels = (0..60u32).flat_map(|i| vec![if i % 2 == 0 { 10 } else { 200 }; 16]).collect();
    let labels = (0..60).map(|i| i % 2).collect();
    std::fs::write(folder.path("mnist/train-images-idx3-ubyte"), idx(&[60, 4, 4], pixels)).expect("a file");
    std::fs::write(folder.path("mnist/train-labels-idx1-ubyte"), idx(&[60], labels)).expect("a file");
    let mlp = "train mlp --data mnist --features 16 --width 16 --batch 6 --steps 20 --lr 0.01 --json --eval-every 20";
    let json = folder.run(mlp, &[]).exits(0).json("remat.train/1");
    assert_eq!(json["steps"][19]["eval_accuracy"], 1.0, "{json}");
}

#[test]
fn wrong_data_and_wrong_flags_are_named() {
    let folder = Folder::new();
    folder.write("short.txt", "too short");
    folder.write("words.txt", &"some words ".repeat(100));
    let gpt = "train gpt --seq 64 --dim 16 --heads 2 --layers 1 --data";
    folder.run(&format!("{gpt} none.txt"), &[]).complains(&["none.txt", "No such file"]);
    folder.run(&format!("{gpt} short.txt"), &[]).complains(&["9 tokens", "--seq"]);
    folder.run(&format!("{gpt} words.txt --vocab 100"), &[]).complains(&["--vocab 100", "needs 256"]);
    folder.run(&format!("{gpt} words.txt --tokenizer bpe:9"), &[]).complains(&["257 to 65536"]);
    folder.run(&format!("{gpt} words.txt --tokenizer words"), &[]).complains(&["bpe:8192"]);
    folder.run("train mlp --data .", &[]).complains(&["one subfolder"]);
    folder.run("train unet --batch 1 --image 32 --data .", &[]).complains(&["every pixel"]);
    folder.run("train mlp --clip-norm 0", &[]).complains(&["--clip-norm", "above zero"]);
    folder.run("train mlp --accumulate 0", &[]).complains(&["--accumulate", "0"]);
    folder.run("train mlp --final-lr 2", &[]).complains(&["--final-lr", "0 to 1"]);
    folder.run("train mlp --resume nowhere", QUICK).complains(&["nowhere"]);
    folder.run("train mlp --log none/loss.csv", QUICK).complains(&["none/loss.csv"]);
    assert_eq!(folder.names(), ["short.txt", "words.txt"], "something was left behind");
}

#[test]
fn an_evaluation_that_does_not_fit_is_refused_with_one_that_does() {
    let folder = Folder::new();
    let ran = folder.run("train mlp --steps 1 --eval-every 1 --eval-batch 16384", QUICK).exits(1);
    assert!(ran.stdout.starts_with("does not fit: evaluation does not fit"), "{ran:?}");
    let advice = ran.stdout.split("--eval-batch ").nth(1).and_then(|rest| rest.split(' ').next());
    let size = advice.expect("advice").to_owned();
    folder.run(&format!("train mlp --steps 1 --eval-every 1 --eval-batch {size}"), QUICK).exits(0);
}

/// A run that would take forever, with a log to see how far it is.
#[cfg(unix)]
fn endless(folder: &Folder, more: &str) -> std::process::Child {
    let mut command = folder.command();
    command.args(format!("{TINY} --steps 1000000 --log loss.csv {more}").split_whitespace());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the binary runs");
    let begin = std::time::Instant::now();
    while !folder.path("loss.csv").exists() || folder.read("loss.csv").lines().count() < 4 {
        assert!(begin.elapsed().as_secs() < 120, "no step was made");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

#[cfg(unix)]
fn signal(child: &std::process::Child, name: &str) {
    let status = std::process::Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_run_in_order() {
    for name in ["-INT", "-TERM"] {
        let folder = Folder::new();
        corpus(&folder);
        let mut child = endless(&folder, "--checkpoint run --checkpoint-every 1000000");
        // The reader of the steps leaves; the run has a folder to write to and continues.
        drop(child.stdout.take());
        signal(&child, name);
        let ran = Ran::of(child.wait_with_output().expect("the binary ends")).exits(130);
        assert!(ran.stderr.contains("stopped after step") && ran.stderr.contains("--resume run"), "{ran:?}");
        let rows = results(&folder, "loss.csv").len() as u64 - 1;
        let checkpoint = format!("step-{rows:08}.safetensors");
        assert_eq!(folder.names_in("run"), [".lock", "run.json", checkpoint.as_str()]);
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_and_a_read_only_folder_leave_the_last_checkpoint() {
    let folder = Folder::new();
    corpus(&folder);
    let run = format!("{TINY} --steps 4 --checkpoint run --checkpoint-every 2");
    folder.run(&run, &[]).exits(0);
    let names = || folder.names_in("run");
    let before =
        (names(), std::fs::read(folder.path("run/step-00000004.safetensors")).expect("a checkpoint"));
    // A limit on the size of files is what a full disk looks like to a program: writes fail half way. Shells count it in
    // units of 512 or of 1,024 bytes; either way the notes of a run fit below this one, and a checkpoint does not.
    let limited_to = |units: u32, words: &str| {
        let script = format!("ulimit -f {units}; exec \"$0\" {words}");
        let mut command = std::process::Command::new("sh");
        command.current_dir(folder.path(".")).args(["-c", &script, env!("CARGO_BIN_EXE_remat")]);
        Ran::of(command.output().expect("sh runs")).exits(2)
    };
    let limited = |words: &str| limited_to(32, words);
    let constant = run.replace("--schedule cosine", "--schedule constant");
    folder.run(&constant.replace("--checkpoint run", "--checkpoint other"), &[]).exits(0);
    let ran = limited(&constant.replace("--steps 4 --checkpoint run", "--steps 6 --resume other"));
    assert!(ran.stderr.contains("error: write other/step-0000000"), "{ran:?}");
    folder.run(&constant.replace("--steps 4 --checkpoint run", "--steps 6 --resume other"), &[]).exits(0);
    // An empty folder can be resumed too, so the same command starts a run and continues it.
    std::fs::create_dir(folder.path("empty")).expect("a folder");
    let ran = limited(&format!("{TINY} --steps 4 --resume empty --checkpoint-every 2"));
    assert!(ran.stderr.contains("error: write empty/step-0000000"), "{ran:?}");
    assert_eq!(folder.names_in("empty"), [".lock", "run.json"]);
    // Where not even the notes fit, nothing was trained yet.
    let ran = limited_to(1, &format!("{TINY} --steps 4 --checkpoint new"));
    assert!(ran.stderr.contains("error: write new/run.json"), "{ran:?}");
    let after = (names(), std::fs::read(folder.path("run/step-00000004.safetensors")).expect("a checkpoint"));
    assert!(before == after, "{:?} became {:?}", before.0, after.0);

    // Whoever may write everywhere, as root does, cannot be stopped by the mode of a folder.
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder.path("run"), mode(0o555)).expect("a mode");
    let is_obeyed = std::fs::write(folder.path("run/probe"), "x").is_err();
    if is_obeyed {
        folder.run(&run, &[]).exits(2);
        let after = (names(), std::fs::read(folder.path("run/step-00000004.safetensors")).expect("a file"));
        assert!(before == after);
    }
    std::fs::set_permissions(folder.path("run"), mode(0o755)).expect("a mode");
    // A file where the folder should be fails for everyone.
    folder.write("file", "x");
    folder.run(&run.replace("--checkpoint run", "--checkpoint file"), &[]).exits(2);
    folder.run(&run.replace("--checkpoint run", "--checkpoint /proc/run"), &[]).exits(2);
}

/// The address space of the process is limited to the budget and half a gigabyte; without the budget the step needs three
/// times as much memory and cannot run there.
#[cfg(target_os = "linux")]
#[test]
fn a_model_three_times_too_large_trains_inside_an_address_space_limit() {
    let folder = Folder::new();
    let model = "--batch 262144 --features 8 --width 32 --layers 40 --steps 2 --threads 2 --effort 0.01";
    let json = folder.run(&format!("plan mlp {model} --budget 30% --json").replace("--steps 2 ", ""), &[]);
    let json = json.exits(0).json("remat.plan/1");
    let keep_all = json["keep_all_peak_bytes"].as_u64().expect("a peak");
    let budget = keep_all / 3;
    let limit = (budget + (512 << 20)) / 1024;
    assert!(keep_all / 1024 > limit, "keep-all must not fit below the limit");
    let run = |words: &str| {
        let script = format!("ulimit -v {limit}; exec \"$0\" {words}");
        let output =
            std::process::Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_remat")]).output();
        Ran::of(output.expect("sh runs"))
    };
    let json = run(&format!("train mlp {model} --budget {budget}B --json")).exits(0).json("remat.train/1");
    assert!(json["measured_peak_bytes"].as_u64().expect("a peak") <= budget, "{json}");
    let ran = run(&format!("train mlp {model}")).exits(2);
    assert!(ran.stderr.contains("reserving an arena") || ran.stderr.contains("memory"), "{ran:?}");
}
