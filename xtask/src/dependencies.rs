//! Licences and sources of all dependencies, against deny.toml.
//!
//! In: `cargo metadata` and deny.toml. Out: every package whose licence expression cannot be satisfied by the allowed
//! licences, or that does not come from crates.io. cargo-deny checks more; this needs nothing but cargo, so it runs on
//! every machine.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// How cargo names the registry that everybody uses, whatever host serves it.
fn is_crates_io(source: &str) -> bool {
    source.starts_with("registry+") && source.ends_with("/crates.io-index")
}

/// All faults of the dependency tree.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let rules = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let allowed = allowed_licences(&rules).context("deny.toml has no list `allow` of licences")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(packages.iter().filter_map(|package| fault(package, &allowed)).collect())
}

fn fault(package: &Value, allowed: &[&str]) -> Option<String> {
    let name =
        format!("{} {}", package["name"].as_str().unwrap_or("?"), package["version"].as_str().unwrap_or("?"));
    match package["source"].as_str() {
        // Ours: its licence is our choice.
        None => return None,
        Some(source) if is_crates_io(source) => {}
        Some(other) => return Some(format!("{name} comes from {other}, not from crates.io")),
    }
    let Some(licence) = package["license"].as_str() else {
        return Some(format!("{name} states no licence"));
    };
    match is_satisfied(licence, allowed) {
        Some(true) => None,
        Some(false) => Some(format!("{name} has the licence `{licence}`, which deny.toml does not allow")),
        None => Some(format!("{name} has the licence `{licence}`, which is not an SPDX expression")),
    }
}

/// The quoted words of the list `allow` in the section `[licenses]`.
fn allowed_licences(rules: &str) -> Option<Vec<&str>> {
    let (_, section) = rules.split_once("[licenses]")?;
    let (_, list) = section.split_once("\nallow = [")?;
    let (list, _) = list.split_once(']')?;
    Some(list.split('"').skip(1).step_by(2).collect())
}

/// Whether the allowed licences satisfy an SPDX expression; `None` when it is not one. Some old packages write `/`
/// where they mean `OR`.
fn is_satisfied(expression: &str, allowed: &[&str]) -> Option<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let holds = any_of(&mut words, allowed)?;
    words.is_empty().then_some(holds)
}

/// `AND` binds more tightly than `OR`. Words are taken from the end of the list.
fn any_of(words: &mut Vec<&str>, allowed: &[&str]) -> Option<bool> {
    let mut holds = all_of(words, allowed)?;
    while words.pop_if(|word| *word == "OR").is_some() {
        holds |= all_of(words, allowed)?;
    }
    Some(holds)
}

fn all_of(words: &mut Vec<&str>, allowed: &[&str]) -> Option<bool> {
    let mut holds = one(words, allowed)?;
    while words.pop_if(|word| *word == "AND").is_some() {
        holds &= one(words, allowed)?;
    }
    Some(holds)
}

fn one(words: &mut Vec<&str>, allowed: &[&str]) -> Option<bool> {
    match words.pop()? {
        "(" => {
            let holds = any_of(words, allowed)?;
            (words.pop()? == ")").then_some(holds)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        licence => {
            // An exception is part of the licence's name here: it is allowed only when written out.
            let name = match words.pop_if(|word| *word == "WITH") {
                Some(_) => format!("{licence} WITH {}", words.pop()?),
                None => licence.to_owned(),
            };
            Some(allowed.contains(&name.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_satisfied_by_any_choice_they_offer() {
        let allowed = ["MIT", "Unicode-3.0"];
        for (expression, holds) in [
            ("MIT", Some(true)),
            ("MIT/Apache-2.0", Some(true)),
            ("Apache-2.0 OR BSL-1.0", Some(false)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("MIT AND Apache-2.0", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR MIT", Some(true)),
            ("MIT WITH some-exception", Some(false)),
            ("GPL-3.0 OR MIT AND Apache-2.0", Some(false)),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT MIT", None),
            ("", None),
        ] {
            assert_eq!(is_satisfied(expression, &allowed), holds, "{expression}");
        }
    }

    #[test]
    fn the_list_of_licences_is_found() {
        let rules = "[graph]\n[licenses]\n# why\nallow = [\"MIT\", \"Zlib\"]\n[bans]\n";
        assert_eq!(allowed_licences(rules), Some(vec!["MIT", "Zlib"]));
        assert_eq!(allowed_licences("[bans]\n"), None);
    }

    #[test]
    fn packages_from_elsewhere_are_named() {
        let package =
            serde_json::json!({"name": "x", "version": "1.0.0", "source": "git+https://x", "license": "MIT"});
        assert!(fault(&package, &["MIT"]).unwrap().contains("git+https://x"));
    }
}
