//! Modules import earlier stages only: the order is written in layers.toml, once for each crate and for the package.
//!
//! In: layers.toml and the sources. Out: every import of a later stage, or of another module on the same line, with
//! its file and line. As imports only ever go to an earlier line, modules cannot form a cycle. Every module must be
//! listed and every listed one must exist. The root (`lib`, `main`, `__init__`) comes after all modules; what it
//! re-exports counts as an import of the module that defines it.
//!
//! Unit tests obey too, and so do imports inside functions and imports for types alone: the order is what a reader
//! can rely on. What must be broken for a while is listed as `known = ["from -> to"]`; an entry that is no longer
//! needed is a fault, so that list can only shrink.

mod python;
mod rust;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// Where the order is written.
const FILE: &str = "layers.toml";

/// One section of layers.toml; its name is the folder of the sources.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// From the first to the last; modules on one line, separated by spaces, know nothing of each other.
    layers: Vec<String>,
    /// Imports of a later stage that are still there, as `from -> to`.
    #[serde(default)]
    known: Vec<String>,
}

/// The text of one source file; the path is relative to the folder of the section.
struct Source {
    path: String,
    text: String,
}

/// What a folder of sources holds.
#[derive(Default)]
struct Modules {
    /// The name of the root: `lib`, `main` or `__init__`.
    root: String,
    names: BTreeSet<String>,
    imports: Vec<Import>,
}

/// That the module `from` names something of the module (or root) `to`.
#[derive(Clone, Debug, PartialEq)]
struct Import {
    path: String,
    line: usize,
    from: String,
    to: String,
}

/// All faults of all sections, and a line that says what was seen.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("reading {FILE}"))?;
    let sections: BTreeMap<String, Order> =
        toml::from_str(&text).with_context(|| format!("reading {FILE}"))?;
    let mut faults = Vec::new();
    for (folder, order) in &sections {
        let mut sources = Vec::new();
        collect(&root.join(folder), "", &mut sources)?;
        let modules = read(&sources).with_context(|| format!("reading the imports of {folder}"))?;
        let found = faults_of(folder, order, &modules);
        if found.is_empty() {
            let (n_modules, n_layers, n_known) = (modules.names.len(), order.layers.len(), order.known.len());
            print!("{folder}: {n_modules} modules in {n_layers} layers");
            match n_known {
                0 => println!(", no cycle"),
                _ => println!(", {n_known} known imports of a later stage are left"),
            }
        }
        faults.extend(found);
    }
    faults.extend(unlisted_crates(root, &sections)?);
    Ok(faults)
}

/// Prints what each module imports, in the order of layers.toml, for people who edit that order.
pub(crate) fn print(root: &Path) -> Result<()> {
    for (folder, order) in sections(root)? {
        let modules = modules_of(root, &folder)?;
        let mut imported: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for Import { from, to, .. } in modules.imports.iter().filter(|import| import.from != import.to) {
            imported.entry(from).or_default().insert(to);
        }
        println!("{folder}");
        let listed: Vec<&str> = order.layers.iter().flat_map(|layer| layer.split_whitespace()).collect();
        let unlisted = modules.names.iter().map(String::as_str).filter(|name| !listed.contains(name));
        for name in listed.iter().copied().chain(unlisted) {
            let names: Vec<&str> = imported.remove(name).unwrap_or_default().into_iter().collect();
            println!("  {name}: {}", names.join(" "));
        }
    }
    Ok(())
}

fn sections(root: &Path) -> Result<BTreeMap<String, Order>> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("reading {FILE}"))?;
    toml::from_str(&text).with_context(|| format!("reading {FILE}"))
}

fn modules_of(root: &Path, folder: &str) -> Result<Modules> {
    let mut sources = Vec::new();
    collect(&root.join(folder), "", &mut sources)?;
    read(&sources).with_context(|| format!("reading the imports of {folder}"))
}

/// A new crate must not escape the check.
fn unlisted_crates(root: &Path, sections: &BTreeMap<String, Order>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for entry in fs::read_dir(root.join("crates")).context("reading crates/")? {
        let folder = format!("crates/{}/src", entry?.file_name().to_string_lossy());
        let mut sources = Vec::new();
        if !sections.contains_key(&folder) && root.join(&folder).is_dir() {
            collect(&root.join(&folder), "", &mut sources)?;
        }
        // A crate of one file has no order.
        if sources.len() > 1 {
            faults.push(format!("{FILE}: no section for `{folder}`"));
        }
    }
    Ok(faults)
}

/// The Rust and Python files below `folder`, in a fixed order.
fn collect(folder: &Path, prefix: &str, sources: &mut Vec<Source>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), sources)?;
        } else if [".rs", ".py", ".pyi"].iter().any(|end| path.ends_with(end)) {
            let text = fs::read_to_string(entry.path()).with_context(|| format!("reading {path}"))?;
            sources.push(Source { path, text });
        }
    }
    Ok(())
}

fn read(sources: &[Source]) -> Result<Modules> {
    if sources.iter().any(|source| source.path == "__init__.py") {
        Ok(python::modules(sources))
    } else {
        rust::modules(sources)
    }
}

