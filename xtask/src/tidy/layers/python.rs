//! Which modules of the Python package import each other.
//!
//! A reader of statements, not of the whole language, so that this check needs no Python: strings and comments are
//! blanked, lines inside brackets are joined, and of the rest only `import` and `from` count, wherever they occur
//! (inside functions and under `TYPE_CHECKING`, too). Modules named in a string (`import_module("...")`) are not seen.

use super::{Import, Modules, Source};

/// The package's name, for absolute imports.
const PACKAGE: &str = "remat";

/// Reads all files of the package.
pub(super) fn modules(sources: &[Source]) -> Modules {
    let mut modules = Modules { root: "__init__".to_owned(), ..Modules::default() };
    for source in sources {
        let name = source.path.split(['/', '.']).next().unwrap_or_default();
        if name != modules.root {
            modules.names.insert(name.to_owned());
        }
    }
    for source in sources {
        // The folders of a file from the package's on; `x/__init__.py` stands for the folder `x` itself.
        let stem = source.path.trim_end_matches(".pyi").trim_end_matches(".py");
        let parts: Vec<&str> = stem.split('/').collect();
        if parts[0] == modules.root {
            continue;
        }
        let folders = &parts[..parts.len() - 1];
        for (line, statement) in statements(&source.text) {
            let imports = targets(&statement, folders).into_iter().map(|name| {
                let to = if modules.names.contains(&name) { name } else { modules.root.clone() };
                Import { path: source.path.clone(), line, from: parts[0].to_owned(), to }
            });
            modules.imports.extend(imports);
        }
    }
    modules
}

/// The first names below the package of everything that a statement imports; an empty name for the package itself.
fn targets(statement: &str, folders: &[&str]) -> Vec<String> {
    let first = |path: &str| path.split('.').next().unwrap_or_default().trim().to_owned();
    let below = |path: &str| match path.split_once('.') {
        Some((PACKAGE, rest)) => Some(first(rest)),
        _ => (path == PACKAGE).then(String::new),
    };
    let names = |list: &str| -> Vec<String> {
        let list = list.trim_matches(['(', ')', ' ']);
        let names = list.split(',').map(|name| name.split_whitespace().next().unwrap_or_default());
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    if let Some(list) = statement.strip_prefix("import ") {
        return names(list).iter().filter_map(|path| below(path)).collect();
    }
    let Some((path, list)) = statement.strip_prefix("from ").and_then(split_at_import) else {
        return Vec::new();
    };
    let n_dots = path.len() - path.trim_start_matches('.').len();
    let absolute = match n_dots {
        0 => path,
        // One dot is the folder of the file; each further one the folder around it.
        _ if n_dots - 1 <= folders.len() => {
            let kept = &folders[..folders.len() + 1 - n_dots];
            let mut parts = vec![PACKAGE];
            parts.extend(kept);
            parts.extend(Some(&path[n_dots..]).filter(|rest| !rest.is_empty()));
            parts.join(".")
        }
        _ => return Vec::new(),
    };
    match below(&absolute) {
        // `from . import a, b` names modules.
        Some(name) if name.is_empty() => names(list),
        Some(name) => vec![name],
        None => Vec::new(),
    }
}

/// The module and the names of `MODULE import NAMES`; `. import(x)` and `.import x` are valid as well.
fn split_at_import(rest: &str) -> Option<(String, &str)> {
    rest.match_indices("import").find_map(|(at, word)| {
        let (path, list) = (&rest[..at], &rest[at + word.len()..]);
        let is_word = path.ends_with([' ', '.']) && list.starts_with([' ', '(', '*']);
        is_word.then(|| (path.replace(' ', ""), list.trim_start()))
    })
}

/// The statements of a text that could be imports, each with its line: joined over brackets and backslashes, split at
/// `;` and after the colon of `if x: import y`.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements = Vec::new();
    let (mut line, mut start, mut depth) = (1, 1, 0_usize);
    let mut current = String::new();
    let mut push = |current: &mut String, line: usize| {
        let statement = current.split_whitespace().collect::<Vec<_>>().join(" ");
        current.clear();
        if statement.starts_with("import ") || statement.starts_with("from ") {
            statements.push((line, statement));
        }
    };
    let code = blanked(text);
    let mut characters = code.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_continued = character == '\\' && characters.peek() == Some(&'\n');
        if is_continued {
            characters.next();
            line += 1;
            current.push(' ');
        } else if depth == 0 && matches!(character, '\n' | ';' | ':') {
            push(&mut current, start);
            line += usize::from(character == '\n');
            start = line;
        } else {
            line += usize::from(character == '\n');
            current.push(character);
        }
    }
    push(&mut current, start);
    statements
}

