//! Training runs that meet trouble: numbers that are no longer finite, images that cannot be read, folders of other
//! runs, another number of steps. Nothing that was learned is lost, and what to do is said.

mod common;

use common::training::{corpus, results, tensors};
use common::{Folder, Ran};
use std::path::Path;

const MLP: &str = "train mlp --batch 4 --features 6 --width 5 --layers 2 --classes 3 --threads 1";

/// The steps of the checkpoints in a folder.
fn steps(folder: &Folder, run: &str) -> Vec<u64> {
    let step = |name: &str| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok();
    let entries = std::fs::read_dir(folder.path(run)).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut steps: Vec<u64> = entries.filter_map(|entry| step(&name(entry).to_string_lossy())).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn training_that_diverges_stops_and_keeps_the_last_finite_checkpoint() {
    let folder = Folder::new();
    let run = format!("{MLP} --steps 8 --lr 1e30 --checkpoint-every 1");
    let ran = folder.run(&format!("{run} --checkpoint c --save w --log loss.csv"), &[]).exits(1);
    let ran = ran.prints(&["diverged: ", "of step 2", "--lr (it is 1e30)", "--on-nan continue"]);
    assert!(ran.stdout.contains("the last finite checkpoint is c/step-00000001.safetensors"), "{ran:?}");
    assert_eq!(steps(&folder, "c"), [1]);
    assert!(!folder.path("w").exists(), "weights that are not numbers were saved");
    assert_eq!(folder.read("loss.csv").lines().count(), 3, "the header and two steps");
    let json = folder.run(&format!("{run} --checkpoint d --json"), &[]).exits(1).json("remat.train/1");
    assert!(json["diverged"].as_str().expect("a reason").contains("step 2"), "{json}");

    // Whoever trains on is warned once, and the finite checkpoint stays among those that rotate.
    let ran = folder.run(&format!("{run} --checkpoint e --on-nan continue"), &[]).exits(0);
    assert_eq!(ran.stderr.matches("warning: the loss of step 2 is").count(), 1, "{ran:?}");
    assert_eq!(steps(&folder, "e"), [1, 7, 8]);
}

fn png(path: &Path, colour: [u8; 3]) {
    let mut encoder = png::Encoder::new(std::fs::File::create(path).expect("a file"), 8, 8);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&colour.repeat(64)).expect("pixels");
}

/// Two classes of twenty images each.
fn images(folder: &Folder) {
    for (class, colour) in [("a", [250, 20, 20]), ("b", [20, 20, 250])] {
        std::fs::create_dir_all(folder.path(&format!("imgs/{class}"))).expect("a folder");
        (0..20).for_each(|i| png(&folder.path(&format!("imgs/{class}/{i:02}.png")), colour));
    }
}

#[test]
fn a_bad_image_costs_no_step_and_can_be_skipped() {
    let folder = Folder::new();
    images(&folder);
    folder.write("imgs/a/07.png", "no picture");
    let run =
        "train resnet18 --data imgs --image 32 --batch 2 --steps 20 --accumulate 2 --seed 3 --threads 2";
    let ran = folder.run(&format!("{run} --checkpoint c --log c.csv"), &[]).exits(2);
    for part in ["imgs/a/07.png", "cannot be decoded", "--resume c", "--skip-bad-images"] {
        assert!(ran.stderr.contains(part), "`{part}` is missing: {ran:?}");
    }
    let saved = steps(&folder, "c");
    let done = folder.read("c.csv").lines().count() as u64 - 1;
    assert_eq!(saved, [done], "the state after the last step is saved");
    assert!(done > 0 && ran.stderr.contains(&format!("after step {done} is saved")), "{ran:?}");

    // Resumed with the flag, it ends with the bits of a run that had the flag from its beginning.
    let skip = "--skip-bad-images";
    folder.run(&format!("{run} --resume c --log c.csv {skip}"), &[]).exits(0);
    let ran = folder.run(&format!("{run} --checkpoint d --log d.csv {skip}"), &[]).exits(0);
    assert_eq!(ran.stderr.matches("warning: skipped imgs/a/07.png: cannot be decoded").count(), 1, "{ran:?}");
    let ran = ran.prints(&["skipped images"]);
    assert_eq!(results(&folder, "c.csv"), results(&folder, "d.csv"), "{ran:?}");
    let last = |run: &str| tensors(&folder.path(run).join("step-00000020.safetensors"));
    assert!(last("c") == last("d"), "a tensor differs");
    folder
        .run(&format!("train gpt --data imgs/a/00.png {skip}"), &[])
        .complains(&["--skip-bad-images", "text"]);
}

#[test]
fn a_folder_of_another_run_is_refused() {
    let folder = Folder::new();
    folder.run(&format!("{MLP} --steps 5 --checkpoint c"), &[]).exits(0);
    let before = std::fs::read(folder.path("c/step-00000005.safetensors")).expect("a checkpoint");
    for other in ["--seed 7 --steps 5", "--steps 5", "--steps 9"] {
        let ran = folder.run(&format!("{MLP} {other} --checkpoint c"), &[]);
        ran.complains(&["c: already holds", "up to step 5", "--resume c", "another folder"]);
    }
    folder.run(&format!("{MLP} --steps 6 --checkpoint d"), &[]).exits(0);
    folder.run(&format!("{MLP} --steps 9 --resume d --checkpoint c"), &[]).complains(&["c: already holds"]);
    assert_eq!(steps(&folder, "c"), [5]);
    assert!(std::fs::read(folder.path("c/step-00000005.safetensors")).expect("a checkpoint") == before);
    // Naming the folder twice is no contradiction.
    folder.run(&format!("{MLP} --steps 6 --resume c --checkpoint ./c"), &[]).exits(0);
}

