//! Replays the corpus of the fuzzers: the seeds, and every file that has once broken something. See fuzz/README.md.

#[path = "../../../fuzz/src/targets.rs"]
#[allow(dead_code, unused_imports, unreachable_pub)] // It is a crate of its own for the fuzzers.
mod targets;

use std::path::Path;

#[test]
fn every_file_of_the_corpus_is_read_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in targets::TARGETS {
        let mut n_files = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            target(&std::fs::read(&path).expect("a file"));
            n_files += 1;
        }
        assert!(n_files > 0, "there are no files for {name}");
    }
}