/// The text with strings and comments replaced by spaces; line ends stay.
fn blanked(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut index = 0;
    while index < characters.len() {
        let end = match characters[index] {
            '#' => {
                characters[index..].iter().position(|c| *c == '\n').map_or(characters.len(), |n| index + n)
            }
            '"' | '\'' => end_of_string(&characters, index),
            character => {
                code.push(character);
                index += 1;
                continue;
            }
        };
        code.extend(characters[index..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        index = end;
    }
    code
}

/// The index after the string that begins with the quote at `start`.
fn end_of_string(characters: &[char], start: usize) -> usize {
    let quote = characters[start];
    let is_triple = characters[start..].starts_with(&[quote; 3]);
    let mut index = start + if is_triple { 3 } else { 1 };
    while index < characters.len() {
        match characters[index] {
            '\\' => index += 1,
            '\n' if !is_triple => return index,
            character if character == quote => {
                if !is_triple {
                    return index + 1;
                }
                if characters[index..].starts_with(&[quote; 3]) {
                    return index + 3;
                }
            }
            _ => {}
        }
        index += 1;
    }
    characters.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> String {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = ["__init__.py", "b.py", "c/__init__.py", "_remat.pyi"].map(|path| source(path, ""));
        let mut sources = Vec::from(sources);
        sources.push(source(path, text));
        let imports = modules(&sources).imports;
        imports.iter().map(|import| format!("{} {}", import.line, import.to)).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn every_kind_of_import_is_seen() {
        for (text, expected) in [
            ("from .b import x", "1 b"),
            ("from .b.deep import x", "1 b"),
            ("from . import b, c as d", "1 b,1 c"),
            ("\nfrom . import (\n    b,  # why\n    c,\n)\n", "2 b,2 c"),
            ("from remat.b import (\n    x, y)\nimport remat.c", "1 b,3 c"),
            ("from remat import b", "1 b"),
            ("from remat import compile", "1 __init__"),
            ("import remat", "1 __init__"),
            ("import torch, remat.b as x, remat.c", "1 b,1 c"),
            ("def f():\n    from .b import x\n    return x", "2 b"),
            ("if TYPE_CHECKING:\n    from .b import X", "2 b"),
            ("if x: from .b import X", "1 b"),
            ("x = 1; import remat.b", "1 b"),
            ("from .b \\\n    import x\nfrom .c import y", "1 b,3 c"),
            ("from ._remat import Problem", "1 _remat"),
            ("from .b import(x)", "1 b"),
            ("from .b import*", "1 b"),
            ("from .import b", "1 b"),
            ("from .importer import b", "1 __init__"),
        ] {
            assert_eq!(found("a.py", text), expected, "{text}");
        }
    }

    #[test]
    fn strings_comments_and_other_packages_do_not_count() {
        for text in [
            "\"\"\"Docs.\n\nfrom .b import x\n\"\"\"",
            "x = '''\nimport remat.b\n'''",
            "# from .b import x",
            "x = \"it's\"  # \"\nfrom torch import b",
            "x = 'a\\'; import remat.b'",
            "import rematch.b, b",
            "from b import x",
            "yield from b.c(x)",
            "raise X from error",
        ] {
            assert_eq!(found("a.py", text), "", "{text}");
        }
    }

    #[test]
    fn dots_are_counted_from_the_folder() {
        assert_eq!(found("a/x.py", "from ..b import y"), "1 b");
        assert_eq!(found("a/x.py", "from .b import y"), "1 a");
        assert_eq!(found("a/__init__.py", "from .b import y\nfrom .. import c"), "1 a,2 c");
    }
}
