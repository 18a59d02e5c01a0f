//! Every path that a document or a comment names exists, and no file names a folder of somebody's machine.

use super::File;

/// Where named paths may begin.
const ROOTS: [&str; 9] =
    ["crates/", "docs/", "bench/", "examples/", "xtask/", "python/", ".ci/", ".cargo/", ".github/"];

/// Beginnings of paths that exist on one machine only. Assembled here, so that this file does not contain them.
fn machine_paths() -> Vec<String> {
    ["home", "Users", "root", "work"].map(|folder| format!("/{folder}/")).into()
}

/// Documents may name any file; in code only comments do.
pub(super) fn check(file: &File, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let File { name, text } = file;
    let is_document = name.ends_with(".md");
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        if let Some(found) = machine_paths().iter().find(|path| names_machine_path(line, path)) {
            faults.push(format!("{place}: names a folder of one machine, `{found}`"));
        }
        if is_document || line.trim_start().starts_with("//") {
            let missing = named_paths(line).into_iter().filter(|path| !is_there(path));
            faults.extend(missing.map(|path| format!("{place}: names `{path}`, which does not exist")));
        }
    }
    faults
}

/// A folder counts only where a path begins, not inside another path.
fn names_machine_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')'))
    })
}

/// Words that look like a path inside the repository. Patterns and placeholders are not paths.
fn named_paths(line: &str) -> Vec<&str> {
    let is_boundary = |c: char| c.is_whitespace() || "`\"'()[]<>,;:!|".contains(c);
    line.split(is_boundary)
        .map(|word| word.split('#').next().unwrap_or(word).trim_end_matches(['.', '/']))
        .filter(|word| ROOTS.iter().any(|root| word.starts_with(root)))
        .filter(|word| !word.contains(['*', '{', '$', '=', '…']) && !word.contains("..."))
        .filter(|word| !word.chars().any(char::is_uppercase) || word.contains('.'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        check(&File { name: name.into(), text: text.into() }, is_there)
    }

    #[test]
    fn documents_name_only_what_exists() {
        let text = "See `crates/a/src/lib.rs`, [b](docs/b.md#part) and crates/*/tests.\nAnd docs/none.md.\n";
        let found = faults("README.md", text, |path| path != "docs/none.md");
        assert_eq!(found, ["README.md:2: names `docs/none.md`, which does not exist"]);
        let code = "let x = \"docs/none.md\";\n// docs/none.md\n";
        assert_eq!(faults("a.rs", code, |_| false).len(), 1);
    }

    #[test]
    fn folders_of_a_machine_are_found_and_relative_ones_are_not() {
        let home = format!("see /{}/me/x", "home");
        let inside = format!("see target/{}/x", "home");
        assert_eq!(faults("a.md", &home, |_| true).len(), 1);
        assert_eq!(faults("a.md", &inside, |_| true).len(), 0);
    }
}
