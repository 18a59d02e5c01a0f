//! The tree tells where things are: every planner and every bound has its file and its page, under the same name.

use remat_plan::PLANNERS;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_planner_has_a_file_and_a_page_of_its_name() {
    let (source, pages) = (root().join("crates/remat-plan/src/planners"), root().join("docs/planners"));
    if !pages.is_dir() {
        eprintln!("skipped: the documentation is not beside the crate");
        return;
    }
    for info in PLANNERS {
        let module = info.name.replace('-', "_");
        let is_there = source.join(format!("{module}.rs")).exists() || source.join(&module).is_dir();
        assert!(is_there, "{} has no file in {}", info.name, source.display());
        let page = pages.join(format!("{}.md", info.name));
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        assert!(text.starts_with(&format!("# {}\n", info.name)), "{} is not its page", page.display());
    }
    // And nothing else is there.
    let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    let n_hidden = usize::from(!cfg!(feature = "ilp"));
    assert_eq!(count(&pages), PLANNERS.len() + n_hidden);
    assert_eq!(count(&source), PLANNERS.len() + n_hidden + 1, "planners and mod.rs");
}

#[test]
fn every_page_about_bounds_has_a_file_of_its_name() {
    let (source, pages) = (root().join("crates/remat-plan/src/bounds"), root().join("docs/bounds"));
    if !pages.is_dir() {
        eprintln!("skipped: the documentation is not beside the crate");
        return;
    }
    for page in std::fs::read_dir(pages).unwrap() {
        let path = page.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let source = source.join(name.replace('-', "_"));
        assert!(source.with_extension("rs").exists() || source.is_dir(), "{name}");
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(&format!("# {name}\n")), "{name}");
    }
}
