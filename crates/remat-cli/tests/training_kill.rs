//! Runs that are killed at any moment can be resumed and end with the same bits as one that was left alone.
//!
//! Five kills run as a test. A campaign of any length is the same test with a number:
//! `REMAT_KILLS=200 cargo test --release -p remat-cli --test training_kill -- --nocapture`.

#![cfg(unix)]

mod common;

use common::Folder;
use common::training::{corpus, results, tensors};
use std::process::Stdio;
use std::time::{Duration, Instant};

const RUN: &str = "train gpt --batch 2 --seq 16 --dim 16 --heads 2 --layers 2 --dropout 0.1 --data corpus.txt \
                   --accumulate 2 --clip-norm 0.5 --schedule cosine --warmup 5 --effort 0.001 --threads 1 --steps 120 \
                   --eval-every 10 --eval-batches 1 --checkpoint-every 2 --print-every 120";

/// The newest checkpoint of a folder, 0 for none.
fn newest(folder: &Folder) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder.path("killed")) else { return 0 };
    let step = |name: &str| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse::<u64>().ok();
    let names = entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned()));
    names.filter_map(|name| step(&name)).max().unwrap_or(0)
}

#[test]
fn killed_runs_end_with_the_same_bits() {
    let n_kills: usize =
        std::env::var("REMAT_KILLS").map_or(5, |n| n.parse().expect("REMAT_KILLS is a number"));
    let folder = Folder::new();
    corpus(&folder);
    let begin = Instant::now();
    folder.run(&format!("{RUN} --log whole.csv --checkpoint whole"), &[]).exits(0);
    let whole_time = begin.elapsed();

    let (mut random, mut n_done, mut n_finished) = (0x2545_F491_4F6C_DD1Du64, 0, 0);
    std::fs::create_dir(folder.path("killed")).expect("a folder");
    let killed = format!("{RUN} --log killed.csv --resume killed");
    while n_done < n_kills {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let delay = Duration::from_nanos(random % (whole_time.as_nanos() / 2).max(1) as u64);
        let before = newest(&folder);
        let mut command = folder.command();
        command.args(killed.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        std::thread::sleep(delay);
        child.kill().expect("a child can be killed");
        let status = child.wait().expect("a child ends");
        let after = newest(&folder);
        assert!(after >= before, "a checkpoint was lost: {before}, then {after}");
        // A kill that came too late was none.
        n_done += usize::from(status.code().is_none());
        if after == 120 {
            check(&folder);
            n_finished += 1;
            std::fs::remove_dir_all(folder.path("killed")).expect("a folder");
            std::fs::create_dir(folder.path("killed")).expect("a folder");
        }
    }
    folder.run(&killed, &[]).exits(0);
    check(&folder);
    println!("{n_done} kills, {} runs ended with the same bits", n_finished + 1);
}

fn check(folder: &Folder) {
    let last = |run: &str| tensors(&folder.path(run).join("step-00000120.safetensors"));
    assert!(last("killed") == last("whole"), "the last checkpoints differ");
    assert_eq!(results(folder, "killed.csv"), results(folder, "whole.csv"));
}
