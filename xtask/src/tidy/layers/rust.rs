//! Which modules of a crate name each other, read from its tokens.
//!
//! Tokens instead of a syntax tree: they leave out comments and strings, have lines, and see into macros, whose
//! bodies no parser understands. A path counts where it begins with `crate` or where its `super`s reach the root, in
//! `use` (with any nesting of braces) and in code. Relative paths cannot leave a module otherwise.

use super::{Import, Modules, Source};
use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use std::collections::HashMap;

/// Reads the root and all files below it.
pub(super) fn modules(sources: &[Source]) -> Result<Modules> {
    let is_root = |source: &&Source| matches!(source.path.as_str(), "lib.rs" | "main.rs");
    let root = sources.iter().find(is_root).context("neither lib.rs nor main.rs is there")?;
    let mut modules = Modules { root: root.path.trim_end_matches(".rs").to_owned(), ..Modules::default() };
    let root_tokens = tokens(root)?;
    for source in sources.iter().filter(|source| !is_root(source)) {
        let name = source.path.split(['/', '.']).next().unwrap_or_default();
        modules.names.insert(name.to_owned());
    }
    let facade = Facade::read(root_tokens, &modules);
    for source in sources.iter().filter(|source| !is_root(source)) {
        let stem = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let from = stem.split('/').next().unwrap_or_default();
        let mut found = Vec::new();
        scan(tokens(source)?, stem.split('/').count(), &mut found);
        let imports = found.into_iter().filter_map(|(name, line)| {
            let (path, from) = (source.path.clone(), from.to_owned());
            Some(Import { path, line, from, to: facade.module_of(&name)? })
        });
        modules.imports.extend(imports);
    }
    Ok(modules)
}

fn tokens(source: &Source) -> Result<Vec<TokenTree>> {
    let stream: TokenStream = match source.text.parse() {
        Ok(stream) => stream,
        Err(error) => anyhow::bail!("{}: {error}", source.path),
    };
    Ok(stream.into_iter().collect())
}

/// What the names of the crate's root stand for.
struct Facade {
    root: String,
    /// From a name to the module that holds it; a module to itself.
    modules: HashMap<String, String>,
    /// Modules whose files lie elsewhere (`#[path]`): not part of the order.
    elsewhere: Vec<String>,
}

impl Facade {
    fn read(tokens: Vec<TokenTree>, modules: &Modules) -> Facade {
        let mut facade =
            Facade { root: modules.root.clone(), modules: HashMap::new(), elsewhere: Vec::new() };
        facade.modules.extend(modules.names.iter().map(|name| (name.clone(), name.clone())));
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let TokenTree::Ident(word) = token else { continue };
            if word == "use" {
                let path: Vec<_> = tokens.by_ref().take_while(|token| !is_punct(token, ';')).collect();
                facade.add_use(&path, None);
            } else if word == "mod"
                && let Some(TokenTree::Ident(name)) = tokens.next()
                && tokens.peek().is_some_and(|token| is_punct(token, ';'))
                && !modules.names.contains(&name.to_string())
            {
                facade.elsewhere.push(name.to_string());
            }
        }
        facade
    }

    /// The names that one `use` brings into the root; `module` is the first name of the path so far.
    fn add_use(&mut self, path: &[TokenTree], module: Option<&str>) {
        let mut module = module.map(str::to_owned);
        let mut last = None;
        for token in path {
            match token {
                TokenTree::Ident(word) if *word == "crate" || *word == "self" || *word == "as" => {}
                TokenTree::Ident(word) => {
                    module.get_or_insert_with(|| word.to_string());
                    last = Some(word.to_string());
                }
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    for part in inner.split(|token| is_punct(token, ',')) {
                        self.add_use(part, module.as_deref());
                    }
                    return;
                }
                _ => {}
            }
        }
        if let (Some(module), Some(name)) = (module, last)
            && self.modules.get(&module) == Some(&module)
        {
            self.modules.entry(name).or_insert(module);
        }
    }

    /// The module that a name of the root belongs to; `None` when it lies outside the order.
    fn module_of(&self, name: &str) -> Option<String> {
        if self.elsewhere.iter().any(|module| module == name) {
            return None;
        }
        Some(self.modules.get(name).unwrap_or(&self.root).clone())
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// The names of the root that the tokens of a module at `depth` below it mention, with their lines.
fn scan(tokens: Vec<TokenTree>, depth: usize, found: &mut Vec<(String, usize)>) {
    let mut index = 0;
    while index < tokens.len() {
        match &tokens[index] {
            TokenTree::Ident(word) if *word == "crate" => index = path(&tokens, index + 1, 0, found),
            TokenTree::Ident(word) if *word == "super" => {
                index = path(&tokens, index + 1, depth.saturating_sub(1), found);
            }
            TokenTree::Group(group) => {
                let is_module =
                    group.delimiter() == Delimiter::Brace && index >= 2 && is_mod(&tokens[index - 2]);
                scan(group.stream().into_iter().collect(), depth + usize::from(is_module), found);
                index += 1;
            }
            _ => index += 1,
        }
    }
}

fn is_mod(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Ident(word) if *word == "mod")
}

