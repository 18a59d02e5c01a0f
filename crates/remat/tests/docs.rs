//! Pages that must agree with the code.
//!
//! * docs/ops.md against the list of ops: every op has its row, in the order of the list, and no table names anything else.
//! * The Rust example of README.md is the one on the front page of the crate, which is compiled and run as a doctest.

use std::collections::HashSet;
use std::path::Path;

/// Code in tables that names a type instead of an op.
const TYPES: &[&str] = &["u8"];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .expect("a file of the repository")
}

/// The lines of a block of code that begins with this fence.
fn block<'p>(page: &'p str, fence: &'p str) -> impl Iterator<Item = &'p str> {
    page.lines().skip_while(move |line| *line != fence).skip(1).take_while(|line| *line != "```")
}

/// The rows of tables, as cells.
fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
    page.lines().filter_map(|line| {
        let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(row.split('|').map(str::trim).collect())
    })
}

/// What is written as code.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The ops that have a row: the first cells of tables whose first column is `op`.
fn described(page: &str) -> Vec<&str> {
    let mut is_list = false;
    let mut ops = Vec::new();
    for row in rows(page) {
        match row[0] {
            "op" => is_list = true,
            cell if cell.starts_with('`') && is_list => ops.extend(code(cell)),
            cell if cell.starts_with('-') => {}
            _ => is_list = false,
        }
    }
    ops
}

/// Names in tables that are no op.
fn strangers<'p>(page: &'p str, known: &HashSet<&str>) -> Vec<&'p str> {
    let named = rows(page).flat_map(|row| row.into_iter().flat_map(code).collect::<Vec<_>>());
    named.filter(|name| !known.contains(name) && !TYPES.contains(name)).collect()
}

#[test]
fn the_page_of_ops_names_every_op_and_nothing_else() {
    let page = read("../../docs/ops.md");
    let listed: Vec<&str> = remat::op::all().iter().map(|entry| entry.name).collect();
    assert_eq!(described(&page), listed, "rows of docs/ops.md on the left, the list of ops on the right");
    assert_eq!(strangers(&page, &listed.into_iter().collect()), [""; 0], "docs/ops.md names what is no op");
}

#[test]
fn the_example_of_the_readme_is_the_one_on_the_front_page() {
    let source = read("src/lib.rs");
    let page: String = source
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .filter(|line| !line.starts_with("# "))
        .flat_map(|line| [line, "\n"])
        .collect();
    let readme = read("../../README.md");
    let example: Vec<&str> = block(&readme, "```rust").collect();
    assert!(example.len() > 10, "README.md has no block of Rust");
    assert_eq!(example, block(&page, "```").collect::<Vec<_>>(), "README.md on the left");
}

#[test]
fn the_check_sees_what_is_wrong() {
    let page = "\
| before | after |
|---|---|
| `add`, `gone` | `fused` |

text with `code`

| op | gradient |
|---|---|
| `add` | `sum_rows`, `u8` |
| `relu` | `relu_gard` |
";
    assert_eq!(described(page), ["add", "relu"]);
    let known = ["add", "fused", "relu", "sum_rows"].into_iter().collect();
    assert_eq!(strangers(page, &known), ["gone", "relu_gard"]);
}