#[test]
fn more_steps_under_a_schedule_are_explained_and_possible() {
    let folder = Folder::new();
    let run = format!("{MLP} --schedule cosine --lr 0.01");
    folder.run(&format!("{run} --steps 4 --checkpoint c"), &[]).exits(0);
    let ran = folder.run(&format!("{run} --steps 8 --resume c"), &[]);
    let ran = ran.complains(&["cosine over 4 steps, now it is cosine over 8 steps", "--new-schedule"]);
    assert!(!ran.stderr.contains('{'), "{ran:?}");
    folder.run(&format!("{run} --steps 8 --resume c --new-schedule --log c.csv"), &[]).exits(0);
    // From now on these are the rates of the run.
    folder.run(&format!("{run} --steps 8 --resume c"), &[]).exits(0);
    let rates: Vec<String> = folder
        .read("c.csv")
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(2).expect("a rate").to_owned())
        .collect();
    assert_eq!(rates.len(), 4);
    assert!(
        rates[0].parse::<f64>().expect("a rate") > 0.003,
        "the new schedule counts from step 5: {rates:?}"
    );
    folder.run(&format!("{run} --steps 8 --new-schedule"), &[]).complains(&["--resume"]);
}

#[test]
fn a_checkpoint_of_the_first_version_is_continued_with_its_bits() {
    let folder = Folder::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::create_dir(folder.path("run")).expect("a folder");
    let name = "step-00000003.safetensors";
    std::fs::copy(fixtures.join("first-checkpoint").join(name), folder.path("run").join(name))
        .expect("a file");
    let run = format!("{MLP} --accumulate 2 --clip-norm 0.5 --schedule cosine --warmup 2 --seed 4 --steps 6");
    let ran = folder.run(&format!("{run} --resume run"), &[]).exits(0).prints(&["resumed after step"]);
    assert!(
        ran.stderr.contains("warning") && ran.stderr.contains("other arithmetic (version 1, now"),
        "{ran:?}"
    );
    let ours = tensors(&folder.path("run/step-00000006.safetensors"));
    let theirs = tensors(&fixtures.join("first-checkpoint-end.safetensors"));
    assert_eq!(ours.len(), theirs.len());
    assert!(ours == theirs, "a bit differs");
}

#[cfg(unix)]
#[test]
fn results_go_through_links_and_never_replace_a_pipe() {
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    let folder = Folder::new();
    std::fs::create_dir(folder.path("disk")).expect("a folder");
    symlink("disk/real.csv", folder.path("loss.csv")).expect("a link");
    folder.run(&format!("{MLP} --steps 2 --log loss.csv"), &[]).exits(0);
    assert_eq!(folder.read("disk/real.csv").lines().count(), 3);
    assert!(std::fs::symlink_metadata(folder.path("loss.csv")).expect("a link").is_symlink());
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    for flag in ["--save", "--log"] {
        folder.run(&format!("{MLP} --steps 2 {flag} pipe"), &[]).complains(&["pipe", "not a regular file"]);
    }
    assert!(std::fs::metadata(folder.path("pipe")).expect("a pipe").file_type().is_fifo());
}

/// A run that another program takes its text away from.
#[test]
fn a_text_that_becomes_shorter_costs_no_step() {
    for (tokenizer, tokens) in [("bytes", "corpus.txt"), ("bpe:280", "corpus.txt.bpe-280.tokens")] {
        let folder = Folder::new();
        corpus(&folder);
        let gpt = "train gpt --batch 2 --seq 16 --dim 16 --heads 2 --layers 1 --threads 1 --data corpus.txt --tokenizer";
        let run = format!("{gpt} {tokenizer} --log loss.csv");
        let mut command = folder.command();
        command.args(format!("{run} --steps 1000000 --checkpoint c --checkpoint-every 1000000").split(' '));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let child = command.spawn().expect("the binary runs");
        let begin = std::time::Instant::now();
        while !folder.path("loss.csv").exists() || folder.read("loss.csv").lines().count() < 4 {
            assert!(begin.elapsed().as_secs() < 120, "no step was made");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let whole = std::fs::read(folder.path(tokens)).expect("tokens");
        std::fs::OpenOptions::new()
            .write(true)
            .open(folder.path(tokens))
            .expect("a file")
            .set_len(99)
            .expect("a cut");
        let ran = Ran::of(child.wait_with_output().expect("the binary ends")).exits(2);
        for part in [tokens, "is shorter than when the run began", "--resume c"] {
            assert!(ran.stderr.contains(part), "`{part}` is missing: {ran:?}");
        }
        let done = folder.read("loss.csv").lines().count() as u64 - 1;
        assert_eq!(steps(&folder, "c"), [done], "the state after the last step is saved");
        std::fs::write(folder.path(tokens), whole).expect("a file");
        folder.run(&format!("{run} --steps {} --resume c", done + 2), &[]).exits(0);
    }
}