/// Follows a path that has reached the module at `depth`; `index` is the index of the `::` after it. Returns the index of
/// the first token that is not part of what was followed.
fn path(tokens: &[TokenTree], index: usize, depth: usize, found: &mut Vec<(String, usize)>) -> usize {
    let colons = tokens.get(index..index + 2).unwrap_or_default();
    if colons.len() < 2 || !colons.iter().all(|token| is_punct(token, ':')) {
        return index; // `pub(crate)`, or the name of a module alone.
    }
    segment(tokens, index + 2, depth, found)
}

/// One segment of a path, or a group of them.
fn segment(tokens: &[TokenTree], index: usize, depth: usize, found: &mut Vec<(String, usize)>) -> usize {
    match tokens.get(index) {
        Some(TokenTree::Ident(word)) if *word == "super" => {
            path(tokens, index + 1, depth.saturating_sub(1), found)
        }
        Some(TokenTree::Ident(word)) if depth == 0 => {
            found.push((plain(word), line(&tokens[index])));
            index + 1
        }
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<_> = group.stream().into_iter().collect();
            let mut start = 0;
            for part in inner.split(|token| is_punct(token, ',')) {
                segment(&inner[..start + part.len()], start, depth, found);
                start += part.len() + 1;
            }
            index + 1
        }
        // Everything that the root has.
        Some(token) if is_punct(token, '*') && depth == 0 => {
            found.push(("*".to_owned(), line(token)));
            index + 1
        }
        _ => index,
    }
}

/// `r#type` and `type` are one module.
fn plain(word: &Ident) -> String {
    word.to_string().trim_start_matches("r#").to_owned()
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let root = "mod a;\nmod b;\nmod c;\n#[path = \"x.rs\"]\nmod far;\n\
                    pub use b::{Late, deep::{Later as Renamed}};\nuse crate::c::Third;\nfn run() {}\n";
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let mut sources = vec![source("main.rs", root), source("b.rs", ""), source("c.rs", "")];
        sources.push(source(path, text));
        let modules = modules(&sources).unwrap();
        modules.imports.iter().map(|import| format!("{} {}", import.line, import.to)).collect()
    }

    #[test]
    fn every_kind_of_path_is_seen() {
        for (text, expected) in [
            ("use crate::b::X;", "1 b"),
            ("use ::std::fmt;\npub(crate) use crate::b as x;", "2 b"),
            ("fn f() -> Vec<crate::b::X> {}", "1 b"),
            ("fn f() {\n    g(|| crate::b::f());\n}", "2 b"),
            ("impl A for crate::b::B<crate::b::C> {}", "1 b,1 b"),
            ("macro_rules! m { () => { $crate::b::f() } }", "1 b"),
            ("fn f() {\n    assert!(\n        super::b::f());\n}", "3 b"),
            ("use super::b;", "1 b"),
            ("use crate::*;", "1 main"),
            ("use crate::r#b::X;", "1 b"),
            ("use crate::{\n    b::{X, y::Z},\n    c,\n};", "2 b,3 c"),
            ("use {crate::b::X, std::fmt};", "1 b"),
            ("use super::{b, c::{d, e}};", "1 b,1 c"),
            ("#[cfg(test)]\nmod tests {\n    use super::super::b;\n    use super::b;\n}", "3 b"),
            ("mod inner {\n    use super::{super::b, c};\n}", "2 b"),
            ("use crate::Late;", "1 b"),
            ("use crate::{Renamed, Third};", "1 b,1 c"),
            ("fn f() {\n    crate::run();\n}", "2 main"),
            ("#[cfg(test)]\nmod tests {\n    use crate::far::x;\n}", ""),
        ] {
            assert_eq!(found("a.rs", text).join(","), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_code_does_not_count() {
        for text in [
            "//! See [`crate::b`].\n/// [b](crate::b)\nfn f() {}",
            "/* use crate::b; */ const X: &str = \"crate::b\";",
            "const X: &str = r#\"use crate::b;\"#;",
            "pub(crate) fn f() { self::b::x(); }",
            "mod b;\nuse b::x;",
            "pub(in crate::a) fn f() {}",
        ] {
            assert!(found("a.rs", text).iter().all(|import| import.ends_with(" a")), "{text}");
        }
    }

    #[test]
    fn the_folder_says_how_far_the_root_is() {
        assert_eq!(found("a/mod.rs", "use super::b;"), ["1 b"]);
        assert_eq!(found("a/x.rs", "use super::b;"), [""; 0]);
        assert_eq!(found("a/x.rs", "use super::super::b;"), ["1 b"]);
        assert_eq!(found("a/x/y.rs", "use super::super::super::{b, c};"), ["1 b", "1 c"]);
        assert_eq!(found("a/x/mod.rs", "use super::super::b;"), ["1 b"]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_named() {
        let sources = ["lib.rs", "a.rs"].map(|path| Source { path: path.into(), text: "mod a {".into() });
        assert!(format!("{:#}", modules(&sources).err().unwrap()).contains("lib.rs"));
    }
}