fn faults_of(folder: &str, order: &Order, modules: &Modules) -> Vec<String> {
    let mut faults = Vec::new();
    let mut layer_of = HashMap::new();
    for (layer, names) in order.layers.iter().enumerate() {
        for name in names.split_whitespace() {
            if layer_of.insert(name, layer).is_some() {
                faults.push(format!("{FILE}: [{folder}] lists `{name}` twice"));
            }
            if !modules.names.contains(name) {
                faults.push(format!("{FILE}: [{folder}] lists `{name}`, which does not exist"));
            }
        }
    }
    let unlisted = modules.names.iter().filter(|name| !layer_of.contains_key(name.as_str()));
    faults.extend(unlisted.map(|name| format!("{FILE}: [{folder}] does not list `{name}`")));
    layer_of.insert(&modules.root, order.layers.len());

    let mut found = BTreeSet::new();
    let mut unused: BTreeSet<&str> = order.known.iter().map(String::as_str).collect();
    for Import { path, line, from, to } in &modules.imports {
        let (Some(own), Some(other)) = (layer_of.get(from.as_str()), layer_of.get(to.as_str())) else {
            continue; // Reported above as not listed.
        };
        let edge = format!("{from} -> {to}");
        if from == to || other < own {
            continue;
        }
        unused.remove(edge.as_str());
        // One line may name several things of one module.
        if !order.known.contains(&edge) && found.insert((path, line, to)) {
            let kind = if other == own { "of the same layer" } else { "a later stage" };
            faults.push(format!("{folder}/{path}:{line}: `{from}` imports `{to}`, {kind} (see {FILE})"));
        }
    }
    faults.extend(unused.iter().map(|edge| {
        format!("{FILE}: [{folder}] knows of `{edge}`, which does not occur any more: remove the entry")
    }));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(layers: &[&str], known: &[&str], files: &[(&str, &str)]) -> Vec<String> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let order = Order { layers: own(layers), known: own(known) };
        let source = |(path, text): &(&str, &str)| Source { path: (*path).into(), text: (*text).into() };
        let sources: Vec<Source> = files.iter().map(source).collect();
        faults_of("src", &order, &read(&sources).unwrap())
    }

    const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use b::Late;\npub const ROOT: u8 = 0;\n");

    #[test]
    fn earlier_stages_may_be_imported_and_later_ones_not() {
        let b = ("b.rs", "use crate::a::X;\n");
        assert_eq!(check(&["a", "b"], &[], &[LIB, ("a.rs", ""), b]), [""; 0]);
        let faults = check(&["a", "b"], &[], &[LIB, ("a.rs", "\nuse crate::b::Y;\n"), b]);
        assert_eq!(faults, ["src/a.rs:2: `a` imports `b`, a later stage (see layers.toml)"]);
        let faults = check(&["a b"], &[], &[LIB, ("a.rs", ""), b]);
        assert_eq!(faults, ["src/b.rs:1: `b` imports `a`, of the same layer (see layers.toml)"]);
    }

    #[test]
    fn the_root_comes_last_and_what_it_re_exports_belongs_to_its_module() {
        let (a, b) = (("a.rs", "use crate::Late;\n"), ("b.rs", "use crate::{Late, ROOT};\n"));
        let faults = check(&["a", "b"], &[], &[LIB, a, b]);
        assert_eq!(
            faults,
            [
                "src/a.rs:1: `a` imports `b`, a later stage (see layers.toml)",
                "src/b.rs:1: `b` imports `lib`, a later stage (see layers.toml)",
            ]
        );
    }

    #[test]
    fn a_known_import_passes_until_it_is_gone() {
        let (a, b) = (("a.rs", "use crate::b::Y;\n"), ("b.rs", ""));
        assert_eq!(check(&["a", "b"], &["a -> b"], &[LIB, a, b]), [""; 0]);
        let faults = check(&["a", "b"], &["a -> b"], &[LIB, ("a.rs", ""), b]);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("knows of `a -> b`"), "{faults:?}");
    }

    #[test]
    fn every_module_is_listed_and_every_listed_one_exists() {
        let faults = check(&["a", "c a"], &[], &[LIB, ("a.rs", ""), ("b.rs", "")]);
        assert_eq!(
            faults,
            [
                "layers.toml: [src] lists `c`, which does not exist",
                "layers.toml: [src] lists `a` twice",
                "layers.toml: [src] does not list `b`",
            ]
        );
    }

    #[test]
    fn the_same_holds_for_python() {
        let (init, a) =
            (("__init__.py", "from .b import y\n"), ("a.py", "\"\"\"A.\"\"\"\nfrom .b import y\n"));
        let faults = check(&["a", "b"], &[], &[init, a, ("b.py", "")]);
        assert_eq!(faults, ["src/a.py:2: `a` imports `b`, a later stage (see layers.toml)"]);
        assert_eq!(check(&["b", "a"], &[], &[init, a, ("b.py", "")]), [""; 0]);
    }

    /// The real order, with an import of a later stage planted into the first module of each section.
    #[test]
    fn a_planted_import_is_found_in_every_crate_and_in_the_package() {
        let root = crate::repository::root();
        let sections = sections(&root).unwrap();
        assert!(sections.contains_key("python/remat") && sections.contains_key("crates/remat-cli/src"));
        for (folder, order) in &sections {
            let mut sources = Vec::new();
            collect(&root.join(folder), "", &mut sources).unwrap();
            let n_before = faults_of(folder, order, &read(&sources).unwrap()).len();
            let first = order.layers[0].split_whitespace().next().unwrap();
            let last = order.layers[order.layers.len() - 1].split_whitespace().next().unwrap();
            let source = sources
                .iter_mut()
                .find(|source| {
                    source.path.strip_prefix(first).is_some_and(|rest| rest.starts_with(['.', '/']))
                })
                .unwrap();
            let is_python = folder.starts_with("python/");
            source.text += &if is_python {
                format!("\nfrom .{last} import planted\n")
            } else {
                format!("\nuse crate::{last}::planted;\n")
            };
            let place = format!("{folder}/{}:{}: ", source.path, source.text.lines().count());
            let faults = faults_of(folder, order, &read(&sources).unwrap());
            assert_eq!(faults.len(), n_before + 1, "{folder}: {faults:?}");
            assert!(faults.iter().any(|fault| fault.starts_with(&place)), "{place}: {faults:?}");
        }
    }
}
