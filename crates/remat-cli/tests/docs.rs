//! The docs are true: commands that they show are run, and what they print is what the page says.
//!
//! Two forms are checked. A block that begins with `$ remat ...` shows a command and its output; `...` stands for what is
//! left out or differs between machines, and line breaks mean nothing. In a table, the first cell of a row may be a
//! command; then every size in the other cells is printed by it.

mod common;

use common::Folder;
use std::path::Path;

/// A command with what the page says about it.
struct Shown {
    place: String,
    command: String,
    expected: Expected,
}

enum Expected {
    /// The whole output, with `...` for anything.
    Output(String),
    /// Sizes that are printed somewhere.
    Sizes(Vec<String>),
}

fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).expect("a folder of docs");
    let mut paths: Vec<_> = docs.map(|entry| entry.expect("an entry").path()).collect();
    paths.push(root.join("README.md"));
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    paths.sort();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).expect("a page"))).collect()
}

/// Every command of a page whose output the page shows.
fn shown(name: &str, text: &str) -> Vec<Shown> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let place = format!("{name}:{}", at + 1);
        if let Some(command) = line.trim_start().strip_prefix("$ remat ") {
            let indent = line.len() - line.trim_start().len();
            let is_inside = |line: &&&str| {
                line.len() - line.trim_start().len() >= indent
                    && !line.trim().is_empty()
                    && !line.starts_with("```")
                    && !line.trim_start().starts_with("$ ")
            };
            let output: Vec<&str> = lines[at + 1..].iter().take_while(is_inside).copied().collect();
            let expected = Expected::Output(output.join(" "));
            found.push(Shown { place, command: command.to_owned(), expected });
        } else if let Some(row) = line.strip_prefix("| `remat ") {
            let Some((command, rest)) = row.split_once('`') else { continue };
            let sizes = sizes(rest);
            if !sizes.is_empty() {
                found.push(Shown { place, command: command.to_owned(), expected: Expected::Sizes(sizes) });
            }
        }
    }
    found
}

/// Numbers with a unit of bytes.
fn sizes(text: &str) -> Vec<String> {
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches([',', '|', ';', '(', ')'])).collect();
    let is_size = |pair: &&[&str]| {
        matches!(pair[1], "B" | "KiB" | "MiB" | "GiB" | "TiB") && pair[0].parse::<f64>().is_ok()
    };
    words.windows(2).filter(is_size).map(|pair| pair.join(" ")).collect()
}

/// Whether the text has the pieces between `...` in their order, from its beginning to its end.
fn matches(pattern: &str, text: &str) -> Result<(), String> {
    let normal = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, text) = (normal(pattern), normal(text));
    let mut pieces = pattern.split("...").map(str::trim);
    let first = pieces.next().unwrap_or_default();
    let mut rest = text.strip_prefix(first).ok_or_else(|| format!("does not begin with `{first}`"))?;
    let mut last = first;
    for piece in pieces {
        let at = rest.find(piece).ok_or_else(|| format!("`{piece}` does not follow `{last}`"))?;
        rest = &rest[at + piece.len()..];
        last = piece;
    }
    let is_open = last.is_empty();
    if rest.trim().is_empty() || is_open { Ok(()) } else { Err(format!("has more after `{last}`: `{rest}`")) }
}

#[test]
fn commands_print_what_the_docs_say() {
    let folder = Folder::new();
    let (mut wrong, mut n_checked) = (Vec::new(), 0);
    for (name, text) in pages() {
        for Shown { place, command, expected } in shown(&name, &text) {
            let ran = folder.run(&command, &[]);
            let printed = format!("{}{}", ran.stdout, ran.stderr);
            let problem = match expected {
                Expected::Output(pattern) => matches(&pattern, &printed).err(),
                Expected::Sizes(sizes) => sizes
                    .iter()
                    .find(|size| !printed.contains(*size))
                    .map(|size| format!("{size} is not printed")),
            };
            n_checked += 1;
            wrong.extend(problem.map(|problem| format!("{place}: remat {command}\n  {problem}\n{printed}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_checked >= 8, "only {n_checked} commands with output were found in the docs");
}

#[test]
fn the_check_sees_what_is_wrong() {
    matches("fits: peak 5.00 MiB ... set by ...", "fits: peak 5.00 MiB within\n 6 MiB; set by a").unwrap();
    matches("a ... c", "a b c").unwrap();
    for (pattern, text) in [("a ... c", "a b d"), ("a", "a b"), ("b ...", "a b"), ("a ... b ... c", "a c b")]
    {
        assert!(matches(pattern, text).is_err(), "{pattern}");
    }
    assert_eq!(sizes("| floor 346.53 MiB, +18 % | (0 B) 1,5 GiB |"), ["346.53 MiB", "0 B"]);
    let page =
        "x\n\n    $ remat plan mlp --budget 1\n    error: no\n      unit\n\ny\n| `remat models` | 3 MiB |\n";
    let found = shown("page", page);
    assert_eq!(found.len(), 2);
    assert!(matches!(&found[0].expected, Expected::Output(text) if text.trim() == "error: no       unit"));
}
